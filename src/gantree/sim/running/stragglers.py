"""Which nodes and attempts are slow: drawn by name, so that they are the same under every policy."""

from collections.abc import Iterable
from random import Random

from gantree.sim.running.model import Stragglers


class SlowOnes:
    """Speeds of a seed. A gang is as fast as its slowest node."""

    def __init__(self, stragglers: Stragglers, seed: int) -> None:
        self._stragglers = stragglers
        self._seed = seed
        self._speed_of_node: dict[str, float] = {}

    def speed(self, job: str, attempt: int, nodes: Iterable[str]) -> float:
        """The speed of an attempt on these nodes, 1 where nothing slows it."""
        own = self._drawn(f"attempt/{job}/{attempt}", self._stragglers.attempts)
        return min([own, *(self._of_node(node) for node in nodes)])

    def slow_nodes(self, nodes: Iterable[str]) -> dict[str, float]:
        """Those of some nodes that are slow, with their speeds."""
        return {node: speed for node in nodes if (speed := self._of_node(node)) < 1.0}

    def _of_node(self, node: str) -> float:
        if node not in self._speed_of_node:
            self._speed_of_node[node] = self._drawn(f"node/{node}", self._stragglers.nodes)
        return self._speed_of_node[node]

    def _drawn(self, name: str, share: float) -> float:
        if not share:
            return 1.0
        draws = Random(f"{self._seed}/straggler/{name}")  # noqa: S311 - a simulation
        return self._stragglers.speed if draws.random() < share else 1.0
