"""Joins what GPUs do with who holds them: GPU-seconds that each running gang computed, or held without computing.

Each round counts the time since the last one for every GPU of every gang that runs, by whether the GPU computes
(`telemetry.activity`). What was counted is handed in every REPORT_S, and of a gang that is gone at the next round, so
that the journal grows by one event in five minutes and not by samples. A daemon that dies, or leads no more, loses what
it had counted: that time is not measured, and so neither useful nor idle. Not measured is also

- a GPU that did not answer, or whose figures do not tell;
- more than MOST_S between two rounds, since nobody looked;
- an instance of MIG beside others of its profile on the same GPU, of which some compute and some do not;
- a member with some of a node's GPUs, where a device plugin picked them and nobody knows which.

Of a GPU that several gangs share, the counters are those of all: each of them is as busy as the GPU, and draws and
sends by its part of it. What GPUs drew and sent is counted in measured seconds alone; what NICs sent comes from
`NicTraffic`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gantree.control.nodes.nic_traffic import NicTraffic
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.model.events import GpuUseObserved
from gantree.model.gpu_activity import Drawn, MeasuredUse
from gantree.model.phases import AttemptKey, Phase
from gantree.model.placements import MemberPlacement
from gantree.policy.amounts import mig_part
from gantree.telemetry.activity import computes, profiles_compute
from gantree.telemetry.gpu_draw import nvlink_GBps, watts
from gantree.topology.fabric.fabric import Fabric

REPORT_S = 300.0
MOST_S = 60.0
"""Seconds between two rounds for which the second one still speaks."""

Figures = Mapping[str, Mapping[int, Mapping[str, float]]]
"""Figures by node and GPU."""
Device = int | tuple[int, str]
"""A GPU, or the instances of one profile on it."""
Computing = Mapping[str, Mapping[Device, bool]]
"""Whether a device computes, by node."""
Drawing = Mapping[str, Mapping[int, tuple[float | None, float | None]]]
"""Watts and GB a second over NVLink of each GPU, by node."""
UNTOLD = (None, None)
J_PER_KWH = 3.6e6


@dataclass(slots=True)
class _Counted:
    """GPU-seconds of an attempt since the last report, joules of those with watts, and GB over NVLink."""

    useful: float = 0.0
    idle: float = 0.0
    powered: float = 0.0
    energy_J: float = 0.0
    nvlink_GB: float = 0.0

    def add(self, gpu_s: float, draw: tuple[float | None, float | None], *, computes: bool) -> None:
        """So many GPU-seconds more; draw: watts and GB a second of the GPU."""
        watts, nvlink_GBps = draw
        if computes:
            self.useful += gpu_s
        else:
            self.idle += gpu_s
        if watts is not None:
            self.powered += gpu_s
            self.energy_J += watts * gpu_s
        self.nvlink_GB += (nvlink_GBps or 0.0) * gpu_s

    def measured(self, attempt: AttemptKey, nic_GB: float) -> MeasuredUse:
        """As it is reported: to the millisecond, the milliwatt-hour and a tenth of a GB, which is shorter."""
        useful, idle, powered = (
            round(gpu_s, 3) for gpu_s in (self.useful, self.idle, self.powered)
        )
        kWh, sent = (
            round(self.energy_J / J_PER_KWH, 6),
            (round(self.nvlink_GB, 1), round(nic_GB, 1)),
        )
        return MeasuredUse(*attempt, useful, idle, drawn=Drawn(powered, kWh, *sent))


@dataclass(slots=True)
class GpuUseWatch:
    """What was counted since the last report. is_exact: it is known which GPUs a member has, not only how many."""

    is_exact: bool = True
    nics: NicTraffic = field(default_factory=NicTraffic)
    _of_attempt: dict[AttemptKey, _Counted] = field(default_factory=dict)
    _looked_at: float | None = None
    _reported_at: float | None = None

    def judge(self, told: Figures, fabric: Fabric, now: float) -> tuple[Computing, Drawing]:
        """Which GPUs compute, of those whose figures tell, and what GPUs draw and send."""
        return computing(told), drawing(told)

    def events(
        self, judged: tuple[Computing, Drawing], ledger: Ledger, now: float, epoch: int
    ) -> tuple[GpuUseObserved, ...]:
        """Count a round; the report, where one is due."""
        seconds = 0.0 if self._looked_at is None else now - self._looked_at
        if 0.0 < seconds <= MOST_S:
            for state in ledger.holding.values():
                self._count(judged, ledger, state, min(seconds, state.ran_s(now)))
        self._looked_at = now
        if self._reported_at is None:
            self._reported_at = now
        is_due = now - self._reported_at >= REPORT_S
        gangs = tuple(self._taken(ledger, everything=is_due))
        since = self._reported_at
        if is_due:
            self._reported_at = now
        if not gangs:
            return ()
        name = f"gpu-use/{epoch}/{now!r}"
        return (GpuUseObserved(id=name, observed_at=now, since=since, until=now, gangs=gangs),)

    def _count(
        self, judged: tuple[Computing, Drawing], ledger: Ledger, state: JobState, seconds: float
    ) -> None:
        """Count so many seconds of a gang that runs; one that saves or stops is paid for that, not for its use."""
        if state.phase is not Phase.RUNNING or state.suspended or state.placement is None:
            return
        computes, draws = judged
        counted = self._of_attempt.setdefault((state.job, state.attempt), _Counted())
        for member in state.placement.members:
            if not (self.is_exact or has_whole_node(ledger, member)):
                continue
            of_device, of_gpu = computes.get(member.node, {}), draws.get(member.node, {})
            for device, part in held_devices(ledger, member):
                does = of_device.get(device)
                if does is not None:
                    draw = of_gpu.get(device if isinstance(device, int) else device[0], UNTOLD)
                    counted.add(part * seconds, draw, computes=does)

    def _taken(self, ledger: Ledger, *, everything: bool) -> Iterator[MeasuredUse]:
        """What is to be reported, and is forgotten by that."""
        for attempt, counted in list(self._of_attempt.items()):
            state = ledger.holding.get(attempt[0])
            if everything or state is None or state.attempt != attempt[1]:
                del self._of_attempt[attempt]
                nic_GB = self.nics.taken(attempt)
                if counted.useful or counted.idle:
                    yield counted.measured(attempt, nic_GB)
        if everything:
            self.nics.forget()


def computing(told: Figures) -> Computing:
    """Which devices compute, of those whose figures tell."""
    return {node: dict(_of_node(of_gpu)) for node, of_gpu in told.items()}


def drawing(told: Figures) -> Drawing:
    """Watts and GB a second over NVLink of GPUs that compute or not."""
    return {
        node: {gpu: (watts(figures), nvlink_GBps(figures)) for gpu, figures in of_gpu.items()}
        for node, of_gpu in told.items()
    }


def _of_node(of_gpu: Mapping[int, Mapping[str, float]]) -> Iterator[tuple[Device, bool]]:
    for gpu, figures in of_gpu.items():
        does = computes(figures)
        if does is not None:
            yield gpu, does
        for profile, does in profiles_compute(figures).items():
            yield (gpu, profile), does


def has_whole_node(ledger: Ledger, member: MemberPlacement) -> bool:
    """Whether a member has all GPUs of its node."""
    fabric = ledger.fabric
    node = None if fabric is None else fabric.index_of_node.get(member.node)
    if fabric is None or node is None:
        return False
    return len(member.gpus) == fabric.machine_of_node(node).gpus


def held_devices(ledger: Ledger, member: MemberPlacement) -> Iterator[tuple[Device, float]]:
    """The devices of a member, each with the part of a GPU that it is."""
    yield from ((gpu, 1.0) for gpu in member.gpus)
    if member.share is not None:
        yield member.share.gpu, member.share.compute
    if member.mig:
        fabric = ledger.fabric
        node = None if fabric is None else fabric.index_of_node.get(member.node)
        model = None if fabric is None or node is None else fabric.machine_of_node(node).gpu
        yield from (
            ((each.gpu, each.profile), mig_part(each.profile, model)) for each in member.mig
        )
