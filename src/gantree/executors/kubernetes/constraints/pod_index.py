"""Index of bound pods, nodes and namespaces, for the evaluation of constraints between pods.

Counts of pods that match a selector are made once, by node, and kept up to date while they are used. A domain is all
nodes with one value of a label (`topologyKey`); nodes without the label are in none. Pods that are about to be bound
count as bound.
"""

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from gantree.executors.kubernetes.apiserver.objects import LabelSelector, Node, Pod, PodTerm
from gantree.executors.kubernetes.apiserver.selectors import matches, narrowed
from gantree.executors.kubernetes.constraints.preferred_affinity_index import PreferredAffinityIndex
from gantree.executors.kubernetes.pods.pod_selectors import PodSelector
from gantree.executors.kubernetes.pods.ports import exclusive_device_of
from gantree.executors.kubernetes.pods.shapes import matches_labels, tolerates_taints

COUNTS_KEPT = 512
"""Of these the least recently used go first."""
OF_REQUIRED = 1
"""The weight of required affinity of a running pod (hardPodAffinityWeight)."""


@dataclass(slots=True)
class SelectorCount:
    """How many pods that a selector matches are on each node."""

    selector: PodSelector
    pods_on_node: Counter[str] = field(default_factory=Counter)

    def add(self, pod: Pod, node: str, sign: int) -> None:
        """A pod comes to a node (+1) or leaves it (-1)."""
        if self.selector.matches(pod):
            self.pods_on_node[node] += sign
            if not self.pods_on_node[node]:
                del self.pods_on_node[node]


