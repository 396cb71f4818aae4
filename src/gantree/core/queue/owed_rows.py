"""Which jobs might be owed what they ask for: what is left of each queue's guarantee against what each signature asks.

A coarse test, never wrongly no: what is claimed counts as free, and who has several ways is taken for owed.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.queue.waiting_rows import first_of_signature
from gantree.planning.rightsizing.ranking import chooses
from gantree.policy.amounts import ticks
from gantree.topology.fabric.fabric import BoolArray, IntArray


class OwedTest:
    """What might be owed when all have left who leave, and some gangs beside. Arrays by queue index and resource, and
    by signature and resource.
    """

    def __init__(self, ledger: Ledger, queues: Sequence[int], gone: Iterable[str] = ()) -> None:
        accounts = ledger.accounts
        self._may_reclaim = np.array(
            [accounts.guarantees.may_reclaim(each) for each in queues], np.bool_
        )
        left = accounts.guarantees_left_to_come(queues, gone)
        resources = [resource for resource, _ in left[0]] if left else []
        self._left = np.array(
            [[amount for _, amount in of_queue] for of_queue in left], dtype=np.int64
        ).reshape(len(queues), len(resources))
        self._asked = ticks_asked(ledger, resources)

    def may_be_owed(self, queue_index: IntArray, signature: IntArray) -> BoolArray:
        """Mask of the rows that might be owed what they ask for, told by queue and signature."""
        within = (self._asked[signature] <= self._left[queue_index]).all(axis=1)
        may: BoolArray = within & self._may_reclaim[queue_index]
        return may


def ticks_asked(ledger: Ledger, resources: Sequence[str]) -> IntArray:
    """What the jobs of a signature that somebody waits with ask for, by signature and resource; nothing for those that
    have several ways.
    """
    ticks_of = np.zeros((ledger.signatures.given, len(resources)), dtype=np.int64)
    for signature in ledger.waiting.signatures:
        state = first_of_signature(ledger, signature)
        if not _has_several_ways(ledger, state):
            asked = ledger.accounts.amounts.asked(state)
            ticks_of[signature] = [ticks(asked.get(each, 0.0)) for each in resources]
    return ticks_of


def _has_several_ways(ledger: Ledger, state: JobState) -> bool:
    spec = state.spec
    return spec.elastic is not None or chooses(spec) or ledger.accounts.guarantees.of_models
