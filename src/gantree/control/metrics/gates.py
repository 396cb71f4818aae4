"""Counts waiting jobs by the gate that refuses them: now, and since the start of this process.

Explaining one refusal takes milliseconds, and 10,000 jobs may wait. So each equivalence class (one queue, shape,
priority and span) is explained once, by its first job that waits for room and quota alone. An update explains for at
most a given time, the oldest answers first. A class that was never explained counts as "unasked". Answers are kept;
metric names are in `metrics`.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from gantree.core.explain.explain import gate_now
from gantree.core.ledger.array_state import ArrayState
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.queue.eligibility import eligible
from gantree.model.verdicts import Gate
from gantree.policy.waiting_jobs import EquivalenceClass

Waits = Gate | Literal["other", "unasked"]
"""The gate; "other": held by hand, after another job, resting after a failure, its room being emptied, or about to
start; "unasked": there was no time yet to find out."""
WAITS: tuple[str, ...] = (*(gate.value for gate in Gate), "other", "unasked")


@dataclass(frozen=True, slots=True)
class _Answer:
    """What was answered about a line when the ledger had applied so many facts."""

    applied: int
    waits: Waits


class GateCounts:
    """Keeps answers between updates. now: jobs by what they wait for; total: refusals by gate since the start."""

    def __init__(self, steady: Callable[[], float]) -> None:
        """steady gives monotonic seconds."""
        self._steady = steady
        self._answers: dict[EquivalenceClass, _Answer] = {}
        self._counted: dict[EquivalenceClass, tuple[Waits, frozenset[str]]] = {}
        self.now: Counter[str] = Counter()
        self.total: Counter[str] = Counter()

    def update(self, ledger: Ledger, now: float, at_most_s: float) -> None:
        """Find gates and count. A refusal is a job that comes to a gate from none or from another."""
        if ledger.occupancy is None:
            return
        asking = {eq_class: _eligible(ledger, eq_class, now) for eq_class in ledger.waiting}
        self._ask(ledger, asking, now, at_most_s)
        self.now, before, self._counted = Counter(), self._counted, {}
        for eq_class, states in asking.items():
            waits = self._answers[eq_class].waits if eq_class in self._answers else "unasked"
            jobs = frozenset(state.job for state in states)
            self._counted[eq_class] = waits, jobs
            self.now[str(waits)] += len(jobs)
            if isinstance(waits, Gate):
                known, there = before.get(eq_class, ("unasked", frozenset()))
                self.total[waits.value] += len(jobs - there if known == waits else jobs)
        self.now["other"] += len(ledger.waiting) - sum(map(len, asking.values()))
        for array in ledger.unsplit.values():
            self.now[self._waits_of(ledger, array)] += array.unsplit

    def _waits_of(self, ledger: Ledger, array: ArrayState) -> str:
        """What the unsplit elements of an array wait for: the same as the split ones."""
        leader = ledger.leader_of(array.array)
        if leader is None or array.held or leader.equivalence_class not in self._counted:
            return "other"
        return str(self._counted[leader.equivalence_class][0])

    def _ask(
        self,
        ledger: Ledger,
        asking: dict[EquivalenceClass, list[JobState]],
        now: float,
        at_most_s: float,
    ) -> None:
        """Bring answers up to date, the oldest first; at least one, so that every line has its turn."""
        self._answers = {
            eq_class: self._answers[eq_class] for eq_class in self._answers if eq_class in asking
        }
        until = self._steady() + at_most_s
        new = (eq_class for eq_class in asking if eq_class not in self._answers)
        for eq_class in [*new, *self._answers]:
            known = self._answers.get(eq_class)
            if not asking[eq_class] or (known is not None and known.applied == ledger.applied):
                continue
            gate = gate_now(ledger, asking[eq_class][0], now)
            self._answers.pop(eq_class, None)
            self._answers[eq_class] = _Answer(ledger.applied, gate or "other")
            if self._steady() >= until:
                return


def _eligible(ledger: Ledger, eq_class: EquivalenceClass, now: float) -> list[JobState]:
    """The jobs of an equivalence class that are eligible (`core.queue.eligibility.eligible`)."""
    states = [ledger.jobs[position.job] for position in ledger.waiting[eq_class]]
    claims = ledger.claims
    return [
        state
        for state in states
        if not (state.held or state.not_before > now or state.job in claims)
        and (not state.spec.after or eligible(ledger, state, now))
    ]
