"""The state of one GPU: whole, split into MIG instances, or shared; and the rules for splitting the GPUs of a node.

A state is a value: taking a part gives another state, so copies of an occupancy share states, and use them as keys.

    plain           nobody holds anything; MIG mode is off
    whole           one member holds all of it
    MIG mode on     cut into instances, each held by one member or idle
    shared          tenants hold shares of it, all shared in one way (in turns, or side by side under MPS)

How a state changes: a member takes parts (`node_state`) or gives them back (`release`); `mig_cut` says how a GPU is
cut. Who holds what is in `occupancy`; which part a member gets, and what cutting costs, is decided in `placement`.
"""

from dataclasses import dataclass
from functools import lru_cache

from gantree.model.cluster import Machine, Node
from gantree.model.placements import SharePart
from gantree.model.values import quick
from gantree.topology.hardware.gpu_models import gpu_model
from gantree.topology.hardware.mig import MigInstance, MigTable, mig_table

MILLIONTHS = 1_000_000
"""Compute of a GPU is counted in millionths of it, so that taking and giving back never drifts."""

REMAINDER = "the rest"
"""Isolation of a share, and profile of an instance of one memory slice, that are kept; role of the member that keeps
them."""


@quick
@dataclass(frozen=True, slots=True, order=True)
class Instance:
    """A MIG instance: the memory slice at which it starts, its profile, whether a member holds it."""

    start: int
    profile: str
    held: bool = False

    @property
    def idle(self) -> "Instance":
        """The same instance, held by nobody."""
        return Instance(self.start, self.profile) if self.held else self


@quick
@dataclass(frozen=True, slots=True)
class GpuState:
    """One GPU: whole (one member holds all of it), or in MIG mode with instances (by start), or shared by tenants.

    kept is compute, in millionths, that is kept beside tenants. cut is how it really is cut, all instances as if idle,
    where room held for those to come stands otherwise; None: as it stands. Holders have no names here, so that GPUs in
    like states are equal.
    """

    whole: bool = False
    mig: bool = False
    instances: tuple[Instance, ...] = ()
    tenants: tuple[SharePart, ...] = ()
    kept: int = 0
    cut: "GpuState | None" = None

    @property
    def really(self) -> "GpuState":
        """How it is cut, whoever holds what: MIG mode and instances, all as if idle."""
        if self.cut is not None:
            return self.cut
        return GpuState(mig=self.mig, instances=tuple(one.idle for one in self.instances))

    @property
    def held(self) -> bool:
        """Whether anything of it is held or kept."""
        if self.whole or self.tenants or self.kept > 0:
            return True
        return bool(self.instances) and any(one.held for one in self.instances)

    @property
    def held_instances(self) -> tuple[MigInstance, ...]:
        """The instances that members hold, by start."""
        return tuple(MigInstance(one.profile, one.start) for one in self.instances if one.held)


PLAIN = GpuState()

WHOLE = GpuState(whole=True)

GpuStates = tuple[GpuState, ...]
"""States of the GPUs of one node, by GPU."""


@dataclass(frozen=True, slots=True, eq=False)
class PartRules:
    """What cutting and sharing the GPUs of a node obeys; one object for all nodes alike, so identity compares them.

    table is None for GPUs without MIG, memory_GiB that of one GPU (None: not known, then not counted). mig_by, shares
    and tenants are as in `model.cluster.Node`.
    """

    gpu: str | None
    table: MigTable | None
    memory_GiB: float | None
    mig_by: str
    shares: tuple[str, ...]
    tenants: int | None


def rules_of(machine: Machine, node: Node) -> PartRules:
    """The rules of a node; the same object for nodes alike."""
    return _rules(machine.gpu, node.mig_by, node.shares, node.tenants)


@lru_cache(maxsize=1024)
def _rules(gpu: str | None, mig_by: str, shares: tuple[str, ...], tenants: int | None) -> PartRules:
    model = gpu_model(gpu)
    return PartRules(
        gpu, mig_table(gpu), model.memory_GiB if model else None, mig_by, shares, tenants
    )


@lru_cache(maxsize=1 << 16)
def states_of_mask(gpus: int, free_mask: int) -> GpuStates:
    """States of a node of so many GPUs of which none is cut or shared: each is plain or whole."""
    return tuple(PLAIN if free_mask >> gpu & 1 else WHOLE for gpu in range(gpus))


def free_millionths(state: GpuState) -> int:
    """Compute of a shared or plain GPU that no tenant holds and that is not kept, in millionths."""
    return max(0, left_by_tenants(state) - state.kept)


def left_by_tenants(state: GpuState) -> int:
    return MILLIONTHS - sum(map(millionths_of, state.tenants))


def millionths_of(part: SharePart) -> int:
    return round(part.compute * MILLIONTHS)


def free_share_KiB(rules: PartRules, state: GpuState) -> int | None:
    """Memory of a shared or plain GPU that no tenant holds; None where it is not known how much there is."""
    if rules.memory_GiB is None:
        return None
    held = sum(round(tenant.memory_GiB * (1 << 20)) for tenant in state.tenants)
    return round(rules.memory_GiB * (1 << 20)) - held
