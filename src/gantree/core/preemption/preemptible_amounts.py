"""What preemptible gangs use of the quotas of queues: an upper bound on what a preemption may free.

If jobs preempt by priority, gangs of a lower priority count, and elastic gangs, which may shrink for any job; otherwise
all gangs count.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

import numpy as np

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.policy.quota.quota import Freed
from gantree.topology.fabric.fabric import IntArray

ALWAYS = -1 << 62
"""In place of the priority of a gang that may shrink for any job."""


class PreemptibleAmounts:
    """Ticks by resource that preemptible gangs use under each node of the queue tree, by priority."""

    def __init__(self, ledger: Ledger, gangs: Iterable[JobState]) -> None:
        self._rules, self._tree = ledger.policy.preemption, ledger.accounts.tree
        of_node: dict[int, list[tuple[int, list[int]]]] = {}
        for gang in gangs:
            shrinks = ledger.policy.elastic and gang.spec.elastic is not None
            used = ledger.accounts.quota.ticks_held(gang.job)
            for node in self._tree.path(gang.queue):
                of_node.setdefault(node, []).append((ALWAYS if shrinks else gang.priority, used))
        self._priorities: dict[int, list[int]] = {}
        self._used_up_to: dict[int, IntArray] = {}
        for node, there in of_node.items():
            there.sort(key=lambda each: each[0])
            self._priorities[node] = [priority for priority, _ in there]
            self._used_up_to[node] = np.cumsum([used for _, used in there], axis=0)

    def freed_for(self, state: JobState, *, within_guarantee: bool) -> Freed:
        """What may be freed for a pending job under each node of its path, in ticks by resource."""
        ends = {
            node: self._end(self._priorities[node], state, within_guarantee)
            for node in self._tree.path(state.queue)
            if node in self._priorities
        }
        return {node: self._used_up_to[node][end - 1].tolist() for node, end in ends.items() if end}

    def _end(self, priorities: list[int], state: JobState, within_guarantee: bool) -> int:
        """How many gangs of a node, in order of priority from the lowest, a job may stop."""
        if within_guarantee or self._rules.by == "order":
            return len(priorities)
        if self._rules.by == "none":
            return bisect_right(priorities, ALWAYS)
        begins = bisect_right if self._rules.gain > 0 else bisect_left
        return max(begins(priorities, state.priority), bisect_right(priorities, ALWAYS))
