"""InfiniBand terms shared by sources: rates, GUIDs, node descriptions, and the host of an adapter.

The host of an adapter is only in its node description, free text of 64 bytes. `rdma-ndd` and the drivers of vendors
write "<host> <device>" ("n01 mlx5_0", "n01 HCA-1"); the description of an unnamed adapter is its model ("MT4129
ConnectX7 Mellanox Technologies"), and one of a switch's own is the switch's part of SHARP ("Mellanox Technologies
Aggregation Node"). So a host is known by, in this order: what the caller knows of its GUIDs, its description, another
adapter on the same card (one system image GUID). The rest stay without a host and are counted, never guessed.

Rates are those of data after line coding, in one direction: the InfiniBand Architecture Specification's lane rates
(SDR 2.5, DDR 5, QDR 10 Gb/s less 8b/10b; FDR10 10.3125, FDR 14.0625, EDR 25.78125 Gb/s less 64b/66b; HDR, NDR and
XDR by their names, 50, 100 and 200 Gb/s).
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gantree.topology.discovery.networks.switch_graph import GraphNic, examples

SHARP = "sharp"
HOST = "host"
UNNAMED = "unnamed"

_GBPS_OF_LANE = {"SDR": 0.25, "DDR": 0.5, "QDR": 1.0, "FDR10": 1.25, "FDR": 75 / 44, "EDR": 3.125,
                 "HDR": 6.25, "NDR": 12.5, "XDR": 25.0}  # fmt: skip
BASE_SPEEDS = frozenset({"SDR", "DDR", "QDR"})
"""Speeds of the first generations. A tool or port that has no word for a later one prints one of these instead."""
_WIDTH = re.compile(r"(?:IB_)?(1|2|4|8|12)X", re.IGNORECASE)

_DEVICE = re.compile(
    r"HCA-\d+(?:/\d+)?|(?:mlx[45]|hfi1|qib|mthca|ipath|ib|rdma|bnxt_re|irdma|ionic|efa|erdma|hns)_?\d+(?:/\d+)?"
)
_VENDOR_TEXT = re.compile(
    r"Technologies|ConnectX|InfiniHost|BlueField|Infiniband HCA|InfiniBand HCA|Host Channel|^MT\d+\b|^$"
)
_VENDOR_IN_BRACKETS = re.compile(r" \([^()]*\)$")
"""Old drivers' scripts end a description so: "n01 HCA-1 (Topspin HCA)"."""
_WORD_BREAK = re.compile(r"[^A-Za-z0-9._:-]+")
_MANAGED_SWITCH = re.compile(r"[^;:]*;([^;]+?):([^:/]+)((?:/[^/]+)*)")
_MOST_CHARS = 120


def link_GBps(width: str, speed: str) -> float | None:
    """Return GB/s of data in one direction of a link ("4x", "NDR" -> 50.0); None for words that are not known."""
    lanes, per_lane = _WIDTH.fullmatch(width), _GBPS_OF_LANE.get(speed.upper())
    return int(lanes[1]) * per_lane if lanes and per_lane else None


def cable_GBps(ends: Iterable[tuple[str, str]]) -> float | None:
    """Return GB/s of a cable of which both ends give (width, speed); None where neither is known.

    An end that prints an early speed where the other prints a later one has no word for it; else the slower counts.
    """
    known = [
        (speed, rate) for width, speed in ends if (rate := link_GBps(width, speed)) is not None
    ]
    later = [(speed, rate) for speed, rate in known if speed.upper() not in BASE_SPEEDS]
    return min((rate for _, rate in later or known), default=None)


def guid_text(digits: str) -> str:
    """Return a GUID as 16 lower-case hex digits; tools leave out leading zeros, or put 0x in front."""
    return digits.lower().removeprefix("0x").replace(":", "").zfill(16)


def host_and_device(description: str) -> tuple[str, str, str]:
    """Return (HOST, host, device), or (SHARP, "", "") or (UNNAMED, "", "") for a node description."""
    text = description.strip().strip("'\"").strip()
    if "Aggregation Node" in text:
        return SHARP, "", ""
    head, _, last = _VENDOR_IN_BRACKETS.sub("", text).rpartition(" ")
    if head and _DEVICE.fullmatch(last):
        host = name_word(head)
        return (HOST, host, last) if host and not _VENDOR_TEXT.search(head) else (UNNAMED, "", "")
    if " " in text or _VENDOR_TEXT.search(text) or _DEVICE.fullmatch(text):
        return UNNAMED, "", ""
    host = name_word(text)
    return (HOST, host, "") if host else (UNNAMED, "", "")


def switch_name(description: str) -> str:
    """Return the name in a switch's description; "" where it is that of a model and not of a switch.

    Managed switches have "MF0;<name>:<model>/U1"; chips of a chassis end in /L01/U1 or /S02/U1 and keep that.
    """
    text = description.strip()
    managed = _MANAGED_SWITCH.fullmatch(text)
    if managed:
        chip = "" if managed[3] in {"", "/U1"} else managed[3]
        return name_word(managed[1] + chip)
    return "" if _VENDOR_TEXT.search(text) else name_word(text)


