"""Placements of gangs: the node, GPUs and NICs of each member, and the predicted cost."""

from dataclasses import dataclass

from gantree.model.jobs import COMPUTE_PARTITIONS
from gantree.model.values import quick

FABRIC_TIER = "fabric"
"""Name of the tier that holds the whole cluster; its one domain has the empty path."""


@dataclass(frozen=True, slots=True)
class Domain:
    """One node of the topology tree: its tier and its path from the widest tier ("s0/l0")."""

    tier: str
    name: str


@dataclass(frozen=True, slots=True)
class MigPart:
    """One MIG instance: the GPU it is cut from, its profile, the memory slice at which it starts.

    Or a compute partition of an AMD GPU: the mode of the GPU is its profile.
    """

    gpu: int
    profile: str
    start: int

    @property
    def kind(self) -> str:
        """What it is called."""
        return "compute partition" if self.profile in COMPUTE_PARTITIONS else "MIG instance"


@dataclass(frozen=True, slots=True)
class SharePart:
    """A share of one GPU: compute between 0 and 1, memory in GiB, and how it is shared (one of ISOLATIONS).

    alone: the GPU is exclusive while the share is held (a rank of a gang that allows no neighbours).
    """

    gpu: int
    compute: float
    memory_GiB: float
    isolation: str
    alone: bool = False


@dataclass(frozen=True, slots=True)
class NumaPart:
    """What a member holds on one NUMA node, by its number; None if the machine description has no NUMA nodes."""

    numa: int | None
    cpus: float = 0.0
    memory_GiB: float = 0.0
    memory_GBps: float = 0.0


@quick
@dataclass(frozen=True, slots=True)
class MemberPlacement:
    """One member: its role, its number in the role (topology order), its node and what it holds there.

    gpus are whole GPUs, zero-based indices in link order; parts of GPUs are in mig or share. nics are
    device names; cpus and memory_GiB are totals, of which numa has the part of each NUMA node, if known.
    """

    role: str
    rank: int
    node: str
    gpus: tuple[int, ...] = ()
    nics: tuple[str, ...] = ()
    cpus: float = 0.0
    memory_GiB: float = 0.0
    mig: tuple[MigPart, ...] = ()
    share: SharePart | None = None
    devices: tuple[tuple[str, int], ...] = ()
    numa: tuple[NumaPart, ...] = ()

    @property
    def parts(self) -> tuple[int, ...]:
        """GPUs of which the member holds a part."""
        return (*(part.gpu for part in self.mig), *((self.share.gpu,) if self.share else ()))


def holder_beside(job: str) -> str:
    """The foreign holder of what nobody can have while a job runs, and what is not counted as the job's own."""
    return f"beside {job}"


@dataclass(frozen=True, slots=True)
class GpuChange:
    """Repartitioning of a GPU before the gang starts: MIG mode on, off or unchanged; instances destroyed, then created.

    Only idle instances are destroyed. seconds is the expected duration.
    """

    node: str
    gpu: int
    mode: bool | None
    destroy: tuple[MigPart, ...]
    create: tuple[MigPart, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Predicted:
    """The predicted cost of a placement.

    comm_s: seconds of one all-reduce of 1 GiB over all GPUs of the gang, by which placements are compared. step_s:
    seconds of a training step, None if the job does not declare its traffic. crossings: per tier, how many hops of the
    ring over consecutive ranks leave a domain of that tier. best_step_s: seconds of a step at the best place that the
    empty cluster has for the job on the same GPU model, None where that is no shorter, or not known.
    """

    comm_s: float
    crossings: tuple[tuple[str, int], ...]
    step_s: float | None = None
    best_step_s: float | None = None

    @property
    def slower(self) -> float:
        """The part of a step, 0 to 1, that the job would be without at its best place."""
        if not self.step_s or self.best_step_s is None:
            return 0.0
        return max(0.0, 1.0 - self.best_step_s / self.step_s)


@quick
@dataclass(frozen=True, slots=True)
class Placement:
    """The placement of a whole gang. domain is the narrowest that holds all members; changes come before its start.

    fetch_s are the seconds that its slowest node needs to fetch the job's data at line rate. ranks is the global
    rank of each process, member by member; () where ranks follow the members.
    """

    members: tuple[MemberPlacement, ...]
    domain: Domain
    predicted: Predicted
    changes: tuple[GpuChange, ...] = ()
    fetch_s: float = 0.0
    ranks: tuple[int, ...] = ()

    @property
    def nodes(self) -> dict[str, None]:
        """Return the nodes of the members, each once, in member order."""
        return dict.fromkeys(member.node for member in self.members)

    def gpus_of_node(self) -> dict[str, tuple[int, ...]]:
        """Return the GPUs held on each node, in member order."""
        held: dict[str, tuple[int, ...]] = {}
        for member in self.members:
            held[member.node] = held.get(member.node, ()) + member.gpus
        return held


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """A gang that is to move from its placement to another one."""

    job: str
    source: Placement
    target: Placement
