"""A job that has ended, as it stays on record for ever; and what a search for such jobs can ask for.

A row is made once, from the state of the job in the decision that ends it (`control.history`).
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedJob:
    """One job. Times are seconds of `Event.observed_at`.

    gpus, nodes and gpu_model are those of the last attempt, as it held them; of a job that never started what it asked
    for, and none. gpu_model lists several with commas, nodes is a hostlist. priority is its number. held_gpu_s are
    the GPU-seconds that it held (a part of a GPU as that part), lost_gpu_s those of them whose work was done again,
    waited_s the seconds in which it waited and was not held back, useful_gpu_s and idle_gpu_s the
    GPU-seconds that counters told of and that were not lost. project is the label under which it was counted.
    """

    job: str
    name: str
    queue: str
    user: str
    priority: int
    outcome: str
    reason: str
    exit_code: int | None
    last_failure: str
    submitted_at: float
    started_at: float | None
    ended_at: float
    attempts: int
    failures: int
    preemptions: int
    members: int
    processes: int
    gpus: int
    gpu_model: str
    nodes: str
    held_gpu_s: float
    lost_gpu_s: float
    waited_s: float
    project: str = ""
    useful_gpu_s: float = 0.0
    idle_gpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RecordedJob:
    """An ended job with its place in the history: the seq of the fact by which it ended."""

    seq: int
    ended: EndedJob


@dataclass(frozen=True, slots=True)
class Scope:
    """Jobs of a queue and all below it ("": of every queue), of one user (None: of all)."""

    queue: str = ""
    user: str | None = None


EVERYTHING = (Scope(),)


@dataclass(frozen=True, slots=True)
class JobSearch:
    """What an ended job must be to be found; None or empty: anything.

    queue is one with all below it. name is a pattern of a name or an id, with `*` and `?`; exact_name is a name. The
    job ended at since or later, and before until. scopes: it is in one of them.
    """

    queue: str | None = None
    user: str | None = None
    name: str | None = None
    outcomes: frozenset[str] = frozenset()
    since: float | None = None
    until: float | None = None
    exact_name: str | None = None
    scopes: tuple[Scope, ...] = EVERYTHING
