"""Shares of GPUs: how many members with a part of a GPU's compute and memory a node takes, and on which GPUs.

A share is a promise of amounts: so much of the compute and so much of the memory of one GPU, whose tenants take turns
(time-slicing) or run side by side under CUDA MPS. What keeps them to it is the executor's: MPS has limits
(CUDA_MPS_ACTIVE_THREAD_PERCENTAGE, CUDA_MPS_PINNED_DEVICE_MEM_LIMIT), time-slicing protects nobody. MIG, which cuts the
GPU itself, is in `placement.machine.mig`; what is held of a GPU in `topology.occupancy.gpus.gpu_state`.

    amounts     gpu_share of the compute and gpu_memory_GiB of the memory. Who names one of the two gets as large a part
                of the other. Together the tenants of a GPU hold no more than it has.
    way         All tenants of a GPU share it the same way: the GPU is under MPS or it is not. The first tenant decides;
                where it admits several, the way that the node names first. A GPU in MIG mode is shared where nothing of
                it is held and MIG mode may be switched off; of equal GPUs those that are out of it come first.
    tenants     At most as many as the node says, and under MPS as many clients as its server takes.
    apart       Ranks that talk to each other never share a GPU: NCCL refuses two ranks on one ("Duplicate GPU
                detected", ncclInvalidUsage).
    alone       Such a rank also has its GPU to itself, unless its shape allows neighbours: one slow rank slows all, and
                a stranger who fills the GPU now and then makes it slow. A GPU that is held alone is full.

Each member goes where least is left afterwards, so that empty GPUs stay empty. The shares of one call are equal, so
whoever is put where hardly matters to the number that fits: it is the sum over the GPUs.
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

from gantree.model.jobs import ISOLATIONS, Shape
from gantree.model.placements import SharePart
from gantree.topology.hardware.gpu_models import GpuModel, gpu_model
from gantree.topology.occupancy.gpus.gpu_state import (
    MILLIONTHS,
    GpuState,
    PartRules,
    free_millionths,
)
from gantree.topology.occupancy.gpus.node_state import NodeState

TIME_SLICING, MPS = ISOLATIONS

MPS_CLIENTS = 48
"""Clients of one GPU under MPS from Volta on, up to CUDA 13.0 (NVIDIA, "Multi-Process Service", client-server
connection limits). A member counts as one client."""

MPS_CLIENTS_NEWEST = 60
"""The same from CUDA 13.1 on. A site that has it says `tenants: 60`."""

MPS_CLIENTS_BEFORE_VOLTA = 16

VOLTA = 70
"""Its compute capability, times ten."""

ANY_NUMBER = 1 << 20
"""The limit of tenants where none is configured."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """How GPUs of a node may be shared: ways in the order preferred, most tenants by way, memory of each GPU.

    memory_MiB is None where the GPU model's is not known; memory is not counted then.
    """

    most_of_way: tuple[tuple[str, int], ...]
    memory_MiB: int | None

    def most(self, way: str) -> int:
        """Tenants that a GPU shared this way may have; 0 where it cannot be."""
        return next((most for known, most in self.most_of_way if known == way), 0)


@lru_cache(maxsize=1024)
def sharing_of(rules: PartRules) -> Sharing:
    """What nodes under these rules offer."""
    model = gpu_model(rules.gpu)
    most = [(way, _most_tenants(rules.tenants, model, way)) for way in rules.shares]
    memory_GiB = rules.memory_GiB
    return Sharing(
        tuple((way, tenants) for way, tenants in most if tenants),
        None if memory_GiB is None else round(memory_GiB * 1024),
    )


def _most_tenants(told: int | None, model: GpuModel | None, way: str) -> int:
    """Tenants on one GPU. A TPU chip belongs to one process, and MPS is NVIDIA's; of unknown models all is believed."""
    architecture = model.architecture if model else ""
    if architecture.startswith("tpu") or (way == MPS and architecture.startswith("gfx")):
        return 0
    if way != MPS:
        return ANY_NUMBER if told is None else told
    before_volta = architecture.startswith("sm") and int(architecture[2:]) < VOLTA
    if told is None:
        return MPS_CLIENTS_BEFORE_VOLTA if before_volta else MPS_CLIENTS
    return min(told, MPS_CLIENTS_BEFORE_VOLTA if before_volta else MPS_CLIENTS_NEWEST)