class PodIndex:
    """Nodes, namespaces and bound pods.

    version grows with every change that can affect a constraint, anti_affinity_version with changes of anti-affinity of
    bound pods, which can affect any pod, nodes_version with changes of nodes.
    """

    def __init__(self) -> None:
        self.version = self.anti_affinity_version = self.nodes_version = 0
        self._eligible_domains: dict[Hashable, dict[str, str]] = {}
        self._domains_of_anti_affinity: dict[tuple[str, str], frozenset[str]] = {}
        self._counts_in_domains: dict[tuple[str, str], tuple[int, Counter[str]]] = {}
        self.nodes: dict[str, Node] = {}
        self._labels_of_namespace: dict[str, Mapping[str, str]] = {}
        self._placed: dict[str, tuple[Pod, str]] = {}
        self._counts: dict[str, SelectorCount] = {}
        self._anti_affinity: dict[tuple[str, str], tuple[PodSelector, Counter[str]]] = {}
        self.preferred_affinity = PreferredAffinityIndex()

    def update_node(self, name: str, node: Node | None) -> None:
        """A node was added or has changed; None: it is gone."""
        before = self.nodes.get(name)
        if node is None:
            self.nodes.pop(name, None)
        else:
            self.nodes[name] = node
        if node is None or before is None or _told(before) != _told(node):
            self._eligible_domains.clear()
            self._domains_of_anti_affinity.clear()
            self.version += 1
            self.nodes_version += 1

    def update_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        """A namespace has these labels; None: it is gone. Namespace selectors may match others by that."""
        if labels is None:
            self._labels_of_namespace.pop(name, None)
        else:
            self._labels_of_namespace[name] = labels
        self._anti_affinity.clear()
        self._domains_of_anti_affinity.clear()
        self.preferred_affinity.clear()
        for pod, node in self._placed.values():
            self._index_anti_affinity(pod, node, 1)
            self._index_preferences(pod, node, 1)
        self.version += 1

    def place(self, pod: Pod, node: str) -> None:
        """A pod is on a node, or about to be."""
        uid = pod.metadata.uid
        before = self._placed.get(uid)
        if before is not None and before[1] == node and _same(before[0], pod):
            self._placed[uid] = (pod, node)
            return
        self.remove(uid)
        self._placed[uid] = (pod, node)
        self._index_anti_affinity(pod, node, 1)
        self._index_preferences(pod, node, 1)
        for counts in self._counts.values():
            counts.add(pod, node, 1)
        self.version += 1

    def remove(self, uid: str) -> None:
        """A pod is no longer bound."""
        found = self._placed.pop(uid, None)
        if found is None:
            return
        self._index_anti_affinity(*found, -1)
        self._index_preferences(*found, -1)
        for counts in self._counts.values():
            counts.add(*found, -1)
        self.version += 1

    # ----- queries

    def selector_of(self, term: PodTerm, pod: Pod, counted_by: str = "") -> PodSelector:
        """The selector of an affinity term of a pod, without pods that hold a device by which the core counts them."""
        labels = pod.metadata.labels
        selector = term.label_selector
        if selector is None:
            return PodSelector(frozenset(), LabelSelector())
        found = narrowed(selector, labels, term.match_label_keys, term.mismatch_label_keys)
        counted_by = counted_by or (
            exclusive_device_of(pod, term) if term in pod.spec.anti_affinity_terms else ""
        )
        return PodSelector(self._namespaces(term, pod.metadata.namespace), found, counted_by)

    def counts_by_node(self, selector: PodSelector) -> Mapping[str, int]:
        """How many matching pods are on each node that has any."""
        name = selector.name
        found = self._counts.pop(name, None)
        if found is None:
            found = SelectorCount(selector)
            for pod, node in self._placed.values():
                found.add(pod, node, 1)
        self._counts[name] = found
        if len(self._counts) > COUNTS_KEPT:
            del self._counts[next(iter(self._counts))]
        return found.pods_on_node

    def counts_in_domains(self, selector: PodSelector, key: str) -> Counter[str]:
        """How many matching pods are in each domain that has any."""
        name = (selector.name, key)
        version, found = self._counts_in_domains.get(name, (-1, Counter()))
        if version == self.version:
            return found
        found = Counter()
        for node, count in self.counts_by_node(selector).items():
            value = self.domain_of(node, key)
            if value is not None:
                found[value] += count
        if len(self._counts_in_domains) >= COUNTS_KEPT:
            self._counts_in_domains.clear()
        self._counts_in_domains[name] = (self.version, found)
        return found

    def eligible_domains(
        self,
        asked: tuple[tuple[str, str], ...],
        key: str,
        *,
        by_affinity: bool,
        by_taints: bool,
    ) -> Mapping[str, str]:
        """The domain of each node that has one, of nodes that match labels and whose taints are tolerated."""
        name = (asked, key, by_affinity, by_taints)
        found = self._eligible_domains.get(name)
        if found is None:
            rules = dict(asked)
            found = {
                node.metadata.name: node.metadata.labels[key]
                for node in self.nodes.values()
                if key in node.metadata.labels
                and (not by_affinity or matches_labels(rules, node))
                and (not by_taints or tolerates_taints(rules, node))
            }
            if len(self._eligible_domains) >= COUNTS_KEPT:
                self._eligible_domains.clear()
            self._eligible_domains[name] = found
        return found

    def domain_of(self, node: str, key: str) -> str | None:
        """The domain that a node is in, if any."""
        known = self.nodes.get(node)
        return None if known is None else known.metadata.labels.get(key)

    @property
    def has_anti_affinity(self) -> bool:
        """Whether any bound pod has anti-affinity."""
        return bool(self._anti_affinity)

    def forbidden_domains(self, pod: Pod) -> dict[str, set[str]]:
        """Domains that anti-affinity of bound pods forbids to a pod, by label key."""
        found: dict[str, set[str]] = {}
        for (key, _), (selector, on_node) in self._anti_affinity.items():
            if selector.matches(pod):
                found.setdefault(key, set()).update(self._kept(key, selector, on_node))
        return {key: domains for key, domains in found.items() if domains}

    def _kept(self, key: str, selector: PodSelector, on_node: Mapping[str, int]) -> frozenset[str]:
        """The domains of bound pods with anti-affinity to what a selector matches."""
        name = (key, selector.name)
        if name not in self._domains_of_anti_affinity:
            domains = (self.domain_of(node, key) for node in on_node)
            self._domains_of_anti_affinity[name] = frozenset(
                each for each in domains if each is not None
            )
        return self._domains_of_anti_affinity[name]

    def _index_anti_affinity(self, pod: Pod, node: str, sign: int) -> None:
        """Add (+1) or remove (-1) the anti-affinity of a pod."""
        if pod.spec.affinity is None:
            return
        for term in pod.spec.anti_affinity_terms:
            selector = self.selector_of(term, pod)
            name = (term.topology_key, selector.name)
            _, on_node = self._anti_affinity.setdefault(name, (selector, Counter()))
            on_node[node] += sign
            if not on_node[node]:
                del on_node[node]
            if not on_node:
                del self._anti_affinity[name]
            self._domains_of_anti_affinity.pop(name, None)
            self.anti_affinity_version += 1

    def _index_preferences(self, pod: Pod, node: str, sign: int) -> None:
        """Add (+1) or remove (-1) the preferences of a pod."""
        if pod.spec.affinity is None:
            return
        for weight, term in pod.spec.preferred_pod_terms:
            self.preferred_affinity.add(
                term.topology_key, self.selector_of(term, pod), node, sign * weight
            )
        for term in pod.spec.affinity_terms:
            self.preferred_affinity.add(
                term.topology_key, self.selector_of(term, pod), node, sign * OF_REQUIRED
            )

    def _namespaces(self, term: PodTerm, home: str) -> frozenset[str] | None:
        """Namespaces of a term: those it names and selects; its pod's own if it does neither."""
        chosen = term.namespace_selector
        if chosen is None:
            return frozenset(term.namespaces or (home,))
        if not chosen.match_labels and not chosen.match_expressions:
            return None
        selected = (
            name for name, labels in self._labels_of_namespace.items() if matches(chosen, labels)
        )
        return frozenset((*term.namespaces, *selected))


def _told(node: Node) -> object:
    """The fields of a node that matter to constraints."""
    return node.metadata.labels, node.spec.unschedulable, node.spec.taints


def _same(before: Pod, after: Pod) -> bool:
    """Whether a pod is counted as it was before."""
    was, now = before.metadata, after.metadata
    is_leaving = now.deletion_timestamp is not None
    return was.labels == now.labels and is_leaving == (was.deletion_timestamp is not None)
