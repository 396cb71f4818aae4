"""Elastic gangs grow into room that nobody waits for, where that pays.

A gang grows by starting anew with more members: it saves, stops, and goes on at a place that contains its old one. So
it is asked only when it has run for a while since it last changed, and only where the goodput it wins in HORIZON_S is
more than what the new start costs. It gives members back as soon as somebody needs them (`core.room`).
"""

from gantree.core.draft import Draft
from gantree.core.room import move
from gantree.core.state import JobState
from gantree.model.phases import Phase, StopCause
from gantree.placement.taste import Taste
from gantree.planning.grow import plan_growth

HORIZON_S = 3600.0
"""Seconds for which idle room is expected to stay idle. An assumption; a gang that is told sooner loses one start."""
SETTLED_S = 600.0
"""Seconds that a gang has run before it grows: room that has just become free is often wanted a moment later."""


def grow(draft: Draft, taste: Taste) -> None:
    """Let gangs grow, those that came first before others."""
    ledger = draft.ledger
    if not ledger.policy.elastic or not ledger.accounts.elastic:
        return
    for job in list(ledger.accounts.elastic):
        state = ledger.jobs[job]
        if may_grow_at(state) <= draft.now:
            _grow(draft, state, taste)


def may_grow_at(state: JobState) -> float:
    """The moment from which on a gang may grow, in seconds; inf while it may not at all."""
    elastic, placement = state.spec.elastic, state.placement
    if elastic is None or placement is None or state.phase is not Phase.RUNNING:
        return float("inf")
    if state.moving is not None or len(placement.members) >= elastic.max:
        return float("inf")
    assert state.running_at is not None
    return state.running_at + SETTLED_S


def _grow(draft: Draft, state: JobState, taste: Taste) -> None:
    ledger, placement = draft.ledger, state.placement
    assert placement is not None
    growth = plan_growth(
        ledger.rooms(),
        state.present,
        placement,
        taste,
        horizon_s=HORIZON_S,
        restart_gpu_s=state.gpu_s_at_stake(draft.now) + ledger.policy.restart_s * state.gpus,
    )
    if growth is None:
        return
    more = ledger.accounts.held(growth.placement)
    if ledger.accounts.admits_instead(state, more):
        move(draft, state, growth.placement, StopCause.RESIZED)
