"""The log of changed nodes, by which indexes of an occupancy are updated."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from gantree.topology.occupancy.occupancy import Occupancy


class Index(Protocol):
    """What a search keeps beside an occupancy, following its change log."""

    def check(self, occupancy: "Occupancy") -> None:
        """AssertionError where it does not say what the occupancy says."""


class ChangeLog:
    """Touched nodes in order. Old ones are forgotten, so that the log of a long life stays short."""

    def __init__(self, nodes_of_fabric: int) -> None:
        """An empty log; it keeps some four touches per node of the fabric."""
        self._most = 4 * nodes_of_fabric + 1024
        self._nodes: list[int] = []
        self._starts_at = 0
        self.touch = self._nodes.append

    @property
    def version(self) -> int:
        """Grows with every touched node."""
        return self._starts_at + len(self._nodes)

    def since(self, version: int) -> Sequence[int] | None:
        """Nodes touched since a version, each once, in node order; None where the log no longer reaches back."""
        if version < self._starts_at:
            return None
        return sorted(set(self._nodes[version - self._starts_at :]))

    def has_only(self, node: int, version: int) -> bool:
        """Whether nothing but one node was touched since a version, and the log still reaches back to it."""
        if version < self._starts_at:
            return False
        return all(each == node for each in self._nodes[version - self._starts_at :])

    def trim(self) -> None:
        """Forget the older half where the log has grown too long; to be called after touching."""
        if len(self._nodes) > self._most:
            half = len(self._nodes) // 2
            del self._nodes[:half]
            self._starts_at += half
