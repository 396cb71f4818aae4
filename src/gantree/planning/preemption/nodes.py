"""The price of freeing room on one node: which victims to stop for so many members.

A node with its free amounts, and the amounts that each victim on it would free, is a small covering problem: free at
least the missing amounts at the least price. GPUs are few and whole, so they are covered exactly (`_least_gpus`). If
other resources are still missing, more victims are added, the cheapest first, and then the unneeded ones removed.

A GPU of which several gangs hold parts is free when all of them are gone: they are one group. Prices are integers
(`prices`). Counts ignore MIG positions, tiers inside the node and NUMA; the proof is made elsewhere.

There are as many groups as gangs in the cluster, so they are plain tuples.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gantree.model.jobs import Shape
from gantree.model.placements import MemberPlacement
from gantree.topology.occupancy.occupancy import Occupancy, memory_KiB, microcpus

Amounts = tuple[int, ...]
"""GPUs first, then the other resources of a member: microcpus, KiB of memory, NICs."""

VictimGroup = tuple[tuple[int, ...], Amounts]
"""(numbers of victims that are stopped together, the amounts that this frees on a node)"""

Option = tuple[int, VictimGroup]
"""(price, group)"""


@dataclass(slots=True)
class NodeVictims:
    """One node: the request of a member, the most members that it may hold, its free amounts, and the groups of
    victims.
    """

    request: Amounts
    most: int
    free: list[int]
    groups: list[VictimGroup] = field(default_factory=list)

    def most_slots(self) -> int:
        """Slots without all victims."""
        request, free = self.request, self.free
        if len(request) == 1:
            return min(
                self.most, (free[0] + sum([frees[0] for _, frees in self.groups])) // request[0]
            )
        freed = [f + sum([frees[n] for _, frees in self.groups]) for n, f in enumerate(free)]
        return min(self.most, *(f // a for a, f in zip(request, freed, strict=True) if a))

    def price(
        self, members: int, prices: Sequence[int], gone: Mapping[int, None]
    ) -> tuple[int, tuple[int, ...]] | None:
        """The least price found for so many members, without the victims already gone, and the further victims."""
        short = [a * members - free for a, free in zip(self.request, self.free, strict=True)]
        options: list[Option] = []
        for each in self.groups:
            victims, frees = each
            if len(victims) == 1:
                price = 0 if victims[0] in gone else prices[victims[0]]
            else:
                price = sum([prices[number] for number in victims if number not in gone])
            if price:
                options.append((price, each))
            else:
                short = [s - freed for s, freed in zip(short, frees, strict=True)]
        if max(short) <= 0:
            return 0, ()
        chosen = _cover(short, options)
        if chosen is None:
            return None
        leave = dict.fromkeys(n for victims, _ in chosen for n in victims if n not in gone)
        return sum([prices[number] for number in leave]), tuple(leave)


def _cover(short: Sequence[int], options: Sequence[Option]) -> list[VictimGroup] | None:
    """Groups that free the short amounts; None where not even all do."""
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
            return _without_unneeded(short, [o for o in options if o[1] in chosen])
    return None


def _missing(short: Sequence[int], groups: Sequence[VictimGroup]) -> list[int]:
    return [amount - sum([frees[n] for _, frees in groups]) for n, amount in enumerate(short)]


def _without_unneeded(short: Sequence[int], options: Sequence[Option]) -> list[VictimGroup]:
    """The needed groups; the most expensive are left out first."""
    kept = [each for _, each in sorted(options, reverse=True)]
    for each in tuple(kept):
        others = [other for other in kept if other is not each]
        if max(_missing(short, others)) <= 0:
            kept = others
    return kept


def _least_gpus(short: int, options: Sequence[Option]) -> list[VictimGroup] | None:
    """The groups that free so many GPUs at the least price, exactly; None where all together free fewer."""
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


def request_of(shape: Shape) -> Amounts:
    """The request of a member, GPUs first; GPUs only, if it requests nothing else."""
    rest = (microcpus(shape.cpus), memory_KiB(shape.memory_GiB), shape.nics)
    return (shape.gpus, *rest) if any(rest) else (shape.gpus,)


def victims_of_nodes(
    occupancy: Occupancy, request: Amounts, owners: Sequence[str], most: int
) -> dict[int, NodeVictims]:
    """The victims of each node on which an owner holds something; victims are numbered as the owners."""
    victims_of_node: dict[int, NodeVictims] = {}
    in_parts: list[tuple[int, MemberPlacement]] = []
    for number, owner in enumerate(owners):
        victims = (number,)
        members = occupancy.owners.get(owner, ())
        for node, frees in _freed(occupancy, members, request):
            node_victims = victims_of_node.get(node)
            if node_victims is None:
                node_victims = victims_of_node[node] = NodeVictims(
                    request, most, _free(occupancy, node, request)
                )
            node_victims.groups.append((victims, frees))
        in_parts += [(number, each) for each in members if each.mig or each.share is not None]
    for node, holders in _shared_gpus(occupancy, in_parts, owners):
        victims_of_node[node].groups.append((holders, (1, *(0 for _ in request[1:]))))
    return victims_of_node


def _freed(
    occupancy: Occupancy, members: Sequence[MemberPlacement], request: Amounts
) -> Iterable[tuple[int, Amounts]]:
    """The amounts that these members would free, by node."""
    index_of_node = occupancy.fabric.index_of_node
    if len(members) == 1:
        return ((index_of_node[members[0].node], _frees(members[0], request)),)
    freed: dict[int, Amounts] = {}
    for member in members:
        node = index_of_node[member.node]
        frees = _frees(member, request)
        freed[node] = _sum(freed[node], frees) if node in freed else frees
    return freed.items()


def _frees(member: MemberPlacement, request: Amounts) -> Amounts:
    if len(request) == 1:
        return (len(member.gpus),)
    cpus, memory = microcpus(member.cpus), memory_KiB(member.memory_GiB)
    return len(member.gpus), cpus, memory, len(member.nics)


def _sum(one: Amounts, other: Amounts) -> Amounts:
    return tuple([a + b for a, b in zip(one, other, strict=True)])


def _free(occupancy: Occupancy, node: int, request: Amounts) -> list[int]:
    free = [
        int(occupancy.free_gpus_of_node[node]),
        int(occupancy.free_microcpus_of_node[node]),
        int(occupancy.free_memory_KiB_of_node[node]),
        int(occupancy.free_nics_of_node[node]),
    ]
    return free[: len(request)]


def _shared_gpus(
    occupancy: Occupancy, in_parts: Sequence[tuple[int, MemberPlacement]], owners: Sequence[str]
) -> list[tuple[int, tuple[int, ...]]]:
    """(node, the victims with parts of one GPU), for GPUs of which only victims hold parts."""
    index_of_node = occupancy.fabric.index_of_node
    victims_of_gpu: dict[tuple[str, int], dict[int, None]] = {}
    for number, member in in_parts:
        for gpu in member.parts:
            victims_of_gpu.setdefault((member.node, gpu), {})[number] = None
    if not victims_of_gpu:
        return []
    preemptible = dict.fromkeys(owners)
    held = {
        (member.node, gpu)
        for owner, members in occupancy.owners.items()
        if owner not in preemptible
        for member in members
        for gpu in member.parts
    }
    return [
        (index_of_node[gpu[0]], tuple(victims))
        for gpu, victims in victims_of_gpu.items()
        if gpu not in held
    ]
