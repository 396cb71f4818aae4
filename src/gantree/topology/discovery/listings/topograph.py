"""NVIDIA's topograph: its model files, and the JSON of its `graph` engine.

(Its `slurm` engines write Slurm's own files, its `k8s` engine node labels: `slurm_conf`, `slurm_yaml`, `kubernetes`.)

A model is YAML. Its form changed over the years; all of these are read, and may be mixed:

- `switches`: a mapping of names to `{switches, nodes, labels, annotations, metadata}`, or a list of
  `{name, switches, capacity_blocks, ...}`. A child that is not defined is an empty leaf.
- `blocks`: a list of `{switch, nodes, labels, annotations}`, where `switch` is the leaf of its nodes, if any.
- `capacity_blocks`: a list of `{name, type, nvlink, nodes}` or a mapping of names to `{nodes, attributes: {nvlink}}`.
- `nodes`: a mapping of names to `{capacity_block_id, attributes: {nvlink, gpus: [{model, memory_mib}]}}`.

Labels and annotations of switches hold for what is below, the nearer ones first. An accelerator domain is the
annotation `accelerator.topology.test/domain`, a label of one of topograph's families, or `nvlink`; an accelerator
sub-domain lies within it. Domains are put below the narrowest switches where each lies inside one, else beside them.
"""

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from gantree.model.errors import BadInput
from gantree.text.document import Table
from gantree.text.records import MAX_PROBLEMS, Record, Report, json_records, yaml_records
from gantree.text.words import counted, did_you_mean, shortened
from gantree.topology.discovery.fabrics import FabricReading, SeenNode, ragged
from gantree.topology.discovery.listings.divisions import (
    Layout,
    divided,
    lone_domains,
    names_within,
)
from gantree.topology.discovery.listings.label_keys import (
    ACCELERATOR_DOMAIN_KEYS,
    ACCELERATOR_SUB_DOMAIN_KEYS,
    accelerated_levels,
    labels_of,
)
from gantree.topology.discovery.listings.slurm_names import ALLOWED_NAMES, Names, is_name
from gantree.topology.discovery.listings.switch_tree import HINT_NAMES, TIERS, Switch, tree_of
from gantree.topology.discovery.machines.devices.nvidia_names import model_name
from gantree.topology.discovery.merging import some

NVLINK, NVLINK_SUB = "nvlink", "nvlink-sub"
_SECTIONS = ("switches", "blocks", "capacity_blocks", "nodes", "instances")
_MAX_GPUS = 1024
Words = Mapping[str, str]


@dataclass(slots=True)
class _Host:
    """What a model gives for a node, as it is gathered from its parts."""

    line: int | None
    kind: str = ""
    nvlink: str = ""
    labels: Words = field(default_factory=dict)
    annotations: Words = field(default_factory=dict)
    gpus: int | None = None
    gpu: str | None = None


@dataclass(frozen=True, slots=True)
class _Lists:
    """Readers of the lists of a model: of switches and blocks, and of nodes."""

    domains: Names
    nodes: Names
    report: Report


@dataclass(slots=True)
class _Branch:
    """A switch as it is gathered: what is below it, and what it states of all below it."""

    line: int | None
    children: tuple[str, ...] = ()
    blocks: tuple[str, ...] = ()
    nodes: list[str] = field(default_factory=list)
    words: tuple[Words, Words] = ({}, {})


def parse(text: str, source: str) -> FabricReading:
    """Read a model file, or what the graph engine wrote.

    BadInput where it is neither; BadFields, with lines, for what is wrong in it and for what contradicts itself.
    """
    report = Report(source)
    as_json = text.lstrip("\ufeff \t\r\n").startswith("{")
    records = list((json_records if as_json else yaml_records)(text, report))
    if len(records) != 1 or not any(section in records[0].table for section in _SECTIONS):
        raise BadInput(_what_instead(text, source))
    report.check()
    if records[0].has("instances"):
        return _of_instances(records[0], report)
    return _of_model(records[0], report)


