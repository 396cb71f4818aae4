"""Whether and how this daemon partitions GPUs, and the site as it is with that.

A node whose GPUs it may not partition has `mig_by` CUT_NOT_PERMITTED while it runs, so that nothing is decided which
cannot be done, and on this machine the instances that the driver lists.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from urllib.parse import quote

from gantree.executors.local.partitions.created_instances import CreatedInstances
from gantree.executors.local.partitions.partitions import PartitionerOf
from gantree.model.cluster import CUT_BY_GPU, CUT_NOT_PERMITTED, Cluster, Machine, Mig, Node
from gantree.model.errors import Unreachable
from gantree.model.gpu_partitions import GpuPartitioner
from gantree.model.placements import MigPart
from gantree.telemetry.partitions.amd_smi import AmdSmiPartitioner
from gantree.telemetry.partitions.nvml import NvmlPartitioner
from gantree.telemetry.partitions.simulated import SimulatedPartitioner
from gantree.topology.hardware.mig import mig_table

SIMULATED_FOLDER = "simulated-gpus"
"""Below the state directory; a daemon that finds it goes on simulating."""
log = logging.getLogger(__name__)


class PartitionGpus(StrEnum):
    """How GPUs are partitioned: those of this machine by NVML or amd-smi, those of virtual nodes by a simulation."""

    NVML = "nvml"
    AMD_SMI = "amd-smi"
    SIMULATED = "simulated"
    NEVER = "never"


def how_to_partition(told: PartitionGpus | None, state_dir: Path) -> PartitionGpus:
    """As told, or as an earlier daemon of this state directory was; else never. Raises OSError."""
    folder = state_dir / SIMULATED_FOLDER
    if told is PartitionGpus.SIMULATED:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if told is not None:
        return told
    return PartitionGpus.SIMULATED if folder.is_dir() else PartitionGpus.NEVER


def partitioner_of(
    how: PartitionGpus, cluster: Cluster, state_dir: Path, hostname: str
) -> PartitionerOf:
    """Who partitions the GPUs of each node of a cluster."""
    found: dict[str, GpuPartitioner] = {}
    for node in cluster.nodes:
        table = mig_table(cluster.machines[node.machine].gpu)
        if table is None or node.mig_by not in (CUT_BY_GPU, CUT_NOT_PERMITTED):
            continue
        if how is PartitionGpus.SIMULATED:
            file = state_dir / SIMULATED_FOLDER / f"{quote(node.name, safe='')}.json"
            found[node.name] = SimulatedPartitioner(file, node.name, table)
        elif how is PartitionGpus.NVML and node.name == hostname and not table.uniform:
            found[node.name] = NvmlPartitioner()
        elif how is PartitionGpus.AMD_SMI and node.name == hostname and table.uniform:
            found[node.name] = AmdSmiPartitioner(table)
    return found.get


def without_foreign_instances(
    partitioners: PartitionerOf, cluster: Cluster, state_dir: Path
) -> PartitionerOf:
    """The same, without nodes that have instances which gantree did not create: those are used as they are.

    Raises OSError, PartitionError and Unreachable.
    """
    created, barred = CreatedInstances(state_dir), set[str]()
    for node in cluster.nodes:
        partitioner = partitioners(node.name)
        if partitioner is None:
            continue
        foreign = _foreign(partitioner, node, cluster.machines[node.machine], created)
        if foreign:
            barred.add(node.name)
            log.warning(
                "node %s is not partitioned: gantree did not create its instances %s. They are used as they are; "
                "to have the node partitioned, destroy them and start again", node.name, foreign,
            )  # fmt: skip
    return lambda node: None if node in barred else partitioners(node)


def _foreign(
    partitioner: GpuPartitioner, node: Node, machine: Machine, created: CreatedInstances
) -> str:
    found = [
        f"{part.profile} at slice {part.start} of GPU {part.gpu}"
        for gpu in range(machine.gpus)
        for part, uuid in partitioner.instances(gpu).items()
        if not created.has(node.name, part, uuid)
    ]
    return ", ".join(found)


def as_permitted(
    cluster: Cluster,
    partitioners: PartitionerOf,
    hostname: str,
    read_instances: Callable[[], Mapping[MigPart, str]],
) -> Cluster:
    """The site with, of each node with MIG, whether this daemon may partition it.

    read_instances lists the MIG instances of this machine, and is asked only where they are used as they are.
    """
    nodes = []
    for node in cluster.nodes:
        may_be_cut = node.mig_by in (CUT_BY_GPU, CUT_NOT_PERMITTED)
        if not may_be_cut or mig_table(cluster.machines[node.machine].gpu) is None:
            nodes.append(node)
        elif partitioners(node.name) is not None:
            nodes.append(replace(node, mig_by=CUT_BY_GPU))
        else:
            is_listed = node.mig and node.mig_by == CUT_BY_GPU
            mig = None if is_listed or node.name != hostname else _instances_here(read_instances)
            nodes.append(
                replace(node, mig_by=CUT_NOT_PERMITTED, mig=node.mig if mig is None else mig)
            )
    return replace(cluster, nodes=tuple(nodes))


def _instances_here(read_instances: Callable[[], Mapping[MigPart, str]]) -> tuple[Mig, ...] | None:
    """The MIG instances of this machine; None without a driver."""
    try:
        there = read_instances()
    except Unreachable:
        return None
    of_gpu: dict[int, list[tuple[str, int]]] = {}
    for part in sorted(there, key=lambda one: (one.gpu, one.start)):
        of_gpu.setdefault(part.gpu, []).append((part.profile, part.start))
    return tuple(Mig(gpu, tuple(instances)) for gpu, instances in of_gpu.items())
