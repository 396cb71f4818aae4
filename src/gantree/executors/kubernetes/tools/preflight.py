"""Preflight: what keeps gangs on a cluster from running, or from running fast; findings, each with a fix.

Pure: a survey in, findings out. A problem is what makes jobs fail or keeps gantree from its work; a warning is what may
be meant so. What no API tells (memlock limits of the container runtime, whether a kernel module is loaded that nobody
labels) is said as a note, never guessed. Labels are those of GPU Feature Discovery, the GPU Operator and Node Feature
Discovery; DMA-BUF takes Linux 5.12 and the open kernel modules, else nvidia-peermem is needed for GPUDirect RDMA.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gantree.executors.kubernetes.apiserver.objects import Node
from gantree.executors.kubernetes.constraints.channels import DRIVER
from gantree.executors.kubernetes.nodes.site import site_of
from gantree.executors.kubernetes.tools.survey import SeenPod, Survey
from gantree.model.errors import BadInput
from gantree.model.jobs import GPU_RESOURCES
from gantree.text.words import plural
from gantree.topology.discovery.listings.kubernetes_nodes import quantity
from gantree.topology.discovery.listings.label_keys import CLIQUE_KEY, families

NFD = "feature.node.kubernetes.io/"
NVIDIA, MELLANOX = "10de", "15b3"
"""Vendors of PCI devices, as Node Feature Discovery labels them."""
DEPLOYED = (
    "driver", "container-toolkit", "device-plugin", "gpu-feature-discovery", "dcgm-exporter", "operator-validator",
)  # fmt: skip
UPGRADE = "nvidia.com/gpu-driver-upgrade-state"
MIG_STATE = "nvidia.com/mig.config.state"
PEERMEM = ("nvidia-peermem-ctr", "nvidia-peermem")
"""Names of the container that loads nvidia-peermem in the GPU Operator's driver pods."""
DMA_BUF_SINCE = (5, 12)


class Level(StrEnum):
    """How bad it is."""

    PROBLEM = "problem"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """What is so, where, and what to do. nodes are empty for what is about the cluster."""

    level: Level
    check: str
    what: str
    fix: str
    nodes: tuple[str, ...] = ()


Check = Callable[[Survey], Iterable[Finding]]


def findings(told: Survey, scheduler: str, levels: Sequence[str] = ()) -> list[Finding]:
    """All findings, the worst first. scheduler is the schedulerName of pods that are gantree's."""
    checks: tuple[Check, ...] = (
        _rbac, _apis, _ready, _device_plugins, _operator, _discovery, _rdma, _peer_memory, _memlock, _nvlink_domains,
    )  # fmt: skip
    found = [finding for check in checks for finding in check(told)]
    found += [*_topology(told, levels), *_foreign_pods(told, scheduler)]
    order = list(Level)
    return sorted(found, key=lambda each: order.index(each.level))


def gpu_nodes(told: Survey) -> list[Node]:
    """Nodes that have GPUs, by what they report or by what is plugged in."""
    return [node for node in told.nodes if _gpus(node) or _has_gpu_labels(node)]


def _rbac(told: Survey) -> Iterator[Finding]:
    for rule, verb in told.missing:
        where = f" in namespace {told.namespace}" if rule.own_namespace else ""
        what = (
            f"this account may not {verb} {rule.resource} of {rule.group or 'the core API'}{where}"
        )
        fix = f"needed: {rule.why}; apply the ClusterRole that is installed with gantree, and run this as its account"
        yield Finding(Level.PROBLEM, "rights", what, fix)


