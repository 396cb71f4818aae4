"""What each queue is guaranteed, may borrow, and may use at most: admission by amounts, and which jobs borrow.

`Quota` counts running jobs under their nodes of the queue tree, in one `ResourceQuota` for each resource that a rule
names; `policy.resource_quota` says what is counted. Other resources are bounded by the cluster alone. Where a job runs
does not matter here: shapes are guaranteed by `policy.cells`.

    room(node, amounts)   owed      all of it is guaranteed to the job's queues, or is of a kind that nobody is
                                    guaranteed any of
                          borrowed  some is above that, and idle elsewhere in the cohorts, or in the cluster
                          refused   a limit or the quota says no; `Admission.words` says which

What is owed is never refused because others have borrowed it: they give it back (`borrowers`, `admits_without`). It is
refused by limits, and where a cohort or queue above may not borrow more; then `reclaim` says whether the end of jobs
that borrowed would help.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from gantree.model.verdicts import Gate
from gantree.policy.admission import BORROWED, OWED, RUNNING, WAITING, Admission
from gantree.policy.amounts import TICKS, ticks
from gantree.policy.borrowing import Borrowing, Holding, Parts
from gantree.policy.queues import ROOT, QueueTree
from gantree.policy.resource_quota import Over, ResourceQuota, resources_named
from gantree.policy.rules import Amounts

__all__ = ["Admission", "Quota"]


class Quota:
    """Quotas of a tree and what is used of them. Owners are names of running jobs; ranks are anything that sorts.

    All that it counts comes from `take` and `enqueue`; in whatever order these came, and whatever came and went
    between, the same jobs give the same answers.
    """

    def __init__(self, tree: QueueTree, capacity: Amounts) -> None:
        self.tree = tree
        self._quota_of_resource = {
            resource: ResourceQuota(tree, resource, capacity.get(resource, 0.0))
            for resource in resources_named(tree)
        }
        self._capacity = dict(capacity)
        self._jobs = Borrowing(tree, tuple(self._quota_of_resource.values()))
        self._running: list[int] = []
        self._waiting: list[int] = []
        self._freed_at: list[int] = []
        self._most_running: list[int | None] = []
        self._version = 0
        self._version_of_node: dict[int, tuple[int, int]] = {}
        self._unruled: dict[int, bool] = {}
        self._left_of: dict[int, tuple[tuple[str, int], ...]] = {}
        self.grow()

    @property
    def capacity(self) -> Amounts:
        """What the cluster has; may be set when it changed."""
        return self._capacity

    @capacity.setter
    def capacity(self, capacity: Amounts) -> None:
        if capacity == self._capacity:
            return
        self._capacity = dict(capacity)
        for resource, quota in self._quota_of_resource.items():
            quota.set_capacity(capacity.get(resource, 0.0))
        self._freed(ROOT)

    @property
    def resources(self) -> Iterable[str]:
        """The resources that rules name, in a fixed order."""
        return self._quota_of_resource.keys()

    def is_unruled(self, node: int) -> bool:
        """Return whether no rule counts anything of a node: whatever its jobs ask for is owed to them, whoever runs."""
        known = self._unruled.get(node)
        if known is None:
            path = self._path(node)
            known = not self._quota_of_resource and all(
                self._most_running[each] is None for each in path
            )
            self._unruled[node] = known
        return known

    def room(self, node: int, amounts: Amounts, may_borrow: bool = True) -> Admission:
        """Return whether a job of a node may start with these amounts beside all that runs. O(depth x resources)."""
        path = self._path(node)
        too_many, parts = self._too_many_running(path), self._parts(amounts)
        if too_many is None:
            return self._room(path, parts, may_borrow)
        on_empty = self._answer(path, parts, may_borrow, ever=True)
        return on_empty if on_empty.refused else too_many

    def room_to_grow(self, node: int, amounts: Amounts, may_borrow: bool = True) -> Admission:
        """Return whether a job of a node that runs already may have these amounts in addition."""
        return self._room(self._path(node), self._parts(amounts), may_borrow)

    def admits_without(self, node: int, amounts: Amounts, owners: Iterable[str]) -> bool:
        """Return whether a job would be owed these amounts if these running jobs were gone. Changes nothing."""
        return self.room_without(node, amounts, owners).state == "owed"

    def is_guaranteed(self, node: int, amounts: Amounts) -> bool:
        """Return whether a job of a node would be guaranteed these amounts beside all that runs; limits aside."""
        left = self._left_of.get(node)
        if left is None:
            left = self._left_of[node] = self._guarantee_left(node)
        return all(
            resource not in amounts or ticks(amounts[resource]) <= has for resource, has in left
        )

    def _guarantee_left(self, node: int) -> tuple[tuple[str, int], ...]:
        """What a job of a node could have without borrowing, of what is rationed: (resource, ticks) of each."""
        path, quotas = self._path(node), self._quota_of_resource.items()
        return tuple(
            (resource, quota.guarantee_left(path)) for resource, quota in quotas if quota.rationed
        )

    def room_without(
        self,
        node: int,
        amounts: Amounts,
        owners: Iterable[str],
        may_borrow: bool = True,
        beside: Iterable[tuple[int, Amounts]] = (),
    ) -> Admission:
        """Return what `room` would say if these running jobs were gone. Changes nothing. O(owners).

        beside: (node, amounts) of jobs that do not run yet and count as if they did.
        """
        with self._as_if(owners, beside):
            return self.room(node, amounts, may_borrow)

    def limits_without(
        self,
        node: int,
        amounts: Amounts,
        owners: Iterable[str],
        beside: Iterable[tuple[int, Amounts]] = (),
    ) -> Admission:
        """As `room_without`, asking limits only: what the job is guaranteed, or would borrow, is no matter."""
        path, parts = self._path(node), self._parts(amounts)
        never = self._too_large(path, parts, owed=True, ever=True)
        with self._as_if(owners, beside):
            now = self._too_many_running(path) or self._too_large(
                path, parts, owed=True, ever=False
            )
        return never or now or OWED

    @contextmanager
    def _as_if(self, gone: Iterable[str], come: Iterable[tuple[int, Amounts]]) -> Iterator[None]:
        """Count these running jobs out, and these in, for a while."""
        out = [self._jobs.holding(owner) for owner in dict.fromkeys(gone)]
        for holding in out:
            self._count_out(holding)
        with self.beside(come):
            yield
        for holding in reversed(out):
            self._count(holding)

    @contextmanager
    def beside(self, come: Iterable[tuple[int, Amounts]]) -> Iterator[None]:
        """Count jobs, told as (node, amounts), for a while as if they ran; who borrows is not to be asked meanwhile."""
        holdings = [Holding(self._path(each), self._parts(has), ()) for each, has in come]
        for holding in holdings:
            self._count(holding)
        try:
            yield
        finally:
            for holding in reversed(holdings):
                self._count_out(holding)

    def take(self, node: int, owner: str, amounts: Amounts, rank: Any) -> None:
        """Count a job of a node that holds these amounts from now on. It must not be counted yet."""
        holding = Holding(self._path(node), self._parts(amounts), rank)
        self._jobs.add(owner, holding)
        self._count(holding)

    def give_back(self, owner: str) -> int:
        """Count a job no more; return the topmost node under which a refused job may be admitted now."""
        top = self._count_out(self._jobs.remove(owner))
        self._freed(top)
        return top

    def resize(self, owner: str, amounts: Amounts) -> None:
        """Count a running job with other amounts from now on."""
        before = self._jobs.remove(owner)
        now = Holding(before.path, self._parts(amounts), before.rank)
        top = self._count_out(before)
        self._jobs.add(owner, now)
        self._count(now)
        ticks_now = {quota.resource: amount for quota, amount in now.parts}
        if any(ticks_now.get(quota.resource, 0) < amount for quota, amount in before.parts):
            self._freed(top)

    def rerank(self, owner: str, rank: Any) -> None:
        """Give a running job another rank."""
        self._jobs.rerank(owner, rank)

    def holds(self, owner: str) -> bool:
        """Whether a job is counted."""
        return owner in self._jobs

    def owed(self, owner: str) -> bool:
        """Whether what a running job holds is guaranteed, by rank among those that share the guarantee."""
        return owner not in self._jobs.under(self._jobs.holding(owner).path[-2])

    def borrow_in(self, node: int) -> Collection[str]:
        """Return the running jobs that are not owed what they hold, of the child of the root that a node is below."""
        return self._jobs.under(self._path(node)[-2]).keys()

    def borrowers(self, node: int) -> Iterator[str]:
        """Yield the jobs that borrow what the cohorts of a node lend, nearest cohort first, then the last rank first.

        Those of its own queue are not among them. Where the cluster has become smaller than what it promised, or lent,
        the jobs of other cohorts are, too.
        """
        path = self._path(node)
        if self.tree.user[node] is not None:
            path = path[1:]
        for inside, around in pairwise(path):
            if self._lends(inside):
                yield from self._jobs.beside(inside, around)

    def would_borrow(self, node: int, amounts: Amounts, rank: Any, gone: Collection[str]) -> bool:
        """Return whether a job of a node would not be owed these amounts if it ran, by rank, without these."""
        return self._jobs.would_borrow(Holding(self._path(node), self._parts(amounts), rank), gone)

    def lends_to(self, node: int, other: int) -> bool:
        """Return whether jobs of another node are among those that may borrow what the cohorts of a node lend."""
        path, others = self._path(node), self._path(other)
        return any(
            around in others and inside not in others and self._lends(inside)
            for inside, around in pairwise(path[self.tree.user[node] is not None :])
        )

    def _lends(self, node: int) -> bool:
        return any(quota.lends(node) or quota.short for quota in self._quota_of_resource.values())

    def pushed_out(self) -> int:
        """Return a number that grows whenever a running job is no longer owed what it holds, because another came."""
        return self._jobs.pushed_out()

    def free(self) -> None:
        """Jobs that were refused may be admitted now for another cause than what runs."""
        self._freed(ROOT)

    def version(self) -> int:
        """Return a number that grows whenever something was given back."""
        return self._version

    def version_of(self, node: int) -> int:
        """Return a number that grows whenever something was given back that a job of this node may use."""
        known = self._version_of_node.get(node)
        if known is None or known[0] != self._version:
            freed_at = max(self._freed_at[each] for each in self._path(node))
            known = self._version_of_node[node] = (self._version, freed_at)
        return known[1]

    def may_wait(self, node: int) -> Admission:
        """Return whether one more job of a node may wait."""
        for each in self._path(node):
            rule = self.tree.rule[each]
            most = rule.most_waiting if rule is not None else None
            if most is not None and self._waiting[each] >= most:
                return self._too_many(each, WAITING, self._waiting[each], most)
        return OWED

    def is_full(self, node: int) -> str:
        """Return why no more jobs of a node may wait, in words; "" where they may."""
        return self.may_wait(node).words

    def enqueue(self, node: int) -> None:
        """Count a job of a node that waits."""
        for each in self._path(node):
            self._waiting[each] += 1

    def dequeue(self, node: int) -> None:
        """Count a job of a node that waits no more."""
        for each in self._path(node):
            self._waiting[each] -= 1
            assert self._waiting[each] >= 0, f"more jobs left {self.tree.name[each]} than waited"

    def running(self, node: int) -> int:
        """Return how many jobs under a node are counted."""
        return self._running[self._path(node)[0]]

    def waiting(self, node: int) -> int:
        """Return how many jobs under a node wait."""
        return self._waiting[self._path(node)[0]]

    def used(self, node: int) -> Amounts:
        """Return what jobs under a node hold of the resources that some rule names."""
        return self._figures(node, lambda quota: quota.used[node])

    def guaranteed(self, node: int) -> Amounts:
        """Return what a node is guaranteed: its own guarantee, at least that of its children together."""
        return self._figures(node, lambda quota: quota.guaranteed[node])

    def has_idle_guarantee(self, node: int) -> bool:
        """Return whether anything is unused of what is guaranteed to a node, or to one that it is in but the root."""
        path = self._path(node)[:-1]
        return any(quota.idle(each) for quota in self._quota_of_resource.values() for each in path)

    def borrowed(self, node: int) -> Amounts:
        """Return what jobs under a node hold above all that the node and those under it are guaranteed."""
        return self._figures(node, lambda quota: quota.over(node))

    def available(self, node: int) -> Amounts:
        """Return what a job of a node could have now without taking anything back; limits aside."""
        path = self._path(node)
        return self._figures(node, lambda quota: quota.available(path))

    def lent(self, node: int) -> Amounts:
        """Return how much of what a node is guaranteed it could not have now, because others borrowed it."""
        path = self._path(node)
        return self._figures(node, lambda quota: max(0, quota.idle(node) - quota.available(path)))

    def _room(self, path: tuple[int, ...], parts: Parts, may_borrow: bool) -> Admission:
        answer = self._answer(path, parts, may_borrow, ever=False)
        if not answer.refused:
            return answer
        on_empty = self._answer(path, parts, may_borrow, ever=True)
        return on_empty if on_empty.refused else answer

    def _answer(
        self, path: tuple[int, ...], parts: Parts, may_borrow: bool, ever: bool
    ) -> Admission:
        """The answer beside all that runs, or beside nothing where ever."""
        borrowed_of_part = [quota.borrowed(path, amount, ever) for quota, amount in parts]
        owed = not any(borrowed_of_part)
        over_limit = self._too_large(path, parts, owed, ever)
        if over_limit is not None:
            return over_limit
        if not (owed or may_borrow):
            return self._not_owed(path, parts, borrowed_of_part, ever)
        for quota, amount in parts:
            drawn = quota.overdrawn(path, amount, owed, ever)
            if drawn is not None:
                return self._refused(Gate.QUOTA, quota, drawn, amount, path, owed, ever)
        return OWED if owed else BORROWED

    def _too_large(
        self, path: tuple[int, ...], parts: Parts, owed: bool, ever: bool
    ) -> Admission | None:
        for quota, amount in parts:
            over = quota.over_limit(path, amount, ever)
            if over is not None:
                return self._refused(Gate.LIMIT, quota, over, amount, path, owed, ever)
        return None

    def _refused(
        self,
        gate: Gate,
        quota: ResourceQuota,
        over: Over,
        amount: int,
        path: tuple[int, ...],
        owed: bool,
        ever: bool,
    ) -> Admission:
        """No from one node; its own queue's no is not one that the end of a borrower changes.

        Where there is nothing left to borrow, who asks is told, not the cluster.
        """
        tree = self.tree
        of_queue = path[1] if tree.user[path[0]] is not None else path[0]
        node = of_queue if over.node == ROOT else over.node
        used = 0 if ever else quota.used[node]
        return Admission(
            "refused",
            gate,
            tree.label(node),
            tree.queue[node],
            quota.resource,
            used=used / TICKS,
            most=(used + amount - over.by) / TICKS,
            asked=amount / TICKS,
            short_by=over.by / TICKS,
            never=ever,
            reclaim=owed and not ever and over.node not in (path[0], of_queue),
        )

    def _not_owed(
        self, path: tuple[int, ...], parts: Parts, borrowed_of_part: list[int], ever: bool
    ) -> Admission:
        """No to a job that may not borrow."""
        (quota, amount), borrowed = next(
            (part, borrowed)
            for part, borrowed in zip(parts, borrowed_of_part, strict=True)
            if borrowed
        )
        return Admission(
            "refused",
            Gate.QUOTA,
            self.tree.label(path[0]),
            self.tree.queue[path[0]],
            quota.resource,
            asked=amount / TICKS,
            short_by=borrowed / TICKS,
            never=ever,
            must_be_owed=True,
        )

    def _too_many_running(self, path: tuple[int, ...]) -> Admission | None:
        for node in path:
            most = self._most_running[node]
            if most is not None and self._running[node] >= most:
                return self._too_many(node, RUNNING, self._running[node], most, never=most < 1)
        return None

    def _too_many(
        self, node: int, what: str, used: int, most: int, never: bool = False
    ) -> Admission:
        return Admission(
            "refused",
            Gate.LIMIT,
            self.tree.label(node),
            self.tree.queue[node],
            what,
            used=used,
            most=most,
            asked=1,
            short_by=used + 1 - most,
            never=never,
        )

    def _count(self, holding: Holding) -> None:
        self._left_of.clear()
        for node in holding.path:
            self._running[node] += 1
        for quota, amount in holding.parts:
            quota.take(holding.path, amount)

    def _count_out(self, holding: Holding) -> int:
        """Count a job no more; return the topmost node whose subtree gains by that."""
        self._left_of.clear()
        path = holding.path
        top = 0
        for at, node in enumerate(path):
            self._running[node] -= 1
            if self._most_running[node] is not None:
                top = at
        for quota, amount in holding.parts:
            top = max(top, quota.give_back(path, amount))
        return path[top]

    def _parts(self, amounts: Amounts) -> Parts:
        quotas = self._quota_of_resource
        if not quotas:
            return ()
        return tuple(
            [
                (quotas[resource], ticks(amount))
                for resource, amount in amounts.items()
                if resource in quotas and amount
            ]
        )

    def _path(self, node: int) -> tuple[int, ...]:
        if node >= len(self._running):
            self.grow()
        return self.tree.path(node)

    def grow(self) -> None:
        """Make room for nodes that the tree made since."""
        for node in range(len(self._running), len(self.tree)):
            self._running.append(0)
            self._waiting.append(0)
            self._freed_at.append(0)
            self._most_running.append(self.tree.most_running(node))
        for quota in self._quota_of_resource.values():
            quota.grow()

    def _freed(self, node: int) -> None:
        self._version += 1
        self._freed_at[node] = self._version

    def _figures(self, node: int, ticks_of: Callable[[ResourceQuota], int]) -> Amounts:
        self._path(node)
        return {
            resource: ticks_of(quota) / TICKS for resource, quota in self._quota_of_resource.items()
        }
