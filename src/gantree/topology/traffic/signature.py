"""Signatures of placements: two placements with one signature have the same price.

A *shape* says which nodes of a list are of which kind, and which of them stand together at each tier: domains are
numbered in the order in which they come up, so that their names drop out. It ends with the first tier of which one
domain holds all, for nothing leaves that one or any wider one.

Keys are made for every decision of the scheduler, so no node is looked at in a loop of Python: `itemgetter`, `map` and
`dict` go through whole lists.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from operator import itemgetter
from typing import Generic, TypeVar

from gantree.topology.traffic.paths import figures_of
from gantree.topology.traffic.traffic_index import TrafficIndex

ALL_APART = -1
"""Stands for a tier at which every node of the list is in a domain of its own."""

MOST_KEPT = 250_000
"""Members in all keys of a `Kept` before it begins anew: tens of megabytes, whatever the size of the gangs."""

Value = TypeVar("Value")


@dataclass(slots=True)
class Kept(Generic[Value]):
    """Answers by key, forgotten all at once when the keys have grown too many or too long."""

    answers: dict[Hashable, Value] = field(default_factory=dict)
    nodes: int = 0

    def keep(self, key: Hashable, answer: Value, nodes: int) -> None:
        """Keep an answer; nodes is the length of what the key is about."""
        if self.nodes > MOST_KEPT:
            self.answers.clear()
            self.nodes = 0
        self.answers[key] = answer
        self.nodes += 1 + nodes


@dataclass(frozen=True, slots=True)
class _Tier:
    """Domains of one tier by node. kind_of_domain is None where all are alike."""

    domain_of_node: tuple[int, ...]
    kind_of_domain: tuple[int, ...] | None


class Shapes:
    """The shapes of places on one traffic_index."""

    def __init__(self, traffic_index: TrafficIndex) -> None:
        fabric = traffic_index.fabric
        self._traffic_index = traffic_index
        self._class_of_set: dict[tuple[int, int], int] = {}
        self._class_of_figures: dict[Hashable, int] = {}
        self._kind_of_node: tuple[int, ...] = tuple(traffic_index.kind_of_node.tolist())
        self._tiers = tuple(
            _Tier(tuple(fabric.domain_of_node[number].tolist()), _unless_alike(kinds))
            for number in range(fabric.node_tier, 0, -1)
            for kinds in [traffic_index.tiers[number].kind_of_domain]
        )

    def shape(self, nodes: Sequence[int]) -> Hashable:
        """The shape of nodes, by index, at least one; a node may be there several times."""
        if len(nodes) == 1:
            return self._kind_of_node[nodes[0]]
        of_nodes = itemgetter(*nodes)
        return (of_nodes(self._kind_of_node), *self._by_tier(of_nodes, len(nodes)))

    def classes(self, nodes: Sequence[int], masks: Sequence[int]) -> tuple[int, ...]:
        """A number for what the GPUs of each mask are to prices: equal where their figures are, as over NVSwitches any
        four GPUs are those of any other four.
        """
        sets = [(self._kind_of_node[node], mask) for node, mask in zip(nodes, masks, strict=True)]
        known = self._class_of_set
        for kind, mask in sets:
            if (kind, mask) not in known:
                figures = (mask.bit_count(), *figures_of(self._traffic_index, kind, mask, mask))
                known[kind, mask] = self._class_of_figures.setdefault(figures, len(known))
        return tuple([known[one] for one in sets])

    def _by_tier(self, of_nodes: "itemgetter[tuple[int, ...]]", length: int) -> Iterator[Hashable]:
        """Each tier says equally much, so that where a shape ends says which tier holds all."""
        for tier in self._tiers:
            domains = of_nodes(tier.domain_of_node)
            number = dict(zip(dict.fromkeys(domains), count(), strict=False))
            if len(number) == 1:
                return
            apart = len(number) == length
            yield ALL_APART if apart else tuple(map(number.__getitem__, domains))
            if tier.kind_of_domain is not None:
                yield tuple(map(tier.kind_of_domain.__getitem__, number))


def _unless_alike(kinds: tuple[int, ...]) -> tuple[int, ...] | None:
    return kinds if len(set(kinds)) > 1 else None
