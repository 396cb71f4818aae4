"""Index of the preferences of bound pods about other pods: preferred affinity and anti-affinity, with weights."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from gantree.executors.kubernetes.apiserver.objects import Pod
from gantree.executors.kubernetes.pods.pod_selectors import PodSelector

Name = tuple[str, str]
"""A topology key, and the name of a selector."""


class PreferredAffinityIndex:
    """Weights by topology key, selector and node; negative for anti-affinity."""

    def __init__(self) -> None:
        self._weights: dict[Name, tuple[PodSelector, Counter[str]]] = {}

    def add(self, key: str, selector: PodSelector, node: str, weight: int) -> None:
        """Add a weight on a node; a negative one removes it."""
        _, on_node = self._weights.setdefault((key, selector.name), (selector, Counter()))
        on_node[node] += weight
        if not on_node[node]:
            del on_node[node]
        if not on_node:
            del self._weights[key, selector.name]

    def clear(self) -> None:
        """Remove all preferences."""
        self._weights.clear()

    @property
    def has_any(self) -> bool:
        """Whether any bound pod has preferences."""
        return bool(self._weights)

    def weights_for(
        self, pod: Pod, but: Collection[Name]
    ) -> Iterator[tuple[str, Mapping[str, int]]]:
        """(topology key, weight by node) of the preferences that match a pod, except some."""
        for name, (selector, on_node) in self._weights.items():
            if name not in but and selector.matches(pod):
                yield name[0], on_node
