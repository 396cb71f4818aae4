"""What a pod may be the only one to have on its node: ports of the node, and its place away from others of its kind.

Both are sole devices (`gantree.model.jobs.SOLE`): every node has one of each, so the core keeps pods that need the same
one apart, counts those of others, and frees one by preemption, as with any device. That is exact for ports, but that
two pods on one port at different addresses of a node are kept apart too, and for pods that keep away from their own
kind by `kubernetes.io/hostname`. All other ways to keep away are in `affinity`.
"""

import re
from collections.abc import Iterator

from gantree.executors.kubernetes.apiserver.objects import Pod, PodSpec, PodTerm
from gantree.executors.kubernetes.apiserver.selectors import digest, matches, narrowed
from gantree.model.jobs import SOLE

HOSTNAME = "kubernetes.io/hostname"
_PORT = re.compile(rf"{SOLE}port/([0-9]+/[A-Za-z]+)")
_KIND = re.compile(rf"{SOLE}apart/[a-z0-9-]+/[0-9a-f]+")


def exclusive_devices(pod: Pod) -> tuple[str, ...]:
    """The sole devices that a pod takes of its node."""
    kinds = (exclusive_device_of(pod, term) for term in pod.spec.anti_affinity_terms)
    return tuple(dict.fromkeys((*_ports(pod.spec), *filter(None, kinds))))


def in_words(sentence: str) -> str:
    """A sentence of the core with its words for sole devices in those of Kubernetes."""
    sentence = _PORT.sub(r"host port \1", sentence)
    return _KIND.sub("node away from its own kind (podAntiAffinity)", sentence)


def exclusive_device_of(pod: Pod, term: PodTerm) -> str:
    """The sole device that says what a term says: off the nodes of its own kind, in its namespace; else ""."""
    home, labels = pod.metadata.namespace, pod.metadata.labels
    at_home = term.namespace_selector is None and set(term.namespaces) <= {home}
    if term.topology_key != HOSTNAME or not at_home or term.label_selector is None:
        return ""
    selector = narrowed(
        term.label_selector, labels, term.match_label_keys, term.mismatch_label_keys
    )
    return f"{SOLE}apart/{home}/{digest(selector)}" if matches(selector, labels) else ""


def _ports(spec: PodSpec) -> Iterator[str]:
    """Ports that containers take of the node; of a pod on the node's network, all that they name."""
    for container in (*spec.containers, *spec.init_containers):
        for port in container.ports:
            number = port.host_port or (port.container_port if spec.host_network else 0)
            if number:
                yield f"{SOLE}port/{number}/{port.protocol or 'TCP'}"
