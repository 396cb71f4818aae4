"""The rules of preemption: which gangs a pending job may stop, from when on, and which claims give way to it.

A job ranks by guarantee first (within it or borrowing), then by priority or order (`Preemption.by`), then by arrival. A
job of lower rank never takes the room of a higher one, whether held or claimed; and a claim never gives way to a job
that its claimant could stop in turn. So rank rises along every chain of preemptions, and no two jobs stop each other
endlessly.

Where the order counts every GPU-second ("attained" without levels), a gang is stopped for one that was served less only
if the difference is worth a restart; otherwise two gangs would stop each other all the time.
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
"""The blocker of a gang that has not run for the minimum time yet."""
CROSSING_MARGIN_S = 1e-3
"""Seconds after a gang is overtaken in the order until it counts: more than any rounding error."""


def preemption_blocker(
    ledger: Ledger, state: JobState, other: JobState, now: float
) -> tuple[str, float]:
    """What forbids a pending job to stop a gang by priority or order, and when that ends.

    ("", now) if nothing does; the moment is inf where it does not end by itself.
    """
    blocker, moment = rank_blocker(ledger, state, other, now)
    if moment == inf:
        return blocker, inf
    stoppable = stoppable_at(other, ledger.policy)
    if max(moment, stoppable) <= now:
        return "", now
    if blocker:
        return blocker, max(moment, stoppable)
    assert other.placed_at is not None
    ran_long_enough_at = other.placed_at + ledger.policy.min_run_s
    return (MIN_RUN if stoppable <= ran_long_enough_at else "budget"), stoppable


def rank_blocker(ledger: Ledger, state: JobState, other: JobState, now: float) -> tuple[str, float]:
    """As `preemption_blocker`, by rank alone: without minimum run times and eviction budgets."""
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
    blocker = _priority_blocker(ledger, state, other, now)
    return blocker, inf if blocker else now


def _priority_blocker(ledger: Ledger, state: JobState, other: JobState, now: float) -> str:
    if other.priority == state.priority and state.queue == other.queue:
        return "" if _is_worth_stopping(ledger, state, other, now) else "priority"
    if other.priority >= state.priority:
        return "priority"
    allowed = ledger.policy.preemption.who.get(str(state.spec.priority))
    return "" if allowed is None or other.spec.priority in allowed else "class"


def _is_worth_stopping(ledger: Ledger, state: JobState, other: JobState, now: float) -> bool:
    """Whether a job of the same queue and priority, but later, has so much more work left that stopping it pays."""
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
    """The gangs that borrow a queue's guarantee. A gang in a cell of its own queue does not borrow."""
    for job in ledger.accounts.quota.borrowers(queue):
        if not ledger.jobs[job].at_home:
            yield job


def harm_of(ledger: Ledger, other: JobState, now: float) -> float:
    """The GPU-seconds that stopping a gang loses: work since its last checkpoint, and a restart.

    A gang that saves a checkpoint first loses at most its grace.
    """
    lost_gpu_s = other.gpu_s_at_stake(now)
    if other.spec.checkpoint is not None:
        lost_gpu_s = min(lost_gpu_s, other.spec.checkpoint.grace_s * other.gpus)
    return lost_gpu_s + ledger.policy.restart_s * other.gpus


def stoppable_at(state: JobState, policy: Policy) -> float:
    """The moment from which the policy lets the present attempt be preempted, in seconds."""
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
    """Whether the claim of another job gives way to a pending one; a claim with a promise never does.

    claimed: what the other job would claim, by default its claim.
    """
    reservation = ledger.reservations.get(other.job)
    if reservation is not None and reservation.promised:
        return False
    return ledger.accounts.outranks(state, other, claimed)


def outranked_claims(
    ledger: Ledger, state: JobState, within_guarantee: bool | None = None
) -> tuple[str, ...]:
    """The jobs whose claims give way to a pending one (`outranks_claim`).

    within_guarantee: whether the job is assumed to be within its guarantee; by default its admission decides.
    """
    reservations, accounts = ledger.reservations, ledger.accounts
    found: Iterable[str] = accounts.giving_way(state)
    if within_guarantee is not None:
        others = (ledger.jobs[job] for job in ledger.claims if job != state.job)
        found = [
            each.job
            for each in others
            if accounts.outranks(state, each, within_guarantee=within_guarantee)
        ]
    return tuple(job for job in found if job not in reservations or not reservations[job].promised)


def claims_taken_over(ledger: Ledger, state: JobState, placement: Placement) -> list[str]:
    """The jobs that lose their claims if a pending one claims a placement: those on its nodes that give way."""
    nodes, claims = placement.nodes.keys(), ledger.claims
    outranked = outranked_claims(ledger, state)
    return [job for job in outranked if not nodes.isdisjoint(claims[job].placement.nodes)]


# ----- the order, as time goes by


def order_key_of(ledger: Ledger, state: JobState, now: float) -> tuple[float, ...]:
    """The order key of a placed gang, as pending jobs are compared with it."""
    return ledger.accounts.order.key(_order_factors(ledger.policy, state, now))


def _order_factors(policy: Policy, state: JobState, now: float) -> OrderFactors:
    """The order factors of a placed gang; where every GPU-second counts, less those of a restart."""
    order_factors = state.order_factors(now)
    if "attained" not in policy.order or policy.attained_levels:
        return order_factors
    margin_gpu_s = policy.restart_s * state.gpus
    return replace(
        order_factors, attained_gpu_s=max(0.0, order_factors.attained_gpu_s - margin_gpu_s)
    )


def lowest_order_key(ledger: Ledger, state: JobState, now: float) -> tuple[float, ...]:
    """The last order key that a placed gang can have before its next demotion; where every GPU-second counts, ever."""
    order_factors = state.order_factors(now)
    if not ledger.policy.attained_levels:
        order_factors = replace(order_factors, attained_gpu_s=inf)
    return ledger.accounts.order.key(order_factors)


def next_demotion(ledger: Ledger, now: float) -> float:
    """The next moment after now, in seconds, at which a gang is demoted a level; inf if there is none."""
    policy = ledger.policy
    if not policy.falls_back or not policy.attained_levels:
        return inf
    moments = (demotions(state, policy.attained_levels, now) for state in ledger.holding.values())
    return min((each[0] for each in moments if each), default=inf)


def outranked_at(ledger: Ledger, state: JobState, other: JobState, now: float) -> float:
    """The moment from which a pending job goes before a placed gang: now, later, or inf.

    Between queues only keys before "share" are compared: shares give no right to preempt.
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
    """Later moments at which a running gang falls behind a pending one, or is demoted, as it is served."""
    if "attained" not in policy.order:
        return []
    levels = policy.attained_levels
    if not levels:
        levels = (state.order_factors(now).attained_gpu_s + policy.restart_s * other.gpus,)
    return demotions(other, levels, now)


def demotions(other: JobState, levels: Iterable[float], now: float) -> list[float]:
    """Later moments at which a running gang will have been served so many GPU-seconds."""
    if other.running_at is None or other.suspended:
        return []
    since = other.running_at + other.slices.suspended_s
    gpus = max(1, other.gpus)
    moments = (
        (level - other.attained_gpu_s) / gpus + since + CROSSING_MARGIN_S
        for level in sorted(levels)
    )
    return [moment for moment in moments if moment > now]
