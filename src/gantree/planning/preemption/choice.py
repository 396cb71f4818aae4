"""Chooses victims for a gang of one role by counting, domain by domain and node by node.

A gang that must be in one domain of a tier is counted for each such domain, any other gang for the fabric. The free
GPUs of a domain hold some members already. For the rest, the node that is cheapest for each further member is cleared,
again and again (`nodes`). A gang of whole slices is cleared slice by slice in the same way, each in one domain of their
tier.

A victim on several nodes frees all of them at once, but the first node that needs it would bear its whole price. So
everything is counted a second time with prices divided over nodes, and both sets are kept.

Sets are sorted by price. They are not proven: counts ignore NVLink islands, MIG positions and spares.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from gantree.planning.preemption.counts import Counted, Range

Chosen = tuple[int, tuple[int, ...], Range]
"""(price, numbers of victims, the domain that they clear)."""


def counted_sets(counted: Counted, prices: Sequence[int], domains: Sequence[Range]) -> list[Chosen]:
    """Sets of victims that suffice by count, one or two for each domain, the cheapest first."""
    price_lists = [prices]
    if any(len(nodes) > 1 for nodes in counted.nodes_of_victim):
        pairs = zip(prices, counted.nodes_of_victim, strict=True)
        price_lists.append([max(1, price // max(1, len(nodes))) for price, nodes in pairs])
    sets: dict[tuple[Range, tuple[int, ...]], int] = {}
    for domain in domains:
        for price_list in price_lists:
            gone = _cleared(counted, price_list, domain)
            if gone is not None:
                victims = tuple(sorted(gone))
                sets[domain, victims] = sum([prices[number] for number in victims])
    return sorted((price, victims, domain) for (domain, victims), price in sets.items())


def _cleared(counted: Counted, prices: Sequence[int], domain: Range) -> Iterable[int] | None:
    """The victims to stop so that a domain holds the gang; None where it never does."""
    first, stop = domain
    if stop - first == 1:
        found = (
            counted.victims_of_node[first].price(counted.need, prices, {})
            if first in counted.victims_of_node
            else None
        )
        return None if found is None else found[1]
    clearing = _Clearing(counted, prices)
    return clearing.gone if clearing.clear(domain) else None


_Step = tuple[int, int, int, int, tuple[int, ...]]
"""(price for each member, minus the number of members, node, stamp, victims): the smallest step is taken."""


@dataclass(slots=True, eq=False)
class _Clearing:
    """The clearing of one domain: the victims so far (`gone`), and the slots that nodes have gained (`more`).

    spent: the price of `gone`. ends: the cheapest alternative so far that gets all missing slots from one more node,
    with its price: a node that is expensive for its first member may be cheap for all.
    """

    counted: Counted
    prices: Sequence[int]
    gone: dict[int, None] = field(default_factory=dict)
    more: dict[int, int] = field(default_factory=dict)
    spent: int = 0
    ends: tuple[int, dict[int, None]] | None = None

    def clear(self, domain: Range) -> bool:
        """Stop victims until the gang fits into the domain; False where it never does."""
        counted = self.counted
        if counted.run == counted.unit:
            filled = self._fill(domain, counted.need)
            if self.ends is not None and (not filled or self.ends[0] < self.spent):
                self.spent, self.gone = self.ends
                return True
            return filled
        return self._fill_slices(list(counted.domains_of_slices(domain)))

    def _fill_slices(self, parts: Sequence[Range]) -> bool:
        """Clear slice by slice, each in the domain that is cheapest for one more."""
        run = self.counted.run
        missing = self.counted.need // run - sum(self._slots(part) // run for part in parts)
        offers = [offer for n, part in enumerate(parts) if (offer := self._offer(part, n))]
        heapify(offers)
        while missing > 0 and offers:
            price, number = heappop(offers)
            now = self._offer(parts[number], number)
            if now and now > min(offers, default=now):
                heappush(offers, now)
                continue
            if now:
                before = self._slots(parts[number]) // run
                self._fill(parts[number], (before + 1) * run)
                missing -= self._slots(parts[number]) // run - before
                heappush(offers, (price, number))
        return missing <= 0

    def _offer(self, part: Range, number: int) -> tuple[int, int] | None:
        """(price of one more slice in a domain, number of the domain); None where it has no room for one."""
        quote = _Clearing(self.counted, self.prices, self.gone.copy(), self.more.copy())
        run = self.counted.run
        if not quote._fill(part, (self._slots(part) // run + 1) * run):
            return None
        return sum(self.prices[victim] for victim in quote.gone if victim not in self.gone), number

    def _fill(self, domain: Range, need: int) -> bool:
        """Clear nodes of a domain, the cheapest for each member first, until it has so many slots."""
        missing = need - self._slots(domain)
        nodes = self.counted.victim_nodes
        here = nodes[bisect_left(nodes, domain[0]) : bisect_left(nodes, domain[1])]
        stamps = dict.fromkeys(here, 0)
        steps: list[_Step] = []
        self._push(steps, here, stamps, missing)
        while steps and missing > 0:
            _, minus_members, node, stamp, victims = heappop(steps)
            if stamp != stamps[node]:
                continue
            if -minus_members > missing:
                self._push(steps, (node,), stamps, missing)
                continue
            self.gone.update(dict.fromkeys(victims))
            self.spent += sum([self.prices[number] for number in victims])
            self.more[node] = self.more.get(node, 0) - minus_members
            missing += minus_members
            also = (other for number in victims for other in self.counted.nodes_of_victim[number])
            self._push(steps, dict.fromkeys((node, *also)), stamps, missing)
        return missing <= 0

    def _push(
        self, steps: list[_Step], nodes: Iterable[int], stamps: dict[int, int], missing: int
    ) -> None:
        """Compute the next step of these nodes again; their older steps no longer count."""
        for node in nodes:
            if node in stamps and missing > 0:
                stamps[node] += 1
                step = self._step(node, missing, stamps[node])
                if step is not None:
                    heappush(steps, step)

    def _step(self, node: int, missing: int, stamp: int) -> _Step | None:
        """The number of further members for a node: the least price for each, then the most members."""
        counted = self.counted
        node_victims, unit = counted.victims_of_node[node], counted.unit
        held = counted.slots[node] + self.more.get(node, 0)
        best: _Step | None = None
        most = min(missing, int(counted.most_slots[node]) - held)
        for members in range(unit, most + 1, unit):
            found = node_victims.price(held + members, self.prices, self.gone)
            if found is None:
                break
            step = (found[0] // members, -members, node, stamp, found[1])
            best = step if best is None or step < best else best
            if members == missing and (self.ends is None or self.spent + found[0] < self.ends[0]):
                self.ends = self.spent + found[0], self.gone | dict.fromkeys(found[1])
        return best

    def _slots(self, domain: Range) -> int:
        first, stop = domain
        sums = self.counted.sums
        return (
            sums[stop]
            - sums[first]
            + sum(more for node, more in self.more.items() if first <= node < stop)
        )
