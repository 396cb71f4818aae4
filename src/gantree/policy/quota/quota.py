"""What each queue is guaranteed, may borrow, and may use at most: admission by amounts, and which jobs borrow.

`Quota` counts running jobs under their nodes of the queue tree, in one `ResourceQuota` for each resource that a rule
names; `policy.quota.resource_quota` says what is counted. Other resources are bounded by the cluster alone. Where a job
runs does not matter here: shapes are guaranteed by `policy.cells`.

    room(node, amounts)   owed      all of it is guaranteed to the job's queues, or is of a kind that nobody is
                                    guaranteed any of
                          borrowed  some is above that, and idle elsewhere in the cohorts, or in the cluster
                          refused   a limit or the quota says no; `Admission.words` says which

What is owed is never refused because others have borrowed it: they give it back (`borrowers`, `admits_without`). It is
refused by limits, and where a cohort or queue above may not borrow more; then `reclaim` says whether the end of jobs
that borrowed would help.
"""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from gantree.model.verdicts import Gate
from gantree.policy.amounts import ticks
from gantree.policy.queues import ROOT, QueueTree
from gantree.policy.quota.admission import BORROWED, OWED, Admission
from gantree.policy.quota.borrowing import Borrowing, Holding, Parts
from gantree.policy.quota.job_counts import JobCounts
from gantree.policy.quota.refusals import above_quota, must_not_borrow
from gantree.policy.quota.release_versions import ReleaseVersions
from gantree.policy.quota.resource_quota import ResourceQuota, resources_named
from gantree.policy.quota.usage import QuotaUsage
from gantree.policy.rules import Amounts

__all__ = ["Admission", "Quota"]


class Quota:
    """Quotas of a tree and what is used of them. Owners are names of running jobs; ranks are anything that sorts.

    The same jobs give the same answers, in whatever order they came and whatever else came and went. It joins five
    small objects: the quota of each resource, the jobs by rank (`Borrowing`), `counts`, `usage`, and the versions of
    what was released.
    """

    def __init__(self, tree: QueueTree, capacity: Amounts) -> None:
        self.tree = tree
        self._quota_of_resource = {
            resource: ResourceQuota(tree, resource, capacity.get(resource, 0.0))
            for resource in resources_named(tree)
        }
        self._capacity = dict(capacity)
        self._jobs = Borrowing(tree, tuple(self._quota_of_resource.values()))
        self._counts = JobCounts(tree)
        self._releases = ReleaseVersions(len(tree))
        self._usage = QuotaUsage(tree, self._quota_of_resource)
        self._unruled: dict[int, bool] = {}
        self._left_of: dict[int, tuple[tuple[str, int], ...]] = {}

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
        self._releases.release(ROOT)

    @property
    def usage(self) -> QuotaUsage:
        """The figures of each node."""
        self.grow()
        return self._usage

    @property
    def counts(self) -> JobCounts:
        """How many jobs run and wait at each node."""
        self.grow()
        return self._counts

    def is_unruled(self, node: int) -> bool:
        """Return whether no rule counts anything of a node: whatever its jobs ask for is owed to them, whoever runs."""
        known = self._unruled.get(node)
        if known is None:
            known = not self._quota_of_resource and not self._counts.is_limited(self._path(node))
            self._unruled[node] = known
        return known

    def room(self, node: int, amounts: Amounts, may_borrow: bool = True) -> Admission:
        """Return whether a job of a node may start with these amounts beside all that runs. O(depth x resources)."""
        path = self._path(node)
        too_many, parts = self._counts.too_many_running(path), self._parts(amounts)
        if too_many is None:
            return self._room(path, parts, may_borrow)
        on_empty = self._answer(path, parts, may_borrow, ever=True)
        return on_empty if on_empty.refused else too_many

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

    def guarantees_left_without(
        self, nodes: Iterable[int], owners: Iterable[str]
    ) -> list[tuple[tuple[str, int], ...]]:
        """Return of each node what a job of it could have without borrowing, were these running jobs gone.

        (resource, ticks) of each resource that is rationed, in one order for all. Changes nothing.
        """
        with self._as_if(owners, ()):
            return [self._guarantee_left(node) for node in nodes]

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
            now = self._counts.too_many_running(path) or self._too_large(
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
        self._releases.release(top)
        return top

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

    def _lends(self, node: int) -> bool:
        return any(quota.lends(node) or quota.short for quota in self._quota_of_resource.values())

    def pushed_out(self) -> int:
        """Return a number that grows whenever a running job is no longer owed what it holds, because another came."""
        return self._jobs.pushed_out()

    def free(self) -> None:
        """Jobs that were refused may be admitted now for another cause than what runs."""
        self._releases.release(ROOT)

    def version(self) -> int:
        """Return a number that grows whenever something was given back."""
        return self._releases.version

    def version_of(self, node: int) -> int:
        """Return a number that grows whenever something was given back that a job of this node may use."""
        return self._releases.of(self._path(node))

    def may_wait(self, node: int) -> Admission:
        """Return whether one more job of a node may wait."""
        return self._counts.too_many_waiting(self._path(node)) or OWED

    def enqueue(self, node: int) -> None:
        """Count a job of a node that waits."""
        self._counts.enqueue(self._path(node))

    def dequeue(self, node: int) -> None:
        """Count a job of a node that waits no more."""
        self._counts.dequeue(self._path(node))

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
            short = zip(parts, borrowed_of_part, strict=True)
            (quota, amount), borrowed = next(each for each in short if each[1])
            return must_not_borrow(quota, amount, borrowed, path, ever=ever)
        for quota, amount in parts:
            drawn = quota.overdrawn(path, amount, owed, ever)
            if drawn is not None:
                return above_quota(Gate.QUOTA, quota, drawn, amount, path, owed=owed, ever=ever)
        return OWED if owed else BORROWED

    def _too_large(
        self, path: tuple[int, ...], parts: Parts, owed: bool, ever: bool
    ) -> Admission | None:
        for quota, amount in parts:
            over = quota.over_limit(path, amount, ever)
            if over is not None:
                return above_quota(Gate.LIMIT, quota, over, amount, path, owed=owed, ever=ever)
        return None

    def _count(self, holding: Holding) -> None:
        self._left_of.clear()
        self._counts.start(holding.path)
        for quota, amount in holding.parts:
            quota.take(holding.path, amount)

    def _count_out(self, holding: Holding) -> int:
        """Count a job no more; return the topmost node whose subtree gains by that."""
        self._left_of.clear()
        path = holding.path
        top = self._counts.end(path)
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
        if node >= len(self._counts):
            self.grow()
        return self.tree.path(node)

    def grow(self) -> None:
        """Count at nodes that the tree made since, too."""
        if len(self._counts) == len(self.tree):
            return
        self._counts.grow()
        self._releases.grow(len(self.tree))
        for quota in self._quota_of_resource.values():
            quota.grow()
