"""Why nothing new may start on a ready node: it is cordoned, or a condition reports pressure or a fault.

Conditions are those of the kubelet (pressure), of node-problem-detector and its kin, which are true where something is
wrong, and those named after what should be so (...Ready, ...Healthy), which are false then. Beside the kernel's,
only conditions about GPUs and their links count: what else an operator's detector watches is his to act on. A node that
is short of something is cordoned, and what runs there stays. One whose kernel or GPUs are in trouble is unwell: gangs
that can save leave it if they have a place.

Taints need nothing here: they keep pods off that do not tolerate them, as they do everywhere. A cordon is a taint, too,
but only where a gang tolerates it: each change of taints is a change of the site, and cordons change often.
"""

import re

import msgspec

from gantree.executors.kubernetes.apiserver.objects import Condition, Node, NodeTaint
from gantree.model.events import NODE_CONDITIONS
from gantree.model.jobs import Job
from gantree.model.node_rules import TOLERATES_LABEL, Taint, tolerates
from gantree.topology.hardware.xids import tells_of_lost_gpu

SOURCE = NODE_CONDITIONS
"""Who says that a node is unwell, where its conditions do."""
CORDONED = "cordoned in Kubernetes"
"""The reason of cordons that are Kubernetes' begins so; an operator's of gantree are his to lift."""
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
"""The taint that the control plane puts on cordoned nodes."""
OF_KUBELET = frozenset({"MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"})
OF_KERNEL = frozenset(
    {"KernelDeadlock", "ReadonlyFilesystem", "XfsShutdown", "CperHardwareErrorFatal"}
)
_OF_GPUS = re.compile(
    r"GPU|Gpu|XID|Xid|NV(?:Link|Switch|LINK|SWITCH)|N[vV][iI][dD][iI][aA]|Accelerat|InfiniBand|IBLink|RDMA|Rdma|DCGM|Dcgm"
    r"|(?:Ethernet|EFA)(?:State|Degradation)Check"
)
"""NVSentinel names its conditions after its checks (GpuNvlinkWatch, SysLogsXIDError, InfiniBandStateCheck); of those
of its NIC monitor two are of Ethernet and EFA, which need the whole name.
https://github.com/NVIDIA/NVSentinel (docs/configuration)
"""
_SHOULD_BE = re.compile(r"(?:Ready|Healthy|Ok|OK|Available)$")


def with_cordon(node: Node, *, as_taint: bool) -> Node:
    """A node with the taint of its cordon, or without it."""
    others = tuple(each for each in node.spec.taints if each.key != UNSCHEDULABLE)
    is_tainted = as_taint and node.spec.unschedulable
    taints = (*others, NodeTaint(UNSCHEDULABLE, effect="NoSchedule")) if is_tainted else others
    if taints == node.spec.taints:
        return node
    return msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, taints=taints))


def tolerates_cordons(job: Job) -> bool:
    """Whether a member of a job may go onto cordoned nodes."""
    taint = (Taint(UNSCHEDULABLE),)
    told = (dict(role.shape.labels).get(TOLERATES_LABEL, "") for role in job.roles)
    return any(rule and tolerates(taint, rule) for rule in told)


def why_cordoned(node: Node, *, is_tainted: bool = False) -> str | None:
    """The reason of the cordon that a node should have, None for none. is_tainted: the site has it as a taint."""
    if node.spec.unschedulable and not is_tainted:
        return CORDONED
    short = next((each for each in node.status.conditions if _is_short(each)), None)
    return None if short is None else f"{CORDONED}: {_in_words(short)}"


def what_is_wrong(node: Node, before: str) -> str:
    """Return the first condition that reports a fault, "" for none; the previous one if it still holds."""
    wrong = [each for each in node.status.conditions if _is_wrong(each)]
    if before and any(before.partition(" (")[0] == each.type for each in wrong):
        return before
    return _in_words(wrong[0]) if wrong else ""


def has_lost_gpu(node: Node) -> bool:
    """Whether a condition that reports a fault says that a GPU is lost; with device plugins nobody knows which one."""
    wrong = (each for each in node.status.conditions if _is_wrong(each))
    return any(tells_of_lost_gpu(f"{each.reason} {each.message}") for each in wrong)


def _in_words(condition: Condition) -> str:
    said = ": ".join(part for part in (condition.reason, condition.message) if part)
    return condition.type + (f" ({said})" if said else "")


def is_of_kubernetes(reason: str | None) -> bool:
    """Whether a cordon is one that is lifted when Kubernetes says that the node is well."""
    return (reason or "").startswith(CORDONED)


def _is_short(condition: Condition) -> bool:
    return condition.type in OF_KUBELET and condition.status == "True"


def _is_wrong(condition: Condition) -> bool:
    if condition.type in OF_KERNEL:
        return condition.status == "True"
    if not _OF_GPUS.search(condition.type):
        return False
    return condition.status == ("False" if _SHOULD_BE.search(condition.type) else "True")
