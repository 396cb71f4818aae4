"""The figures of a quota: what a node of the queue tree is guaranteed, uses, borrows, lends and may still get."""

from collections.abc import Callable, Mapping

from gantree.policy.amounts import TICKS
from gantree.policy.queues import QueueTree
from gantree.policy.quota.resource_quota import ResourceQuota
from gantree.policy.rules import Amounts


class QuotaUsage:
    """Figures of each node, in amounts of the resources that rules name. Nodes must be counted already."""

    def __init__(self, tree: QueueTree, quota_of_resource: Mapping[str, ResourceQuota]) -> None:
        self._tree = tree
        self._quota_of_resource = quota_of_resource

    def used(self, node: int) -> Amounts:
        """What jobs under a node hold."""
        return self._amounts(lambda quota: quota.used[node])

    def guaranteed(self, node: int) -> Amounts:
        """What a node is guaranteed: its own guarantee, at least that of its children together."""
        return self._amounts(lambda quota: quota.guaranteed[node])

    def borrowed(self, node: int) -> Amounts:
        """What jobs under a node hold above all that the node and those under it are guaranteed."""
        return self._amounts(lambda quota: quota.over(node))

    def available(self, node: int) -> Amounts:
        """What a job of a node could have now without reclaiming anything; limits aside."""
        path = self._tree.path(node)
        return self._amounts(lambda quota: quota.available(path))

    def lent(self, node: int) -> Amounts:
        """How much of a node's guarantee it could not have now, because others borrow it."""
        path = self._tree.path(node)
        return self._amounts(lambda quota: max(0, quota.idle(node) - quota.available(path)))

    def has_idle_guarantee(self, node: int) -> bool:
        """Whether anything is unused of what is guaranteed to a node, or to one that it is in, but the root."""
        path = self._tree.path(node)[:-1]
        return any(quota.idle(each) for quota in self._quota_of_resource.values() for each in path)

    def _amounts(self, ticks_of: Callable[[ResourceQuota], int]) -> Amounts:
        return {name: ticks_of(quota) / TICKS for name, quota in self._quota_of_resource.items()}
