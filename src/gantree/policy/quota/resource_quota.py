"""The quota of one resource: what each node of the tree is guaranteed, lends, may use, and uses. In whole ticks.

It keeps three accounts; each is updated in one walk from a job's node up.

*Used* is all that the jobs under a node hold; `limit` bounds it.

*Drawn* is Kueue's usage in hierarchical cohorts (kubernetes-sigs/kueue, pkg/cache/scheduler/resource_node.go). A node
has a `pool` of which it keeps some and lends the rest (`policy.quota.pools`). What is used goes first against what the
node keeps; what exceeds that is drawn from the parent's pool, and so on. A node may draw `pool + borrow` at most. The
root's pool is the capacity, or the sum of all guarantees if that is more; it contains what is not guaranteed to any
node.

*Charged* distinguishes guaranteed from borrowed amounts, without regard to lending. A node's `own` is its guarantee
less those of its children: what the children may use beyond their own guarantees without using the guarantee of
another node. Usage is charged to the node's own, the excess to the parent's own, and so on. What reaches the root is
borrowed.

A node without a guarantee of its own (a user's, a queue's in a guaranteed parent) thereby shares its parent's.
"""

from collections.abc import Sequence
from typing import NamedTuple

from gantree.policy.amounts import MODEL, ticks
from gantree.policy.queues import ROOT, QueueTree
from gantree.policy.quota.pools import Pools
from gantree.policy.rules import QueueRule


class Over(NamedTuple):
    """The node whose limit an amount exceeds, and the excess in ticks."""

    node: int
    by: int


