"""Searches the placement with the fastest all-reduce, with a proof: a Pareto front of rate and steps per algorithm.

The price of a placement (`topology.cost.collectives`) is the least over a few algorithms. The price of one algorithm
falls with the rate of the slowest part, and rises with the number of islands, the time of the hops between them and the
GPUs of the largest island (together: steps). It is not linear but monotone, so the best placement of an algorithm is on
the Pareto front of rate and steps. The search walks along the front from the lowest rate:

    floor   the rate that a placement must exceed to beat the incumbent by more than PROVEN_WITHIN
    solve   the fewest steps of any placement above the floor; none: the front ends, and the proof is complete
    price   the placement with `predict`, keep it if it is the fastest, and go on above its rate

Every placement between the floor and the rate found has at least the steps found, so none is skipped. Where steps alone
do not decide, placements with fewer islands than the one found are searched as a front of their own. Each case (which
tier holds the gang) and each algorithm has a front; most end at once, because even their best rate is too slow. The
objective of CP-SAT is never used as the price of a placement.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from gantree.placement.optimum.model import Case, CaseModel, GangModel, hop_us
from gantree.placement.optimum.options import Option, Options
from gantree.placement.optimum.solver import Work
from gantree.placement.slots.problem import Spread
from gantree.topology.cost.collectives import estimate
from gantree.topology.cost.prediction import GIB
from gantree.topology.fabric.fabric import FloatArray, IntArray
from gantree.topology.hardware.constants import NVLINK_DOMAIN_EGRESS_GBps
from gantree.topology.traffic.paths import Paths

PROVEN_WITHIN = 1e-3
"""An optimum counts as proven if no placement is better by more than this share of its price."""
FASTEST_GBps = 1e6
"""An upper end for bisections over rates."""

RING, TREE, IN_SWITCH = "ring", "tree", "in-switch"


@dataclass(frozen=True, slots=True)
class Priced:
    """A placement with the time and the rates of its all-reduce."""

    spread: Spread
    seconds: float
    islands: int
    ring_GBps: float
    in_switch_GBps: float
    out_GBps: float


Price = Callable[[Spread], Priced]
"""Prices a placement as every other one is priced."""


@dataclass(frozen=True, slots=True)
class ParetoFront:
    """The front of one algorithm and one case. copies: how often a message summed in switches leaves an island."""

    options: Options
    case: Case
    algorithm: str
    copies: int
    fastest_GBps: float

    def least_s(self, rate_GBps: float, steps: float = 0.0) -> float:
        """Return the least seconds of an all-reduce at this rate or less, on placements of at least these steps."""
        traffic_index, ranks = self.options.traffic_index, self.options.gpus
        islands = np.arange(self.case.fewest, self.case.most + 1)
        most_gpus = np.full(len(islands), ranks)
        hops_us = np.zeros(len(islands))
        longest = 0.0
        if self.case.outside:
            longest, narrow = (
                hop_us(traffic_index, self.case.top + 1),
                hop_us(traffic_index, traffic_index.island_tier),
            )
            hops_us = np.maximum(islands * narrow + 2 * (longest - narrow), hops_us)
            most_gpus = -(-ranks // islands)
            per_island, per_second = self.weights
            rest = (steps - per_island * islands) / per_second
            if self.algorithm == RING:
                hops_us = np.maximum(hops_us, rest / 1000)
            else:
                most_gpus = np.maximum(most_gpus, np.ceil(rest - 1e-9).astype(np.int64))
        return self._fastest_s(rate_GBps, islands, most_gpus, hops_us / islands, longest)

    def _fastest_s(
        self,
        rate_GBps: float,
        islands: IntArray,
        most_gpus: IntArray,
        mean_hop_us: FloatArray,
        longest_us: float,
    ) -> float:
        """Return the least time over numbers of islands and kinds of GPUs."""
        size = len(islands)
        out_GBps = rate_GBps * self.copies if self.case.outside else inf
        fastest_us = inf
        for nvlink, generation in sorted(kinds_of_gpus(self.options)):
            paths = Paths(
                ranks=self.options.gpus,
                islands=islands,
                most_gpus=most_gpus,
                ring_GBps=np.full(size, rate_GBps),
                ring_limit=np.zeros(size, dtype=np.int64),
                nvlink=np.full(size, nvlink),
                in_switch_GBps=np.full(size, rate_GBps),
                out_GBps=np.full(size, out_GBps),
                out_limit=np.zeros(size, dtype=np.int64),
                hop_us=mean_hop_us,
                longest_us=np.full(size, longest_us),
                generation=np.full(size, generation),
            )
            us = estimate(paths, "all_reduce", self.algorithm, GIB).us
            fastest_us = min(fastest_us, float(us.min()))
        return fastest_us * 1e-6

    def between(self, fewest: int, most: int) -> "ParetoFront":
        """Return the part of the front with these numbers of islands."""
        return replace(self, case=Case(self.case.top, fewest, most))

    @property
    def weights(self) -> tuple[int, int]:
        """Steps of one island, and of one nanosecond of hops (ring) or one GPU of the largest island (others)."""
        return (8_500, 1) if self.algorithm == RING else (10, 3)

    def rate_for(self, seconds: float) -> float:
        """Return the rate, in GB/s, that a placement of this front must exceed to take less than `seconds`."""
        slow, fast = 0.0, min(self.fastest_GBps, FASTEST_GBps)
        if self.least_s(fast) >= seconds:
            return fast
        for _ in range(40):
            middle = (slow + fast) / 2
            slow, fast = (middle, fast) if self.least_s(middle) >= seconds else (slow, middle)
        return slow

    def rate_of(self, priced: Priced) -> float:
        """Return the rate of a placement by the algorithm of this front."""
        if self.algorithm == IN_SWITCH:
            return min(priced.in_switch_GBps, priced.out_GBps / self.copies)
        return min(priced.ring_GBps, priced.out_GBps)

    def fewest_steps(self, floor_GBps: float, work: Work) -> tuple[Spread | None, float, bool]:
        """Return (the placement above the floor with the fewest steps, a lower bound on steps, is it proven)."""
        gang = GangModel(self.options)
        model = CaseModel(gang, self.case)
        if self.algorithm == IN_SWITCH:
            model.in_switch_rate(floor_GBps, self.copies)
        else:
            model.ring_rate(floor_GBps)
        if self.case.outside:
            per_island, per_second = self.weights
            second = (
                model.hops_ns() if self.algorithm == RING else model.most_gpus(self.options.gpus)
            )
            gang.model.minimize(per_island * model.count() + per_second * second)
        spread, answer = gang.spread(work)
        return spread, answer.bound, answer.proven


def placement_with_egress(
    options: Options, case: Case, floor_GBps: float, work: Work
) -> tuple[Spread | None, bool]:
    """Return (a placement whose islands all send more than the floor, of few islands and hops; is it proven)."""
    gang = GangModel(options)
    model = CaseModel(gang, case)
    if case.outside:
        model.leave(floor_GBps, inf)
        gang.model.minimize(model.hops_ns())
    spread, answer = gang.spread(work)
    return spread, answer.proven or spread is not None


@dataclass(slots=True)
class Incumbent:
    """The fastest placement found so far, and a lower bound from the fronts that were not searched to their end."""

    known: Priced | None
    bound_s: float = inf

    def take(self, priced: Priced) -> None:
        """Keep a placement if it is faster."""
        if self.known is None or priced.seconds < self.known.seconds:
            self.known = priced

    @property
    def to_beat_s(self) -> float:
        """Times below this are better by more than PROVEN_WITHIN."""
        return inf if self.known is None else self.known.seconds * (1 - PROVEN_WITHIN)

    def open(self, seconds: float) -> None:
        """Note that a front was not searched to its end: placements as fast as this may exist."""
        self.bound_s = min(self.bound_s, seconds)


def fastest(options: Options, price: Price, known: Priced | None, work: Work) -> Incumbent:
    """Return the placement with the fastest all-reduce. price prices the all-reduce alone."""
    best = Incumbent(known)
    for front in fronts(options):
        _follow_front(front, price, best, work)
    if best.known is not None:
        best.bound_s = min(best.bound_s, best.to_beat_s)
    return best


def fronts(options: Options) -> Iterator[ParetoFront]:
    """Yield a front for each case and algorithm, narrow tiers first."""
    for case in cases(options):
        rates = _fastest_rates(options, case)
        yield ParetoFront(options, case, RING, 1, rates[RING])
        yield ParetoFront(options, case, TREE, 1, rates[RING])
        for copies, fewest, most in ((1, 1, 2), (2, 3, case.most)):
            part = Case(case.top, max(case.fewest, fewest), min(case.most, most))
            if rates[IN_SWITCH] > 0 and part.fewest <= part.most:
                yield ParetoFront(options, part, IN_SWITCH, copies, rates[IN_SWITCH])


def cases(options: Options) -> Iterator[Case]:
    """Yield a case for each tier of which one domain could hold the gang, by GPUs alone; narrow tiers first."""
    fabric, traffic_index = options.problem.fabric, options.traffic_index
    roles = zip(options.problem.request.roles, options.problem.members, strict=True)
    members = sum(count for role, count in roles if role.shape.gpus)
    for tier in range(fabric.node_tier, -1, -1):
        if tier >= traffic_index.island_tier:
            yield Case(tier, 1, 1)
            continue
        fewest, most = inf, 0
        for islands in _gpus_of_islands(options, tier):
            filled = np.cumsum(sorted(islands, reverse=True))
            if filled[-1] >= options.gpus:
                needed = int(np.searchsorted(filled, options.gpus)) + 1
                fewest, most = min(fewest, max(2, needed)), max(most, len(filled))
        most = min(most, members)
        if fewest <= most:
            yield Case(tier, int(fewest), most)


def _gpus_of_islands(options: Options, tier: int) -> Iterator[list[int]]:
    """Yield, for each domain of a tier, the most GPUs that each of its islands could hold."""
    fabric, traffic_index = options.problem.fabric, options.traffic_index
    of_domain: dict[int, dict[int, int]] = {}
    for node, of_node in options.of_node.items():
        most = max(option.gpus for option in of_node)
        if most:
            islands = of_domain.setdefault(int(fabric.domain_of_node[tier][node]), {})
            island = int(traffic_index.island_of_node[node])
            islands[island] = islands.get(island, 0) + most
    for islands in of_domain.values():
        yield list(islands.values())


def _follow_front(front: ParetoFront, price: Price, best: Incumbent, work: Work) -> None:
    """Search a front; mark it as open where the work does not suffice."""
    floor_GBps = front.rate_for(best.to_beat_s)
    while floor_GBps < front.fastest_GBps and front.least_s(front.fastest_GBps) < best.to_beat_s:
        spread, steps, proven = front.fewest_steps(floor_GBps, work)
        if spread is None:
            if not proven:
                best.open(front.least_s(front.fastest_GBps))
            return
        priced = price(spread)
        best.take(priced)
        rate = max(front.rate_of(priced), floor_GBps * (1 + 1e-9))
        if front.least_s(rate, steps) < best.to_beat_s and priced.islands > front.case.fewest:
            _follow_front(front.between(front.case.fewest, priced.islands - 1), price, best, work)
            front = front.between(priced.islands, front.case.most)
        undercut = front.least_s(rate, steps)
        if undercut < best.to_beat_s:
            best.open(undercut)
        floor_GBps = max(rate, front.rate_for(best.to_beat_s))


def kinds_of_gpus(options: Options) -> set[tuple[bool, int]]:
    """Return (whether GPUs are joined by NVLink, generation) of all options of the gang."""
    return {
        (option.nvlink, option.generation)
        for of_node in options.of_node.values()
        for option in of_node
        if option.gpus
    }


def _fastest_rates(options: Options, case: Case) -> dict[str, float]:
    """Return an upper bound on the rate of any placement of a case, by algorithm: GPU links, and NICs of islands."""
    traffic_index = options.traffic_index
    inside = in_switch = 0.0
    out_of_island: dict[int, float] = {}
    for node, of_node in options.of_node.items():
        some = [option for option in of_node if option.gpus]
        if not some:
            continue
        island = int(traffic_index.island_of_node[node])
        out_of_island[island] = out_of_island.get(island, 0.0) + max(o.out_GBps for o in some)
        inside = max(
            inside, *(_inside(option, traffic_index.islands_span_nodes) for option in some)
        )
        in_switch = max(in_switch, *(o.in_switch_share * max(0.0, o.port_GBps) for o in some))
    out = inf
    if case.outside:
        cap = NVLINK_DOMAIN_EGRESS_GBps if traffic_index.islands_span_nodes else 0.0
        single = max(max(o.out_GBps for o in of_node) for of_node in options.of_node.values())
        out = max(min(max(out_of_island.values()), cap), single)
    return {RING: min(inside, out), IN_SWITCH: min(in_switch, out)}


def _inside(option: Option, spanning: bool) -> float:
    return max(option.ring_GBps, option.port_GBps) if spanning else option.ring_GBps