def _apis(told: Survey) -> Iterator[Finding]:
    dra = told.served("resource.k8s.io", "resourceclaims")
    gangs = told.served("scheduling.k8s.io", "podgroups")
    if "v1" not in dra:
        served = f"only {', '.join(dra)}" if dra else "not at all"
        what = f"dynamic resource allocation is served {served} by {told.version}, not at v1"
        yield Finding(
            Level.NOTE,
            "apis",
            what,
            "pods with resource claims need Kubernetes 1.34; others do not",
        )
    if not gangs:
        what = "Kubernetes' own gang API (PodGroup of scheduling.k8s.io) is not served"
        fix = (
            "gangs by labels and by other schedulers' groups work; for this one set the gate GenericWorkload and"
            " serve its version with --runtime-config"
        )
        yield Finding(Level.NOTE, "apis", what, fix)


def _ready(told: Survey) -> Iterator[Finding]:
    if not gpu_nodes(told):
        what = f"none of {plural(len(told.nodes), 'node')} has GPUs"
        yield Finding(
            Level.PROBLEM,
            "nodes",
            what,
            "install the GPU Operator or a device plugin; look at --node-selector",
        )
    yield from _on(
        (node for node in told.nodes if not node.is_ready),
        Finding(Level.PROBLEM, "nodes", "not ready", "see kubectl describe node"),
    )
    yield from _on(
        (node for node in told.nodes if node.spec.unschedulable),
        Finding(Level.WARNING, "nodes", "cordoned: nothing new starts there", "kubectl uncordon"),
    )


def _device_plugins(told: Survey) -> Iterator[Finding]:
    nodes = gpu_nodes(told)
    by_slices = {each.spec.node_name for each in told.slices or ()}
    silent = [node for node in nodes if not _gpus(node) and node.metadata.name not in by_slices]
    yield from _on(
        silent,
        Finding(
            Level.PROBLEM,
            "device plugin",
            "has GPUs by its labels, and reports none",
            "look at the pods of the device plugin there, and at the driver (nvidia-smi)",
        ),
    )
    for node in nodes:
        lost = _gpus(node) - _gpus(node, allocatable=True)
        if lost > 0:
            yield Finding(
                Level.PROBLEM,
                "device plugin",
                f"{plural(lost, 'GPU')} of {_gpus(node)} may not be used",
                "the device plugin took them out as unhealthy: look for XID errors in the kernel's log there",
                (node.metadata.name,),
            )
    yield from _counts(nodes)


def _counts(nodes: Iterable[Node]) -> Iterator[Finding]:
    """Where the label counts other GPUs than the device plugin, and nothing shares or divides them."""
    for node in nodes:
        labels = node.metadata.labels
        told, counted = labels.get("nvidia.com/gpu.count", ""), _amount(node, "nvidia.com/gpu")
        is_divided = labels.get("nvidia.com/gpu.replicas", "1") != "1" or any(
            name.startswith("nvidia.com/mig-") for name in node.status.capacity
        )
        if told.isdecimal() and counted and not is_divided and int(told) != counted:
            yield Finding(
                Level.WARNING,
                "device plugin",
                f"its label counts {told} GPUs, its capacity {counted}",
                "restart GPU Feature Discovery there; a GPU may have dropped off the bus",
                (node.metadata.name,),
            )


def _operator(told: Survey) -> Iterator[Finding]:
    nodes = gpu_nodes(told)
    for part in DEPLOYED:
        key = f"nvidia.com/gpu.deploy.{part}"
        off = [node for node in nodes if node.metadata.labels.get(key, "true") != "true"]
        states = ", ".join(sorted({node.metadata.labels[key] for node in off}))
        yield from _on(
            off,
            Finding(
                Level.WARNING,
                "GPU Operator",
                f"{part} is not deployed ({key}: {states})",
                "meant so where the host brings its own; paused while a driver is upgraded",
            ),
        )
    upgrading = [
        n for n in nodes if n.metadata.labels.get(UPGRADE, "upgrade-done") != "upgrade-done"
    ]
    for node in upgrading:
        state = node.metadata.labels[UPGRADE]
        level = Level.PROBLEM if state == "upgrade-failed" else Level.WARNING
        fix = "see the driver's pods there; the operator goes on by itself unless it failed"
        yield Finding(level, "GPU Operator", f"its driver: {state}", fix, (node.metadata.name,))
    for node in nodes:
        state = node.metadata.labels.get(MIG_STATE, "success")
        if state != "success":
            level = Level.PROBLEM if state == "failed" else Level.WARNING
            fix = "see the mig-manager there; what runs on the GPUs keeps them from being divided"
            yield Finding(level, "MIG", f"{MIG_STATE} is {state}", fix, (node.metadata.name,))


