"""Which pending jobs the limits of their queues may admit: what each queue may still use, compared with each signature.

An upper bound: claims do not count, and a job with several variants requests nothing. Without it, a pass would evaluate
the quota for each of thousands of jobs behind a limit, and plan preemptions that cannot help.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from gantree.core.ledger.ledger import Ledger
from gantree.core.queue.guarantee_test import requested_ticks
from gantree.policy.quota.admission import RUNNING
from gantree.policy.rules import Policy
from gantree.topology.fabric.fabric import BoolArray, IntArray

Left = Mapping[int, Mapping[str, int]]
"""Ticks of each limited resource that the limits of a node leave, by node."""
NO_LIMIT = 1 << 62


def has_limits(policy: Policy) -> bool:
    """Whether any rule limits what a queue, or a user of it, may use."""
    return any(
        rule.limit
        or rule.user_limit
        or rule.most_running is not None
        or rule.most_running_per_user is not None
        for rule in policy.queues
    )


class LimitTest:
    """The limits as of now. Arrays by queue index and resource, and by signature and resource."""

    def __init__(self, ledger: Ledger, queues: Sequence[int]) -> None:
        accounts, tree = ledger.accounts, ledger.accounts.tree
        self._paths = [tree.path(queue) for queue in queues]
        self._own = [_nodes_of_queue(ledger, path) for path in self._paths]
        nodes = list(dict.fromkeys(node for path in self._paths for node in path))
        now, later = accounts.limits_left(nodes), accounts.projected_limits_left(nodes)
        self.resources = tuple(dict.fromkeys(each for node in nodes for each in now[node]))
        self._later = later
        self._now = {node: _smaller(now[node], later[node]) for node in nodes}
        self._requested = requested_ticks(ledger, self.resources)
        if RUNNING in self.resources:
            self._requested[:, self.resources.index(RUNNING)] = 1

    def may_start(self, queue_index: IntArray, signature: IntArray) -> BoolArray:
        """A mask of rows, given by queue and signature: those that the limits may admit now."""
        return self._within(self._left(self._now, self._paths)[queue_index], signature)

    def may_wait_for_room(self, queue_index: IntArray, signature: IntArray) -> BoolArray:
        """As `may_start`, by the limits of their own queues only: a job refused by a limit above may reclaim."""
        return self._within(self._left(self._now, self._own)[queue_index], signature)

    @property
    def limited_nodes(self) -> list[int]:
        """The nodes of the queue tree that have a limit."""
        return [node for node, left in self._later.items() if left]

    def may_preempt(
        self, queue_index: int, signature: IntArray, given_up: Mapping[int, Mapping[str, int]]
    ) -> BoolArray:
        """A mask of signatures: those that the limits of a queue may admit once `given_up` ticks are freed under each
        node of the queue tree.
        """
        later = {
            node: {each: has + given_up.get(node, {}).get(each, 0) for each, has in left.items()}
            for node, left in self._later.items()
            if node in self._paths[queue_index]
        }
        return self._within(self._left(later, [self._paths[queue_index]]), signature)

    def _left(self, left: Left, paths: Sequence[Sequence[int]]) -> IntArray:
        """The least of what the limits on each path leave, by path and resource."""
        least = [
            [
                min((left[node].get(each, NO_LIMIT) for node in path), default=NO_LIMIT)
                for each in self.resources
            ]
            for path in paths
        ]
        return np.array(least, dtype=np.int64).reshape(len(paths), len(self.resources))

    def _within(self, left: IntArray, signature: IntArray) -> BoolArray:
        requested = self._requested[signature]
        within: BoolArray = ((requested <= left) | (requested == 0)).all(axis=1)
        return within


def _nodes_of_queue(ledger: Ledger, path: Sequence[int]) -> Sequence[int]:
    """The nodes of the user, if any, and of the queue."""
    return path[: 2 if ledger.accounts.tree.user[path[0]] is not None else 1]


def _smaller(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {each: min(has, other[each]) for each, has in one.items()}
