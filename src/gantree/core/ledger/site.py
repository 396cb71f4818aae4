"""The cluster as its file describes it, and what operators and health sources report about its nodes."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gantree.model.cluster import (
    NIC_TIER,
    PCIE_OF_GPU,
    Cluster,
    DomainFacts,
    GpuFacts,
    LinkId,
    NicFacts,
    Node,
)
from gantree.model.placements import MemberPlacement
from gantree.model.repairs import RepairState

Labels = dict[str, str | None]
"""Label values by key as an operator has them; None: the node has no label of that key."""


@dataclass(frozen=True, slots=True)
class Cordon:
    """Why nothing new starts on a node, and since when. drain, deadline_at: as `facts.NodeCordoned` says.

    unwell: what is told to be wrong with the node, "" for nothing: gangs that can save leave it if they have a place.
    """

    reason: str
    since: float
    drain: bool = False
    deadline_at: float | None = None
    unwell: str = ""


@dataclass(frozen=True, slots=True)
class Illness:
    """What one source says is wrong with a node, since when, and whether an operator uses it all the same.

    kept: why the source itself keeps the node in use; "" where it does not. lost_gpus as `NodeHealthNoted` says.
    """

    reason: str
    since: float
    forgiven: bool = False
    kept: str = ""
    lost_gpus: tuple[int, ...] | None = None

    @property
    def takes_out(self) -> bool:
        """Whether nothing new starts on the node because of it."""
        return not self.forgiven and not self.kept


WORSE_BY = 0.05
"""A link whose share falls by less than this has no new fault, nor a rank that is slower by less: figures vary."""


@dataclass(frozen=True, slots=True)
class LinkSign:
    """The share of its rate that a link carries, as a source reports it; forgiven: it does not count.

    since: when it fell to that, in seconds; a share that has risen since, or fallen by less than WORSE_BY, is the same
    fault. load: how much of that is taken, from 0 to 1.
    """

    health: float
    reason: str
    since: float
    forgiven: bool = False
    load: float = 0.0


@dataclass(frozen=True, slots=True)
class Repair:
    """How far the repair of a node has come, and since when; fields as `site_facts.NodeRepairNoted` says."""

    state: RepairState
    sign: str
    steps: tuple[str, ...]
    step: int
    reason: str
    since: float


@dataclass(slots=True)
class Site:
    """The cluster as its file describes it, and what operators say of its nodes instead.

    cordoned is what follows from both: from asked, the cordons that somebody asked for, and from unwell, what is wrong
    with nodes by who says so.
    labels are those alone in which an operator differs from the file. version grows with every word of an operator.
    others are who holds something that gantree did not start, with each what it is said to hold, one member a node;
    short those of them of whom less is counted, for the rest was not free.
    links has of each link that is said to carry less what each source says. repairs has the last repair of each node.
    """

    described: Cluster | None = None
    cordoned: dict[str, Cordon] = field(default_factory=dict)
    labels: dict[str, Labels] = field(default_factory=dict)
    version: int = 0
    others: dict[str, tuple[MemberPlacement, ...]] = field(default_factory=dict)
    short: dict[str, None] = field(default_factory=dict)
    asked: dict[str, Cordon] = field(default_factory=dict)
    unwell: dict[str, dict[str, Illness]] = field(default_factory=dict)
    links: dict[LinkId, dict[str, LinkSign]] = field(default_factory=dict)
    repairs: dict[str, Repair] = field(default_factory=dict)

    def kept_in_use(self, node: str) -> list[Illness]:
        """What is wrong with a node that is in use all the same, because its source says so; [] if it is not."""
        if node in self.cordoned:
            return []
        return [one for one in self.unwell.get(node, {}).values() if one.kept and not one.forgiven]

    def as_observed(self) -> Cluster:
        """The cluster of the file, with the labels of operators, and the health and load that links have now."""
        assert self.described is not None, "no cluster was observed yet"
        cluster = self.described
        if self.labels:
            nodes = tuple(labelled(node, self.labels.get(node.name, {})) for node in cluster.nodes)
            cluster = replace(cluster, nodes=nodes)
        return with_load(with_health(cluster, self.health_of_link()), self.load_of_link())

    def load_of_link(self) -> dict[LinkId, float]:
        """The load of each link of which a source says that it is busy."""
        highest = {
            link: max((one.load for one in signs.values() if not one.forgiven), default=0.0)
            for link, signs in self.links.items()
        }
        return {link: load for link, load in highest.items() if load > 0.0}

    def health_of_link(self) -> dict[LinkId, float]:
        """The share of its rate that each link carries of which a source says that it is not whole."""
        lowest = {
            link: min((one.health for one in signs.values() if not one.forgiven), default=1.0)
            for link, signs in self.links.items()
        }
        return {link: health for link, health in lowest.items() if health < 1.0}

    def worn_since(self, link: LinkId) -> float:
        """Since when a link carries no more than it does now, in seconds; it must be one of `health_of_link`."""
        signs = [one for one in self.links[link].values() if not one.forgiven]
        lowest = min(one.health for one in signs)
        return min(one.since for one in signs if one.health <= lowest)


def with_load(cluster: Cluster, load_of_link: Mapping[LinkId, float]) -> Cluster:
    """A cluster whose up-links and NICs are at least this busy; of links of GPUs no load is told."""
    if not load_of_link:
        return cluster
    domains = {LinkId(each.tier, each.name): each for each in cluster.domains}
    nics = {LinkId(NIC_TIER, f"{each.node}/{each.nic}"): each for each in cluster.nics}
    for link, load in load_of_link.items():
        if link.nic is not None:
            nic = nics.get(link, NicFacts(*link.nic))
            nics[link] = replace(nic, load=max(nic.load, load))
        elif link.gpu is None:
            facts = domains.get(link, DomainFacts(link.tier, link.path))
            domains[link] = replace(facts, load=max(facts.load, load))
    return replace(cluster, domains=tuple(domains.values()), nics=tuple(nics.values()))


def with_health(cluster: Cluster, health_of_link: Mapping[LinkId, float]) -> Cluster:
    """A cluster whose links carry no more than these shares of their rates."""
    if not health_of_link:
        return cluster
    domains = {LinkId(each.tier, each.name): each for each in cluster.domains}
    nics = {LinkId(NIC_TIER, f"{each.node}/{each.nic}"): each for each in cluster.nics}
    gpus = {(each.node, each.gpu): each for each in cluster.gpus}
    for link, health in health_of_link.items():
        if link.nic is not None:
            nic = nics.get(link, NicFacts(*link.nic))
            nics[link] = replace(nic, health=min(nic.health, health))
        elif link.gpu is not None:
            gpu = gpus.get(link.gpu, GpuFacts(*link.gpu))
            is_pcie = link.tier == PCIE_OF_GPU
            gpus[link.gpu] = replace(gpu, pcie=health) if is_pcie else replace(gpu, nvlink=health)
        else:
            facts = domains.get(link, DomainFacts(link.tier, link.path))
            domains[link] = replace(facts, health=min(facts.health, health))
    return replace(
        cluster,
        domains=tuple(domains.values()),
        nics=tuple(nics.values()),
        gpus=tuple(gpus.values()),
    )


def labelled(node: Node, labels: Labels) -> Node:
    """A node with these labels instead of its own of these keys."""
    if not labels:
        return node
    now = {**dict(node.labels), **labels}
    return replace(
        node, labels=tuple((key, value) for key, value in now.items() if value is not None)
    )
