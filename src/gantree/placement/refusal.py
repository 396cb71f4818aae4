"""Why a gang has no place: the first gate that said no, by how much, the nearest miss, and what would help.

    SHAPE        no machine that a role's labels and models admit is large enough for one member, ignoring use
    CONTIGUITY   (never) the empty, healthy fabric could not hold the gang, or its wish contradicts itself
    ROOM         the empty fabric could, but of some resource less is free than the gang asks
    CONTIGUITY   all of it is free, but not together

Room is counted on usable nodes that could hold a member of the role if they were empty. Every patch in
`would_fit_if` has been searched for with the patched job on this very occupancy.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from gantree.model.jobs import Job
from gantree.model.placements import Placement
from gantree.model.verdicts import Gate, Refused, Relaxation, Shortage
from gantree.placement.inside import inner_domains
from gantree.placement.members import placement_of
from gantree.placement.relax import (
    MEMBERS,
    REQUIRED,
    SLICES,
    Patch,
    both_dropped,
    fewer_members,
    looser_slices,
    relaxed,
    wider_places,
)
from gantree.placement.slots import SlotShape, slots
from gantree.placement.solve import solve
from gantree.placement.wish import RoleWish, Wish, read_wish
from gantree.topology.fabric import BoolArray, IntArray
from gantree.topology.occupancy import Occupancy

RESOURCES: tuple[tuple[str, str, float], ...] = (
    ("gpus", "gpus", 1),
    ("cpus", "microcpus", 1_000_000),
    ("memory_GiB", "memory_KiB", 1 << 20),
    ("nics", "nics", 1),
)
"""(as people name it, as a slot shape and an occupancy count it, counted units in one)."""


def explain(occupancy: Occupancy, job: Job, wish: Wish) -> Refused:
    """Explain why `solve` found nothing for this wish on this occupancy."""
    if wish.contradiction:
        return Refused(Gate.CONTIGUITY, f"Never fits: {wish.contradiction}.", never=True)
    for role in wish.roles:
        refused = _too_large(occupancy, role)
        if refused is not None:
            return refused
    if solve(occupancy.emptied(), wish) is None:
        return _not_together(occupancy, job, wish, never=True)
    return _no_room(occupancy, job, wish) or _not_together(occupancy, job, wish, never=False)


# ----- SHAPE


def _too_large(occupancy: Occupancy, role: RoleWish) -> Refused | None:
    shape = SlotShape.of(role.shape, role.shape.models)
    empty = occupancy.emptied()
    if slots(empty, shape).of_node.any():
        return None
    admitted = occupancy.fabric.nodes_with(shape.labels, shape.models)
    if not admitted.any():
        sentence = f"Never fits: no node has {_wanted(role)}, which role {role.name} asks for."
        return Refused(Gate.SHAPE, sentence, never=True)
    name, asked, largest = _first_lack(empty, shape, admitted)
    sentence = (
        f"Never fits: a member of role {role.name} needs {asked:g} {name}; "
        f"the largest machine{_that_admits(role)} has {largest:g}."
    )
    return Refused(Gate.SHAPE, sentence, never=True, short_by=Shortage(name, asked - largest))


def _first_lack(
    empty: Occupancy, shape: SlotShape, admitted: BoolArray
) -> tuple[str, float, float]:
    """(resource, asked, most there is) of the machine that lacks the fewest resources, the first it lacks."""
    lacks = [
        [(name, asked, there) for name, asked, there in _amounts(empty, shape, node) if asked > there]
        for node in np.flatnonzero(admitted).tolist()
    ]
    fewest = min(len(lack) for lack in lacks)
    first = [lack[0] for lack in lacks if len(lack) == fewest]
    return max(first, key=lambda lack: lack[2])


def _amounts(empty: Occupancy, shape: SlotShape, node: int) -> Iterator[tuple[str, float, float]]:
    for name, counted, unit in RESOURCES:
        there = int(getattr(empty, f"free_{counted}_of_node")[node])
        yield name, getattr(shape, counted) / unit, there / unit


def _wanted(role: RoleWish) -> str:
    labels = ", ".join(f"{key}={value}" for key, value in role.shape.labels)
    models = " or ".join(role.shape.models)
    wanted = [f"label {labels}" if labels else "", f"GPUs of model {models}" if models else ""]
    return " and ".join(filter(None, wanted))


def _that_admits(role: RoleWish) -> str:
    return f" with {_wanted(role)}" if _wanted(role) else ""


# ----- ROOM


@dataclass(frozen=True, slots=True)
class _Lack:
    """Less of a resource is free, on the nodes that count, than some roles ask together."""

    resource: str
    asked: float
    free: float


def _no_room(occupancy: Occupancy, job: Job, wish: Wish) -> Refused | None:
    eligible = [_eligible(occupancy, role) for role in wish.roles]
    groups = [[number] for number in range(len(wish.roles))]
    if len(groups) > 1:
        groups.append(list(range(len(wish.roles))))
    for group in groups:
        lack = _lack(occupancy, [wish.roles[n] for n in group], [eligible[n] for n in group])
        if lack is not None:
            return _room_refusal(occupancy, job, wish, lack)
    return None


def _eligible(occupancy: Occupancy, role: RoleWish) -> BoolArray:
    shape = SlotShape.of(role.shape, role.shape.models)
    could: BoolArray = slots(occupancy.emptied(), shape).of_node > 0
    return could & occupancy.usable_node


def _lack(
    occupancy: Occupancy, roles: list[RoleWish], eligible: list[BoolArray]
) -> _Lack | None:
    nodes = np.logical_or.reduce(eligible)
    shapes = [SlotShape.of(role.shape, role.shape.models) for role in roles]
    for name, counted, unit in RESOURCES:
        asked = sum(
            getattr(shape, counted) * role.members
            for shape, role in zip(shapes, roles, strict=True)
        )
        free = int(getattr(occupancy, f"free_{counted}_of_node")[nodes].sum())
        if asked > free:
            return _Lack(name, asked / unit, free / unit)
    if not nodes.any():
        return _Lack("nodes", 1, 0)
    return None


def _room_refusal(occupancy: Occupancy, job: Job, wish: Wish, lack: _Lack) -> Refused:
    tier = _tier_in_question(wish)
    nearest = _roomiest(occupancy, wish, tier)
    fewer = tuple(_fewer(occupancy, job))
    sentence = (
        f"Waiting: needs {lack.asked:g} {_for_people(lack.resource)}; {lack.free:g} are free."
        f"{_advice(fewer)}"
    )
    return Refused(
        Gate.ROOM,
        sentence,
        short_by=Shortage(lack.resource, lack.asked - lack.free),
        nearest=(nearest.name, nearest.free_gpus),
        wakes_on=_wakes_on(occupancy, wish),
        would_fit_if=fewer,
    )


# ----- CONTIGUITY


@dataclass(frozen=True, slots=True)
class _Nearest:
    """The domain with most room: for so many members, and with so many free GPUs."""

    tier: str
    name: str
    members: int
    free_gpus: int


def _not_together(occupancy: Occupancy, job: Job, wish: Wish, *, never: bool) -> Refused:
    tier = _tier_in_question(wish)
    nearest = _roomiest(occupancy.emptied() if never else occupancy, wish, tier)
    members, gpus = _asked_together(wish)
    if nearest.free_gpus < gpus:
        short: Shortage | None = Shortage("gpus", gpus - nearest.free_gpus)
    elif nearest.members < members:
        short = Shortage("members", members - nearest.members)
    else:
        short = None
    relaxations = tuple(_relaxations(occupancy, job, wish))
    start = "Never fits: needs" if never else "Waiting: needs"
    sentence = (
        f"{start} {_people_count(members, gpus)} in one {_tier_name(wish, tier, occupancy)}; "
        f"{_what_there_is(occupancy, nearest, gpus, never=never)}.{_advice(relaxations)}"
    )
    return Refused(
        Gate.CONTIGUITY,
        sentence,
        never=never,
        short_by=short,
        nearest=(nearest.name, nearest.free_gpus),
        wakes_on=() if never else _wakes_on(occupancy, wish),
        would_fit_if=relaxations,
    )


def _what_there_is(occupancy: Occupancy, nearest: _Nearest, gpus: int, *, never: bool) -> str:
    where = f"{nearest.tier} {nearest.name}".strip()
    if never:
        return f"the largest, {where}, has {nearest.free_gpus} GPUs when empty"
    free = int(occupancy.free_gpus_of_node[occupancy.usable_node].sum())
    room = f"{free} are free, the roomiest, {where}, has {nearest.free_gpus}"
    return room if nearest.free_gpus < gpus else f"{room}, in pieces for {nearest.members} members"


def _tier_in_question(wish: Wish) -> int:
    """The tier whose domains were too small: the required one, else that of a role or slice, else the node."""
    if wish.whole_at:
        return wish.whole_at
    of_roles = [role.whole_at for role in wish.roles if role.whole_at]
    sliced = [
        max(tier for tier, multiple in enumerate(role.multiple_in_domain) if multiple > 1)
        for role in wish.roles
        if max(role.multiple_in_domain) > 1
    ]
    node = len(wish.roles[0].multiple_in_domain) - 1
    return max((*of_roles, *sliced), default=node)


def _asked_together(wish: Wish) -> tuple[int, int]:
    """(members, GPUs) that must be in one domain of the tier in question."""
    tier = _tier_in_question(wish)
    if wish.whole_at:
        runs = [(role.members, role.shape.gpus) for role in wish.roles]
        return sum(n for n, _ in runs), sum(n * gpus for n, gpus in runs)
    runs = [
        (role.members if role.whole_at == tier else role.multiple_in_domain[tier], role.shape.gpus)
        for role in wish.roles
    ]
    return max(runs, key=lambda run: (run[0] * run[1], run[0]))[0], max(n * g for n, g in runs)


def _roomiest(occupancy: Occupancy, wish: Wish, tier: int) -> _Nearest:
    fabric = occupancy.fabric
    first = fabric.first_node_of_domain[tier][:-1]
    tables = [slots(occupancy, SlotShape.of(r.shape, r.shape.models)) for r in wish.roles]
    members = sum(
        np.minimum(table.in_domain[tier], role.members)
        for table, role in zip(tables, wish.roles, strict=True)
    )
    eligible = np.logical_or.reduce([_eligible(occupancy, role) for role in wish.roles])
    free = np.add.reduceat(np.where(eligible, _free_together(occupancy, wish), 0), first)
    best = int(np.lexsort((-free, -members))[0]) if not any(r.shape.gpus for r in wish.roles) else (
        int(np.lexsort((-members, -free))[0])
    )
    return _Nearest(
        fabric.tiers[tier], fabric.names_of_domain[tier][best], int(members[best]), int(free[best])
    )


def _free_together(occupancy: Occupancy, wish: Wish) -> IntArray:
    """Free GPUs by node; where a domain inside the node is asked for, those of its roomiest one."""
    inner = wish.together or next((r.layers[0][1] for r in wish.roles if r.layers), None)
    if inner is None:
        return occupancy.free_gpus_of_node
    return np.array(
        [
            max(
                ((free & d).bit_count() for d in inner_domains(occupancy.fabric.machine_of_node(node), inner)),
                default=0,
            )
            for node, free in enumerate(occupancy.free_mask_of_node)
        ],
        dtype=np.int64,
    )


# ----- what would help


def _relaxations(occupancy: Occupancy, job: Job, wish: Wish) -> Iterator[Relaxation]:
    fabric = occupancy.fabric
    looser = [
        relaxation
        for patches in (wider_places(fabric, job, wish), looser_slices(fabric, job))
        if (relaxation := _first_that_fits(occupancy, job, wish, patches))
    ]
    if not looser:
        together = _first_that_fits(occupancy, job, wish, both_dropped(job))
        looser = [together] if together else []
    yield from looser
    yield from _fewer(occupancy, job)


def _first_that_fits(
    occupancy: Occupancy, job: Job, wish: Wish, patches: Iterable[Patch]
) -> Relaxation | None:
    for patch in patches:
        smaller = read_wish(occupancy.fabric, relaxed(job, patch))
        found = solve(occupancy, smaller)
        if found is not None:
            return Relaxation(patch, _comm_ratio(occupancy, wish, placement_of(*found)))
    return None


def _comm_ratio(occupancy: Occupancy, wish: Wish, placement: Placement) -> float | None:
    best = solve(occupancy.emptied(), wish)
    if best is None:
        return None
    best_s = placement_of(*best).predicted.comm_s
    return placement.predicted.comm_s / best_s if best_s else None


def _fewer(occupancy: Occupancy, job: Job) -> Iterator[Relaxation]:
    """The largest smaller gang that fits; what fits n members fits fewer of them too."""
    sizes = fewer_members(job)

    def fits(members: int) -> bool:
        smaller = relaxed(job, ((MEMBERS, members),))
        return solve(occupancy, read_wish(occupancy.fabric, smaller)) is not None

    count = _count_true(sizes, fits)
    if count:
        yield Relaxation(((MEMBERS, sizes[count - 1]),))


def _count_true(sizes: tuple[int, ...], fits: Callable[[int], bool]) -> int:
    """How many of the sizes fit, where all before one that fits do too."""
    low, high = 0, len(sizes)
    while low < high:
        middle = (low + high) // 2
        if fits(sizes[middle]):
            low = middle + 1
        else:
            high = middle
    return low


# ----- words


def _wakes_on(occupancy: Occupancy, wish: Wish) -> tuple[str, ...]:
    """Resources whose release could change the answer, and "nodes" while some may not be used."""
    shapes = [SlotShape.of(role.shape, ()) for role in wish.roles]
    asked = [name for name, counted, _ in RESOURCES if any(getattr(s, counted) for s in shapes)]
    return (*asked, "nodes") if not occupancy.usable_node.all() else tuple(asked)


def _advice(relaxations: tuple[Relaxation, ...]) -> str:
    if not relaxations:
        return ""
    first = relaxations[0]
    return f" Fits now {' and '.join(_in_words(key, value) for key, value in first.patch)}{_price(first)}."


def _in_words(key: str, value: str | int | None) -> str:
    if key == MEMBERS:
        return f"with {value} members"
    if key == SLICES:
        return "without slices" if value is None else f"with slices in one {value} each"
    assert key == REQUIRED
    return "if no tier is required" if value is None else f"if relaxed to {value}"


def _price(relaxation: Relaxation) -> str:
    if relaxation.comm_ratio is None:
        return ""
    return f", at {(relaxation.comm_ratio - 1) * 100:+.0f} % communication time"


def _people_count(members: int, gpus: int) -> str:
    if gpus:
        return f"{gpus} GPUs"
    return "1 member" if members == 1 else f"{members} members"


def _for_people(resource: str) -> str:
    return {"gpus": "GPUs", "cpus": "CPUs", "memory_GiB": "GiB of memory", "nics": "NICs"}.get(
        resource, resource
    )


def _tier_name(wish: Wish, tier: int, occupancy: Occupancy) -> str:
    inner = wish.together or next((r.layers[0][1] for r in wish.roles if r.layers), None)
    if inner is not None and tier == occupancy.fabric.node_tier:
        return f"{inner} domain"
    return occupancy.fabric.tiers[tier]
