"""Quota of queues: admission by guarantees, borrowing and limits, and which running jobs borrow.

`Quota` counts running jobs under their nodes of the queue tree, in one `ResourceQuota` for each resource that a rule
names. Other resources are limited by the cluster alone. The placement of a job does not matter: `policy.cells`
guarantees shapes.

    room(node, amounts)   owed      all of it is within the guarantees of the job's queues, or of a resource that no
                                    rule guarantees
                          borrowed  some of it is above them, and idle elsewhere in the cohorts or in the cluster
                          refused   a limit or the quota refuses it; `Admission.words` says which

A job within its guarantee is never refused because others have borrowed: these give back (`borrowers`,
`room_without`). It is refused by limits, and where a cohort or queue above may not borrow more; then `reclaim` says
whether the end of borrowing jobs would help.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from gantree.model.verdicts import Gate
from gantree.policy.amounts import ticks
from gantree.policy.queues import ROOT, QueueTree
from gantree.policy.quota.admission import BORROWED, RUNNING, WITHIN_GUARANTEE, Admission
from gantree.policy.quota.borrowing import Borrowing, Holding, Parts
from gantree.policy.quota.job_counts import JobCounts
from gantree.policy.quota.refusals import above_quota, must_not_borrow
from gantree.policy.quota.release_versions import ReleaseVersions
from gantree.policy.quota.resource_quota import ResourceQuota, resources_named
from gantree.policy.quota.usage import QuotaUsage
from gantree.policy.rules import Amounts

__all__ = ["Admission", "Quota"]

Freed = Mapping[int, Sequence[int]]
"""Ticks by resource that are freed under a node, by node."""
NOTHING_FREED: Freed = {}
UNLIMITED = 1 << 62


class Quota:
    """The quotas of a queue tree and their use. Owners are names of running jobs; ranks are any ordered values.

    Answers depend only on the set of counted jobs, not on their history. It joins five objects: the quota of each
    resource, the jobs by rank (`Borrowing`), `counts`, `usage`, and the versions of releases.
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
        """The capacity of the cluster; may be set when it changed."""
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
        """Return the figures of each node."""
        self.grow()
        return self._usage

    @property
    def counts(self) -> JobCounts:
        """Return how many jobs run and wait at each node."""
        self.grow()
        return self._counts

    def keep(self, node: int, most: Mapping[str, int]) -> None:
        """Let a node keep at most so many ticks of some resources to its queue, and lend the rest."""
        self.grow()
        known = [
            (quota, most[name]) for name, quota in self._quota_of_resource.items() if name in most
        ]
        lends_more = any(amount < quota.kept[node] for quota, amount in known)
        for quota, amount in known:
            quota.keep(node, amount)
        if lends_more:
            self._releases.release(ROOT)

    def used_ticks(self, node: int, resource: str) -> int:
        """Return what jobs under a node hold of a resource that a rule names."""
        self.grow()
        return self._quota_of_resource[resource].used[node]

    def ticks_under(self, node: int, owner: str, resource: str) -> int:
        """Return what a running job holds of a resource under a node; 0 if it is not under it."""
        holding = self._jobs.holding(owner)
        if node not in holding.path:
            return 0
        return sum(amount for quota, amount in holding.parts if quota.resource == resource)

    def is_unruled(self, node: int) -> bool:
        """Return whether no rule counts anything at a node: its jobs are always within their guarantee."""
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
        """Return (resource, ticks) that a job of a node could have without borrowing, of resources with guarantees."""
        path, quotas = self._path(node), self._quota_of_resource.items()
        return tuple(
            (resource, quota.guarantee_left(path)) for resource, quota in quotas if quota.rationed
        )

    def guarantees_left_without(
        self, nodes: Iterable[int], owners: Iterable[str]
    ) -> list[tuple[tuple[str, int], ...]]:
        """Return, for each node, what a job of it could have without borrowing if these running jobs were gone.

        (resource, ticks) of each resource with guarantees, in one order for all. Changes nothing.
        """
        with self._as_if(owners, ()):
            return [self._guarantee_left(node) for node in nodes]

    @property
    def resources(self) -> tuple[str, ...]:
        """Return the resources that rules name, and RUNNING for the number of running jobs."""
        return (*self._quota_of_resource, RUNNING)

    def most_left_without(
        self, nodes: Iterable[int], owners: Iterable[str], freed: Freed = NOTHING_FREED
    ) -> list[list[int]]:
        """Return, for each node, upper bounds on what a job of it could have, were these running jobs gone.

        Ticks by resource, in the order of `resources`; UNLIMITED without a rule. freed: ticks by resource that are
        freed under some nodes, too. Changes nothing.
        """
        with self._as_if(owners, ()):
            return [self._most_left(self._path(node), freed) for node in nodes]

    def _most_left(self, path: tuple[int, ...], freed: Freed) -> list[int]:
        most: list[int | None] = []
        for at, quota in enumerate(self._quota_of_resource.values()):
            freed_under = [freed[node][at] if node in freed else 0 for node in path]
            most.append(quota.most_left(path, freed_under))
        most.append(self._counts.most_left(path, [freed[n][-1] if n in freed else 0 for n in path]))
        return [UNLIMITED if each is None else each for each in most]

    def own_limits_left(self, node: int) -> list[int]:
        """Return what the limits of a node, and of its queue if it is a user's, leave; as `most_left_without`."""
        path = self._path(node)
        own = path[: 2 if self.tree.user[node] is not None else 1]
        left = [quota.limit_left(own) for quota in self._quota_of_resource.values()]
        left.append(self._counts.most_left(own, [0] * len(own)))
        return [UNLIMITED if each is None else each for each in left]

    def ticks_held(self, owner: str) -> list[int]:
        """Return what a running job holds, in ticks, in the order of `resources`; nothing if it is not counted."""
        if owner not in self._jobs:
            return [0] * len(self.resources)
        held = {quota.resource: amount for quota, amount in self._jobs.holding(owner).parts}
        return [*(held.get(resource, 0) for resource in self._quota_of_resource), 1]

    def room_without(
        self,
        node: int,
        amounts: Amounts,
        owners: Iterable[str],
        may_borrow: bool = True,
        beside: Iterable[tuple[int, Amounts]] = (),
    ) -> Admission:
        """Return the answer of `room` if these running jobs were gone. Changes nothing. O(owners).

        beside: (node, amounts) of pending jobs that count as running.
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
        """As `room_without`, with limits only, whatever the guarantees."""
        path, parts = self._path(node), self._parts(amounts)
        never = self._too_large(path, parts, owed=True, ever=True)
        with self._as_if(owners, beside):
            now = self._counts.too_many_running(path) or self._too_large(
                path, parts, owed=True, ever=False
            )
        return never or now or WITHIN_GUARANTEE

    @contextmanager
    def _as_if(self, gone: Iterable[str], come: Iterable[tuple[int, Amounts]]) -> Iterator[None]:
        """Remove these running jobs and add these temporarily."""
        out = [self._jobs.holding(owner) for owner in dict.fromkeys(gone)]
        for holding in out:
            self._count_out(holding)
        with self.beside(come):
            yield
        for holding in reversed(out):
            self._count(holding)

    @contextmanager
    def beside(self, come: Iterable[tuple[int, Amounts]]) -> Iterator[None]:
        """Count jobs, (node, amounts), temporarily as running. Borrowers are not defined meanwhile."""
        holdings = [Holding(self._path(each), self._parts(has), ()) for each, has in come]
        for holding in holdings:
            self._count(holding)
        try:
            yield
        finally:
            for holding in reversed(holdings):
                self._count_out(holding)

    def take(self, node: int, owner: str, amounts: Amounts, rank: Any) -> None:
        """Add a running job of a node with these amounts. It must not be counted yet."""
        holding = Holding(self._path(node), self._parts(amounts), rank)
        self._jobs.add(owner, holding)
        self._count(holding)

    def give_back(self, owner: str) -> int:
        """Remove a job; return the topmost node under which a refused job may be admitted now."""
        top = self._count_out(self._jobs.remove(owner))
        self._releases.release(top)
        return top

    def rerank(self, owner: str, rank: Any) -> None:
        """Change the rank of a running job."""
        self._jobs.rerank(owner, rank)

    def holds(self, owner: str) -> bool:
        """Return whether a job is counted."""
        return owner in self._jobs

    def owed(self, owner: str) -> bool:
        """Return whether a running job is within the guarantee, by rank among the jobs that share it."""
        return owner not in self._jobs.under(self._jobs.holding(owner).path[-2])

    def borrow_in(self, node: int) -> Collection[str]:
        """Return the running jobs that borrow, below the same child of the root as a node."""
        return self._jobs.under(self._path(node)[-2]).keys()

    def borrowers(self, node: int) -> Iterator[str]:
        """Yield the jobs that borrow from the cohorts of a node, nearest cohort first, last rank first.

        Jobs of its own queue are left out. If the cluster is smaller than its guarantees or loans, jobs of other
        cohorts are included.
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
        """Return a version that grows whenever a running job starts to borrow because another job was added."""
        return self._jobs.pushed_out()

    def free(self) -> None:
        """Note that refused jobs may be admitted now for another reason than ended jobs."""
        self._releases.release(ROOT)

    def version(self) -> int:
        """Return a version that grows whenever something is released."""
        return self._releases.version

    def version_of(self, node: int) -> int:
        """Return a version that grows whenever something is released that a job of this node may use."""
        return self._releases.of(self._path(node))

    def may_wait(self, node: int, jobs: int = 1) -> Admission:
        """Return the admission of so many more pending jobs of a node."""
        return self._counts.too_many_waiting(self._path(node), jobs) or WITHIN_GUARANTEE

    def count_waiting(self, node: int, change: int) -> None:
        """Add (or remove) so many pending jobs of a node."""
        self._counts.count_waiting(self._path(node), change)

    def enqueue(self, node: int) -> None:
        """Add a pending job of a node."""
        self._counts.count_waiting(self._path(node), 1)

    def dequeue(self, node: int) -> None:
        """Remove a pending job of a node."""
        self._counts.count_waiting(self._path(node), -1)

    def _room(self, path: tuple[int, ...], parts: Parts, may_borrow: bool) -> Admission:
        answer = self._answer(path, parts, may_borrow, ever=False)
        if not answer.refused:
            return answer
        on_empty = self._answer(path, parts, may_borrow, ever=True)
        return on_empty if on_empty.refused else answer

    def _answer(
        self, path: tuple[int, ...], parts: Parts, may_borrow: bool, ever: bool
    ) -> Admission:
        """Return the answer beside all running jobs; ever: beside none."""
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
        return WITHIN_GUARANTEE if owed else BORROWED

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
        """Remove a job; return the topmost node whose subtree gains."""
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
        """Extend the counts to nodes that the tree added."""
        if len(self._counts) == len(self.tree):
            return
        self._counts.grow()
        self._releases.grow(len(self.tree))
        for quota in self._quota_of_resource.values():
            quota.grow()
