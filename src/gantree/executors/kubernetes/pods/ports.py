"""Host ports, and anti-affinity of pods to their own kind by host name: devices of which every node has one.

Both are device names with `gantree.model.jobs.ONE_PER_NODE_PREFIX`, so the core never places two pods that need the
same one on a node, counts those of foreign pods, and frees one by preemption. This is exact for anti-affinity by
`kubernetes.io/hostname`. For ports it is stricter than Kubernetes where two pods use one port at different addresses.
All other anti-affinity is in `affinity`.
"""

import re
from collections.abc import Iterator

from gantree.executors.kubernetes.apiserver.objects import Pod, PodSpec, PodTerm
from gantree.executors.kubernetes.apiserver.selectors import digest, matches, narrowed
from gantree.model.jobs import ONE_PER_NODE_PREFIX

HOSTNAME = "kubernetes.io/hostname"
_PORT = re.compile(rf"{ONE_PER_NODE_PREFIX}port/([0-9]+/[A-Za-z]+)")
_EVERY = "*"
_KIND = re.compile(rf"{ONE_PER_NODE_PREFIX}apart/[a-z0-9+*-]+/[0-9a-f]+")


def exclusive_devices(pod: Pod) -> tuple[str, ...]:
    """The sole devices that a pod takes of its node."""
    kinds = (exclusive_device_of(pod, term) for term in pod.spec.anti_affinity_terms)
    return tuple(dict.fromkeys((*_ports(pod.spec), *filter(None, kinds))))


def in_words(sentence: str) -> str:
    """A sentence of the core with its words for sole devices in those of Kubernetes."""
    sentence = _PORT.sub(r"host port \1", sentence)
    return _KIND.sub("node away from its own kind (podAntiAffinity)", sentence)


def exclusive_device_of(pod: Pod, term: PodTerm) -> str:
    """The sole device that says what a term says: off the nodes of its own kind; else "".

    Not where namespaces are selected by their labels, which may change.
    """
    spaces, labels = _namespaces(pod, term), pod.metadata.labels
    if term.topology_key != HOSTNAME or not spaces or term.label_selector is None:
        return ""
    selector = narrowed(
        term.label_selector, labels, term.match_label_keys, term.mismatch_label_keys
    )
    return (
        f"{ONE_PER_NODE_PREFIX}apart/{spaces}/{digest(selector)}"
        if matches(selector, labels)
        else ""
    )


def _namespaces(pod: Pod, term: PodTerm) -> str:
    """The namespaces of a term, if the pod's own is one of them; else ""."""
    chosen, home = term.namespace_selector, pod.metadata.namespace
    if chosen is None:
        named = term.namespaces or (home,)
        return "+".join(sorted(set(named))) if home in named else ""
    return "" if chosen.match_labels or chosen.match_expressions else _EVERY


def _ports(spec: PodSpec) -> Iterator[str]:
    """Ports that containers take of the node; of a pod on the node's network, all that they name."""
    for container in (*spec.containers, *spec.init_containers):
        for port in container.ports:
            number = port.host_port or (port.container_port if spec.host_network else 0)
            if number:
                yield f"{ONE_PER_NODE_PREFIX}port/{number}/{port.protocol or 'TCP'}"
