"""Which running jobs borrow, by rank, and which must end for a queue to get its guarantee.

The jobs below one child of the root are considered by rank (smaller first): a job that still fits the guarantee beside
the earlier ones is within it, the others borrow. Jobs within a guarantee never use the guarantee of another queue.

The same set comes out faster from the other end: the last ranks are dropped until the rest borrows nothing, then those
dropped that are guaranteed beside the rest come back, the first ranks first. So it costs what the borrowers are many.
It is kept until a job below the same child comes, goes, or changes its rank.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gantree.model.values import quick
from gantree.policy.queues import ROOT, QueueTree
from gantree.policy.quota.resource_quota import ResourceQuota

Parts = tuple[tuple[ResourceQuota, int], ...]
"""Amounts by `ResourceQuota`, in ticks."""


@quick
@dataclass(frozen=True, slots=True)
class Holding:
    """The holding of one running job: the path of its node, its amounts, and its rank (any ordered value)."""

    path: tuple[int, ...]
    parts: Parts
    rank: Any


class Borrowing:
    """Running jobs by rank, below each child of the root, and which of them borrow."""

    def __init__(self, tree: QueueTree, quotas: Sequence[ResourceQuota]) -> None:
        self._tree = tree
        self._quotas = quotas
        self._holdings: dict[str, Holding] = {}
        self._ranked_under: dict[int, list[tuple[Any, str]]] = {}
        self._found_under: dict[int, dict[str, None]] = {}
        self._found_last: dict[int, dict[str, None]] = {}
        self._came: dict[str, None] = {}
        self._pushed_out = 0

    def __contains__(self, owner: str) -> bool:
        return owner in self._holdings

    def holding(self, owner: str) -> Holding:
        """Return the holding of a running job."""
        assert owner in self._holdings, f"{owner} is not counted"
        return self._holdings[owner]

    def add(self, owner: str, holding: Holding) -> None:
        """Add a running job that is counted already."""
        assert owner not in self._holdings, f"{owner} is counted already"
        self._holdings[owner] = holding
        top = holding.path[-2]
        insort(self._ranked_under.setdefault(top, []), (holding.rank, owner))
        self._found_under.pop(top, None)
        self._came[owner] = None

    def remove(self, owner: str) -> Holding:
        """Remove a job; return its holding."""
        holding = self.holding(owner)
        del self._holdings[owner]
        self._came.pop(owner, None)
        top = holding.path[-2]
        ranked = self._ranked_under[top]
        del ranked[bisect_left(ranked, (holding.rank, owner))]
        self._found_under.pop(top, None)
        return holding

    def rerank(self, owner: str, rank: Any) -> None:
        """Change the rank of a running job."""
        self.add(owner, replace(self.remove(owner), rank=rank))

    def under(self, top: int) -> dict[str, None]:
        """Return the jobs below a child of the root that borrow, the last rank first."""
        if top not in self._found_under:
            self._found_under[top] = dict.fromkeys(reversed(self._find(top)))
        return self._found_under[top]

    def pushed_out(self) -> int:
        """Return a version that grows whenever a job starts to borrow because another was added."""
        for top in self._ranked_under:
            found = self.under(top)
            before = self._found_last.get(top, {})
            if found is not before:
                self._pushed_out += any(
                    owner not in before and owner not in self._came for owner in found
                )
                self._found_last[top] = found
        self._came.clear()
        return self._pushed_out

    def beside(self, inside: int, around: int) -> Iterator[str]:
        """Yield the jobs that borrow below a node, but not below one of its children: by queue, the last rank first."""
        for top in self._tops(around):
            if top == inside or not self._over(top):
                continue
            for owner in self.under(top):
                path = self._holdings[owner].path
                if around in path and inside not in path:
                    yield owner

    def _tops(self, around: int) -> list[int]:
        """Return the children of the root at or around a node, by name, because numbers are not stable."""
        if around != ROOT:
            return [self._tree.path(around)[-2]]
        return sorted(
            filter(self._over, self._tree.children[ROOT]), key=self._tree.name.__getitem__
        )

    def _over(self, top: int) -> bool:
        return any(quota.over(top) for quota in self._quotas)

    def _find(self, top: int) -> list[str]:
        """Return the borrowing jobs by rank."""
        dropped: list[str] = []
        quotas = list(self._quotas)
        for _, owner in reversed(self._ranked_under.get(top, [])):
            quotas = [quota for quota in quotas if quota.over(top)]
            if not quotas:
                break
            dropped.append(owner)
            self._uncharge(self._holdings[owner])
        borrowing = [owner for owner in reversed(dropped) if not self._come_back(owner)]
        for owner in borrowing:
            self._charge(self._holdings[owner])
        return borrowing

    def _come_back(self, owner: str) -> bool:
        """Charge a job if it fits the guarantee beside all that is charged; return whether it does."""
        holding = self._holdings[owner]
        if _borrows(holding):
            return False
        self._charge(holding)
        return True

    @staticmethod
    def _charge(holding: Holding) -> None:
        for quota, amount in holding.parts:
            quota.charge(holding.path, amount)

    @staticmethod
    def _uncharge(holding: Holding) -> None:
        for quota, amount in holding.parts:
            quota.uncharge(holding.path, amount)


def _borrows(holding: Holding) -> bool:
    """Return whether a holding exceeds the guarantee beside all that is charged."""
    return any(quota.borrowed(holding.path, amount) for quota, amount in holding.parts)
