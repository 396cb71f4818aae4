"""How many jobs of a queue may preempt: the heads of a queue, its first jobs that wait for room and could ever have it.

Only heads may preempt other jobs or get a reservation; their number is `depth` of `policy.rules.Backfill`. Jobs behind
them still start on free room. Jobs that are held, come after other jobs or can never fit do not count.
"""

import numpy as np

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.queue.waiting_rows import (
    WaitingRows,
    claimant_rows,
    first_of_signature,
    ineligible_rows,
)
from gantree.placement.choice.search import fits
from gantree.planning.rightsizing.ranking import chooses
from gantree.topology.fabric.fabric import BoolArray


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


def head_rows(
    ledger: Ledger, rows: WaitingRows, now: float, ever_fits: EverFits, depth: int
) -> BoolArray:
    """Mask of the rows of heads, by row; with jobs before the last of a queue that have claimed room: a claim may be
    lost within the pass.
    """
    of_signature = np.zeros(ledger.signatures.given, dtype=np.bool_)
    for signature in ledger.waiting.signatures:
        of_signature[signature] = ever_fits.holds(ledger, first_of_signature(ledger, signature))
    waits: BoolArray = of_signature[rows.signature]
    waits[ineligible_rows(ledger, rows, now)] = False
    heads = rows.first_of_each(waits, depth)
    for row in claimant_rows(ledger, rows):
        end = rows.first_row[rows.queue_index[row] + 1]
        heads[row] = of_signature[rows.signature[row]] and heads[row:end].any()
    return heads
