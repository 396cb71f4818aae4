"""A tree of nodes with a further partition: added at its narrow end if it nests, else beside the tree.

For what is tighter than any switch: blocks, NVLink domains. (Putting whole readings of different sources together, at
any height of the tree, is `merging`.) A division is put in even where it is the same as a tier that is there, for a
domain of NVLinks is not the leaf that it happens to share with it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from gantree.text.words import counted
from gantree.topology.discovery.fabrics import FabricReading, SeenNode
from gantree.topology.discovery.merging import some

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where nodes are: tiers from wide to narrow, the path of each node (all as long as tiers), its partitions."""

    tiers: tuple[str, ...]
    at: Mapping[str, Path]
    partitions: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    inferred: tuple[str, ...] = ()

    def seen(self, name: str) -> SeenNode:
        """Return a node of which only its place is known."""
        return SeenNode(name, self.at[name], partitions=self.partitions.get(name, ()))

    def reading(self, warnings: Iterable[str] = ()) -> FabricReading:
        """Return the reading of a source that gives nothing but places."""
        nodes = tuple(self.seen(name) for name in self.at)
        return FabricReading(self.tiers, nodes, inferred=self.inferred, warnings=tuple(warnings))


class Beside(NamedTuple):
    """A division that is beside a tree: its name, its domains, and the note on it."""

    name: str
    domain_of_node: Mapping[str, str]
    said: str


def divided(layout: Layout, name: str, domain_of_node: Mapping[str, str], what: str) -> Layout:
    """Put a division in: as the narrowest tier where each of its domains lies inside one domain of the narrowest
    tier, else as a partition. what: its name in words ("accelerator domains"). Nodes that it does not name get
    domains of their own. A division that names no node changes nothing.
    """
    known = {node: domain for node, domain in domain_of_node.items() if node in layout.at}
    if not known:
        return layout
    assert name not in layout.tiers, "a tier is put in once"
    if _lies_inside(layout.at, known):
        return _as_tier(layout, name, known, what)
    said = f"{what} are partition `{name}`: they do not lie inside domains of tier `{layout.tiers[-1]}`"
    return with_partitions(layout, [Beside(name, known, said)])


def with_partitions(layout: Layout, beside: Iterable[Beside]) -> Layout:
    """Put divisions beside the tree, and note it. Nodes that are not in the layout are passed over."""
    more: dict[str, list[tuple[str, str]]] = {}
    said = []
    for division in beside:
        said.append(division.said)
        for node, domain in division.domain_of_node.items():
            if node in layout.at:
                more.setdefault(node, []).append((division.name, domain))
    partitions = dict(layout.partitions)
    for node, own in more.items():
        partitions[node] = (*partitions.get(node, ()), *own)
    return replace(layout, partitions=partitions, inferred=(*layout.inferred, *said))


def _lies_inside(at: Mapping[str, Path], domain_of_node: Mapping[str, str]) -> bool:
    outer: dict[str, Path] = {}
    return all(
        outer.setdefault(domain, at[node]) == at[node] for node, domain in domain_of_node.items()
    )


def _as_tier(layout: Layout, name: str, known: Mapping[str, str], what: str) -> Layout:
    lonely = [node for node in layout.at if node not in known]
    own = dict(known) | lone_domains(lonely, known.values())
    at = {node: (*path, own[node]) for node, path in layout.at.items()}
    said = f"{what} are tier `{name}`" + (
        ", for each lies inside one domain of tier `" + layout.tiers[-1] + "`"
        if layout.tiers
        else ""
    )
    if lonely:
        own_ones = counted(
            len(lonely), "node in none has one of its own", "nodes in none have one of their own"
        )
        said += f"; {own_ones}: {some(lonely)}"
    return replace(layout, tiers=(*layout.tiers, name), at=at, inferred=(*layout.inferred, said))


def lone_domains(nodes: Iterable[str], taken: Iterable[str]) -> dict[str, str]:
    """Name a domain for each node that holds it only: after the node, unlike all that are taken."""
    names = set(taken)
    found = {}
    for node in nodes:
        found[node] = _free(node, names)
        names.add(found[node])
    return found


def _free(name: str, taken: Collection[str]) -> str:
    while name in taken:
        name += "-alone"
    return name


def whole_paths(cells_of_node: Mapping[str, Sequence[str]]) -> dict[str, Path]:
    """Fill the gaps ("") of paths that are all as long: a domain that is missing is named after the domain below it, or
    after the node, unlike all that are there. So it holds nothing but what is below it.
    """
    columns = list(zip(*cells_of_node.values(), strict=True))
    names = [_ColumnNames(column) for column in columns]
    return {node: _whole(cells, node, names) for node, cells in cells_of_node.items()}


class _ColumnNames:
    """The names of one tier: those that are there, and those made for what lacks one, by what is below."""

    def __init__(self, there: Iterable[str]) -> None:
        self._taken = set(there)
        self._made: dict[tuple[int, str], str] = {}

    def after(self, below: tuple[int, str]) -> str:
        """Return the name of the domain around what is below: (its tier, its name)."""
        if below not in self._made:
            self._made[below] = _free(below[1], self._taken)
            self._taken.add(self._made[below])
        return self._made[below]


def _whole(cells: Sequence[str], node: str, names: Sequence[_ColumnNames]) -> Path:
    path = list(cells)
    below = len(cells), node
    for tier in range(len(cells) - 1, -1, -1):
        if cells[tier]:
            below = tier, cells[tier]
        else:
            path[tier] = names[tier].after(below)
    return tuple(path)


def names_within(pairs: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    """Name inner domains, given as (outer, inner): with the outer one where two outer ones have one of that name."""
    outer_of: dict[str, set[str]] = {}
    for outer, inner in pairs.values():
        outer_of.setdefault(inner, set()).add(outer)
    return {
        node: f"{outer}.{inner}" if outer and len(outer_of[inner]) > 1 else inner
        for node, (outer, inner) in pairs.items()
    }
