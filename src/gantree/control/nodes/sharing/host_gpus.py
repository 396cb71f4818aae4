"""What this machine's own driver lists of its GPUs, by the tool of their vendor: NVML, or amd-smi."""

from collections.abc import Callable, Mapping

from gantree.control.nodes.sharing.gpu_ids import gpu_ids_of
from gantree.executors.local.launch.visible_gpus import GpuIds, gpu_indices
from gantree.model.cluster import Cluster
from gantree.model.errors import GantreeError
from gantree.model.placements import MigPart
from gantree.telemetry.mig import mig_instances
from gantree.telemetry.nvml.driver import uuids
from gantree.telemetry.partitions.amd_smi import AmdSmiPartitioner
from gantree.topology.hardware.mig import MigTable, mig_table

ReadInstances = Callable[[], Mapping[MigPart, str]]


def instances_reader(cluster: Cluster, hostname: str) -> ReadInstances:
    """Who lists the instances and partitions of this machine, with UUIDs; raises Unreachable without a driver."""
    table = compute_partitions_of(cluster, hostname)
    return mig_instances if table is None else AmdSmiPartitioner(table).every_instance


def host_gpu_ids(cluster: Cluster, hostname: str) -> GpuIds:
    """Ids of whole GPUs for processes. Those of AMD are asked for at each start: a change of mode renumbers them."""
    table = compute_partitions_of(cluster, hostname)
    if table is None:
        return gpu_ids_of(cluster, hostname, uuids)
    return whole_gpu_ids(AmdSmiPartitioner(table), hostname)


def whole_gpu_ids(reader: AmdSmiPartitioner, hostname: str) -> GpuIds:
    """UUIDs of the whole GPUs that amd-smi lists; indices on other nodes, and where it does not answer."""

    def ids(node: str, gpus: tuple[int, ...]) -> str:
        if node != hostname:
            return gpu_indices(node, gpus)
        try:
            there = reader.whole_gpus()
        except GantreeError:
            return gpu_indices(node, gpus)
        known = [there[gpu] for gpu in gpus if gpu in there]
        return ",".join(known) if len(known) == len(gpus) else gpu_indices(node, gpus)

    return ids


def compute_partitions_of(cluster: Cluster, node: str) -> MigTable | None:
    """The modes of a node's GPUs; None for GPUs without, and for nodes that are not there."""
    names = [cluster.machines[each.machine].gpu for each in cluster.nodes if each.name == node]
    table = mig_table(names[0]) if names else None
    return table if table is not None and table.uniform else None
