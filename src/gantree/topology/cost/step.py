"""A training step of a placed job: computing, traffic of its groups, the exposed part of it, the pipeline bubble.

    busy   = compute + exposed traffic of tensor, context, expert and pipeline groups
    bubble = busy x (stages - 1) / micro-batches                    (Narayanan et al. 2021, section 2.2)
    step   = busy + bubble + exposed traffic of the data groups

Computing is the model's arithmetic over the slowest GPU's peak times `mfu` (`constants.DEFAULT_MFU`), or as told. Of
an axis's traffic a share hides behind computing, but never more than there is to hide behind: the backward pass for
gradients, all of it for the rest. Where the job does not say, OVERLAP holds: assumptions, as frameworks are built, not
measurements.

Groups of one axis run side by side and share NICs and up-links; the slowest of them is the axis's time. Inner stages of
a pipeline send to their two neighbours in turn, so of its pairs every second runs at once. Different axes are priced as
if alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from gantree.model.errors import BadInput
from gantree.model.jobs import Job
from gantree.topology.cost.flow_cost import FlowCost, Step, cost_of_flow
from gantree.topology.cost.pricing import Pricer, Ranks
from gantree.topology.cost.serving_step import request_time
from gantree.topology.fabric.fabric import Fabric, IntArray
from gantree.topology.hardware.constants import BACKWARD_SHARE, DEFAULT_MFU, traits
from gantree.topology.traffic.traffic import (
    EXPERT_DATA,
    Flow,
    ParallelismDegrees,
    degrees_of,
    flops_of,
    flows_of,
    groups_of,
    micro_batches,
)

OVERLAP: Mapping[str, float] = MappingProxyType(
    {"tensor": 0.0, "context": 0.8, "expert": 0.0, "data": 0.8, "pipeline": 0.0}
)
"""Share that hides: gradients are reduced layer by layer while the backward pass goes on (all but the last layers can
hide), ring attention sends keys while it computes; tensor, expert and pipeline traffic is waited for."""


def step_time(pricer: Pricer, job: Job, ranks: Ranks) -> Step | None:
    """Price a training step, or a request to a service; None where the job tells neither its traffic nor its model.

    ranks are (node, GPU) of each rank, by index (`cost.ranks_of`). Raises BadInput where the parallelism does not
    multiply to the ranks, or the batch is no multiple of what runs at once.
    """
    if job.serving is not None:
        return request_time(pricer, job, job.serving, ranks)
    if job.trains is None and job.traffic is None:
        return None
    degrees = degrees_of(job, len(ranks))
    compute_s, assumed = compute_of(pricer.traffic_index.fabric, job, ranks)
    groups = groups_of(degrees)
    flows = _price(pricer, job, flows_of(job, degrees), groups, ranks, compute_s)
    step_s, bubble_s = joined(
        job, degrees, compute_s, [(flow.axis, flow.exposed_s) for flow in flows]
    )
    return Step(
        step_s=step_s,
        compute_s=compute_s,
        bubble_s=bubble_s,
        comm_s=sum(flow.seconds for flow in flows),
        exposed_s=sum(flow.exposed_s for flow in flows),
        flows=tuple(flows),
        assumed=(*_left_open(job, degrees), *assumed, *_sources(job, groups)),
    )


def joined(
    job: Job, degrees: ParallelismDegrees, compute_s: float, exposed: Sequence[tuple[str, float]]
) -> tuple[float, float]:
    """(step_s, bubble_s) of computing and of what shows of each flow, (axis, seconds)."""
    late = sum(seconds for axis, seconds in exposed if axis in {"data", EXPERT_DATA})
    busy = compute_s + sum(seconds for _, seconds in exposed) - late
    bubble_s = busy * (degrees.pipeline - 1) / micro_batches(job, degrees)
    return busy + bubble_s + late, bubble_s


def _left_open(job: Job, degrees: ParallelismDegrees) -> list[str]:
    """ParallelismDegrees that the job does not write and that its GPUs give."""
    if "data" in dict(job.parallelism) or degrees.data == 1:
        return []
    why = "the ways that are left" if job.parallelism else "no parallelism is told"
    return [f"data {degrees.data} ({why})"]


def _sources(job: Job, groups: Mapping[str, IntArray]) -> list[str]:
    """Which of model and traffic holds where the job tells both, and axes whose traffic it leaves out."""
    if job.traffic is None:
        return []
    told = [each.axis for each in job.traffic.axes]
    if job.trains is None:
        silent = [axis for axis in groups if axis != EXPERT_DATA and axis not in told]
        return [f"no traffic along {axis} (none is told)" for axis in silent]
    wins = [f"traffic.{axis}" for axis in told]
    wins += ["traffic.compute"] if job.traffic.compute_s is not None else []
    words = [f"{' and '.join(wins)} before what the model implies"] if wins else []
    if job.traffic.micro_batches > 1:
        words.append("micro-batches as the model's, not traffic.micro_batches")
    return words


def compute_of(fabric: Fabric, job: Job, ranks: Ranks) -> tuple[float, list[str]]:
    """(seconds of arithmetic, what was assumed for it). Raises BadInput where a GPU's peak is not known."""
    if job.traffic is not None and job.traffic.compute_s is not None:
        return job.traffic.compute_s, []
    if job.trains is None:
        return 0.0, ["no computing: the job tells neither traffic.compute nor a model"]
    models = sorted({fabric.machine_of_node(node).gpu or "" for node, _ in ranks})
    peak = job.trains.peak_TFLOPS or min(traits(gpu).peak_TFLOPS for gpu in models)
    if not peak:
        unknown = ", ".join(gpu or "an unnamed model" for gpu in models)
        raise BadInput(
            f"job {job.name}: the arithmetic of GPUs of {unknown} is not known; write model.peak_TFLOPS, or "
            f"traffic.compute"
        )
    mfu = job.trains.mfu or DEFAULT_MFU
    assumed = [] if job.trains.mfu else [f"mfu {DEFAULT_MFU:g}"]
    return flops_of(job.trains) / (len(ranks) * peak * 1e12 * mfu), assumed


