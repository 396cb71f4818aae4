"""How processes are told which GPUs they have: UUIDs on this machine's own GPUs, indices on virtual nodes.

A UUID cannot be misread; an index can, because CUDA counts the fastest GPU first unless told otherwise.
"""

from collections.abc import Callable

from gantree.executors.launch import GpuIds, gpu_indices
from gantree.model.cluster import Cluster
from gantree.model.errors import Unreachable


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
