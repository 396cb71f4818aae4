"""A cluster that exists in simulated time only: it carries out orders, and knows how much work each job has done.

Work is measured in seconds that the gang must run undisturbed. A gang works from its start to its end, except
while it saves on request and after it was told to stop. What it has done when a checkpoint is durable is kept;
an attempt that follows begins there and does the rest again. Jobs with a checkpoint interval also save by
themselves whenever they have worked that long since the last time; such a checkpoint costs nothing of its own,
because the run time in the trace was measured with it.

Each attempt has at most one event that is foretold: that it has started, saved, or ended. An order replaces it.
`happen` is called when its time has come: only then does the state of the attempt change, and the event is
emitted to the scheduler. Carrying out an order twice is the same as once; orders of an older epoch are refused.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from gantree.model.events import CheckpointSaved, Event, GangEnded, GangStarted
from gantree.model.orders import Order, SaveCheckpoint, StartGang, StopGang
from gantree.sim.heap import EventHeap

TERMINATED = 143
"""Exit code of a process that SIGTERM ended, as the shell counts."""


@dataclass(frozen=True, slots=True)
class Overheads:
    """Seconds that a cluster takes for what it is told to do; all 0 where not said.

    The default of 0 keeps replays of public traces comparable, whose run times include start-up. start_s is from
    the order to the moment all ranks work, stop_s from the order until nothing is left, save_s from a request for
    a checkpoint until it is durable; the gang does not work meanwhile.
    """

    start_s: float = 0.0
    stop_s: float = 0.0
    save_s: float = 0.0


class Doing(StrEnum):
    """What an attempt does at present."""

    STARTING = "starting"
    WORKING = "working"
    SAVING = "saving"
    STOPPING = "stopping"
    ENDED = "ended"


@dataclass(slots=True)
class Attempt:
    """One attempt. done_s is its work up to working_since (earlier attempts' kept work included)."""

    number: int
    ordered_at: float
    kept_before_s: float
    done_s: float
    doing: Doing = Doing.STARTING
    working_since: float | None = None
    foretold: int | None = None
    ended_at: float | None = None

    def work_done_s(self, now: float) -> float:
        """Seconds of work that would be done if it stopped now."""
        return self.done_s + (0.0 if self.working_since is None else now - self.working_since)


@dataclass(slots=True)
class Work:
    """A job's work: how much there is, how much of it is safe, and what stops have cost so far.

    lost_s is the time that attempts before the present one held their place and brought nothing that was kept:
    work to be done again, and starting, saving and stopping. One start is owed in any case and is not in it.
    """

    duration_s: float
    checkpoint_s: float | None = None
    kept_s: float = 0.0
    lost_s: float = 0.0
    checkpoints: int = 0
    attempt: Attempt | None = None


class SimCluster:
    """Carries out orders in the time of `heap`; emit takes each event at the moment it happens."""

    def __init__(
        self,
        heap: EventHeap,
        emit: Callable[[Event], None],
        clock: Callable[[], float],
        overheads: Overheads,
    ) -> None:
        self._heap = heap
        self._emit = emit
        self._clock = clock
        self._overheads = overheads
        self._epoch = 0
        self.work_of_job: dict[str, Work] = {}

    def expect(self, job: str, duration_s: float, checkpoint_s: float | None) -> None:
        """Make known how much work a job is, and after how much of it the job saves (None: it cannot)."""
        self.work_of_job[job] = Work(duration_s, checkpoint_s)

    def inventory(self) -> dict[tuple[str, int], Doing]:
        """What each job's newest attempt does now, by (job, attempt)."""
        return {
            (job, work.attempt.number): work.attempt.doing
            for job, work in self.work_of_job.items()
            if work.attempt is not None
        }

    # ----- orders

    def carry_out(self, order: Order) -> None:
        """Begin to carry out an order; what comes of it is foretold on the heap."""
        if order.epoch < self._epoch or order.job not in self.work_of_job:
            return
        self._epoch = order.epoch
        work = self.work_of_job[order.job]
        match order:
            case StartGang():
                self._start(order, work)
            case SaveCheckpoint():
                self._save(order, work)
            case StopGang():
                self._stop(order, work)

    def _start(self, order: StartGang, work: Work) -> None:
        if work.attempt is not None and work.attempt.number >= order.attempt:
            return
        attempt = self._follow_up(work, order.attempt, Doing.STARTING)
        self._foretell(
            attempt,
            GangStarted(
                id=f"{order.job}/{order.attempt}/started",
                observed_at=attempt.ordered_at + self._overheads.start_s,
                job=order.job,
                attempt=order.attempt,
            ),
        )

    def _follow_up(self, work: Work, number: int, doing: Doing) -> Attempt:
        """Begin an attempt where the one before it left off, and settle what that one cost."""
        if work.attempt is not None:
            work.lost_s += _held_in_vain_s(work.attempt, work.kept_s)
        work.attempt = Attempt(number, self._clock(), work.kept_s, work.kept_s, doing)
        return work.attempt

    def _save(self, order: SaveCheckpoint, work: Work) -> None:
        attempt = work.attempt
        if attempt is None or attempt.number != order.attempt or work.checkpoint_s is None:
            return
        if attempt.doing is not Doing.WORKING:
            return
        now = self._clock()
        _rest(attempt, now, Doing.SAVING)
        saved_at = now + self._overheads.save_s
        self._foretell(attempt, self._saved(order.job, work, attempt, saved_at, order.request))

    def _stop(self, order: StopGang, work: Work) -> None:
        attempt, now = work.attempt, self._clock()
        if attempt is None or attempt.number < order.attempt:
            # What is stopped before it was started never starts, and nothing of it is left at once.
            attempt, ended_at = self._follow_up(work, order.attempt, Doing.STOPPING), now
        elif attempt.number > order.attempt or attempt.doing in (Doing.STOPPING, Doing.ENDED):
            return
        else:
            _rest(attempt, now, Doing.STOPPING)
            ended_at = now + self._overheads.stop_s
        self._foretell(attempt, _ended(order.job, attempt.number, ended_at, TERMINATED))

    # ----- what comes of them

    def happen(self, event: Event) -> None:
        """The time of an event that was foretold here has come."""
        match event:
            case GangStarted():
                self._work_on(event.job, event.observed_at)
            case CheckpointSaved():
                self._keep(event)
            case GangEnded():
                self._end(event)
        self._emit(event)

    def _keep(self, event: CheckpointSaved) -> None:
        work, attempt = self._running(event.job)
        work.kept_s = attempt.work_done_s(event.observed_at)
        work.checkpoints += 1
        self._work_on(event.job, event.observed_at)

    def _end(self, event: GangEnded) -> None:
        work, attempt = self._running(event.job)
        _rest(attempt, event.observed_at, Doing.ENDED)
        attempt.ended_at = event.observed_at
        attempt.foretold = None
        if event.exit_code == 0:
            work.kept_s = work.duration_s

    def _work_on(self, job: str, now: float) -> None:
        """Work from now on; foretell the next checkpoint or the end, whichever comes first."""
        work, attempt = self._running(job)
        attempt.done_s = attempt.work_done_s(now)
        attempt.working_since, attempt.doing = now, Doing.WORKING
        attempt.foretold = None
        remaining_s = max(0.0, work.duration_s - attempt.done_s)
        if work.checkpoint_s is not None and work.checkpoint_s < remaining_s:
            event: Event = self._saved(job, work, attempt, now + work.checkpoint_s, None)
        else:
            event = _ended(job, attempt.number, now + remaining_s, 0)
        self._foretell(attempt, event)

    def _running(self, job: str) -> tuple[Work, Attempt]:
        work = self.work_of_job[job]
        assert work.attempt is not None, f"{job} was never started"
        return work, work.attempt

    def _foretell(self, attempt: Attempt, event: Event) -> None:
        if attempt.foretold is not None:
            self._heap.retract(attempt.foretold)
        attempt.foretold = self._heap.push(event)

    def _saved(
        self, job: str, work: Work, attempt: Attempt, at: float, request: str | None
    ) -> CheckpointSaved:
        """A checkpoint at a moment; its step is the whole seconds of work that it keeps."""
        return CheckpointSaved(
            id=f"{job}/{attempt.number}/checkpoint-{work.checkpoints + 1}",
            observed_at=at,
            job=job,
            attempt=attempt.number,
            step=int(attempt.work_done_s(at)),
            request=request,
        )


def _rest(attempt: Attempt, now: float, doing: Doing) -> None:
    """Work no more."""
    attempt.done_s = attempt.work_done_s(now)
    attempt.working_since, attempt.doing = None, doing


def _held_in_vain_s(attempt: Attempt, kept_s: float) -> float:
    """Seconds for which an attempt that is over held its place, less the work of it that was kept."""
    assert attempt.ended_at is not None, "an attempt is started while the one before it still runs"
    return attempt.ended_at - attempt.ordered_at - (kept_s - attempt.kept_before_s)


def _ended(job: str, attempt: int, at: float, exit_code: int) -> GangEnded:
    return GangEnded(
        id=f"{job}/{attempt}/ended", observed_at=at, job=job, attempt=attempt, exit_code=exit_code
    )
