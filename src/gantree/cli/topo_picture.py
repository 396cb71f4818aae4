"""The topology tree drawn for a terminal: who holds which GPU. Facts only; colours help but carry nothing alone.

A GPU is one character: "." free, a letter for its holder (named in the legend at the end), "#" where there are more
holders than letters. Neighbours that look alike, nodes or whole domains, are drawn once with their number, so that
two thousand nodes fit on a screen where they are used alike.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from string import ascii_letters, digits

from rich.text import Text
from rich.tree import Tree

from gantree.topology.fabric import Fabric
from gantree.topology.occupancy import Occupancy

FREE = "."
LETTERS = ascii_letters + digits
MANY = "#"
ALIKE = 3
"""So many neighbours that look alike are drawn as one."""
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
    letter_of_holder: dict[str, str]
    cells_of_node: dict[str, str]


def picture(fabric: Fabric, occupancy: Occupancy) -> Tree:
    """Return the tree of a cluster: its domains, its nodes with their machines, a character per GPU, a legend."""
    scene = _scene(fabric, occupancy)
    title = f"{fabric.cluster.name}  {_room(scene, range(len(fabric.nodes)))}"
    tree = Tree(Text(title, style="bold"))
    for branch in _branches(scene, 1, range(len(fabric.names_of_domain[1]))):
        _draw(tree, branch, scene)
    _draw_legend(tree, scene)
    return tree


def _scene(fabric: Fabric, occupancy: Occupancy) -> _Scene:
    cells = {
        node.name: [FREE] * int(gpus)
        for node, gpus in zip(fabric.nodes, fabric.gpus_of_node, strict=True)
    }
    letters: dict[str, str] = {}
    for owner in _holders_in_topology_order(fabric, occupancy):
        letters[owner] = LETTERS[len(letters)] if len(letters) < len(LETTERS) else MANY
        for member in occupancy.owners[owner]:
            for gpu in member.gpus:
                cells[member.node][gpu] = letters[owner]
    return _Scene(fabric, occupancy, letters, {node: "".join(row) for node, row in cells.items()})


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
    note = _room(scene, range(int(nodes[domain]), int(nodes[domain + 1])))
    return _Looks(fabric.tiers[tier], note=note, inside=_branches(scene, tier + 1, inside))


def _room(scene: _Scene, nodes: range) -> str:
    """Count the GPUs of nodes, and those that are free and may be used."""
    named = [node.name for node in scene.fabric.nodes[nodes.start : nodes.stop]]
    total = sum(len(scene.cells_of_node[node]) for node in named)
    usable = [node for node in named if scene.occupancy.usable(node)]
    return f"{_gpus(total)}, {sum(scene.cells_of_node[node].count(FREE) for node in usable)} free"


def _looks_of_node(scene: _Scene, index: int) -> _Looks:
    node = scene.fabric.nodes[index]
    notes = [] if scene.occupancy.usable(node.name) else ["out of use"]
    cells = scene.cells_of_node[node.name]
    if not cells:
        held = [
            letter
            for owner, letter in scene.letter_of_holder.items()
            if any(member.node == node.name for member in scene.occupancy.owners[owner])
        ]
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
    """Name the holders; those without a letter of their own together in one line."""
    if not scene.letter_of_holder:
        return
    legend = tree.add(Text("holders", style="bold"))
    for owner, letter in scene.letter_of_holder.items():
        if letter != MANY:
            held = sum(len(member.gpus) for member in scene.occupancy.owners[owner])
            legend.add(Text.assemble((letter, _style(letter)), f"  {owner}  {_gpus(held)}"))
    others = sum(letter == MANY for letter in scene.letter_of_holder.values())
    if others:
        legend.add(Text(f"{MANY}  {others} others"))


def _gpus(count: int) -> str:
    return f"{count} GPU{'s' * (count != 1)}"
