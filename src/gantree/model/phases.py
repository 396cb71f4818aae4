"""The lifecycle of a job, as a table. Tests walk it, docs draw it, the ledger enforces it.

PENDING   waits for room, for its backoff to pass, or for the jobs it comes after
STARTING  holds its place; the cluster was told to start it
RUNNING   all its processes have been started
SAVING    was asked for a checkpoint before it is stopped; still runs and holds its place
STOPPING  was told to stop; holds its place until nothing of it is left
the rest  ended, and hold nothing
"""

from enum import StrEnum


class Phase(StrEnum):
    """Where a job is in its life."""

    PENDING = "pending"
    STARTING = "starting"
    RUNNING = "running"
    SAVING = "saving"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed-out"


ENDED = frozenset({Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED, Phase.TIMED_OUT})
HOLDING = frozenset({Phase.STARTING, Phase.RUNNING, Phase.SAVING, Phase.STOPPING})

NEXT: dict[Phase, frozenset[Phase]] = {
    Phase.PENDING: frozenset({Phase.STARTING, Phase.CANCELLED, Phase.FAILED}),
    Phase.STARTING: frozenset({Phase.RUNNING, Phase.SAVING, Phase.STOPPING, Phase.PENDING}) | ENDED,
    Phase.RUNNING: frozenset({Phase.SAVING, Phase.STOPPING, Phase.PENDING}) | ENDED,
    Phase.SAVING: frozenset({Phase.STOPPING, Phase.PENDING}) | ENDED,
    Phase.STOPPING: frozenset({Phase.STOPPING, Phase.PENDING})
    | ENDED,  # itself: another cause took over
    Phase.SUCCEEDED: frozenset(),
    Phase.FAILED: frozenset(),
    Phase.CANCELLED: frozenset(),
    Phase.TIMED_OUT: frozenset(),
}


class StopCause(StrEnum):
    """Why an attempt was told to stop."""

    PREEMPTED = "preempted"
    RESIZED = "resized"
    MOVED = "moved"
    SUSPENDED = "suspended"
    DRAINED = "drained"
    RANK_FAILED = "rank-failed"
    MEMBER_LOST = "member-lost"
    START_FAILED = "start-failed"
    CANNOT_START = "cannot-start"
    TIME_LIMIT = "time-limit"
    CANCELLED = "cancelled"
