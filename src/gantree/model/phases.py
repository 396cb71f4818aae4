"""The lifecycle of a job, as a table. Tests walk it, docs draw it, the ledger enforces it.

PENDING   waits for room, for the end of its backoff, or for the jobs of its `after`
STARTING  is placed; the order to start it was sent
RUNNING   all its processes were started
SAVING    saves a checkpoint, or finishes requests, before it stops; still runs and is placed
STOPPING  the order to stop it was sent; is placed until no process is left
others    ended; hold nothing
"""

from enum import StrEnum

AttemptKey = tuple[str, int]
"""A job and its attempt, by which an attempt is known among all."""


class Phase(StrEnum):
    """The phase of a job's lifecycle."""

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
    """Why an attempt is stopped."""

    PREEMPTED = "preempted"
    RESIZED = "resized"
    MOVED = "moved"
    SUSPENDED = "suspended"
    DRAINED = "drained"
    BUDGET = "budget"
    RANK_FAILED = "rank-failed"
    MEMBER_LOST = "member-lost"
    START_FAILED = "start-failed"
    CANNOT_START = "cannot-start"
    CHECK_FAILED = "check-failed"
    TIME_LIMIT = "time-limit"
    CANCELLED = "cancelled"
    IDLE = "idle"
    IDLE_STOP = "idle-stop"


FAILURES = frozenset({StopCause.RANK_FAILED, StopCause.START_FAILED, StopCause.MEMBER_LOST})
"""Causes after which a job is started again as often as its restarts allow."""