def _discovery(told: Survey) -> Iterator[Finding]:
    nodes = gpu_nodes(told)
    nameless = [
        node
        for node in nodes
        if _amount(node, "nvidia.com/gpu") and "nvidia.com/gpu.product" not in node.metadata.labels
    ]
    yield from _on(
        nameless,
        Finding(
            Level.WARNING,
            "labels",
            "no nvidia.com/gpu.product: what machine it is, is not known",
            "deploy GPU Feature Discovery; until then links inside the node are not placed by",
        ),
    )
    blind = [node for node in nodes if not any(key.startswith(NFD) for key in node.metadata.labels)]
    yield from _on(
        blind,
        Finding(
            Level.WARNING,
            "labels",
            f"no {NFD}... label",
            "deploy Node Feature Discovery: kernel, RDMA and PCI devices cannot be checked without",
        ),
    )


def _rdma(told: Survey) -> Iterator[Finding]:
    by_slices = {
        each.spec.node_name for each in told.slices or () if "nvidia" not in each.spec.driver
    }
    plain = [
        node
        for node in gpu_nodes(told)
        if _has_pci(node, MELLANOX) and not _rdma_resources(node)
        if node.metadata.name not in by_slices
    ]
    yield from _on(
        plain,
        Finding(
            Level.PROBLEM,
            "RDMA",
            "has NICs for RDMA, and no resource that pods could ask for",
            "deploy an RDMA device plugin (rdma/...), an SR-IOV one, or a DRA driver for the NICs",
        ),
    )
    incapable = [
        node for node in told.nodes if node.metadata.labels.get(f"{NFD}rdma.available") == "false"
    ]
    yield from _on(
        incapable,
        Finding(
            Level.PROBLEM,
            "RDMA",
            "its kernel has no RDMA (rdma.available: false)",
            "load ib_uverbs and rdma_ucm, or the vendor's driver",
        ),
    )
    kinds = Counter(frozenset(_rdma_resources(node)) for node in gpu_nodes(told))
    if len([names for names in kinds if names]) > 1:
        said = "; ".join(
            f"{', '.join(sorted(names))} on {plural(count, 'node')}"
            for names, count in kinds.items()
            if names
        )
        yield Finding(
            Level.WARNING,
            "RDMA",
            f"nodes name their NICs differently: {said}",
            "a gang asks for one name: use one",
        )


def _peer_memory(told: Survey) -> Iterator[Finding]:
    """GPUDirect RDMA takes DMA-BUF or nvidia-peermem."""
    loaded = {
        pod.spec.node_name
        for pod in told.pods
        if pod.is_on_a_node
        for each in (*pod.spec.containers, *pod.spec.init_containers)
        if each.name in PEERMEM
    }
    with_nics = [n for n in gpu_nodes(told) if _rdma_resources(n) or _has_pci(n, MELLANOX)]
    asked = [node for node in with_nics if node.metadata.name not in loaded]
    old = [node for node in asked if (kernel := _kernel(node)) and kernel < DMA_BUF_SINCE]
    yield from _on(
        old,
        Finding(
            Level.PROBLEM,
            "GPUDirect RDMA",
            "its kernel is too old for DMA-BUF, and nothing is seen to load nvidia-peermem",
            "set driver.rdma.enabled in the GPU Operator's ClusterPolicy, or modprobe nvidia-peermem on the host",
        ),
    )
    new = [node for node in asked if (kernel := _kernel(node)) and kernel >= DMA_BUF_SINCE]
    yield from _on(
        new,
        Finding(
            Level.NOTE,
            "GPUDirect RDMA",
            "DMA-BUF works there with NVIDIA's open kernel modules; nvidia-peermem was not seen",
            "with the closed modules load nvidia-peermem; NCCL_DEBUG=INFO says GDRDMA where it works",
        ),
    )


