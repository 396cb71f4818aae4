"""Kubernetes nodes and their place by labels: `kubectl get nodes -o json` or `-o yaml`.

The text may be one List, one Node, or several documents; Kueue `Topology` documents may be among the nodes, other
kinds are passed over. Which labels make the tree, in this order:

1. The label keys that were requested, from wide to narrow, and no others.
2. The levels of a Kueue `Topology`; of several, the one whose labels most nodes have.
3. Of the families of labels that are known (`label_keys`), the one that most nodes have; of equals, the preferred one.

In the last two cases the labels of other families are further divisions of the same nodes, and so are zones and
regions: each is put into the tree where it fits, else beside it (`merging`). NVLink domains are put below the
narrowest tier where each lies inside one of its domains, else beside the tree. What was done with each is noted.

A node without one of the labels gets a domain of its own in that tier. A node that is not ready, or cordoned, has
health 0: it takes no work.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gantree.model.cluster import DomainFacts
from gantree.model.errors import BadInput
from gantree.text.records import MAX_PROBLEMS, Record, Report, json_records, yaml_records
from gantree.text.words import counted, plural, shortened
from gantree.topology.discovery.fabrics import FabricReading, SeenNode, ragged
from gantree.topology.discovery.listings.divisions import (
    Beside,
    Layout,
    divided,
    lone_domains,
    names_within,
    whole_paths,
    with_partitions,
)
from gantree.topology.discovery.listings.domains_csv import MAX_TIERS, said_of_repeats
from gantree.topology.discovery.listings.kubernetes_nodes import KubernetesNode, read_node
from gantree.topology.discovery.listings.label_keys import (
    CAPACITY_BLOCK_KEY,
    CLIQUE_KEY,
    DOMAIN_KEY,
    HOST_KEY,
    NODE_POOL_KEY,
    NVLINK_KEYS,
    PLACES,
    SUB_DOMAIN_KEY,
    TPU_TOPOLOGY_KEY,
    Family,
    Level,
    dividing_keys,
    families,
    levels_of_keys,
)
from gantree.topology.discovery.listings.slurm_names import ALLOWED_NAMES, MAX_NAMES, is_name
from gantree.topology.discovery.listings.switch_tree import TIERS
from gantree.topology.discovery.merging import (
    MOST_NAMED,
    NODE,
    Source,
    merged,
    some,
)

NVLINK, NVLINK_SUB = "nvlink", "nvlink-sub"
_KUEUE = "kueue.x-k8s.io/"
_DROPPED = frozenset({"nvidia.com/gfd.timestamp", "topograph.run/instance"})
"""Labels with a different value on each node, which no job requests. The host's name is one where it is the name of the
node, which a job may request without the label."""
_NO_CLIQUE = "00000000-0000-0000-0000-000000000000"

Nodes = Mapping[str, KubernetesNode]


@dataclass(frozen=True, slots=True)
class _Told:
    """What texts hold: its nodes by name, and the levels of each Kueue topology by its name."""

    nodes: dict[str, KubernetesNode]
    topologies: dict[str, tuple[str, ...]]


def parse(text: str, source: str, levels: Sequence[str] | None = None) -> FabricReading:
    """Read nodes. levels are label keys from wide to narrow, where others than the known ones are meant.

    BadInput where there are no nodes, or none has the labels that were requested; BadFields, by line or path, for
    what is no Node.
    """
    return read([(text, source)], levels)


def read(
    texts: Sequence[tuple[str, str]],
    levels: Sequence[str] | None = None,
    further: Sequence[str] = (),
) -> FabricReading:
    """Read nodes and Kueue topologies of one cluster, which may be texts of their own, each a pair (text, source).

    further are label keys that become tiers, too, where their domains nest in the others. Errors as of `parse`.
    """
    given = _Told({}, {})
    for text, source_of_text in texts:
        _read(text, given, Report(source_of_text))
    source = " and ".join(name for _, name in texts)
    report = Report(source)
    if not given.nodes:
        raise BadInput(f"{source}: no Node in it; give `kubectl get nodes -o json` or `-o yaml`")
    reading = _asked_for(given.nodes, levels, source) if levels else _found(given, source)
    for key in further:
        reading = _with_level(reading, given.nodes, key, source)
    _check_names(reading, report)
    domains, unfit = _unfit(given.nodes.values())
    notes = _notes(given.nodes.values())
    return replace(reading, domains=domains, warnings=(*reading.warnings, *unfit, *notes))


def _read(text: str, given: _Told, report: Report) -> None:
    """Add what a text holds to what was read."""
    as_json = text.lstrip("\ufeff \t\r\n").startswith(("{", "["))
    for record in (json_records if as_json else yaml_records)(text, report):
        for item in _items(record):
            if len(report.problems) == MAX_PROBLEMS:
                report.check()
            kind = item.text("kind", default="Node")
            if kind == "Node":
                _add_node(item, given.nodes, report)
            elif kind == "Topology" and item.text("apiVersion", default="").startswith(_KUEUE):
                _add_topology(item, given.topologies)
    report.check()


def _items(record: Record) -> Iterator[Record]:
    if "items" in record.table:
        yield from record.records("items")
    else:
        yield record


def _add_node(item: Record, nodes: dict[str, KubernetesNode], report: Report) -> None:
    node = read_node(item)
    if node.name and not is_name(node.name):
        item.problem("metadata", f"the name `{shortened(node.name)}`", ALLOWED_NAMES)
    elif node.name in nodes:
        item.problem("metadata", f"node `{node.name}` again", "each node once")
    nodes.setdefault(node.name, node)
    if len(nodes) > MAX_NAMES:
        report.add(None, "items", "more nodes", f"at most {MAX_NAMES}")
        report.check()


def _add_topology(item: Record, topologies: dict[str, tuple[str, ...]]) -> None:
    metadata, spec = item.record("metadata"), item.record("spec")
    name = metadata.text("name", default="") if metadata else ""
    levels = spec.records("levels") if spec else []
    keys = tuple(dict.fromkeys(level.text("nodeLabel") for level in levels))
    if not keys:
        item.problem("spec", "no levels", "levels with a nodeLabel each")
    topologies[name] = keys


def _asked_for(nodes: Nodes, keys: Sequence[str], source: str) -> FabricReading:
    levels = levels_of_keys(list(dict.fromkeys(keys)))
    lost = [level.keys[0] for level in levels if not _covered(nodes, level)]
    if lost:
        there = sorted({key for node in nodes.values() for key in node.labels})
        raise BadInput(
            f"{source}: no node has the label {some(lost)}; labels there: {some(there) or 'none'}"
        )
    family = Family("asked for", levels)
    reading = _family_reading(nodes, family)
    said = ", ".join(f"{level.keys[0]} is tier {level.tier}" for level in levels)
    return replace(reading, inferred=(said, *reading.inferred))


def _with_level(reading: FabricReading, nodes: Nodes, key: str, source: str) -> FabricReading:
    """The same with a tier of the domains of a label, if they nest in its tiers and are none of them."""
    family = Family(key, levels_of_keys([key]))
    there = _having(nodes, family)
    if not there or len(reading.tiers) == MAX_TIERS:
        return reading
    level = Source(source, key, _family_reading(there, family))
    joined = merged([Source(source, "nodes", reading), level])
    return joined if len(joined.tiers) > len(reading.tiers) else reading


def _found(given: _Told, source: str) -> FabricReading:
    nodes = given.nodes
    chosen, others, said, lost = _chosen(given)
    unplaced = _unplaced(given) if chosen.name == PLACES.name else ()
    base = _family_reading(nodes, chosen)
    more = [
        Source(source, other.name, _family_reading(_having(nodes, other), other))
        for other in others
        if _having(nodes, other)
    ]
    base = replace(base, inferred=(*said, *base.inferred), warnings=(*lost, *base.warnings))
    joined = merged([Source(source, chosen.name, base), *more]) if more else base
    joined = replace(joined, warnings_if_alone=unplaced)
    return _with_nvlinks(joined, nodes, {key for level in chosen.levels for key in level.keys})


def _chosen(given: _Told) -> tuple[Family, list[Family], list[str], list[str]]:
    """Return the family that makes the tree, the others, the note on the choice, and what is odd about it."""
    nodes = given.nodes
    present = families(key for node in nodes.values() for key in node.labels)
    known = [family for family in present if len(family.levels) <= MAX_TIERS]
    said: list[str] = []
    lost = [
        f"labels of {family.name} are passed over: {len(family.levels)} tiers are too many"
        for family in present
        if family not in known
    ]
    kueue = [
        (name, Family("kueue", levels_of_keys(keys))) for name, keys in given.topologies.items()
    ]
    usable = [(name, family) for name, family in kueue if _having(nodes, family)]
    lost += [
        f"Kueue topology {shortened(name)}: no node has its labels"
        for name, family in kueue
        if family.levels and (name, family) not in usable
    ]
    if usable:
        name, chosen = max(usable, key=lambda each: len(_having(nodes, each[1])))
        said.append(f"Kueue topology {shortened(name)} makes the tree: {_keys(chosen)}")
        return chosen, [*known, PLACES], said, lost
    if known:
        chosen = max(known, key=lambda family: len(_having(nodes, family)))
        count = len(_having(nodes, chosen))
        said.append(
            f"labels of {chosen.name} make the tree ({count} of {plural(len(nodes), 'node')}): {_keys(chosen)}"
        )
        return chosen, [*(other for other in known if other is not chosen), PLACES], said, lost
    places = Family(PLACES.name, tuple(level for level in PLACES.levels if _covered(nodes, level)))
    return places, [], said, lost


def _unplaced(given: _Told) -> tuple[str, ...]:
    """Report that no known label describes switches, and which other labels may."""
    nodes = given.nodes
    said = "no label that is known tells where nodes stand: all are alike far from each other"
    if any(_covered(nodes, level) for level in PLACES.levels):
        said = "no label that is known tells of switches: only regions and zones are known"
    keys = dividing_keys([node.labels for node in nodes.values()])
    if not keys:
        return (said,)
    wanted = " ".join(f"--level {key}" for key in keys[:MOST_NAMED])
    return (f"{said}; if labels that divide them ({some(keys)}) are places: {wanted}",)


def _keys(family: Family) -> str:
    return ", ".join(f"{'|'.join(level.keys)} is tier {level.tier}" for level in family.levels)


def _value(node: KubernetesNode, level: Level) -> str:
    return next((node.labels[key] for key in level.keys if node.labels.get(key)), "")


def _covered(nodes: Nodes, level: Level) -> int:
    return sum(bool(_value(node, level)) for node in nodes.values())


def _having(nodes: Nodes, family: Family) -> Nodes:
    """Return the nodes that have some label of a family."""
    return {
        name: node
        for name, node in nodes.items()
        if any(_value(node, level) for level in family.levels)
    }


def _family_reading(nodes: Nodes, family: Family) -> FabricReading:
    """Return the tree that a family's labels make of nodes. Levels that no node has are left out."""
    levels = [level for level in family.levels if _covered(nodes, level)]
    cells = {name: [_value(node, level) for level in levels] for name, node in nodes.items()}
    depths = {name: sum(map(bool, row)) for name, row in cells.items()}
    short = [name for name, depth in depths.items() if 0 < depth < len(levels)]
    whole = all(all(cells[name][: depths[name]]) for name in short)
    if family.counted_inwards and short and whole:
        return _uneven_reading(nodes, levels, cells, short)
    at = whole_paths(cells)
    tiers = tuple(level.tier for level in levels)
    seen = tuple(_seen(node, at[name]) for name, node in nodes.items())
    inferred = tuple(said_of_repeats(tiers, list(at.values())))
    return FabricReading(tiers, seen, inferred=inferred, warnings=tuple(_gaps(levels, cells)))


