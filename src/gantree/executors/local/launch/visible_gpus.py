"""Which GPUs the processes of a member see: whole ones, a share, or existing MIG instances.

GPUs are partitioned in `executors.local.partitions`, where the daemon may do it. Elsewhere a MIG instance is used if
the driver lists one of that profile at that place; otherwise the start fails for good, with a reason. MPS control
daemons are started in `executors.local.sharing`. Nothing enforces a time-sliced share.
Under MPS limits are variables that the CUDA driver reads in each process, so the processes of one member get equal
parts of its share.
https://docs.nvidia.com/deploy/mps/latest/appendix-environment-variables.html
"""

import re
from collections.abc import Callable, Mapping

from gantree.model.jobs import COMPUTE_PARTITIONS
from gantree.model.orders import MemberLaunch, StartGang
from gantree.model.placements import GpuChange, MigPart, SharePart

GpuIds = Callable[[str, tuple[int, ...]], str]
"""(node, GPU indices in link order) -> value of CUDA_VISIBLE_DEVICES."""
MigIds = Callable[[str], Mapping[MigPart, str]]
"""node -> UUID of each MIG instance that is there now."""

MPS = "mps"
ROCR_UUID = re.compile(r"GPU-[0-9a-f]{16}")
"""How AMD's runtime names a GPU, or a partition of one; NVIDIA's UUIDs have 36 characters."""
MIB_PER_GIB = 1024
_ROUNDING = 1e-6
"""0.29 of a GPU is 29 per cent, though 100 x 0.29 is a little less in binary."""


def gpu_indices(node: str, gpus: tuple[int, ...]) -> str:
    """Indices as the machine prints them; right for virtual nodes, and for real ones in PCI bus order."""
    return ",".join(map(str, gpus))


def no_instances(node: str) -> Mapping[MigPart, str]:
    """MIG instances of a virtual node, or of one without a driver."""
    return {}


def visible_devices(member: MemberLaunch, gpu_ids: GpuIds, mig_ids: MigIds) -> str:
    """Value of CUDA_VISIBLE_DEVICES; "" without GPUs. Every instance of the member must be there."""
    if member.mig:
        uuid_of_instance = mig_ids(member.node)
        return ",".join(uuid_of_instance[part] for part in member.mig)
    gpus = member.gpus if member.share is None else (member.share.gpu,)
    return gpu_ids(member.node, gpus) if gpus else ""


def device_variables(visible: str) -> dict[str, str]:
    """What shows the devices of a member, and no others, to the runtime of their vendor.

    ROCm's runtime takes UUIDs in ROCR_VISIBLE_DEVICES. HIP above it counts what is left from 0, and reads
    CUDA_VISIBLE_DEVICES.
    """
    ids = visible.split(",")
    if not all(map(ROCR_UUID.fullmatch, ids)):
        return {"CUDA_VISIBLE_DEVICES": visible}
    return {
        "ROCR_VISIBLE_DEVICES": visible,
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, range(len(ids)))),
    }


def share_variables(share: SharePart | None, processes: int) -> dict[str, str]:
    """The limits of one process under MPS, in whole per cent and MiB, rounded down but never to nothing.

    The one GPU that it sees is number 0 to it.
    """
    if share is None or share.isolation != MPS:
        return {}
    percentage = max(1, int(share.compute / processes * 100 + _ROUNDING))
    memory_MiB = max(1, int(share.memory_GiB / processes * MIB_PER_GIB + _ROUNDING))
    return {
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(percentage),
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={memory_MiB}M",
    }


def missing_partition(
    order: StartGang, mig_ids: MigIds, may_change: Callable[[str], bool]
) -> str | None:
    """Which GPU is not partitioned as the gang needs it, and what to do; None if all are.

    Instances that exist already need no change. may_change: whether the GPUs of a node are partitioned for the gang.
    """
    for change in order.changes:
        if change.mode is False and not may_change(change.node):
            return _must_leave_mig_mode(change)
    for member in order.members:
        is_needed = member.mig and not may_change(member.node)
        uuid_of_instance = mig_ids(member.node) if is_needed else {}
        for part in member.mig if is_needed else ():
            if part not in uuid_of_instance:
                return _missing_instance(member.node, part, uuid_of_instance)
    return None


def _must_leave_mig_mode(change: GpuChange) -> str:
    if any(part.profile in COMPUTE_PARTITIONS for part in change.destroy):
        state, by_hand = "be whole", "amd-smi set --compute-partition SPX"
    else:
        state, by_hand = "leave MIG mode", f"nvidia-smi -i {change.gpu} -mig 0"
    return (
        f"GPU {change.gpu} of node {change.node} must {state}, and this daemon may not switch it "
        f"(gantree up --partition-gpus). Switch it by hand, as root: {by_hand}; and take it "
        "out of the node's `mig` in the cluster file"
    )


def _missing_instance(node: str, part: MigPart, there: Mapping[MigPart, str]) -> str:
    on_gpu = [each for each in there if each.gpu == part.gpu]
    has = ", ".join(f"{each.profile} at slice {each.start}" for each in on_gpu) or "none"
    what, by_hand = (
        "MIG instance",
        f"nvidia-smi mig -i {part.gpu} -cgi {part.profile}:{part.start} -C",
    )
    if part.profile in COMPUTE_PARTITIONS:
        what, by_hand = "partition", f"amd-smi set --compute-partition {part.profile.upper()}"
    return (
        f"GPU {part.gpu} of node {node} has no {what} {part.profile} at slice {part.start} (the driver lists "
        f"{has} there), and this daemon may not partition GPUs (gantree up --partition-gpus). Create it by hand, as "
        f"root: {by_hand}; or write "
        "`mig: {by: nobody, instances: [...]}` with what is there into the cluster file, so that only that is given out"
    )
