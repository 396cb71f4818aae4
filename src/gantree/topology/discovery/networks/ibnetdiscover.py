"""Output of `ibnetdiscover`: switches, adapters and routers of an InfiniBand subnet, with the far end of each port.

The print as rdma-core's infiniband-diags make it: plain, with -f (full), with -g (chassis; these print their
switches twice, and external port numbers), or the ports report of -p. Lists (-l, -H, -S, -R) and --diff hold no
cables and are refused by name. Prints of several subnets (planes) may be pasted one after the other.

Every cable appears twice, once at each end. Where one end is missing the print was cut, and the other is
believed; where the ends name different ports, or a port or GUID comes twice with something else, it is refused: such
a text is two prints of different moments. The two ends may differ in speed: the one that has no word for a later speed
prints an early one, so the later is taken; else the slower.

What the cables mean is `switch_graph`, node descriptions and rates are `infiniband`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from gantree.model.errors import BadFields, BadInput, Problem
from gantree.text.words import counted, shortened
from gantree.topology.discovery.fabrics import FabricReading
from gantree.topology.discovery.networks.infiniband import (
    SHARP,
    Adapter,
    cable_GBps,
    guid_text,
    host_and_device,
    named_nics,
    switch_name,
)
from gantree.topology.discovery.networks.switch_graph import (
    Cable,
    GraphSwitch,
    SwitchGraph,
    read_graph,
)

SHARP_DEVICE = "cf09"
"""Device id of a switch's aggregation node."""
WAS_CUT = "the print was cut"
"""In the warning of a print of which the end is missing."""
MAX_PROBLEMS = 20
MAX_LINE_CHARS = 1000
"""Longer lines are none of ibnetdiscover's: a description has 64 bytes."""

_GUID = r"(?:0x)?([0-9a-f]{1,16})"
_ATTRIBUTE = re.compile(
    rf"(vendid|devid|sysimgguid|switchguid|caguid|rtguid)={_GUID}(?:\({_GUID}\))?\s*(?:#.*)?"
)
_RECORD = re.compile(rf'(?:Switch|Ca|Rt|\?\?\?)\s+\d{{1,5}}\s+"([SHR?])-{_GUID}"\s*#\s*"(.*)"[^"]*')
_PORT = re.compile(
    rf"\[(\d{{1,5}})\](?:\[ext \d+\])?\s*(?:\({_GUID}\))?\s*"
    rf'"([SHR?])-{_GUID}"\[(\d{{1,5}})\](?:\[ext \d+\])?\s*(?:\({_GUID}\))?'
    r'\s*#[^"]*"(.*)"([^"]*)'
)
_RATE = re.compile(r"\b(\d{1,2}x|\?\?)\s?([A-Z]{3}\d{0,2}|\?\?\?)")
_REPORT = re.compile(
    r"\s*(SW|CA|RT|\?\?)\s+\d+\s+(\d{1,5})\s+0x([0-9a-f]{1,16})\s+(\S+)\s+(\S+)"
    r"(?:\s+-\s+(SW|CA|RT|\?\?)\s+\d+\s+(\d{1,5})\s+0x([0-9a-f]{1,16})\s+\(\s+'(.*)'\s-\s'(.*)'\s+\)|\s+'(.*)')\s*"
)
_KIND_OF_REPORT = {"SW": "S", "CA": "H", "RT": "R", "??": "?"}
_PASSED_OVER = re.compile(r"#.*|Chassis \d+.*|Hostname: .*|Non-Chassis Nodes|\s*")
_OTHER_PRINTS = (
    (re.compile(r"[<>] .*"), "what `ibnetdiscover --diff` prints"),
    (
        re.compile(r"(?:Switch|Ca|Router)\s*: 0x.*"),
        "a list of `ibnetdiscover -l`, which holds no cables",
    ),
)

End = tuple[str, str]
"""A device ("S-0002c9...") and the number of its port."""


@dataclass(slots=True)
class _Device:
    """A switch (S), adapter (H) or router (R); line is that of its record, 0 where only its far ends name it."""

    description: str
    line: int
    device_id: str = ""
    card: str = ""
    guid_of_port: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Far:
    """The far end of a port, and the speed of the cable at the near one."""

    end: End
    width: str
    speed: str
    line: int


@dataclass(slots=True)
class _Dump:
    source: str
    devices: dict[str, _Device] = field(default_factory=dict)
    far: dict[End, _Far] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    unread: list[int] = field(default_factory=list)

    def refuse(self, line: int, where: str, found: str, allowed: str) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(Problem(self.source, line, where, found, allowed))


