"""What facts add to the history: the jobs that they end, what is used, and how long jobs waited."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gantree.accounting.change import NO_CHANGE, HistoryChange
from gantree.accounting.ended_jobs import EndedJob
from gantree.accounting.meter import UsageMeter
from gantree.accounting.usage import NO_MODEL, CountedTo, UsageKey
from gantree.control.history.ended_jobs import ended_elements, ended_job
from gantree.control.history.levels import GpusOfModel, capacity_of, held_s, levels_of
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.ledger.usage import gpus_of_model
from gantree.model.facts import (
    ArrayEnded,
    AttemptEnded,
    FabricDefined,
    Fact,
    GangPlaced,
    GangPreempted,
    GangResumed,
    GangRunning,
    GangSuspended,
    JobAccepted,
    JobEnded,
    JobHeld,
    JobReleased,
)
from gantree.model.phases import HOLDING


@dataclass(slots=True)
class _Gang:
    """A gang that holds a place: its GPUs, and for how long it has run up to a moment, without suspensions."""

    queue: str
    user: str
    gpus: GpusOfModel
    runs: bool = False
    suspended: bool = False
    ran_s: float = 0.0
    ran_to: float = 0.0

    @property
    def model(self) -> str:
        """The model under which what happens to it is counted."""
        return self.gpus[0][0] if self.gpus else NO_MODEL

    def run_to(self, at: float) -> None:
        """Count its run up to a moment."""
        if self.runs and not self.suspended:
            self.ran_s += at - self.ran_to
        self.ran_to = at


class HistoryRecorder:
    """Follows the facts of one ledger. After a turn that failed another one begins anew."""

    def __init__(
        self, ledger: Ledger, now: float, counted: CountedTo, widths_at: float | None = None
    ) -> None:
        """ledger is as at the moment now, up to which nothing is counted but what counted says.

        widths_at: as in `UsageMeter`, where facts are older than the present.
        """
        self._meter = UsageMeter(levels_of(ledger, counted, now), counted.all_to, widths_at)
        self._gangs = {
            state.job: _gang_of(state, now)
            for state in ledger.jobs.values()
            if state.phase in HOLDING
        }
        self._held = {
            state.job: held_s(state) for state in ledger.jobs.values() if _may_be_held(state)
        }
        self._held_since = {
            state.job: state.metered.metered_at or state.submitted_at
            for state in ledger.jobs.values()
            if state.held and state.ended_at is None
        }
        self._ended: list[tuple[int, EndedJob]] = []
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

    def taken(self, *, all_of_it: bool = False) -> HistoryChange:
        """What was noted since the last change. all_of_it: with all that is used up to the last fact."""
        if self._at is None:
            return NO_CHANGE
        usage = self._meter.taken(self._at, all_of_it=all_of_it)
        ended, self._ended, self._at = tuple(self._ended), [], None
        return HistoryChange(ended, usage) if ended or usage is not None else NO_CHANGE

    def _fabric_defined(self, fact: FabricDefined, ledger: Ledger) -> None:
        capacity = capacity_of(fact.cluster)
        for key in self._meter.models:
            if key.model not in capacity:
                self._meter.set_capacity(fact.at, key, 0.0)
        for model, gpus in capacity.items():
            self._meter.set_capacity(fact.at, UsageKey("", "", model), gpus)

    def _job_accepted(self, fact: JobAccepted, ledger: Ledger) -> None:
        key = UsageKey(fact.spec.queue, fact.spec.user, NO_MODEL)
        self._meter.amounts(fact.at, key).submitted += 1
        if fact.spec.held:
            self._held_since[fact.job] = fact.at

    def _job_held(self, fact: JobHeld, ledger: Ledger) -> None:
        self._held_since.setdefault(fact.job, fact.at)

    def _job_released(self, fact: JobReleased, ledger: Ledger) -> None:
        since = self._held_since.pop(fact.job, None)
        if since is not None:
            self._held[fact.job] = self._held.get(fact.job, 0.0) + fact.at - since

    def _gang_placed(self, fact: GangPlaced, ledger: Ledger) -> None:
        state = ledger.jobs[fact.job]
        gpus = gpus_of_model(ledger.accounts.amounts.held(fact.placement))
        gang = self._gangs[fact.job] = _Gang(state.spec.queue, state.spec.user, gpus)
        self._allocate(fact.at, gang, 1)
        self._meter.amounts(fact.at, _key(gang)).started += 1
        self._held_since.pop(fact.job, None)
        held = self._held.pop(fact.job, 0.0)
        if fact.attempt == 1 and not fact.found:
            waited_s = max(0.0, fact.at - state.submitted_at - held)
            self._meter.count_wait(fact.at, gang.queue, gang.user, waited_s)

    def _gang_running(self, fact: GangRunning, ledger: Ledger) -> None:
        gang = self._gangs[fact.job]
        gang.runs, gang.ran_to = True, fact.at
        if not gang.suspended:
            self._use(fact.at, gang, 1)

    def _gang_suspended(self, fact: GangSuspended, ledger: Ledger) -> None:
        gang = self._gangs[fact.job]
        if not gang.suspended:
            gang.run_to(fact.at)
            self._allocate(fact.at, gang, -1)
            gang.suspended = True

    def _gang_resumed(self, fact: GangResumed, ledger: Ledger) -> None:
        gang = self._gangs[fact.job]
        if gang.suspended:
            gang.run_to(fact.at)
            gang.suspended = False
            self._allocate(fact.at, gang, 1)

    def _gang_preempted(self, fact: GangPreempted, ledger: Ledger) -> None:
        self._meter.amounts(fact.at, _key(self._gangs[fact.job])).preempted += 1

    def _attempt_ended(self, fact: AttemptEnded, ledger: Ledger) -> None:
        gang = self._gangs.pop(fact.job)
        gang.run_to(fact.at)
        if not gang.suspended:
            self._allocate(fact.at, gang, -1)
        lost_s = min(fact.lost_s, gang.ran_s)
        for model, gpus in gang.gpus if lost_s else ():
            key = UsageKey(gang.queue, gang.user, model)
            self._meter.amounts(fact.at, key).lost_gpu_s += lost_s * gpus

    def _job_ended(self, fact: JobEnded, ledger: Ledger) -> None:
        state = ledger.jobs[fact.job]
        gpus = state.metered.gpus_of_model
        key = UsageKey(state.spec.queue, state.spec.user, gpus[0][0] if gpus else NO_MODEL)
        amounts = self._meter.amounts(fact.at, key)
        outcome = fact.outcome.value.replace("-", "_")
        setattr(amounts, outcome, getattr(amounts, outcome) + 1)
        self._held.pop(fact.job, None)
        self._held_since.pop(fact.job, None)

    def _allocate(self, at: float, gang: _Gang, sign: int) -> None:
        """A gang holds its GPUs from now on (1), and uses them if it runs, or no longer (-1)."""
        for model, gpus in gang.gpus:
            used = sign * gpus if gang.runs else 0.0
            key = UsageKey(gang.queue, gang.user, model)
            self._meter.add(at, key, allocated=sign * gpus, used=used)

    def _use(self, at: float, gang: _Gang, sign: int) -> None:
        for model, gpus in gang.gpus:
            self._meter.add(at, UsageKey(gang.queue, gang.user, model), used=sign * gpus)


def _gang_of(state: JobState, now: float) -> _Gang:
    spec, runs = state.spec, state.running_at is not None
    gpus = state.metered.gpus_of_model
    return _Gang(spec.queue, spec.user, gpus, runs, state.suspended, state.ran_s(now), now)


def _key(gang: _Gang) -> UsageKey:
    return UsageKey(gang.queue, gang.user, gang.model)


def _may_be_held(state: JobState) -> bool:
    return state.attempt == 0 and state.ended_at is None and held_s(state) > 0.0


_NOTED: Mapping[type[Fact], Callable[[HistoryRecorder, Any, Ledger], None]] = {
    FabricDefined: HistoryRecorder._fabric_defined,
    JobAccepted: HistoryRecorder._job_accepted,
    JobHeld: HistoryRecorder._job_held,
    JobReleased: HistoryRecorder._job_released,
    GangPlaced: HistoryRecorder._gang_placed,
    GangRunning: HistoryRecorder._gang_running,
    GangSuspended: HistoryRecorder._gang_suspended,
    GangResumed: HistoryRecorder._gang_resumed,
    GangPreempted: HistoryRecorder._gang_preempted,
    AttemptEnded: HistoryRecorder._attempt_ended,
    JobEnded: HistoryRecorder._job_ended,
}
