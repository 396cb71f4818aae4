"""Index from nodes to claims: room freed on a few nodes is offered to the claims on these nodes only."""

from collections.abc import Iterable, Sequence

from gantree.model.placements import Placement


class ClaimsByNode:
    """The jobs that have claims, by the nodes of their places."""

    def __init__(self) -> None:
        self._on_node: dict[str, dict[str, None]] = {}
        self._place_of: dict[str, Placement] = {}
        self._number_of: dict[str, int] = {}
        self._next = 0

    def note(self, job: str, place: Placement) -> None:
        """A job claims a place instead of any other. A claim that changes keeps its age."""
        if job in self._place_of:
            self._leave(job)
        else:
            self._number_of[job], self._next = self._next, self._next + 1
        self._place_of[job] = place
        for node in place.nodes:
            self._on_node.setdefault(node, {})[job] = None

    def forget(self, job: str) -> None:
        """A job claims nothing any more."""
        self._leave(job)
        del self._place_of[job], self._number_of[job]

    def on(self, nodes: Iterable[str]) -> Sequence[str]:
        """The jobs that claim room on any of these nodes, the oldest claim first."""
        there = {job: None for node in nodes for job in self._on_node.get(node, ())}
        return self.oldest_first(there)

    def oldest_first(self, jobs: Iterable[str]) -> Sequence[str]:
        """Some jobs that have claims, the oldest claim first."""
        return sorted(jobs, key=self._number_of.__getitem__)

    def _leave(self, job: str) -> None:
        for node in self._place_of[job].nodes:
            del self._on_node[node][job]
            if not self._on_node[node]:
                del self._on_node[node]