def _price(
    pricer: Pricer,
    job: Job,
    flows: list[Flow],
    groups: Mapping[str, IntArray],
    ranks: Ranks,
    compute_s: float,
) -> list[FlowCost]:
    table = np.array(ranks, dtype=np.int64).reshape(-1, 2)
    hiding = Hiding(job, compute_s)
    costs = []
    for flow in flows:
        of_axis = groups.get(flow.axis)
        if of_axis is None:
            continue
        turns = turn_of_group(flow.axis, len(of_axis), len(ranks))
        cost = cost_of_flow(pricer, flow, table[of_axis], turns)
        costs.append(replace(cost, exposed_s=hiding.exposed_s(flow.axis, cost.seconds)))
    return costs


class Hiding:
    """What of a step's traffic shows, flow after flow: those of an axis share what there is to hide behind."""

    def __init__(self, job: Job, compute_s: float) -> None:
        self._told = dict(job.overlap)
        self._compute_s = compute_s
        self._left_s = {"data": BACKWARD_SHARE * compute_s}

    def exposed_s(self, axis: str, seconds: float) -> float:
        """What of a flow's seconds shows, after the flows asked for before."""
        axis = axis.removeprefix("expert-")
        if self._compute_s == 0:
            return seconds - self._told.get(axis, 0.0) * seconds
        left_s = self._left_s.get(axis, self._compute_s)
        hidden_s = min(self._told.get(axis, OVERLAP[axis]) * seconds, left_s)
        self._left_s[axis] = left_s - hidden_s
        return seconds - hidden_s


def turn_of_group(axis: str, groups: int, ranks: int) -> IntArray:
    """When each group of an axis runs: all at once (0); of a pipeline the pairs of every second stage."""
    number = np.arange(groups, dtype=np.int64)
    if axis != "pipeline":
        return np.zeros_like(number)
    return number // (ranks - groups) % 2  # the pairs of a stage are as many as its ranks