def parse(text: str, source: str, host_of_guid: Mapping[str, str] | None = None) -> FabricReading:
    """Read a print. `source` names the file in errors; host_of_guid names the hosts of NICs by any of their GUIDs.

    BadInput: no such print, or one without a switch. BadFields, with lines: ends of cables that contradict
    each other. Missing parts, and adapters without a known host, are in the warnings.
    """
    dump = _read(text, source)
    if dump.problems:
        raise BadFields(dump.problems)
    _check_switches(dump)
    cables, warnings = _cables(dump)
    if dump.problems:
        raise BadFields(dump.problems)
    nics, inferred, odd = named_nics(_adapters(dump), host_of_guid or {})
    switches = tuple(
        GraphSwitch(name.partition("-")[2], switch_name(device.description))
        for name, device in dump.devices.items()
        if name[0] == "S"
    )
    return read_graph(SwitchGraph(switches, nics, cables), inferred, [*warnings, *odd])


def _read(text: str, source: str) -> _Dump:
    dump = _Dump(source)
    attributes: dict[str, str] = {}
    now = ""
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.rstrip("\r\t \ufeff").lstrip("\ufeff")
        if not line:
            continue
        if len(line) > MAX_LINE_CHARS:
            dump.unread.append(number)
            continue
        attribute = _ATTRIBUTE.fullmatch(line)
        if attribute:
            if attribute[1] == "vendid":
                attributes = {}
                now = ""
            attributes[attribute[1]] = attribute[2]
            continue
        record = _RECORD.fullmatch(line)
        if record:
            now = _add_record(dump, record, attributes, number)
            attributes = {}
        elif line[:1] == "[":
            _add_port(dump, now, line, number)
        elif not _PASSED_OVER.fullmatch(line):
            _add_other(dump, line, number)
    return dump


def _add_record(
    dump: _Dump, record: re.Match[str], attributes: Mapping[str, str], line: int
) -> str:
    """Note a device and return what it is known by."""
    name = f"{record[1]}-{guid_text(record[2])}"
    card = attributes.get("sysimgguid", "")
    found = _Device(record[3], line, attributes.get("devid", ""), guid_text(card) if card else "")
    known = dump.devices.get(name)
    if known is None or not known.line:
        found.guid_of_port = known.guid_of_port if known else {}
        dump.devices[name] = found
    elif known.description != found.description:
        allowed = f"{shortened(known.description)!r}, as in line {known.line}, or another GUID"
        dump.refuse(line, f"the name of {name}", repr(shortened(found.description)), allowed)
    return name


def _add_port(dump: _Dump, now: str, line: str, number: int) -> None:
    port = _PORT.fullmatch(line)
    if not port or not now:
        dump.unread.append(number)
        return
    far = f"{port[3]}-{guid_text(port[4])}"
    dump.devices.setdefault(far, _Device(port[7], 0))
    for device, at, guid in ((now, port[1], port[2]), (far, port[5], port[6])):
        if guid and device[0] != "S":
            dump.devices[device].guid_of_port[at] = guid_text(guid)
    rate = _RATE.search(port[8])
    width, speed = (rate[1], rate[2]) if rate else ("", "")
    _add_end(dump, (now, port[1]), _Far((far, port[5]), width, speed, number))


def _add_end(dump: _Dump, end: End, far: _Far) -> None:
    known = dump.far.setdefault(end, far)
    if known.end != far.end:
        allowed = f"{_shown(known.end)}, as in line {known.line}: a port holds one cable"
        dump.refuse(far.line, f"port {_shown(end)}", _shown(far.end), allowed)


def _shown(end: End) -> str:
    return f"{end[0]}[{end[1]}]"


def _add_other(dump: _Dump, line: str, number: int) -> None:
    """Read a line of a ports report, or report what else the text is."""
    report = _REPORT.fullmatch(line)
    if report:
        _add_report(dump, report, number)
        return
    for pattern, what in _OTHER_PRINTS:
        if pattern.fullmatch(line):
            raise BadInput(
                f"{dump.source}:{number}: this is {what}; give the print of plain `ibnetdiscover`"
            )
    dump.unread.append(number)


def _add_report(dump: _Dump, report: re.Match[str], line: int) -> None:
    """Note both ends of a line of a ports report; its GUIDs are of ports, and adapters are known by them."""
    near = f"{_KIND_OF_REPORT[report[1]]}-{guid_text(report[3])}"
    description = report[9] if report[6] else report[11]
    for name, given in ((near, description), *_far_of_report(report)):
        known = dump.devices.setdefault(name, _Device(given, line))
        if known.description != given:
            allowed = f"{shortened(known.description)!r}, as in line {known.line}, or another GUID"
            dump.refuse(line, f"the name of {name}", repr(shortened(given)), allowed)
    for name, _ in _far_of_report(report):
        _add_end(dump, (near, report[2]), _Far((name, report[7]), report[4], report[5], line))


