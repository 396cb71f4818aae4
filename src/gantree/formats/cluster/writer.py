"""A `Cluster` to cluster.yaml: short, in the order of the reference, and read back as the same cluster.

Neighbours in the list of nodes that differ only in name become one entry, their names folded into hostlists; the
order of nodes is kept, for it is the order of domains. Machines equal to the catalogue's are only named. What was
written is read again before it is handed out, so a cluster that the format cannot hold (a node called "a b") is
refused, not damaged.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple
from itertools import groupby

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

from gantree.formats.cluster.form import CUT_BY, DEFAULT_ADDRESS, NOT_SHARED
from gantree.formats.cluster.machines import amount, key, machine_lines, word, yes_no
from gantree.formats.cluster.reader import read_cluster
from gantree.formats.cluster.rules import LAST_TIER
from gantree.model.cluster import (
    Allocation,
    Cluster,
    DataSet,
    DomainFacts,
    Link,
    NicFacts,
    Node,
    Torus,
)
from gantree.model.errors import BadFields, BadInput
from gantree.model.jobs import ISOLATIONS
from gantree.model.placements import SharePart
from gantree.text.hostlists import BadHostlist, count_nodes, expand
from gantree.topology.hardware.catalog import MACHINES


def write_cluster(cluster: Cluster) -> str:
    """Return the text of a cluster file that reads back as this cluster.

    Raises BadInput, with the fields at fault, where the format cannot hold the cluster.
    """
    lines = [
        f"name: {word(cluster.name)}",
        f"tiers: {_list(map(word, cluster.tiers))}",
        *_section("links", (_link(tier, link) for tier, link in cluster.links.items()), mark=""),
        *_machines(cluster),
        *_section("nodes", _nodes(cluster)),
        *_section("allocations", map(_allocation, cluster.allocations)),
        *_section("domains", map(_domain, cluster.domains)),
        *_section("nics", map(_nic, cluster.nics)),
        *_section("tori", map(_torus, cluster.tori)),
        *_section("data", _data(cluster.data)),
        *_section("spares", (f"{word(t)}: {n}" for t, n in cluster.spares.items()), mark=""),
    ]
    text = "\n".join(lines) + "\n"
    if _read_back(text, cluster.name) != cluster:
        raise BadInput(f"cluster {cluster.name}: cluster.yaml cannot hold it as it is")
    return text


def _read_back(text: str, name: str) -> Cluster:
    """Read what was written. Errors name fields only, because no user wrote its lines."""
    try:
        return read_cluster(text, name)
    except BadFields as error:
        parts = [
            f"cluster {name}: {problem.field} cannot be {problem.found} in a cluster file; allowed: {problem.allowed}"
            for problem in error.problems
        ]
        raise BadInput("\n".join(parts)) from None


def _section(name: str, entries: Iterable[str], mark: str = "- ") -> Iterator[str]:
    """Yield `name:` and its entries below; nothing for none."""
    for number, entry in enumerate(entries):
        if number == 0:
            yield f"{name}:"
        yield f"  {mark}{entry}"


def _map(fields: Mapping[str, str | None]) -> str:
    """Return a mapping in one line, without the fields that are None."""
    parts = (f"{name}: {value}" for name, value in fields.items() if value is not None)
    return f"{{{', '.join(parts)}}}"


def _list(items: Iterable[str]) -> str:
    return f"[{', '.join(items)}]"


def _pairs(pairs: Iterable[tuple[str, str]]) -> str | None:
    fields = {key(name): word(value) for name, value in pairs}
    return _map(fields) if fields else None


def _unless(value: float, default: float) -> str | None:
    return None if value == default else amount(value)


def _or_none(value: float | None) -> str | None:
    return None if value is None else amount(value)


def _link(tier: str, link: Link) -> str:
    fields = {
        "bandwidth_GBps": amount(link.bandwidth_GBps),
        "latency_us": amount(link.latency_us),
        "uplink_GBps": _or_none(link.uplink_GBps),
    }
    return f"{word(tier)}: {_map(fields)}"


def _machines(cluster: Cluster) -> list[str]:
    """Write the machines that the catalogue does not have, or that no node names."""
    named = {node.machine for node in cluster.nodes}
    lines: list[str] = []
    for name, machine in cluster.machines.items():
        if machine.name != name:
            raise BadInput(f"cluster {cluster.name}: machine {name} calls itself {machine.name}")
        if name not in named or machine != MACHINES.get(name):
            lines += machine_lines(machine)
    return ["machines:", *lines] if lines else []


# ----- nodes


def _nodes(cluster: Cluster) -> Iterator[str]:
    outer = cluster.tiers[:-1]
    for entry, nodes in groupby(cluster.nodes, lambda node: _entry(node, outer)):
        names = [word(text) for text in folded(node.name for node in nodes)]
        yield f"{{names: {names[0] if len(names) == 1 else _list(names)}, {entry}}}"


def _entry(node: Node, outer: tuple[str, ...]) -> str:
    """What of a node is written beside its name, in which {node} stands for the name."""
    if len(node.at) != len(outer):
        raise BadInput(f"node {node.name}: place {node.at} does not name {outer}")
    launch = [word(_nameless(part, node)) for part in node.launch]
    own_address = None if node.address == DEFAULT_ADDRESS else word(_nameless(node.address, node))
    fields = {
        "machine": word(node.machine),
        "at": _pairs(zip(outer, node.at, strict=True)),
        "labels": _pairs(node.labels),
        "launch": _list(launch) if launch else None,
        "address": own_address,
        "partitions": _pairs(node.partitions),
        "mig": _mig(node),
        "share": _share(node),
        "spot": None if node.spot is None else _map({"per_day": amount(node.spot)}),
    }
    return _map(fields)[1:-1]


def _nameless(text: str, node: Node) -> str:
    return text.replace(node.name, "{node}")


def _mig(node: Node) -> str | None:
    instances = [_instance(cut.gpu, *each) for cut in node.mig for each in cut.instances]
    fields = {
        "gpus": _list(str(cut.gpu) for cut in node.mig) if node.mig else None,
        "instances": _list(instances) if instances else None,
        "by": None if node.mig_by == CUT_BY[0] else word(node.mig_by),
    }
    return _map(fields) if any(fields.values()) else None


def _share(node: Node) -> str | None:
    if not node.shares and node.tenants is None and node.time_slice is None:
        return NOT_SHARED
    fields = {
        "modes": None if node.shares == ISOLATIONS else _list(map(word, node.shares)),
        "tenants": None if node.tenants is None else str(node.tenants),
        "time_slice": node.time_slice,
    }
    return _map(fields) if any(fields.values()) else None


def _instance(gpu: int, profile: str, start: int) -> str:
    return f"{{gpu: {gpu}, profile: {word(profile)}, start: {start}}}"


def folded(names: Iterable[str]) -> list[str]:
    """Return hostlists that stand for these names in this order: as few as neighbours allow.

    Names are folded where they differ only in numbers and these rise ("n1", "n2", "n4" -> "n[1-2,4]").
    """
    runs: list[list[str]] = []
    for name in names:
        if runs and _may_follow(runs[-1][-1], name):
            runs[-1].append(name)
        else:
            runs.append([name])
    return [text for run in runs for text in _fold(run)]


_NUMBER = re.compile(r"(\d+)", re.ASCII)


def _may_follow(before: str, name: str) -> bool:
    one, other = _NUMBER.split(before), _NUMBER.split(name)
    if one[::2] != other[::2]:
        return False
    return [int(number) for number in one[1::2]] < [int(number) for number in other[1::2]]


def _fold(run: list[str]) -> list[str]:
    """Fold a run of rising names; one whose folding would not be these names in this order, by halves."""
    if len(run) == 1:
        return run
    texts = _parts(str(NodeSet.fromlist(run, resolver=RESOLVER_NOGROUP)))
    if _stand_for(texts, run):
        return texts
    middle = len(run) // 2
    return [*_fold(run[:middle]), *_fold(run[middle:])]


def _parts(text: str) -> list[str]:
    """Split at the commas outside brackets."""
    return re.split(r",(?![^\[]*\])", text)


def _stand_for(texts: list[str], names: list[str]) -> bool:
    try:
        counts = [count_nodes(text) for text in texts]
    except BadHostlist:
        return False
    return sum(counts) == len(names) and [name for text in texts for name in expand(text)] == names


# ----- the other sections


def _allocation(allocation: Allocation) -> str:
    fields = {
        "job": word(allocation.job),
        "node": word(allocation.node),
        "gpus": _list(map(str, allocation.gpus)) if allocation.gpus else None,
        "cpus": _unless(allocation.cpus, 0),
        "memory_GiB": _unless(allocation.memory_GiB, 0),
        "nics": _unless(allocation.nics, 0),
        "mig": _list(_instance(*astuple(part)) for part in allocation.mig)
        if allocation.mig
        else None,
        "shares": _list(map(_held_share, allocation.shares)) if allocation.shares else None,
        "devices": _counts(allocation.devices),
    }
    return _map(fields)


def _held_share(share: SharePart) -> str:
    fields = {
        "gpu": str(share.gpu),
        "compute": amount(share.compute),
        "memory_GiB": amount(share.memory_GiB),
        "isolation": word(share.isolation),
        "alone": yes_no(True) if share.alone else None,
    }
    return _map(fields)


def _counts(counts: Iterable[tuple[str, int]]) -> str | None:
    fields = {key(name): str(count) for name, count in counts}
    return _map(fields) if fields else None


def _domain(domain: DomainFacts) -> str:
    fields = {
        "tier": word(domain.tier),
        "name": word(domain.name),
        "uplink_GBps": _or_none(domain.uplink_GBps),
        "health": _unless(domain.health, 1),
        "load": _unless(domain.load, 0),
    }
    return _map(fields)


def _nic(nic: NicFacts) -> str:
    fields = {
        "node": word(nic.node),
        "nic": word(nic.nic),
        "health": _unless(nic.health, 1),
        "load": _unless(nic.load, 0),
    }
    return _map(fields)


def _torus(torus: Torus) -> str:
    fields = {
        "name": word(torus.name),
        "dims": _list(map(str, torus.dims)),
        "host": None if set(torus.host) == {1} else _list(map(str, torus.host)),
        "nodes": _list(map(word, folded(torus.nodes))),
        "wrap": None if all(torus.wrap) else _list(map(yes_no, torus.wrap)),
        "slices": _list(_list(map(str, box)) for box in torus.slices) if torus.slices else None,
        "cube": _list(map(str, torus.cube)) if torus.cube else None,
    }
    return _map(fields)


def _data(data: Iterable[DataSet]) -> Iterator[str]:
    """Yield neighbours of the same name and tier as one entry."""
    for (name, tier), places in groupby(data, lambda each: (each.name, each.tier)):
        domains = [each.domain for each in places]
        texts = [word(text) for text in (folded(domains) if tier == LAST_TIER else domains)]
        at = texts[0] if len(texts) == 1 else _list(texts)
        yield _map({"name": word(name), "at": f"{{{word(tier)}: {at}}}"})
