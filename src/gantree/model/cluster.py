"""What a site has: machines, nodes on a tree of tiers, links, and what is already taken.

Plain words as a user writes them in cluster.yaml. The arrays that a search runs on are `topology.fabric`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

NO_LINK = ""
"""Link class of a pair that the source did not name."""


@dataclass(frozen=True, slots=True)
class Nic:
    """A network card: its device name, the GPUs it is nearest to, and its rail."""

    name: str
    near: tuple[int, ...] = ()
    rail: int | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine model: what is inside one node.

    links[a][b] is the class of the path between GPUs a and b as `nvidia-smi topo -m` names it ("NV18", "PIX",
    "PXB", "PHB", "NODE", "SYS"), "X" on the diagonal, NO_LINK where unknown. cpus and memory_GiB are None, and
    nics_counted is False, where the site did not say: then they are not counted, and members get no NIC by name.
    """

    name: str
    gpus: int
    gpu: str | None = None
    links: tuple[tuple[str, ...], ...] = ()
    numa: tuple[int | None, ...] = ()
    nics: tuple[Nic, ...] = ()
    cpus: float | None = None
    memory_GiB: float | None = None
    nics_counted: bool = True


@dataclass(frozen=True, slots=True)
class Link:
    """What crossing a tier costs: GB/s and us per GPU; up-link capacity of a domain in GB/s, None if unknown."""

    bandwidth_GBps: float
    latency_us: float
    uplink_GBps: float | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """One node: its machine, its place (one name per outer tier, widest first), its labels.

    launch is put before every command started on it (a virtual node may be `ip netns exec n0`), address is
    where other nodes reach it.
    """

    name: str
    machine: str
    at: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    launch: tuple[str, ...] = ()
    address: str = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Allocation:
    """What a job that gantree did not start holds on one node. nics is a count; the nearest are taken."""

    job: str
    node: str
    gpus: tuple[int, ...] = ()
    cpus: float = 0.0
    memory_GiB: float = 0.0
    nics: int = 0


@dataclass(frozen=True, slots=True)
class Cluster:
    """A whole site. tiers run from wide to narrow and end with "node"."""

    name: str
    tiers: tuple[str, ...]
    machines: Mapping[str, Machine]
    nodes: tuple[Node, ...]
    links: Mapping[str, Link] = field(default_factory=dict)
    allocations: tuple[Allocation, ...] = ()
