"""The cost of freeing room on one node: which victims leave for how many members.

A node with its free amounts and what each gang on it would free is a small covering problem: free at least what is
missing, at the least price. GPUs are few and whole, so they are covered exactly (`_least_gpus`); where other resources
are still missing then, more leave, the cheapest first, and those who turned out not to be needed stay.

A GPU of which several gangs hold parts is free when all of them are gone: they leave as one. Prices are whole numbers
(`preempt_prices`). Counts know no MIG positions, no tiers inside a node and no NUMA: what is chosen here is proven
elsewhere.

There are as many leaving as gangs on the cluster, so they are plain tuples.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gantree.model.jobs import Shape
from gantree.model.placements import MemberPlacement
from gantree.topology.occupancy.occupancy import Occupancy, memory_KiB, microcpus

Amounts = tuple[int, ...]
"""GPUs first, then what else a member asks for: microcpus, KiB of memory, NICs."""

Leaving = tuple[tuple[int, ...], Amounts]
"""Who leaves together (numbers of victims), and what that frees on a node."""

Option = tuple[int, Leaving]
"""(price, who leaves)."""


@dataclass(slots=True)
class NodeBook:
    """One node: what each member takes, how many it may hold at most, what is free, and who could leave."""

    ask: Amounts
    most: int
    free: list[int]
    leaving: list[Leaving] = field(default_factory=list)

    def most_slots(self) -> int:
        """Slots when all have left."""
        ask, free = self.ask, self.free
        if len(ask) == 1:
            return min(
                self.most, (free[0] + sum([frees[0] for _, frees in self.leaving])) // ask[0]
            )
        freed = [f + sum([frees[n] for _, frees in self.leaving]) for n, f in enumerate(free)]
        return min(self.most, *(f // a for a, f in zip(ask, freed, strict=True) if a))

    def price(
        self, members: int, prices: Sequence[int], gone: Mapping[int, None]
    ) -> tuple[int, tuple[int, ...]] | None:
        """The least price found at which the node holds so many members when the gone are gone, and who leaves then."""
        short = [a * members - free for a, free in zip(self.ask, self.free, strict=True)]
        options: list[Option] = []
        for each in self.leaving:
            who, frees = each
            if len(who) == 1:
                price = 0 if who[0] in gone else prices[who[0]]
            else:
                price = sum([prices[number] for number in who if number not in gone])
            if price:
                options.append((price, each))
            else:
                short = [s - freed for s, freed in zip(short, frees, strict=True)]
        if max(short) <= 0:
            return 0, ()
        chosen = _cover(short, options)
        if chosen is None:
            return None
        leave = dict.fromkeys(n for who, _ in chosen for n in who if n not in gone)
        return sum([prices[number] for number in leave]), tuple(leave)


def _cover(short: Sequence[int], options: Sequence[Option]) -> list[Leaving] | None:
    """Who leaves so that nothing is short any more; None where not even all are enough."""
    chosen = _least_gpus(short[0], options) if short[0] > 0 else []
    if chosen is None:
        return None
    missing = _missing(short, chosen)
    if max(missing) <= 0:
        return chosen
    for _, each in sorted(options):
        if each in chosen:
            continue
        chosen.append(each)
        missing = [amount - freed for amount, freed in zip(missing, each[1], strict=True)]
        if max(missing) <= 0:
            return _without_spare(short, [o for o in options if o[1] in chosen])
    return None


def _missing(short: Sequence[int], leaving: Sequence[Leaving]) -> list[int]:
    return [amount - sum([frees[n] for _, frees in leaving]) for n, amount in enumerate(short)]


def _without_spare(short: Sequence[int], options: Sequence[Option]) -> list[Leaving]:
    """Those who are enough, the dearest spared first."""
    kept = [each for _, each in sorted(options, reverse=True)]
    for each in tuple(kept):
        others = [other for other in kept if other is not each]
        if max(_missing(short, others)) <= 0:
            kept = others
    return kept


def _least_gpus(short: int, options: Sequence[Option]) -> list[Leaving] | None:
    """Who frees so many GPUs at the least price, exactly; None where all together free fewer."""
    useful = [option for option in options if option[1][1][0]]
    frees = {each[1][0] for _, each in useful}
    if len(frees) == 1:
        count = -(-short // frees.pop())
        if len(useful) > count:
            useful.sort()
        return [each for _, each in useful[:count]] if len(useful) >= count else None
    best: list[tuple[int, tuple[int, ...]] | None] = [(0, ()), *([None] * short)]
    for number, (price, (_, freed)) in enumerate(useful):
        for total in range(short, 0, -1):
            before = best[max(0, total - freed[0])]
            here = best[total]
            if before is not None and (here is None or before[0] + price < here[0]):
                best[total] = (before[0] + price, (*before[1], number))
    found = best[short]
    return None if found is None else [useful[number][1] for number in found[1]]


# ----- reading an occupancy


def asked_of(shape: Shape) -> Amounts:
    """What a member asks for, GPUs first; only GPUs where it asks for nothing else."""
    rest = (microcpus(shape.cpus), memory_KiB(shape.memory_GiB), shape.nics)
    return (shape.gpus, *rest) if any(rest) else (shape.gpus,)


def node_books(
    occupancy: Occupancy, ask: Amounts, owners: Sequence[str], most: int
) -> dict[int, NodeBook]:
    """The book of each node on which one of the owners holds something; victims go by their number among the owners."""
    books: dict[int, NodeBook] = {}
    in_parts: list[tuple[int, MemberPlacement]] = []
    for number, owner in enumerate(owners):
        who = (number,)
        members = occupancy.owners.get(owner, ())
        for node, frees in _freed(occupancy, members, ask):
            book = books.get(node)
            if book is None:
                book = books[node] = NodeBook(ask, most, _free(occupancy, node, ask))
            book.leaving.append((who, frees))
        in_parts += [(number, each) for each in members if each.mig or each.share is not None]
    for node, holders in _whole_again(occupancy, in_parts, owners):
        books[node].leaving.append((holders, (1, *(0 for _ in ask[1:]))))
    return books


def _freed(
    occupancy: Occupancy, members: Sequence[MemberPlacement], ask: Amounts
) -> Iterable[tuple[int, Amounts]]:
    """What goes free on each node when these members leave."""
    index_of_node = occupancy.fabric.index_of_node
    if len(members) == 1:
        return ((index_of_node[members[0].node], _frees(members[0], ask)),)
    freed: dict[int, Amounts] = {}
    for member in members:
        node = index_of_node[member.node]
        frees = _frees(member, ask)
        freed[node] = _sum(freed[node], frees) if node in freed else frees
    return freed.items()


def _frees(member: MemberPlacement, ask: Amounts) -> Amounts:
    if len(ask) == 1:
        return (len(member.gpus),)
    cpus, memory = microcpus(member.cpus), memory_KiB(member.memory_GiB)
    return len(member.gpus), cpus, memory, len(member.nics)


def _sum(one: Amounts, other: Amounts) -> Amounts:
    return tuple([a + b for a, b in zip(one, other, strict=True)])


def _free(occupancy: Occupancy, node: int, ask: Amounts) -> list[int]:
    free = [
        int(occupancy.free_gpus_of_node[node]),
        int(occupancy.free_microcpus_of_node[node]),
        int(occupancy.free_memory_KiB_of_node[node]),
        int(occupancy.free_nics_of_node[node]),
    ]
    return free[: len(ask)]


def _whole_again(
    occupancy: Occupancy, in_parts: Sequence[tuple[int, MemberPlacement]], owners: Sequence[str]
) -> list[tuple[int, tuple[int, ...]]]:
    """(node, all who hold parts of one of its GPUs), for those GPUs that nobody else holds parts of."""
    index_of_node = occupancy.fabric.index_of_node
    who: dict[tuple[str, int], dict[int, None]] = {}
    for number, member in in_parts:
        for gpu in member.parts:
            who.setdefault((member.node, gpu), {})[number] = None
    if not who:
        return []
    leaving = dict.fromkeys(owners)
    held = {
        (member.node, gpu)
        for owner, members in occupancy.owners.items()
        if owner not in leaving
        for member in members
        for gpu in member.parts
    }
    return [
        (index_of_node[gpu[0]], tuple(all_of)) for gpu, all_of in who.items() if gpu not in held
    ]
