"""Topology spread constraints that must hold: in which domains one more pod may be, and whether a gang may be where it
was placed.

As upstream counts it: domains are the values of a label among nodes that the pod may use (by its selector and affinity
unless nodeAffinityPolicy is Ignore, by taints where nodeTaintsPolicy is Honor); the skew of a domain is what it would
have beyond the one that has least; with fewer domains than minDomains the least counts as none. Constraints that may
be broken (ScheduleAnyway) are in `preferred_pod_affinity`. A gang satisfies a constraint if it does once all its pods
are counted: they can then be bound in an order in which each pod satisfies it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from gantree.executors.kubernetes.apiserver.objects import LabelSelector, Pod, SpreadConstraint
from gantree.executors.kubernetes.apiserver.selectors import narrowed
from gantree.executors.kubernetes.constraints.affinity import NodeConstraint, Placed
from gantree.executors.kubernetes.constraints.pod_index import PodIndex
from gantree.executors.kubernetes.pods.pod_selectors import PodSelector
from gantree.executors.kubernetes.pods.shapes import labels_of
from gantree.model.node_rules import Requirement

MUST = "DoNotSchedule"


def constraints_of(pod: Pod) -> tuple[SpreadConstraint, ...]:
    """Those of a pod that must hold."""
    told = pod.spec.topology_spread_constraints
    return tuple(each for each in told if each.when_unsatisfiable == MUST and each.topology_key)


def selector_of(pod: Pod, constraint: SpreadConstraint) -> PodSelector:
    """The pods that a constraint counts."""
    if constraint.label_selector is None:
        return PodSelector(frozenset(), LabelSelector())
    labels, home = pod.metadata.labels, frozenset({pod.metadata.namespace})
    selector = narrowed(constraint.label_selector, labels, constraint.match_label_keys)
    return PodSelector(home, selector, skip_terminating=True)


def requirements(index: PodIndex, pod: Pod, members: int) -> Iterator[NodeConstraint]:
    """The requirements on nodes for each of so many pods of a gang, with the present pods.

    They hold for one pod if the others go where they help most; `objections` checks all of them together.
    """
    for constraint in constraints_of(pod):
        counts = counted(index, pod, constraint)
        least = _least(counts, constraint)
        own = int(selector_of(pod, constraint).matches(pod))
        if not _are_too_few(counts, constraint):
            least = _raised(counts, least, (members - 1) * own)
        fits = [
            name for name, count in counts.items() if count + own - least <= constraint.max_skew
        ]
        yield (
            Requirement(constraint.topology_key, "in", tuple(sorted(fits))),
            f"topologySpreadConstraints allow a skew of {constraint.max_skew} over {constraint.topology_key}",
        )


def room(index: PodIndex, pod: Pod, constraint: SpreadConstraint) -> int:
    """How many more pods may be in each domain where one may be, whatever becomes of the others; at least one."""
    counts = counted(index, pod, constraint)
    most = _least(counts, constraint) + constraint.max_skew
    return min((most - count for count in counts.values() if count < most), default=1)


def _raised(counts: Mapping[str, int], least: int, more: int) -> int:
    """How many the domain with least could have if so many more pods went where there are least."""
    while counts and sum(max(0, least + 1 - count) for count in counts.values()) <= more:
        least += 1
    return least


def objections(index: PodIndex, placed: Placed) -> Iterator[str]:
    """Why pods of a gang may not be where they were placed; all of them are in the index already."""
    known: dict[str, Counter[str]] = {}
    for pod, node in placed:
        for constraint in constraints_of(pod):
            key = repr((constraint, selector_of(pod, constraint).name, *labels_of(pod.spec)))
            if key not in known:
                known[key] = counted(index, pod, constraint)
            counts, domain = known[key], index.domain_of(node, constraint.topology_key)
            if domain is None or counts[domain] - _least(counts, constraint) > constraint.max_skew:
                yield (
                    f"{pod.metadata.name} would be in {constraint.topology_key}={domain}, which has more than "
                    f"{constraint.max_skew} beyond another (topologySpreadConstraints)"
                )


def counted(index: PodIndex, pod: Pod, constraint: SpreadConstraint) -> Counter[str]:
    """How many matching pods are in each eligible domain."""
    domain_of_node = index.eligible_domains(
        tuple(labels_of(pod.spec)),
        constraint.topology_key,
        by_affinity=constraint.node_affinity_policy == "Honor",
        by_taints=constraint.node_taints_policy == "Honor",
    )
    counts = Counter(dict.fromkeys(domain_of_node.values(), 0))
    for node, count in index.counts_by_node(selector_of(pod, constraint)).items():
        if node in domain_of_node:
            counts[domain_of_node[node]] += count
    return counts


def _least(counts: Mapping[str, int], constraint: SpreadConstraint) -> int:
    """How many there are where there are least; none where there are too few domains."""
    return 0 if _are_too_few(counts, constraint) else min(counts.values(), default=0)


def _are_too_few(counts: Mapping[str, int], constraint: SpreadConstraint) -> bool:
    return constraint.min_domains is not None and len(counts) < constraint.min_domains
