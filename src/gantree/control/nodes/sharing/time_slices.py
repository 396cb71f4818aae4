"""The time slice of shared GPUs, for nodes of which the cluster file gives one and that are this machine."""

from gantree.executors.local.sharing.time_slices import TimeSliceOf
from gantree.model.cluster import Cluster

NVIDIA_SMI = "nvidia-smi"


def time_slice_of(cluster: Cluster, hostname: str) -> TimeSliceOf:
    """The program and the time slice of this machine's GPUs. Virtual nodes have no driver."""
    told = {
        node.name: (NVIDIA_SMI, node.time_slice)
        for node in cluster.nodes
        if node.time_slice is not None and node.name == hostname
    }
    return told.get
