"""GPU memory needed to train the model of a job, part by part, and the GPU models that have it.

Per GPU, with T, C, E, P ways of tensor, context, expert and pipeline parallelism, D replicas (data x context ways; of
experts D / E); b sequences of s tokens at a time, hidden width h, L layers, N parameters, A of them in experts:

- parameters: value_bytes x N', gradients: gradient_bytes x N', where N' = (N - A) / (T P) + A / (E T P).
- optimizer: 12 bytes x N' of Adam in mixed precision: values, momentum and variance in 32 bits; 8 bytes where the
  values are kept in 32 bits anyway (Rajbhandari et al. 2020, ZeRO, arXiv:1910.02054, section 3.1: 2 + 2 + 12 bytes).
  What `sharded` shares out is divided by D: "optimizer" the optimizer's part (ZeRO 1) and, where the framework does it,
  gradients (ZeRO 2); "parameters" all three (ZeRO 3, FSDP), and then the values of one layer are gathered as well.
- activations: of a layer b s h / (C T) x (34 + 5 a s / h) bytes, of a attention heads, kept until the backward pass
  (Korthikanti et al. 2022, arXiv:2205.05198, table 2, with sequence parallelism where there is tensor parallelism). The
  second term is what attention itself keeps; recomputing it, or never storing it (FlashAttention), is "selective".
  Recomputed in full, a layer keeps its input, 2 b s h / (C T), and one layer at a time the rest. The first stage of a
  pipeline holds min(P, micro-batches) of its micro-batches (1F1B; the same, section 4.2.3).
- reserve: RESERVE_GiB.

Of the 34 bytes 4 are keys and values, which grouped heads make narrower (kv_share), and 16 the inside of the
feed-forward layer, taken as 4 h wide; of experts it is as wide as their parameters say. Assumed: heads of HEAD_WIDTH;
layers shared out evenly over stages; activations at 2 bytes, or value_bytes where these are more. Left out: embeddings
and the vocabulary's logits as such (their parameters count as the others' do), the allocator's scraps, offloading to
the host.

What a job does not tell is a framework's habit: USUAL is what is likely, LEANEST the least that they get by with.
Inference is no training and is not described here: its memory is keys and values, of which a job tells nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Literal

from gantree.model.errors import BadInput
from gantree.model.jobs import SHARDED, Job, Role, Shape, Transformer
from gantree.text.words import plural
from gantree.topology.hardware.gpu_models import gpu_model
from gantree.topology.traffic.traffic import ParallelismDegrees, degrees_of, micro_batches

GIB = 1 << 30
RESERVE_GiB = 2.0
"""Assumption: what the CUDA context, libraries and NCCL's buffers take of a GPU; 1 to 3 GiB are usual."""
HEAD_WIDTH = 128
"""Assumption: as in GPT-3 and most models since."""
MASTER_BYTES = 12.0
FULL_PRECISION_BYTES = 8.0
"""Adam's state of a parameter: beside values of 16 bits, and beside values of 32."""

Recompute = Literal["none", "selective", "full"]


@dataclass(frozen=True, slots=True)
class MemoryAssumptions:
    """What a framework decides and a job file does not say: see the module."""

    recompute: Recompute = "selective"
    shards_gradients: bool = False


