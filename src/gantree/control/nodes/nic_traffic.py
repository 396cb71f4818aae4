"""Joins what NICs send with who holds them: GB that each running gang sent, until `GpuUseWatch` reports them.

A node_exporter has the bytes that each port has sent since it came up. What was sent since the last reading is the
gang's that holds the NIC, or the whole node where it asked for no NIC; of a gang that ran for a part of that time that
part. A counter that began anew or grew faster than the port, or more than MOST_S between two readings, tells nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.model.phases import AttemptKey, Phase
from gantree.model.placements import MemberPlacement
from gantree.telemetry.infiniband import PortReading
from gantree.topology.fabric.fabric import Fabric

MOST_S = 60.0
MOST_OF_RATE = 1.1
"""Of the rate of a port; two readings are not quite as far apart as their moments."""
GIGA = 1e9
Readings = Mapping[str, Mapping[str, PortReading]]
"""Readings of NICs, by node and device."""
Sent = Mapping[str, Mapping[str, tuple[float, float]]]
"""GB that a NIC sent, and in how many seconds, by node and device."""


@dataclass(slots=True)
class NicTraffic:
    """What was sent since it was last taken."""

    _sent_GB: dict[AttemptKey, float] = field(default_factory=dict)
    _before: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)

    def judge(self, told: Readings, fabric: Fabric, now: float) -> Sent:
        """What each NIC has sent since it was last read."""
        self._before = {nic: last for nic, last in self._before.items() if last[1] >= now - MOST_S}
        return {node: dict(self._since_then(node, of_nic, now)) for node, of_nic in told.items()}

    def _since_then(
        self, node: str, of_nic: Mapping[str, PortReading], now: float
    ) -> Iterator[tuple[str, tuple[float, float]]]:
        for nic, reading in of_nic.items():
            if reading.sent_bytes is None:
                continue
            before, at = self._before.get((node, nic), (reading.sent_bytes, now))
            self._before[node, nic] = reading.sent_bytes, now
            sent_GB, seconds = (reading.sent_bytes - before) / GIGA, now - at
            if seconds > 0.0 and 0.0 <= sent_GB <= MOST_OF_RATE * reading.rate_GBps * seconds:
                yield nic, (sent_GB, seconds)

    def events(self, judged: Sent, ledger: Ledger, now: float, epoch: int) -> tuple[()]:
        """Count a round; nothing is decided by it."""
        for state in ledger.holding.values():
            if state.phase is Phase.RUNNING and not state.suspended and state.placement is not None:
                sent_GB = sum(_sent_by(judged, ledger, state, now))
                if sent_GB:
                    attempt = state.job, state.attempt
                    self._sent_GB[attempt] = self._sent_GB.get(attempt, 0.0) + sent_GB
        return ()

    def taken(self, attempt: AttemptKey) -> float:
        """GB that an attempt sent since this was last asked."""
        return self._sent_GB.pop(attempt, 0.0)

    def forget(self) -> None:
        """Forget what nobody took: of attempts that are gone, and of which no GPU was measured."""
        self._sent_GB.clear()


def _sent_by(judged: Sent, ledger: Ledger, state: JobState, now: float) -> Iterator[float]:
    assert state.placement is not None
    ran_s = state.ran_s(now)
    for member in state.placement.members:
        of_nic = judged.get(member.node, {})
        for nic in _nics(ledger, member) if of_nic else ():
            sent_GB, seconds = of_nic.get(nic, (0.0, 0.0))
            yield sent_GB * min(1.0, ran_s / seconds) if seconds else 0.0


def _nics(ledger: Ledger, member: MemberPlacement) -> tuple[str, ...]:
    """Those that a member holds; of one without any that has all GPUs of its node all that there are."""
    fabric = ledger.fabric
    node = None if fabric is None else fabric.index_of_node.get(member.node)
    if member.nics or fabric is None or node is None:
        return member.nics
    machine = fabric.machine_of_node(node)
    is_whole = machine.gpus > 0 and len(member.gpus) == machine.gpus
    return tuple(nic.name for nic in machine.nics) if is_whole else ()
