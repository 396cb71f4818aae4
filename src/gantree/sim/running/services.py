"""Services whose wanted replicas follow the time of day, as jobs: one a replica and the time for which it is wanted.

    level(t) = trough + (peak - trough) x share(t)

share is linear between the points of the curve and round midnight. Without an autoscaler (`autoscaled` has those with
one) replica k is wanted while level(t) is at least k - 1/2, which rounds the curve to whole replicas. Second 0 of the
trace is midnight. A replica works while it is wanted, whenever it starts; who still waits when it is not wanted any
more is withdrawn.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import merge
from itertools import pairwise
from math import inf

from gantree.formats.traces import TraceJob
from gantree.sim.running.model import DAY_S, Service


@dataclass(frozen=True, slots=True)
class Replica:
    """A replica of a service, wanted until a moment (inf: to the end of the run)."""

    service: str
    row: TraceJob
    until_s: float


def replicas(services: tuple[Service, ...], from_s: float) -> Iterator[Replica]:
    """All replicas that become wanted from a moment on, in the order of time; without end."""
    each = (
        _of_replica(service, number, from_s)
        for service in services
        if service.scaling is None
        for number in range(1, service.peak + 1)
    )
    return merge(*each, key=lambda replica: replica.row.submit_s)


def wanted(service: Service, at_s: float) -> int:
    """How many replicas are wanted at a moment."""
    return int(level(service, at_s) + 0.5)


def level(service: Service, at_s: float) -> float:
    """How many replicas the load of a moment keeps full."""
    share = _share(service.curve, at_s % DAY_S)
    return service.trough + (service.peak - service.trough) * share


def _share(curve: tuple[tuple[float, float], ...], second: float) -> float:
    round_midnight = [
        (curve[-1][0] - DAY_S, curve[-1][1]), *curve, (curve[0][0] + DAY_S, curve[0][1])
    ]  # fmt: skip
    for (before_s, before), (after_s, after) in pairwise(round_midnight):
        if before_s <= second <= after_s:
            part = (second - before_s) / (after_s - before_s) if after_s > before_s else 1.0
            return before + (after - before) * part
    raise AssertionError(f"{second} is no second of a day")


def _of_replica(service: Service, number: int, from_s: float) -> Iterator[Replica]:
    for times, (begin_s, end_s) in enumerate(_spans(service, number, from_s), start=1):
        yield replica_of(service, f"{number}.{times}", begin_s, end_s)


def replica_of(service: Service, name: str, begin_s: float, end_s: float) -> Replica:
    """A replica that is wanted between two moments; its name begins with that of the service."""
    row = TraceJob(
        job_id=f"{service.name}.{name}",
        submit_s=begin_s,
        duration_s=end_s - begin_s,
        members=1,
        gpus_per_member=service.gpus,
        gpu=service.gpu,
        queue=service.queue,
        priority=service.priority,
        gpu_share=service.gpu_share,
        mig=service.mig,
    )
    return Replica(service.name, row, end_s)


def _spans(service: Service, number: int, from_s: float) -> Iterator[tuple[float, float]]:
    """From when to when a replica is wanted, from a moment on."""
    if number <= service.trough:
        yield from_s, inf
        return
    begin_s = from_s if wanted(service, from_s) >= number else None
    changes = _changes(service, number)
    if begin_s is not None and not changes:
        yield begin_s, inf
    day = from_s // DAY_S * DAY_S
    while changes:
        for second, up in changes:
            at_s = day + second
            if at_s > from_s:
                if up:
                    begin_s = at_s
                elif begin_s is not None:
                    yield begin_s, at_s
                    begin_s = None
        day += DAY_S


def _changes(service: Service, number: int) -> list[tuple[float, bool]]:
    """Seconds of a day at which the curve crosses the level of a replica, and whether upwards."""
    needed = (number - 0.5 - service.trough) / max(1, service.peak - service.trough)
    points = sorted({0.0, DAY_S, *(second for second, _ in service.curve)})
    changes = []
    for before_s, after_s in pairwise(points):
        before, after = _share(service.curve, before_s), _share(service.curve, after_s)
        if (before >= needed) != (after >= needed):
            part = (needed - before) / (after - before)
            changes.append((before_s + (after_s - before_s) * part, after >= needed))
    return changes
