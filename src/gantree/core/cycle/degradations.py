"""What makes the steps of a gang longer where it is: links that carry less than the cluster file says, and slow ranks.

Links are priced by the cost model (`topology.cost`): the gang's step on the fabric as it is now, and as the file has
it, both without the load that sources report: some of that is the gang's own traffic, which it must not flee. A gang
whose step has no price, because its job tells neither `model` nor `traffic`, loses nothing to links. How long it has
lasted is that of the worst link below the gang, of equally bad ones of the oldest.

All ranks wait for the slowest, so a gang with slow ranks is slowed by the slowest, whatever its step. A rank that was
slow on a node that the gang left, and is slow on another, has more to do than others: it is passed over.

Prices are kept for one state of the fabric. They follow from the ledger, so a recovered scheduler finds the same.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from gantree.core.ledger.job_parts import SlowRank
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.site import with_health
from gantree.core.ledger.state import JobState
from gantree.core.queue.job_variants import running_variant
from gantree.model.cluster import Cluster, LinkId
from gantree.model.placements import Placement
from gantree.topology.cost.prediction import predict
from gantree.topology.fabric.fabric import BoolArray, Fabric, IntArray

LEAST_SHARE = 1e-6
"""A smaller share of the time is no loss but rounding."""


@dataclass(frozen=True, slots=True)
class Degradation:
    """A gang's step takes step_s where it is, and whole_s if nothing were wrong, since a moment; in seconds.

    reason is what is wrong, in words, and nodes where. slow_nodes are those with slow ranks. Where the step has no
    price, is_priced is False, and a step on whole links counts as one second.
    """

    reason: str
    since: float
    step_s: float
    whole_s: float
    nodes: tuple[str, ...] = ()
    slow_nodes: tuple[str, ...] = ()
    is_priced: bool = True

    @property
    def lost_share(self) -> float:
        """The share of the time that is lost, from 0 to 1."""
        return 1.0 - self.whole_s / self.step_s

    @property
    def longer(self) -> float:
        """How many times as long a step takes."""
        return self.step_s / self.whole_s


@dataclass(frozen=True, slots=True)
class WornLink:
    """A link with the share of its rate that it carries, since when, and the nodes below it: [first, end) by index."""

    link: LinkId
    health: float
    since: float
    first: int
    end: int

    def is_used_by(self, placement: Placement, nodes: IntArray) -> bool:
        """Whether a gang may send over it: one that has its GPU, its NIC's node, or nodes on both sides of it."""
        if self.link.gpu is not None:
            node, gpu = self.link.gpu
            mine = (each for each in placement.members if each.node == node)
            return any(gpu in (member.gpus or member.parts) for member in mine)
        below = int(np.count_nonzero((nodes >= self.first) & (nodes < self.end)))
        return below > 0 and (self.link.nic is not None or below < len(nodes))


def degradations(ledger: Ledger) -> Iterator[tuple[JobState, Degradation]]:
    """The placed gangs whose steps are longer where they are, the oldest placement first."""
    concerned = set(ledger.slowed)
    if ledger.occupancy is not None and ledger.site.links:
        rooms = ledger.occupancy
        worn = _prices_of(rooms.fabric).worn_nodes(ledger)
        concerned.update(owner for node in worn for owner in rooms.holders(node))
    if not concerned:
        return
    for state in ledger.holding.values():
        found = degradation(ledger, state) if state.job in concerned else None
        if found is not None:
            yield state, found


def degradation(ledger: Ledger, state: JobState) -> Degradation | None:
    """What makes a placed gang's steps longer; None where nothing does, or what does has no price."""
    placement = state.placement
    if ledger.fabric is None or placement is None:
        return None
    prices, of_links = _prices_of(ledger.fabric), None
    if ledger.site.links:
        of_links = prices.of(ledger, state, placement)
    there = placement.nodes if state.slow else {}
    slow = [each for each in state.slow if each.node in there and not _has_more_to_do(state, each)]
    if not slow:
        return of_links
    step_s = None if of_links else prices.step_s(ledger, state, placement)
    return _with_slow_ranks(state, of_links, slow, step_s)


def _has_more_to_do(state: JobState, slow: SlowRank) -> bool:
    """Whether a rank was slow on another node before, which the gang left."""
    return any(left.rank == slow.rank and left.node != slow.node for left in state.left_slow)


def _with_slow_ranks(
    state: JobState, of_links: Degradation | None, slow: Sequence[SlowRank], step_s: float | None
) -> Degradation:
    """What links and slow ranks do together; the time is that of the one that costs more.

    step_s is the step of a gang below which no link is worn; None where it has no price.
    """
    slowest = max(slow, key=lambda each: (each.slowdown, -each.since))
    nodes = tuple(dict.fromkeys(each.node for each in slow))
    reason = f"rank {slowest.rank} on {slowest.node} slows each step {slowest.slowdown:.2f} times"
    if of_links is not None:
        lasts_since = of_links.since if of_links.longer > slowest.slowdown else slowest.since
        return replace(
            of_links,
            reason=f"{reason}; {of_links.reason}",
            since=lasts_since,
            step_s=of_links.step_s * slowest.slowdown,
            slow_nodes=nodes,
        )
    whole_s = step_s or 1.0
    return Degradation(
        reason,
        slowest.since,
        whole_s * slowest.slowdown,
        whole_s,
        slow_nodes=nodes,
        is_priced=step_s is not None,
    )


def without_price(ledger: Ledger, state: JobState) -> str:
    """The links below a placed gang that carry less, in words, if its step has no price; "" for others."""
    fabric, placement = ledger.fabric, state.placement
    if not ledger.site.links or fabric is None or placement is None:
        return ""
    used = _prices_of(fabric).used_by(ledger, placement)
    gang = running_variant(ledger, state)
    if not used or gang.gpus < 2 or predict(fabric, placement.members, gang).step_s is not None:
        return ""
    return _in_words(used)


