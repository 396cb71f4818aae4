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

from collections.abc import Callable
from dataclasses import replace

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
    WriteToLog,
)
from gantree.sim.attempt_events import WorkDone, ended_event, saved_event, started_event
from gantree.sim.heap import EventHeap
from gantree.sim.overheads import Overheads
from gantree.sim.running.faults import Fault
from gantree.sim.running.model import Checkpoints
from gantree.sim.running.pace import Pace
from gantree.sim.running.transfers import SaveDue, TransferDone, TransferDue, Transfers
from gantree.sim.work import (
    Attempt,
    Doing,
    Work,
    end_pause,
    held_in_vain_s,
    rest,
    until_save_s,
)

__all__ = ["Overheads", "SimCluster"]

LEAVING = (Doing.ENDING, Doing.STOPPING, Doing.ENDED)
"""Whoever does one of these is not stopped any more."""
TERMINATED = 143
"""Exit code of a process that SIGTERM ended, as the shell counts."""


class SimCluster:
    """Carries out orders in the time of `heap`; emit takes each event at the moment it happens."""

    def __init__(
        self,
        heap: EventHeap,
        emit: Callable[[Event], None],
        clock: Callable[[], float],
        overheads: Overheads,
        pace: Pace | None = None,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        self._heap = heap
        self._emit = emit
        self._clock = clock
        self._overheads = overheads
        self.pace = pace
        self._checkpoints = checkpoints or Checkpoints()
        self._transfers = Transfers(self._checkpoints, heap)
        self._saving_costs = self._checkpoints.save_s > 0 or bool(self._checkpoints.store_GBps)
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
        ends_at: float | None = None,
    ) -> None:
        """Make known how much work a job is, and after how much of it the job saves (None: it cannot).

        members is with how many members it takes duration_s: with twice as many it takes half of it. spec is the job,
        where its speed depends on where it is placed. A replica of a service works until ends_at, whenever it starts.
        """
        self.work_of_job[job] = Work(duration_s, checkpoint_s, members, spec, ends_at=ends_at)

    def change_work(self, job: str, duration_s: float) -> None:
        """There is more or less work in all than was expected; never less than is done."""
        work = self.work_of_job[job]
        work.duration_s = duration_s
        if work.attempt is not None and work.attempt.doing is Doing.WORKING:
            self._work_on(job, self._clock())

    def end_by(self, job: str, at: float) -> None:
        """A replica of a service works no longer than until a moment."""
        work = self.work_of_job[job]
        work.ends_at = at
        if work.attempt is not None and work.attempt.doing is Doing.WORKING:
            self._work_on(job, self._clock())

    def forget(self, job: str) -> None:
        """Forget a job that is over."""
        del self.work_of_job[job]

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
            case SignalGang() | WriteToLog():
                pass  # nobody here has a handler

    def _start(self, order: StartGang, work: Work) -> None:
        if work.attempt is not None and work.attempt.number >= order.attempt:
            return
        attempt = self._follow_up(work, order.attempt, Doing.STARTING)
        attempt.size = len(order.members) / work.members if work.members else 1.0
        attempt.gpus = sum(len(member.gpus) for member in order.members)
        attempt.speed = attempt.size
        if self.pace is not None and work.spec is not None:
            attempt.speed = self.pace.start(order, work.spec)
        start_s = self._overheads.of_start_s(order.job, order.attempt)
        start_s = 0.0 if self._overheads.at_every_event else start_s
        restores = work.kept_s > 0 and work.ends_at is None
        restore_s = self._checkpoints.restore_s if restores else 0.0
        started = started_event(order, attempt.ordered_at + start_s + restore_s)
        begins = self._transfers.event(started, attempt.gpus) if restores else started
        self._schedule_event(attempt, begins)

    def _follow_up(self, work: Work, number: int, doing: Doing) -> Attempt:
        """Begin an attempt where the one before it left off, and settle what that one cost."""
        if work.attempt is not None:
            lost_s = held_in_vain_s(work.attempt, work.kept_s)
            work.lost_s += lost_s
            work.lost_s_of_attempt[work.attempt.number] = lost_s
            if work.attempt.failed:
                work.lost_to_failures_s += lost_s
            work.done_s += work.attempt.done_s - work.attempt.kept_before_s
            work.stretch_s += work.attempt.stretch_s
            work.kept_stretch_s += work.attempt.kept_stretch_s
        work.attempt = Attempt(number, self._clock(), work.kept_s, work.kept_s, doing)
        return work.attempt

    def _save(self, order: SaveCheckpoint, work: Work) -> None:
        attempt = work.attempt
        if attempt is None or attempt.number != order.attempt or work.checkpoint_s is None:
            return
        if attempt.doing in (Doing.WORKING, Doing.SAVING):
            attempt.request = (
                order.request
            )  # a save that the gang has begun by itself answers it, too
        if attempt.doing is Doing.WORKING:
            save_s = self._overheads.of_save_s(order.job, order.attempt)
            self._begin_save(order.job, work, attempt, save_s)

    def _begin_save(self, job: str, work: Work, attempt: Attempt, more_s: float = 0.0) -> None:
        now = self._clock()
        rest(attempt, now, Doing.SAVING)
        saved = saved_event(job, work, attempt, now + more_s + self._checkpoints.save_s)
        self._schedule_event(attempt, self._transfers.event(saved, attempt.gpus))

    def _stop(self, order: StopGang, work: Work) -> None:
        attempt, now = work.attempt, self._clock()
        if attempt is None or attempt.number < order.attempt:
            # What is stopped before it was started never starts, and nothing of it is left at once.
            attempt, ended_at = self._follow_up(work, order.attempt, Doing.STOPPING), now
        elif attempt.number > order.attempt or attempt.doing in LEAVING:
            return
        else:
            rest(attempt, now, Doing.STOPPING)
            self._leave(order.job, now)
            ended_at = now + self._overheads.of_stop_s(order.job, order.attempt)
        self._schedule_event(attempt, ended_event(order.job, attempt.number, ended_at, TERMINATED))

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
                self._leave(order.job, now)
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
        match event:
            case TransferDone():
                self.happen(self._transfers.done(event.observed_at))
                return
            case TransferDue():
                attempt = self._running(event.job)[1]
                attempt.foretold = None
                self._transfers.begin(event, attempt.gpus)
                return
            case WorkDone():
                self._work_done(event)
                return
            case SaveDue():
                work, attempt = self._running(event.job)
                attempt.foretold = None
                self._begin_save(event.job, work, attempt)
                return
        assert isinstance(event, GangStarted | CheckpointSaved | GangEnded), f"{event.id}: not ours"
        attempt = self._running(event.job)[1]
        attempt.foretold = None
        match event:
            case GangStarted():
                self._work_on(event.job, event.observed_at)
            case CheckpointSaved():
                event = replace(event, request=attempt.request) if attempt.request else event
                self._keep(event)
            case GangEnded():
                self._end(event)
        self._emit(event)

    def note_failure(self, job: str, attempt: int) -> None:
        """An attempt is stopped because it failed, or because what it ran on did."""
        work = self.work_of_job.get(job)
        if work is not None and work.attempt is not None and work.attempt.number == attempt:
            work.attempt.failed = True
            work.failures += 1

    def repace(self) -> None:
        """Let gangs whose speed has changed go on at the new one; call it when all of a moment has been decided."""
        if self.pace is None:
            return
        now = self._clock()
        for job, speed in self.pace.changed():
            attempt = self._running(job)[1]
            attempt.settle(now)
            attempt.speed = speed
            if attempt.working_since is not None:
                attempt.working_since = now
                self._work_on(job, now)

    def degrade(self, fault: Fault) -> None:
        """The up-links of a domain carry less, or all again."""
        if self.pace is not None and fault.kind == "link":
            self.pace.degrade(fault.domain, 1.0 if fault.up else fault.health)

    def _leave(self, job: str, now: float) -> None:
        """A gang does not communicate any more."""
        self._transfers.drop(job, now)
        if self.pace is not None:
            self.pace.leave(job)

    def _keep(self, event: CheckpointSaved) -> None:
        work, attempt = self._running(event.job)
        attempt.settle(event.observed_at)
        attempt.working_since = None
        work.kept_s, attempt.kept_stretch_s = attempt.done_s, attempt.stretch_s
        work.checkpoints += 1
        attempt.request = None
        self._work_on(event.job, event.observed_at)

    def _work_done(self, event: WorkDone) -> None:
        work, attempt = self._running(event.job)
        attempt.foretold, done_at = None, event.observed_at
        rest(attempt, done_at, Doing.ENDING)
        self._working.pop(event.job, None)
        self._leave(event.job, done_at)
        ended_at = done_at + self._overheads.of_end_s(event.job, attempt.number)
        ended = ended_event(event.job, attempt.number, ended_at, work.exit_code, done_at)
        self._schedule_event(attempt, ended)

    def _end(self, event: GangEnded) -> None:
        work, attempt = self._running(event.job)
        by_itself = attempt.doing is not Doing.STOPPING
        rest(attempt, event.observed_at, Doing.ENDED)
        end_pause(attempt, event.observed_at)
        attempt.ended_at = event.observed_at
        if work.ends_at is not None:  # what was served is served
            work.kept_s, attempt.kept_stretch_s = attempt.done_s, attempt.stretch_s
        elif event.exit_code == 0:
            work.kept_s, attempt.kept_stretch_s = work.duration_s, attempt.stretch_s
        elif by_itself:
            self.note_failure(event.job, attempt.number)
        self._working.pop(event.job, None)
        self._leave(event.job, event.observed_at)
        if self.pace is not None:
            self.pace.forget(event.job)

    def _work_on(self, job: str, now: float) -> None:
        """Work from now on, unless suspended; foretell the next checkpoint or the end, whichever comes first."""
        work, attempt = self._running(job)
        attempt.settle(now)
        if attempt.paused_since is not None:
            attempt.working_since, attempt.doing = None, Doing.SUSPENDED
            return
        if attempt.doing is not Doing.WORKING and self.pace is not None:
            self.pace.join(job)
        attempt.working_since, attempt.doing = now, Doing.WORKING
        self._working[job] = attempt
        if work.ends_at is not None:
            ends_at = max(now, work.ends_at)
            self._schedule_event(attempt, ended_event(job, attempt.number, ends_at, 0))
            return
        remaining_s = max(0.0, work.duration_s - attempt.done_s)
        due_s = None if work.checkpoint_s is None else until_save_s(work, work.checkpoint_s)
        if due_s is not None and due_s < remaining_s:
            saves_at = now + due_s / attempt.speed
            event: Event = (
                SaveDue(id=f"{job}/save", observed_at=saves_at, job=job)
                if self._saving_costs
                else saved_event(job, work, attempt, saves_at)
            )
        else:
            done_at = now + remaining_s / attempt.speed
            event = (
                WorkDone(id=f"{job}/done", observed_at=done_at, job=job)
                if self._overheads.of_end_s(job, attempt.number)
                else ended_event(job, attempt.number, done_at, work.exit_code)
            )
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
