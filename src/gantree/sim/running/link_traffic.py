"""What a step of a placed gang sends over the up-links of each domain, and how much longer a slower link makes it.

Bytes are those of the cost model's traffic (`topology.traffic.traffic`), hop by hop in the order in which the cost
model prices them:

    ring (all-reduce, all-gather, ...)   each hop that leaves a domain carries busbw factor x size
    tree, in-switch                      the same with islands (nodes) in place of ranks: sums leave each island
    all-to-all                           each rank inside sends size / n to each rank outside
    send/recv                            each rank sends its size to the next

over all groups of an axis, times the calls. A gang's rate over a link is its bytes there by the seconds of all flows
that cross any link: while it communicates, that is; phases of different gangs are taken to coincide, which is the worst
case (Rajasekaran et al. 2024, CASSINI, shift them apart).
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gantree.model.errors import BadInput
from gantree.model.jobs import Job
from gantree.model.orders import MemberLaunch
from gantree.placement.request.sizes import resized
from gantree.topology.cost.collectives import busbw_factor
from gantree.topology.cost.flow_cost import FlowCost
from gantree.topology.cost.pricing import Pricer, Ranks, pricer_of
from gantree.topology.cost.step import Hiding, joined, step_time
from gantree.topology.fabric.fabric import Fabric, FloatArray, IntArray
from gantree.topology.traffic.paths import ring_order
from gantree.topology.traffic.signature import Kept
from gantree.topology.traffic.traffic import degrees_of, groups_of

Uplink = tuple[int, int]
"""(tier, domain) whose up-links are meant."""


@dataclass(frozen=True, slots=True)
class LinkTraffic:
    """GBps_of_link while the gang has every link alone; connections are those on its busiest link. job is as it runs.

    flows are (axis, seconds a step, whether it crosses an up-link).
    """

    job: Job
    ranks: int
    compute_s: float
    flows: tuple[tuple[str, float, bool], ...]
    GBps_of_link: dict[Uplink, float]
    connections: float

    @property
    def step_s(self) -> float:
        """Seconds of a step where the gang has every link alone, and whole."""
        return self._step_s(1.0)

    def stretch(self, share: float) -> float:
        """How many times longer a step is where the gang's flows across links get this share of their rate."""
        return self._step_s(share) / self.step_s

    def _step_s(self, share: float) -> float:
        hiding = Hiding(self.job, self.compute_s)
        exposed = [
            (axis, hiding.exposed_s(axis, seconds / share if crosses else seconds))
            for axis, seconds, crosses in self.flows
        ]
        return joined(self.job, degrees_of(self.job, self.ranks), self.compute_s, exposed)[0]


@dataclass(frozen=True, slots=True)
class _ByPlace:
    """Traffic over the domains of each tier, numbered as the ranks come to them: the same for places of one shape."""

    traffic: LinkTraffic
    GBps_of_tier: tuple[tuple[int, tuple[float, ...]], ...]


