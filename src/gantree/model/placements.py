"""Where a gang runs: member by member the node, GPUs and NICs, and what the place is predicted to cost."""

from dataclasses import dataclass

FABRIC_TIER = "fabric"
"""Name of the tier that holds the whole cluster; its one domain has the empty path."""


@dataclass(frozen=True, slots=True)
class Domain:
    """One node of the topology tree: its tier and its path from the widest tier ("s0/l0")."""

    tier: str
    name: str


@dataclass(frozen=True, slots=True)
class MemberPlacement:
    """One member: its role, its number in the role (topology order), its node and what it holds there.

    gpus are zero-based indices in link order; nics are device names; cpus and memory_GiB are what is held.
    """

    role: str
    rank: int
    node: str
    gpus: tuple[int, ...] = ()
    nics: tuple[str, ...] = ()
    cpus: float = 0.0
    memory_GiB: float = 0.0


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


@dataclass(frozen=True, slots=True)
class Placement:
    """A whole gang's place. domain is the narrowest that holds all members."""

    members: tuple[MemberPlacement, ...]
    domain: Domain
    predicted: Predicted

    def gpus_of_node(self) -> dict[str, tuple[int, ...]]:
        """All GPUs held on each node, in member order."""
        held: dict[str, tuple[int, ...]] = {}
        for member in self.members:
            held[member.node] = held.get(member.node, ()) + member.gpus
        return held
