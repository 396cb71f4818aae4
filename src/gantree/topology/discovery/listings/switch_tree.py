"""A tree of domains from switches that name their children: for Slurm's tree and for topograph.

What is no tree, and what becomes of it:

- Switches that have exactly the same children are parallel planes of one fabric (two spines over the same leaves, rails
  over the same nodes): together one domain, named after the first. Said.
- A node or a switch below two others that differ otherwise: no domain could hold both without joining what no switch
  joins. Refused, with both lines.
- A cycle, a switch that is defined twice, a child that is nowhere defined: refused.
- Several roots: so many domains of the widest tier. Warned.
- Switches with nothing below them: left out. Warned.

A switch's tier is its height, counted from its lowest leaf, as in Slurm: the leaves right below the root of a deeper
tree are leaves, and get domains of their own, named after them, in the tiers between. A node that hangs on a switch
that has switches below is put on a leaf with that switch's name.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gantree.text.records import MAX_PROBLEMS, Report
from gantree.text.words import counted, did_you_mean
from gantree.topology.discovery.fabrics import ragged
from gantree.topology.discovery.listings.divisions import Layout, Path, lone_domains
from gantree.topology.discovery.merging import some

TIERS = ("leaf", "spine", "core")
"""Names of tiers from the narrowest outwards; `ragged` counts on with tier4, tier5..."""
MAX_HEIGHT = 30
HINT_NAMES = 200
"""Likely names are looked for among so many: it takes time."""


@dataclass(frozen=True, slots=True)
class Switch:
    """A switch as written: its name, the line of it (None if not known), the switches and nodes right below it."""

    name: str
    line: int | None
    children: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tree:
    """Where nodes are, and what is odd."""

    layout: Layout
    warnings: tuple[str, ...]


def tree_of(switches: Sequence[Switch], lone_nodes: Iterable[str], report: Report) -> Tree:
    """Return the tree. lone_nodes hang on no switch. Raises BadFields, of the report's source, where it is none."""
    by_name = _by_name(switches, report)
    _check_children(by_name, report)
    report.check()
    order = _bottom_up(by_name, report)
    report.check()
    planes = _Planes(by_name, order)
    parents = _parents(by_name, planes, report)
    report.check()
    return _layout(planes, parents, tuple(lone_nodes), report)


def _by_name(switches: Sequence[Switch], report: Report) -> dict[str, Switch]:
    found: dict[str, Switch] = {}
    for switch in switches:
        first = found.setdefault(switch.name, switch)
        if first is not switch:
            report.add(
                switch.line,
                f"switch {switch.name}",
                f"a second definition{_in_line(first)}",
                "each switch once",
            )
    return found


def _check_children(by_name: Mapping[str, Switch], report: Report) -> None:
    known = list(by_name)[:HINT_NAMES]
    for switch in by_name.values():
        for child in switch.children:
            if len(report.problems) == MAX_PROBLEMS:
                return  # hints cost time
            if child not in by_name:
                report.add(
                    switch.line,
                    f"switch {switch.name}",
                    f"the undefined switch `{child}` below it",
                    "switches that are defined",
                    did_you_mean(child, known),
                )


def _bottom_up(by_name: Mapping[str, Switch], report: Report) -> list[str]:
    """Order switches so that each comes after all below it; note the cycles."""
    parents: dict[str, list[str]] = {name: [] for name in by_name}
    waiting = {name: len(set(switch.children)) for name, switch in by_name.items()}
    for name, switch in by_name.items():
        for child in dict.fromkeys(switch.children):
            parents[child].append(name)
    order = [name for name, count in waiting.items() if not count]
    for name in order:  # grows while it is walked
        for parent in parents[name]:
            waiting[parent] -= 1
            if not waiting[parent]:
                order.append(parent)
    if len(order) < len(by_name):
        _note_cycle(by_name, set(order), report)
    return order


def _note_cycle(by_name: Mapping[str, Switch], sound: set[str], report: Report) -> None:
    name = next(name for name in by_name if name not in sound)
    walked: dict[str, None] = {}
    while name not in walked:
        walked[name] = None
        name = next(child for child in by_name[name].children if child not in sound)
    names = list(walked)
    cycle = names[names.index(name) :]
    report.add(
        by_name[name].line,
        f"switch {name}",
        f"a cycle: {some(cycle)} are below each other",
        "a tree of switches",
    )


