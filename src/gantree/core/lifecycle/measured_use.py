"""What counters of GPUs told of gangs that run.

It is for the accounts; no decision of the cycle depends on it. A report may come late, twice, or from two sources: of
each attempt no more is noted than the time that it ran and of which nothing was noted (`core.ledger.measured_attempt`).
"""

from collections.abc import Callable
from math import isfinite
from typing import Any

from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.model.events import Event, GpuUseObserved
from gantree.model.facts import GpuUseNoted
from gantree.model.gpu_activity import Drawn, MeasuredUse
from gantree.policy.rules import Policy

LEAST_GPU_S = 1e-6
"""Less than this is rounding."""


def _gpu_use_observed(builder: DecisionBuilder, event: GpuUseObserved, policy: Policy) -> None:
    gangs = {(used.job, used.attempt): used for used in event.gangs}
    until = min(event.until, builder.now)
    since = min(event.since, until)
    noted = [_as_far_as_it_ran(builder, used, since, until) for used in gangs.values()]
    gangs_noted = tuple(used for used in noted if used is not None)
    if gangs_noted:
        builder.record(GpuUseNoted(at=builder.now, since=since, until=until, gangs=gangs_noted))


def _as_far_as_it_ran(
    builder: DecisionBuilder, used: MeasuredUse, since: float, until: float
) -> MeasuredUse | None:
    """What is to be noted of a report; None for an attempt that is not the last, or that ran no more than is noted."""
    state = builder.ledger.jobs.get(used.job)
    useful, idle = (_sound(amount) for amount in (used.useful_gpu_s, used.idle_gpu_s))
    if state is None or state.attempt != used.attempt:
        return None
    spans = state.metered.measured_attempt.untold(since, until, builder.now)
    gpus = sum(gpus for _, gpus in state.metered.gpus_of_model)
    most = sum(end - begin for begin, end in spans) * gpus
    if min(most, useful + idle) < LEAST_GPU_S:
        return None
    part = min(1.0, most / (useful + idle))
    ran = () if spans == ((since, until),) else tuple((a - since, b - a) for a, b in spans)
    drawn = _part_of(used.drawn, useful + idle, part)
    return MeasuredUse(used.job, used.attempt, useful * part, idle * part, ran, drawn)


def _part_of(drawn: Drawn, measured_gpu_s: float, part: float) -> Drawn:
    """That part of what is sound of it; energy is of no more seconds than were measured."""
    powered = min(_sound(drawn.powered_gpu_s), measured_gpu_s)
    energy = _sound(drawn.energy_kWh) if powered else 0.0
    sent = _sound(drawn.nvlink_GB), _sound(drawn.nic_GB)
    return Drawn(*(each * part for each in (powered, energy, *sent)))


def _sound(amount: float) -> float:
    """An amount; nothing where a report has none that can be."""
    return amount if isfinite(amount) and amount > 0.0 else 0.0


REACTIONS: dict[type[Event], Callable[[DecisionBuilder, Any, Policy], None]] = {
    GpuUseObserved: _gpu_use_observed
}
