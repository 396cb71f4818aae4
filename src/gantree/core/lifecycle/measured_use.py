"""What counters of GPUs told of gangs that run.

It is for the accounts; no decision of the cycle depends on it. A report may come late, twice, or from two sources: of
each attempt no more is noted than the time that it ran and of which nothing was noted.
"""

from collections.abc import Callable
from typing import Any

from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.usage import uncounted_s
from gantree.model.events import Event, GpuUseObserved
from gantree.model.facts import GpuUseNoted
from gantree.model.gpu_activity import MeasuredUse
from gantree.policy.rules import Policy

LEAST_GPU_S = 1e-6
"""Less than this is rounding."""


def _gpu_use_observed(builder: DecisionBuilder, event: GpuUseObserved, policy: Policy) -> None:
    gangs = {(used.job, used.attempt): used for used in event.gangs}
    noted = [_as_far_as_it_ran(builder, used) for used in gangs.values()]
    gangs_noted = tuple(used for used in noted if used is not None)
    if gangs_noted:
        until = min(event.until, builder.now)
        since = min(event.since, until)
        builder.record(GpuUseNoted(at=builder.now, since=since, until=until, gangs=gangs_noted))


def _as_far_as_it_ran(builder: DecisionBuilder, used: MeasuredUse) -> MeasuredUse | None:
    """What is to be noted of a report; None for an attempt that is not the last, or that ran no more than is noted."""
    state = builder.ledger.jobs.get(used.job)
    if state is None or state.attempt != used.attempt:
        return None
    useful, idle = max(0.0, used.useful_gpu_s), max(0.0, used.idle_gpu_s)
    gpus = sum(gpus for _, gpus in state.metered.gpus_of_model)
    most = uncounted_s(state, builder.now) * gpus
    if min(most, useful + idle) < LEAST_GPU_S:
        return None
    part = min(1.0, most / (useful + idle))
    return MeasuredUse(used.job, used.attempt, useful * part, idle * part)


REACTIONS: dict[type[Event], Callable[[DecisionBuilder, Any, Policy], None]] = {
    GpuUseObserved: _gpu_use_observed
}