TYPICAL = MemoryAssumptions()
LEANEST = MemoryAssumptions("full", shards_gradients=True)


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes that each GPU needs, by what for."""

    parameters: float
    gradients: float
    optimizer: float
    activations: float
    gathered: float
    reserve: float = RESERVE_GiB * GIB

    @property
    def total(self) -> float:
        """All of it, in bytes."""
        return sum(size for _, size in self.parts)

    @property
    def GiB(self) -> float:
        """All of it, in GiB."""
        return self.total / GIB

    @property
    def parts(self) -> tuple[tuple[str, float], ...]:
        """(what for, bytes)."""
        return tuple((part.name, getattr(self, part.name)) for part in fields(self))


def gpu_bytes(job: Job, assumptions: MemoryAssumptions = TYPICAL) -> Footprint:
    """Return what each GPU needs for the model that a job trains.

    Raises BadInput where it describes none, has no whole GPUs, or its parallelism does not fit their number.
    """
    model = job.trains
    if model is None:
        raise BadInput(f"job {job.name} describes no model; write `model` to know its memory")
    if not job.gpus or any(role.shape.part for role in job.roles):
        raise BadInput(f"job {job.name}: the memory of a model is known for whole GPUs only")
    degrees = degrees_of(job, job.gpus)
    values, gradients, optimizer = _states(model, degrees, assumptions)
    return Footprint(
        parameters=values,
        gradients=gradients,
        optimizer=optimizer,
        activations=_activations(model, degrees, micro_batches(job, degrees), assumptions),
        gathered=_gathered(model, degrees),
    )


def _states(
    model: Transformer, degrees: ParallelismDegrees, assumptions: MemoryAssumptions
) -> tuple[float, float, float]:
    """Bytes of values, gradients and the optimizer's state on each GPU."""
    dense = (model.parameters - model.expert_parameters) / (degrees.tensor * degrees.pipeline)
    of_experts = model.expert_parameters / (degrees.expert * degrees.tensor * degrees.pipeline)
    whole = dense + of_experts
    shared_out = dense / degrees.replicas + of_experts / (degrees.replicas / degrees.expert)
    all_shared = model.sharded == "parameters"
    some_shared = model.sharded == "optimizer"
    values = shared_out if all_shared else whole
    gradients = (
        shared_out if all_shared or (some_shared and assumptions.shards_gradients) else whole
    )
    optimizer = shared_out if all_shared or some_shared else whole
    state_bytes = MASTER_BYTES if model.value_bytes < 4 else FULL_PRECISION_BYTES
    return values * model.value_bytes, gradients * model.gradient_bytes, optimizer * state_bytes


def _gathered(model: Transformer, degrees: ParallelismDegrees) -> float:
    """Bytes of the one layer whose values are gathered, where parameters are shared out."""
    if model.sharded != "parameters":
        return 0.0
    of_experts = model.expert_parameters / degrees.expert
    dense = model.parameters - model.expert_parameters
    return (dense + of_experts) / (model.layers * degrees.tensor) * model.value_bytes


def _activations(
    model: Transformer, degrees: ParallelismDegrees, micro: int, assumptions: MemoryAssumptions
) -> float:
    """Bytes that wait for the backward pass on a GPU of the first stage."""
    tokens = model.micro_batch * model.sequence / degrees.context
    unit = tokens * model.hidden / degrees.tensor * max(1.0, model.value_bytes / 2)
    layers = max(1.0, model.layers / degrees.pipeline) * min(degrees.pipeline, micro)
    linear = 7 + 4 * model.kv_share + 4 + _feed_forward(model)
    if assumptions.recompute == "full":
        return unit * (2 * layers + linear)
    scores = 5 * model.sequence / HEAD_WIDTH if assumptions.recompute == "none" else 0.0
    return unit * layers * (linear + scores)


def _feed_forward(model: Transformer) -> float:
    """Bytes of each of b s h that feed-forward layers keep: 19 where 4 h wide; of each expert that a token meets."""
    if not model.experts:
        return 19.0
    width = model.expert_parameters / (model.layers * model.experts) / (8.0 * model.hidden**2)
    return model.experts_per_token * (3.0 + 16.0 * width)


# ----- which GPUs have it


def fits(job: Job, gpu: str | None, assumptions: MemoryAssumptions = LEANEST) -> bool | None:
    """Tell whether a GPU model has the memory that a job needs; by default, whether any framework gets by with it.

    None where that is not known: the job describes no model, or the catalogue has no memory of this GPU.
    """
    need = footprint_of(job, assumptions)
    memory_GiB = memory_of(gpu)
    return None if need is None or memory_GiB is None else need.GiB <= memory_GiB


def memory_of(gpu: str | None) -> float | None:
    """Memory of a GPU model in GiB, as its name says; None where the catalogue has none."""
    model = gpu_model(gpu)
    return model.memory_GiB if model else None


def footprint_of(job: Job, assumptions: MemoryAssumptions = TYPICAL) -> Footprint | None:
    """As `gpu_bytes`, but None where that raises. Kept by what it depends on, whatever the job is called."""
    if job.trains is None or any(role.shape.part for role in job.roles):
        return None
    return _kept(job.trains, job.parallelism, job.gpus, assumptions)


@lru_cache(maxsize=4096)
def _kept(
    model: Transformer,
    parallelism: tuple[tuple[str, int], ...],
    gpus: int,
    assumptions: MemoryAssumptions,
) -> Footprint | None:
    try:
        return gpu_bytes(_bare(model, parallelism, gpus), assumptions)
    except BadInput:
        return None


def _bare(model: Transformer, parallelism: tuple[tuple[str, int], ...], gpus: int) -> Job:
    """A job of one member, with nothing but what a footprint depends on."""
    return Job("any", (Role("all", 1, Shape(gpus=gpus)),), parallelism=parallelism, trains=model)


