"""The weights of preferred pod affinity: preferred affinity and anti-affinity terms, spreads with ScheduleAnyway.

The core gets them as `gantree.model.jobs.PreferredMembers`. It counts pods that the job's own selector matches itself,
by a device of that selector (`pods.self_affinity`). Other pods that are matched, and running pods whose terms match
this pod, are counted once, when the gang is admitted. As in kube-scheduler both directions count: the preferred terms
of running pods too, and their required affinity with a weight of one. Members of a gang do not count each other, and
the first pod of a role stands for all of them.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from gantree.executors.kubernetes.apiserver.objects import Pod
from gantree.executors.kubernetes.constraints import spread
from gantree.executors.kubernetes.constraints.pod_index import PodIndex
from gantree.executors.kubernetes.constraints.preferred_affinity_index import Name
from gantree.executors.kubernetes.pods.pod_selectors import PodSelector
from gantree.executors.kubernetes.pods.self_affinity import (
    own_device_of_spread,
    own_device_of_term,
    spreads_of,
)
from gantree.model.jobs import PreferredMembers

BOTH_WAYS = 2
"""A pod that the job's own selector matches prefers the same of this one."""


def preferred_pod_affinity(index: PodIndex, pod: Pod) -> tuple[PreferredMembers, ...]:
    """Preferences of a pod about other pods, and of other pods about it, as they are now."""
    return (*_of_terms(index, pod), *_of_spreads(index, pod), *_of_others(index, pod))


def _of_terms(index: PodIndex, pod: Pod) -> Iterator[PreferredMembers]:
    for weight, term in pod.spec.preferred_pod_terms:
        key, own_device = term.topology_key, own_device_of_term(pod, term)
        there = _in_domains(
            index, key, index.counts_by_node(index.selector_of(term, pod, own_device))
        )
        yield PreferredMembers(key, own_device, weight * BOTH_WAYS if own_device else weight, there)


def _of_spreads(index: PodIndex, pod: Pod) -> Iterator[PreferredMembers]:
    for each in spreads_of(pod):
        own_device, selector = own_device_of_spread(pod, each), spread.selector_of(pod, each)
        others = PodSelector(
            selector.namespaces, selector.selector, own_device, selector.skip_terminating
        )
        there = _in_domains(index, each.topology_key, index.counts_by_node(others))
        yield PreferredMembers(each.topology_key, own_device, 1, there, spread=True)


def _of_others(index: PodIndex, pod: Pod) -> Iterator[PreferredMembers]:
    if not index.preferred_affinity.has_any:
        return
    own: set[Name] = {
        (term.topology_key, index.selector_of(term, pod).name)
        for _, term in pod.spec.preferred_pod_terms
        if own_device_of_term(pod, term)
    }
    for key, weight_on_node in index.preferred_affinity.weights_for(pod, own):
        yield PreferredMembers(key, "", 1, _in_domains(index, key, weight_on_node))


def _in_domains(
    index: PodIndex, key: str, on_node: Mapping[str, int]
) -> tuple[tuple[str, int], ...]:
    """Sums by the value of a label; nodes without it are in no domain."""
    sums: Counter[str] = Counter()
    for node, count in on_node.items():
        value = index.domain_of(node, key)
        if value is not None:
            sums[value] += count
    return tuple(sorted((value, count) for value, count in sums.items() if count))
