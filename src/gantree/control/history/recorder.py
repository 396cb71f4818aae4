"""What facts add to the history: the jobs that they end, what is used, and how long jobs waited."""

from collections.abc import Callable, Mapping
from typing import Any

from gantree.accounting.change import NO_CHANGE, HistoryChange
from gantree.accounting.ended_jobs import EndedJob
from gantree.accounting.meter import UsageMeter
from gantree.accounting.usage import CountedTo
from gantree.control.history.ended_jobs import ended_elements, ended_job, measured_gpu_s
from gantree.control.history.gangs import GangUse, gang_of
from gantree.control.history.levels import held_s, levels_of
from gantree.control.history.site_use import SITE_COLUMNS, SiteUse
from gantree.control.history.waiting import WaitingJobs, key_of
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.model.arrays import size_of
from gantree.model.facts import (
    ArrayAccepted,
    ArrayEnded,
    ArrayHeld,
    ArrayReleased,
    AttemptEnded,
    CheckpointRecorded,
    CheckpointRequested,
    Fact,
    GangPlaced,
    GangPreempted,
    GangResumed,
    GangRunning,
    GangSuspended,
    GpuUseNoted,
    JobAccepted,
    JobEnded,
    JobHeld,
    JobReleased,
    JobRequeued,
    StopDecided,
)
from gantree.model.phases import Phase


class HistoryRecorder:
    """Follows the facts of one ledger. After a turn that failed another one begins anew."""

    def __init__(
        self, ledger: Ledger, now: float, counted: CountedTo, widths_at: float | None = None
    ) -> None:
        """ledger is as at the moment now, up to which nothing is counted but what counted says.

        widths_at: as in `UsageMeter`, where facts are older than the present.
        """
        self._meter = UsageMeter(levels_of(ledger, counted, now), counted.all_to, widths_at)
        self._gangs = GangUse(self._meter, ledger, now)
        self._waiting = WaitingJobs(self._meter, ledger)
        self._site = SiteUse()
        self._held = {
            state.job: held_s(state) for state in ledger.jobs.values() if _may_be_held(state)
        }
        self._held_since = {
            state.job: state.metered.metered_at or state.submitted_at
            for state in ledger.jobs.values()
            if state.held and state.ended_at is None
        }
        self._ended: list[tuple[int, EndedJob]] = []
        self._told_late: dict[str, tuple[float, float]] = {}
        self._at: float | None = None

    def note(self, index: int, fact: Fact, ledger: Ledger) -> None:
        """Note a fact, with its index among those of the change; the ledger has applied it, and perhaps later ones."""
        self._at = fact.at
        noted = _NOTED.get(type(fact))
        if noted is not None:
            noted(self, fact, ledger)
        if type(fact) is JobEnded:
            self._ended.append((index, ended_job(ledger.jobs[fact.job])))
        elif type(fact) is ArrayEnded:
            array = ledger.arrays[fact.array]
            priority = ledger.policy.priority_of(array.spec.priority)
            self._ended.append((index, ended_elements(array, priority)))

    def settle(self, ledger: Ledger) -> None:
        """Note what the GPUs are for that no gang holds, as the last fact has left them."""
        levels = self._site.changed(ledger, self._gangs.gpus_of_model)
        if levels is None or self._at is None:
            return
        for key in self._meter.models:
            self._meter.set(self._at, key, levels.get(key, dict.fromkeys(SITE_COLUMNS, 0.0)))
        for key, amounts in levels.items():
            self._meter.set(self._at, key, amounts)

    def taken(self, *, all_of_it: bool = False) -> HistoryChange:
        """What was noted since the last change. all_of_it: with all that is used up to the last fact."""
        if self._at is None:
            return NO_CHANGE
        usage = self._meter.taken(self._at, all_of_it=all_of_it)
        ended, self._ended, self._at = tuple(self._ended), [], None
        late, self._told_late = self._told_late, {}
        told_late = tuple((job, *measured) for job, measured in late.items())
        return HistoryChange(ended, usage, told_late) if ended or usage or told_late else NO_CHANGE

    def _array_accepted(self, fact: ArrayAccepted, ledger: Ledger) -> None:
        self._waiting.array_comes(fact.at, fact.array, fact.spec, size_of(fact.spec.array))

    def _array_held(self, fact: ArrayHeld | ArrayReleased, ledger: Ledger) -> None:
        spec = ledger.arrays[fact.array].spec
        self._waiting.array_held(fact.at, fact.array, spec, held=isinstance(fact, ArrayHeld))

    def _array_ended(self, fact: ArrayEnded, ledger: Ledger) -> None:
        self._waiting.array_ends(fact.at, fact.array, ledger.arrays[fact.array].spec)

    def _job_accepted(self, fact: JobAccepted, ledger: Ledger) -> None:
        self._meter.amounts(fact.at, key_of(fact.spec)).submitted += 1
        self._waiting.job_comes(fact.at, fact.job, fact.spec, fact.array)
        if fact.spec.held:
            self._held_since[fact.job] = fact.at

    def _job_held(self, fact: JobHeld, ledger: Ledger) -> None:
        self._waiting.holds(fact.at, fact.job)
        self._held_since.setdefault(fact.job, fact.at)

    def _job_released(self, fact: JobReleased, ledger: Ledger) -> None:
        self._waiting.released(fact.at, fact.job)
        since = self._held_since.pop(fact.job, None)
        if since is not None:
            self._held[fact.job] = self._held.get(fact.job, 0.0) + fact.at - since

    def _job_requeued(self, fact: JobRequeued, ledger: Ledger) -> None:
        self._waiting.waits(fact.at, fact.job, ledger.jobs[fact.job].spec)

    def _gang_placed(self, fact: GangPlaced, ledger: Ledger) -> None:
        state = ledger.jobs[fact.job]
        amounts = ledger.accounts.amounts
        devices, hosts = amounts.held_devices(fact.placement), amounts.held_hosts(fact.placement)
        gang = self._gangs.placed(fact, state.spec, devices, hosts)
        self._waiting.waits_no_more(fact.at, fact.job)
        self._meter.amounts(fact.at, gang.key).started += 1
        self._held_since.pop(fact.job, None)
        held = self._held.pop(fact.job, 0.0)
        if fact.attempt == 1 and not fact.found:
            waited_s = max(0.0, fact.at - state.submitted_at - held)
            self._meter.count_wait(fact.at, gang.queue, gang.user, waited_s)

    def _gang_running(self, fact: GangRunning, ledger: Ledger) -> None:
        self._gangs.moves(fact, fact.job, phase=Phase.RUNNING, runs=True)

    def _gang_suspended(self, fact: GangSuspended, ledger: Ledger) -> None:
        self._gangs.moves(fact, fact.job, suspended=True)

    def _gang_resumed(self, fact: GangResumed, ledger: Ledger) -> None:
        self._gangs.moves(fact, fact.job, suspended=False)

    def _gang_saves(self, fact: CheckpointRequested, ledger: Ledger) -> None:
        self._gangs.moves(fact, fact.job, phase=Phase.SAVING)

    def _gang_stops(self, fact: StopDecided, ledger: Ledger) -> None:
        self._gangs.moves(fact, fact.job, phase=Phase.STOPPING)

    def _checkpoint_recorded(self, fact: CheckpointRecorded, ledger: Ledger) -> None:
        self._gangs.saved(fact, fact.job)

    def _gpu_use_noted(self, fact: GpuUseNoted, ledger: Ledger) -> None:
        self._gangs.measured(fact)
        for used in fact.gangs:
            state = ledger.jobs.get(used.job)
            if state is not None and state.ended_at is not None:
                self._told_late[used.job] = measured_gpu_s(state)

    def _gang_preempted(self, fact: GangPreempted, ledger: Ledger) -> None:
        self._meter.amounts(fact.at, self._gangs.of(fact.job).key).preempted += 1

    def _attempt_ended(self, fact: AttemptEnded, ledger: Ledger) -> None:
        self._gangs.ended(fact, fact.job, fact.lost_s)

    def _job_ended(self, fact: JobEnded, ledger: Ledger) -> None:
        state = ledger.jobs[fact.job]
        self._waiting.ends(fact.at, fact.job)
        amounts = self._meter.amounts(fact.at, gang_of(state).key)
        outcome = fact.outcome.value.replace("-", "_")
        setattr(amounts, outcome, getattr(amounts, outcome) + 1)
        self._held.pop(fact.job, None)
        self._held_since.pop(fact.job, None)


