"""Parses Prometheus' node_exporter: the rate of InfiniBand and RoCE devices, whether they are up, what
they sent, their error counters.

The collector `infiniband` reads /sys/class/infiniband: the rate that a port has negotiated (a lane or a generation that
was lost halves it), its state (4 is active) and its physical state (5 is link up). A device of several ports counts as
its best one. A node is named by its own exporter's address; where one server has the metrics of many, by the label
`node` or `nodename`, else by `instance` without its port.
https://github.com/prometheus/node_exporter (collector/infiniband_linux.go)
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gantree.telemetry.exposition import finite, names_matcher, node_of
from gantree.telemetry.nic_errors import NIC_COUNTERS

RATE = "node_infiniband_rate_bytes_per_second"
STATE = "node_infiniband_state_id"
PHYSICAL_STATE = "node_infiniband_physical_state_id"
ACTIVE, LINK_UP = 4, 5
SENT = "node_infiniband_port_data_transmitted_bytes_total"
_FIND = names_matcher({RATE, STATE, PHYSICAL_STATE, SENT, *NIC_COUNTERS})
GIGA = 1e9


@dataclass(frozen=True, slots=True)
class PortReading:
    """The negotiated rate of a NIC in one direction, in GB/s, whether its port is up, and error counters by name.

    sent_bytes are those that it has sent ever, None if that is not told.
    """

    rate_GBps: float
    up: bool
    counters: Mapping[str, float] = field(default_factory=dict)
    sent_bytes: float | None = None


def ports_in(text: str) -> dict[str, dict[str, PortReading]]:
    """Node -> device -> its reading; "" is the node of devices without a node's name. BadInput for other text.

    A device without a rate is left out. A state that is not told says nothing.
    """
    figures: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
    for name, labels, value in finite(text, _FIND):
        device, port = labels.get("device"), labels.get("port", "")
        if device:
            figures.setdefault((node_of(labels), device), {}).setdefault(port, {})[name] = value
    found: dict[str, dict[str, PortReading]] = {}
    for (node, device), ports in figures.items():
        readings = [_reading(of_port) for of_port in ports.values() if RATE in of_port]
        if readings:
            best = max(readings, key=lambda one: (one.up, one.rate_GBps))
            found.setdefault(node, {})[device] = best
    return found


def _reading(of_port: dict[str, float]) -> PortReading:
    up = of_port.get(STATE, ACTIVE) == ACTIVE and of_port.get(PHYSICAL_STATE, LINK_UP) == LINK_UP
    counters = {name: value for name, value in of_port.items() if name in NIC_COUNTERS}
    return PortReading(of_port[RATE] / GIGA, up, counters, of_port.get(SENT))