def _what_instead(text: str, source: str) -> str:
    wanted = f"{source}: no topograph model (switches, blocks) and no graph of it (instances)"
    head = text[:100_000].lower()
    if "switchname=" in head or "blockname=" in head:
        return f"{wanted}; it looks like Slurm's topology.conf: import it as slurm"
    if "cluster_default" in head:
        return f"{wanted}; it looks like Slurm's topology.yaml: import it as slurm-yaml"
    return wanted


def _of_model(model: Record, report: Report) -> FabricReading:
    lists = _Lists(Names(report), Names(report), report)
    branches = _branches(model, lists)
    hosts: dict[str, _Host] = {}
    _add_blocks(model, lists, hosts, branches)
    _add_capacity_blocks(model, lists, hosts, branches)
    _add_nodes(model, lists, hosts)
    _check_switch_nodes(branches, hosts, report)
    report.check()
    if not hosts:
        raise BadInput(f"{report.source}: no block of the model has nodes")
    tree = tree_of(_switches(branches), hosts, report)
    _inherit(branches, hosts)
    layout = _with_accelerators(tree.layout, hosts, report)
    nodes = tuple(_seen(layout, name, hosts[name]) for name in layout.at)
    warnings = list(tree.warnings)
    if model.has("physical_layers"):
        warnings.append("physical_layers are passed over: they are no part of today's models")
    return FabricReading(layout.tiers, nodes, inferred=layout.inferred, warnings=tuple(warnings))


def _entries(model: Record, section: str, name_field: str = "name") -> Iterator[tuple[str, Record]]:
    """Yield the entries of a section with their names ("" where it is a list and they have none)."""
    value = model.table.get(section)
    if isinstance(value, Table):
        inner = model.record(section)
        assert inner is not None, "it is a mapping"
        for name in inner.table:
            if inner.table[name] is None:
                inner.problem(name, "nothing", "a mapping")
                continue
            entry = inner.record(name)
            if entry is not None:
                yield name, entry
        return
    for entry in model.records(section):
        yield entry.text(name_field, default=""), entry


def _branches(model: Record, lists: _Lists) -> dict[str, _Branch]:
    found: dict[str, _Branch] = {}
    for name, entry in _entries(model, "switches"):
        own = lists.domains.one(name, entry.line, entry.path)
        if own in found:
            entry.problem("name", f"`{own}` again", "each switch once")
        labels = _words(entry, "metadata") | _words(entry, "labels")
        found[own] = _Branch(
            entry.line,
            _listed(entry, "switches", lists.domains),
            _listed(entry, "capacity_blocks", lists.domains),
            list(_listed(entry, "nodes", lists.nodes)),
            (labels, _words(entry, "annotations")),
        )
    for branch in list(found.values()):
        for child in branch.children:
            found.setdefault(child, _Branch(branch.line))
    return found


def _words(entry: Record, field_name: str) -> dict[str, str]:
    return {key: value for key, value in labels_of(entry, field_name).items() if value}


def _listed(entry: Record, field_name: str, names: Names) -> tuple[str, ...]:
    path = entry.table.path_of(field_name)
    line = entry.line_of(field_name)
    return tuple(name for text in entry.texts(field_name) for name in names.read(text, line, path))


def _add_blocks(
    model: Record, lists: _Lists, hosts: dict[str, _Host], branches: dict[str, _Branch]
) -> None:
    for _, entry in _entries(model, "blocks"):
        nodes = _listed(entry, "nodes", lists.nodes)
        if not nodes:
            entry.problem("nodes", "none", "the nodes of the block")
        switch = entry.text("switch", default="")
        if switch and switch not in branches:
            hint = _likely(switch, branches, lists.report)
            entry.problem("switch", f"the unknown switch `{switch}`", "a switch of the model", hint)
        elif switch:
            branches[switch].nodes += nodes
        labels, annotations = _words(entry, "labels"), _words(entry, "annotations")
        for node in nodes:
            _add(hosts, node, _Host(entry.line, "", "", labels, annotations), entry)


