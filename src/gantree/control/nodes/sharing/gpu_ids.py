"""GPU ids for processes: UUIDs on this machine's own GPUs, indices on virtual nodes.

MIG instances have UUIDs alone, so a virtual node has none.

A UUID cannot be misread; an index can, because CUDA counts the fastest GPU first unless told otherwise.
"""

from collections.abc import Callable, Mapping

from gantree.executors.local.launch.visible_gpus import GpuIds, MigIds, gpu_indices, no_instances
from gantree.model.cluster import Cluster
from gantree.model.errors import Unreachable
from gantree.model.placements import MigPart


def gpu_ids_of(
    cluster: Cluster, hostname: str, read_uuids: Callable[[], tuple[str, ...]]
) -> GpuIds:
    """Ids for the nodes of a cluster. A node is this machine if it has its name and as many GPUs as answer.

    read_uuids gives the UUID of each GPU by index, and is asked only where a node has this machine's name.
    """
    machines = {node.name: cluster.machines[node.machine] for node in cluster.nodes}
    if hostname not in machines or machines[hostname].gpus == 0:
        return gpu_indices
    try:
        uuids = read_uuids()
    except Unreachable:
        return gpu_indices
    if len(uuids) != machines[hostname].gpus:
        return gpu_indices

    def ids(node: str, gpus: tuple[int, ...]) -> str:
        return ",".join(uuids[gpu] for gpu in gpus) if node == hostname else gpu_indices(node, gpus)

    return ids


def mig_ids_of(hostname: str, read_instances: Callable[[], Mapping[MigPart, str]]) -> MigIds:
    """UUIDs of the MIG instances of a node: those that the driver lists, where the node has this machine's name.

    read_instances is asked each time, for instances come and go.
    """

    def ids(node: str) -> Mapping[MigPart, str]:
        if node != hostname:
            return no_instances(node)
        try:
            return read_instances()
        except Unreachable:
            return no_instances(node)

    return ids
