"""Topology spread constraints that must hold: in which domains one more pod may be, and whether a gang may be where it
was placed.

As upstream counts it: domains are the values of a label among nodes that the pod may use (by its selector and affinity
unless nodeAffinityPolicy is Ignore, by taints where nodeTaintsPolicy is Honor); the skew of a domain is what it would
have beyond the one that has least; with fewer domains than minDomains the least counts as none. Constraints that may
be broken (ScheduleAnyway) are in `company`. A gang is right if it is once all of it is there: its
pods can then be bound in an order in which each was right.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from gantree.executors.kubernetes.apiserver.objects import LabelSelector, Pod, SpreadConstraint
from gantree.executors.kubernetes.apiserver.selectors import narrowed
from gantree.executors.kubernetes.constraints.affinity import Placed, Why
from gantree.executors.kubernetes.constraints.pod_index import Scene
from gantree.executors.kubernetes.pods.pod_selectors import Kind
from gantree.executors.kubernetes.pods.shapes import labels_of
from gantree.model.node_rules import Requirement

MUST = "DoNotSchedule"


def constraints_of(pod: Pod) -> tuple[SpreadConstraint, ...]:
    """Those of a pod that must hold."""
    told = pod.spec.topology_spread_constraints
    return tuple(each for each in told if each.when_unsatisfiable == MUST and each.topology_key)


def kind_of(pod: Pod, constraint: SpreadConstraint) -> Kind:
    """The pods that a constraint counts."""
    if constraint.label_selector is None:
        return Kind(frozenset(), LabelSelector())
    labels, home = pod.metadata.labels, frozenset({pod.metadata.namespace})
    selector = narrowed(constraint.label_selector, labels, constraint.match_label_keys)
    return Kind(home, selector, stay=True)


def asked(scene: Scene, pod: Pod, of_its_kind: int) -> Iterator[Why]:
    """What nodes must be like for each of so many pods of a gang, as pods are now.

    That is what one of them needs if the others go where they help most; what they come to is looked at in the end.
    """
    for constraint in constraints_of(pod):
        counts = counted(scene, pod, constraint)
        least = _least(counts, constraint)
        own = int(kind_of(pod, constraint).has(pod))
        if not _are_too_few(counts, constraint):
            least = _raised(counts, least, (of_its_kind - 1) * own)
        fits = [
            name for name, count in counts.items() if count + own - least <= constraint.max_skew
        ]
        yield (
            Requirement(constraint.topology_key, "in", tuple(sorted(fits))),
            f"topologySpreadConstraints allow a skew of {constraint.max_skew} over {constraint.topology_key}",
        )


def _raised(counts: Mapping[str, int], least: int, more: int) -> int:
    """How many the domain with least could have if so many more pods went where there are least."""
    while counts and sum(max(0, least + 1 - count) for count in counts.values()) <= more:
        least += 1
    return least


def objections(scene: Scene, placed: Placed) -> Iterator[str]:
    """Why pods of a gang may not be where they were placed; all of them are on the scene already."""
    known: dict[str, Counter[str]] = {}
    for pod, node in placed:
        for constraint in constraints_of(pod):
            key = repr((constraint, kind_of(pod, constraint).name, *labels_of(pod.spec)))
            if key not in known:
                known[key] = counted(scene, pod, constraint)
            counts, domain = known[key], scene.domain(node, constraint.topology_key)
            if domain is None or counts[domain] - _least(counts, constraint) > constraint.max_skew:
                yield (
                    f"{pod.metadata.name} would be in {constraint.topology_key}={domain}, which has more than "
                    f"{constraint.max_skew} beyond another (topologySpreadConstraints)"
                )


def counted(scene: Scene, pod: Pod, constraint: SpreadConstraint) -> Counter[str]:
    """How many pods that count are in each domain that does."""
    domain_of_node = scene.domains_for(
        tuple(labels_of(pod.spec)),
        constraint.topology_key,
        by_affinity=constraint.node_affinity_policy == "Honor",
        by_taints=constraint.node_taints_policy == "Honor",
    )
    counts = Counter(dict.fromkeys(domain_of_node.values(), 0))
    for node, count in scene.census(kind_of(pod, constraint)).items():
        if node in domain_of_node:
            counts[domain_of_node[node]] += count
    return counts


def _least(counts: Mapping[str, int], constraint: SpreadConstraint) -> int:
    """How many there are where there are least; none where there are too few domains."""
    return 0 if _are_too_few(counts, constraint) else min(counts.values(), default=0)


def _are_too_few(counts: Mapping[str, int], constraint: SpreadConstraint) -> bool:
    return constraint.min_domains is not None and len(counts) < constraint.min_domains
