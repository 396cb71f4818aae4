"""Slurm's topology.yaml: a list of named topologies, each a tree, blocks, rings, 3-D tori, or flat.

One of them makes the tree: the one that is requested; else the first with `cluster_default: true`; else the only one.
Each tier of the others divides the same nodes in another way: it becomes a partition, `<topology>.<tier>`. Nodes that
only the others name are left out, with a warning. Where the chosen one is flat, and so names none, all nodes that
others name are taken, without tiers.

Fields are those of the manual page of Slurm 26.05. What a topology means is `switch_tree` and `slurm_topologies`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gantree.model.errors import BadInput
from gantree.text.document import Truth
from gantree.text.records import Record, Report, yaml_records
from gantree.text.words import counted, did_you_mean, plural, shortened
from gantree.topology.discovery.fabrics import FabricReading
from gantree.topology.discovery.listings.divisions import Beside, Layout, with_partitions
from gantree.topology.discovery.listings.slurm_names import MAX_NAMES, Names
from gantree.topology.discovery.listings.slurm_topologies import (
    Grid,
    Group,
    Part,
    Size3,
    part_of_blocks,
    part_of_rings,
    part_of_tori,
)
from gantree.topology.discovery.listings.switch_tree import Switch, tree_of
from gantree.topology.discovery.merging import some

KINDS = ("tree", "block", "ring", "torus3d", "flat")
_AXES = ("x", "y", "z")
MAX_TOPOLOGIES = 32


@dataclass(frozen=True, slots=True)
class Named:
    """One topology: its name, its kind, whether it is the cluster's default, and what it gives."""

    name: str
    kind: str
    default: bool
    part: Part


@dataclass(frozen=True, slots=True)
class _Lists:
    """Readers of the lists of a file: of switches, blocks, rings and tori, and of nodes."""

    domains: Names
    nodes: Names
    report: Report


def parse(text: str, source: str, topology: str | None = None) -> FabricReading:
    """Read a topology.yaml; topology names the one that makes the tree.

    BadInput where none is named and none is the default, with the names; BadFields, with lines, for what is no
    topology and for what contradicts itself.
    """
    report = Report(source)
    records = list(yaml_records(text, report))
    report.check()
    if len(records) > MAX_TOPOLOGIES:
        report.add(None, "document", f"{len(records)} topologies", f"at most {MAX_TOPOLOGIES}")
        report.check()
    lists = _Lists(Names(report), Names(report), report)
    found = [_named(record, lists) for record in records]
    report.check()
    chosen, said = _chosen(found, topology, source)
    layout = _with_others(chosen, [other for other in found if other is not chosen])
    if not layout.at:
        raise BadInput(f"{source}: topology {chosen.name} names no nodes")
    layout = replace(layout, inferred=(said, *layout.inferred))
    warnings = [*chosen.part.warnings, *_left_out(layout, chosen, found)]
    return replace(layout.reading(warnings), tori=chosen.part.tori)


def _named(record: Record, lists: _Lists) -> Named:
    name = record.text("topology")
    kinds = [kind for kind in KINDS if record.has(kind) and not _is_off(record.table[kind])]
    if len(kinds) != 1:
        found = " and ".join(f"`{kind}`" for kind in kinds) or "none of them"
        hint = "" if kinds else _likely_kind(record)
        record.problem("topology", found, f"one of {', '.join(KINDS)}", hint)
        return Named(name, "flat", False, Part(Layout((), {})))
    default = record.table.get("cluster_default")
    part = _part(record, kinds[0], lists)
    return Named(name, kinds[0], isinstance(default, Truth) and bool(default), part)


def _is_off(value: object) -> bool:
    return isinstance(value, Truth) and not value


def _likely_kind(record: Record) -> str:
    hints = (did_you_mean(key, KINDS) for key in record.keys()[:20])
    return next((hint for hint in hints if hint), "")


