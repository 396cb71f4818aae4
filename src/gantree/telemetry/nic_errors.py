"""What error counters of a NIC's port say, as node_exporter tells them: errors at a rate, and a link that flaps.

    errors              symbol errors, errors received: more than one a second (median of `rates`). Retransmissions of
                        RDMA (packets out of sequence, sequence errors): more than a hundred a second, since a few come
                        with any congestion
    a link that flaps   went down FLAPS times within FLAPS_WITHIN_S. Once may be a cable that was moved

Errors are sent again, so such a link carries WITH_ERRORS, as those of GPUs do. A link that flaps breaks collectives: it
counts as half, so that a gang goes there only where nothing else is nearly as good.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gantree.telemetry.link_judgement import WITH_ERRORS, Judged
from gantree.telemetry.rates import Counters

ERRORS_PER_S = {
    "node_infiniband_symbol_error_total": ("symbol errors", 1.0),
    "node_infiniband_port_errors_received_total": ("errors received", 1.0),
    "node_infiniband_packet_sequence_errors_total": ("RDMA sequence errors", 100.0),
    "node_infiniband_out_of_sequence_packets_received_total": ("packets out of sequence", 100.0),
}
"""Counter -> what it counts, and how many a second are too many."""
DOWNED = "node_infiniband_link_downed_total"
NIC_COUNTERS = frozenset({*ERRORS_PER_S, DOWNED})
FLAPS, FLAPS_WITHIN_S = 2, 3600.0
FLAPPING = 0.5


@dataclass(slots=True)
class _Downs:
    """How often a link has been down so far, and when it was within the last hour, in seconds."""

    count: float
    at: tuple[float, ...] = ()

    def look(self, count: float, at: float) -> int:
        """How often it was down in the last hour. A counter that fell began anew."""
        if count > self.count:
            self.at = (*self.at, *(at,) * min(FLAPS, int(count - self.count)))[-FLAPS:]
        self.count = count
        self.at = tuple(moment for moment in self.at if at - moment <= FLAPS_WITHIN_S)
        return len(self.at)


class NicErrors:
    """The counters of all NICs, as they were read."""

    def __init__(self) -> None:
        self._rates = Counters()
        self._downs: dict[tuple[str, str], _Downs] = {}

    def look(self, node: str, device: str, counters: Mapping[str, float], at: float) -> Judged:
        """What the counters of a NIC say at a time in seconds; a whole one where they say nothing."""
        found = [
            what
            for name, (what, most) in ERRORS_PER_S.items()
            if name in counters
            and self._rates.rate((node, device, name), counters[name], at) > most
        ]
        if DOWNED in counters and self._flaps(node, device, counters[DOWNED], at):
            return Judged(FLAPPING, ", ".join(("its link flaps", *found)))
        return Judged(WITH_ERRORS, ", ".join(found)) if found else Judged(1.0)

    def keep(self, nodes: frozenset[str]) -> None:
        """Forget the NICs of all other nodes."""
        self._rates.keep(nodes)
        for key in [key for key in self._downs if key[0] not in nodes]:
            del self._downs[key]

    def _flaps(self, node: str, device: str, count: float, at: float) -> bool:
        downs = self._downs.setdefault((node, device), _Downs(count))
        return downs.look(count, at) >= FLAPS
