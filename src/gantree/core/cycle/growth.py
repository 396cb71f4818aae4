"""Elastic gangs grow into room that no pending job can use, if that pays.

A gang grows by a restart with more members: it saves, stops, and restarts at a placement that contains its old one. So
it grows only some time after its last change of size, and only if the goodput that it gains while it is expected to
keep the room exceeds the cost of the restart. It gives members back as soon as a job needs them
(`core.preemption.free_capacity`); so a gang that is never preempted does not grow. Nor does a gang that a reservation
waits for, since its next attempt would end later; nor one in a cell of its queue, which it would leave.
"""

from math import inf

from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.preemption.free_capacity import move
from gantree.core.queue.job_variants import running_variant
from gantree.core.queue.scaling import is_on_cordoned_node
from gantree.model.jobs import Job
from gantree.model.phases import Phase, StopCause
from gantree.placement.request.placement_preferences import PlacementPreferences
from gantree.placement.resize.elastic import resized, sizes_of
from gantree.planning.elastic.grow import plan_growth

HORIZON_S = 3600.0
"""Seconds for which idle room is assumed to stay idle. A gang that must shrink earlier loses one restart."""
SETTLED_S = 600.0
"""Seconds that a gang has run before it grows: room that has just become free is often needed a moment later."""


def grow(builder: DecisionBuilder, preferences: PlacementPreferences) -> None:
    """Let gangs grow, the oldest first."""
    ledger = builder.ledger
    if not ledger.policy.elastic or not ledger.accounts.elastic:
        return
    awaited = frozenset(
        job for reservation in ledger.reservations.values() for job in reservation.waits_for
    )
    for job in list(ledger.accounts.elastic):
        state = ledger.jobs[job]
        stays = job in awaited or is_on_cordoned_node(ledger, state)
        if may_grow_at(state) <= builder.now and not stays:
            _grow(builder, state, preferences)


def next_growth(ledger: Ledger, now: float) -> float:
    """The next moment, in seconds, at which a gang may grow; inf if there is none."""
    if not ledger.policy.elastic:
        return inf
    moments = (may_grow_at(ledger.jobs[job]) for job in ledger.accounts.elastic)
    return min((moment for moment in moments if moment > now), default=inf)


def may_grow_at(state: JobState) -> float:
    """The moment from which a gang may grow, in seconds; inf if it may not."""
    elastic, placement = state.spec.elastic, state.placement
    if elastic is None or placement is None or state.phase is not Phase.RUNNING:
        return inf
    if not state.spec.preemptible or state.moving is not None or state.at_home:
        return inf
    if len(placement.members) >= _largest(state):
        return inf
    assert state.running_at is not None
    return state.running_at + SETTLED_S


def _largest(state: JobState) -> int:
    """The most members to which a gang may grow: by its file, or by an operator."""
    elastic = state.spec.elastic
    assert elastic is not None, f"{state.job} is not elastic"
    return state.spec.members if state.scaled else elastic.max


def _grow(builder: DecisionBuilder, state: JobState, preferences: PlacementPreferences) -> None:
    ledger, placement = builder.ledger, state.placement
    assert placement is not None
    gang = running_variant(ledger, state)
    growth = plan_growth(
        ledger.rooms(),
        gang,
        placement,
        preferences,
        _most_members(ledger, state, gang),
        horizon_s=_horizon_s(state, builder.now),
        restart_gpu_s=state.gpu_s_at_stake(builder.now) + ledger.policy.restart_s * state.gpus,
    )
    if growth is None:
        return
    if ledger.accounts.admits_instead(state, ledger.accounts.amounts.held(growth.placement)):
        move(builder, state, growth.placement, StopCause.RESIZED)


def _most_members(ledger: Ledger, state: JobState, gang: Job) -> int:
    """The largest size that the queue of a gang admits, as far as that is known without a placement."""
    now, largest = gang.members, _largest(state)
    for size in reversed(sizes_of(gang)):
        if size <= now:
            break
        if size <= largest and ledger.accounts.admits_instead(
            state, ledger.accounts.amounts.requested_by(state, resized(gang, size))
        ):
            return size
    return now


def _horizon_s(state: JobState, now: float) -> float:
    """Seconds for which a gang is expected to keep more members: at most its expected time left at its present size."""
    if state.spec.expected_s is None:
        return HORIZON_S
    left_s = state.spec.expected_s - state.work_s(now)
    return max(0.0, min(HORIZON_S, left_s * state.spec.gpus / max(1, state.gpus)))