def _part(record: Record, kind: str, lists: _Lists) -> Part:
    """Return what a topology gives; its problems are reported before those of the next."""
    report = lists.report
    if kind == "flat":
        return Part(Layout((), {}))
    inner = record.record(kind)
    report.check()
    assert inner is not None, "a field that is there is a mapping, or was noted"
    if kind == "tree":
        return _tree(inner, lists)
    if kind == "block":
        groups = _groups(inner, "blocks", "block", lists)
        sizes = _block_sizes(inner)
        report.check()
        return part_of_blocks(groups, sizes, report)
    if kind == "ring":
        groups = _groups(inner, "rings", "ring", lists)
        report.check()
        return part_of_rings(groups, report)
    return part_of_tori(_grids(inner, lists), report)


def _tree(inner: Record, lists: _Lists) -> Part:
    switches = []
    for record in inner.records("switches"):
        name = _one(record, "switch", lists)
        children = _listed(record, "children", lists.domains)
        switches.append(Switch(name, record.line, children, _listed(record, "nodes", lists.nodes)))
    lists.report.check()
    tree = tree_of(switches, (), lists.report)
    return Part(tree.layout, warnings=tree.warnings)


def _groups(inner: Record, field: str, name_field: str, lists: _Lists) -> list[Group]:
    return [
        Group(
            _one(record, name_field, lists),
            record.line,
            _listed(record, "nodes", lists.nodes),
        )
        for record in inner.records(field)
    ]


def _one(record: Record, field: str, lists: _Lists) -> str:
    return lists.domains.one(record.text(field), record.line_of(field), record.table.path_of(field))


def _block_sizes(inner: Record) -> list[int]:
    sizes = []
    for word in inner.texts("block_sizes"):
        if not (word.isascii() and word.isdecimal() and len(word) < 10):
            inner.problem("block_sizes", f"`{shortened(word)}`", "whole numbers")
            return []
        sizes.append(int(word))
    return sizes


def _listed(record: Record, field: str, names: Names) -> tuple[str, ...]:
    if not record.has(field):
        return ()
    return names.read(record.text(field), record.line_of(field), record.table.path_of(field))


def _grids(inner: Record, lists: _Lists) -> list[Grid]:
    report = lists.report
    grids: list[Grid] = []
    room = MAX_NAMES
    for record in inner.records("toruses"):
        name = _one(record, "name", lists)
        dims = _size(record, "dims", 1, report)
        report.check()  # before anything is made of such a size
        cells = dims[0] * dims[1] * dims[2]
        room -= cells
        if room < 0:
            record.problem("dims", f"{cells} places", f"{MAX_NAMES} places in all tori")
            report.check()
        grids.append(
            Grid(
                name,
                record.line,
                dims,
                _cells(record, dims, lists.nodes),
                _boxes(record, dims, report),
            )
        )
        report.check()
    return grids


def _size(record: Record, field: str, least: int, report: Report) -> Size3:
    inner = record.record(field)
    if inner is None:
        if not record.has(field):
            record.problem(field, "nothing", "a mapping with x, y and z")
        return 1, 1, 1
    x, y, z = (inner.integer(axis, least=least) for axis in _AXES)
    return x, y, z


def _cells(record: Record, dims: Size3, names: Names) -> tuple[str | None, ...]:
    """Return the node at each place, x varying fastest."""
    size = dims[0] * dims[1] * dims[2]
    regions = record.records("regions")
    if regions and record.has("nodes"):
        record.problem("regions", "nodes and regions", "one of them")
        return ()
    if not regions:
        nodes = _listed(record, "nodes", names)
        if nodes and len(nodes) != size:
            x, y, z = dims
            record.problem(
                "nodes",
                counted(len(nodes), "node", "nodes"),
                f"{plural(size, 'node')} for {x} x {y} x {z}",
            )
        return nodes or (None,) * size
    cells: list[str | None] = [None] * size
    for region in regions:
        _fill_region(cells, dims, region, names)
    return tuple(cells)


