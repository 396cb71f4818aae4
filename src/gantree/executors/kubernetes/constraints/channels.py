"""IMEX channels: the device of NVIDIA's DRA driver that pods need to use NVLink across nodes.

A `ComputeDomain` stands for the nodes of one workload. Its controller makes a template of claims for a channel; a
claim names its domain in the configuration for the driver (`domainID`). Upstream's kubelet plugin
(`cmd/compute-domain-kubelet-plugin`) says what else a scheduler must know:

- a node has one channel to give out, `channel-0`, in one pool with `daemon-0` (`driver.go`): so one pod of a node has
  a channel at a time, and a node is of one ComputeDomain at a time;
- the node gets the label of its domain when the plugin prepares a claim, so once the pod is bound, and the domain's
  daemon comes to the node by that label (`AddNodeLabel`): whoever waits for daemons before he binds waits for ever;
- daemons have claims of their own, which the default scheduler allocates, as it places all pods of DaemonSets.

What connects GPUs of several nodes is the NVLink domain alone: pods of one ComputeDomain in several of them would be
started all the same, and would not reach each other's memory. So they are kept in one, unless they say what they want.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from gantree.executors.kubernetes.apiserver.device_objects import ResourceClaim
from gantree.executors.kubernetes.apiserver.objects import Node, Pod
from gantree.executors.kubernetes.constraints.affinity import NodeConstraint
from gantree.executors.kubernetes.constraints.gang_constraints import role_of
from gantree.executors.kubernetes.constraints.pod_index import PodIndex
from gantree.executors.kubernetes.nodes.site import SiteReading
from gantree.executors.kubernetes.pods.gang_spec import GroupKind
from gantree.executors.kubernetes.pods.shapes import OF_COMPUTE_DOMAINS
from gantree.executors.kubernetes.workloads.gangs import Gang
from gantree.model.jobs import Job, Role, TopologySpec
from gantree.model.node_rules import NAME_KEY, Requirement

COMPUTE_DOMAIN = GroupKind("resource.nvidia.com", "computedomains", ("v1beta2", "v1beta1"))
DRIVER = "compute-domain.nvidia.com"
CHANNEL_CLASS = "compute-domain-default-channel.nvidia.com"
DAEMON_CLASS = "compute-domain-daemon.nvidia.com"
CHANNEL_CONFIG = "ComputeDomainChannelConfig"
NVLINK = "nvlink"


def domains_in(claims: Iterable[ResourceClaim]) -> tuple[str, ...]:
    """The ComputeDomains, by uid, of which claims ask for a channel."""
    found = (domain for claim in claims for domain in _domains(claim.spec.devices.config))
    return tuple(dict.fromkeys(found))


def _domains(config: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for each in config:
        opaque = each.get("opaque")
        told = opaque.get("parameters") if isinstance(opaque, Mapping) else None
        if isinstance(told, Mapping) and told.get("kind") == CHANNEL_CONFIG:
            domain = told.get("domainID")
            if isinstance(domain, str) and domain:
                yield domain


def is_of_daemon(claim: ResourceClaim) -> bool:
    """Whether a claim is that of a ComputeDomain's daemon: others allocate it, and nothing of ours is like it."""
    asked = (each.exactly for each in claim.spec.devices.requests)
    return any(each is not None and each.device_class_name == DAEMON_CLASS for each in asked)


def unmarked(node: Node | None) -> Node | None:
    """A node without the labels of ComputeDomains: they come and go with every gang, and tell nothing of the site."""
    if node is None or not any(key in node.metadata.labels for key in OF_COMPUTE_DOMAINS):
        return node
    told = node.metadata.labels.items()
    labels = {key: value for key, value in told if key not in OF_COMPUTE_DOMAINS}
    return msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, labels=labels))  # fmt: skip


def is_led_by_domain(pod: Pod) -> bool:
    """Return whether a pod selects the nodes of a ComputeDomain, as its daemons do, which gantree may schedule."""
    return any(key in pod.spec.node_selector for key in OF_COMPUTE_DOMAINS)


def requirements(index: PodIndex, pod: Pod) -> Iterator[NodeConstraint]:
    """What nodes must be like for such a pod now: those that have the labels."""
    told = pod.spec.node_selector.items()
    wanted = {key: value for key, value in told if key in OF_COMPUTE_DOMAINS}.items()
    if wanted:
        there = (name for name, node in index.nodes.items() if wanted <= node.metadata.labels.items())  # fmt: skip
        names = tuple(sorted(there))
        yield Requirement(NAME_KEY, "in", names), "nodes of its ComputeDomain are elsewhere"


def has_wide_nvlink(site: SiteReading) -> bool:
    """Whether an NVLink domain of the site holds several nodes."""
    tiers = site.cluster.tiers
    if NVLINK not in tiers:
        return False
    depth = tiers.index(NVLINK) + 1
    return len({node.at[:depth] for node in site.cluster.nodes}) < len(site.cluster.nodes)


def together(job: Job, gang: Gang, site: SiteReading) -> Job:
    """A job with the members that have channels of one ComputeDomain in one NVLink domain.

    As it is where it asks for something of the topology itself, and on a site whose NVLink domains are inside nodes.
    Members without a channel go along where several roles have the only domain there is: no word asks for less.
    """
    roles_of = _roles_of_domain(gang) if len(gang.pods) > 1 else {}
    if not roles_of or not has_wide_nvlink(site) or _asks_itself(job):
        return job
    (first, *others) = roles_of.values()
    if not others and (len(first) > 1 or len(gang.roles) == 1):
        return replace(job, topology=replace(job.topology, required=NVLINK))
    has_channel = {name for names in (first, *others) for name in names}
    return replace(job, roles=tuple(_kept(role, has_channel) for role in job.roles))


def _roles_of_domain(gang: Gang) -> dict[tuple[str, ...], list[str]]:
    """The roles whose pods have channels, by domain."""
    found: dict[tuple[str, ...], list[str]] = {}
    for role, pods in gang.roles:
        domains = dict.fromkeys(d for pod in pods if pod.claimed for d in pod.claimed.domains)
        if domains:
            found.setdefault(tuple(domains), []).append(role.name)
    return found


def _kept(role: Role, has_channel: set[str]) -> Role:
    if role_of(role.name) not in has_channel:
        return role
    return replace(role, topology=replace(role.topology, required=NVLINK))


def _asks_itself(job: Job) -> bool:
    return any(map(_asks, (job.topology, *(role.topology for role in job.roles))))


def _asks(topology: TopologySpec) -> bool:
    """Whether a topology request restricts members; preferences alone do not."""
    return replace(topology, likes=()) != TopologySpec()
