"""Explains why a gang has no slice of a torus. The gates are those of `placement.refusal.refusal`:

    SHAPE        (never) no torus is cut into such boxes, or no node of one could ever hold such members
    CONTIGUITY   (never) such nodes are there, but not together, be the tori empty and healthy
    ROOM         of some resource less is free on them than the gang asks
    CONTIGUITY   all of it is free, but in no box

Room is counted on usable nodes of the tori that are cut into such boxes and could hold members of the gang if they were
empty. Every patch has been searched for on this very occupancy.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from gantree.model.node_rules import without_tolerations
from gantree.model.verdicts import Gate, Patch, Refused, Relaxation, Shortage
from gantree.placement.request.topology_request import TopologyRequest
from gantree.placement.slots.slots import SlotShape
from gantree.placement.torus.choice import best_slice, node_masks
from gantree.placement.torus.largest import FreeBox, largest_below, legal_shapes, resized
from gantree.placement.torus.members import placement_of_slice
from gantree.placement.torus.request import BoxRequest, Layout, layouts
from gantree.placement.torus.room import cells_for
from gantree.text.words import counted, plural
from gantree.topology.fabric.fabric import IntArray
from gantree.topology.fabric.torus_pieces import Pieces, pieces_of
from gantree.topology.hardware.tpu_slices import Shape
from gantree.topology.occupancy.occupancy import Occupancy

BOX, MEMBERS = "topology.box", "members"
MOST_OTHER_SHAPES = 3
"""Other shapes of the same size that a refusal offers, the most compact that fit."""

RESOURCES: tuple[tuple[str, str, str, float], ...] = (
    ("gpus", "GPUs", "gpus", 1),
    ("cpus", "CPUs", "microcpus", 1_000_000),
    ("memory_GiB", "GiB of memory", "memory_KiB", 1 << 20),
    ("nics", "NICs", "nics", 1),
)
"""(as programs name it, as people do, as a slot shape and an occupancy count it, counted units in one)."""

Ways = list[tuple[Pieces, Layout]]
"""How the gang could be cut: kinds of torus and layouts."""


def explain_box(occupancy: Occupancy, box_request: BoxRequest, request: TopologyRequest) -> Refused:
    """Explain why `best_slice` found nothing for this gang on this occupancy."""
    ways = [(p, way) for p in pieces_of(occupancy.fabric) for way in layouts(p, box_request)]
    if not ways:
        return _illegal(occupancy, box_request, request)
    nodes = _eligible(occupancy, box_request, ways)
    if not len(nodes):
        sentence = f"Never fits: no node of a torus could hold {_members(box_request)}{_wanted(box_request)}."
        return Refused(Gate.SHAPE, sentence, never=True)
    if best_slice(occupancy.emptied(), box_request, request) is None:
        return _refused(occupancy, box_request, request, ways, _never_together(box_request, nodes))
    usable = nodes[(occupancy.usable_node & ~occupancy.held_back_node)[nodes]]
    lack = _lack_of_room(occupancy, box_request, usable) or _no_free_box(
        occupancy, box_request, usable
    )
    return _refused(occupancy, box_request, request, ways, lack)


@dataclass(frozen=True, slots=True)
class _Cause:
    """What stands in the way: the gate, in words, and by how much."""

    gate: Gate
    told: str
    short_by: Shortage | None
    never: bool = False


def _refused(
    occupancy: Occupancy,
    box_request: BoxRequest,
    request: TopologyRequest,
    ways: Ways,
    cause: _Cause,
) -> Refused:
    room = _largest(occupancy, box_request, request, ways)
    relaxations = tuple(_relaxations(occupancy, box_request, request, room))
    start = "Never fits:" if cause.never else "Waiting:"
    found = f"the largest smaller box that is free is {by_name(room.shape)}" if room else ""
    found = found or "no smaller box of such members is free"
    return Refused(
        cause.gate,
        f"{start} {cause.told}; {found}.{_advice(relaxations)}",
        never=cause.never,
        short_by=cause.short_by,
        nearest=_roomiest_torus(occupancy, ways),
        wakes_on=() if cause.never else _wakes_on(occupancy, box_request),
        would_fit_if=relaxations,
    )


# ----- SHAPE


def _illegal(occupancy: Occupancy, box_request: BoxRequest, request: TopologyRequest) -> Refused:
    """No torus is cut into boxes of this shape, or for gangs of this size."""
    kinds = pieces_of(occupancy.fabric)
    if not kinds:
        return Refused(Gate.SHAPE, "Never fits: there is no torus to cut a box from.", never=True)
    ways = [
        (pieces, way)
        for pieces in kinds
        for shape in pieces.any_torus.shapes(box_request.gpus)
        for way in layouts(pieces, resized(box_request, box_request.role.members, shape))
    ]
    told = _why_illegal(kinds, box_request)
    if ways and box_request.box:
        shapes = dict.fromkeys(by_name(way.shape) for _, way in ways)
        told += f"; boxes of {plural(box_request.gpus, 'GPU')}: {', '.join(shapes)}"
    elif not ways:
        told += _if_listed(kinds, box_request)
    return _refused(
        occupancy, box_request, request, ways, _Cause(Gate.SHAPE, told, None, never=True)
    )


def _why_illegal(kinds: tuple[Pieces, ...], box_request: BoxRequest) -> str:
    if not box_request.box:
        gang = f"{_members(box_request)} ({plural(box_request.gpus, 'GPU')})"
        return f"no torus is cut into boxes for {gang}{_sizes(kinds, box_request)}"
    box = by_name(box_request.box)
    if any(pieces.any_torus.is_legal(box_request.box) for pieces in kinds):
        return f"a box of {box} is not made of {_members(box_request)}"
    if not any(
        len(box_request.box) == len(p.any_torus.torus.dims)
        and prod(box_request.box) <= prod(p.any_torus.torus.dims)
        for p in kinds
    ):
        largest = max(
            (pieces.any_torus.torus for pieces in kinds), key=lambda torus: prod(torus.dims)
        )
        return (
            f"a box of {box} is larger than every torus ({largest.name} is {by_name(largest.dims)})"
        )
    return f"no torus is cut into boxes of {box}"


def _if_listed(kinds: tuple[Pieces, ...], box_request: BoxRequest) -> str:
    """What to write where a torus could hold the box and only the list of its shapes forbids it; "" elsewhere.

    For a gang that takes any box: where it is larger than all shapes of the list.
    """
    gpus, box = box_request.gpus, box_request.box
    if not box and any(prod(shape) > gpus for each in kinds for shape in legal_shapes(each)):
        return ""
    for pieces in kinds:
        listed = pieces.any_torus
        free = replace(listed, rule=None)
        for shape in (box,) if box else free.shapes(gpus):
            if prod(shape) == gpus and free.is_legal(shape) and not listed.is_legal(shape):
                told = f"`slices: [[{', '.join(map(str, shape))}]]`"
                others = "" if listed.torus.slices else ", with all other shapes to be cut,"
                verb = "add" if listed.torus.slices else "write"
                return f"; to allow it, {verb} {told}{others} to torus {listed.torus.name} in the cluster file"
    return ""


def _sizes(kinds: tuple[Pieces, ...], box_request: BoxRequest) -> str:
    """The next legal sizes below and above, in GPUs."""
    kinds = tuple(p for p in kinds if p.any_torus.rule is not None)
    sizes = sorted({prod(shape) for pieces in kinds for shape in legal_shapes(pieces)})
    below = [size for size in sizes if size < box_request.gpus][-1:]
    above = [size for size in sizes if size > box_request.gpus][:1]
    near = " and ".join(str(size) for size in (*below, *above))
    return f"; the nearest sizes are {near}" if near else ""


# ----- ROOM and CONTIGUITY


def _eligible(occupancy: Occupancy, box_request: BoxRequest, ways: Ways) -> IntArray:
    """Nodes of tori that could hold members of the gang if they were empty."""
    empty = occupancy.emptied()
    found = []
    for pieces, way in ways:
        cells = cells_for(empty, pieces, box_request, way, None)
        sides = [c // n for c, n in zip(cells.shape[1:], pieces.node_at.shape[1:], strict=True)]
        by_host = cells[(slice(None), *(slice(None, None, side) for side in sides))]
        found.append(pieces.node_at[by_host])
    return np.unique(np.concatenate(found))


def _lack_of_room(occupancy: Occupancy, box_request: BoxRequest, nodes: IntArray) -> _Cause | None:
    """The first resource of which less is free on these nodes than the gang asks."""
    shape = SlotShape.of(box_request.role.shape, box_request.role.shape.models)
    for name, word, column, unit in RESOURCES:
        asked = getattr(shape, column) * box_request.role.members
        free = int(getattr(occupancy, f"free_{column}_of_node")[nodes].sum())
        if asked > free:
            return _lack(box_request, name, word, asked / unit, free / unit)
    for name, count in box_request.role.shape.devices:
        asked, free = (
            count * box_request.role.members,
            int(occupancy.devices.free(name)[nodes].sum()),
        )
        if asked > free:
            return _lack(box_request, name, name, asked, free)
    return None


def _lack(box_request: BoxRequest, name: str, word: str, asked: float, free: float) -> _Cause:
    told = (
        f"needs {_amount(asked)} {word} for {_a_box(box_request)}; "
        f"{_amount(free)} are free on nodes of tori that could hold its members"
    )
    return _Cause(Gate.ROOM, told, Shortage(name, asked - free))


def _no_free_box(occupancy: Occupancy, box_request: BoxRequest, nodes: IntArray) -> _Cause:
    """All of it is free, but in no box."""
    free = int(occupancy.free_gpus_of_node[nodes].sum())
    told = f"needs {_a_box(box_request)} that is free on one torus; {counted(free, 'GPU is', 'GPUs are')} free on tori"
    return _Cause(Gate.CONTIGUITY, told, None)


def _never_together(box_request: BoxRequest, nodes: IntArray) -> _Cause:
    told = (
        f"needs {_a_box(box_request)} on one torus; the empty tori have {plural(len(nodes), 'node')} "
        "that could hold its members, but nowhere such a box of them"
    )
    return _Cause(Gate.CONTIGUITY, told, None, never=True)


def _largest(
    occupancy: Occupancy, box_request: BoxRequest, request: TopologyRequest, ways: Ways
) -> FreeBox | None:
    """The largest smaller box that is free for members of the gang."""
    best: FreeBox | None = None
    on_point = {pieces: way.members_on_host for pieces, way in reversed(ways)}
    for pieces in pieces_of(occupancy.fabric):
        for nodes in node_masks(occupancy, request):
            room = largest_below(occupancy, pieces, box_request, on_point.get(pieces, 1), nodes)
            if room is not None and (best is None or room.members > best.members):
                best = room
    return best


def _roomiest_torus(occupancy: Occupancy, ways: Ways) -> tuple[str, int] | None:
    """The torus with most free GPUs on usable nodes, and how many."""
    free = np.where(occupancy.usable_node, occupancy.free_gpus_of_node, 0)
    tori = dict.fromkeys(index for pieces, _ in ways for index in pieces.tori)
    rooms = [(index.torus.name, int(free[index.node_at].sum())) for index in tori]
    return max(rooms, key=lambda room: room[1], default=None)


def _wakes_on(occupancy: Occupancy, box_request: BoxRequest) -> tuple[str, ...]:
    shape = SlotShape.of(box_request.role.shape, ())
    asked = [name for name, _, counted, _ in RESOURCES if getattr(shape, counted)]
    return (*asked, "nodes") if not occupancy.usable_node.all() else tuple(asked)


# ----- what would help


def _relaxations(
    occupancy: Occupancy, box_request: BoxRequest, request: TopologyRequest, room: FreeBox | None
) -> Iterator[Relaxation]:
    """Other shapes of the same size that fit now, then the largest smaller box."""
    if box_request.box:
        yield from _other_shapes(occupancy, box_request, request)
    if room is not None:
        patch: Patch = ((MEMBERS, room.members),)
        yield Relaxation(((BOX, room.shape), *patch) if box_request.box else patch)


def _other_shapes(
    occupancy: Occupancy, box_request: BoxRequest, request: TopologyRequest
) -> Iterator[Relaxation]:
    kinds = pieces_of(occupancy.fabric)
    size = prod(box_request.box) if any(pieces.points for pieces in kinds) else box_request.gpus
    shapes = dict.fromkeys(shape for pieces in kinds for shape in pieces.any_torus.shapes(size))
    empty = occupancy.emptied()
    best = best_slice(empty, box_request, request)
    best_s = placement_of_slice(empty, box_request, request, best).predicted.comm_s if best else 0.0
    found = 0
    for shape in shapes:
        other = resized(box_request, box_request.role.members, shape)
        torus_slice = best_slice(occupancy, other, request) if shape != box_request.box else None
        if torus_slice is not None:
            now_s = placement_of_slice(occupancy, other, request, torus_slice).predicted.comm_s
            yield Relaxation(((BOX, shape),), now_s / best_s if best_s else None)
            found += 1
        if found == MOST_OTHER_SHAPES:
            return


# ----- words


def by_name(shape: Shape) -> str:
    """A shape as people write it: "4x4x8"."""
    return "x".join(map(str, shape))


def _a_box(box_request: BoxRequest) -> str:
    return (
        f"a box of {by_name(box_request.box)}"
        if box_request.box
        else f"any box of {plural(box_request.gpus, 'GPU')}"
    )


def _members(box_request: BoxRequest) -> str:
    members, gpus = box_request.role.members, box_request.role.shape.gpus
    return f"{plural(members, 'member')} of {plural(gpus, 'GPU')}"


def _wanted(box_request: BoxRequest) -> str:
    shape = box_request.role.shape
    labels = ", ".join(f"{key}={value}" for key, value in without_tolerations(shape.labels))
    wanted = [f"label {labels}" if labels else "", " or ".join(shape.models)]
    told = " and ".join(filter(None, wanted))
    return f" with {told}" if told else ""


def _advice(relaxations: tuple[Relaxation, ...]) -> str:
    if not relaxations:
        return ""
    words = []
    for key, value in relaxations[0].patch:
        if key == BOX and isinstance(value, tuple):
            words.append(f"as a box of {'x'.join(map(str, value))}")
        else:
            words.append(f"with {value} member{'s' * (value != 1)}")
    return f" Fits now {' and '.join(words)}."


def _amount(amount: float) -> str:
    """A number as people write it: no exponent, and at most three digits of a fraction."""
    return f"{amount:.3f}".rstrip("0").rstrip(".")