class ResourceQuota:
    """Ticks of one resource, the lists by node. rationed: whether some rule guarantees, lends or borrows of it."""

    def __init__(self, tree: QueueTree, resource: str, capacity: float) -> None:
        self.resource = resource
        self.rationed = resource in rationed_resources(tree)
        self.tree = tree
        self._capacity = ticks(capacity)
        self.guaranteed: list[int] = []
        self.own: list[int] = []
        self.pools = Pools(tree, resource, {})
        self._least_kept = Pools(tree, resource, _never_lent(tree, resource))
        self.pool, self.kept = self.pools.pool, self.pools.kept
        self.limit: list[int | None] = []
        self.used: list[int] = []
        self.drawn: list[int] = []
        self.charged: list[int] = []
        self._nothing: list[int] = []
        self.grow()
        for node in reversed(range(len(tree))):
            self._set_guarantee(node)
        self.pools.update(self.own)
        self._least_kept.update(self.own)

    def grow(self) -> None:
        """Extend the lists to nodes that the tree added: queues and users without a guarantee."""
        for node in range(len(self.used), len(self.tree)):
            for has in (self.guaranteed, self.own):
                has.append(0)
            for counts in (self.used, self.drawn, self.charged, self._nothing):
                counts.append(0)
            self.limit.append(self._limit(node))
        self.pools.grow()
        self._least_kept.grow()

    def set_capacity(self, capacity: float) -> None:
        """Set the capacity of the cluster. Only the root's pool depends on it."""
        self._capacity = ticks(capacity)
        self._set_guarantee(ROOT)
        self.pools.update(self.own, [ROOT])
        self._least_kept.update(self.own, [ROOT])

    def keep(self, node: int, most: int) -> None:
        """Let a node keep at most so much to its subtree, and lend the rest whatever its `lend`. O(nodes)."""
        self.pools.cap[node] = most
        self.pools.update(self.own)
        drawn, parent = list(self.used), self.tree.parent
        for each in range(1, len(self.tree)):
            drawn[parent[each]] -= self.used[each]
        for each in reversed(range(1, len(self.tree))):
            drawn[parent[each]] += max(0, drawn[each] - self.kept[each])
        self.drawn = drawn

    def take(self, path: Sequence[int], amount: int) -> None:
        """Add an amount held by a job at the beginning of a path."""
        for node in path:
            self.used[node] += amount
        if self.rationed:
            _add(path, self.drawn, self.kept, amount)
            _add(path, self.charged, self.own, amount)

    def give_back(self, path: Sequence[int], amount: int) -> int:
        """Remove an amount; return how far up the path more can be used or borrowed."""
        reached = 0
        for at, node in enumerate(path):
            self.used[node] -= amount
            if self.limit[node] is not None:
                reached = at
        if not self.rationed:
            return reached
        undrawn = _remove(path, self.drawn, self.kept, amount)
        return max(reached, undrawn, _remove(path, self.charged, self.own, amount))

    def charge(self, path: Sequence[int], amount: int) -> None:
        """Add an amount to the account `charged` only."""
        if self.rationed:
            _add(path, self.charged, self.own, amount)

    def uncharge(self, path: Sequence[int], amount: int) -> None:
        """Undo `charge`."""
        if self.rationed:
            _remove(path, self.charged, self.own, amount)

    def over_limit(self, path: Sequence[int], amount: int, ever: bool = False) -> Over | None:
        """Return the first node whose limit the amount exceeds; ever: even with nothing in use."""
        used = self._nothing if ever else self.used
        for node in path:
            limit = self.limit[node]
            if limit is not None and used[node] + amount > limit:
                return Over(node, used[node] + amount - limit)
        return None

    def limit_left(self, nodes: Sequence[int]) -> int | None:
        """Return the least that the limits of some nodes leave; None without a limit."""
        left = [
            limit - self.used[node] for node in nodes if (limit := self.limit[node]) is not None
        ]
        return min(left, default=None)

    def borrowed(self, path: Sequence[int], amount: int, ever: bool = False) -> int:
        """Return the borrowed part of an amount: 0 if all of it is guaranteed, or the resource has no guarantees."""
        return max(0, amount - self.guarantee_left(path, ever)) if self.rationed else 0

    def guarantee_left(self, path: Sequence[int], ever: bool = False) -> int:
        """Return how much a job at the beginning of a path could have without borrowing, of a guaranteed resource."""
        charged = self._nothing if ever else self.charged
        own, left = self.own, 0
        for node in path:
            free = own[node] - charged[node]
            if free > 0 and node != ROOT:
                left += free
        return left

    def overdrawn(
        self, path: Sequence[int], amount: int, owed: bool, ever: bool = False
    ) -> Over | None:
        """Return the first node that would have to draw more than it may.

        An amount within the guarantee is not refused because the root's pool is empty: borrowers give it back. For
        other amounts, what a queue keeps offsets an overdraft above it, as in `available`.
        """
        if not self.rationed:
            return None
        found = self._must_draw_more(path, amount, owed, ever)
        if found is None and not owed and not ever and self.drawn[ROOT] > self.pool[ROOT]:
            missing = amount - self.available(path)
            return Over(ROOT, missing) if missing > 0 else None
        return found

    def _must_draw_more(
        self, path: Sequence[int], amount: int, owed: bool, ever: bool
    ) -> Over | None:
        drawn, pools = (self._nothing, self._least_kept) if ever else (self.drawn, self.pools)
        rest = amount
        for node in path:
            most = pools.most_drawn[node]
            total = drawn[node] + rest
            if most is not None and total > most and not (owed and node == ROOT):
                return Over(node, total - most)
            free = pools.kept[node] - drawn[node]
            if free > 0:
                rest -= free
                if rest <= 0:
                    break
        return None

    def available(self, path: Sequence[int], freed: Sequence[int] | None = None) -> int:
        """Return the most that a job at the beginning of a path could have now, without limits; at least 0.

        freed: what is freed under each node of the path; then the result is an upper bound.
        """
        room = 0
        for at in reversed(range(len(path))):
            node = path[at]
            drawn = self.drawn[node] - (freed[at] if freed is not None else 0)
            room += max(0, self.kept[node] - drawn)
            most = self.pools.most_drawn[node]
            if node == ROOT:
                room = self.pool[ROOT] - drawn
            elif most is not None:
                room = min(room, most - drawn)
        return max(0, room)

    def most_left(self, path: Sequence[int], freed: Sequence[int]) -> int | None:
        """Return an upper bound on what a job at the beginning of a path could have once `freed` is freed under each
        node of it, by limits, guarantees and borrowing; None without any.
        """
        limits = [
            limit - self.used[node] + more
            for node, more in zip(path, freed, strict=True)
            if (limit := self.limit[node]) is not None
        ]
        if self.rationed:
            limits.append(max(self.available(path, freed), self._most_guaranteed(path, freed)))
        return min(limits, default=None)

    def _most_guaranteed(self, path: Sequence[int], freed: Sequence[int]) -> int:
        """Return an upper bound on `guarantee_left` once so much is freed under each node."""
        return sum(
            max(0, self.own[node] - max(0, self.charged[node] - more))
            for node, more in zip(path, freed, strict=True)
            if node != ROOT
        )

    def over(self, node: int) -> int:
        """Return how much is used under a node above all that it and the nodes under it are guaranteed."""
        return max(0, self.charged[node] - self.own[node])

    def idle(self, node: int) -> int:
        """Return the unused part of a node's guarantee."""
        return max(0, self.guaranteed[node] - self.used[node])

    def lends(self, node: int) -> bool:
        """Return whether a node lends, or may have lent, any of its pool to its parent's."""
        return self.pool[node] > self.kept[node] or node in self.pools.cap

    @property
    def short(self) -> bool:
        """Whether guarantees, or draws from the root's pool, exceed the capacity: the cluster became smaller."""
        return self.rationed and (
            self.guaranteed[ROOT] > self._capacity or self.drawn[ROOT] > self.pool[ROOT]
        )

    def _set_guarantee(self, node: int) -> None:
        of_children = sum(self.guaranteed[child] for child in self.tree.children[node])
        own = (
            self._capacity if node == ROOT else _ticks_of_rule(self.tree.rule[node], self.resource)
        )
        self.guaranteed[node] = max(own, of_children)
        self.own[node] = self.guaranteed[node] - of_children

    def _limit(self, node: int) -> int | None:
        rule = self.tree.limiting_rule(node)
        if rule is None:
            return None
        limits = rule.limit if self.tree.user[node] is None else rule.user_limit
        limit = limits.get(self.resource)
        return None if limit is None else ticks(limit)


