"""How many jobs run and wait under each node of the queue tree, and the limits on these numbers."""

from collections.abc import Sequence

from gantree.policy.queues import QueueTree
from gantree.policy.quota.admission import RUNNING, WAITING, Admission
from gantree.policy.quota.refusals import too_many

Path = tuple[int, ...]
"""The nodes of the tree from a job's own up to the root."""


class JobCounts:
    """Running and waiting jobs, by node; a job counts at every node of its path."""

    def __init__(self, tree: QueueTree) -> None:
        self._tree = tree
        self._running: list[int] = []
        self._waiting: list[int] = []
        self._most_running: list[int | None] = []
        self.grow()

    def __len__(self) -> int:
        return len(self._running)

    def grow(self) -> None:
        """Extend the counts to nodes that the tree added."""
        for node in range(len(self._running), len(self._tree)):
            self._running.append(0)
            self._waiting.append(0)
            self._most_running.append(self._tree.most_running(node))

    def running(self, node: int) -> int:
        """Return the number of running jobs under a node."""
        return self._running[node]

    def waiting(self, node: int) -> int:
        """Return the number of pending jobs under a node."""
        return self._waiting[node]

    def start(self, path: Path) -> None:
        """Add a running job."""
        for node in path:
            self._running[node] += 1

    def end(self, path: Path) -> int:
        """Remove a running job; return the index in the path of the topmost node with a limit, 0 without one."""
        top = 0
        for place, node in enumerate(path):
            self._running[node] -= 1
            if self._most_running[node] is not None:
                top = place
        return top

    def count_waiting(self, path: Path, change: int) -> None:
        """Add (or remove) so many pending jobs."""
        for node in path:
            self._waiting[node] += change
            assert self._waiting[node] >= 0, f"more jobs left {self._tree.name[node]} than waited"

    def is_limited(self, path: Path) -> bool:
        """Return whether a rule limits running jobs at a node of a path."""
        return any(self._most_running[node] is not None for node in path)

    def most_left(self, nodes: Path, freed: Sequence[int]) -> int | None:
        """Return how many more jobs the limits of some nodes admit once so many end under each; None without any."""
        left = [
            most - self._running[node] + more
            for node, more in zip(nodes, freed, strict=True)
            if (most := self._most_running[node]) is not None
        ]
        return min(left, default=None)

    def too_many_running(self, path: Path) -> Admission | None:
        """Return the refusal of one more running job, or None."""
        for node in path:
            most, runs = self._most_running[node], self._running[node]
            if most is not None and runs >= most:
                return too_many(self._tree, node, RUNNING, runs, most, never=most < 1)
        return None

    def too_many_waiting(self, path: Path, jobs: int = 1) -> Admission | None:
        """Return the refusal of so many more pending jobs, or None."""
        for node in path:
            rule = self._tree.rule[node]
            most = rule.most_waiting if rule is not None else None
            if most is not None and self._waiting[node] + jobs > most:
                return too_many(self._tree, node, WAITING, self._waiting[node], most)
        return None