def _fill_region(cells: list[str | None], dims: Size3, region: Record, names: Names) -> None:
    anchor = _size(region, "anchor", 0, region.report)
    size = _size(region, "dims", 1, region.report)
    if any(a + s > d for a, s, d in zip(anchor, size, dims, strict=True)):
        region.problem("dims", "a region that reaches out of the torus", "one inside it")
        return
    nodes = _listed(region, "nodes", names)
    if len(nodes) != size[0] * size[1] * size[2]:
        region.problem(
            "nodes",
            counted(len(nodes), "node", "nodes"),
            plural(size[0] * size[1] * size[2], "node"),
        )
        return
    for number, node in enumerate(nodes):
        x, rest = number % size[0], number // size[0]
        y, z = rest % size[1], rest // size[1]
        place = anchor[0] + x + dims[0] * (anchor[1] + y + dims[1] * (anchor[2] + z))
        if cells[place] is not None:
            region.problem("nodes", f"`{node}` where `{cells[place]}` is", "one node a place")
            return
        cells[place] = node


def _boxes(record: Record, dims: Size3, report: Report) -> tuple[Size3, ...]:
    boxes: dict[Size3, None] = {}
    for placement in record.records("placements"):
        box = _size(placement, "dims", 1, report)
        if any(b > d for b, d in zip(box, dims, strict=True)):
            placement.problem("dims", "a placement larger than the torus", "one that fits")
        boxes[box] = None
    return tuple(boxes)


def _chosen(found: Sequence[Named], topology: str | None, source: str) -> tuple[Named, str]:
    names = ", ".join(shortened(each.name) for each in found) or "none"
    twice = [
        each.name
        for number, each in enumerate(found)
        if each.name in {o.name for o in found[:number]}
    ]
    if twice:
        raise BadInput(f"{source}: topology {shortened(twice[0])} is there twice")
    if topology is not None:
        for each in found:
            if each.name == topology:
                return each, f"topology {each.name} makes the tree, as asked for"
        hint = did_you_mean(topology, [each.name for each in found])
        raise BadInput(
            f"{source}: no topology {shortened(topology)!r}; there: {names}. {hint}".strip()
        )
    for each in found:
        if each.default:
            return each, f"topology {each.name} makes the tree: it is the cluster's default"
    if len(found) != 1:
        raise BadInput(
            f"{source}: several topologies and none is cluster_default; name one of them: {names}"
        )
    return found[0], f"topology {found[0].name} makes the tree: it is the only one"


def _with_others(chosen: Named, others: Sequence[Named]) -> Layout:
    layout = chosen.part.layout
    if chosen.kind == "flat":
        nodes = dict.fromkeys(node for other in others for node in other.part.layout.at)
        said = "a flat topology names no nodes: those of the others are taken" if nodes else ""
        inferred = (said,) if said else ()
        layout = Layout((), dict.fromkeys(nodes, ()), inferred=inferred)
    return with_partitions(
        layout, (division for other in others for division in _beside(layout, other))
    )


def _beside(layout: Layout, other: Named) -> Iterable[Beside]:
    """Yield the tiers of another topology as divisions of the nodes of a layout."""
    shared = {node: path for node, path in other.part.layout.at.items() if node in layout.at}
    for number, tier in enumerate(other.part.layout.tiers if shared else ()):
        name = f"{other.name}.{tier}"
        domain_of_node = {node: path[number] for node, path in shared.items()}
        said = f"tier {tier} of topology {other.name} is partition `{name}`"
        yield Beside(name, domain_of_node, said)


def _left_out(layout: Layout, chosen: Named, found: Sequence[Named]) -> Iterable[str]:
    for other in found:
        strangers = [node for node in other.part.layout.at if node not in layout.at]
        if strangers:
            yield (
                f"{counted(len(strangers), 'node', 'nodes')} of topology {other.name} left out, for they are not in "
                f"{chosen.name}: {some(strangers)}"
            )
        if other is not chosen and other.part.tori:
            yield f"the tori of topology {other.name} are passed over: {chosen.name} makes the tree"