class _Prices:
    """Degradations of gangs on one state of a fabric, by job, each with the placement that it is of."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = self._now = fabric
        self._whole: Fabric | None = None
        self._worn: tuple[WornLink, ...] = ()
        self._worn_nodes: tuple[str, ...] = ()
        self._is_below: BoolArray = np.zeros(len(fabric.nodes), dtype=np.bool_)
        self._of_job: dict[str, tuple[Placement, Degradation | None]] = {}
        self._step_s_of_job: dict[str, tuple[Placement, float | None]] = {}

    def of(self, ledger: Ledger, state: JobState, placement: Placement) -> Degradation | None:
        """What worn links do to a gang at its placement."""
        known = self._of_job.get(state.job)
        if known is None or known[0] is not placement:
            self._begin(ledger)
            known = placement, self._worked_out(ledger, state, placement)
            self._of_job[state.job] = known
        return known[1]

    def step_s(self, ledger: Ledger, state: JobState, placement: Placement) -> float | None:
        """Seconds of a step of a gang as links are now, without their load; None where it has no price."""
        known = self._step_s_of_job.get(state.job)
        if known is None or known[0] is not placement:
            self._begin(ledger)
            gang = running_variant(ledger, state)
            known = placement, predict(self._now, placement.members, gang).step_s
            self._step_s_of_job[state.job] = known
        return known[1]

    def worn_nodes(self, ledger: Ledger) -> tuple[str, ...]:
        """The nodes below links that carry less."""
        self._begin(ledger)
        return self._worn_nodes

    def _begin(self, ledger: Ledger) -> None:
        """Work out once what is worn; forget gangs that are gone."""
        if self._whole is None:
            self._worn = tuple(_worn_links(ledger, self._fabric))
            for link in self._worn:
                self._is_below[link.first : link.end] = True
            below = np.flatnonzero(self._is_below).tolist()
            self._worn_nodes = tuple(self._fabric.nodes[node].name for node in below)
            described = ledger.site.described
            assert described is not None, "a link without a cluster"
            whole = _WHOLE.of(self._fabric, described)
            if ledger.site.load_of_link():
                now = with_health(whole.cluster, ledger.site.health_of_link())
                self._now = self._fabric.restated(now)
            self._whole = whole
        for kept in (self._of_job, self._step_s_of_job):
            if len(kept) > 2 * len(ledger.holding) + 16:
                for job in [job for job in kept if job not in ledger.holding]:
                    del kept[job]

    def used_by(self, ledger: Ledger, placement: Placement) -> list[WornLink]:
        """The links that carry less and that a gang may send over at a placement."""
        self._begin(ledger)
        index_of_node = self._fabric.index_of_node
        nodes = np.array([index_of_node[node] for node in placement.nodes], dtype=np.int64)
        if not self._is_below[nodes].any():
            return []
        return [link for link in self._worn if link.is_used_by(placement, nodes)]

    def _worked_out(
        self, ledger: Ledger, state: JobState, placement: Placement
    ) -> Degradation | None:
        used = self.used_by(ledger, placement)
        if not used:
            return None
        assert self._whole is not None
        gang = running_variant(ledger, state)
        step_s = predict(self._now, placement.members, gang).step_s
        whole_s = predict(self._whole, placement.members, gang).step_s
        if step_s is None or whole_s is None or 1.0 - whole_s / step_s < LEAST_SHARE:
            return None
        names = self._fabric.nodes
        below = {names[node].name: 0 for link in used for node in range(link.first, link.end)}
        since = _worst(used).since
        return Degradation(_in_words(used), since, step_s, whole_s, tuple(below))


@lru_cache(maxsize=4)
def _prices_of(fabric: Fabric) -> _Prices:
    """The prices on a fabric: an object of its own for each state of its links."""
    return _Prices(fabric)


class _WholeFabric:
    """The fabric with links as the cluster file has them: one for all states of its links, the newest is kept."""

    def __init__(self) -> None:
        self._kept: tuple[Cluster, Fabric] | None = None

    def of(self, fabric: Fabric, described: Cluster) -> Fabric:
        """The whole fabric of a tree and its file; made anew only where these are others."""
        kept = self._kept
        if (
            kept is None
            or kept[0] is not described
            or kept[1].index_of_node is not fabric.index_of_node
        ):
            file = described
            cluster = replace(fabric.cluster, domains=file.domains, nics=file.nics, gpus=file.gpus)
            kept = self._kept = described, fabric.restated(cluster)
        return kept[1]


_WHOLE = _WholeFabric()


def _worn_links(ledger: Ledger, fabric: Fabric) -> Iterator[WornLink]:
    """The links of which a source says that they carry less, as far as the fabric has them."""
    for link, health in ledger.site.health_of_link().items():
        of_node = link.nic or link.gpu
        tier, name = (fabric.tiers[-1], of_node[0]) if of_node else (link.tier, link.path)
        number, domain = fabric.find(tier, name)
        first, end = fabric.first_node_of_domain[number][domain : domain + 2].tolist()
        yield WornLink(link, health, ledger.site.worn_since(link), first, end)


def _worst(links: Sequence[WornLink]) -> WornLink:
    """The link that carries the least; of several the oldest."""
    return min(links, key=lambda link: (link.health, link.since))


def _in_words(links: Sequence[WornLink]) -> str:
    worst, more = _worst(links), len(links) - 1
    name = f"{worst.link.tier} {worst.link.path} carries {100 * worst.health:.3g} % of its rate"
    return name if not more else f"{name}, and {more} more {'link' if more == 1 else 'links'} less"
