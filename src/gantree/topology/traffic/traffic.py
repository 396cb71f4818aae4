"""The traffic of a job per step: groups by axis of parallelism, and the bytes of each. Times are in `step`.

One rank a GPU, in rank order. Ranks are laid out as Megatron-LM does it: tensor fastest, then context, then data,
pipeline outermost; expert groups are runs of neighbouring data replicas, so expert ways lie within data ways and do not
multiply the ranks: tensor x context x data x pipeline = GPUs. data may be left out and is what remains. A job whose
framework counts otherwise says so (`Job.ranks_as_written`): then the axes count in the order in which they are written,
the fastest first, and those that are not written last.

Bytes are told by the job or derived from its model, per rank and micro-batch (b sequences of s tokens, hidden width h,
T, C, E, D, P ways, v bytes a value; N parameters, A of them in experts, k experts a token, m micro-batches a replica):

- tensor: two all-reduces of b s h v / C forward and two backward, each layer (Shoeybi et al. 2019, section 3; with
  sequence parallelism an all-gather and a reduce-scatter each, of the same bytes: Korthikanti et al. 2022).
- context: keys and values, 2 b (s/C) h v x kv_share / T, go round the ring: C-1 sends forward, twice that backward, for
  their gradients go round too (Liu et al. 2023, Ring Attention).
- expert: dispatch and combine, forward and backward: four all-to-alls of k b s h v / (C T) a layer (Lepikhin et al.
  2020, GShard; each tensor rank sends its part of the tokens).
- pipeline: b s h v / (C T) to the next stage forward and to the last backward (Narayanan et al. 2021, section 4.1).
- data: gradients of the dense parameters (N - A) / (T P) among all D x C replicas, those of experts A / (E T P) among
  the D C / E that hold the same, layer by layer. With the optimizer sharded a reduce-scatter of gradients and an
  all-gather of values; with parameters sharded an all-gather forward and one backward as well, each micro-batch
  (Rajbhandari et al. 2020, ZeRO, section 7).

Recomputed activations, embeddings and attention's own arithmetic are left out.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from gantree.model.errors import BadInput
from gantree.model.jobs import AXES, AxisTraffic, Job, Transformer
from gantree.text.words import plural
from gantree.topology.fabric.fabric import IntArray

EXPERT_DATA = "expert-data"
"""The replicas that hold the same experts: a group of its own beside the five axes."""
DEFAULT_COLLECTIVES = {"tensor": "all_reduce", "context": "send_recv", "expert": "all_to_all", "data": "all_reduce",
         EXPERT_DATA: "all_reduce", "pipeline": "send_recv"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ParallelismDegrees:
    """The degree of parallelism along each axis; expert divides data. order: how ranks count, the fastest first."""

    tensor: int
    context: int
    expert: int
    data: int
    pipeline: int
    order: tuple[str, ...] = AXES

    @property
    def replicas(self) -> int:
        """Ranks that hold the same dense parameters."""
        return self.data * self.context

    @property
    def grid(self) -> dict[str, int]:
        """Ranks along each axis of the grid that they fill, the slowest axis first; data without its expert ways."""
        sizes = {"tensor": self.tensor, "context": self.context, "expert": self.expert,
                 "data": self.data // self.expert, "pipeline": self.pipeline}  # fmt: skip
        return {axis: sizes[axis] for axis in reversed(self.order)}


@dataclass(frozen=True, slots=True)
class Flow:
    """One kind of traffic: `calls` collectives of size_bytes a step in every group of an axis."""

    axis: str
    collective: str
    size_bytes: float
    calls: int


def degrees_of(job: Job, ranks: int) -> ParallelismDegrees:
    """Return the ways of a job over so many GPUs. Raises BadInput where they do not multiply to them."""
    told = dict(job.parallelism)
    tensor, context, pipeline = (told.get(axis, 1) for axis in ("tensor", "context", "pipeline"))
    others = tensor * context * pipeline
    data = told.get("data") or max(1, ranks // others)
    if others * data != ranks:
        raise BadInput(
            f"job {job.name}: parallelism of tensor {tensor} x context {context} x data {data} x pipeline {pipeline} "
            f"is {plural(others * data, 'rank')}, the gang has {plural(ranks, 'GPU')} (expert ways lie within data)"
        )
    expert = told.get("expert", 1)
    if data % expert:
        raise BadInput(
            f"job {job.name}: {expert} expert ways do not divide the {data} data ways that they lie within"
        )
    return ParallelismDegrees(tensor, context, expert, data, pipeline, _order(job))


def _order(job: Job) -> tuple[str, ...]:
    """How ranks count, the fastest axis first."""
    if not job.ranks_as_written:
        return AXES
    written = tuple(axis for axis, _ in job.parallelism)
    return (*written, *(axis for axis in AXES if axis not in written))


def groups_of(degrees: ParallelismDegrees) -> dict[str, IntArray]:
    """Return for each axis of two or more ways its groups, [group, rank], ranks counted from 0 and rising in a group.

    The groups of "pipeline" are its pairs of neighbouring stages, those of the first two stages first.
    """
    grid = degrees.grid
    ranks = np.arange(int(np.prod(tuple(grid.values()))), dtype=np.int64).reshape(*grid.values())
    along = {
        "tensor": _runs(ranks, grid, "tensor"),
        "context": _runs(ranks, grid, "context"),
        "expert": _runs(ranks, grid, "expert"),
        EXPERT_DATA: _runs(ranks, grid, "data", "context"),
        "data": _runs(ranks, grid, "data", "expert", "context"),
    }
    stages = np.moveaxis(ranks, list(grid).index("pipeline"), 0).reshape(degrees.pipeline, -1)
    along["pipeline"] = np.stack([stages[:-1].ravel(), stages[1:].ravel()], axis=1)
    return {axis: groups for axis, groups in along.items() if groups.shape[1] > 1 and len(groups)}


def _runs(ranks: IntArray, grid: Mapping[str, int], *axes: str) -> IntArray:
    """Ranks that differ along these axes alone, [group, rank]."""
    moved = [number for number, axis in enumerate(grid) if axis in axes]
    last = range(ranks.ndim - len(moved), ranks.ndim)
    size = int(np.prod([grid[axis] for axis in axes]))
    return np.moveaxis(ranks, moved, last).reshape(-1, size)


def micro_batches(job: Job, degrees: ParallelismDegrees) -> int:
    """Return how many micro-batches a replica goes through in a step. Raises BadInput where they are not whole."""
    if job.trains is None:
        return job.traffic.micro_batches if job.traffic else 1
    at_once = degrees.data * job.trains.micro_batch
    if job.trains.batch % at_once:
        raise BadInput(
            f"job {job.name}: a batch of {job.trains.batch} is no multiple of data {degrees.data} x micro_batch "
            f"{job.trains.micro_batch}"
        )
    return job.trains.batch // at_once


def flows_of(job: Job, degrees: ParallelismDegrees) -> list[Flow]:
    """Return what a job sends a step: what it tells of an axis, else what its model implies."""
    told = {each.axis: each for each in job.traffic.axes} if job.traffic else {}
    flows = list(_told(told))
    if job.trains is not None:
        derived = _derived(job.trains, degrees, micro_batches(job, degrees))
        flows += [flow for flow in derived if flow.axis.removeprefix("expert-") not in told]
    order = (*AXES[:3], EXPERT_DATA, *AXES[3:])
    flows = [flow for flow in flows if flow.calls and flow.size_bytes]
    return sorted(flows, key=lambda flow: order.index(flow.axis))


def _told(told: Mapping[str, AxisTraffic]) -> Iterator[Flow]:
    for axis, each in told.items():
        collective = each.collective or DEFAULT_COLLECTIVES[axis]
        yield Flow(axis, collective, each.size_bytes / each.calls, each.calls)


def _derived(model: Transformer, degrees: ParallelismDegrees, micro: int) -> Iterator[Flow]:
    layers = max(1, model.layers // degrees.pipeline)
    tokens = model.micro_batch * model.sequence / degrees.context
    activation = tokens * model.hidden * model.value_bytes
    kv = 2 * activation * model.kv_share / degrees.tensor
    yield Flow("tensor", "all_reduce", activation, 4 * layers * micro)
    yield Flow("context", "send_recv", kv, 3 * (degrees.context - 1) * layers * micro)
    if model.experts:
        sent = activation * model.experts_per_token / degrees.tensor
        yield Flow("expert", "all_to_all", sent, 4 * layers * micro)
    yield from _of_replicas(model, degrees, layers, micro)
    yield Flow("pipeline", "send_recv", activation / degrees.tensor, 2 * micro)


def _of_replicas(
    model: Transformer, degrees: ParallelismDegrees, layers: int, micro: int
) -> Iterator[Flow]:
    """Gradients and, where replicas share out their state, values."""
    dense = (model.parameters - model.expert_parameters) / (
        degrees.tensor * degrees.pipeline * layers
    )
    of_experts = model.expert_parameters / (
        degrees.expert * degrees.tensor * degrees.pipeline * layers
    )
    for axis, parameters in (("data", dense), (EXPERT_DATA, of_experts)):
        gradients, values = parameters * model.gradient_bytes, parameters * model.value_bytes
        if model.sharded == "none":
            yield Flow(axis, "all_reduce", gradients, layers)
        elif model.sharded == "optimizer":
            yield Flow(axis, "reduce_scatter", gradients, layers)
            yield Flow(axis, "all_gather", values, layers)
        else:
            yield Flow(axis, "reduce_scatter", gradients, layers * micro)
            yield Flow(axis, "all_gather", values, 2 * layers * micro)


def flops_of(model: Transformer) -> float:
    """Return floating point operations of a step: 6 for each parameter that a token meets and each token.

    Two forward, four backward (Kaplan et al. 2020); of the experts a token meets experts_per_token.
    """
    return 6.0 * met_parameters(model) * model.sequence * model.batch


def met_parameters(model: Transformer) -> float:
    """Return the parameters that a token meets: of the experts, those of experts_per_token."""
    if not model.experts:
        return model.parameters
    left_out = 1 - model.experts_per_token / model.experts
    return model.parameters - model.expert_parameters * left_out
