"""Reasons of pending jobs for a list: the sentence of `why`, computed once per equivalence class and fact.

To explain one refusal takes milliseconds, and a page shows a hundred jobs. Jobs of one line (one queue, shape, priority
and span) that wait for nothing but room and quota get one answer, which holds until the next fact.
"""

import time

from gantree.core.explain.explain import brief_reason, last_failure_in_words
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.queue.eligibility import eligible
from gantree.model.phases import Phase
from gantree.policy.waiting_jobs import EquivalenceClass

ASKING_S = 0.03
"""About so long one page may go on asking."""
UNASKED = "Waiting."
"""What is said of a job where there was no time; the next look goes on from there."""


class Reasons:
    """Remembers the answers of one ledger. For one thread at a time."""

    def __init__(self) -> None:
        self._ledger: Ledger | None = None
        self._of_class: dict[EquivalenceClass, tuple[int, str]] = {}

    def of(self, ledger: Ledger, states: list[JobState], now: float) -> dict[str, str]:
        """What is said of each job; of those that wait in line an older sentence where time is up."""
        if ledger is not self._ledger:
            self._ledger, self._of_class = ledger, {}
        until = time.perf_counter() + ASKING_S
        return {
            state.job: self._one(ledger, state, now, until) + last_failure_in_words(state)
            for state in states
        }

    def _one(self, ledger: Ledger, state: JobState, now: float, until: float) -> str:
        if state.phase is not Phase.PENDING or not eligible(ledger, state, now):
            return brief_reason(ledger, state, now)[0]
        assert state.equivalence_class is not None  # it waits
        known = self._of_class.get(state.equivalence_class)
        if known is not None and (known[0] == ledger.applied or time.perf_counter() >= until):
            return known[1]
        if time.perf_counter() >= until:
            return UNASKED
        sentence = brief_reason(ledger, state, now)[0]
        self._of_class[state.equivalence_class] = ledger.applied, sentence
        return sentence
