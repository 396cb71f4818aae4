"""The topology tree drawn for a terminal, with the holder of each GPU. Colours never carry a meaning alone.

A GPU is one character: "." free, a letter for who holds it whole (named in the legend below), "#" where there are
more holders than letters, "/" where parts of it are held, "-" where nobody holds any of it but nobody may have it
whole, since it stays divided by MIG or a compute partition mode. Instances, shares and held devices stand beside their
node.

Health below 100 % and load above 0 stand beside the domain or node that they are of, those of NICs beside their node;
further partitions of the nodes and tori, which are no part of the tree, are listed below it. Neighbours that look
alike, nodes or whole domains, are drawn once with their number, so that two thousand nodes fit on a screen where they
are used alike.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from string import ascii_letters, digits

from rich.text import Text
from rich.tree import Tree

from gantree.cli.topo.gpu_parts import Holders, holders_by_node, part_notes, parts_held
from gantree.text.words import plural
from gantree.topology.fabric.conditions import Conditions
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.fabric.partitions import partitions_of
from gantree.topology.fabric.tori import tori_of
from gantree.topology.occupancy.occupancy import Occupancy
from gantree.web.fabric.scene import (
    NicView,
    gpu_link_notes,
    nic_notes,
    nics_to_tell,
    percent,
)

FREE = "."
IN_PARTS = "/"
CUT = "-"
MEANING = {
    IN_PARTS: "parts of it are held: free for no whole GPU",
    CUT: "stays divided: free for MIG instances or compute partitions only",
}
LETTERS = ascii_letters + digits
MANY = "#"
ALIKE = 3
"""So many neighbours that look alike are drawn as one."""
LISTED = 12
"""Domains of a partition that are listed."""
_STYLES = (
    "cyan",
    "magenta",
    "yellow",
    "green",
    "blue",
    "red",
    "bright_cyan",
    "bright_magenta",
    "bright_yellow",
)


@dataclass(frozen=True, slots=True)
class _Looks:
    """All that is drawn of a node or domain but its name; equal looks are drawn once."""

    title: str
    cells: str = ""
    note: str = ""
    inside: "tuple[_Branch, ...]" = ()


@dataclass(frozen=True, slots=True)
class _Branch:
    """Neighbours that look alike: the first and last name, and how many they are."""

    first: str = field(compare=False)
    last: str = field(compare=False)
    count: int
    looks: _Looks


@dataclass(frozen=True, slots=True)
class _Scene:
    fabric: Fabric
    occupancy: Occupancy
    conditions: Conditions
    letter_of_holder: dict[str, str]
    cells_of_node: dict[str, str]
    holders_of_node: dict[str, Holders]
    nics_of_node: dict[int, tuple[NicView, ...]]
    notes_on_gpus: dict[int, tuple[str, ...]]


def picture(fabric: Fabric, occupancy: Occupancy, conditions: Conditions) -> Tree:
    """Return the tree of a cluster: its domains, its nodes with their machines, a character per GPU, a legend.

    Below it stand the further partitions of its nodes and its tori. Raises BadInput for a torus that is none.
    """
    scene = _scene(fabric, occupancy, conditions)
    title = f"{fabric.cluster.name}  {_room(scene, range(len(fabric.nodes)))}"
    tree = Tree(Text(title, style="bold"))
    for branch in _branches(scene, 1, range(len(fabric.names_of_domain[1]))):
        _draw(tree, branch, scene)
    _draw_legend(tree, scene)
    _draw_partitions(tree, scene)
    _draw_tori(tree, fabric)
    return tree


def _scene(fabric: Fabric, occupancy: Occupancy, conditions: Conditions) -> _Scene:
    cells = {
        node.name: _unheld_cells(occupancy, index, int(fabric.gpus_of_node[index]))
        for index, node in enumerate(fabric.nodes)
    }
    letters: dict[str, str] = {}
    for owner in _holders_in_topology_order(fabric, occupancy):
        letters[owner] = LETTERS[len(letters)] if len(letters) < len(LETTERS) else MANY
        for member in occupancy.owners[owner]:
            for gpu in member.gpus:
                cells[member.node][gpu] = letters[owner]
    cells_of_node = {node: "".join(row) for node, row in cells.items()}
    return _Scene(
        fabric,
        occupancy,
        conditions,
        letters,
        cells_of_node,
        holders_by_node(occupancy),
        nics_to_tell(conditions),
        gpu_link_notes(fabric),
    )


def _unheld_cells(occupancy: Occupancy, index: int, gpus: int) -> list[str]:
    """The cells of a node without whole GPUs allocated."""
    cells = [FREE] * gpus
    for gpu, state in enumerate(occupancy.parts_of_node.get(index, ())):
        if state.held:
            cells[gpu] = IN_PARTS
        elif not occupancy.free_mask_of_node[index] >> gpu & 1:
            cells[gpu] = CUT
    return cells


def _holders_in_topology_order(fabric: Fabric, occupancy: Occupancy) -> list[str]:
    """Order holders by the first node they hold something of, so that letters rise along the tree."""

    def first_node(owner: str) -> tuple[int, str]:
        members = occupancy.owners[owner]
        return min((fabric.index_of_node[member.node] for member in members), default=0), owner

    return sorted(occupancy.owners, key=first_node)


def _branches(scene: _Scene, tier: int, domains: Sequence[int]) -> tuple[_Branch, ...]:
    """Return the branches of neighbouring domains of a tier, those that look alike as one."""
    names = scene.fabric.names_of_domain[tier]
    looks = [(names[domain].rpartition("/")[2], _looks(scene, tier, domain)) for domain in domains]
    return tuple(_merged(looks))


def _merged(looks: Sequence[tuple[str, _Looks]]) -> Iterator[_Branch]:
    for first, group in groupby(looks, key=lambda named: named[1]):
        alike = list(group)
        if len(alike) >= ALIKE:
            yield _Branch(alike[0][0], alike[-1][0], len(alike), first)
        else:  # each with its own looks: equal ones still hold different names
            yield from (_Branch(name, name, 1, own) for name, own in alike)


def _looks(scene: _Scene, tier: int, domain: int) -> _Looks:
    fabric = scene.fabric
    if tier == fabric.node_tier:
        return _looks_of_node(scene, domain)
    children = fabric.first_child_of_domain[tier]
    inside = range(int(children[domain]), int(children[domain + 1]))
    nodes = fabric.first_node_of_domain[tier]
    room = _room(scene, range(int(nodes[domain]), int(nodes[domain + 1])))
    note = ", ".join([room, *_condition(scene, tier, domain)])
    return _Looks(fabric.tiers[tier], note=note, inside=_branches(scene, tier + 1, inside))


def _condition(scene: _Scene, tier: int, domain: int) -> Iterator[str]:
    """Tell a health below 1 and a load above 0."""
    health = float(scene.conditions.health_of_domain[tier][domain])
    load = float(scene.conditions.load_of_domain[tier][domain])
    if health < 1:
        yield f"health {percent(health)}"
    if load > 0:
        yield f"load {percent(load)}"


def _room(scene: _Scene, nodes: Sequence[int]) -> str:
    """Count the GPUs of nodes, and those that a member could have whole now."""
    total = sum(len(scene.cells_of_node[scene.fabric.nodes[index].name]) for index in nodes)
    free = sum(_free(scene, index) for index in nodes)
    return f"{_gpus(total)}, {free} free"


def _usable(scene: _Scene, index: int) -> bool:
    sound = scene.conditions.health_of_domain[-1][index] > 0
    return bool(sound) and scene.occupancy.usable(scene.fabric.nodes[index].name)


def _free(scene: _Scene, index: int) -> int:
    """Count the GPUs of a node that a member could have whole now."""
    cells = scene.cells_of_node[scene.fabric.nodes[index].name]
    return cells.count(FREE) if _usable(scene, index) else 0


def _looks_of_node(scene: _Scene, index: int) -> _Looks:
    node = scene.fabric.nodes[index]
    notes = [] if _usable(scene, index) else ["out of use"]
    notes += _condition(scene, scene.fabric.node_tier, index)
    notes += nic_notes(scene.nics_of_node.get(index, ()))
    notes += scene.notes_on_gpus.get(index, ())
    cells = scene.cells_of_node[node.name]
    holders, letters = scene.holders_of_node.get(node.name, ()), scene.letter_of_holder
    notes += part_notes(scene.occupancy, index, holders, letters)
    if not cells:
        held = list(dict.fromkeys(letters[owner] for owner, _ in holders))
        notes.append("no GPUs" + (f", held by {' '.join(held)}" if held else ""))
    return _Looks(node.machine, cells, ", ".join(notes))


def _draw(tree: Tree, branch: _Branch, scene: _Scene) -> None:
    looks = branch.looks
    if looks.inside:
        label = Text(f"{looks.title} {_name(branch)}  {looks.note}{', each' * (branch.count > 1)}")
    else:
        label = Text(f"{_name(branch)}  {looks.title}  ")
        label.append_text(_coloured(looks.cells))
        label.append(" each" * (branch.count > 1 and bool(looks.cells)), style="dim")
        label.append(f"  {looks.note}" if looks.note else "", style="red")
    grown = tree.add(label)
    for inside in looks.inside:
        _draw(grown, inside, scene)


def _name(branch: _Branch) -> str:
    if branch.count == 1:
        return branch.first
    shown = f", {branch.first} shown" if branch.looks.inside else ""
    return f"{branch.first} .. {branch.last} ({branch.count} alike{shown})"


def _coloured(cells: str) -> Text:
    text = Text()
    for char in cells:
        text.append(char, style=_style(char))
    return text


def _style(cell: str) -> str:
    if cell == FREE:
        return "dim"
    return _STYLES[LETTERS.index(cell) % len(_STYLES)] if cell in LETTERS else "white"


def _draw_legend(tree: Tree, scene: _Scene) -> None:
    """Say what the other marks mean, and name the holders; those without a letter together in one line."""
    for mark, meaning in MEANING.items():
        if any(mark in cells for cells in scene.cells_of_node.values()):
            tree.add(Text.assemble((mark, _style(mark)), f"  {meaning}"))
    if not scene.letter_of_holder:
        return
    legend = tree.add(Text("holders", style="bold"))
    for owner, letter in scene.letter_of_holder.items():
        if letter != MANY:
            members = scene.occupancy.owners[owner]
            whole, parts = sum(len(member.gpus) for member in members), list(parts_held(members))
            held = [_gpus(whole)] * (whole > 0 or not parts) + parts
            legend.add(Text.assemble((letter, _style(letter)), f"  {owner}  {', '.join(held)}"))
    others = sum(letter == MANY for letter in scene.letter_of_holder.values())
    if others:
        legend.add(Text(f"{MANY}  {plural(others, 'other')}"))


def _draw_partitions(tree: Tree, scene: _Scene) -> None:
    """List the domains of each further partition, the first ones where there are many."""
    for name, partition in partitions_of(scene.fabric).items():
        domains = partition.names_of_domain
        drawn = tree.add(Text(f"partition {name}", style="bold"))
        for number, domain in enumerate(domains[:LISTED]):
            nodes = [int(node) for node in partition.nodes_of_domain(number)]
            drawn.add(Text(f"{domain}  {_nodes(len(nodes))}, {_room(scene, nodes)}"))
        if len(domains) > LISTED:
            drawn.add(Text(f"{plural(len(domains) - LISTED, 'other')}"))


def _draw_tori(tree: Tree, fabric: Fabric) -> None:
    """List the tori with their sizes and the axes that close."""
    for index in tori_of(fabric):
        torus = index.torus
        closed = [str(axis) for axis, wraps in enumerate(torus.wrap) if wraps]
        ends = f"closed along axis {', '.join(closed)}" if closed else "closed along no axis"
        inside = f"{_sides(torus.host)} on each of {_nodes(len(torus.nodes))}"
        tree.add(Text(f"torus {torus.name}  {_sides(torus.dims)} GPUs, {inside}, {ends}"))


def _sides(sides: Sequence[int]) -> str:
    return "x".join(str(side) for side in sides)


def _nodes(count: int) -> str:
    return f"{count} node{'s' * (count != 1)}"


def _gpus(count: int) -> str:
    return f"{count} GPU{'s' * (count != 1)}"
