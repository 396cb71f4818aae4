"""Merges several readings of the same nodes: the first is the tree, the others refine it or become partitions.

Sources see different things. A fabric manager knows leaves and spines, labels know racks and zones, a list knows
power feeds. Each tier of a further reading divides the nodes; where it fits the tree it becomes a tier of it:

- The same division as a tier of the tree: the tree's tier is kept, and nothing is added.
- Each of its domains lies inside one domain of a tier, and holds whole domains of the next narrower one: it is put
  between the two. (NVL72 racks between leaves and nodes; zones above spines.)
- Otherwise no tree holds both. It becomes a partition of its own, and that is noted.

Nodes are the same where their names are; a name without its DNS domain counts where only one node has it. Nodes that
only a further reading knows are left out, with a warning: no source gives their place in the tree. Where two readings
give different hardware for a node, the files contradict each other, and are refused.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from gantree.model.cluster import DomainFacts, Link
from gantree.model.errors import BadInput
from gantree.text.words import counted
from gantree.topology.discovery.fabrics import FabricReading, SeenNode

NODE = "node"
MOST_NAMED = 5
"""So many nodes are named in a warning; the others are counted."""
_HARDWARE = ("machine", "gpus", "gpu", "cpus", "memory_GiB")

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """A reading and where it is from: the file as errors name it, the kind as words name it ("ibnetdiscover")."""

    file: str
    kind: str
    reading: FabricReading


@dataclass(frozen=True, slots=True)
class _Tree:
    """Tiers from wide to narrow, and for each the path of every node."""

    tiers: tuple[str, ...]
    paths: Mapping[str, Path]

    def domain(self, node: str, tier: int) -> Path:
        """The domain of a node: its path down to a tier; for the tier after the last, the node."""
        path = self.paths[node]
        return path[: tier + 1] if tier < len(self.tiers) else (*path, node)


def merged(sources: Sequence[Source]) -> FabricReading:
    """Put readings together, the first as the tree. BadInput where they share no node or contradict each other."""
    first, *others = sources
    reading = first.reading
    for source in others:
        reading = _with(reading, source, first.file)
    alone = [_if_alone(source, sources) for source in sources]
    warnings = (*reading.warnings, *(said for each in alone for said in each))
    return replace(reading, warnings=warnings, warnings_if_alone=())


def _if_alone(source: Source, sources: Sequence[Source]) -> tuple[str, ...]:
    """Return the warnings of a source that apply only if no other source places the nodes."""
    given = any(other.reading.tiers for other in sources if other is not source)
    return () if given else source.reading.warnings_if_alone


def some(names: Iterable[str]) -> str:
    """Name the first few, and count the others."""
    listed = list(names)
    more = len(listed) - MOST_NAMED
    return ", ".join(listed[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _with(base: FabricReading, source: Source, base_file: str) -> FabricReading:
    more = source.reading
    seen, notes = _matched(base, source, base_file)
    tree = _Tree(base.tiers, {node.name: node.at for node in base.nodes})
    partitions: dict[str, dict[str, str]] = {}
    tier_in_tree: dict[str, str] = {}
    for number, tier in enumerate(more.tiers):
        division = {name: node.at[: number + 1] for name, node in seen.items()}
        tree, kept_as, note = _placed(tree, tier, division, source.kind)
        notes.append(note)
        if kept_as is None:
            name = _free_name(tier, [*tree.tiers, *partitions], source.kind)
            partitions[name] = _named(division)
        else:
            tier_in_tree[tier] = kept_as
    return replace(
        base,
        tiers=tree.tiers,
        nodes=tuple(
            _filled(node, seen.get(node.name), tree, partitions, source.file) for node in base.nodes
        ),
        links=_links(base, more, tier_in_tree),
        domains=_domains(
            base,
            {node.name: node for node in base.nodes},
            tree,
            dict(zip(base.tiers, base.tiers, strict=True)),
        )
        + _domains(more, seen, tree, tier_in_tree),
        tori=base.tori + more.tori,
        inferred=(*base.inferred, *more.inferred, *(note for note in notes if note)),
        warnings=(*base.warnings, *more.warnings, *_left_out(base, more, seen, source)),
    )


def _matched(
    base: FabricReading, source: Source, base_file: str
) -> tuple[dict[str, SeenNode], list[str]]:
    """Return what the source states of nodes of the base, by the base's names."""
    by_name = {node.name: node for node in source.reading.nodes}
    short = _unique(by_name, lambda name: name.partition(".")[0])
    short_of_base = _unique({node.name: node for node in base.nodes}, lambda n: n.partition(".")[0])
    seen, by_short_name = {}, []
    for node in base.nodes:
        key = node.name.partition(".")[0]
        found = by_name.get(node.name)
        if found is None and key in short_of_base and key in short:
            found = short[key]
            by_short_name.append(node.name)
        if found is not None:
            seen[node.name] = found
    if not seen:
        raise BadInput(
            f"{source.file}: none of its {counted(len(by_name), 'node', 'nodes')} ({some(by_name)}) is in {base_file} "
            f"({some(node.name for node in base.nodes)}); give sources of the same nodes"
        )
    note = f"{source.file}: {counted(len(by_short_name), 'node is', 'nodes are')} matched by name without DNS domain"
    return seen, [note] if by_short_name else []


def _unique(nodes: Mapping[str, SeenNode], key_of: Callable[[str], str]) -> dict[str, SeenNode]:
    found: dict[str, list[SeenNode]] = {}
    for name, node in nodes.items():
        found.setdefault(key_of(name), []).append(node)
    return {key: alike[0] for key, alike in found.items() if len(alike) == 1}


