"""Placements of gangs: the node, GPUs and NICs of each member, and the predicted cost."""

from dataclasses import dataclass

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
    """One MIG instance: the GPU it is cut from, its profile, the memory slice at which it starts."""

    gpu: int
    profile: str
    start: int


@dataclass(frozen=True, slots=True)
class SharePart:
    """A share of one GPU: compute between 0 and 1, memory in GiB, and how it is shared (one of ISOLATIONS).

    alone: nobody else may come onto this GPU while it is held (a rank of a gang that allows no neighbours).
    """

    gpu: int
    compute: float
    memory_GiB: float
    isolation: str
    alone: bool = False


@dataclass(frozen=True, slots=True)
class NumaPart:
    """What a member holds on one NUMA node, by its number; None where the machine does not tell them apart."""

    numa: int | None
    cpus: float = 0.0
    memory_GiB: float = 0.0
    memory_GBps: float = 0.0


@quick
@dataclass(frozen=True, slots=True)
class MemberPlacement:
    """One member: its role, its number in the role (topology order), its node and what it holds there.

    gpus are whole GPUs, zero-based indices in link order; a part of a GPU stands in mig or share instead. nics are
    device names; cpus and memory_GiB are what is held, of which numa says where on the node, if the machine tells.
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
        """GPUs of which it holds a part."""
        return (*(part.gpu for part in self.mig), *((self.share.gpu,) if self.share else ()))


@dataclass(frozen=True, slots=True)
class GpuChange:
    """How a GPU must be cut anew before the gang starts: MIG mode on, off or as it is; instances destroyed, then made.

    Idle instances only are destroyed. seconds is what it takes.
    """

    node: str
    gpu: int
    mode: bool | None
    destroy: tuple[MigPart, ...]
    create: tuple[MigPart, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Predicted:
    """The price of a placement.

    comm_s: seconds of one all-reduce of 1 GiB over all GPUs of the gang, the yardstick by which places are
    compared. step_s: seconds of a training step, None while the job does not describe its traffic.
    crossings: per tier, how many hops of the ring over consecutive ranks leave a domain of that tier.
    """

    comm_s: float
    crossings: tuple[tuple[str, int], ...]
    step_s: float | None = None


@quick
@dataclass(frozen=True, slots=True)
class Placement:
    """A whole gang's place. domain is the narrowest that holds all members; changes come before its start.

    fetch_s is how long its slowest node takes to fetch the data that the job names, at line rate. ranks is the global
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
        """The nodes of its members, each once, in member order."""
        return dict.fromkeys(member.node for member in self.members)

    def gpus_of_node(self) -> dict[str, tuple[int, ...]]:
        """All GPUs held on each node, in member order."""
        held: dict[str, tuple[int, ...]] = {}
        for member in self.members:
            held[member.node] = held.get(member.node, ()) + member.gpus
        return held
