"""The description of a site: machines, nodes on a tree of tiers, links, and existing allocations.

Values as in cluster.yaml. The arrays of the search are in `topology.fabric.fabric`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gantree.model.jobs import ISOLATIONS
from gantree.model.node_rules import (
    HOST_KEY,
    NODE_RESTRICTIONS_LABEL,
    NODES_LABEL,
    TOLERATES_LABEL,
    Taint,
    satisfies,
    tolerates,
)
from gantree.model.placements import MigPart, SharePart

NO_LINK = ""
"""Link class of a pair that the source does not describe."""
MARKET_LABEL = "gantree.market"
"""The label for a node's market, which every node has implicitly."""
ON_DEMAND, SPOT, ANY_MARKET = "on-demand", "spot", "any"
"""Markets. ANY_MARKET admits both; jobs that name none are not placed on spot nodes."""

TIME_SLICES = ("short", "medium", "long")
"""How long a process has a GPU that is shared in turns, in the words of NVIDIA's driver."""
CUT_BY_GPU, CUT_NOT_PERMITTED = "gpu", "not-permitted"
"""Values of `Node.mig_by`: each GPU is partitioned alone; the daemon that runs may not partition GPUs."""


@dataclass(frozen=True, slots=True)
class Nic:
    """A NIC: its device name, the GPUs nearest to it, and its rail.

    bandwidth_GBps is its rate in one direction, None if unknown; path the link class between it and the nearest GPUs
    ("PIX" behind their switch, "NODE" on their CPU), NO_LINK if unknown.
    """

    name: str
    near: tuple[int, ...] = ()
    rail: int | None = None
    bandwidth_GBps: float | None = None
    path: str = NO_LINK


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine model: what is inside one node.

    links[a][b] is the class of the path between GPUs a and b as `nvidia-smi topo -m` names it ("NV18", "PIX",
    "PXB", "PHB", "NODE", "SYS"; "XGMI1" between AMD GPUs), "X" on the diagonal, NO_LINK where unknown. peer[a][b] is
    whether they reach each other's memory directly; empty where all that a path joins do. cpus and memory_GiB are
    None, and nics_counted is False, where the site did not say: then they are not counted, and members get no NIC
    by name. devices are others than GPUs and NICs (FPGAs, DPUs), by name and count. numa_memory_GBps is the memory
    bandwidth of each NUMA node.
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
    peer: tuple[tuple[bool, ...], ...] = ()
    devices: tuple[tuple[str, int], ...] = ()
    numa_memory_GBps: float | None = None


@dataclass(frozen=True, slots=True)
class Mig:
    """A GPU in MIG mode, with the instances that it has: (profile, memory slice at which it starts)."""

    gpu: int
    instances: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Link:
    """The link of a tier: GB/s and us per GPU that crosses it; up-link capacity of a domain in GB/s (None: unknown)."""

    bandwidth_GBps: float
    latency_us: float
    uplink_GBps: float | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """One node: its machine, its place (one name per outer tier, widest first), its labels.

    partitions name its domain in other divisions of the same nodes (("power", "feed-a"), ("maintenance", "week-2")).
    launch is the prefix of every command on it (a virtual node may have `ip netns exec n0`), address is its
    network address. mig names its GPUs in MIG mode. mig_by is how GPUs are repartitioned: "gpu" (each alone), "node"
    (by a manager that needs the node empty), "nobody" (never) or "not-permitted" (by GPU, if the daemon that runs were
    permitted to). shares are the ways in which its
    GPUs may be shared (of ISOLATIONS; empty: none), at most `tenants` on a GPU (None: as many as fit), in turns of
    time_slice (of TIME_SLICES; None: as the driver has it). spot is the
    number of interruptions per day of a spot node, None for an on-demand node. taints keep members off it that do not
    tolerate them.
    """

    name: str
    machine: str
    at: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    launch: tuple[str, ...] = ()
    address: str = "127.0.0.1"
    partitions: tuple[tuple[str, str], ...] = ()
    mig: tuple[Mig, ...] = ()
    mig_by: str = "gpu"
    shares: tuple[str, ...] = ISOLATIONS
    tenants: int | None = None
    time_slice: str | None = None
    spot: float | None = None
    taints: tuple[Taint, ...] = ()

    def admits(self, labels: Iterable[tuple[str, str]]) -> bool:
        """Return whether the node has all these labels and satisfies the rules among them (`model.node_rules`).

        Spot nodes are for those alone who ask for them by MARKET_LABEL, tainted ones for those who tolerate that.
        """
        asked = tuple(labels)
        rules = dict(asked)
        tolerated = not self.taints or tolerates(self.taints, rules.get(TOLERATES_LABEL, ""))
        is_asked_for = self.spot is None or MARKET_LABEL in rules
        return tolerated and is_asked_for and all(self.suits(label) for label in asked)

    def suits(self, label: tuple[str, str]) -> bool:
        """Tell whether it has a label, is in a market, or is as a rule asks; of tolerated taints, it is.

        It has its name as its host's, where its labels say no other.
        """
        key, value = label
        match key:
            case _ if key == MARKET_LABEL:
                return value in (ANY_MARKET, ON_DEMAND if self.spot is None else SPOT)
            case _ if key in (NODES_LABEL, NODE_RESTRICTIONS_LABEL):
                return satisfies(self.name, dict(self.labels), value)
            case _ if key == HOST_KEY:
                return value == dict(self.labels).get(HOST_KEY, self.name)
            case _:
                return key == TOLERATES_LABEL or label in self.labels


