"""What is decided as budgets of queues are used: levels are noted, queues close and open, running gangs save and stop.

A level is reached by time alone, so it is looked for at moments: a budget is reviewed when one of its gangs has started
or ended, and at the next moment at which its level would change at the present rate. What is found becomes a fact
(`BudgetNoted`), and the rest of the scheduler reads facts only.

A queue that closes gives up the room that it claims or that is reserved for it. Where the policy says "stop", its
running gangs are asked to save first; they wait again and go on once there is more. No eviction counts for that.
"""

from collections.abc import Iterator
from math import inf

from gantree.core.ledger.accounts.budgets import BudgetKey
from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.lifecycle.lifecycle import save_then_stop
from gantree.model.budget_facts import BudgetNoted
from gantree.model.facts import (
    AttemptEnded,
    ClaimDropped,
    Fact,
    GangPlaced,
    GangResumed,
    GangSuspended,
    ReservationDropped,
)
from gantree.model.phases import Phase, StopCause
from gantree.policy.budgets import BudgetUse

CHANGES_RATE: tuple[type[Fact], ...] = (GangPlaced, AttemptEnded, GangSuspended, GangResumed)
"""Facts after which a queue consumes more or less in a second."""
UNDER_WAY = (Phase.STARTING, Phase.RUNNING)


class BudgetReviews:
    """When the budgets of a ledger are reviewed next. Derived from the ledger, so it can be rebuilt at any time."""

    def __init__(self, ledger: Ledger, now: float) -> None:
        self._ledger = ledger
        self._next_of: dict[BudgetKey, float] = {}
        for key in ledger.accounts.budgets.of_key:
            self._plan(key, now)

    def next_moment(self) -> float | None:
        """The moment of the next review, in seconds; None if there is none."""
        moment = min(self._next_of.values(), default=inf)
        return None if moment == inf else moment

    def review_due(self, builder: DecisionBuilder) -> None:
        """Review the budgets whose moment has come."""
        due = [key for key, moment in self._next_of.items() if moment <= builder.now]
        for key in due:
            review(builder, key)
            self._plan(key, builder.now)

    def update(self, builder: DecisionBuilder) -> None:
        """Plan anew the reviews of budgets of which a decision has changed the rate."""
        if not self._next_of:
            return
        jobs = (fact.job for fact in builder.facts if isinstance(fact, CHANGES_RATE))  # type: ignore[attr-defined]  # they are about jobs
        states = (self._ledger.jobs.get(job) for job in jobs)
        queues = dict.fromkeys(state.spec.queue for state in states if state is not None)
        budgets = self._ledger.accounts.budgets
        for key in dict.fromkeys(key for queue in queues for key in budgets.over(queue)):
            self._plan(key, builder.now)

    def _plan(self, key: BudgetKey, now: float) -> None:
        use = self._ledger.accounts.budgets.use(key, now)
        is_due = _differs(self._ledger, key, use) or any(_gangs_to_stop(self._ledger, key, use))
        self._next_of[key] = now if is_due else use.next_change


def review(builder: DecisionBuilder, key: BudgetKey) -> None:
    """Note what has changed of a budget, and act on it."""
    ledger = builder.ledger
    use = ledger.accounts.budgets.use(key, builder.now)
    if _differs(ledger, key, use):
        builder.record(
            BudgetNoted(
                at=builder.now,
                queue=key.queue,
                period=use.budget.period,
                unit=use.budget.unit,
                amount=use.budget.amount,
                used=use.used,
                level=use.level,
                closed=use.is_closed,
                ends_at=None if use.ends_at == inf else use.ends_at,
            )
        )
        if use.is_closed:
            _release_held_room(builder, key.queue)
    for state in list(_gangs_to_stop(ledger, key, use)):
        save_then_stop(builder, state, StopCause.BUDGET, ledger.policy)


def _differs(ledger: Ledger, key: BudgetKey, use: BudgetUse) -> bool:
    """Whether what was noted of a budget is no longer true. A new period without any use is noted after one with."""
    noted, budget = ledger.accounts.budgets.noted.get(key), use.budget
    found = use.level, use.is_closed
    if noted is None:
        return found != (0.0, False)
    ends_at = None if use.ends_at == inf else use.ends_at
    is_the_same = (noted.ends_at, noted.amount, noted.unit) == (ends_at, budget.amount, budget.unit)
    recorded = noted.level, noted.closed
    return found != recorded if is_the_same else (found, recorded) != ((0.0, False), (0.0, False))


def _gangs_to_stop(ledger: Ledger, key: BudgetKey, use: BudgetUse) -> Iterator[JobState]:
    """The gangs that run although their budget is used up and its policy stops them."""
    if use.budget.at_limit == "stop" and use.is_used_up:
        for state in ledger.holding.values():
            if state.phase in UNDER_WAY and _is_in(state, key.queue):
                yield state


def _release_held_room(builder: DecisionBuilder, queue: str) -> None:
    """Drop the claims and reservations of jobs that may not start any more; gangs that move keep theirs."""
    ledger, reason = builder.ledger, f"the budget of queue {queue} is used up"
    for job in list(ledger.claims):
        state = ledger.jobs[job]
        if _is_in(state, queue) and state.moving is None:
            builder.record(ClaimDropped(at=builder.now, job=job, reason=reason))
    for job in list(ledger.reservations):
        if _is_in(ledger.jobs[job], queue):
            builder.record(ReservationDropped(at=builder.now, job=job, reason=reason))


def _is_in(state: JobState, queue: str) -> bool:
    return f"{state.spec.queue}/".startswith(f"{queue}/")
