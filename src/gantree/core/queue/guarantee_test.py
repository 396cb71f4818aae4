"""Which pending jobs may be within their queue's guarantee: what each queue has left, compared with each signature.

An upper bound: claims do not count, and of a job with several variants the least request does.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from gantree.core.ledger.ledger import Ledger
from gantree.core.queue.waiting_rows import first_of_signature
from gantree.policy.amounts import ticks
from gantree.topology.fabric.fabric import BoolArray, IntArray


class GuaranteeTest:
    """The guarantees left once stopping gangs and the gangs `gone` have left.

    Arrays by queue index and resource, and by signature and resource.
    """

    def __init__(self, ledger: Ledger, queues: Sequence[int], gone: Iterable[str] = ()) -> None:
        accounts = ledger.accounts
        self._may_reclaim = np.array(
            [accounts.guarantees.may_reclaim(each) for each in queues], np.bool_
        )
        left_of_queue = accounts.guarantees_left_to_come(queues, gone)
        resources = [resource for resource, _ in left_of_queue[0]] if left_of_queue else []
        self._left = np.array(
            [[amount for _, amount in of_queue] for of_queue in left_of_queue], dtype=np.int64
        ).reshape(len(queues), len(resources))
        self._requested = requested_ticks(ledger, resources)

    def may_be_within(self, queue_index: IntArray, signature: IntArray) -> BoolArray:
        """A mask of rows, given by queue and signature: those that may be within the guarantee."""
        within = (self._requested[signature] <= self._left[queue_index]).all(axis=1)
        may: BoolArray = within & self._may_reclaim[queue_index]
        return may


def requested_ticks(ledger: Ledger, resources: Sequence[str]) -> IntArray:
    """The least that pending jobs request, in ticks by signature and resource."""
    ticks_of = np.zeros((ledger.signatures.given, len(resources)), dtype=np.int64)
    for signature in ledger.waiting.signatures:
        state = first_of_signature(ledger, signature)
        requested = ledger.accounts.amounts.least_requested(state)
        ticks_of[signature] = [ticks(requested.get(each, 0.0)) for each in resources]
    return ticks_of