@dataclass(frozen=True, slots=True)
class Share:
    """The share of a GPU of one member: compute, memory, admitted isolations, whether it must be alone."""

    millionths: int
    memory_MiB: int
    ways: tuple[str, ...]
    alone: bool

    @classmethod
    def of(cls, sharing: Sharing, shape: Shape, apart: bool) -> Self | None:
        """Return the share of such GPUs that a shape requests; None if they cannot provide it."""
        amounts = _amounts(shape, sharing.memory_MiB)
        ways = tuple(way for way, _ in sharing.most_of_way if shape.isolation in (None, way))
        if amounts is None or not ways:
            return None
        return cls(*amounts, ways, apart and not shape.neighbours)

    def members_on(self, sharing: Sharing, gpu: GpuState) -> int:
        """Return how many such members fit on a GPU beside its tenants, if they may share it."""
        way, tenants = self.way_on(gpu), gpu.tenants
        if way is None or any(tenant.alone for tenant in tenants) or (self.alone and tenants):
            return 0
        members = min(free_millionths(gpu) // self.millionths, sharing.most(way) - len(tenants))
        memory_MiB = free_MiB(sharing, gpu)
        if memory_MiB is not None and self.memory_MiB:
            members = min(members, memory_MiB // self.memory_MiB)
        return max(0, members)

    def way_on(self, gpu: GpuState) -> str | None:
        """The way in which it would share a GPU; None where it does not admit the tenants' or the GPU is not shared."""
        if gpu.whole or gpu.mig:
            return None
        if not gpu.tenants:
            return self.ways[0]
        return gpu.tenants[0].isolation if gpu.tenants[0].isolation in self.ways else None

    def part(self, number: int, gpu: GpuState) -> SharePart:
        """This share, taken of a GPU that has room for it."""
        way = self.way_on(gpu)
        assert way is not None, f"{self} on {gpu}"
        return SharePart(
            number, self.millionths / MILLIONTHS, self.memory_MiB / 1024, way, self.alone
        )


def _amounts(shape: Shape, of_gpu_MiB: int | None) -> tuple[int, int] | None:
    """(compute in millionths, memory in MiB) of a GPU with so much memory; None for more than it has.

    Where only the memory is named and the GPU's is not known, nobody can tell its part: None.
    """
    if shape.gpu_share is not None:
        compute = _whole(shape.gpu_share * MILLIONTHS)
    elif shape.gpu_memory_GiB is not None and of_gpu_MiB:
        compute = _whole(shape.gpu_memory_GiB * 1024 * MILLIONTHS / of_gpu_MiB)
    else:
        return None
    if shape.gpu_memory_GiB is not None:
        memory_MiB = round(shape.gpu_memory_GiB * 1024)
    else:
        memory_MiB = compute * (of_gpu_MiB or 0) // MILLIONTHS
    fits = 0 < compute <= MILLIONTHS and (of_gpu_MiB is None or memory_MiB <= of_gpu_MiB)
    return (compute, memory_MiB) if fits else None


def _whole(millionths: float) -> int:
    """Rounded down, so that a GPU holds n nth parts, but not because of how a computer writes 0.57."""
    return int(round(millionths, 3))


def free_MiB(sharing: Sharing, gpu: GpuState) -> int | None:
    """Return the free memory of a shared GPU; None if memory is not counted."""
    if sharing.memory_MiB is None:
        return None
    held_KiB = sum(round(tenant.memory_GiB * (1 << 20)) for tenant in gpu.tenants)
    return sharing.memory_MiB - -(-held_KiB // 1024)


def count(state: NodeState, shape: Shape, apart: bool, within: int = -1) -> int:
    """How many members of a share shape fit the GPUs of a mask; apart: each on a GPU of its own."""
    sharing = sharing_of(state.rules)
    share = Share.of(sharing, shape, apart)
    if share is None:
        return 0
    on_each = (
        share.members_on(sharing, gpu)
        for number, gpu in enumerate(state.for_shares())
        if within >> number & 1
    )
    return sum(min(members, 1) if apart else members for members in on_each)


def choose(
    state: NodeState, shape: Shape, members: int, apart: bool, without: Collection[int] = ()
) -> tuple[SharePart, ...] | None:
    """Return the part of each of so many members, each where it leaves least; None if not all fit.

    apart: each on a GPU of its own. without are GPUs that are not to be used: those of other ranks of the gang.
    """
    sharing = sharing_of(state.rules)
    share = Share.of(sharing, shape, apart)
    if share is None:
        return None
    closed, parts = set(without), list[SharePart]()
    for _ in range(members):
        gpu = tightest(state, sharing, share, closed)
        if gpu is None:
            return None
        part = share.part(gpu, state.for_shares()[gpu])
        parts.append(part)
        state = state.take_share(part)
        if apart:
            closed.add(gpu)
    return tuple(parts)


def share_on(state: NodeState, shape: Shape, gpu: int) -> SharePart | None:
    """The part of one member that is to have this GPU; None where it has no room. The member is no rank of a gang."""
    sharing = sharing_of(state.rules)
    share = Share.of(sharing, shape, apart=False)
    here = state.for_shares()[gpu]
    if share is None or not share.members_on(sharing, here):
        return None
    return share.part(gpu, here)


def tightest(
    state: NodeState, sharing: Sharing, share: Share, closed: Collection[int] = ()
) -> int | None:
    """The GPU with room for one more on which least is left, the first of equal ones; None without room."""
    fitting = [
        (milli_left(sharing, gpu), state.gpus[number].mig, number)
        for number, gpu in enumerate(state.for_shares())
        if number not in closed and share.members_on(sharing, gpu)
    ]
    return min(fitting)[-1] if fitting else None


def milli_left(sharing: Sharing, gpu: GpuState) -> int:
    """Return the free part of a GPU in thousandths, of compute or memory the scarcer; 0 if it is exclusive."""
    tenants = gpu.tenants
    if gpu.whole or gpu.mig or any(tenant.alone for tenant in tenants):
        return 0
    if tenants and len(tenants) >= sharing.most(tenants[0].isolation):
        return 0
    of_compute, memory_MiB = round(free_millionths(gpu) / 1000), free_MiB(sharing, gpu)
    if memory_MiB is None or not sharing.memory_MiB:
        return of_compute
    return max(0, min(of_compute, round(memory_MiB * 1000 / sharing.memory_MiB)))


def milli_asked(sharing: Sharing, share: Share) -> int:
    """Return the size of a share in thousandths of a GPU, of compute or memory the larger; at least 1."""
    compute = round(share.millionths / 1000)
    if not sharing.memory_MiB:
        return max(1, compute)
    return max(1, compute, round(share.memory_MiB * 1000 / sharing.memory_MiB))