def _memlock(told: Survey) -> Iterator[Finding]:
    bare = sorted(
        {f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in told.pods if _lacks_lock(pod)}
    )
    if bare:
        some = ", ".join(bare[:3]) + (", ..." if len(bare) > 3 else "")
        yield Finding(
            Level.PROBLEM,
            "memlock",
            f"{plural(len(bare), 'pod')} with RDMA may not lock memory: {some}",
            "add the capability IPC_LOCK to their containers' securityContext",
        )
    if any(_rdma_resources(node) for node in told.nodes):
        yield Finding(
            Level.NOTE,
            "memlock",
            "how much memory a container may lock is not told by any API",
            "LimitMEMLOCK=infinity for containerd or CRI-O on each node; ulimit -l in a pod says unlimited then",
        )


def _lacks_lock(pod: SeenPod) -> bool:
    """Whether a pod has a container that asks for RDMA and may not pin memory."""
    return pod.status.phase not in ("Succeeded", "Failed") and any(
        any(name.startswith("rdma/") for name in each.resources.requests | each.resources.limits)
        and not each.security_context.privileged
        and not {"IPC_LOCK", "ALL"} & set(each.security_context.capabilities.add)
        for each in pod.spec.containers
    )


def _nvlink_domains(told: Survey) -> Iterator[Finding]:
    """Racks with NVLink across trays: their pods need a ComputeDomain, whose driver makes IMEX channels."""
    size = Counter(node.metadata.labels.get(CLIQUE_KEY, "") for node in told.nodes)
    wide = [n for n in told.nodes if (key := n.metadata.labels.get(CLIQUE_KEY)) and size[key] > 1]
    if not wide:
        return
    if not told.served("resource.nvidia.com", "computedomains"):
        yield from _on(
            wide,
            Finding(
                Level.PROBLEM,
                "IMEX",
                "is in an NVLink domain of several nodes, and ComputeDomain is not served",
                "install NVIDIA's DRA driver with resources.computeDomains.enabled; GangJobs that ask for nvlink get"
                " IMEX channels by it, other pods by claims of a ComputeDomain",
            ),
        )
        return
    if "v1" not in told.served("resource.k8s.io", "resourceclaims"):
        what = "ComputeDomain is served, but no claims of resource.k8s.io/v1: pods with an IMEX channel wait for ever"
        yield Finding(Level.PROBLEM, "IMEX", what, "Kubernetes 1.34 or newer serves them")
    drivers = {each.spec.node_name for each in told.slices or () if each.spec.driver == DRIVER}
    yield from _on(
        [node for node in wide if told.slices is not None and node.metadata.name not in drivers],
        Finding(
            Level.PROBLEM,
            "IMEX",
            f"no slice of {DRIVER}: pods there get no IMEX channel",
            "look at the kubelet plugin of NVIDIA's DRA driver there",
        ),
    )


