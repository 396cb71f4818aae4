"""Derives the health of NICs from the rates that their ports have negotiated, and from their counters of errors.

A port that lost a lane or a generation says so itself: its negotiated rate is compared with that of the machine model,
or, where the model names none, with the median of the same NIC on nodes of the same model (of two, the higher). No
counter of traffic is read: an idle link is not sick. What counters of errors mean is in `telemetry.nic_errors`, and how
a NIC gets better again in `link_reports`. A NIC that is down carries nothing. What is not read changes nothing.

A NIC without a port would be given to nobody. Many ports down at once are more likely a fault of an exporter: beyond
MOST_SHARE of the NICs they count as nearly useless (SPARED), stay in use, and say so.
"""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median_high

from gantree.control.nodes.links.link_reports import CLEAN_S, Judgements, LinkReports
from gantree.core.ledger.ledger import Ledger
from gantree.model.cluster import NIC_TIER, LinkId, Nic
from gantree.model.events import LinkHealthObserved
from gantree.telemetry.infiniband import PortReading
from gantree.telemetry.link_judgement import Judged
from gantree.telemetry.nic_errors import NicErrors
from gantree.topology.fabric.fabric import Fabric

SOURCE = "node_exporter"
WHOLE = 0.95
"""A port at this share of its rate or more is whole: tools round rates (a 400 Gb/s port tells 392 Gb/s of data)."""
MOST_SHARE = 0.2
SPARED = 0.05
"""The health of a NIC whose port is down, but that stays in use."""
TOO_MANY = "stays in use, because a fifth of the NICs are down already"
Readings = Mapping[str, Mapping[str, PortReading]]
"""Readings of NICs, by node and device."""


class NicWatch:
    """The reports of NICs."""

    def __init__(self, clean_s: float = CLEAN_S) -> None:
        self._reports = LinkReports(SOURCE, clean_s)
        self._errors = NicErrors()

    def judge(self, told: Readings, fabric: Fabric, now: float) -> Judgements:
        """What the readings of the nodes that answered say."""
        self._errors.keep(frozenset(fabric.index_of_node))
        return Judgements.of(self._judged(told, fabric, now))

    def events(
        self, judgements: Judgements, ledger: Ledger, now: float, epoch: int
    ) -> list[LinkHealthObserved]:
        """What follows from that: of NICs whose ports are down those beyond the limit stay in use."""
        down = [link for link in judgements.worn if judgements.of_link[link].health == 0.0]
        spared = self._spared(down, judgements.of_link, ledger)
        of_link = {**judgements.of_link, **spared} if spared else judgements.of_link
        return self._reports.events(Judgements(of_link, judgements.worn), ledger, now, epoch)

    def _judged(
        self, told: Readings, fabric: Fabric, now: float
    ) -> Iterator[tuple[LinkId, Judged]]:
        """Each NIC that was read, with its health and what says so: the worse of its rate and its errors."""
        usual = _usual_rates(told, fabric)
        for node, of_device in told.items():
            index = fabric.index_of_node.get(node)
            if index is None:
                continue
            for nic in fabric.machine_of_node(index).nics:
                reading = of_device.get(nic.name)
                if reading is None:
                    continue
                key = int(fabric.machine_index_of_node[index]), nic.name
                by_rate = _health(reading, _nominal(nic, usual.get(key)))
                by_errors = self._errors.look(node, nic.name, reading.counters, now)
                yield LinkId(NIC_TIER, f"{node}/{nic.name}"), _worse(by_rate, by_errors)

    def _spared(
        self, down: Sequence[LinkId], judged: Mapping[LinkId, Judged], ledger: Ledger
    ) -> dict[LinkId, Judged]:
        """What those of the NICs whose ports are down count as that stay in use."""
        fabric = ledger.fabric
        if fabric is None or not down:
            return {}
        nics = sum(len(fabric.machine_of_node(node).nics) for node in range(len(fabric.nodes)))
        room = max(1, int(nics * MOST_SHARE)) - _closed(ledger)
        new = [link for link in down if self._reports.on_record(ledger, link).health > 0.0]
        return {
            link: Judged(SPARED, f"{judged[link].reason}; {TOO_MANY}")
            for link in new[max(0, room) :]
        }


def _closed(ledger: Ledger) -> int:
    """How many NICs are on record as down."""
    told = (signs.get(SOURCE) for signs in ledger.site.links.values())
    return sum(sign is not None and sign.health == 0.0 for sign in told)


def _worse(one: Judged, other: Judged) -> Judged:
    """The lower share, with the reasons of both."""
    reasons = ", ".join(filter(None, (one.reason, other.reason)))
    return Judged(min(one.health, other.health), reasons)


def _usual_rates(told: Readings, fabric: Fabric) -> dict[tuple[int, str], float]:
    """The median rate of each NIC over the nodes of one machine model, in GB/s."""
    rates: dict[tuple[int, str], list[float]] = {}
    for node, of_device in told.items():
        index = fabric.index_of_node.get(node)
        for device, reading in of_device.items() if index is not None else ():
            key = int(fabric.machine_index_of_node[index]), device
            rates.setdefault(key, []).append(reading.rate_GBps)
    return {key: median_high(of_nic) for key, of_nic in rates.items()}


def _nominal(nic: Nic, usual_GBps: float | None) -> float | None:
    return usual_GBps if nic.bandwidth_GBps is None else nic.bandwidth_GBps


def _health(reading: PortReading, nominal_GBps: float | None) -> Judged:
    if not reading.up:
        return Judged(0.0, "its port is down")
    if not nominal_GBps or reading.rate_GBps >= WHOLE * nominal_GBps:
        return Judged(1.0)
    rate, nominal = reading.rate_GBps * 8, nominal_GBps * 8
    reason = f"negotiated {rate:g} Gb/s instead of {nominal:g} Gb/s"
    return Judged(round(reading.rate_GBps / nominal_GBps, 3), reason)
