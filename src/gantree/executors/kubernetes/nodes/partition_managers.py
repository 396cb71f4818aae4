"""Who partitions the GPUs of a node, and how it is asked: NVIDIA's MIG manager, or AMD's device config manager (DCM).

Both act upon a label that names a config, and answer in another label. They differ in words, and in two habits:

* DCM needs the pods of AMD's operator off the node: they keep GPUs busy, and its device plugin lists resources only
  when it starts. AMD has operators set the taint `amd-dcm=up:NoExecute`, which DCM tolerates, and take it away
  afterwards.
* DCM says `failure` and tries again every minute for half an hour, since pods may need a while to leave. So a failure
  counts when it has stood for some time.

https://instinct.docs.amd.com/projects/gpu-operator/en/latest/dcm/applying-partition-profiles.html
https://github.com/ROCm/device-config-manager (pkg/config_manager/configmanager.go)
"""

from dataclasses import dataclass

from gantree.executors.kubernetes.apiserver.objects import Node, NodeTaint


@dataclass(frozen=True, slots=True)
class PartitionManager:
    """The labels of a manager, what it answers, the taint that it needs, and whether it tries again after a failure.

    what is a config in its own words; cordoned begins the reasons of cordons.
    """

    config: str
    state: str
    success: str
    failed: str
    what: str
    cordoned: str
    taint: NodeTaint | None = None
    retries: bool = False


CONFIG, STATE = "nvidia.com/mig.config", "nvidia.com/mig.config.state"
"""Labels: which config a node is to have, and how far NVIDIA's manager is with it."""
PROFILE, PROFILE_STATE = (
    "dcm.amd.com/gpu-config-profile",
    "dcm.amd.com/gpu-config-profile-state",
)
"""The same of AMD's manager."""
PARTITIONABLE = "amd.com/compute-partitioning-supported"
"""Label of AMD's node labeller: "true" where GPUs have compute partition modes."""
MIG_MANAGER = PartitionManager(CONFIG, STATE, "success", "failed", "MIG config", "MIG: ")
DCM = PartitionManager(
    PROFILE,
    PROFILE_STATE,
    "success",
    "failure",
    "GPU config profile",
    "Compute partitions: ",
    NodeTaint("amd-dcm", "up", "NoExecute"),
    retries=True,
)
CORDONED = (MIG_MANAGER.cordoned, DCM.cordoned)
"""Reasons of cordons that orders make begin with one of these; others are operators'."""


def manager_of(node: Node) -> PartitionManager:
    """Who partitions the GPUs of a node."""
    return DCM if node.metadata.labels.get(PARTITIONABLE) == "true" else MIG_MANAGER


def is_prepared(node: Node) -> bool:
    """Whether a node has the taint that its manager needs."""
    taint = manager_of(node).taint
    return taint is not None and any(each.key == taint.key for each in node.spec.taints)


def taints_with(node: Node) -> tuple[NodeTaint, ...]:
    """The taints of a node with that of its manager."""
    taint = manager_of(node).taint
    return (*taints_without(node), *(() if taint is None else (taint,)))


def taints_without(node: Node) -> tuple[NodeTaint, ...]:
    """The taints of a node without that of its manager."""
    taint = manager_of(node).taint
    return tuple(each for each in node.spec.taints if taint is None or each.key != taint.key)