def _far_of_report(report: re.Match[str]) -> tuple[tuple[str, str], ...]:
    if not report[6]:
        return ()
    return ((f"{_KIND_OF_REPORT[report[6]]}-{guid_text(report[8])}", report[10]),)


def _check_switches(dump: _Dump) -> None:
    """Refuse a print that shows no fabric: neither a switch nor a cable."""
    if dump.far or any(name[0] == "S" for name in dump.devices):
        return
    alone = next(((n, d) for n, d in dump.devices.items() if n[0] == "H"), None)
    if alone is None:
        raise BadInput(
            f"{dump.source}: no `ibnetdiscover` print: nothing in it looks like a Switch or Ca record"
        )
    name, device = alone
    description = shortened(device.description)
    raise BadFields([Problem(
        dump.source, device.line or None, f"adapter {name}", f"{description!r} and no switch",
        "a print with switches or cables: this adapter saw nothing of the fabric",
        "Its port may be down, or another one is on the fabric: see `ibstat`, and run ibnetdiscover with -C and -P.",
    )])  # fmt: skip


def _cables(dump: _Dump) -> tuple[tuple[Cable, ...], list[str]]:
    """Return each cable between switches and adapters once, and what is missing of the print."""
    cables: list[Cable] = []
    one_ended = routers = 0
    for near, far in dump.far.items():
        back = dump.far.get(far.end)
        if back is not None and back.end != near:
            _refuse_torn(dump, near, far, back)
            continue
        if back is not None and back.line < far.line:
            continue
        one_ended += back is None
        routers += any(end[0][0] in "R?" for end in (near, far.end))
        a, b = _cable_end(dump, near), _cable_end(dump, far.end)
        if a and b:
            rate = cable_GBps((end.width, end.speed) for end in (far, back) if end)
            cables.append(Cable((a, b), rate, ports=(near[1], far.end[1])))
    return tuple(cables), _missing(dump, one_ended, routers)


def _refuse_torn(dump: _Dump, near: End, far: _Far, back: _Far) -> None:
    """Refuse a cable whose far end names another one; the later of the two lines is named."""
    if far.line > back.line:
        allowed = f"a cable to {_shown(back.end)}, as {_shown(far.end)} says in line {back.line}"
        dump.refuse(far.line, f"port {_shown(near)}", f"a cable to {_shown(far.end)}", allowed)
    else:
        allowed = f"a cable to {_shown(near)}, as {_shown(near)} says in line {far.line}"
        dump.refuse(back.line, f"port {_shown(far.end)}", f"a cable to {_shown(back.end)}", allowed)


def _cable_end(dump: _Dump, end: End) -> str | None:
    """What the graph knows an end by: a switch, or a port of an adapter; None for SHARP and routers."""
    name, port = end
    if name[0] == "S":
        return name.partition("-")[2]
    return None if name[0] != "H" or _is_sharp(dump.devices[name]) else f"{name}[{port}]"


def _is_sharp(device: _Device) -> bool:
    return device.device_id == SHARP_DEVICE or host_and_device(device.description)[0] == SHARP


def _missing(dump: _Dump, one_ended: int, routers: int) -> list[str]:
    warnings = []
    if dump.unread:
        warnings.append(
            f"{counted(len(dump.unread), 'line is', 'lines are')} none of ibnetdiscover's and passed over, the first "
            f"is line {dump.unread[0]}"
        )
    if one_ended:
        warnings.append(f"{one_ended} cables are told at one end only: {WAS_CUT}")
    if routers:
        warnings.append(
            f"{routers} cables lead to routers, and what is behind these is not in the print"
        )
    return warnings


def _adapters(dump: _Dump) -> list[Adapter]:
    """The ports of adapters that hold a cable; of an adapter without one, the adapter."""
    ports: dict[str, dict[str, None]] = {name: {} for name in dump.devices if name[0] == "H"}
    for near, far in dump.far.items():
        for name, port in (near, far.end):
            if name[0] == "H":
                ports[name][port] = None
    return [
        _adapter(name, dump.devices[name], port, several=len(used) > 1)
        for name, used in ports.items()
        for port in used or ("",)
    ]


def _adapter(name: str, device: _Device, port: str, several: bool) -> Adapter:
    kind, host, nic = host_and_device(device.description)
    node = name.partition("-")[2]
    guids = (device.guid_of_port.get(port, node), node, *([device.card] if device.card else []))
    return Adapter(
        f"{name}[{port}]", node, SHARP if _is_sharp(device) else kind, host, nic,
        port if several else "", tuple(dict.fromkeys(guids)), device.card,
    )  # fmt: skip
