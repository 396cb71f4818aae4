"""Chooses the NUMA nodes on which a member gets cores, memory and memory bandwidth.

A member lives where its GPUs are, in proportion to how many are where; without GPUs where its NICs are (a parameter
server has card and memory on one NUMA node); without either on the NUMA node with most room. Cores and memory are a
preference: what a full NUMA node cannot give comes from the member's others, then from the next by number (neighbours
share a socket). Bandwidth is required: a member with `memory_GBps` gets it on the NUMA nodes of its GPUs, or has no
place. A member without GPUs gets all three from one NUMA node, unless it requests more cores or memory than one has.

Each GPU of a member carries an equal part of the member's bandwidth. So what is left of a NUMA node's bandwidth is so
many usable GPUs, and whether members fit is counted in GPUs (`gpus_within_bandwidth`). Parts are rounded down to kB/s,
never up: so members that were counted in fit, and the count never grows stale by a rounding.

How a call for one member reads, from what is free on a node to what it holds:

    free = gpus_within_bandwidth(machine, use, free, shape)
    shortages = numa_shortages(machine, use, free, shape)
    gpus = choose_gpus(machine, free, shape.gpus, free_nics, shape.nics, shortages)
    nics = choose_nics(machine, gpus, names, shape.nics)         # nics_with_room(...) for a member without GPUs
    parts = split_numa(machine, use, gpus, nics, shape)
    use = use.changed(machine, parts, +1)                        # and so to the next member

Which GPUs and NICs are best is `placement.machine.devices`; what is held is kept by `topology.hardware.numa`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gantree.model.cluster import Machine, Nic
from gantree.model.jobs import Shape
from gantree.model.placements import NumaPart
from gantree.placement.machine.devices import choose_gpus, choose_nics
from gantree.placement.machine.gpu_sets import NumaShortages
from gantree.topology.hardware.masks import mask_of
from gantree.topology.hardware.numa import (
    BANDWIDTH,
    CPUS,
    MEMORY,
    UNTOLD,
    Amounts,
    NumaLayout,
    NumaUse,
    amounts_of,
    numa_layout,
    part_of,
)

ANY_NUMBER = 1 << 20
"""The number of members where bandwidth is not requested or not counted."""
MOST_CACHED = 1 << 16
"""Most plans cached; then the cache is cleared."""
WHOLE_CPU = 1_000_000
"""Whole CPUs stay whole: a core is not shared between NUMA nodes."""


def split_numa(
    machine: Machine, use: NumaUse, gpus: tuple[int, ...], nics: tuple[str, ...], shape: Shape
) -> tuple[NumaPart, ...]:
    """What a member on these GPUs (whole, or those it has a part of) and NICs holds on each NUMA node, by number.

    () where it asks for none of it, or the machine does not tell NUMA nodes apart and no bandwidth is asked. The parts
    add up to what it asks (bandwidth to within a few kB/s). AssertionError where the bandwidth is not there:
    `members_by_bandwidth` and `gpus_within_bandwidth` say so before.
    """
    layout = numa_layout(machine)
    if len(layout.names) == 1 and not shape.memory_GBps:
        return ()
    if not (shape.cpus or shape.memory_GiB or shape.memory_GBps):
        return ()
    question = (layout, gpus or nics, shape.cpus, shape.memory_GiB, shape.memory_GBps)
    plan = _PLANS.get(question)
    if plan is None:
        plan = _keep(question, _plan(machine, layout, gpus, nics, shape))
    if plan.homes and _has_room(layout, use, plan.homes):
        return plan.parts
    return _parts(layout, _spilled(layout, use, plan))


def members_by_bandwidth(machine: Machine, use: NumaUse, shape: Shape) -> int:
    """Return how many members the free memory bandwidth admits, on any GPUs; ANY_NUMBER if none is requested.

    With the GPUs that are free the answer is `gpus_within_bandwidth` over the GPUs of a member. A member without whole
    GPUs is served by one NUMA node, unless it asks for more than one has.
    """
    rate = amounts_of(0, 0, shape.memory_GBps)[BANDWIDTH]
    if not rate or machine.numa_memory_GBps is None:
        return ANY_NUMBER
    if shape.gpus:
        everything = (1 << machine.gpus) - 1
        usable = _usable(machine, use, everything, shape.gpus, rate)
        return sum(count for _, count in usable) // shape.gpus
    free = [amounts[BANDWIDTH] for amounts in use.free(machine)]
    one = numa_layout(machine).capacity[BANDWIDTH]
    return sum(left // rate for left in free) if rate <= one or shape.part else sum(free) // rate


def most_bandwidth(machine: Machine, shape: Shape) -> float:
    """Return the most memory bandwidth, in GB/s, of a member with such GPUs on an empty machine; inf if unknown.

    On GPUs it has equal parts beside each, so the NUMA node with most of them decides.
    """
    if machine.numa_memory_GBps is None:
        return float("inf")
    layout, gpus = numa_layout(machine), shape.gpus or int(shape.part)
    if not gpus:
        return machine.numa_memory_GBps * len(layout.names)
    there = [here.bit_count() for here in layout.gpus]
    for most in range(1, gpus + 1):
        if sum(min(here, most) for here in there) >= gpus:
            return machine.numa_memory_GBps * gpus / most
    return 0.0


def gpus_within_bandwidth(machine: Machine, use: NumaUse, free: int, shape: Shape) -> int:
    """Those of the free GPUs (a mask) that the memory bandwidth left can serve for members of a shape.

    Any members of the shape fit on them together. Where a NUMA node can serve fewer than are free, the best connected
    are kept. For a member with a part of a GPU: the GPUs on NUMA nodes that can serve one.
    """
    rate = amounts_of(0, 0, shape.memory_GBps)[BANDWIDTH]
    if not rate or machine.numa_memory_GBps is None or not (shape.gpus or shape.part):
        return free
    kept = 0
    for here, count in _usable(machine, use, free, shape.gpus or 1, rate):
        if shape.part:
            kept |= here if count else 0
        else:
            kept |= (
                here if count == here.bit_count() else mask_of(choose_gpus(machine, here, count))
            )
    return kept


def numa_shortages(machine: Machine, use: NumaUse, free: int, shape: Shape) -> NumaShortages:
    """Return NUMA nodes whose free cores and memory suffice for fewer GPUs than are free there, and how many.

    A member's GPUs beyond that would take their cores from another NUMA node: `choose_gpus` avoids them. () mostly.
    """
    layout = numa_layout(machine)
    if len(layout.names) == 1 or not shape.gpus:
        return ()
    cpus, memory, _ = amounts_of(shape.cpus, shape.memory_GiB, 0)
    most_cpus, most_memory, _ = layout.capacity
    short = []
    for here, (held_cpus, held_memory, _) in zip(layout.gpus, use.held, strict=True):
        need = (here & free).bit_count()
        by_cpus, by_memory = max(0, most_cpus - held_cpus), max(0, most_memory - held_memory)
        if by_cpus * shape.gpus < need * cpus or by_memory * shape.gpus < need * memory:
            served = [left * shape.gpus // asked
                      for left, asked in ((by_cpus, cpus), (by_memory, memory)) if asked]  # fmt: skip
            short.append((here, min(served)))
    return tuple(short)


def nics_with_room(
    machine: Machine, use: NumaUse, free: tuple[str, ...], shape: Shape
) -> tuple[str, ...]:
    """The NICs, of those free, for a member without GPUs, such that its memory can be beside them.

    NICs near to no GPU first, for they serve nobody else; then those of one NUMA node that has enough of them, the one
    with most room for the member; then any, the NUMA nodes with most room first. AssertionError if too few are free.
    """
    layout = numa_layout(machine)
    if len(layout.names) == 1 or not shape.nics:
        return choose_nics(machine, (), free, shape.nics)
    room = _room(layout, use, amounts_of(shape.cpus, shape.memory_GiB, shape.memory_GBps))
    home_of = {nic.name: _home(layout, nic) for nic in machine.nics}
    idle = tuple(name for name in free if home_of[name] is None)
    roomiest = sorted(range(len(room)), key=lambda place: (-room[place], place))
    at = [tuple(name for name in free if home_of[name] == place) for place in roomiest]
    for nics in (idle, *at):
        if len(nics) >= shape.nics:
            return choose_nics(machine, (), nics, shape.nics)
    assert len(free) >= shape.nics, f"{shape.nics} NICs of {len(free)} that are free"
    return tuple(name for nics in (idle, *at) for name in nics)[: shape.nics]


# ----- what a member would get on an empty machine


@dataclass(frozen=True, slots=True)
class _Plan:
    """homes: (place of a NUMA node, what the member gets there); () where what is free decides.

    parts says the same in the model's words. of_gpus: the member lives on GPUs, so its bandwidth cannot move.
    """

    asked: Amounts
    weights: tuple[int, ...]
    of_gpus: bool
    homes: tuple[tuple[int, Amounts], ...]
    parts: tuple[NumaPart, ...]


_Question = tuple[NumaLayout, tuple[int, ...] | tuple[str, ...], float, float, float]
_PLANS: dict[_Question, _Plan] = {}


def _keep(question: _Question, plan: _Plan) -> _Plan:
    if len(_PLANS) >= MOST_CACHED:
        _PLANS.clear()
    _PLANS[question] = plan
    return plan


def _plan(
    machine: Machine, layout: NumaLayout, gpus: Sequence[int], nics: Sequence[str], shape: Shape
) -> _Plan:
    asked = amounts_of(shape.cpus, shape.memory_GiB, shape.memory_GBps)
    weights = layout.gpus_at(gpus)
    if not gpus:
        at = [_home(layout, nic) for nic in machine.nics if nic.name in nics]
        weights = [at.count(place) for place in range(len(layout.names))]
    if not any(weights) or (asked[BANDWIDTH] and not gpus):
        return _Plan(asked, tuple(weights), False, (), ())
    shares = _shared_out(asked, weights)
    homes = tuple((place, share) for place, share in enumerate(shares) if weights[place])
    return _Plan(asked, tuple(weights), bool(gpus), homes, _parts(layout, shares))


def _home(layout: NumaLayout, nic: Nic) -> int | None:
    """The NUMA node with most of the GPUs that a NIC is near to; None where it is near to none."""
    near = layout.gpus_at(nic.near)
    return near.index(max(near)) if any(near) else None


def _shared_out(asked: Amounts, weights: Sequence[int]) -> list[Amounts]:
    """Split amounts by weights, whole CPUs whole; bandwidth is rounded down."""
    cpus = _split(asked[CPUS], weights, _grain(asked[CPUS]))
    memory = _split(asked[MEMORY], weights, 1)
    rates = [asked[BANDWIDTH] * weight // sum(weights) for weight in weights]
    return list(zip(cpus, memory, rates, strict=True))


def _grain(microcpus: int) -> int:
    return 1 if microcpus % WHOLE_CPU else WHOLE_CPU


def _split(amount: int, weights: Sequence[int], grain: int) -> list[int]:
    """Split an amount by weights in multiples of a grain that divides it, by largest remainder."""
    grains, total = amount // grain, sum(weights)
    shares = [grains * weight // total for weight in weights]
    cut_off = sorted(
        range(len(weights)), key=lambda place: (-(grains * weights[place] % total), place)
    )
    for place in cut_off[: grains - sum(shares)]:
        shares[place] += 1
    return [share * grain for share in shares]


def _parts(layout: NumaLayout, shares: Sequence[Amounts]) -> tuple[NumaPart, ...]:
    return tuple(
        part_of(name, share) for name, share in zip(layout.names, shares, strict=True) if any(share)
    )


# ----- where something is held already


def _has_room(layout: NumaLayout, use: NumaUse, homes: Sequence[tuple[int, Amounts]]) -> bool:
    most_cpus, most_memory, most_rate = layout.capacity
    for place, (cpus, memory, rate) in homes:
        held = use.held[place]
        if (
            held[CPUS] + cpus > most_cpus
            or held[MEMORY] + memory > most_memory
            or held[BANDWIDTH] + rate > most_rate
        ):
            return False
    return True


def _spilled(layout: NumaLayout, use: NumaUse, plan: _Plan) -> list[Amounts]:
    """Shares of a member where its NUMA nodes are full, or it has none of its own."""
    free = [
        [max(0, most - held) for most, held in zip(layout.capacity, at, strict=True)]
        for at in use.held
    ]
    weights = plan.weights
    if not plan.of_gpus:
        weights = _weights_by_room(layout, use, plan)
    preferred = _shared_out(plan.asked, weights)
    for place, share in enumerate(preferred):
        assert share[BANDWIDTH] <= free[place][BANDWIDTH], (
            f"NUMA node {layout.names[place]} has no {share[BANDWIDTH] / 1_000_000:g} GB/s left"
        )
    order = _nearest_first(layout, weights)
    columns = [
        _moved(
            [share[resource] for share in preferred], [at[resource] for at in free], order, grain
        )
        for resource, grain in ((CPUS, _grain(plan.asked[CPUS])), (MEMORY, 1))
    ]
    return list(zip(*columns, (share[BANDWIDTH] for share in preferred), strict=True))


def _weights_by_room(layout: NumaLayout, use: NumaUse, plan: _Plan) -> tuple[int, ...]:
    """Where a member without GPUs lives: beside its NICs, or else where most room is.

    Where it asks for bandwidth, on one NUMA node that has it, of its NICs if possible; for more than one has, on one
    after the other in that order.
    """
    if any(plan.weights) and not plan.asked[BANDWIDTH]:
        return plan.weights
    rate, most = plan.asked[BANDWIDTH], layout.capacity[BANDWIDTH]
    free = [max(0, most - held[BANDWIDTH]) for held in use.held]
    room = _room(layout, use, plan.asked)
    roomiest = sorted(
        range(len(free)), key=lambda place: (-plan.weights[place], -room[place], place)
    )
    if rate <= most:
        home = next((place for place in roomiest if free[place] >= rate), None)
        assert home is not None, f"no NUMA node has {rate / 1_000_000:g} GB/s left"
        return tuple(int(place == home) for place in range(len(free)))
    weights = [0] * len(free)
    for place in roomiest:
        weights[place] = min(free[place], rate - sum(weights))
    assert sum(weights) == rate, f"the NUMA nodes have no {rate / 1_000_000:g} GB/s left together"
    return tuple(weights)


def _room(layout: NumaLayout, use: NumaUse, asked: Amounts) -> list[float]:
    """Return how many such members each NUMA node still holds, by the scarcest requested resource."""
    return [
        min(
            (
                (most - held) / amount
                for most, held, amount in zip(layout.capacity, at, asked, strict=True)
                if amount and most != UNTOLD
            ),
            default=0.0,
        )
        for at in use.held
    ]


def _nearest_first(layout: NumaLayout, weights: Sequence[int]) -> list[int]:
    """Places of NUMA nodes by how far their number is from one with weight."""
    homes = [place for place, weight in enumerate(weights) if weight]
    number = [name or 0 for name in layout.names]
    return sorted(
        range(len(number)),
        key=lambda place: (min(abs(number[place] - number[home]) for home in homes), place),
    )


def _moved(preferred: list[int], free: list[int], order: Sequence[int], grain: int) -> list[int]:
    """Shares with what is not free moved, in this order, to where something is; in grains as long as that goes.

    What is free nowhere stays with the first: the node as a whole is known to have it (held by no NUMA node's name).
    """
    shares = [
        min(share, left // grain * grain) for share, left in zip(preferred, free, strict=True)
    ]
    over = sum(preferred) - sum(shares)
    for step in (grain, 1):
        for place in order:
            more = min(over, max(0, free[place] - shares[place])) // step * step
            shares[place] += more
            over -= more
    shares[order[0]] += over
    return shares


# ----- in GPUs


def _usable(
    machine: Machine, use: NumaUse, free: int, gpus: int, rate: int
) -> list[tuple[int, int]]:
    """(free GPUs on a NUMA node as a mask, how many of them its bandwidth serves) for members of so many GPUs."""
    layout = numa_layout(machine)
    most = layout.capacity[BANDWIDTH]
    usable = []
    for here, held in zip(layout.gpus, use.held, strict=True):
        mask = free & here
        served = max(0, most - held[BANDWIDTH]) * gpus // rate
        usable.append((mask, min(mask.bit_count(), served)))
    return usable
