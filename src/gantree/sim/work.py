"""The work of an attempt in simulated time: done, paused, checkpointed, lost.

Seconds of work are seconds that the gang must run undisturbed, at its ideal placement, with the members that were
expected of it.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from gantree.model.jobs import Job


class Doing(StrEnum):
    """What an attempt does at present."""

    STARTING = "starting"
    WORKING = "working"
    SAVING = "saving"
    SUSPENDED = "suspended"
    STOPPING = "stopping"
    ENDING = "ending"
    ENDED = "ended"


@dataclass(slots=True)
class Attempt:
    """One attempt. done_s is its work up to working_since (earlier attempts' kept work included).

    speed is what it works in a second, size its members over those that were expected, stretch_s by how much longer
    than its work it has worked up to working_since (in seconds of the expected members; 0 where speed is size), and
    kept_stretch_s what of that belongs to work that was kept. paused_since is when it was suspended, None if it may
    compute; paused_s is how long it was suspended before. gpus are whole GPUs, failed says that it or what it ran on
    failed, request is that of the save that it was asked for last. turn is that of the newest order to suspend
    or resume it.
    """

    number: int
    ordered_at: float
    kept_before_s: float
    done_s: float
    doing: Doing = Doing.STARTING
    working_since: float | None = None
    foretold: int | None = None
    ended_at: float | None = None
    speed: float = 1.0
    size: float = 1.0
    gpus: int = 0
    failed: bool = False
    request: str | None = None
    stretch_s: float = 0.0
    kept_stretch_s: float = 0.0
    paused_since: float | None = None
    paused_s: float = 0.0
    turn: int = 0

    def work_done_s(self, now: float) -> float:
        """Seconds of work that would be done if it stopped now."""
        if self.working_since is None:
            return self.done_s
        return self.done_s + (now - self.working_since) * self.speed

    def settle(self, now: float) -> None:
        """Count what it has worked until now; who calls it sets working_since anew."""
        if self.working_since is None:
            return
        if self.speed != self.size:
            self.stretch_s += (now - self.working_since) * (self.size - self.speed)
        self.done_s = self.work_done_s(now)


@dataclass(slots=True)
class Work:
    """A job's work: how much there is, how much of it is safe, and what stops have cost so far.

    members is with how many it takes duration_s; None: with however many it has. spec is the job, where it matters to
    its speed. lost_s is the time that attempts before the present one held their place and brought nothing that was
    kept: work to be done again, and starting, saving and stopping; in seconds of the expected members. One start is
    owed in any case and is not in it. lost_s_of_attempt is each attempt's part of it, lost_to_failures_s that of those
    that failed. done_s is all work that attempts before the present one have done, stretch_s by how much longer than
    that they worked, kept_stretch_s what of that belongs to kept work. exit_code is that of the job once
    all its work is done. ends_at is when a replica of a service ends, whenever it starts; None of other jobs.
    """

    duration_s: float
    checkpoint_s: float | None = None
    members: int | None = None
    spec: Job | None = None
    kept_s: float = 0.0
    lost_s: float = 0.0
    lost_to_failures_s: float = 0.0
    done_s: float = 0.0
    stretch_s: float = 0.0
    kept_stretch_s: float = 0.0
    failures: int = 0
    checkpoints: int = 0
    attempt: Attempt | None = None
    ends_at: float | None = None
    exit_code: int = 0
    lost_s_of_attempt: dict[int, float] = field(default_factory=dict)


def rest(attempt: Attempt, now: float, doing: Doing) -> None:
    """Work no more."""
    attempt.settle(now)
    attempt.working_since, attempt.doing = None, doing


def end_pause(attempt: Attempt, now: float) -> None:
    """Suspended no more."""
    if attempt.paused_since is not None:
        attempt.paused_s += now - attempt.paused_since
        attempt.paused_since = None


def until_save_s(work: Work, checkpoint_s: float) -> float:
    """Seconds of work until the job saves by itself."""
    assert work.attempt is not None
    return max(0.0, checkpoint_s - (work.attempt.done_s - work.kept_s))


def held_in_vain_s(attempt: Attempt, kept_s: float) -> float:
    """Seconds for which an attempt that is over held its place, less the work of it that was kept.

    While it was suspended others computed on its GPUs. With half of the expected members its seconds count half. Work
    that was kept took as long as it took: only its own seconds and its stretch are no loss.
    """
    assert attempt.ended_at is not None, "an attempt is started while the one before it still runs"
    held_s = attempt.ended_at - attempt.ordered_at - attempt.paused_s
    kept_for_s = kept_s - attempt.kept_before_s + attempt.kept_stretch_s
    return held_s * attempt.size - kept_for_s


def stretch_of(work: Work) -> float | None:
    """Time that all attempts have worked over the work that they did; None where they did none."""
    done_s, stretch_s = work.done_s, work.stretch_s
    if work.attempt is not None:
        done_s += work.attempt.done_s - work.attempt.kept_before_s
        stretch_s += work.attempt.stretch_s
    return 1 + stretch_s / done_s if done_s > 0 else None


def kept_for_s(work: Work) -> float:
    """For how long the gang has worked on what was kept, in seconds of the expected members."""
    of_this_attempt_s = work.attempt.kept_stretch_s if work.attempt is not None else 0.0
    return work.kept_s + work.kept_stretch_s + of_this_attempt_s
