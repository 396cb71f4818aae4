"""NVIDIA NetQ: an Ethernet fabric, and NVLink domains.

Two answers are read, each in a file of its own, in any order:
- POST telemetry/v1/object/topologygraph/fetch-topology: [{"nodes": [...], "links": [...]}]. Nodes are groups by tier
  ("compounded_nodes") of devices, each with an id, a name, a tier (1 is the one next to hosts, 2 above it; -1 is not
  classified) and a device type. A link joins two devices by id ("interfaces", or its own id "a-*-b") and holds one
  "compounded_links" entry for each cable, with the interface at either end. It gives no rates.
- GET nmx/v1/compute-nodes: [{"Name", "DomainUUID", "LocationInfo", "GpuIDList", "Health"}]. Nodes of one DomainUUID
  share an NVLink domain.

NetQ runs on switches and knows hosts from LLDP, so a device that is no switch and has no tier is a host. NVLink domains
are the tier `nvlink`, inside the narrowest tier of switches, where each lies in one domain of that; else they cross
it and become the partition `nvlink`, for a tree cannot hold both.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from gantree.model.cluster import DomainFacts
from gantree.model.errors import BadInput
from gantree.text.document import Rows, written
from gantree.text.records import Record, Report, json_records
from gantree.text.words import shortened
from gantree.topology.discovery.fabrics import FabricReading, SeenNode
from gantree.topology.discovery.networks.infiniband import name_word
from gantree.topology.discovery.networks.switch_graph import (
    Cable,
    GraphNic,
    GraphSwitch,
    SwitchGraph,
    examples,
    read_graph,
)

NVLINK = "nvlink"
JOINT = "-*-"
"""What is between the ids of two devices in the id of a link."""

_SWITCH_TYPES = frozenset({"switch"})
_HOST_TYPES = frozenset({"host", "server"})
_NO_DOMAIN = frozenset("0-")
_BROKEN = frozenset({"UNHEALTHY"})
_WHOLE = frozenset({"HEALTHY", ""})
_LABELS = (("ChassisSerialNumber", "chassis"), ("TrayIndex", "tray"), ("SlotID", "slot"))
"""Fields of LocationInfo that become labels of the node."""

_End = tuple[str, str]
"""A device, by its id, and its interface, "" where not given."""


@dataclass(frozen=True, slots=True)
class _Device:
    """A switch or a host. level is None for hosts, and for switches that NetQ did not classify."""

    id: str
    name: str
    is_switch: bool
    level: int | None = None


@dataclass(frozen=True, slots=True)
class _Tray:
    """A node as the NVLink manager knows it; domain is "" where it is in none."""

    name: str
    domain: str
    gpus: int | None
    labels: tuple[tuple[str, str], ...]
    health: str


@dataclass(slots=True)
class _Answers:
    """The contents of all files. links are the ends (device id, interface) of each cable, and where they are."""

    devices: dict[str, _Device] = field(default_factory=dict)
    links: list[tuple[str, tuple[_End, ...]]] = field(default_factory=list)
    trays: dict[str, _Tray] = field(default_factory=dict)
    strange: int = 0


def parse(texts: Sequence[tuple[str, str]]) -> FabricReading:
    """Read answers, each a pair (text, source).

    BadInput: none of them holds a device or a compute node. BadFields, with paths: what is no JSON, lacks an id
    or a name, or names a device or a node twice with something else.
    """
    answers = _Answers()
    for text, source in texts:
        report = Report(source)
        for record in json_records(text, report):
            _add(answers, record)
        report.check()
    if not answers.devices and not answers.trays:
        sources = examples(source for _, source in texts)
        raise BadInput(
            f"{sources or 'no file'}: no device of a NetQ topology graph and no NVLink compute node; "
            f"give the answer of fetch-topology, of nmx/v1/compute-nodes, or both"
        )
    strange = f"{answers.strange} records are none of NetQ's known answers"
    reading = _fabric(answers) if answers.devices else FabricReading((), ())
    reading = _with_nvlink(reading, answers) if answers.trays else reading
    return replace(reading, warnings=(*reading.warnings, strange)) if answers.strange else reading


def _add(answers: _Answers, record: Record) -> None:
    if record.has("DomainUUID") or record.has("LocationInfo"):
        _add_tray(answers, record)
    elif record.has("nodes") or record.has("links"):
        for device in _devices(record.records("nodes")):
            _add_device(answers, device)
        for link in record.records("links"):
            _add_link(answers, link)
    else:
        answers.strange += 1


def _devices(records: Sequence[Record]) -> Iterator[Record]:
    """Yield the devices in groups of groups, in order."""
    stack = list(reversed(records))
    while stack:
        record = stack.pop()
        inner = record.records("compounded_nodes")
        if inner or _word(record, "node_type") not in {"", "device"}:
            stack += reversed(inner)
        else:
            yield record


def _word(record: Record, key: str) -> str:
    """Return a scalar as it was written, "" where there is none."""
    return written(record.table.get(key)) or ""


def _add_device(answers: _Answers, record: Record) -> None:
    kind = _word(record, "device_type").lower()
    tier = record.integer("tier", default=-1, least=-1)
    is_switch = kind in _SWITCH_TYPES or (tier > 0 and kind not in _HOST_TYPES)
    level = tier if is_switch and tier > 0 else None
    device = _Device(record.text("id"), name_word(record.text("name")), is_switch, level)
    known = answers.devices.setdefault(device.id, device)
    if known != device:
        allowed = f"one device with this id; {shortened(known.name)!r} has it"
        record.problem("id", repr(shortened(device.id)), allowed)


def _add_link(answers: _Answers, record: Record) -> None:
    """Note the cables of a link: those that it is made of, or itself."""
    for cable in record.records("compounded_links") or [record]:
        answers.links.append((cable.path, _ends(cable)))


def _ends(link: Record) -> tuple[_End, ...]:
    """Return (device id, interface) of the ends of a link, as its interfaces give, or else its id."""
    ends = tuple((end.text("node"), _word(end, "interface")) for end in link.records("interfaces"))
    if ends:
        return ends
    halves = (half.partition(":") for half in _word(link, "id").split(JOINT))
    return tuple((device, port) for device, _, port in halves)


def _add_tray(answers: _Answers, record: Record) -> None:
    domain = _word(record, "DomainUUID")
    gpus = record.table.get("GpuIDList")
    place = record.record("LocationInfo")
    tray = _Tray(
        name_word(record.text("Name")),
        "" if set(domain) <= _NO_DOMAIN else name_word(domain),
        len(gpus) if isinstance(gpus, Rows) and gpus else None,
        tuple(
            (label, word)
            for key, label in _LABELS
            if place and (word := name_word(_word(place, key)))
        ),
        _word(record, "Health").upper(),
    )
    known = answers.trays.setdefault(tray.name, tray)
    if known != tray:
        allowed = "each node once; it is there already with something else"
        record.problem("Name", repr(shortened(tray.name)), allowed)


def _fabric(answers: _Answers) -> FabricReading:
    """Read the graph of switches and hosts."""
    hosts = [device.name for device in answers.devices.values() if not device.is_switch]
    shared = [name for name, times in Counter(hosts).items() if times > 1]
    nics, cables, lost = _cables(answers, frozenset(shared))
    switches = tuple(
        GraphSwitch(device.id, device.name, device.level)
        for device in answers.devices.values()
        if device.is_switch
    )
    warnings = [f"{lost} cables join no two known devices and were passed over"] if lost else []
    if shared:
        warnings.append(
            f"{len(shared)} names are each that of several hosts, which are left out: {examples(shared)}"
        )
    inferred = ["devices that are no switches are hosts"]
    if switches and all(switch.level for switch in switches):
        inferred.append("levels of switches are the tiers that NetQ gives them")
    alone = tuple(name for name in hosts if name not in shared)
    return read_graph(SwitchGraph(switches, nics, cables, alone), inferred, warnings)


def _cables(
    answers: _Answers, shared: frozenset[str]
) -> tuple[tuple[GraphNic, ...], tuple[Cable, ...], int]:
    """Return the interfaces of hosts, the cables, and how many of these join nothing that is known."""
    nics: dict[str, GraphNic] = {}
    cables: dict[tuple[_End, ...], Cable] = {}
    lost = 0
    for number, (_, ends) in enumerate(answers.links):
        if len(ends) != 2 or any(device not in answers.devices for device, _ in ends):
            lost += 1
            continue
        ids = [_end_id(answers, end, number, nics, shared) for end in ends]
        given = all(port for _, port in ends)
        key = tuple(sorted(ends)) if given else (*ends, ("", str(number)))
        cables.setdefault(key, Cable((ids[0], ids[1]), ports=(ends[0][1], ends[1][1])))
    return tuple(nics.values()), tuple(cables.values()), lost


def _end_id(
    answers: _Answers, end: _End, number: int, nics: dict[str, GraphNic], shared: frozenset[str]
) -> str:
    """Return what the graph knows an end of cable `number` by; note the interface if it is a host's."""
    device, port = answers.devices[end[0]], end[1]
    if device.is_switch:
        return device.id
    interface = f"{device.id}:{port or number}"
    nics.setdefault(
        interface, GraphNic(interface, None if device.name in shared else device.name, port)
    )
    return interface


