"""What pods that are there prefer of others: where they had rather have them near, or not, and how much that weighs."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from gantree.executors.kubernetes.apiserver.objects import Pod
from gantree.executors.kubernetes.pods.pod_selectors import Kind

Name = tuple[str, str]
"""The label that says what near is, and the name of a kind."""


class Leanings:
    """Weights by label, kind and node; below zero where pods had rather be away."""

    def __init__(self) -> None:
        self._weights: dict[Name, tuple[Kind, Counter[str]]] = {}

    def add(self, key: str, kind: Kind, node: str, weight: int) -> None:
        """A pod on a node begins to weigh so much; it ends with the opposite of that."""
        _, on_node = self._weights.setdefault((key, kind.name), (kind, Counter()))
        on_node[node] += weight
        if not on_node[node]:
            del on_node[node]
        if not on_node:
            del self._weights[key, kind.name]

    def clear(self) -> None:
        """Nobody prefers anything."""
        self._weights.clear()

    @property
    def are_there(self) -> bool:
        """Whether anybody prefers anything."""
        return bool(self._weights)

    def towards(self, pod: Pod, but: Collection[Name]) -> Iterator[tuple[str, Mapping[str, int]]]:
        """(label, weight by node) of those that mean a pod, but for some kinds."""
        for name, (kind, on_node) in self._weights.items():
            if name not in but and kind.has(pod):
                yield name[0], on_node
