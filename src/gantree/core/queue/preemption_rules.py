"""By what right one job has another one's room: whom it may stop, from when on, and whose claims give way to it.

The rights of a policy, from the strongest: what a queue is guaranteed, then priority or order (`Preemption.by`), then
who waited first. Whoever has the lesser right never has the room of the greater one, be it held or only claimed, and
what is claimed gives way to nobody whom the claimant could stop in turn. So rights only grow along a chain of stops,
and no two jobs stop each other for ever.

Where every GPU-second counts ("attained" without levels), a gang is stopped for one that was served less only when the
difference is worth a new start: else two of them would stop each other all the time.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import inf

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.model.placements import Placement
from gantree.policy.order import DAY_S, OrderFactors
from gantree.policy.rules import Amounts, Policy

MIN_RUN = "min_run"
"""Why a gang may not be stopped that has not run for the minimum time yet."""
SETTLED_S = 1e-3
"""Seconds after a crossing at which it is certainly seen, whatever was lost in rounding."""


def preemption_blocker(
    ledger: Ledger, state: JobState, other: JobState, now: float
) -> tuple[str, float]:
    """Why a gang may not be stopped for a waiting job by priority or order, and from when on it may be.

    ("", now) if it may; the moment is inf where time alone changes nothing.
    """
    because, moment = rank_blocker(ledger, state, other, now)
    if moment == inf:
        return because, inf
    stoppable = stoppable_at(other, ledger.policy)
    if max(moment, stoppable) <= now:
        return "", now
    if because:
        return because, max(moment, stoppable)
    assert other.placed_at is not None
    ran_long_enough_at = other.placed_at + ledger.policy.min_run_s
    return (MIN_RUN if stoppable <= ran_long_enough_at else "budget"), stoppable


def rank_blocker(ledger: Ledger, state: JobState, other: JobState, now: float) -> tuple[str, float]:
    """Why a waiting job has no right to stop another one, and from when on it has; ("", now) if it has now."""
    rules = ledger.policy.preemption
    same_queue = state.spec.queue == other.spec.queue
    if not same_queue and not rules.across:
        return "another queue", inf
    if not same_queue and ledger.accounts.guarantees.holds_within(other):
        return "guarantee", inf
    if rules.by == "none":
        return "policy", inf
    if rules.by == "order":
        moment = outranked_at(ledger, state, other, now)
        return ("" if moment <= now else "order"), moment
    because = _priority_blocker(ledger, state, other, now)
    return because, inf if because else now


def _priority_blocker(ledger: Ledger, state: JobState, other: JobState, now: float) -> str:
    if other.priority == state.priority and state.queue == other.queue:
        return "" if _gains(ledger, state, other, now) else "priority"
    if other.priority >= state.priority:
        return "priority"
    allowed = ledger.policy.preemption.who.get(str(state.spec.priority))
    return "" if allowed is None or other.spec.priority in allowed else "class"


def _gains(ledger: Ledger, state: JobState, other: JobState, now: float) -> bool:
    """Whether a job of the same queue and priority that goes later has so much more to do that stopping it pays."""
    gain, mine_s, its_s = (
        ledger.policy.preemption.gain,
        state.spec.expected_s,
        other.spec.expected_s,
    )
    if not gain or mine_s is None or its_s is None:
        return False
    if state.position.key >= ledger.accounts.order.key(other.order_factors(now)):
        return False
    mine_gpu_s = (mine_s - state.work_s(now)) * state.spec.gpus
    its_gpu_s = (its_s - other.work_s(now)) * other.spec.gpus
    return its_gpu_s - mine_gpu_s >= gain * harm_of(ledger, other, now)


def borrowers(ledger: Ledger, queue: int) -> Iterator[str]:
    """The gangs that run on what a queue is guaranteed; who is at home in cells of its own borrows nothing."""
    for job in ledger.accounts.quota.borrowers(queue):
        if not ledger.jobs[job].at_home:
            yield job


def harm_of(ledger: Ledger, other: JobState, now: float) -> float:
    """GPU-seconds that stopping a gang throws away: work since its last checkpoint, and a new start.

    A gang that can be asked to save loses what it takes to save: its grace at most.
    """
    lost_gpu_s = other.gpu_s_at_stake(now)
    if other.spec.checkpoint is not None:
        lost_gpu_s = min(lost_gpu_s, other.spec.checkpoint.grace_s * other.gpus)
    return lost_gpu_s + ledger.policy.restart_s * other.gpus


def stoppable_at(state: JobState, policy: Policy) -> float:
    """The moment from which on policy lets the running attempt be preempted, in seconds."""
    assert state.placed_at is not None
    ran_long_enough_at = state.placed_at + policy.min_run_s
    budget = policy.evictions_per_day
    if budget is None or len(state.preempted_at) < budget:
        return ran_long_enough_at
    if budget == 0:
        return inf
    return max(ran_long_enough_at, state.preempted_at[-budget] + DAY_S)


def outranks_claim(
    ledger: Ledger, state: JobState, other: JobState, claimed: Amounts | None = None
) -> bool:
    """Whether a waiting job may have the room that is claimed for another one: never if that was promised a start.

    claimed: what the other one would claim, by default what it has claimed.
    """
    told = ledger.reservations.get(other.job)
    if told is not None and told.promised:
        return False
    return ledger.accounts.outranks(state, other, claimed)


def outranked_claims(
    ledger: Ledger, state: JobState, within_guarantee: bool | None = None
) -> tuple[str, ...]:
    """The jobs whose claims a waiting one may have, as `outranks_claim` says of each.

    within_guarantee: whether it is taken to be owed what it asks for; by default as it is.
    """
    told, accounts = ledger.reservations, ledger.accounts
    found: Iterable[str] = accounts.giving_way(state)
    if within_guarantee is not None:
        others = (ledger.jobs[job] for job in ledger.claims if job != state.job)
        found = [
            each.job
            for each in others
            if accounts.outranks(state, each, within_guarantee=within_guarantee)
        ]
    return tuple(job for job in found if job not in told or not told[job].promised)


def claims_taken_over(ledger: Ledger, state: JobState, placement: Placement) -> list[str]:
    """The jobs that lose their claims when a waiting one claims a place: what is held on its nodes and gives way."""
    nodes, claims = placement.nodes.keys(), ledger.claims
    outranked = outranked_claims(ledger, state)
    return [job for job in outranked if not nodes.isdisjoint(claims[job].placement.nodes)]


# ----- the order, as time goes by


def order_key_of(ledger: Ledger, state: JobState, now: float) -> tuple[float, ...]:
    """Where a gang that holds a place stands in the order: what it is compared with by those who wait."""
    return ledger.accounts.order.key(_order_factors(ledger.policy, state, now))


def _order_factors(policy: Policy, state: JobState, now: float) -> OrderFactors:
    """What the order reads of a running gang; where each second counts, a new start's worth of them is taken off."""
    order_factors = state.order_factors(now)
    if "attained" not in policy.order or policy.attained_levels:
        return order_factors
    spared_gpu_s = policy.restart_s * state.gpus
    return replace(
        order_factors, attained_gpu_s=max(0.0, order_factors.attained_gpu_s - spared_gpu_s)
    )