def _may_be_held(state: JobState) -> bool:
    return state.attempt == 0 and state.ended_at is None and held_s(state) > 0.0


_NOTED: Mapping[type[Fact], Callable[[HistoryRecorder, Any, Ledger], None]] = {
    ArrayAccepted: HistoryRecorder._array_accepted,
    ArrayHeld: HistoryRecorder._array_held,
    ArrayReleased: HistoryRecorder._array_held,
    ArrayEnded: HistoryRecorder._array_ended,
    JobAccepted: HistoryRecorder._job_accepted,
    JobHeld: HistoryRecorder._job_held,
    JobReleased: HistoryRecorder._job_released,
    GangPlaced: HistoryRecorder._gang_placed,
    GangRunning: HistoryRecorder._gang_running,
    GangSuspended: HistoryRecorder._gang_suspended,
    GangResumed: HistoryRecorder._gang_resumed,
    GangPreempted: HistoryRecorder._gang_preempted,
    CheckpointRequested: HistoryRecorder._gang_saves,
    CheckpointRecorded: HistoryRecorder._checkpoint_recorded,
    StopDecided: HistoryRecorder._gang_stops,
    GpuUseNoted: HistoryRecorder._gpu_use_noted,
    JobRequeued: HistoryRecorder._job_requeued,
    AttemptEnded: HistoryRecorder._attempt_ended,
    JobEnded: HistoryRecorder._job_ended,
}
