"""Which waiting jobs the limits of their queues may admit: what each queue may still use against what each signature
asks for.

A coarse test, never wrongly no: what is claimed counts as free, and a job of several sizes or models asks for nothing.
Without it, a pass would ask the quota for each of thousands of jobs behind a limit, and plan preemptions in vain.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from gantree.core.ledger.ledger import Ledger
from gantree.core.queue.owed_rows import ticks_asked
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
    """The limits as things are now. Arrays by queue index and resource, and by signature and resource."""

    def __init__(self, ledger: Ledger, queues: Sequence[int]) -> None:
        accounts, tree = ledger.accounts, ledger.accounts.tree
        self._paths = [tree.path(queue) for queue in queues]
        self._own = [_nodes_of_queue(ledger, path) for path in self._paths]
        nodes = list(dict.fromkeys(node for path in self._paths for node in path))
        now, later = accounts.limits_left(nodes), accounts.projected_limits_left(nodes)
        self.resources = tuple(dict.fromkeys(each for node in nodes for each in now[node]))
        self._later = later
        self._now = {node: _smaller(now[node], later[node]) for node in nodes}
        self._asked = ticks_asked(ledger, self.resources)
        if RUNNING in self.resources:
            self._asked[:, self.resources.index(RUNNING)] = 1

    def may_start(self, queue_index: IntArray, signature: IntArray) -> BoolArray:
        """Mask of rows, told by queue and signature, whose limits may admit them now."""
        return self._within(self._left(self._now, self._paths)[queue_index], signature)

    def may_wait_for_room(self, queue_index: IntArray, signature: IntArray) -> BoolArray:
        """As `may_start`, by the limits of their own queues alone: jobs that a limit above refuses may reclaim."""
        return self._within(self._left(self._now, self._own)[queue_index], signature)

    @property
    def limited_nodes(self) -> list[int]:
        """The nodes of the queue tree that have a limit."""
        return [node for node, left in self._later.items() if left]

    def may_preempt(
        self, queue_index: int, signature: IntArray, given_up: Mapping[int, Mapping[str, int]]
    ) -> BoolArray:
        """Mask of signatures that the limits of a queue may admit with so much given up under each node, in ticks."""
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
        asked = self._asked[signature]
        within: BoolArray = ((asked <= left) | (asked == 0)).all(axis=1)
        return within


def _nodes_of_queue(ledger: Ledger, path: Sequence[int]) -> Sequence[int]:
    """A user's and the queue's own node."""
    return path[: 2 if ledger.accounts.tree.user[path[0]] is not None else 1]


def _smaller(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {each: min(has, other[each]) for each, has in one.items()}