def _placed(
    tree: _Tree, tier: str, division: Mapping[str, Path], kind: str
) -> tuple[_Tree, str | None, str]:
    """Put a division into the tree where it fits: (tree, its tier there or None, the note on it)."""
    for number, own in enumerate(tree.tiers):
        domains = {node: tree.domain(node, number) for node in division}
        if _refines(domains, division) and _refines(division, domains):
            return tree, own, f"{kind}: its {tier} is the {own} of the tree"
    for number in range(len(tree.tiers), -1, -1):
        inner = {node: tree.domain(node, number) for node in division}
        outer = {node: tree.domain(node, number - 1) if number else () for node in division}
        if _refines(inner, division) and _refines(division, outer):
            name = _free_name(tier, tree.tiers, kind)
            return (
                _inserted(tree, number, name, division),
                name,
                f"{kind}: its {tier} is tier {name}",
            )
    return tree, None, f"{kind}: its {tier} does not fit into the tree; it is kept as a partition"


def _refines(narrow: Mapping[str, Path], wide: Mapping[str, Path]) -> bool:
    """Return whether each narrow domain lies inside one wide one."""
    wide_of: dict[Path, Path] = {}
    return all(wide_of.setdefault(narrow[node], wide[node]) == wide[node] for node in narrow)


def _free_name(tier: str, taken: Sequence[str], kind: str) -> str:
    return tier if tier not in taken else f"{kind}-{tier}"


def _inserted(tree: _Tree, number: int, name: str, division: Mapping[str, Path]) -> _Tree:
    """Put a division in before tier `number`. A node that it does not name joins those of its domain in that tier."""
    names = _named(division)
    taken = frozenset(names.values())
    name_of_inner = {tree.domain(node, number): names[node] for node in division}
    paths = {}
    for node, path in tree.paths.items():
        inner = tree.domain(node, number)
        own = name_of_inner.get(inner) or _apart(inner[-1], taken)
        paths[node] = (*path[:number], own, *path[number:])
    return _Tree((*tree.tiers[:number], name, *tree.tiers[number:]), paths)


def _apart(name: str, taken: frozenset[str]) -> str:
    """Return a name that is not taken: no source states that both are one domain."""
    while name in taken:
        name += "-"
    return name


def _named(division: Mapping[str, Path]) -> dict[str, str]:
    """Name each domain by the last name of its path, or by all of it where two would be called alike."""
    paths_of_name: dict[str, set[Path]] = {}
    for path in division.values():
        paths_of_name.setdefault(path[-1], set()).add(path)
    return {
        node: path[-1] if len(paths_of_name[path[-1]]) == 1 else "-".join(path)
        for node, path in division.items()
    }


def _filled(
    node: SeenNode,
    seen: SeenNode | None,
    tree: _Tree,
    partitions: Mapping[str, Mapping[str, str]],
    file: str,
) -> SeenNode:
    """Return a node with its new place, and with what the further reading gives for it."""
    own = tuple((name, of[node.name]) for name, of in partitions.items() if node.name in of)
    placed = replace(node, at=tree.paths[node.name], partitions=node.partitions + own)
    if seen is None:
        return placed
    for field in fields(SeenNode):
        mine, theirs = getattr(node, field.name), getattr(seen, field.name)
        if field.name in _HARDWARE and None not in (mine, theirs) and mine != theirs:
            raise BadInput(
                f"{file}: node {seen.name}: {field.name} is {theirs}, but another source says {mine}"
            )
    labels = dict(seen.labels) | dict(node.labels)
    given = {
        name: getattr(seen, name) for name in (*_HARDWARE, "address") if getattr(node, name) is None
    }
    return replace(
        placed,
        labels=tuple(labels.items()),
        partitions=placed.partitions + seen.partitions,
        nics=node.nics or seen.nics,
        **given,
    )


def _links(
    base: FabricReading, more: FabricReading, tier_in_tree: Mapping[str, str]
) -> dict[str, Link]:
    given = {tier_in_tree[tier]: link for tier, link in more.links.items() if tier in tier_in_tree}
    return given | dict(base.links)


def _domains(
    reading: FabricReading,
    seen: Mapping[str, SeenNode],
    tree: _Tree,
    tier_in_tree: Mapping[str, str],
) -> tuple[DomainFacts, ...]:
    """Return what a reading gives for domains, by their names in the tree; seen[name in the tree] is its node."""
    node_in: dict[tuple[str, str], str] = {}
    for name, node in seen.items():
        node_in[NODE, node.name] = name
        for number, tier in enumerate(reading.tiers):
            node_in.setdefault((tier, "/".join(node.at[: number + 1])), name)
    found = []
    for facts in reading.domains:
        inside = node_in.get((facts.tier, facts.name))
        if inside is None:
            continue
        if facts.tier == NODE:
            found.append(replace(facts, name=inside))
        elif facts.tier in tier_in_tree:
            tier = tier_in_tree[facts.tier]
            path = tree.domain(inside, tree.tiers.index(tier))
            found.append(replace(facts, tier=tier, name="/".join(path)))
    return tuple(found)


def _left_out(
    base: FabricReading, more: FabricReading, seen: Mapping[str, SeenNode], source: Source
) -> list[str]:
    known = {node.name for node in seen.values()}
    only_there = [node.name for node in more.nodes if node.name not in known]
    only_here = [node.name for node in base.nodes if node.name not in seen]
    given = [
        f"{source.file}: {counted(len(only_there), 'node is', 'nodes are')} in no tree and left out: "
        f"{some(only_there)}"
    ]
    silent = [
        f"{source.file}: it says nothing of {counted(len(only_here), 'node', 'nodes')}: {some(only_here)}"
    ]
    return (given if only_there else []) + (silent if only_here else [])
