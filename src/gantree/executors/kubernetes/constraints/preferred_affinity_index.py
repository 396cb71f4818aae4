"""What pods that are there prefer of others: where they had rather have them near, or not, and how much that weighs."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from gantree.executors.kubernetes.apiserver.objects import Pod
from gantree.executors.kubernetes.pods.pod_selectors import PodSelector

Name = tuple[str, str]
"""The label that says what near is, and the name of a kind."""


class PreferredAffinityIndex:
    """Weights by label, kind and node; below zero where pods had rather be away."""

    def __init__(self) -> None:
        self._weights: dict[Name, tuple[PodSelector, Counter[str]]] = {}

    def add(self, key: str, selector: PodSelector, node: str, weight: int) -> None:
        """A pod on a node begins to weigh so much; it ends with the opposite of that."""
        _, on_node = self._weights.setdefault((key, selector.name), (selector, Counter()))
        on_node[node] += weight
        if not on_node[node]:
            del on_node[node]
        if not on_node:
            del self._weights[key, selector.name]

    def clear(self) -> None:
        """Nobody prefers anything."""
        self._weights.clear()

    @property
    def has_any(self) -> bool:
        """Whether anybody prefers anything."""
        return bool(self._weights)

    def weights_for(
        self, pod: Pod, but: Collection[Name]
    ) -> Iterator[tuple[str, Mapping[str, int]]]:
        """(label, weight by node) of those that mean a pod, but for some kinds."""
        for name, (selector, on_node) in self._weights.items():
            if name not in but and selector.matches(pod):
                yield name[0], on_node
