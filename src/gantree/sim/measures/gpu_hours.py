"""GPU-hours of each GPU model: what there was over the run, and what of it gangs held."""

from collections.abc import Iterable
from dataclasses import dataclass

from gantree.model.cluster import ON_DEMAND, SPOT
from gantree.model.placements import MemberPlacement
from gantree.policy.amounts import held
from gantree.sim.record import Span
from gantree.topology.fabric.fabric import Fabric


@dataclass(frozen=True, slots=True)
class GpuHours:
    """Of one model on one market: GPUs, hours of all of them over the run, and hours that gangs held.

    gpu is "" where the cluster does not name the model. GPUs that the site itself holds are not in it.
    """

    gpu: str
    market: str
    gpus: int
    capacity_h: float
    held_h: float

    @property
    def idle_h(self) -> float:
        """GPU-hours that nobody held."""
        return max(0.0, self.capacity_h - self.held_h)


def gpu_hours(
    fabric: Fabric, spans: Iterable[Span], start_s: float, end_s: float
) -> list[GpuHours]:
    """One row for each model and market, in the order of the nodes; spans count between start_s and end_s."""
    kind_of_node = [
        (fabric.machines[machine].gpu or "", ON_DEMAND if node.spot is None else SPOT)
        for node, machine in zip(fabric.nodes, fabric.machine_index_of_node.tolist(), strict=True)
    ]
    gpus: dict[tuple[str, str], int] = {}
    for kind, count in zip(kind_of_node, fabric.gpus_of_node.tolist(), strict=True):
        gpus[kind] = gpus.get(kind, 0) + count
    for allocation in fabric.cluster.allocations:
        gpus[kind_of_node[fabric.index_of_node[allocation.node]]] -= len(allocation.gpus)
    held_s = dict.fromkeys(gpus, 0.0)
    for span in spans:
        length_s = min(end_s if span.to_s is None else span.to_s, end_s) - span.from_s
        for member in span.placement.members:
            if (member.gpus or member.parts) and member.node in fabric.index_of_node:
                kind = kind_of_node[fabric.index_of_node[member.node]]
                held_s[kind] += length_s * _gpus(member, kind[0])
    hours = (end_s - start_s) / 3600
    return [
        GpuHours(gpu, market, count, count * hours, held_s[gpu, market] / 3600)
        for (gpu, market), count in gpus.items()
        if count
    ]


def _gpus(member: MemberPlacement, gpu: str) -> float:
    """GPUs that a member holds, parts as parts."""
    if not member.parts:
        return len(member.gpus)
    return held([member], lambda _: gpu or None).get("gpus", 0.0)
