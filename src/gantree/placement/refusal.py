"""Why a gang has no place: the first gate that said no, by how much, the nearest miss, and what would help.

    SHAPE        no machine that a role's labels and models admit is large enough for one member, ignoring use
    CONTIGUITY   (never) the empty, healthy fabric could not hold the gang, or its wish contradicts itself
    ROOM         the empty fabric could, but of some resource less is free than the gang asks
    CONTIGUITY   all of it is free, but not together

Room is counted on usable nodes that could hold a member of the role if they were empty. Every patch in
`would_fit_if` has been searched for with the patched job on this very occupancy.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from gantree.model.jobs import Job
from gantree.model.placements import Placement
from gantree.model.verdicts import Gate, Patch, PatchValue, Refused, Relaxation, Shortage
from gantree.placement.members import placement_of
from gantree.placement.nearest import (
    Roomiest,
    asked_together,
    domain_word,
    eligible_nodes,
    is_bound,
    members_with_room,
    roomiest_domain,
)
from gantree.placement.relax import (
    MEMBERS,
    REQUIRED,
    SLICES,
    both_dropped,
    fewer_members,
    looser_slices,
    relaxed,
    wider_places,
)
from gantree.placement.slots import SlotShape, slots
from gantree.placement.solve import solvable, solve
from gantree.placement.wish import RoleWish, Wish, read_wish
from gantree.topology.fabric import BoolArray
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
    return _too_little(occupancy, job, wish, never=not solvable(occupancy.emptied(), wish))


def _too_little(occupancy: Occupancy, job: Job, wish: Wish, *, never: bool) -> Refused:
    """Too little of something at all, or all of it but not together."""
    lack = _lack_of_room(occupancy.emptied() if never else occupancy, wish)
    if lack is not None:
        return _no_room(occupancy, job, wish, lack, never=never)
    return _not_together(occupancy, job, wish, never=never)


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
        f"Never fits: a member of role {role.name} needs {_amount(asked)} {_for_people(name, asked)}; "
        f"the largest machine{_that_admits(role)} has {_amount(largest)}."
    )
    return Refused(Gate.SHAPE, sentence, never=True, short_by=Shortage(name, asked - largest))


def _first_lack(
    empty: Occupancy, shape: SlotShape, admitted: BoolArray
) -> tuple[str, float, float]:
    """(resource, asked, most there is) of the machine that lacks the fewest resources, the first it lacks."""
    lacks = [
        [
            (name, asked, there)
            for name, asked, there in _amounts(empty, shape, node)
            if asked > there
        ]
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
    roles: tuple[RoleWish, ...]


def _lack_of_room(occupancy: Occupancy, wish: Wish) -> _Lack | None:
    """The first resource of which too little is free, for one role or for all of them."""
    eligible = [eligible_nodes(occupancy, role) for role in wish.roles]
    groups = [[number] for number in range(len(wish.roles))]
    if len(groups) > 1:
        groups.append(list(range(len(wish.roles))))
    for group in groups:
        lack = _lack(occupancy, [wish.roles[n] for n in group], [eligible[n] for n in group])
        if lack is not None:
            return lack
    return None


def _lack(occupancy: Occupancy, roles: list[RoleWish], eligible: list[BoolArray]) -> _Lack | None:
    nodes = np.logical_or.reduce(eligible)
    shapes = [SlotShape.of(role.shape, role.shape.models) for role in roles]
    for name, counted, unit in RESOURCES:
        asked = sum(
            getattr(shape, counted) * role.members
            for shape, role in zip(shapes, roles, strict=True)
        )
        free = int(getattr(occupancy, f"free_{counted}_of_node")[nodes].sum())
        if asked > free:
            return _Lack(name, asked / unit, free / unit, tuple(roles))
    return None if nodes.any() else _Lack("nodes", 1, 0, tuple(roles))


def _no_room(occupancy: Occupancy, job: Job, wish: Wish, lack: _Lack, *, never: bool) -> Refused:
    where = occupancy.emptied() if never else occupancy
    nearest = roomiest_domain(where, wish)
    fewer = tuple(_fewer(occupancy, job))
    needed = f"{_amount(lack.asked)} {_for_people(lack.resource, lack.asked)}"
    sentence = f"{_start(never)} needs {needed}; {_there(where, lack)}.{_advice(fewer)}"
    return Refused(
        Gate.CONTIGUITY if never else Gate.ROOM,
        sentence,
        never=never,
        short_by=Shortage(lack.resource, lack.asked - lack.free),
        nearest=(nearest.name, nearest.free_gpus),
        wakes_on=() if never else _wakes_on(occupancy, wish),
        would_fit_if=fewer,
    )


def _there(where: Occupancy, lack: _Lack) -> str:
    """What there is of it; of GPUs, whatever else is free and why that does not count."""
    free = _amount(lack.free)
    all_free = int(where.free_gpus_of_node[where.usable_node].sum())
    if lack.resource == "gpus" and lack.free < all_free:
        of = "the empty cluster's" if where is where.emptied() else "the"
        kind = "" if where is where.emptied() else "free "
        return f"{free} of {of} {all_free} {kind}GPU{'s' * (all_free != 1)} {_which_count(where, lack)}"
    if where is where.emptied():
        return f"the empty cluster has {free}"
    return f"{free} {_are(lack.free)} free"


def _which_count(where: Occupancy, lack: _Lack) -> str:
    """What is true of the GPUs that count and of no others: what their nodes are, or how large."""
    shapes = [role.shape for role in lack.roles]
    wanted = np.logical_or.reduce([where.fabric.nodes_with(s.labels, s.models) for s in shapes])
    admitted = int(where.free_gpus_of_node[where.usable_node & wanted].sum())
    all_free = int(where.free_gpus_of_node[where.usable_node].sum())
    words = [
        "model" if any(shape.models for shape in shapes) else "",
        "label" if any(shape.labels for shape in shapes) else "",
    ]
    told = [f"of an acceptable {' and '.join(filter(None, words))}"] if admitted < all_free else []
    told += ["in machines large enough for a member"] if lack.free < admitted else []
    return f"{_are(lack.free)} {', '.join(told)}"


def _are(amount: float) -> str:
    return "is" if amount == 1 else "are"


# ----- CONTIGUITY


def _not_together(occupancy: Occupancy, job: Job, wish: Wish, *, never: bool) -> Refused:
    where = occupancy.emptied() if never else occupancy
    nearest = roomiest_domain(where, wish)
    relaxations = tuple(_relaxations(occupancy, job, wish))
    scattered = not is_bound(wish) and sum(role.members for role in wish.roles) > 1
    told, short = _nics_apart(where, wish) or (_scattered if scattered else _apart)(
        where, wish, nearest
    )
    return Refused(
        Gate.CONTIGUITY,
        f"{_start(never)} {told}.{_advice(relaxations)}",
        never=never,
        short_by=short,
        nearest=(nearest.name, nearest.free_gpus),
        wakes_on=() if never else _wakes_on(occupancy, wish),
        would_fit_if=relaxations,
    )


def _nics_apart(where: Occupancy, wish: Wish) -> tuple[str, Shortage] | None:
    """Nodes have room for all that a member asks but its NICs, and none has enough of these."""
    for role in wish.roles:
        shape = SlotShape.of(role.shape, role.shape.models)
        if not shape.nics or slots(where, shape).of_node.any():
            continue
        room_for_the_rest = slots(where, replace(shape, nics=0)).of_node > 0
        if room_for_the_rest.any():
            most = int(where.free_nics_of_node[room_for_the_rest].max())
            needed = f"{shape.nics} {_for_people('nics', shape.nics)}"
            told = (
                f"a member of role {role.name} needs {needed}; no node with room for the rest of it"
            )
            return f"{told} has more than {most} free", Shortage("nics", shape.nics - most)
    return None


def _scattered(where: Occupancy, wish: Wish, nearest: Roomiest) -> tuple[str, Shortage | None]:
    """What is free lies in pieces too small for members, which nothing else binds together."""
    asked, room = sum(role.members for role in wish.roles), members_with_room(where, wish)
    told = f"needs GPUs for {asked} members, each on one node; {_there_is(where)}"
    if room >= asked:
        return f"{told}, but not for all roles side by side", None
    return f"{told}, in pieces for {room} of them", Shortage("members", asked - room)


def _apart(where: Occupancy, wish: Wish, nearest: Roomiest) -> tuple[str, Shortage | None]:
    """What must be in one domain is free in no one domain."""
    members, gpus = asked_together(wish)
    what = _gpus(gpus) if gpus else f"{members} member{'s' * (members > 1)}"
    told = (
        f"needs {what} in one {domain_word(where.fabric, wish)}; {_there_is(where)}, "
        f"the roomiest, {nearest.tier} {nearest.name}, has {nearest.free_gpus}"
    )
    if nearest.free_gpus < gpus:
        return told, Shortage("gpus", gpus - nearest.free_gpus)
    if nearest.members < members:
        told = f"{told}, in pieces for {nearest.members} members"
        return told, Shortage("members", members - nearest.members)
    return f"{told}, but not in the slices or for the roles asked", None


def _there_is(where: Occupancy) -> str:
    gpus = int(where.free_gpus_of_node[where.usable_node].sum())
    if where is where.emptied():
        return f"the empty cluster has {gpus}"
    return f"{gpus} {_are(gpus)} free"


def _gpus(count: int) -> str:
    return f"{count} GPU{'s' * (count != 1)}"


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
        return solvable(occupancy, read_wish(occupancy.fabric, smaller))

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


def _in_words(key: str, value: PatchValue) -> str:
    if key == MEMBERS:
        return f"with {value} members"
    if isinstance(value, tuple):
        tiers = " or ".join(dict.fromkeys(run.required for run in value))
        return f"with slices in one {tiers} each"
    if key == SLICES:
        return "without slices"
    assert key == REQUIRED
    return "if no tier is required" if value is None else f"if relaxed to {value}"


def _price(relaxation: Relaxation) -> str:
    if relaxation.comm_ratio is None:
        return ""
    return f", at {(relaxation.comm_ratio - 1) * 100:+.0f} % communication time"


def _for_people(resource: str, amount: float) -> str:
    names = {"gpus": "GPU", "cpus": "CPU", "memory_GiB": "GiB of memory", "nics": "NIC"}
    many = "" if amount == 1 or resource == "memory_GiB" else "s"
    return names.get(resource, resource) + many


def _amount(amount: float) -> str:
    """A number as people write it: no exponent, and at most three digits of a fraction."""
    return f"{amount:.3f}".rstrip("0").rstrip(".")


def _start(never: bool) -> str:
    return "Never fits:" if never else "Waiting:"
