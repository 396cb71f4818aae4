"""NVIDIA UFM Enterprise over REST: systems, ports and links of a fabric.

Read are the answers of GET /ufmRest/resources/{systems, ports, links} as its REST API Guide documents them (6.11 to
6.23), each in a file of its own, or together as {"systems": [...], "ports": [...], "links": [...]}, whole or in pages
({"data": [...], "filtered_resources": N}). Ports alone give all; links add cables whose ports are not there, and
systems the types of their ends. A port is known by its name, "<GUID>_<number>", which links and peers use too.

UFM knows a host by what it calls a system, and an adapter of it by its node description ("n01 mlx5_0"). "N/A" and
null both mean that it does not know. Severities become warnings: UFM means by them that a counter passed a
threshold, not that something is broken. A port that is not active holds no cable.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gantree.model.errors import BadFields, BadInput, Problem
from gantree.text.document import Rows, Table, written
from gantree.text.records import Record, Report, json_records
from gantree.text.words import shortened
from gantree.topology.discovery.fabrics import FabricReading
from gantree.topology.discovery.networks.infiniband import (
    HOST,
    SHARP,
    UNNAMED,
    Adapter,
    cable_GBps,
    guid_text,
    host_and_device,
    name_word,
    named_nics,
    switch_name,
)
from gantree.topology.discovery.networks.switch_graph import (
    Cable,
    GraphSwitch,
    SwitchGraph,
    examples,
    read_graph,
)

SWITCH = "switch"
OTHER = "other"
"""Gateways and routers: what is behind them is not this fabric."""
RESOURCES = ("systems", "ports", "links")
NOT_GIVEN = "on pages that were not given"
"""In the warning of an answer that is a page of several."""
MAX_PROBLEMS = 20

_PORT_NAME = re.compile(r"(?:0x)?([0-9A-Fa-f]{1,16})_(\d{1,5})")
_KIND_OF_TYPE = {"switch": SWITCH, "host": HOST, "gateway": OTHER, "router": OTHER}
_KIND_OF_PORT = {"switch": SWITCH, "computer": HOST, "gateway": OTHER, "router": OTHER}
_DEVICE_LABELS = ("HCA-", "mlx")
_NOT_TOLD = frozenset({"", "N/A", "n/a", "NA", "None", "Unknown"})
_CALM = frozenset({"", "info", "normal", "cleared"})


@dataclass(slots=True)
class _Port:
    """An end of a cable, as far as given: kind is that of its system ("" if not given), up None if not given."""

    system: str
    name: str = ""
    description: str = ""
    label: str = ""
    kind: str = ""
    up: bool | None = None
    width: str = ""
    speed: str = ""


@dataclass(slots=True)
class _Answers:
    """The contents of all files. peers[end] is the far end and where that is."""

    kind_of_system: dict[str, str] = field(default_factory=dict)
    name_of_system: dict[str, str] = field(default_factory=dict)
    ports: dict[str, _Port] = field(default_factory=dict)
    peers: dict[str, tuple[str, str]] = field(default_factory=dict)
    by_label: dict[tuple[str, str], str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    severe: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    counts: Counter[str] = field(default_factory=Counter)
    strange: int = 0
    missing: int = 0

    def refuse(self, record: Record, key: str, found: str, allowed: str) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            where = record.table.path_of(key)
            self.problems.append(Problem(record.report.source, None, where, found, allowed))


def parse(
    texts: Sequence[tuple[str, str]], host_of_guid: Mapping[str, str] | None = None
) -> FabricReading:
    """Read answers, each a pair (text, source); host_of_guid names the hosts of NICs by their port GUIDs.

    BadInput: none of them holds a port or a link. BadFields, with paths: what is no JSON, a port without a name,
    and ends of cables that contradict each other.
    """
    answers = _Answers()
    records = {kind: list[Record]() for kind in RESOURCES}
    for text, source in texts:
        _sort(text, source, answers, records)
    for record in records["systems"]:
        _add_system(answers, record)
    for record in records["ports"]:
        _add_port(answers, record)
    for record in records["ports"]:
        _add_peer(answers, record)
    for record in records["links"]:
        _add_link(answers, record)
    if answers.problems:
        raise BadFields(answers.problems)
    if not answers.ports:
        raise BadInput(_nothing(texts, answers))
    return _reading(answers, host_of_guid or {})


def _nothing(texts: Sequence[tuple[str, str]], answers: _Answers) -> str:
    sources = examples(source for _, source in texts)
    found = (
        "systems, which tell no cables" if answers.name_of_system else "no UFM system, port or link"
    )
    return f"{sources or 'no file'}: {found}; give the answers of GET /ufmRest/resources/ports, or of .../links"


def _sort(text: str, source: str, answers: _Answers, records: Mapping[str, list[Record]]) -> None:
    """Put the records of a text where they belong, those inside of systems too."""
    report = Report(source)
    for record in json_records(text, report):
        for inner in _unpacked(record, answers):
            kind = _resource(inner)
            if kind is None:
                answers.strange += 1
                continue
            records[kind].append(inner)
            if kind == "systems":
                records["ports"] += _mappings(inner, "ports")
    report.check()


def _unpacked(record: Record, answers: _Answers) -> Iterator[Record]:
    """Yield the records in a merged object or a page; a record that is neither as it is."""
    if _resource(record) is not None:
        yield record
        return
    lists = [key for key in (*RESOURCES, "data") if isinstance(record.table.get(key), Rows)]
    for key in lists:
        inner = _mappings(record, key)
        if key == "data":
            total = _word(record, "filtered_resources") or _word(record, "total_resources")
            answers.missing += (
                max(0, int(total) - len(inner)) if re.fullmatch(r"[0-9]{1,9}", total) else 0
            )
        yield from inner
    if not lists:
        yield record


def _mappings(record: Record, key: str) -> list[Record]:
    """The mappings in a list; names (UFM's brief form) are passed over."""
    rows = record.table.get(key)
    items = rows if isinstance(rows, Rows) else ()
    return [Record(item, record.report) for item in items if isinstance(item, Table)]


def _resource(record: Record) -> str | None:
    if any(record.has(key) for key in ("source_guid", "source_port_name")):
        return "links"
    if any(record.has(key) for key in ("logical_state", "physical_state", "peer")):
        return "ports"
    return "systems" if record.has("system_name") and not record.has("dname") else None


def _word(record: Record, key: str) -> str:
    """Return a scalar as it was written, "" for what UFM does not know."""
    word = (written(record.table.get(key)) or "").strip()
    return "" if word in _NOT_TOLD else word


def _guid(record: Record, *keys: str) -> str:
    """Return the first of some fields that holds a GUID."""
    words = (_word(record, key) for key in keys)
    return next((guid_text(w) for w in words if re.fullmatch(r"(?:0x)?[0-9A-Fa-f]{1,16}", w)), "")


def _add_system(answers: _Answers, record: Record) -> None:
    name = _word(record, "system_name")
    for guid in (_guid(record, "guid"), _guid(record, "system_guid")):
        if not guid:
            continue
        _name_system(answers, record, guid, name)
        kind = _KIND_OF_TYPE.get(_word(record, "type").lower(), "")
        answers.kind_of_system.setdefault(guid, kind)
    _note_severity(answers, record, "systems", name)


def _name_system(answers: _Answers, record: Record, guid: str, name: str) -> None:
    """Note what a system is called, and refuse it where it is called something else elsewhere."""
    known = answers.name_of_system.setdefault(guid, name) if name else name
    if known != name:
        allowed = f"{shortened(known)!r}, as the system with GUID {guid} is called elsewhere"
        answers.refuse(record, "system_name", repr(shortened(name)), allowed)


def _note_severity(answers: _Answers, record: Record, what: str, name: str) -> None:
    severity = _word(record, "severity")
    if severity.lower() not in _CALM:
        answers.severe[f"{what} of severity {shortened(severity)}"].append(name)


def _add_port(answers: _Answers, record: Record) -> None:
    """Note a port; its name must be there."""
    end = _port_name(record, "name") or _joined(record, ("guid",), ("number", "external_number"))
    if not end:
        found = repr(shortened(_word(record, "name")))
        answers.refuse(record, "name", found, "a port's name, such as 248a070300f88fe0_20")
        return
    guid = end.partition("_")[0]
    kind = _KIND_OF_PORT.get(_word(record, "description").partition(" ")[0].lower(), "")
    system = _guid(record, "systemID", "system_guid") or guid
    _name_system(answers, record, system, _word(record, "system_name"))
    state = _word(record, "logical_state")
    port = _Port(
        system,
        _word(record, "system_name"),
        _word(record, "node_description"),
        _word(record, "dname"),
        kind or answers.kind_of_system.get(system, ""),
        state.lower() == "active" if state else None,
        _word(record, "active_width"),
        _word(record, "active_speed"),
    )
    answers.ports[end] = port
    answers.by_label[guid, port.label] = end
    _note_severity(answers, record, "ports", end)


def _port_name(record: Record, key: str) -> str:
    match = _PORT_NAME.fullmatch(_word(record, key))
    return f"{guid_text(match[1])}_{int(match[2])}" if match else ""


def _joined(record: Record, guids: tuple[str, ...], numbers: tuple[str, ...]) -> str:
    """Make a port's name of its GUID and its number."""
    guid = _guid(record, *guids)
    number = next((w for key in numbers if re.fullmatch(r"\d{1,5}", w := _word(record, key))), "")
    return f"{guid}_{int(number)}" if guid and number else ""


def _add_peer(answers: _Answers, record: Record) -> None:
    """Note what hangs on a port, and what the port gives for it."""
    end = _port_name(record, "name") or _joined(record, ("guid",), ("number", "external_number"))
    guid, label = _guid(record, "peer_guid", "peer_node_guid"), _word(record, "peer_port_dname")
    peer = _port_name(record, "peer") or answers.by_label.get((guid, label), "")
    peer = peer or _joined(record, ("peer_guid", "peer_node_guid"), ("peer_port_dname",))
    if not end or not peer:
        answers.counts["ports without a peer"] += bool(end) and answers.ports[end].up is True
        return
    system = _guid(record, "peer_node_guid") or peer.partition("_")[0]
    if peer not in answers.ports:
        answers.ports[peer] = _Port(
            system,
            _word(record, "peer_node_name"),
            _word(record, "peer_node_description"),
            label,
            answers.kind_of_system.get(system, ""),
        )
    _join(answers, record, "peer", end, peer)


def _add_link(answers: _Answers, record: Record) -> None:
    ends = [
        _link_end(answers, record, side, number)
        for number, side in enumerate(("source", "destination"))
    ]
    if not all(ends):
        answers.refuse(
            record,
            "source_port_name",
            "a link whose ends are not told",
            "two ports by name, or by GUID and number",
        )
        return
    _note_severity(answers, record, "links", ":".join(ends))
    _join(answers, record, "source_port_name", ends[0], ends[1])
    _join(answers, record, "destination_port_name", ends[1], ends[0])


def _link_end(answers: _Answers, record: Record, side: str, number: int) -> str:
    """Return the name of a link's end; note the port if no answer of ports has it."""
    halves = _word(record, "name").split(":")
    match = _PORT_NAME.fullmatch(halves[number]) if len(halves) == 2 else None
    end = _port_name(record, f"{side}_port_name") or (
        f"{guid_text(match[1])}_{int(match[2])}" if match else ""
    )
    end = end or _joined(record, (f"{side}_guid",), (f"{side}_port",))
    if end and end not in answers.ports:
        system = _guid(record, f"{side}_guid") or end.partition("_")[0]
        answers.ports[end] = _Port(
            system,
            answers.name_of_system.get(system, ""),
            _word(record, f"{side}_port_node_description"),
            _word(record, f"{side}_port_dname"),
            answers.kind_of_system.get(system, ""),
            width=_word(record, "width"),
        )
    return end


def _join(answers: _Answers, record: Record, key: str, end: str, far: str) -> None:
    """Note a cable from one end and refuse it where another one is in that port, or in the far one."""
    where = f"{record.report.source} {record.table.path_of(key)}"
    known, stands = answers.peers.setdefault(end, (far, where))
    if known != far:
        answers.refuse(
            record,
            key,
            f"port {end} joined to {far}",
            f"{known}, as {stands} says: a port holds one cable",
        )
    back = answers.peers.get(far)
    if back is not None and back[0] != end:
        answers.refuse(
            record,
            key,
            f"port {end} joined to {far}",
            f"one that is free; {back[1]} joins it to {back[0]}",
        )


def _reading(answers: _Answers, host_of_guid: Mapping[str, str]) -> FabricReading:
    kinds, guessed = _kinds(answers)
    nics, inferred, odd = named_nics(_adapters(answers, kinds), host_of_guid)
    id_of_end = {
        end: _switch_id(answers, end) if kind == SWITCH else end
        for end, kind in kinds.items()
        if kind in {SWITCH, HOST, UNNAMED}
    }
    switches = {
        id_of_end[end]: GraphSwitch(id_of_end[end], _switch_name(answers, end))
        for end, kind in reversed(kinds.items())
        if kind == SWITCH
    }
    graph = SwitchGraph(tuple(switches.values()), nics, _cables(answers, id_of_end))
    if guessed:
        inferred.append(
            f"whether {guessed} ends of cables are switches is concluded from their descriptions; the answer of "
            f"GET /ufmRest/resources/systems would tell"
        )
    return read_graph(graph, inferred, [*_warnings(answers), *odd])


def _switch_id(answers: _Answers, end: str) -> str:
    return answers.ports[end].system


def _switch_name(answers: _Answers, end: str) -> str:
    port = answers.ports[end]
    given = port.name or answers.name_of_system.get(port.system, "")
    return name_word(given) or switch_name(port.description.removesuffix(f":{port.label}"))


def _kinds(answers: _Answers) -> tuple[dict[str, str], int]:
    """Return what each end is, and the number of ends that only their descriptions identify."""
    kinds = {}
    guessed = 0
    for end, port in answers.ports.items():
        described, _, device = host_and_device(port.description)
        if described == SHARP:
            kinds[end] = SHARP
        elif port.kind:
            kinds[end] = port.kind
        else:
            guessed += 1
            is_adapter = (
                device or port.label.startswith(_DEVICE_LABELS) or "ConnectX" in port.description
            )
            kinds[end] = HOST if is_adapter else SWITCH
    return kinds, guessed


def _adapters(answers: _Answers, kinds: Mapping[str, str]) -> list[Adapter]:
    """The ports of hosts; where a host has two of one device, they are distinguished by their numbers."""
    described = {end: _host_and_device(answers, end) for end, kind in kinds.items() if kind == HOST}
    times = Counter((answers.ports[end].system, names) for end, names in described.items())
    adapters = []
    for end, (host, device) in described.items():
        guid, _, number = end.partition("_")
        system = answers.ports[end].system
        several = times[system, (host, device)] > 1
        adapters.append(
            Adapter(
                end,
                system,
                HOST if host else UNNAMED,
                host,
                device,
                number if several else "",
                (guid,),
            )
        )
    return adapters


def _host_and_device(answers: _Answers, end: str) -> tuple[str, str]:
    """Return the host of a port, as UFM calls its system, and its device."""
    port = answers.ports[end]
    _, host, device = host_and_device(port.description)
    given = port.name or answers.name_of_system.get(port.system, "")
    kind, named, _ = host_and_device(given)
    return (named if kind == HOST else host), device or _device_of_label(port.label)


def _device_of_label(label: str) -> str:
    """Return the device in a label such as "HCA-1/2"; labels of ports only ("1", "1/3/1") name none."""
    device = label.partition("/")[0]
    return device if device.startswith(_DEVICE_LABELS) else ""


def _cables(answers: _Answers, id_of_end: Mapping[str, str]) -> tuple[Cable, ...]:
    """Each cable once, up unless one of its ends states that it is not active."""
    cables = []
    done: set[str] = set()
    for end, (far, _) in answers.peers.items():
        if end in done or far in done or end not in id_of_end or far not in id_of_end:
            continue
        done.update((end, far))
        ports = answers.ports[end], answers.ports[far]
        cables.append(
            Cable(
                (id_of_end[end], id_of_end[far]),
                cable_GBps((port.width, port.speed) for port in ports),
                not any(port.up is False for port in ports),
                (end.partition("_")[2], far.partition("_")[2]),
            )
        )
    return tuple(cables)


def _warnings(answers: _Answers) -> list[str]:
    warnings = [f"{count} active {what}" for what, count in answers.counts.items() if count]
    down = sum(port.up is False for port in answers.ports.values())
    if down:
        warnings.append(f"{down} ports are not active")
    if answers.strange:
        warnings.append(
            f"{answers.strange} records are no system, port or link, and were passed over"
        )
    if answers.missing:
        warnings.append(f"{answers.missing} records are {NOT_GIVEN}")
    warnings += [
        f"UFM reports {len(names)} {what}: {examples(names)}"
        for what, names in answers.severe.items()
    ]
    return warnings
