"""Required pod affinity and anti-affinity: the nodes on which a pod may run now, and a check of placed gangs.

Anti-affinity counts in both directions: of the pod, and of bound pods. A pod with affinity to pods like itself may be
the first of them in any domain. Terms that match pods of the gang itself are checked once all are placed.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

from gantree.executors.kubernetes.apiserver.objects import Pod, PodTerm
from gantree.executors.kubernetes.constraints.pod_index import PodIndex
from gantree.model.node_rules import Requirement

Placed = Sequence[tuple[Pod, str]]
"""Pods of a gang, each with its node."""
NodeConstraint = tuple[Requirement, str]
"""A requirement on nodes, and the end of a sentence that gives the reason."""


def requirements(index: PodIndex, pod: Pod) -> Iterator[NodeConstraint]:
    """The requirements on nodes for a pod, with the present pods."""
    for term in pod.spec.anti_affinity_terms:
        taken = index.counts_in_domains(index.selector_of(term, pod), term.topology_key)
        if taken:
            yield _not_in(term.topology_key, taken), "pods that it keeps away from are there"
    for key, domains in index.forbidden_domains(pod).items():
        yield _not_in(key, domains), "pods are there that keep it away"
    for term in pod.spec.affinity_terms:
        yield _near(index, pod, term)


def _near(index: PodIndex, pod: Pod, term: PodTerm) -> NodeConstraint:
    selector, key = index.selector_of(term, pod), term.topology_key
    if not index.counts_by_node(selector) and selector.matches(pod):
        return Requirement(key, "exists"), f"it needs a node with the label {key}"
    there = index.counts_in_domains(selector, key)
    return Requirement(key, "in", tuple(sorted(there))), "the pods it must be near to are elsewhere"


def _not_in(key: str, domains: Iterable[str]) -> Requirement:
    return Requirement(key, "notin", tuple(sorted(domains)))


def objections(index: PodIndex, placed: Placed) -> Iterator[str]:
    """Why pods of a gang may not be where they were placed; all of them are in the index already."""
    for pod, node in placed:
        yield from _away(index, pod, node)
        for term in pod.spec.affinity_terms:
            domain = index.domain_of(node, term.topology_key)
            if domain is None or domain not in _near_domains(index, placed, pod, term):
                yield f"{pod.metadata.name} would not be near to the pods it must be near to"


def _near_domains(index: PodIndex, placed: Placed, pod: Pod, term: PodTerm) -> Collection[str]:
    """The domains that a term of a placed pod allows: one alone for pods that are the first of their kind."""
    selector, key = index.selector_of(term, pod), term.topology_key
    near = index.counts_in_domains(selector, key)
    if not selector.matches(pod):
        return near
    own = (index.domain_of(node, key) for other, node in placed if selector.matches(other))
    counts = Counter(each for each in own if each is not None)
    before = near - counts
    return before or list(counts)[:1]


def _away(index: PodIndex, pod: Pod, node: str) -> Iterator[str]:
    for term in pod.spec.anti_affinity_terms:
        selector, key = index.selector_of(term, pod), term.topology_key
        domain = index.domain_of(node, key)
        if domain is not None and index.counts_in_domains(selector, key)[domain] > selector.matches(
            pod
        ):
            yield f"{pod.metadata.name} would be with pods that it keeps away from, in {key}={domain}"
    own = {term.topology_key for term in pod.spec.anti_affinity_terms}
    for key, domains in index.forbidden_domains(pod).items():
        if key not in own and index.domain_of(node, key) in domains:
            yield f"{pod.metadata.name} would be with pods that keep it away, in {key}"
