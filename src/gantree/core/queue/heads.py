"""The heads of a queue: its first jobs that wait for room only and fit the empty fabric.

Only heads may preempt or get a reservation; their number is `depth` of `policy.rules.Backfill`. Jobs behind them start
on free room.
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
from gantree.model.gang_shapes import every_shape
from gantree.placement.choice.search import fits
from gantree.topology.fabric.fabric import BoolArray


class FeasibilityCache:
    """Which gangs are feasible: the empty, healthy fabric holds them. By signature; emptied when the fabric changes."""

    def __init__(self) -> None:
        self._fabric: object = None
        self._known: dict[int, bool] = {}

    def is_feasible(self, ledger: Ledger, state: JobState) -> bool:
        """Return whether a gang fits.

        Variants, but for smaller ones and those on spot nodes, fit where the job does in one of its shapes.
        """
        if self._fabric is not ledger.rooms().fabric:
            self._fabric = ledger.rooms().fabric
            self._known.clear()
        known = self._known.get(state.signature)
        if known is None:
            spec = state.spec
            may_fit_otherwise = spec.elastic is not None or spec.spot
            known = may_fit_otherwise or any(
                fits(ledger.rooms().emptied(), shape) for _, shape in every_shape(spec)
            )
            self._known[state.signature] = known
        return known


def head_rows(
    ledger: Ledger, rows: WaitingRows, now: float, feasibility: FeasibilityCache, depth: int
) -> BoolArray:
    """A mask of the rows of heads.

    It has the jobs with claims among them too: a claim may be lost within the pass.
    """
    of_signature = np.zeros(ledger.signatures.given, dtype=np.bool_)
    for signature in ledger.waiting.signatures:
        of_signature[signature] = feasibility.is_feasible(
            ledger, first_of_signature(ledger, signature)
        )
    waits: BoolArray = of_signature[rows.signature]
    waits[ineligible_rows(ledger, rows, now)] = False
    heads = rows.first_of_each(waits, depth)
    for row in claimant_rows(ledger, rows):
        end = rows.first_row[rows.queue_index[row] + 1]
        heads[row] = of_signature[rows.signature[row]] and heads[row:end].any()
    return heads