def resources_named(tree: QueueTree) -> tuple[str, ...]:
    """Return the resources that rules name, in order of first mention."""
    rules = [rule for rule in tree.rule if rule is not None]
    limited = [
        resource
        for rule in rules
        for amounts in (rule.limit, rule.user_limit)
        for resource in amounts
    ]
    return tuple(dict.fromkeys((*rationed_resources(tree), *limited)))


def rationed_resources(tree: QueueTree) -> tuple[str, ...]:
    """Return the resources that rules guarantee, lend or borrow; others are free for all queues."""
    return tuple(
        dict.fromkeys(
            resource
            for rule in tree.rule
            if rule is not None
            for amounts in (rule.guarantee, rule.lend, rule.borrow)
            for resource in amounts
        )
    )


def _never_lent(tree: QueueTree, resource: str) -> dict[int, int]:
    """Return what the nodes that lend by use keep however long it idles."""
    return {
        node: ticks(rule.lend_idle.keep.get(resource, 0.0))
        for node, rule in enumerate(tree.rule)
        if rule is not None and rule.lend_idle is not None
    }


def _ticks_of_rule(rule: QueueRule | None, resource: str) -> int:
    """Return the guarantee of a rule for a resource; guarantees of GPU models are guarantees of GPUs, too."""
    if rule is None:
        return 0
    of_all = ticks(rule.guarantee.get(resource, 0.0))
    if resource != "gpus":
        return of_all
    models = sum(ticks(has) for key, has in rule.guarantee.items() if key.startswith(MODEL))
    return max(of_all, models)


def _add(path: Sequence[int], account: list[int], floor: Sequence[int], amount: int) -> None:
    """Add an amount to an account up a path: at each node what is above the floors of those below it."""
    rest = amount
    for node in path:
        free = floor[node] - account[node]
        account[node] += rest
        if free > 0:
            rest -= free
            if rest <= 0:
                return


def _remove(path: Sequence[int], account: list[int], floor: Sequence[int], amount: int) -> int:
    """Undo `_add`; return how far up the path it went."""
    rest = amount
    for at, node in enumerate(path):
        above = account[node] - floor[node]
        account[node] -= rest
        if above <= 0:
            return at
        rest = min(rest, above)
    return len(path) - 1