def _with_nvlink(reading: FabricReading, answers: _Answers) -> FabricReading:
    """Add NVLink domains to nodes, and nodes that only the NVLink manager knows."""
    nodes = [_with_tray(node, answers.trays.get(node.name)) for node in reading.nodes]
    known = {node.name for node in nodes}
    only_here = [tray for tray in answers.trays.values() if tray.name not in known]
    place_of_domain = _places(nodes, answers)
    for tray in only_here:
        alone = (tray.domain or tray.name,) * len(reading.tiers)
        nodes.append(_with_tray(SeenNode(tray.name, place_of_domain.get(tray.domain, alone)), tray))
    warnings = list(reading.warnings)
    if reading.tiers and only_here:
        warnings.append(
            f"{len(only_here)} of {len(answers.trays)} NVLink compute nodes are not in the topology graph, and are "
            f"taken to be where their NVLink domain is: {examples(tray.name for tray in only_here)}"
        )
    domains, odd = _health(answers)
    tiers, placed, given = _nvlink_tier(reading.tiers, nodes, answers)
    return replace(
        reading,
        tiers=tiers,
        nodes=tuple(placed),
        domains=(*reading.domains, *domains),
        warnings=(*warnings, *odd, *given),
    )


def _places(nodes: Sequence[SeenNode], answers: _Answers) -> dict[str, tuple[str, ...]]:
    """Return NVLink domain -> the place that its nodes share, where they do."""
    places: dict[str, dict[tuple[str, ...], None]] = defaultdict(dict)
    for node in nodes:
        tray = answers.trays.get(node.name)
        if tray is not None and tray.domain:
            places[tray.domain][node.at] = None
    return {domain: next(iter(seen)) for domain, seen in places.items() if len(seen) == 1}


