"""Folds the facts of a journal into what became of each job, and how much work it was.

Work is what the job would have run undisturbed. An attempt that ended by itself counts in full, also where it failed:
it would fail so again. One that was stopped, or lost its node, counts up to its last checkpoint (`lost_s` of the fact),
without the time that a requested checkpoint took: it does not work while it saves, as in `sim.cluster`.
An attempt works from the moment it is known to have started until its last process ended, which the cluster
notices a little later: the event of its end says when it was (`ends`), and a fact does not.

Facts are applied to a ledger, which knows times, sizes and suspensions; a job is taken down when it ends, before
it can be forgotten.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from statistics import median

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.model.events import GangEnded
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
from gantree.sim.overheads import AttemptOverheads, Overheads
from gantree.sim.replay.outcomes import outcome_of
from gantree.sim.replay.recording import JobRecord, MeasuredOverheads

TOGETHER_S = 0.02
"""What a daemon decided on in one batch lay so close together in 49 of 57 batches of two runs of 300 short jobs with
real processes, and what it decided on in two batches in 5 of 1,179 cases."""

Samples = dict[tuple[str, int], float]
"""Seconds by job and attempt."""


@dataclass(slots=True)
class Fold:
    """A ledger that facts are applied to, and what is taken down of jobs meanwhile.

    specs are the specifications of jobs and arrays as they were accepted; ended are jobs that have ended. ends are the
    events of ends by job and attempt, as far as they are still there. since is the beginning of the part that is wanted
    (None: all): of jobs that live then, done is what they had done before.
    """

    ledger: Ledger
    ends: Mapping[tuple[str, int], GangEnded] = field(default_factory=dict)
    since: float | None = None
    done: dict[str, JobRecord] = field(default_factory=dict)
    specs: dict[str, Job] = field(default_factory=dict)
    ended: dict[str, JobRecord] = field(default_factory=dict)
    read_to: float = 0.0
    _work_s: dict[str, float] = field(default_factory=dict)
    _requested_at: dict[tuple[str, str], float] = field(default_factory=dict)
    _saving_s: dict[str, float] = field(default_factory=dict)
    _starts_s: Samples = field(default_factory=dict)
    _ends_s: Samples = field(default_factory=dict)
    _stops_s: Samples = field(default_factory=dict)
    _saves_s: Samples = field(default_factory=dict)

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
                self._took(self._starts_s, fact, self.ledger.jobs[fact.job].placed_at)
            case AttemptEnded():
                self._count_work(self.ledger.jobs[fact.job], fact)
            case CheckpointRequested():
                self._requested_at[fact.job, fact.request] = fact.at
            case CheckpointRecorded() if fact.request is not None:
                asked_at = self._requested_at.pop((fact.job, fact.request), None)
                self._took(self._saves_s, fact, asked_at)
                self._saving_s[fact.job] = 0.0 if asked_at is None else fact.at - asked_at

    @staticmethod
    def _took(
        samples: Samples, fact: GangRunning | AttemptEnded | CheckpointRecorded, since: float | None
    ) -> None:
        if since is not None:
            samples[fact.job, fact.attempt] = fact.at - since

    def _count_work(self, state: JobState, fact: AttemptEnded) -> None:
        saving_s = self._saving_s.pop(fact.job, 0.0)
        if self._ended_by_itself(state, fact):
            not_worked_s = self._late_s(fact)
            self._ends_s[fact.job, fact.attempt] = not_worked_s
        else:
            not_worked_s = fact.lost_s + saving_s
            self._took(self._stops_s, fact, state.stop_decided_at)
        share = (state.gpus or 1) / (state.spec.gpus or 1)
        worked_s = max(0.0, state.ran_s(fact.at) - not_worked_s) * share
        self._work_s[fact.job] = self._work_s.get(fact.job, 0.0) + worked_s

    def _ended_by_itself(self, state: JobState, fact: AttemptEnded) -> bool:
        """Whether all processes had ended before any was told to."""
        if state.stop_decided_at is None:
            return not (state.answered or state.missing)
        end = self.ends.get((fact.job, fact.attempt))
        if end is None:
            return False
        return end.unprompted or fact.at - self._late_s(fact) < state.stop_decided_at

    def _late_s(self, fact: AttemptEnded) -> float:
        """How long after its last process had ended an attempt was known to have."""
        end = self.ends.get((fact.job, fact.attempt))
        if end is None or end.occurred_at is None:
            return 0.0
        return max(0.0, end.observed_at - end.occurred_at)

    def record_of(self, state: JobState, now: float) -> JobRecord:
        """What is known of a job at a moment, its running attempt included."""
        work_s = self._work_s.get(state.job, 0.0)
        if state.ended_at is None:
            work_s += state.ran_s(now) * (state.gpus or 1) / (state.spec.gpus or 1)
        spec = self.specs.get(state.job, state.spec)
        outcome = outcome_of(state, now)
        return JobRecord(spec, outcome, work_s, state.exit_code, state.array, state.seq)

    def measured(self) -> MeasuredOverheads:
        """What the cluster needed for orders: of each attempt its own, else medians; 0 where there were none."""
        kinds = (self._starts_s, self._stops_s, self._saves_s, self._ends_s)
        start_s, stop_s, save_s, end_s = (median(each.values()) if each else 0.0 for each in kinds)
        attempts = dict.fromkeys(chain(*kinds))
        of_attempt = {
            attempt: AttemptOverheads(*(each.get(attempt) for each in kinds))
            for attempt in attempts
        }
        found = Overheads(start_s, stop_s, save_s, end_s, TOGETHER_S, of_attempt=of_attempt)
        return MeasuredOverheads(found, *(len(each) for each in kinds[:3]))
