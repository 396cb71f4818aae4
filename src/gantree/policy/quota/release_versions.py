"""Versions that grow whenever something is released: an answer holds as long as its version is unchanged."""


class ReleaseVersions:
    """One number for the tree, and one for each node: of releases that a job of the node may use."""

    def __init__(self, nodes: int) -> None:
        self.version = 0
        self._released_at = [0] * nodes
        self._known: dict[int, tuple[int, int]] = {}

    def grow(self, nodes: int) -> None:
        """The tree has so many nodes now."""
        self._released_at += [0] * (nodes - len(self._released_at))

    def release(self, node: int) -> None:
        """Something was given back that jobs under a node may use."""
        self.version += 1
        self._released_at[node] = self.version

    def of(self, path: tuple[int, ...]) -> int:
        """The number of the first node of a path."""
        known = self._known.get(path[0])
        if known is None or known[0] != self.version:
            known = self.version, max(self._released_at[node] for node in path)
            self._known[path[0]] = known
        return known[1]
