"""A simulated cluster: it carries out orders in simulated time and tracks the work of each job.

Work is measured in seconds that the gang must run undisturbed, with the members that were expected of it. A gang
works from its start to its end, except while it saves on request, while it is suspended, and after it was told to
stop; with other members than expected it works so much faster or slower. What it has done when a checkpoint is durable
is kept; an attempt that follows begins there and does the rest again. Jobs with a checkpoint interval also save by
themselves whenever they have worked that long since the last time; such a checkpoint costs nothing of its own,
because the run time in the trace was measured with it.

Each attempt has at most one event that is foretold: that it has started, saved, or ended. An order replaces it.
`happen` is called when its time has come: only then does the state of the attempt change, and the event is
emitted to the scheduler. Carrying out an order twice is the same as once; orders of an older epoch are refused, and
so are suspensions of an older turn.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gantree.model.events import CheckpointSaved, Event, GangEnded, GangStarted
from gantree.model.jobs import Job
from gantree.model.orders import (
    Order,
    ResumeGang,
    SaveCheckpoint,
    SignalGang,
    StartGang,
    StopGang,
    SuspendGang,
)
from gantree.sim.heap import EventHeap
from gantree.sim.running.step_speed import StepSpeed
from gantree.sim.work import (
    Attempt,
    Doing,
    Work,
    end_pause,
    held_in_vain_s,
    rest,
    until_save_s,
)

TERMINATED = 143
"""Exit code of a process that SIGTERM ended, as the shell counts."""


@dataclass(frozen=True, slots=True)
class Overheads:
    """Seconds that a cluster needs for each kind of order; 0 by default.

    The default of 0 keeps replays of public traces comparable, whose run times include start-up. start_s is from
    the order to the moment all ranks work, stop_s from the order until nothing is left, save_s from a request for
    a checkpoint until it is durable; the gang does not work meanwhile.

    start_s_of_job replaces start_s for the jobs that are in it. at_every_event is the rule of Muri's experiment: a
    start takes no time, but whenever anything happens on the cluster, every gang that works has worked so much less
    since the last time, never less than nothing. Whoever ends then has ended.
    """

    start_s: float = 0.0
    stop_s: float = 0.0
    save_s: float = 0.0
    start_s_of_job: Mapping[str, float] = field(default_factory=dict)
    at_every_event: bool = False

    def of_start_s(self, job: str) -> float:
        """What a start of this job costs, by whichever rule."""
        return self.start_s_of_job.get(job, self.start_s)


class SimCluster:
    """Carries out orders in the time of `heap`; emit takes each event at the moment it happens."""

    def __init__(
        self,
        heap: EventHeap,
        emit: Callable[[Event], None],
        clock: Callable[[], float],
        overheads: Overheads,
        speeds: StepSpeed | None = None,
    ) -> None:
        self._heap = heap
        self._emit = emit
        self._clock = clock
        self._overheads = overheads
        self._speeds = speeds
        self._epoch = 0
        self.work_of_job: dict[str, Work] = {}
        self._working: dict[str, Attempt] = {}

    def expect(
        self,
        job: str,
        duration_s: float,
        checkpoint_s: float | None,
        members: int | None = None,
        spec: Job | None = None,
    ) -> None:
        """Make known how much work a job is, and after how much of it the job saves (None: it cannot).

        members is with how many members it takes duration_s: with twice as many it takes half of it. spec is the job,
        where its speed depends on where it is placed.
        """
        self.work_of_job[job] = Work(duration_s, checkpoint_s, members, spec)

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
            case SuspendGang() | ResumeGang():
                self._take_turn(order, work)
            case SignalGang():
                pass  # nobody here has a handler

    def _start(self, order: StartGang, work: Work) -> None:
        if work.attempt is not None and work.attempt.number >= order.attempt:
            return
        attempt = self._follow_up(work, order.attempt, Doing.STARTING)
        attempt.size = len(order.members) / work.members if work.members else 1.0
        attempt.speed = self._speed(work, order, attempt.size)
        start_s = 0.0 if self._overheads.at_every_event else self._overheads.of_start_s(order.job)
        self._schedule_event(
            attempt,
            GangStarted(
                id=f"{order.job}/{order.attempt}/started",
                observed_at=attempt.ordered_at + start_s,
                job=order.job,
                attempt=order.attempt,
            ),
        )

    def _speed(self, work: Work, order: StartGang, size: float) -> float:
        if self._speeds is None or work.spec is None:
            return size
        return self._speeds.speed(work.spec, len(order.members), order.step_s)

    def _follow_up(self, work: Work, number: int, doing: Doing) -> Attempt:
        """Begin an attempt where the one before it left off, and settle what that one cost."""
        if work.attempt is not None:
            lost_s = held_in_vain_s(work.attempt, work.kept_s)
            work.lost_s += lost_s
            work.lost_s_of_attempt[work.attempt.number] = lost_s
            work.done_s += work.attempt.done_s - work.attempt.kept_before_s
            work.stretch_s += work.attempt.stretch_s
        work.attempt = Attempt(number, self._clock(), work.kept_s, work.kept_s, doing)
        return work.attempt

    def _save(self, order: SaveCheckpoint, work: Work) -> None:
        attempt = work.attempt
        if attempt is None or attempt.number != order.attempt or work.checkpoint_s is None:
            return
        if attempt.doing is not Doing.WORKING:
            return
        now = self._clock()
        rest(attempt, now, Doing.SAVING)
        saved_at = now + self._overheads.save_s
        self._schedule_event(
            attempt, self._saved(order.job, work, attempt, saved_at, order.request)
        )

    def _stop(self, order: StopGang, work: Work) -> None:
        attempt, now = work.attempt, self._clock()
        if attempt is None or attempt.number < order.attempt:
            # What is stopped before it was started never starts, and nothing of it is left at once.
            attempt, ended_at = self._follow_up(work, order.attempt, Doing.STOPPING), now
        elif attempt.number > order.attempt or attempt.doing in (Doing.STOPPING, Doing.ENDED):
            return
        else:
            rest(attempt, now, Doing.STOPPING)
            ended_at = now + self._overheads.stop_s
        self._schedule_event(attempt, _ended(order.job, attempt.number, ended_at, TERMINATED))

    def _take_turn(self, order: SuspendGang | ResumeGang, work: Work) -> None:
        attempt, now = work.attempt, self._clock()
        if attempt is None or attempt.number != order.attempt or order.turn < attempt.turn:
            return
        attempt.turn = order.turn
        if isinstance(order, SuspendGang):
            if attempt.paused_since is None:
                attempt.paused_since = now
            if attempt.doing is Doing.WORKING:
                rest(attempt, now, Doing.SUSPENDED)
                self._retract(attempt)
        else:
            end_pause(attempt, now)
            if attempt.doing is Doing.SUSPENDED:
                self._work_on(order.job, now)

    # ----- what comes of them

    def charge(self) -> None:
        """Something has happened on the cluster now: everybody who works pays for it, under the rule at_every_event."""
        if not self._overheads.at_every_event:
            return
        now = self._clock()
        working = {job: each for job, each in self._working.items() if each.doing is Doing.WORKING}
        self._working = working
        for job, attempt in working.items():
            assert attempt.working_since is not None
            passed_s = now - attempt.working_since
            if passed_s > 0:
                worked_s = max(0.0, passed_s - self._overheads.of_start_s(job))
                attempt.done_s += worked_s * attempt.speed
                attempt.working_since = now
                self._work_on(job, now)

    def happen(self, event: Event) -> None:
        """The time of an event that was foretold here has come."""
        assert isinstance(event, GangStarted | CheckpointSaved | GangEnded), f"{event.id}: not ours"
        self._running(event.job)[1].foretold = None
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
        attempt.settle(event.observed_at)
        attempt.working_since = None
        work.kept_s, attempt.kept_stretch_s = attempt.done_s, attempt.stretch_s
        work.checkpoints += 1
        self._work_on(event.job, event.observed_at)

    def _end(self, event: GangEnded) -> None:
        work, attempt = self._running(event.job)
        rest(attempt, event.observed_at, Doing.ENDED)
        end_pause(attempt, event.observed_at)
        attempt.ended_at = event.observed_at
        if event.exit_code == 0:
            work.kept_s, attempt.kept_stretch_s = work.duration_s, attempt.stretch_s

    def _work_on(self, job: str, now: float) -> None:
        """Work from now on, unless suspended; foretell the next checkpoint or the end, whichever comes first."""
        work, attempt = self._running(job)
        attempt.settle(now)
        if attempt.paused_since is not None:
            attempt.working_since, attempt.doing = None, Doing.SUSPENDED
            return
        attempt.working_since, attempt.doing = now, Doing.WORKING
        self._working[job] = attempt
        remaining_s = max(0.0, work.duration_s - attempt.done_s)
        due_s = None if work.checkpoint_s is None else until_save_s(work, work.checkpoint_s)
        if due_s is not None and due_s < remaining_s:
            event: Event = self._saved(job, work, attempt, now + due_s / attempt.speed, None)
        else:
            event = _ended(job, attempt.number, now + remaining_s / attempt.speed, work.exit_code)
        self._schedule_event(attempt, event)

    def _running(self, job: str) -> tuple[Work, Attempt]:
        work = self.work_of_job[job]
        assert work.attempt is not None, f"{job} was never started"
        return work, work.attempt

    def _schedule_event(self, attempt: Attempt, event: Event) -> None:
        self._retract(attempt)
        attempt.foretold = self._heap.push(event)

    def _retract(self, attempt: Attempt) -> None:
        if attempt.foretold is not None:
            self._heap.retract(attempt.foretold)
            attempt.foretold = None

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


def _ended(job: str, attempt: int, at: float, exit_code: int) -> GangEnded:
    return GangEnded(
        id=f"{job}/{attempt}/ended", observed_at=at, job=job, attempt=attempt, exit_code=exit_code
    )
