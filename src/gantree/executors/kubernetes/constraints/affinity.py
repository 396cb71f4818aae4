"""Pods that must be near to other pods, or away from them: on which nodes one may be as things are, and whether a
gang may be where it was placed.

Both directions count for keeping away: what the pod says, and what pods say that are there already. Who must be near
to its own kind, of which there is nobody yet, may be the first anywhere in a domain. What a term says of pods of the
gang itself is looked at once all have a place.
"""

from collections.abc import Iterable, Iterator, Sequence

from gantree.executors.kubernetes.apiserver.objects import Pod, PodTerm
from gantree.executors.kubernetes.constraints.pod_index import Scene
from gantree.model.node_rules import Requirement

Placed = Sequence[tuple[Pod, str]]
"""Pods of a gang, each with its node."""
Why = tuple[Requirement, str]
"""What nodes must be like, and the end of a sentence that says why."""


def asked(scene: Scene, pod: Pod) -> Iterator[Why]:
    """What nodes must be like for a pod, as pods are now."""
    for term in pod.spec.keeps_from:
        taken = scene.in_domain(scene.kind(term, pod), term.topology_key)
        if taken:
            yield _not_in(term.topology_key, taken), "pods that it keeps away from are there"
    for key, domains in scene.kept_away(pod).items():
        yield _not_in(key, domains), "pods are there that keep it away"
    for term in pod.spec.keeps_to:
        yield _near(scene, pod, term)


def _near(scene: Scene, pod: Pod, term: PodTerm) -> Why:
    kind, key = scene.kind(term, pod), term.topology_key
    if not scene.census(kind) and kind.has(pod):
        return Requirement(key, "exists"), f"it needs a node with the label {key}"
    there = scene.in_domain(kind, key)
    return Requirement(key, "in", tuple(sorted(there))), "the pods it must be near to are elsewhere"


def _not_in(key: str, domains: Iterable[str]) -> Requirement:
    return Requirement(key, "notin", tuple(sorted(domains)))


def objections(scene: Scene, placed: Placed) -> Iterator[str]:
    """Why pods of a gang may not be where they were placed; all of them are on the scene already."""
    for pod, node in placed:
        yield from _away(scene, pod, node)
        for term in pod.spec.keeps_to:
            domain = scene.domain(node, term.topology_key)
            near = scene.in_domain(scene.kind(term, pod), term.topology_key)
            if domain is None or not near[domain]:
                yield f"{pod.metadata.name} would not be near to the pods it must be near to"


def _away(scene: Scene, pod: Pod, node: str) -> Iterator[str]:
    for term in pod.spec.keeps_from:
        kind, key = scene.kind(term, pod), term.topology_key
        domain = scene.domain(node, key)
        if domain is not None and scene.in_domain(kind, key)[domain] > kind.has(pod):
            yield f"{pod.metadata.name} would be with pods that it keeps away from, in {key}={domain}"
    own = {term.topology_key for term in pod.spec.keeps_from}
    for key, domains in scene.kept_away(pod).items():
        if key not in own and scene.domain(node, key) in domains:
            yield f"{pod.metadata.name} would be with pods that keep it away, in {key}"
