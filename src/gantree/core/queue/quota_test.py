"""Which pending jobs the quotas of their queues may admit: what each queue may have, compared with each signature.

An upper bound: claims do not count, and of a job with several variants the least request does. Without it, a pass would
evaluate the quota for each of thousands of jobs behind a limit, and plan preemptions that cannot help.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from gantree.core.ledger.ledger import Ledger
from gantree.core.queue.guarantee_test import requested_ticks
from gantree.policy.quota.quota import Freed
from gantree.topology.fabric.fabric import BoolArray, IntArray


class QuotaTest:
    """The quotas as of now, evaluated when needed after a decision. Arrays by queue index and resource, and
    by signature and resource.
    """

    def __init__(self, ledger: Ledger, queues: Sequence[int]) -> None:
        self._ledger, self._accounts, self._queues = ledger, ledger.accounts, queues
        self._evaluated_at = -1
        self._now = self._later = self._by_queue([])

    @cached_property
    def _requested(self) -> IntArray:
        requested = requested_ticks(self._ledger, self._accounts.quota.resources)
        requested[:, -1] = 1  # of running jobs
        return requested

    def _refresh(self) -> None:
        if self._evaluated_at != self._ledger.applied:
            self._evaluated_at = self._ledger.applied
            self._later = self._by_queue(self._accounts.projected_most_left(self._queues))
            now = self._by_queue(self._accounts.most_left(self._queues))
            self._now = np.minimum(self._later, now)

    def _by_queue(self, left: Sequence[Sequence[int]]) -> IntArray:
        shape = len(left), len(self._accounts.quota.resources)
        return np.array(left, dtype=np.int64).reshape(shape)

    def may_start(self, queue_index: IntArray, signature: IntArray) -> BoolArray:
        """A mask of rows, given by queue and signature: those that may be admitted now."""
        self._refresh()
        return self._within(self._now[queue_index], signature)

    def may_start_later(self, queue_index: IntArray, signature: IntArray) -> BoolArray:
        """As `may_start`, once all leaving gangs have left."""
        self._refresh()
        return self._within(self._later[queue_index], signature)

    def may_wait_for_capacity(self, queue_index: IntArray, signature: IntArray) -> BoolArray:
        """A mask of rows: those that the limits of their own queues may admit now. Others wait for their own queue."""
        own = self._accounts.own_limits_left(self._queues)
        return self._within(self._by_queue(own)[queue_index], signature)

    def may_preempt(self, index: int, signature: IntArray, freed: Freed) -> BoolArray:
        """A mask of signatures: those that a queue, given by index, may admit once `freed` is freed."""
        left = self._accounts.projected_most_left([self._queues[index]], freed)
        return self._within(self._by_queue(left), signature)

    def _within(self, left: IntArray, signature: IntArray) -> BoolArray:
        requested = self._requested[signature]
        within: BoolArray = ((requested <= left) | (requested == 0)).all(axis=1)
        return within