def _likely(switch: str, known: Iterable[str], report: Report) -> str:
    """Return a hint while there is room for it in the report."""
    if len(report.problems) == MAX_PROBLEMS:
        return ""
    return did_you_mean(switch, islice(known, HINT_NAMES))


def _add(hosts: dict[str, _Host], node: str, host: _Host, entry: Record) -> None:
    first = hosts.setdefault(node, host)
    if first is not host:
        where = f" (line {first.line})" if first.line else ""
        entry.problem(
            "nodes", f"`{node}`, which another block has{where}", "each node in one block"
        )


def _add_capacity_blocks(
    model: Record, lists: _Lists, hosts: dict[str, _Host], branches: dict[str, _Branch]
) -> None:
    switches_of_block: dict[str, list[str]] = {}
    for switch, branch in branches.items():
        for block in branch.blocks:
            switches_of_block.setdefault(block, []).append(switch)
    known = set()
    for name, entry in _entries(model, "capacity_blocks"):
        known.add(name)
        inner = entry.record("attributes")
        nvlink = entry.text("nvlink", default=inner.text("nvlink", default="") if inner else "")
        nodes = _listed(entry, "nodes", lists.nodes)
        for node in nodes:
            _add(hosts, node, _Host(entry.line, entry.text("type", ""), nvlink), entry)
        for switch in switches_of_block.get(name, ()):
            branches[switch].nodes += nodes
    for block in [block for block in switches_of_block if block not in known][:10]:
        switch = switches_of_block[block][0]
        found = f"the undefined capacity block `{block}`"
        lists.report.add(branches[switch].line, f"switch {switch}", found, "blocks of the model")


def _add_nodes(model: Record, lists: _Lists, hosts: dict[str, _Host]) -> None:
    for name, entry in _entries(model, "nodes"):
        node = lists.nodes.one(name, entry.line, entry.path)
        host = hosts.setdefault(node, _Host(entry.line))
        inner = entry.record("attributes")
        host.labels = {**host.labels, **_words(entry, "labels")}
        if inner is None:
            continue
        host.nvlink = host.nvlink or inner.text("nvlink", default="")
        gpus = inner.records("gpus")
        if gpus:
            host.gpus, host.gpu = _hardware(gpus)


def _hardware(gpus: Sequence[Record]) -> tuple[int | None, str | None]:
    """Return how many GPUs are listed, and their model if it is one and its memory is given."""
    given = {(gpu.text("model", default=""), gpu.integer("memory_mib", default=0)) for gpu in gpus}
    model, memory_MiB = sorted(given)[0]
    one = len(given) == 1 and model and 0 < memory_MiB < 1 << 30
    count = len(gpus) if len(gpus) <= _MAX_GPUS else None
    return count, model_name(model, memory_MiB) if one else None


def _check_switch_nodes(
    branches: Mapping[str, _Branch], hosts: Mapping[str, _Host], report: Report
) -> None:
    """Note nodes that only a switch names: a model defines its nodes in blocks or in `nodes`."""
    for switch, branch in branches.items():
        strangers = [node for node in branch.nodes if node not in hosts]
        if strangers:
            allowed = "nodes of a block"
            report.add(
                branch.line, f"switch {switch}", f"undefined nodes {some(strangers)}", allowed
            )


def _switches(branches: Mapping[str, _Branch]) -> list[Switch]:
    return [
        Switch(name, branch.line, branch.children, tuple(branch.nodes))
        for name, branch in branches.items()
    ]


def _inherit(branches: Mapping[str, _Branch], hosts: Mapping[str, _Host]) -> None:
    """Put the words of switches into the nodes below them; nearer ones win. The switches are known to be a tree."""
    above = {child: name for name, branch in branches.items() for child in branch.children}
    for name, branch in branches.items():
        chain = []
        switch: str | None = name if branch.nodes else None
        while switch is not None:
            chain.append(branches[switch].words)
            switch = above.get(switch)
        labels = dict(ChainMap(*(dict(words[0]) for words in chain)))
        annotations = dict(ChainMap(*(dict(words[1]) for words in chain)))
        for node in branch.nodes:
            hosts[node].labels = {**labels, **hosts[node].labels}
            hosts[node].annotations = {**annotations, **hosts[node].annotations}


