"""Slurm's topologies, whatever their syntax: blocks, rings and tori. (Trees are in `switch_tree`.)

Slurm's blocks and what it makes of them, as in its block plugin: `BlockSizes` begins with the nodes that planning
counts on in each block (the base size; a block may have more), and every further size is that times a power of two.
Blocks are then taken together in the order in which they are written, always 1, 2, 4... from the first on, up to the
first size that holds them all; a rest stays smaller. A block without nodes keeps a place free, so that the blocks
after it begin a new run. These are planning sizes: no switch is given for them.

A ring's nodes are in the order of its list, and the last is next to the first. In a 3-D torus the first node of the
list is at (0, 0, 0), and x varies fastest, then y; gantree lets the last axis vary fastest, so nodes are reordered.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gantree.model.cluster import Torus
from gantree.text.records import Report
from gantree.text.words import counted, plural
from gantree.topology.discovery.listings.divisions import Layout, Path
from gantree.topology.discovery.listings.slurm_names import is_name
from gantree.topology.discovery.merging import some

BLOCK, RING, TORUS = "block", "ring", "torus"
MAX_LEVEL = 15
MAX_RING_SIZE = 16
"""As in Slurm."""

Size3 = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Group:
    """A block or a ring as written: its name, its line (None if not known), its nodes in order."""

    name: str
    line: int | None
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """A torus as written: cells[x + X * (y + Y * z)] is a node, None where none was put; placements are boxes."""

    name: str
    line: int | None
    dims: Size3
    cells: tuple[str | None, ...]
    placements: tuple[Size3, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """What one topology gives."""

    layout: Layout
    tori: tuple[Torus, ...] = ()
    warnings: tuple[str, ...] = ()


def part_of_blocks(groups: Sequence[Group], sizes: Sequence[int], report: Report) -> Part:
    """Return tiers for blocks and their aggregates. sizes are BlockSizes, the base first; empty if not given."""
    _check_groups(groups, BLOCK, report)
    counts = _blocks_of_sizes(sizes, len(groups), report)
    report.check()
    at: dict[str, Path] = {}
    runs = [(count, _runs(groups, count)) for count in reversed(counts.values())]
    for number, group in enumerate(groups):
        outer = tuple(names[number // count] for count, names in runs)
        at |= dict.fromkeys(group.nodes, (*outer, group.name))
    tiers = (*(f"{BLOCK}{size}" for size in reversed(counts)), BLOCK)
    inferred = (*_said_of_sizes(sizes, counts), *_said_of_places(groups))
    layout = Layout(tiers, at, inferred=inferred)
    return Part(layout, warnings=tuple(_block_warnings(groups, sizes)))


def part_of_rings(groups: Sequence[Group], report: Report) -> Part:
    """Return a tier of rings, and each ring as a torus of one axis."""
    _check_groups(groups, RING, report)
    report.check()
    at = {node: (group.name,) for group in groups for node in group.nodes}
    tori = tuple(
        Torus(group.name, (len(group.nodes),), (1,), group.nodes, (len(group.nodes) > 1,))
        for group in groups
        if group.nodes
    )
    warnings = [
        f"ring {group.name} has {len(group.nodes)} nodes; Slurm allows {MAX_RING_SIZE}"
        for group in groups
        if len(group.nodes) > MAX_RING_SIZE
    ]
    inferred = ("the order of nodes on a ring is that of its list; the last is next to the first",)
    empty = _empty_warnings(groups, RING)
    return Part(Layout((RING,), at, inferred=inferred), tori, (*warnings, *empty))


def part_of_tori(grids: Sequence[Grid], report: Report) -> Part:
    """Return a tier of tori, and each torus all of whose cells have a node."""
    groups = [Group(grid.name, grid.line, tuple(n for n in grid.cells if n)) for grid in grids]
    _check_groups(groups, TORUS, report)
    report.check()
    at = {node: (group.name,) for group in groups for node in group.nodes}
    whole = [grid for grid in grids if None not in grid.cells]
    tori = tuple(_torus(grid) for grid in whole)
    warnings = [
        f"torus {grid.name}: {grid.cells.count(None)} of its {len(grid.cells)} places have no node; its nodes are a "
        f"domain of tier `{TORUS}`, but not a torus"
        for grid in grids
        if None in grid.cells
    ]
    inferred = ["nodes are put into a torus with x varying fastest, as Slurm does"] if whole else []
    return Part(Layout((TORUS,), at, inferred=tuple(inferred)), tori, tuple(warnings))


def _check_groups(groups: Sequence[Group], what: str, report: Report) -> None:
    """Note what is defined twice, and nodes that are in two groups or twice in one."""
    line_of: dict[str, int | None] = {}
    home: dict[str, Group] = {}
    for group in groups:
        place = f"{what} {group.name}"
        if group.name in line_of:
            found = f"a second definition{_in_line(line_of[group.name])}"
            report.add(group.line, place, found, f"each {what} once")
        line_of.setdefault(group.name, group.line)
        for node in group.nodes:
            first = home.setdefault(node, group)
            if first is not group:
                found = f"node `{node}`, which is in `{first.name}`{_in_line(first.line)}"
                report.add(group.line, place, found, f"each node in one {what}")
        if len(set(group.nodes)) < len(group.nodes):
            report.add(group.line, place, "a node twice", "each node once")


def _blocks_of_sizes(sizes: Sequence[int], blocks: int, report: Report) -> dict[int, int]:
    """Return for each size above the base how many blocks it takes together, smallest first, as far as Slurm goes."""
    counts: dict[int, int] = {}
    if not sizes:
        return counts
    base = sizes[0]
    for size in sizes:
        count = size // base if base else 0
        if size <= 0 or size % base or count & (count - 1) or count > 1 << MAX_LEVEL:
            allowed = f"the base size first, then it times a power of two up to {1 << MAX_LEVEL}"
            report.add(None, "block sizes", f"`{size}`", allowed)
            return {}
        if count > 1:
            counts[size] = count
    counts = dict(sorted(counts.items()))
    enough = next((size for size, count in counts.items() if count >= blocks), None)
    return {size: count for size, count in counts.items() if enough is None or size <= enough}


def _runs(groups: Sequence[Group], count: int) -> list[str]:
    """Name each run of `count` blocks after its first and last block with nodes; the others hold their places."""
    names = []
    for first in range(0, len(groups), count):
        filled = [group.name for group in groups[first : first + count] if group.nodes] or [""]
        name = filled[0] if len(filled) == 1 else f"{filled[0]}..{filled[-1]}"
        names.append(name if is_name(name) else f"{BLOCK}s-{first}-{first + count - 1}")
    return names


def _said_of_sizes(sizes: Sequence[int], counts: Mapping[int, int]) -> Iterable[str]:
    for size, count in counts.items():
        yield (
            f"tier `{BLOCK}{size}` is each run of {count} consecutive blocks, as Slurm aggregates them for planning "
            f"({plural(sizes[0], 'node')} counted a block); no switch is told for it"
        )
    if not sizes:
        yield "no block sizes are told: blocks are not taken together"


def _block_warnings(groups: Sequence[Group], sizes: Sequence[int]) -> Iterable[str]:
    base = sizes[0] if sizes else 0
    small = [group.name for group in groups if 0 < len(group.nodes) < base]
    if small:
        have = counted(len(small), "block has", "blocks have")
        yield f"{have} fewer than the {base} nodes of the base size: {some(small)}"


def _said_of_places(groups: Sequence[Group]) -> Iterable[str]:
    empty = [group.name for group in groups if not group.nodes]
    if empty:
        yield f"{len(empty)} blocks have no nodes and keep places free: {some(empty)}"


def _empty_warnings(groups: Sequence[Group], what: str) -> Iterable[str]:
    empty = [group.name for group in groups if not group.nodes]
    if empty:
        yield f"{len(empty)} {what}s have no nodes and are left out: {some(empty)}"


def _torus(grid: Grid) -> Torus:
    x_size, y_size, z_size = grid.dims
    nodes = tuple(
        grid.cells[x + x_size * (y + y_size * z)] or ""
        for x in range(x_size)
        for y in range(y_size)
        for z in range(z_size)
    )
    wrap = (x_size > 1, y_size > 1, z_size > 1)
    return Torus(grid.name, grid.dims, (1, 1, 1), nodes, wrap, grid.placements)


def _in_line(line: int | None) -> str:
    return f" (line {line})" if line else ""
