"""Philly's week on Lingjun: the trace, cluster and queues that experiments on queues have in common."""

from functools import cache

from gantree.formats.policy.reader import PRESETS
from gantree.formats.traces import TraceJob
from gantree.model.cluster import Cluster
from gantree.policy.rules import Policy
from gantree.sim.experiments.inputs import lingjun, trace
from gantree.sim.lingjun.philly import gpu_s_of_queue, shared_out, with_queues
from gantree.sim.lingjun.subfabric import GPUS_OF_HOST

HOSTS = 68
"""Hosts on which the mean load of the week is 85 %."""


def week() -> tuple[TraceJob, ...]:
    """The jobs of the week."""
    return trace("philly-week")


def site() -> Cluster:
    """The first HOSTS hosts of Lingjun, 8 GPUs each."""
    return lingjun(HOSTS)


@cache
def gpus_of_queue() -> dict[str, int]:
    """GPUs of each queue: its share of the week's GPU-hours."""
    return shared_out(HOSTS * GPUS_OF_HOST, gpu_s_of_queue(week()))


def with_guarantees(preset: str, *, as_cells: bool = False) -> Policy:
    """A preset under which each queue is guaranteed its GPUs, as a count or as cells."""
    return with_queues(PRESETS[preset], gpus_of_queue(), as_cells=as_cells)
