"""The heads of each queue: the first that wait for room and might ever have it.

For them others are told to leave, and they are told starts. Who stands behind them waits for its turn: all of a queue
of thousands is looked at for free room, but not for everybody's victims. Who is held, waits for other jobs or can never
fit is not counted.
"""

from collections.abc import Iterator
from itertools import islice

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.queue.eligibility import eligible
from gantree.placement.choice.search import fits
from gantree.planning.rightsizing.ranking import chooses
from gantree.policy.waiting_jobs import QueueEntry

DEPTH = 32
"""So many of a queue are its heads."""


class EverFits:
    """Whether the empty, healthy fabric holds a gang, by signature; kept while the fabric stays."""

    def __init__(self) -> None:
        self._fabric: object = None
        self._known: dict[int, bool] = {}

    def holds(self, ledger: Ledger, state: JobState) -> bool:
        """Of one with a choice of sizes or models that is not asked."""
        if self._fabric is not ledger.rooms().fabric:
            self._fabric = ledger.rooms().fabric
            self._known.clear()
        known = self._known.get(state.signature)
        if known is None:
            spec = state.spec
            several = (
                spec.elastic is not None or chooses(spec) or ledger.accounts.guarantees.of_models
            )
            known = several or fits(ledger.rooms().emptied(), spec)
            self._known[state.signature] = known
        return known


def heads(ledger: Ledger, queue: int, now: float, ever_fits: EverFits) -> list[QueueEntry]:
    """The heads of a queue, in order."""
    return list(islice(_waiting(ledger, queue, now, ever_fits), DEPTH))


def _waiting(ledger: Ledger, queue: int, now: float, ever_fits: EverFits) -> Iterator[QueueEntry]:
    for entry in ledger.waiting.in_queue(queue):
        state = ledger.jobs[entry.position.job]
        if eligible(ledger, state, now) and ever_fits.holds(ledger, state):
            yield entry
