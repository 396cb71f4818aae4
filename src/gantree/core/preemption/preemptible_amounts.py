"""What preemptible gangs use of the limits of queues: an upper bound on what a preemption may free under a limit.

If jobs preempt by priority, gangs of a lower priority count, and elastic gangs, which may shrink for any job; otherwise
all gangs count.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.policy.amounts import ticks
from gantree.policy.quota.admission import RUNNING

ALWAYS = -1 << 62
"""In place of the priority of a gang that may shrink for any job."""


class PreemptibleAmounts:
    """Ticks that preemptible gangs use under each node of the queue tree that has a limit, by priority."""

    def __init__(
        self,
        ledger: Ledger,
        gangs: Iterable[JobState],
        nodes: Iterable[int],
        resources: Sequence[str],
    ) -> None:
        self._rules, self._resources = ledger.policy.preemption, resources
        of_node: dict[int, list[tuple[int, list[int]]]] = {node: [] for node in nodes}
        for gang in gangs:
            shrinks = ledger.policy.elastic and gang.spec.elastic is not None
            used = [_used(ledger, gang, each) for each in resources]
            for node in ledger.accounts.tree.path(gang.queue):
                if node in of_node:
                    of_node[node].append((ALWAYS if shrinks else gang.priority, used))
        self._of_node = {
            node: sorted(there, key=lambda each: each[0]) for node, there in of_node.items()
        }

    def given_up_for(
        self, state: JobState, *, within_guarantee: bool
    ) -> Mapping[int, Mapping[str, int]]:
        """What may be freed for a pending job under each node, in ticks by resource."""
        return {
            node: dict(zip(self._resources, map(sum, zip(*counted, strict=True)), strict=True))
            for node, there in self._of_node.items()
            if (
                counted := [used for _, used in there[: self._ends(there, state, within_guarantee)]]
            )
        }

    def _ends(
        self, there: Sequence[tuple[int, object]], state: JobState, within_guarantee: bool
    ) -> int:
        """How many gangs of a node, in order of priority from the lowest, a job may stop."""
        if within_guarantee or self._rules.by == "order":
            return len(there)
        if self._rules.by == "none":
            return bisect_right(there, ALWAYS, key=lambda each: each[0])
        begins = bisect_right if self._rules.gain > 0 else bisect_left
        return begins(there, state.priority, key=lambda each: each[0])


def _used(ledger: Ledger, gang: JobState, resource: str) -> int:
    if resource == RUNNING:
        return 1
    return ticks(ledger.accounts.amounts.held_by(gang).get(resource, 0.0))