def _with_accelerators(layout: Layout, hosts: Mapping[str, _Host], report: Report) -> Layout:
    pairs = {node: _accelerators(hosts[node]) for node in layout.at}
    for node, words in pairs.items():
        bad = [word for word in words if word and not is_name(word)]
        if bad:
            found = f"`{shortened(bad[0])}`"
            report.add(hosts[node].line, f"accelerator domain of {node}", found, ALLOWED_NAMES)
    report.check()
    domains = {node: domain for node, (domain, _) in pairs.items() if domain}
    subs = {node: pair for node, pair in pairs.items() if pair[1]}
    layout = divided(layout, NVLINK, domains, "accelerator domains")
    return divided(layout, NVLINK_SUB, names_within(subs), "accelerator sub-domains")


def _accelerators(host: _Host) -> tuple[str, str]:
    """Return the accelerator domain of a node and its sub-domain, "" where there is none."""
    words = {**host.labels, **host.annotations}
    levels = accelerated_levels(words)
    domain = _first(words, ACCELERATOR_DOMAIN_KEYS) or (levels[-1] if levels else host.nvlink)
    sub = _first(words, ACCELERATOR_SUB_DOMAIN_KEYS) or (levels[0] if len(levels) > 1 else "")
    return domain, sub


def _first(words: Words, keys: Iterable[str]) -> str:
    return next((words[key] for key in keys if words.get(key)), "")


def _seen(layout: Layout, name: str, host: _Host) -> SeenNode:
    labels = dict(host.labels)
    if host.kind:
        labels.setdefault("type", host.kind)
    return replace(
        layout.seen(name), labels=tuple(sorted(labels.items())), gpus=host.gpus, gpu=host.gpu
    )


def _of_instances(document: Record, report: Report) -> FabricReading:
    names = Names(report)
    hosts: dict[str, _Host] = {}
    paths: dict[str, tuple[str, ...]] = {}
    for entry in document.records("instances"):
        node = names.one(entry.text("id"), entry.line, entry.table.path_of("id"))
        host = _instance(entry)
        if node in hosts:
            entry.problem("id", f"`{node}` again", "each instance once")
        hosts[node] = host
        layers = entry.texts("network_layers")
        if not all(is_name(layer) for layer in layers) or len(layers) > 30:
            entry.problem("network_layers", "a layer that is no name", "names of at most 30 layers")
        paths[node] = tuple(reversed(layers))
    report.check()
    if not hosts:
        raise BadInput(f"{report.source}: it lists no instances")
    stray = [node for node, path in paths.items() if not path]
    layers_told = {layer for path in paths.values() for layer in path}
    if layers_told:
        lone = lone_domains(stray, layers_told)
        paths |= {node: (own,) for node, own in lone.items()}
    tiers, at = ragged(paths, TIERS)
    layout = _with_accelerators(Layout(tiers, at), hosts, report)
    nodes = tuple(_seen(layout, name, hosts[name]) for name in layout.at)
    lost = counted(
        len(stray),
        "instance has no network layers and is joined to none",
        "instances have no network layers and are joined to none",
    )
    warnings = (f"{lost}: {some(stray)}",) if stray and tiers else ()
    return FabricReading(layout.tiers, nodes, inferred=layout.inferred, warnings=warnings)


def _instance(entry: Record) -> _Host:
    """Return what the graph engine gives for an instance, by the names that its versions give."""
    inner = entry.record("attributes")
    nvlink = entry.text("nvlink_domain", default=inner.text("nvlink", default="") if inner else "")
    host = _Host(
        entry.line,
        kind=entry.text("type", default=entry.text("instance_type", default="")),
        nvlink=nvlink,
        labels=_words(entry, "labels"),
    )
    gpu = inner.record("gpu") if inner and isinstance(inner.table.get("gpu"), Table) else None
    holder = gpu or inner
    gpus = holder.records("gpus") if holder and "gpus" in holder.table else []
    if gpus:
        host.gpus, host.gpu = _hardware(gpus)
    return host