def lowest_order_key(ledger: Ledger, state: JobState, now: float) -> tuple[float, ...]:
    """Where a gang that holds a place stands in the order at the furthest, from now on until it demotions back a level;
    where each second counts, wherever it will ever stand."""
    order_factors = state.order_factors(now)
    if not ledger.policy.attained_levels:
        order_factors = replace(order_factors, attained_gpu_s=inf)
    return ledger.accounts.order.key(order_factors)


def next_demotion(ledger: Ledger, now: float) -> float:
    """The next moment after now, in seconds, at which a gang demotions back a level in the order; inf if none does."""
    policy = ledger.policy
    if not policy.falls_back or not policy.attained_levels:
        return inf
    moments = (demotions(state, policy.attained_levels, now) for state in ledger.holding.values())
    return min((each[0] for each in moments if each), default=inf)


def outranked_at(ledger: Ledger, state: JobState, other: JobState, now: float) -> float:
    """The moment from which on a waiting job goes before one that holds a place: now, later, or inf.

    Between queues only what comes before "share" is compared: shares are no right to stop anybody.
    """
    order = ledger.accounts.order
    same_queue = state.spec.queue == other.spec.queue
    compared = None if same_queue else order.before_share
    mine = state.position.key[:compared]
    for moment in (now, *_overtaking_moments(ledger.policy, state, other, now)):
        if mine < order_key_of(ledger, other, moment)[:compared]:
            return moment
    return inf


def _overtaking_moments(
    policy: Policy, state: JobState, other: JobState, now: float
) -> list[float]:
    """Later moments at which a running gang demotions back behind a waiting one, or down a level, by being served."""
    if "attained" not in policy.order:
        return []
    levels = policy.attained_levels
    if not levels:
        levels = (state.order_factors(now).attained_gpu_s + policy.restart_s * other.gpus,)
    return demotions(other, levels, now)


def demotions(other: JobState, levels: Iterable[float], now: float) -> list[float]:
    """Later moments at which it will be seen that a running gang was served so many GPU-seconds."""
    if other.running_at is None or other.suspended:
        return []
    since = other.running_at + other.slices.suspended_s
    gpus = max(1, other.gpus)
    moments = (
        (level - other.attained_gpu_s) / gpus + since + SETTLED_S for level in sorted(levels)
    )
    return [moment for moment in moments if moment > now]
