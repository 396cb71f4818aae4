"""Takes the figures of a controller: on its thread, at most every few seconds, and never for long.

Whoever wants metrics asks for `look` and waits only so long; the figures that were taken last stay until others are.
"""

import time
from collections.abc import Callable

from gantree.control.metrics.figures import figures_of
from gantree.control.metrics.gates import GateCounts
from gantree.control.metrics.ledger_metrics import LedgerSample
from gantree.control.metrics.metrics import Metrics
from gantree.core.ledger.ledger import Ledger
from gantree.journal.contract import Journal

FRESH_S = 5.0
"""Figures so young are not taken again."""
ASKING_S = 0.02
"""About so long a look may go on asking what refuses the waiting jobs."""


class LedgerSampler:
    """Keeps the metrics of one controller's ledger up to date when asked to. Used by the controller's thread."""

    def __init__(
        self, metrics: Metrics, epoch: int, steady: Callable[[], float] = time.perf_counter
    ) -> None:
        """steady gives seconds that never go back."""
        self.metrics = metrics
        self._epoch, self._steady = epoch, steady
        self._gates = GateCounts(steady)
        self._looked_at: float | None = None

    def is_fresh(self) -> bool:
        """Whether a look would be too early; safe from any thread."""
        return self._looked_at is not None and self._steady() - self._looked_at < FRESH_S

    def sample(self, ledger: Ledger, journal: Journal, unflushed: int, now: float) -> None:
        """Take the figures of a moment in seconds, unless those there are fresh. Raises JournalError."""
        if self.is_fresh():
            return
        began = self._steady()
        figures = figures_of(ledger, now)
        self._gates.update(ledger, now, ASKING_S)
        backlog, set_aside = journal.backlog(), len(journal.all_set_aside())
        self._looked_at = self._steady()
        self.metrics.set_sample(
            LedgerSample(
                figures,
                at=now,
                took_s=self._looked_at - began,
                epoch=self._epoch,
                backlog=backlog,
                unflushed=unflushed,
                set_aside=set_aside,
                waits=dict(self._gates.now),
                refusals=dict(self._gates.total),
            )
        )