def _with_tray(node: SeenNode, tray: _Tray | None) -> SeenNode:
    return node if tray is None else replace(node, labels=tray.labels, gpus=tray.gpus)


def _nvlink_tier(
    tiers: tuple[str, ...], nodes: Sequence[SeenNode], answers: _Answers
) -> tuple[tuple[str, ...], list[SeenNode], list[str]]:
    """Put NVLink domains into the tree as its narrowest tier, or beside it where they cross the one above."""
    domain_of = {name: tray.domain for name, tray in answers.trays.items() if tray.domain}
    whole = _places(nodes, answers)
    torn = [domain for domain in dict.fromkeys(domain_of.values()) if domain not in whole]
    if not torn:
        placed = [replace(n, at=(*n.at, domain_of.get(n.name, n.name))) for n in nodes]
        return (*tiers, NVLINK), placed, []
    placed = [
        replace(n, partitions=((NVLINK, domain_of[n.name]),)) if n.name in domain_of else n
        for n in nodes
    ]
    given = (
        f"{len(torn)} NVLink domains cross domains of tier {tiers[-1]} ({examples(torn)}), and are a partition "
        f"beside the tree"
    )
    return tiers, placed, [given]


def _health(answers: _Answers) -> tuple[list[DomainFacts], list[str]]:
    """Nodes that the NVLink manager calls unhealthy take no work; other defects are noted."""
    trays = tuple(answers.trays.values())
    broken = [
        DomainFacts("node", tray.name, health=0.0) for tray in trays if tray.health in _BROKEN
    ]
    odd: dict[str, list[str]] = defaultdict(list)
    for tray in trays:
        if tray.health not in _WHOLE:
            odd[tray.health].append(tray.name)
    given = [
        f"{len(nodes)} compute nodes are {shortened(health)} in NVLink: {examples(nodes)}"
        for health, nodes in odd.items()
    ]
    return broken, given
