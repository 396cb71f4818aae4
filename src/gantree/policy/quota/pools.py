"""What each node of the queue tree has of a resource, keeps to its subtree and lends. In whole ticks, by node.

A node's `pool` is its own guarantee and what its children lend. Of it the node keeps `kept` = max(0, pool - lend), or
less where a cap says so (`cap`), and lends the rest to its parent's pool.
"""

from collections.abc import Mapping, Sequence

from gantree.policy.amounts import ticks
from gantree.policy.queues import ROOT, QueueTree


class Pools:
    """Pools of one resource. cap: of a node, the most that it keeps; most_drawn: the most that it may draw."""

    def __init__(self, tree: QueueTree, resource: str, cap: Mapping[int, int]) -> None:
        self._tree, self._resource = tree, resource
        self.cap = dict(cap)
        self.pool: list[int] = []
        self.kept: list[int] = []
        self.most_drawn: list[int | None] = []

    def grow(self) -> None:
        """Extend the lists to nodes that the tree added: without a guarantee, they have and lend nothing."""
        for _ in range(len(self.pool), len(self._tree)):
            self.pool.append(0)
            self.kept.append(0)
            self.most_drawn.append(None)

    def update(self, own: Sequence[int], nodes: Sequence[int] | None = None) -> None:
        """Compute some nodes, all by default, children before parents. own is their own guarantees."""
        for node in reversed(range(len(own))) if nodes is None else nodes:
            self._update(node, own[node])

    def lent_by_use(self, node: int) -> int:
        """Return what a node lends only because of its cap."""
        return max(0, self.pool[node] - self._lend(node, self.pool[node])) - self.kept[node]

    def _update(self, node: int, own: int) -> None:
        rule = self._tree.rule[node]
        children = self._tree.children[node]
        pool = self.pool[node] = own + sum(self.pool[each] - self.kept[each] for each in children)
        kept = max(0, pool - self._lend(node, pool))
        self.kept[node] = min(kept, self.cap.get(node, kept))
        borrow = rule.borrow.get(self._resource) if rule is not None else None
        self.most_drawn[node] = None if borrow is None else pool + ticks(borrow)
        if node == ROOT:
            self.most_drawn[node] = pool

    def _lend(self, node: int, pool: int) -> int:
        """Return the most that a node lends however much it uses."""
        rule = self._tree.rule[node]
        if self._tree.is_cohort(node):
            return 0  # its queues lend to each other, not to others
        if rule is None:
            return pool
        lend = rule.lend.get(self._resource, 0.0 if rule.lend_idle is not None else None)
        return pool if lend is None else ticks(lend)