def name_word(text: str) -> str:
    """Return a text as a word that names may be: what they may not hold becomes a dash."""
    return _WORD_BREAK.sub("-", text.strip()).strip("-.:")[:_MOST_CHARS]


@dataclass(frozen=True, slots=True)
class Adapter:
    """One port of an adapter. id is what cables name it by; port is "" where it is the adapter's only one in use.

    guids are its port, node and system image GUID, as far as given; card is the last of these, "" if not given.
    """

    id: str
    node: str
    kind: str
    host: str
    device: str
    port: str = ""
    guids: tuple[str, ...] = ()
    card: str = ""


def named_nics(
    adapters: Sequence[Adapter], host_of_guid: Mapping[str, str]
) -> tuple[tuple[GraphNic, ...], list[str], list[str]]:
    """Return (NICs with the hosts they are in, what was inferred, warnings). Those of SHARP are left out."""
    adapters = [adapter for adapter in adapters if adapter.kind != SHARP]
    known = {guid_text(guid): host for guid, host in host_of_guid.items()}
    given = [_told(adapter, known) for adapter in adapters]
    hosts, on_cards = _with_hosts_of_cards(
        adapters, [host or a.host for host, a in zip(given, adapters, strict=True)]
    )
    shared = _shared_names(adapters, hosts, given)
    nics = tuple(
        GraphNic(a.id, None if host in shared else host or None, _nic_name(a), a.guids)
        for a, host in zip(adapters, hosts, strict=True)
    )
    inferred = []
    if on_cards:
        inferred.append(
            f"{on_cards} adapters without a host name are in the host of another adapter on their card"
        )
    renamed = [
        a.host for a, host in zip(adapters, given, strict=True) if host and a.host not in {"", host}
    ]
    warnings = _naming_warnings(adapters, nics, shared)
    if renamed:
        warnings.append(
            f"{len(renamed)} adapters call themselves something else than the machine that has their "
            f"GUID ({examples(renamed)}); the machine is believed"
        )
    return nics, inferred, warnings


def _told(adapter: Adapter, host_of_guid: Mapping[str, str]) -> str:
    """The host that the caller knows for one of an adapter's GUIDs."""
    return next((host_of_guid[guid] for guid in adapter.guids if guid in host_of_guid), "")


def _with_hosts_of_cards(adapters: Sequence[Adapter], hosts: list[str]) -> tuple[list[str], int]:
    """Give adapters without a host that of the other adapters on their card, where these agree; note how many."""
    hosts_of_card: dict[str, set[str]] = defaultdict(set)
    for adapter, host in zip(adapters, hosts, strict=True):
        if host and adapter.card:
            hosts_of_card[adapter.card].add(host)
    found = 0
    for i, adapter in enumerate(adapters):
        if not hosts[i] and len(hosts_of_card.get(adapter.card, ())) == 1:
            (hosts[i],) = hosts_of_card[adapter.card]
            found += 1
    return hosts, found


def _shared_names(
    adapters: Sequence[Adapter], hosts: Sequence[str], given: Sequence[str]
) -> dict[str, None]:
    """Names under which two adapters claim to be the same device: those of several machines ("localhost")."""
    node_of: dict[tuple[str, str, str], str] = {}
    shared: dict[str, None] = {}
    for adapter, host, sure in zip(adapters, hosts, given, strict=True):
        if not host or sure or not adapter.device:
            continue
        if node_of.setdefault((host, adapter.device, adapter.port), adapter.node) != adapter.node:
            shared[host] = None
    return shared


def _nic_name(adapter: Adapter) -> str:
    return f"{adapter.device}:{adapter.port}" if adapter.device and adapter.port else adapter.device


def _naming_warnings(
    adapters: Sequence[Adapter], nics: Sequence[GraphNic], shared: Iterable[str]
) -> list[str]:
    way_out = "give each host's own reading, whose NIC GUIDs name them"
    warnings = [
        f"{count} adapters claim to be in {host!r}, but no machine has a device twice: several machines "
        f"share the name, and are left out; {way_out}"
        for host, count in _claims(adapters, shared).items()
    ]
    nameless = [a for a, nic in zip(adapters, nics, strict=True) if nic.host is None and not a.host]
    if nameless:
        count = len({a.node for a in nameless})
        warnings.append(
            f"{count} adapters do not say which host they are in (the first has GUID "
            f"{(nameless[0].guids or ('',))[0]}), and are in no node; {way_out}"
        )
    return warnings


def _claims(adapters: Sequence[Adapter], hosts: Iterable[str]) -> dict[str, int]:
    count = Counter(adapter.host for adapter in adapters)
    return {host: count[host] for host in hosts}
