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
        """Return what jobs under a node hold."""
        return self._amounts(lambda quota: quota.used[node])

    def guaranteed(self, node: int) -> Amounts:
        """Return the guarantee of a node: its own, at least that of its children together."""
        return self._amounts(lambda quota: quota.guaranteed[node])

    def borrowed(self, node: int) -> Amounts:
        """Return what jobs under a node hold above the guarantees of the node and of those under it."""
        return self._amounts(lambda quota: quota.over(node))

    def available(self, node: int) -> Amounts:
        """Return what a job of a node could have now without a reclaim, limits aside."""
        path = self._tree.path(node)
        return self._amounts(lambda quota: quota.available(path))

    def lent(self, node: int) -> Amounts:
        """Return the part of a node's guarantee that others borrow."""
        path = self._tree.path(node)
        return self._amounts(lambda quota: max(0, quota.idle(node) - quota.available(path)))

    def lent_by_use(self, node: int) -> Amounts:
        """Return what a node lends because it was not used of late, beside what it lends at any time."""
        return self._amounts(lambda quota: quota.pools.lent_by_use(node))

    def has_idle_guarantee(self, node: int) -> bool:
        """Return whether a guarantee of a node, or of one above it but the root, is partly unused."""
        path = self._tree.path(node)[:-1]
        return any(quota.idle(each) for quota in self._quota_of_resource.values() for each in path)

    def _amounts(self, ticks_of: Callable[[ResourceQuota], int]) -> Amounts:
        return {name: ticks_of(quota) / TICKS for name, quota in self._quota_of_resource.items()}
