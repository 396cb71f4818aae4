"""Preferred pod affinity and soft spread that match the pod itself, as of replicas: counted by the core.

Each holds a device for its selector (`gantree.model.jobs.COUNTER_PREFIX`), of which every node has enough. So the core
counts the pods that are placed at the moment of its decision, however many are decided about together.
"""

from gantree.executors.kubernetes.apiserver.objects import (
    LabelSelector,
    Pod,
    PodTerm,
    SpreadConstraint,
)
from gantree.executors.kubernetes.apiserver.selectors import digest, matches, narrowed
from gantree.executors.kubernetes.pods.templates import once_per_template
from gantree.model.jobs import COUNTER_PREFIX

ANYWAY = "ScheduleAnyway"


@once_per_template
def self_affinity_devices(pod: Pod) -> tuple[str, ...]:
    """The devices for the selectors of a pod's preferences that match the pod itself."""
    of_terms = (own_device_of_term(pod, term) for _, term in pod.spec.preferred_pod_terms)
    of_spreads = (own_device_of_spread(pod, each) for each in spreads_of(pod))
    return tuple(dict.fromkeys(filter(None, (*of_terms, *of_spreads))))


def spreads_of(pod: Pod) -> tuple[SpreadConstraint, ...]:
    """The spreads of a pod that may be broken."""
    told = pod.spec.topology_spread_constraints
    return tuple(each for each in told if each.when_unsatisfiable == ANYWAY and each.topology_key)


def own_device_of_term(pod: Pod, term: PodTerm) -> str:
    """The device of the pods that a term is about, if its own pod is one of them; else ""."""
    if term.label_selector is None or term.namespace_selector is not None:
        return ""
    keys = (term.match_label_keys, term.mismatch_label_keys)
    selector = narrowed(term.label_selector, pod.metadata.labels, *keys)
    return _own_device(pod, term.namespaces or (pod.metadata.namespace,), selector)


def own_device_of_spread(pod: Pod, constraint: SpreadConstraint) -> str:
    """The device of the pods that a spread counts, if its own pod is one of them; else ""."""
    if constraint.label_selector is None:
        return ""
    labels = pod.metadata.labels
    selector = narrowed(constraint.label_selector, labels, constraint.match_label_keys)
    return _own_device(pod, (pod.metadata.namespace,), selector)


def _own_device(pod: Pod, namespaces: tuple[str, ...], selector: LabelSelector) -> str:
    is_own = pod.metadata.namespace in namespaces and matches(selector, pod.metadata.labels)
    return f"{COUNTER_PREFIX}{'+'.join(sorted(namespaces))}/{digest(selector)}" if is_own else ""