class _Planes:
    """Switches with the same members taken as one. name_of maps each to the first of its plane, empty ones to None."""

    def __init__(self, by_name: Mapping[str, Switch], order: Sequence[str]) -> None:
        self.name_of: dict[str, str | None] = {}
        self.children: dict[str, tuple[str, ...]] = {}
        self.nodes: dict[str, tuple[str, ...]] = {}
        self.height: dict[str, int] = {}
        self.others: dict[str, list[str]] = {}
        first_with: dict[tuple[frozenset[str], frozenset[str]], str] = {}
        for name in order:
            children = tuple(
                dict.fromkeys(c for c in map(self.name_of.get, by_name[name].children) if c)
            )
            nodes = tuple(dict.fromkeys(by_name[name].nodes))
            if not children and not nodes:
                self.name_of[name] = None
                continue
            first = first_with.setdefault((frozenset(children), frozenset(nodes)), name)
            self.name_of[name] = first
            if first != name:
                self.others.setdefault(first, []).append(name)
                continue
            self.children[name], self.nodes[name] = children, nodes
            self.height[name] = 1 + max((self.height[child] for child in children), default=-1)


def _parents(by_name: Mapping[str, Switch], planes: _Planes, report: Report) -> dict[str, str]:
    """Return what each switch and node hangs on ("switch x", "node n" -> switch); note those below two."""
    parents: dict[str, str] = {}
    for name in planes.children:
        below = [f"switch {child}" for child in planes.children[name]]
        below += [f"node {node}" for node in planes.nodes[name]]
        for thing in below:
            first = parents.setdefault(thing, name)
            if first != name:
                found = f"it below `{name}` and below `{first}`{_in_line(by_name[first])}"
                report.add(
                    by_name[name].line,
                    thing,
                    found,
                    "one switch above each",
                    "List what hangs on several switches below all of them alike, or below one.",
                )
    return parents


def _layout(
    planes: _Planes, parents: Mapping[str, str], lone_nodes: tuple[str, ...], report: Report
) -> Tree:
    height = max(planes.height.values(), default=-1)
    if height >= MAX_HEIGHT:
        report.add(None, "switches", f"{height + 1} levels", f"at most {MAX_HEIGHT} levels")
        report.check()
    paths = _paths_of_switches(planes, parents)
    home = {node: name for name, nodes in planes.nodes.items() for node in nodes}
    stray = [node for node in lone_nodes if node not in home]
    if not home:  # no tier: nothing joins any two of them
        return Tree(Layout((), dict.fromkeys(stray, ())), ())
    home |= lone_domains(stray, planes.children)
    above = {name: paths.get(name, (name,)) for name in home.values()}
    tiers, at_of_switch = ragged(above, TIERS)
    at = {node: at_of_switch[name] for node, name in home.items()}
    roots = [name for name in planes.children if f"switch {name}" not in parents]
    return Tree(
        Layout(tiers, at, inferred=tuple(_inferred(planes, roots, parents))),
        tuple(_warnings(planes, roots, stray, tiers)),
    )


def _paths_of_switches(planes: _Planes, parents: Mapping[str, str]) -> dict[str, Path]:
    """Return for each switch those above it, the widest first, and itself."""
    paths: dict[str, Path] = {}
    for name in reversed(planes.children):  # what is above comes first
        parent = parents.get(f"switch {name}")
        paths[name] = (*paths[parent], name) if parent else (name,)
    return paths


def _inferred(planes: _Planes, roots: Sequence[str], parents: Mapping[str, str]) -> Iterable[str]:
    for name, others in planes.others.items():
        yield f"switches {some([name, *others])} have the same below them: one domain, `{name}`"
    uneven = [
        name
        for name in planes.children
        if f"switch {name}" in parents
        and planes.height[parents[f"switch {name}"]] - planes.height[name] > 1
    ]
    top = max((planes.height[root] for root in roots), default=0)
    uneven += [root for root in roots if planes.height[root] < top]
    if uneven:
        yield (
            f"the tree is uneven: {len(uneven)} switches ({some(uneven)}) hang higher than others of their height or "
            f"on none; in the tiers missing above them they have domains of their own"
        )
    mixed = [name for name, nodes in planes.nodes.items() if nodes and planes.height[name]]
    if mixed:
        yield f"nodes hang on {some(mixed)}, above leaves: they are on a leaf of that name"


def _warnings(
    planes: _Planes, roots: Sequence[str], stray: Sequence[str], tiers: Sequence[str]
) -> Iterable[str]:
    if len(roots) > 1:
        yield (
            f"no switch joins all nodes: {len(roots)} trees ({some(roots)}) are not joined; "
            f"`required: {tiers[0]}` keeps a gang inside one"
        )
    empty = [name for name, plane in planes.name_of.items() if plane is None]
    if empty:
        have = counted(
            len(empty),
            "switch has no node below it and is left out",
            "switches have no node below them and are left out",
        )
        yield f"{have}: {some(empty)}"
    if stray and tiers:
        hang = counted(
            len(stray),
            "node hangs on no switch and is joined to none",
            "nodes hang on no switch and are joined to none",
        )
        yield f"{hang}: {some(stray)}"


def _in_line(switch: Switch) -> str:
    return f" (the first is in line {switch.line})" if switch.line else ""
