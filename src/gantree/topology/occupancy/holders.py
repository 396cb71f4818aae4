"""Owners on each node, with their number of members there, in order of arrival.

Copies of an occupancy share what they have of a node until one of them changes it: it makes that its own then, once. So
a copy costs what the nodes are many, and a change nothing that grows with those who are on its node.
"""

from collections.abc import Mapping
from typing import Self


class Holders(dict[int, dict[str, int]]):
    """Node -> owner -> members. Changed by `enter` and `leave` only, but for a whole node that is set."""

    __slots__ = ("_own",)

    def __init__(self, others: Mapping[int, dict[str, int]] | None = None) -> None:
        super().__init__(others or {})
        self._own: set[int] = set()

    def copy(self) -> Self:
        """The same, to be changed on its own; nothing is either's own any more."""
        self._own = set()
        return type(self)(self)

    def enter(self, node: int, owner: str) -> None:
        """One more member of an owner is there."""
        holders = self._changed(node)
        holders[owner] = holders.get(owner, 0) + 1

    def leave(self, node: int, owner: str) -> None:
        """One less of them is there."""
        holders = self._changed(node)
        holders[owner] -= 1
        if not holders[owner]:
            del holders[owner]

    def _changed(self, node: int) -> dict[str, int]:
        """Those on a node, about to be changed."""
        if node not in self._own:
            self._own.add(node)
            self[node] = dict(self.get(node, ()))
        return self[node]