def _topology(told: Survey, levels: Sequence[str]) -> Iterator[Finding]:
    """What of the tree the labels leave open, or contradict."""
    nodes = gpu_nodes(told)
    if not nodes:
        return
    in_use = [node for node in nodes if node.is_ready and not node.spec.unschedulable]
    try:
        reading = site_of("cluster", in_use or nodes, levels)
    except BadInput as error:
        yield Finding(
            Level.PROBLEM, "topology", str(error), "correct the labels, or name others with --level"
        )
        return
    for warning in reading.warnings:
        fix = "correct the labels, or name those that count with --level"
        yield Finding(Level.WARNING, "topology", warning, fix)
    if reading.cluster.tiers == ("node",) and len(nodes) > 1:
        what = "no label tells where nodes stand: every two nodes count as equally near"
        fix = "run topograph, use the cloud's labels, or name your own with --level KEY"
        yield Finding(Level.WARNING, "topology", what, fix)
    known = families(dict.fromkeys(key for node in nodes for key in node.metadata.labels))
    for level in (level for family in known for level in family.levels if not levels):
        has = [node for node in nodes if any(key in node.metadata.labels for key in level.keys)]
        bare = [node for node in nodes if node not in has]
        if has and bare:
            what = f"has no label of {' or '.join(level.keys)}, which other nodes have"
            fix = "gangs that ask for this tier are not placed there: label it"
            yield from _on(bare, Finding(Level.WARNING, "topology", what, fix))


def _foreign_pods(told: Survey, scheduler: str) -> Iterator[Finding]:
    """Who else gives out the GPUs of these nodes."""
    here = {node.metadata.name for node in gpu_nodes(told)}
    gpus: Counter[str] = Counter()
    for pod in told.pods:
        if pod.is_on_a_node and pod.spec.node_name in here and pod.spec.scheduler_name != scheduler:
            gpus[pod.spec.scheduler_name] += _asked_gpus(pod)
    for name, count in sorted(gpus.items()):
        if count:
            what = f"pods of {name or 'nobody known'} hold {plural(count, 'GPU')}"
            fix = (
                "gantree counts them; but what both give out at once, one of them loses: taint gantree's nodes, or"
                " give each scheduler its own with --node-selector"
            )
            yield Finding(Level.WARNING, "other schedulers", what, fix)


# ----- what labels and resources say


def _on(nodes: Iterable[Node], finding: Finding) -> Iterator[Finding]:
    names = tuple(node.metadata.name for node in nodes)
    if names:
        yield Finding(finding.level, finding.check, finding.what, finding.fix, names)


def _has_gpu_labels(node: Node) -> bool:
    return node.metadata.labels.get("nvidia.com/gpu.present") == "true" or _has_pci(node, NVIDIA)


def _has_pci(node: Node, vendor: str) -> bool:
    """Whether Node Feature Discovery saw a device; the class may stand before the vendor: pci-0302_10de.present."""
    ends = (f"pci-{vendor}.present", f"_{vendor}.present")
    return any(
        key.startswith(f"{NFD}pci-") and key.endswith(ends) and value == "true"
        for key, value in node.metadata.labels.items()
    )


def _amount(node: Node, name: str, *, allocatable: bool = False) -> int:
    told: Mapping[str, str | float] = (
        node.status.allocatable if allocatable else node.status.capacity
    )
    return int(quantity(str(told.get(name, 0))) or 0)


def _gpus(node: Node, *, allocatable: bool = False) -> int:
    told = node.status.allocatable if allocatable else node.status.capacity
    names = [name for name in told if name in GPU_RESOURCES or name.startswith("nvidia.com/mig-")]
    names += [name for name in told if name == "nvidia.com/gpu.shared"]
    return sum(_amount(node, name, allocatable=allocatable) for name in names)


def _rdma_resources(node: Node) -> list[str]:
    return sorted(
        name for name in node.status.capacity if name.startswith("rdma/") and _amount(node, name)
    )


def _asked_gpus(pod: SeenPod) -> int:
    return sum(
        int(quantity(str((each.resources.limits | each.resources.requests).get(name, 0))) or 0)
        for each in pod.spec.containers
        for name in GPU_RESOURCES
    )


def _kernel(node: Node) -> tuple[int, int] | None:
    """Major and minor version of its kernel, by Node Feature Discovery."""
    told = [
        node.metadata.labels.get(f"{NFD}kernel-version.{part}", "") for part in ("major", "minor")
    ]
    return (int(told[0]), int(told[1])) if all(each.isdecimal() for each in told) else None