@dataclass(frozen=True, slots=True)
class DomainFacts:
    """Exceptions of one domain of a tier, by its path ("s0/l0"; for the node tier the node's name).

    uplink_GBps is the capacity of all its up-links together, in one direction, where it differs from its tier's.
    health is between 0 (broken) and 1 (whole), load between 0 (idle) and 1 (its up-links are full). A node
    of health 0 is not used.
    """

    tier: str
    name: str
    uplink_GBps: float | None = None
    health: float = 1.0
    load: float = 0.0


@dataclass(frozen=True, slots=True)
class NicFacts:
    """Health and load, between 0 and 1, of one NIC of one node."""

    node: str
    nic: str
    health: float = 1.0
    load: float = 0.0


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """Health, between 0 and 1, of the links of one GPU of one node: of its PCIe port and of its NVLinks together."""

    node: str
    gpu: int
    pcie: float = 1.0
    nvlink: float = 1.0


@dataclass(frozen=True, slots=True, order=True)
class LinkId:
    """A link of a site: the up-links of a domain, by tier and path ("leaf", "s0/l0"), one NIC, or links of one GPU.

    Of a NIC the tier is "nic" and the path is NODE/NIC; of a GPU's PCIe port "gpu-pcie" and NODE/GPU, of its NVLinks
    together "gpu-nvlink". As text all are TIER:PATH.
    """

    tier: str
    path: str

    def __str__(self) -> str:
        return f"{self.tier}:{self.path}"

    @property
    def nic(self) -> tuple[str, str] | None:
        """(node, NIC) of a link that is a NIC."""
        node, _, nic = self.path.rpartition("/")
        return (node, nic) if self.tier == NIC_TIER else None

    @property
    def gpu(self) -> tuple[str, int] | None:
        """(node, GPU) of links that are of one GPU."""
        node, _, gpu = self.path.rpartition("/")
        return (node, int(gpu)) if self.tier in GPU_TIERS and gpu.isdecimal() else None


NIC_TIER = "nic"
"""In place of a tier, in the id of a link that is a NIC."""
PCIE_OF_GPU, NVLINK_OF_GPU = "gpu-pcie", "gpu-nvlink"
GPU_TIERS = (PCIE_OF_GPU, NVLINK_OF_GPU)
"""In place of a tier, in the ids of links of a GPU."""


@dataclass(frozen=True, slots=True)
class Torus:
    """Nodes on a grid with wrap-around links, such as a TPU pod or a Slurm torus3d.

    dims counts GPUs (chips) along each axis, host those of one node; nodes stand in row-major order (the last axis
    varies fastest) over dims / host. wrap says which axes close. slices are the legal boxes, in GPUs; empty: those that
    are sold of this TPU, else any box. cube: optical switches join cubes of this many GPUs along each axis into slices,
    wherever the cubes stand; empty: the links between them are fixed.
    """

    name: str
    dims: tuple[int, ...]
    host: tuple[int, ...]
    nodes: tuple[str, ...]
    wrap: tuple[bool, ...]
    slices: tuple[tuple[int, ...], ...] = ()
    cube: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Allocation:
    """Resources of one node held by a job that gantree did not start. nics is a count; the nearest are taken.

    gpus are whole GPUs; MIG instances and shares are listed separately.
    """

    job: str
    node: str
    gpus: tuple[int, ...] = ()
    cpus: float = 0.0
    memory_GiB: float = 0.0
    nics: int = 0
    mig: tuple[MigPart, ...] = ()
    shares: tuple[SharePart, ...] = ()
    devices: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class DataSet:
    """A data set or checkpoint, and a domain whose nodes all have a copy (for the node tier, a node)."""

    name: str
    tier: str
    domain: str


@dataclass(frozen=True, slots=True)
class Cluster:
    """A whole site. tiers run from wide to narrow and end with "node".

    spares: tier -> number of wholly free nodes that are held back in each of its domains to replace failed ones. gpus
    are GPUs of which links carry less than their rate; no file has them, only reports.
    """

    name: str
    tiers: tuple[str, ...]
    machines: Mapping[str, Machine]
    nodes: tuple[Node, ...]
    links: Mapping[str, Link] = field(default_factory=dict)
    allocations: tuple[Allocation, ...] = ()
    domains: tuple[DomainFacts, ...] = ()
    nics: tuple[NicFacts, ...] = ()
    tori: tuple[Torus, ...] = ()
    data: tuple[DataSet, ...] = ()
    spares: Mapping[str, int] = field(default_factory=dict)
    gpus: tuple[GpuFacts, ...] = ()
