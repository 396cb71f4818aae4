"""Pods that prefer something of their own kind, as replicas do that had rather be apart: what tells them from others.

They hold a device of that kind (`gantree.model.jobs.KIN`), of which every node has enough. So the core sees who is
there at the moment when it decides, however many pods of a kind come together.
"""

from gantree.executors.kubernetes.apiserver.objects import (
    LabelSelector,
    Pod,
    PodTerm,
    SpreadConstraint,
)
from gantree.executors.kubernetes.apiserver.selectors import digest, matches, narrowed
from gantree.executors.kubernetes.pods.templates import once_per_template
from gantree.model.jobs import KIN

ANYWAY = "ScheduleAnyway"


@once_per_template
def self_affinity_devices(pod: Pod) -> tuple[str, ...]:
    """The devices of those kinds of which a pod is, and of which it prefers something."""
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
    return f"{KIN}{'+'.join(sorted(namespaces))}/{digest(selector)}" if is_own else ""