class LinkTraffics:
    """Traffic of gangs on one fabric, kept by what it depends on."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._pricer = pricer_of(fabric)
        self._kept: Kept[_ByPlace | None] = Kept()

    def of(self, job: Job, members: Sequence[MemberLaunch]) -> LinkTraffic | None:
        """The traffic of a gang; None where it sends nothing over any up-link, or the cost model has no answer."""
        if job.trains is None and job.traffic is None:
            return None
        try:
            job = resized(job, len(members)) if len(members) != job.members else job
        except BadInput:
            return None
        ranks = ranks_of_launches(self._fabric, members)
        nodes = [node for node, _ in ranks]
        if len(set(nodes)) < 2:
            return None
        told = (job.parallelism, job.ranks_as_written, job.trains, job.traffic, job.overlap)
        gpus = tuple([gpu for _, gpu in ranks])
        key: Hashable = (told, gpus, self._pricer.shapes.shape(nodes))
        if key not in self._kept.answers:
            self._kept.keep(key, self._anew(job, ranks), len(ranks))
        found = self._kept.answers[key]
        return None if found is None else self._placed(found, nodes)

    def _placed(self, found: _ByPlace, nodes: Sequence[int]) -> LinkTraffic:
        at: dict[Uplink, float] = {}
        for tier, GBps_of_domain in found.GBps_of_tier:
            domains = dict.fromkeys(self._fabric.domain_of_node[tier][list(nodes)].tolist())
            at |= {
                (tier, domain): GBps
                for domain, GBps in zip(domains, GBps_of_domain, strict=True)
                if GBps
            }
        mine = found.traffic
        return LinkTraffic(mine.job, mine.ranks, mine.compute_s, mine.flows, at, mine.connections)

    def _anew(self, job: Job, ranks: Ranks) -> _ByPlace | None:
        try:
            step = step_time(self._pricer, job, ranks)
            groups = groups_of(degrees_of(job, len(ranks)))
        except BadInput:
            return None
        assert step is not None, "a job that tells its traffic has a step"
        nodes = np.array([node for node, _ in ranks], dtype=np.int64)
        sent = [_Sent.of(self._pricer, flow, nodes[groups[flow.axis]]) for flow in step.flows]
        seconds = sum(flow.seconds for flow, each in zip(step.flows, sent, strict=True) if each.GB)
        if not seconds:
            return None
        traffic = LinkTraffic(
            job=job,
            ranks=len(ranks),
            compute_s=step.compute_s,
            flows=tuple(
                (flow.axis, flow.seconds, each.GB > 0)
                for flow, each in zip(step.flows, sent, strict=True)
            ),
            GBps_of_link={},
            connections=max(sent, key=lambda each: each.GB).connections,
        )
        return _ByPlace(traffic, tuple(self._rates(nodes, sent, seconds)))

    def _rates(
        self, nodes: IntArray, sent: Sequence["_Sent"], seconds: float
    ) -> Iterator[tuple[int, tuple[float, ...]]]:
        """GB/s of each domain of each tier that anything leaves, in the order in which the ranks come to them."""
        for tier in sorted({tier for each in sent for tier in each.GB_of_domain}):
            domains = list(dict.fromkeys(self._fabric.domain_of_node[tier][nodes].tolist()))
            GB = sum(each.GB_of_domain[tier] for each in sent if tier in each.GB_of_domain)
            yield tier, tuple((np.asarray(GB)[domains] / seconds).tolist())


@dataclass(frozen=True, slots=True)
class _Sent:
    """What one flow sends over up-links in a step: GB and hops over its busiest link; GB of each domain by tier."""

    GB: float
    connections: float
    GB_of_domain: dict[int, FloatArray]

    @classmethod
    def of(cls, pricer: Pricer, flow: FlowCost, nodes: IntArray) -> "_Sent":
        """Read one flow in all groups of its axis: nodes[group, rank]."""
        index = pricer.traffic_index
        islands = index.island_of_node[nodes]
        GB_of_hop = flow.calls * flow.size_bytes * _part_of_size(flow, islands)
        if flow.collective not in {"all_to_all", "send_recv"}:
            order = ring_order(index, nodes)
            nodes = nodes if order is None else np.take_along_axis(nodes, order, axis=1)
        of_domain, most = {}, 0.0
        for tier in range(index.island_tier, 0, -1):
            domains = index.fabric.domain_of_node[tier][nodes]
            hops = _hops_out(flow.collective, domains, index.fabric.domains(tier))
            if not hops.any():
                break
            of_domain[tier] = hops * GB_of_hop / 1e9
            most = max(most, float(hops.max()))
        return cls(most * GB_of_hop / 1e9, most, of_domain)


def _part_of_size(flow: FlowCost, islands: IntArray) -> float:
    """Of the size of a call, what one hop carries: islands[group, rank]."""
    ranks = int(islands.shape[1])
    if flow.collective == "all_to_all":
        return 1 / ranks
    if flow.collective == "send_recv":
        return 1.0
    if flow.price.algorithm in {"tree", "in-switch"}:
        ranks = max(len(set(group)) for group in islands.tolist())
    return busbw_factor(flow.collective, ranks)


def _hops_out(collective: str, domains: IntArray, count: int) -> FloatArray:
    """Hops that leave each domain, over all groups: domains[group, rank]. Of an all-to-all pairs of ranks."""
    if collective == "all_to_all":
        inside = np.stack([np.bincount(group, minlength=count) for group in domains])
        pairs: FloatArray = (inside * (domains.shape[1] - inside)).sum(axis=0).astype(np.float64)
        return pairs
    leaves = domains != np.roll(domains, -1, axis=1)
    hops: FloatArray = np.bincount(domains[leaves], minlength=count).astype(np.float64)
    return hops


def ranks_of_launches(fabric: Fabric, members: Sequence[MemberLaunch]) -> list[tuple[int, int]]:
    """(node, GPU) of each GPU of a gang in the order of its global ranks; one rank a GPU."""
    ranked = [
        (member.rank_of_process[position * member.processes // len(member.gpus)], position, member)
        for member in members
        for position in range(len(member.gpus))
    ]
    ranked.sort(key=lambda each: each[:2])
    return [
        (fabric.index_of_node[member.node], member.gpus[position]) for _, position, member in ranked
    ]