def _uneven_reading(
    nodes: Nodes, levels: Sequence[Level], cells: Mapping[str, Sequence[str]], short: Sequence[str]
) -> FabricReading:
    """Return the tree of nodes of which some have fewer levels, and hang on the last that they have."""
    paths = {name: tuple(value for value in row if value) for name, row in cells.items()}
    alone = [name for name, path in paths.items() if not path]
    taken = {value for path in paths.values() for value in path}
    paths |= {name: (own,) for name, own in lone_domains(alone, taken).items()}
    tiers, at = ragged(paths, TIERS)
    seen = tuple(_seen(node, at[name]) for name, node in nodes.items())
    hang = counted(
        len(short),
        "node has fewer layers than others and hangs on the last that it has: it is its",
        "nodes have fewer layers than others and hang on the last that they have: it is their",
    )
    said = f"{hang} {tiers[-1]} ({some(short)})"
    lost = _gaps(levels, {name: cells[name] for name in alone})
    inferred = (said, *said_of_repeats(tiers, list(at.values())))
    return FabricReading(tiers, seen, inferred=inferred, warnings=tuple(lost))


def _gaps(levels: Sequence[Level], cells: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield which nodes lack labels; levels that the same nodes lack are noted together."""
    lacked_by: dict[tuple[str, ...], list[Level]] = {}
    for number, level in enumerate(levels):
        missing = tuple(name for name, values in cells.items() if not values[number])
        if missing:
            lacked_by.setdefault(missing, []).append(level)
    for missing, lacked in lacked_by.items():
        keys = ", ".join("|".join(level.keys) for level in lacked)
        tiers = ", ".join(level.tier for level in lacked)
        get = counted(
            len(missing),
            f"node has no label {keys} and gets a {tiers} of its own",
            f"nodes have no label {keys} and get a {tiers} of their own",
        )
        yield f"{get}: {some(missing)}"


def _seen(node: KubernetesNode, at: tuple[str, ...]) -> SeenNode:
    labels = ((key, node.labels[key]) for key in sorted(node.labels))
    return SeenNode(
        node.name,
        at,
        labels=tuple(
            (key, value)
            for key, value in labels
            if key not in _DROPPED and (key, value) != (HOST_KEY, node.name)
        ),
        gpus=node.gpus,
        gpu=node.gpu,
        cpus=node.cpus,
        memory_GiB=node.memory_GiB,
        address=node.address,
    )


def _with_nvlinks(reading: FabricReading, nodes: Nodes, used: set[str]) -> FabricReading:
    """Put NVLink domains, and what else divides nodes without being a switch, into a reading."""
    layout = Layout(reading.tiers, {node.name: node.at for node in reading.nodes})
    layout = _nvlinked(layout, nodes, used)
    layout = with_partitions(layout, _besides(nodes))
    seen = tuple(
        replace(
            node,
            at=layout.at[node.name],
            partitions=node.partitions + layout.partitions.get(node.name, ()),
        )
        for node in reading.nodes
    )
    inferred = (*reading.inferred, *layout.inferred)
    warnings = (*reading.warnings, *_tpu_warnings(nodes))
    return replace(reading, tiers=layout.tiers, nodes=seen, inferred=inferred, warnings=warnings)


def _nvlinked(layout: Layout, nodes: Nodes, used: set[str]) -> Layout:
    """Put NVLink domains in, by the label that most nodes have; of equals, the surest."""
    given = {key: _nvlink_domains(nodes, key) for key in NVLINK_KEYS if key not in used}
    given = {key: domains for key, domains in given.items() if domains}
    if not given or NVLINK in layout.tiers:
        return layout
    key = max(given, key=lambda each: len(given[each]))
    layout = divided(layout, NVLINK, given.pop(key), f"NVLink domains ({key})")
    others = [_other_nvlinks(layout, other, domains) for other, domains in given.items()]
    layout = with_partitions(layout, [other for other in others if other is not None])
    subs = {
        name: (nodes[name].labels.get(DOMAIN_KEY, ""), sub)
        for name, sub in _values(nodes, SUB_DOMAIN_KEY).items()
    }
    return divided(layout, NVLINK_SUB, names_within(subs), f"NVLink sub-domains ({SUB_DOMAIN_KEY})")


def _other_nvlinks(layout: Layout, key: str, domains: Mapping[str, str]) -> Beside | None:
    """Return a division of NVLink domains by a further label, unless it is the one that is there already."""
    if NVLINK in layout.tiers:
        place = layout.tiers.index(NVLINK)
        own = {node: "/".join(layout.at[node][: place + 1]) for node in domains}
    else:
        own = {node: dict(layout.partitions.get(node, ())).get(NVLINK, node) for node in domains}
    if (
        len(set(zip(domains.values(), own.values(), strict=True)))
        == len(set(own.values()))
        == len(set(domains.values()))
    ):
        return None
    name = f"{NVLINK}-{_word_for(key)}"
    return Beside(name, domains, f"{key} divides nodes otherwise: partition `{name}`")


def _word_for(key: str) -> str:
    """Return a short word for who puts a label on nodes: "topology.k8s.aws/ultraserver-id" is "ultraserver-id"."""
    word = key.rpartition("/")[2]
    return word if word != "domain" else key.partition(".")[0]


def _nvlink_domains(nodes: Nodes, key: str) -> dict[str, str]:
    """Return the NVLink domain of nodes by a label; a clique of the zero cluster is none."""
    found = _values(nodes, key)
    if key != CLIQUE_KEY:
        return found
    return {node: clique for node, clique in found.items() if not clique.startswith(_NO_CLIQUE)}


def _values(nodes: Nodes, key: str) -> dict[str, str]:
    return {name: node.labels[key] for name, node in nodes.items() if node.labels.get(key)}


def _besides(nodes: Nodes) -> Iterator[Beside]:
    blocks = _values(nodes, CAPACITY_BLOCK_KEY)
    if blocks:
        said = f"{CAPACITY_BLOCK_KEY} tells what was reserved together: partition `capacity-block`"
        yield Beside("capacity-block", blocks, said)
    pools = {
        name: node.labels[NODE_POOL_KEY]
        for name, node in nodes.items()
        if node.labels.get(NODE_POOL_KEY) and _spans_nodes(node)
    }
    if pools:
        said = f"a node pool of TPUs that spans nodes is one slice ({NODE_POOL_KEY}): partition `tpu-slice`"
        yield Beside("tpu-slice", pools, said)


def _spans_nodes(node: KubernetesNode) -> bool:
    """Return whether the TPU topology of a node has more chips than the node."""
    sizes = node.labels.get(TPU_TOPOLOGY_KEY, "").split("x")
    if not all(size.isascii() and size.isdecimal() and len(size) < 5 for size in sizes):
        return False
    chips = 1
    for size in sizes[:4]:
        chips *= int(size)
    return chips > (node.gpus or 0)


def _tpu_warnings(nodes: Nodes) -> Iterator[str]:
    shapes = _values(nodes, TPU_TOPOLOGY_KEY)
    if shapes:
        yield (
            f"TPU topologies ({some(sorted(set(shapes.values())))}) are told, but no label tells where in it a node "
            f"stands: no torus is made"
        )


def _check_names(reading: FabricReading, report: Report) -> None:
    for node in reading.nodes:
        names = (*node.at, *(domain for _, domain in node.partitions))
        bad = next((name for name in names if not is_name(name)), None)
        if bad is not None:
            report.add(None, f"labels of {node.name}", f"`{shortened(bad)}`", ALLOWED_NAMES)
    report.check()


def _unfit(nodes: Collection[KubernetesNode]) -> tuple[tuple[DomainFacts, ...], list[str]]:
    """Return health 0 for nodes that take no work, and note which."""
    not_ready = [node.name for node in nodes if not node.ready]
    cordoned = [node.name for node in nodes if node.ready and not node.schedulable]
    said = [
        f"{counted(len(names), f'node is {what} and takes', f'nodes are {what} and take')} no work: {some(names)}"
        for what, names in (("not ready", not_ready), ("cordoned", cordoned))
        if names
    ]
    return tuple(DomainFacts(NODE, name, health=0.0) for name in [*not_ready, *cordoned]), said


def _notes(nodes: Iterable[KubernetesNode]) -> Iterator[str]:
    """Yield what is odd about nodes, nodes of which the same is noted together."""
    nodes_of_note: dict[str, list[str]] = {}
    for node in nodes:
        for note in node.notes:
            nodes_of_note.setdefault(note, []).append(node.name)
    for note, names in nodes_of_note.items():
        yield f"{counted(len(names), 'node', 'nodes')} ({some(names)}): {note}"
