"""Handles events about slow ranks of running gangs. What follows from them is in `core.cycle.leaving_degraded`."""

from collections.abc import Callable
from math import inf
from typing import Any

from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.model.events import Event, RankSlownessObserved
from gantree.model.facts import RankSlownessNoted
from gantree.model.phases import Phase
from gantree.policy.rules import Policy


def _rank_slowness_observed(
    builder: DecisionBuilder, event: RankSlownessObserved, policy: Policy
) -> None:
    """To say the same again changes nothing, nor does what is no factor, or not of a running rank on that node."""
    state = builder.ledger.jobs.get(event.job)
    if state is None or state.attempt != event.attempt or state.phase is not Phase.RUNNING:
        return
    if state.placement is None or event.node not in state.placement.nodes or event.rank < 0:
        return
    before = next((each.slowdown for each in state.slow if each.rank == event.rank), 1.0)
    if event.slowdown == before or not 1.0 <= event.slowdown < inf:
        return
    builder.record(
        RankSlownessNoted(
            at=builder.now,
            job=state.job,
            attempt=state.attempt,
            rank=event.rank,
            node=event.node,
            slowdown=event.slowdown,
        )
    )


REACTIONS: dict[type[Event], Callable[[DecisionBuilder, Any, Policy], None]] = {
    RankSlownessObserved: _rank_slowness_observed,
}
