"""Samples the figures of a controller's ledger for the metrics: on its thread, at most every FRESH_S, and briefly."""

import time
from collections.abc import Callable, Mapping

from gantree.control.metrics.figures import figures_of
from gantree.control.metrics.gates import GateCounts
from gantree.control.metrics.ledger_metrics import LedgerSample
from gantree.control.metrics.metrics import Metrics
from gantree.control.metrics.service_metrics import LoadFigures, service_figures
from gantree.core.ledger.ledger import Ledger
from gantree.journal.contract import Journal

FRESH_S = 5.0
"""A younger sample is not replaced."""
ASKING_S = 0.02
"""Time of a sample for finding the gates that refuse waiting jobs."""


class LedgerSampler:
    """Samples one controller's ledger on request. Used by the controller's thread.

    loads: of services at a moment, as routers reported; none until somebody takes reports. services gives the ledger
    with the services, which is another one where the cluster keeps them.
    """

    def __init__(
        self, metrics: Metrics, epoch: int, steady: Callable[[], float] = time.perf_counter
    ) -> None:
        """steady gives monotonic seconds."""
        self.metrics = metrics
        self._epoch, self._steady = epoch, steady
        self._gates = GateCounts(steady)
        self._sampled_at: float | None = None
        self.loads: Callable[[float], Mapping[str, LoadFigures]] = _no_loads
        self.services: Callable[[Ledger], Ledger] = _as_it_is

    def is_fresh(self) -> bool:
        """Whether the newest sample is still fresh; safe from any thread."""
        return self._sampled_at is not None and self._steady() - self._sampled_at < FRESH_S

    def sample(self, ledger: Ledger, journal: Journal, unflushed: int, now: float) -> None:
        """Take a sample at a time in seconds, unless the newest is fresh. Raises JournalError."""
        if self.is_fresh():
            return
        began = self._steady()
        figures = figures_of(ledger, now)
        self._gates.update(ledger, now, ASKING_S)
        backlog, set_aside = journal.backlog(), len(journal.all_set_aside())
        self._sampled_at = self._steady()
        self.metrics.set_sample(
            LedgerSample(
                figures,
                at=now,
                took_s=self._sampled_at - began,
                epoch=self._epoch,
                backlog=backlog,
                unflushed=unflushed,
                set_aside=set_aside,
                waits=dict(self._gates.now),
                refusals=dict(self._gates.total),
                services=service_figures(self.services(ledger)),
                loads=self.loads(now),
            )
        )


def _no_loads(_: float) -> Mapping[str, LoadFigures]:
    return {}


def _as_it_is(ledger: Ledger) -> Ledger:
    return ledger
