"""The placement of one gang as a model of CP-SAT: which option each node takes, under all that the job requests.

`GangModel` is a place for the gang, whatever is then minimised. `Case` narrows it to places of one kind: the narrowest
tier of which one domain holds all its GPUs, and how many islands (`topology.traffic.traffic_index`) they fill.
`demand_rate` narrows it further to places whose rings, or sums inside the switches, run faster than a floor, by the
rules of `topology.traffic.paths`:

- inside an island the GPUs' own links must reach it; if the island spans nodes, their ports;
- the NICs of every island must, all together, and no more than an NVLink domain gets out;
- for each tier that the gang crosses, the site's figure per GPU (or the NICs) times what is left of the link must, for
  those islands that cross it: the first and the last one of each domain, as the ring leaves a domain once;
- so must the up-links of every domain that is left.

Rates are whole numbers of millionths of a GB/s here; RATE_STEP keeps roundings of sums out of the way.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import floor, inf, isnan
from typing import Any

from gantree.placement.optimum.gang_constraints import UsedDomains, constrain_to_request
from gantree.placement.optimum.options import Option, Options
from gantree.placement.optimum.solver import Answer, Work, cp_model, solved
from gantree.placement.slots.problem import Counts, Spread
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.constants import NVLINK_DOMAIN_EGRESS_GBps
from gantree.topology.traffic.traffic_index import TrafficIndex

UNIT = 1_000_000
"""Rates in a model are whole numbers of GB/s over this."""
RATE_STEP = 64 / UNIT
"""GB/s by which a rate must exceed a floor to count as higher."""


@dataclass(frozen=True, slots=True)
class Case:
    """All GPUs in one domain of tier `top`, and in no single one of top + 1; from `fewest` to `most` islands."""

    top: int
    fewest: int
    most: int

    @property
    def outside(self) -> bool:
        """Whether traffic leaves islands."""
        return self.most > 1


class GangModel:
    """A place for a gang. used is of all members, busy of those with GPUs."""

    def __init__(self, options: Options) -> None:
        self.options, self.fabric = options, options.problem.fabric
        self.model = cp_model().CpModel()
        self.choice: dict[int, tuple[Any, ...]] = {
            node: tuple(self.model.new_bool_var(f"{node}:{option.counts}") for option in of_node)
            for node, of_node in options.of_node.items()
        }
        used_nodes = {
            node: self._any_of(list(c), f"used/{node}") for node, c in self.choice.items()
        }
        for choice in self.choice.values():
            self.model.add_at_most_one(choice)
        roles = range(len(options.problem.members))
        x = [{node: self.weighed(node, _of_role(role)) for node in self.choice} for role in roles]
        self.used = constrain_to_request(
            self.model, self.fabric, options.problem.request, x, used_nodes, 1
        )
        self.busy = self._busy()

    def weighed(self, node: int, weight: Any) -> Any:
        """The weight of the option that a node takes; 0 where it takes none."""
        pairs = zip(self.choice[node], self.options.of_node[node], strict=True)
        return sum(weight(option) * chosen for chosen, option in pairs)

    def hint(self, spread: Spread) -> None:
        """Begin from a known place."""
        counts_on_node: dict[int, Counts] = dict(spread)
        for node, choice in self.choice.items():
            for chosen, option in zip(choice, self.options.of_node[node], strict=True):
                self.model.add_hint(chosen, counts_on_node.get(node) == option.counts)

    def spread(self, work: Work) -> tuple[Spread | None, Answer]:
        """Solve, and say what stands where."""
        flat = [chosen for choice in self.choice.values() for chosen in choice]
        answer = solved(self.model, flat, work)
        if answer.values is None:
            return None, answer
        values = iter(answer.values)
        spread = [
            (node, option.counts)
            for node in self.choice
            for option in self.options.of_node[node]
            if next(values)
        ]
        return spread, answer

    def _any_of(self, bools: list[Any], name: str) -> Any:
        found = self.model.new_bool_var(name)
        self.model.add_max_equality(found, bools or [0])
        return found

    def _busy(self) -> UsedDomains:
        """As `used`, of nodes whose option has GPUs."""
        if all(table.shape.gpus for table in self.options.problem.tables):
            return self.used
        of_node = {}
        for node, choice in self.choice.items():
            pairs = zip(choice, self.options.of_node[node], strict=True)
            with_gpus = [chosen for chosen, option in pairs if option.gpus]
            if with_gpus:
                of_node[node] = self._any_of(with_gpus, f"busy/{node}")
        tiers: list[Mapping[int, Any]] = [of_node]
        for tier in range(self.fabric.node_tier - 1, -1, -1):
            inside: dict[int, list[Any]] = {}
            for node, busy in of_node.items():
                inside.setdefault(int(self.fabric.domain_of_node[tier][node]), []).append(busy)
            tiers.append({d: self._any_of(some, f"busy/{tier}/{d}") for d, some in inside.items()})
        return UsedDomains(tuple(reversed(tiers)))


def _of_role(role: int) -> Any:
    def members(option: Option) -> int:
        return option.counts[role]

    return members


class CaseModel:
    """A gang's place of one kind, with its islands: GPUs, GB/s of their NICs, and whether each spans nodes."""

    def __init__(self, gang: GangModel, case: Case) -> None:
        self.gang, self.case, self.model = gang, case, gang.model
        self.traffic_index: TrafficIndex = gang.options.traffic_index
        self.fabric: Fabric = gang.fabric
        self.tier = self.traffic_index.island_tier
        self.islands: Mapping[int, Any] = gang.busy.used[self.tier]
        self._nodes_of_island: dict[int, list[int]] = {}
        for node in gang.busy.used[-1]:
            island = int(self.traffic_index.island_of_node[node])
            self._nodes_of_island.setdefault(island, []).append(node)
        self.gpus = {i: self._sum(i, _gpus) for i in self.islands}
        self.out = {i: self._sum(i, _out) for i in self.islands}
        self.spans = {i: self._spans(i) for i in self.islands}
        self._narrow()

    def most_gpus(self, at_most: int) -> Any:
        """The GPUs of the largest island: a number no less than any of them."""
        most = self.model.new_int_var(0, at_most, "most gpus")
        for gpus in self.gpus.values():
            self.model.add(gpus <= most)
        return most

    def count(self) -> Any:
        """Islands that are used."""
        return sum(self.islands.values())

    def hops_ns(self) -> Any:
        """Nanoseconds of all hops between islands of the closed ring over them."""
        total, wider = 0, 0
        for tier in range(self.case.top + 1, self.tier + 1):
            domains = self.gang.busy.domains(tier)
            total += (domains - wider) * round(hop_us(self.traffic_index, tier) * 1000)
            wider = domains
        return total

    def ring_rate(self, floor_GBps: float) -> None:
        """Only places whose ring runs faster than this."""
        for node, busy in self.gang.busy.used[-1].items():
            spans = self.spans[int(self.traffic_index.island_of_node[node])]
            pairs = zip(self.gang.choice[node], self.gang.options.of_node[node], strict=True)
            for chosen, option in pairs:
                if option.gpus and option.ring_GBps <= floor_GBps:
                    self._only_if(chosen, spans)
            if self._port(node) <= floor_GBps:
                self.model.add_implication(busy, ~spans)
        if self.case.outside:
            self.leave(floor_GBps, NVLINK_DOMAIN_EGRESS_GBps)

    def in_switch_rate(self, floor_GBps: float, copies: int) -> None:
        """Only places whose switches add faster than this, where the message leaves an island so many times."""
        for node, busy in self.gang.busy.used[-1].items():
            island = int(self.traffic_index.island_of_node[node])
            most = _in_switch_most(self._port(node), self._share(node))
            if most <= floor_GBps:
                self.model.add(busy == 0)
                continue
            least = floor(1 / (most / floor_GBps - 1)) + 1 if floor_GBps > 0 else 1
            least = max(least, 2 if self.case.outside else 1)
            self.model.add(self.gpus[island] >= least).only_enforce_if(busy)
            pairs = zip(self.gang.choice[node], self.gang.options.of_node[node], strict=True)
            for chosen, option in pairs:
                if option.gpus and not option.nvlink:
                    self._only_if(chosen, self.spans[island])
        if self.case.outside:
            self.leave(floor_GBps * copies, NVLINK_DOMAIN_EGRESS_GBps)

    def _only_if(self, chosen: Any, spans: Any) -> None:
        self.model.add_implication(chosen, spans)

    def _port(self, node: int) -> float:
        return max((option.port_GBps for option in self.gang.options.of_node[node]), default=0.0)

    def _share(self, node: int) -> float:
        return max(
            (option.in_switch_share for option in self.gang.options.of_node[node]), default=0.0
        )

    def _sum(self, island: int, weight: Any) -> Any:
        return sum(self.gang.weighed(node, weight) for node in self._nodes_of_island[island])

    def _spans(self, island: int) -> Any:
        """True exactly where two or more nodes of an island are used."""
        nodes = [self.gang.busy.used[-1][node] for node in self._nodes_of_island[island]]
        spans = self.model.new_bool_var(f"spans/{island}")
        if len(nodes) == 1:
            self.model.add(spans == 0)
        else:
            self.model.add(sum(nodes) >= 2).only_enforce_if(spans)
            self.model.add(sum(nodes) <= 1).only_enforce_if(~spans)
        return spans

    def _narrow(self) -> None:
        busy, case = self.gang.busy, self.case
        self.model.add(busy.domains(case.top) == 1)
        if case.top < self.fabric.node_tier:
            self.model.add(busy.domains(case.top + 1) >= 2)
        self.model.add(self.count() >= case.fewest)
        self.model.add(self.count() <= case.most)

    def leave(self, floor_GBps: float, domain_egress_GBps: float) -> None:
        """Only places whose islands send more than this, all GPUs together, over every tier that is crossed.

        domain_egress_GBps is the most that is counted of the NICs of an island that spans nodes.
        """
        for island, used in self.islands.items():
            self._let_out(island, floor_GBps, domain_egress_GBps, [used])
        for tier in range(self.case.top + 1, self.tier + 1):
            self._cross(tier, floor_GBps, domain_egress_GBps)

    def _let_out(
        self, island: int, floor_GBps: float, domain_egress_GBps: float, where: list[Any]
    ) -> None:
        least = floor((floor_GBps + RATE_STEP) * UNIT)
        self.model.add(self.out[island] >= least).only_enforce_if(where)
        if floor_GBps >= domain_egress_GBps:
            self.model.add(self.spans[island] == 0).only_enforce_if(where)

    def _cross(self, number: int, floor_GBps: float, domain_egress_GBps: float) -> None:
        """Over one tier, of which the gang uses two domains or more."""
        tier = self.traffic_index.tiers[number]
        if tier.plain and isnan(tier.GPU_GBps):
            return
        for domain, used in self.gang.busy.used[number].items():
            left = float(tier.residual[domain])
            if float(tier.uplink_GBps[domain]) * left <= floor_GBps:
                self.model.add(used == 0)
                continue
            for island, where in self._first_and_last(number, domain):
                if not isnan(tier.GPU_GBps):
                    gpus = floor(floor_GBps / tier.GPU_GBps / left) + 1
                    self.model.add(self.gpus[island] >= gpus).only_enforce_if(where)
                elif number < self.fabric.node_tier and left < 1:
                    self._let_out(island, floor_GBps / left, domain_egress_GBps, where)

    def _first_and_last(self, tier: int, domain: int) -> Iterator[tuple[int, list[Any]]]:
        """Islands of a domain, and what is true where one of them is used as its first or last one."""
        of_node = self.fabric.domain_of_node[tier]
        inside = [i for i in self.islands if int(of_node[self._nodes_of_island[i][0]]) == domain]
        for place, island in enumerate(inside):
            between = [~self._between(inside, place)] if tier < self.tier else []
            yield island, [self.islands[island], *between]

    def _between(self, inside: list[int], place: int) -> Any:
        """True only if other islands of the domain are used before this one and after it."""
        before, after = inside[:place], inside[place + 1 :]
        between = self.model.new_bool_var("between")
        for others in (before, after):
            self.model.add_bool_or([*(self.islands[i] for i in others), ~between])
        return between


def hop_us(traffic_index: TrafficIndex, tier: int) -> float:
    """Microseconds of a hop between islands that leaves a domain of this tier, and so of each narrower one."""
    return max(
        traffic_index.tiers[t].latency_us for t in range(tier, traffic_index.island_tier + 1)
    )


def _gpus(option: Option) -> int:
    return option.gpus


def _out(option: Option) -> int:
    return round(min(option.out_GBps, 1e6) * UNIT)


def _in_switch_most(port_GBps: float, share: float) -> float:
    """What switches would add with endlessly many GPUs."""
    return port_GBps * share if port_GBps > 0 else -inf