def least_members(job: Job, gpu: str | None) -> int:
    """How far an elastic gang of one role may shrink before what its replicas share out no longer fits into a GPU.

    Its data ways shrink with it; sizes that its other ways do not divide are passed over.
    """
    role, elastic, memory_GiB = job.roles[0], job.elastic, memory_of(gpu)
    assert elastic is not None, "only elastic gangs shrink"
    if job.trains is None or memory_GiB is None or role.shape.part:
        return elastic.min
    sizes = (elastic.min, role.members, role.shape.gpus)
    fixed = tuple((axis, degrees) for axis, degrees in job.parallelism if axis != "data")
    return _least_members(job.trains, fixed, sizes, memory_GiB)


@lru_cache(maxsize=1024)
def _least_members(
    model: Transformer,
    parallelism: tuple[tuple[str, int], ...],
    sizes: tuple[int, int, int],
    memory_GiB: float,
) -> int:
    fewest, members, gpus = sizes
    least = max(fewest, members)
    for smaller in range(members - 1, fewest - 1, -1):
        need = _kept(model, parallelism, smaller * gpus, LEANEST)
        if need is not None and need.GiB > memory_GiB:
            break
        least = smaller
    return least


def fitting_models(job: Job, models: Sequence[str]) -> tuple[str, ...]:
    """Those of the GPU models that have the memory, or of which that is not known, in the same order."""
    return tuple(model for model in models if fits(job, model) is not False)


def why_not(job: Job, gpu: str) -> str:
    """Why a GPU model has too little memory for a job, in words, and what would do; "" where it has enough."""
    if job.trains is None or fits(job, gpu) is not False:
        return ""
    return _why_not(job.trains, job.parallelism, job.gpus, gpu)


@lru_cache(maxsize=1024)
def _why_not(
    model: Transformer, parallelism: tuple[tuple[str, int], ...], gpus: int, gpu: str
) -> str:
    job = _bare(model, parallelism, gpus)
    need, memory_GiB = gpu_bytes(job, LEANEST), memory_of(gpu)
    assert memory_GiB is not None, "known to be too little"
    by_size = sorted(need.parts, key=lambda part: -part[1])
    parts = ", ".join(f"{name} {_in_GiB(size)}" for name, size in by_size if size >= GIB / 2)
    needs = f"a rank needs at least {_in_GiB(need.total)} GiB ({parts})"
    return f"{gpu} has {memory_GiB:g} GiB, {needs}{_way_out(job, memory_GiB)}"


def _in_GiB(size_bytes: float) -> str:
    GiB = size_bytes / GIB
    return f"{GiB:.0f}" if GiB >= 10 else f"{GiB:.1f}"


def _way_out(job: Job, memory_GiB: float) -> str:
    """The first change of the job that makes it fit, in words; "" where none does."""
    for words, other in _otherwise(job):
        need = footprint_of(other, LEANEST)
        if need is not None and need.GiB <= memory_GiB:
            return f"; {words} would fit"
    return ""


def _otherwise(job: Job) -> Iterator[tuple[str, Job]]:
    """(in words, whole) the job with its state shared out, cut further on as many GPUs, or on more of them."""
    model = job.trains
    assert model is not None, "only jobs with a model have a footprint"
    for sharded in SHARDED[SHARDED.index(model.sharded) + 1 :]:
        yield f"model.sharded {sharded}", replace(job, trains=replace(model, sharded=sharded))
    degrees = dict(job.parallelism)
    for factor in (2, 4, 8):
        for axis in ("tensor", "pipeline"):
            more, data = degrees.get(axis, 1) * factor, degrees.get("data", factor)
            if (
                data % factor == 0
                and (model.hidden if axis == "tensor" else model.layers) % more == 0
            ):
                cut = {axis: more} | ({"data": data // factor} if "data" in degrees else {})
                yield f"{axis} {more}", replace(job, parallelism=tuple((degrees | cut).items()))
    for factor in (2, 4, 8):
        stages = degrees.get("pipeline", 1) * factor
        if model.layers % stages == 0:
            roles = tuple(replace(role, members=role.members * factor) for role in job.roles)
            larger = replace(job, roles=roles)
            deeper = replace(larger, parallelism=tuple((degrees | {"pipeline": stages}).items()))
            yield f"pipeline {stages} on {plural(larger.gpus, 'GPU')}", deeper
