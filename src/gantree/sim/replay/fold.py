"""Folds the facts of a journal into what became of each job, and how much work it was.

Work is what the job would have run undisturbed. An attempt that ended by itself counts in full, also where it failed:
it would fail so again. One that was stopped, or lost its node, counts up to its last checkpoint (`lost_s` of the fact),
without the time that a requested checkpoint took: it does not work while it saves, as in `sim.cluster`.
Facts are applied to a ledger, which knows times, sizes and suspensions; a job is taken down when it ends, before
it can be forgotten.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.model.facts import (
    ArrayAccepted,
    AttemptEnded,
    CheckpointRecorded,
    CheckpointRequested,
    Fact,
    GangRunning,
    JobAccepted,
    JobEnded,
)
from gantree.model.jobs import Job
from gantree.sim.cluster import Overheads
from gantree.sim.replay.outcomes import outcome_of
from gantree.sim.replay.recording import JobRecord, MeasuredOverheads


@dataclass(slots=True)
class Fold:
    """A ledger that facts are applied to, and what is taken down of jobs meanwhile.

    specs are the specifications of jobs and arrays as they were accepted; ended are jobs that have ended. since is the
    beginning of the part that is wanted (None: all): of jobs that live then, done is what they had done before.
    """

    ledger: Ledger
    since: float | None = None
    done: dict[str, JobRecord] = field(default_factory=dict)
    specs: dict[str, Job] = field(default_factory=dict)
    ended: dict[str, JobRecord] = field(default_factory=dict)
    read_to: float = 0.0
    _work_s: dict[str, float] = field(default_factory=dict)
    _requested_at: dict[tuple[str, str], float] = field(default_factory=dict)
    _saving_s: dict[str, float] = field(default_factory=dict)
    _starts_s: dict[str, list[float]] = field(default_factory=dict)
    _stops_s: list[float] = field(default_factory=list)
    _saves_s: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Of jobs of a snapshot the work is known that was kept until then."""
        for state in self.ledger.jobs.values():
            self.specs[state.job], self._work_s[state.job] = state.spec, state.done_s
            if state.ended_at is not None:
                self.ended[state.job] = self.record_of(state, state.ended_at)
        self.specs |= {array.array: array.spec for array in self.ledger.arrays.values()}

    def apply(self, facts: Iterable[Fact]) -> None:
        """Fold more facts."""
        for fact in facts:
            if self.since is not None and self.read_to < self.since <= fact.at:
                self._take_stock(self.since)
            self._note(fact)
            self.ledger.apply(fact)
            self.read_to = max(self.read_to, fact.at)
            if isinstance(fact, JobEnded):
                self.ended[fact.job] = self.record_of(self.ledger.jobs[fact.job], fact.at)

    def _take_stock(self, since: float) -> None:
        """The part that is wanted begins."""
        for state in self.ledger.jobs.values():
            if state.ended_at is None:
                self.done[state.job] = self.record_of(state, since)

    def _note(self, fact: Fact) -> None:
        """Take down what a fact tells before it is applied."""
        match fact:
            case JobAccepted():
                self.specs[fact.job] = fact.spec
            case ArrayAccepted():
                self.specs[fact.array] = fact.spec
            case GangRunning():
                starts_s = self._starts_s.setdefault(fact.job, [])
                self._took(starts_s, self.ledger.jobs[fact.job].placed_at, fact.at)
            case AttemptEnded():
                state = self.ledger.jobs[fact.job]
                self._took(self._stops_s, state.stop_decided_at, fact.at)
                self._count_work(state, fact)
            case CheckpointRequested():
                self._requested_at[fact.job, fact.request] = fact.at
            case CheckpointRecorded() if fact.request is not None:
                asked_at = self._requested_at.pop((fact.job, fact.request), None)
                self._took(self._saves_s, asked_at, fact.at)
                self._saving_s[fact.job] = 0.0 if asked_at is None else fact.at - asked_at

    @staticmethod
    def _took(samples_s: list[float], ordered_at: float | None, at: float) -> None:
        if ordered_at is not None:
            samples_s.append(at - ordered_at)

    def _count_work(self, state: JobState, fact: AttemptEnded) -> None:
        was_stopped = state.stop_decided_at is not None or state.answered or bool(state.missing)
        saving_s = self._saving_s.pop(fact.job, 0.0)
        lost_s = fact.lost_s + saving_s if was_stopped else 0.0
        share = (state.gpus or 1) / (state.spec.gpus or 1)
        worked_s = max(0.0, state.ran_s(fact.at) - lost_s) * share
        self._work_s[fact.job] = self._work_s.get(fact.job, 0.0) + worked_s

    def record_of(self, state: JobState, now: float) -> JobRecord:
        """What is known of a job at a moment, its running attempt included."""
        work_s = self._work_s.get(state.job, 0.0)
        if state.ended_at is None:
            work_s += state.ran_s(now) * (state.gpus or 1) / (state.spec.gpus or 1)
        spec = self.specs.get(state.job, state.spec)
        outcome = outcome_of(state, now)
        return JobRecord(spec, outcome, work_s, state.exit_code, state.array, state.seq)

    def measured(self) -> MeasuredOverheads:
        """What the cluster needed for orders, as medians; 0 where there were none. A job starts as it did itself."""
        starts_s = [start_s for of_job in self._starts_s.values() for start_s in of_job]
        samples = (starts_s, self._stops_s, self._saves_s)
        start_s, stop_s, save_s = (median(each) if each else 0.0 for each in samples)
        of_job = {job: median(each) for job, each in self._starts_s.items() if each}
        found = Overheads(start_s=start_s, stop_s=stop_s, save_s=save_s, start_s_of_job=of_job)
        return MeasuredOverheads(found, *map(len, samples))
