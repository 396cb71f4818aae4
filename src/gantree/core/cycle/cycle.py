"""The scheduling cycle: passes over the pending jobs, and what comes before and after their walk.

A pass does, in this order:

    claims        start claimants whose room is free, drop claims that cannot be met (`core.cycle.claim_admission`)
    gangs         replace missing members; gangs leave drained nodes; gangs go to the cells of their queue
    reservations  replace broken ones before any job behind them is considered
    walk          the pending jobs in policy order (`core.cycle.scheduling_pass`)
    moves         gangs leave degraded links for what is left (`core.cycle.leaving_degraded`)
    growth        elastic gangs grow into what is left then (`core.cycle.growth`)

The work of a pass is bounded. At its limit of preemption plans it leaves a cursor: the next pass continues with its
refusals, if nothing has changed meanwhile. Room that is freed within a pass is used by the next one. In both cases the
scheduler asks to be called again at once. Each pass records facts or moves the cursor, so the passes of one moment end.

A complete pass that frees nothing leaves the cycle parked (`core.cycle.parking`).
"""

from dataclasses import dataclass
from math import inf

from gantree.core.cycle.cell_plans import CellPlans
from gantree.core.cycle.cell_scheduling import CellScheduler
from gantree.core.cycle.claim_admission import ClaimAdmission
from gantree.core.cycle.drain import drain
from gantree.core.cycle.growth import grow
from gantree.core.cycle.leaving_degraded import leave_degraded
from gantree.core.cycle.moves import move_as_planned, move_as_requested
from gantree.core.cycle.parking import (
    ARRIVAL_FACTS,
    AffectsOthers,
    ArrivalsBuilder,
    Parked,
    are_neutral,
    freed_versions,
    next_moment,
    refusal_versions,
)
from gantree.core.cycle.prefilter import Prefilter
from gantree.core.cycle.priority_boosts import end_boosts
from gantree.core.cycle.scheduling_pass import SchedulingPass
from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.ledger import Ledger
from gantree.core.lifecycle.arrays import split_elements
from gantree.core.lifecycle.replacing import replace_missing
from gantree.core.queue.heads import FeasibilityCache
from gantree.core.queue.job_variants import JobVariants
from gantree.core.queue.slot_demands import SlotDemands
from gantree.core.reservations.reservations import review
from gantree.core.reservations.selection import (
    ReservationSelector,
    advanced_jobs,
    drop_unfounded_promises,
)
from gantree.model.facts import AttemptEnded
from gantree.placement.request.placement_preferences import PlacementPreferences
from gantree.policy.rules import Policy


@dataclass(frozen=True, slots=True)
class _Cursor:
    """A pass that stopped at its limit. It continues if no fact has been applied since, at the same moment."""

    stopped: SchedulingPass
    applied: int
    now: float


class Cycle:
    """The passes of one scheduler. _demands, _feasibility and _variants are caches over jobs and the fabric.

    _full_on_arrival: whether an arrival may change what happens to other jobs: in strict order, and with cells.
    """

    def __init__(self, policy: Policy, preferences: PlacementPreferences) -> None:
        self._policy = policy
        self._preferences = preferences
        in_strict_order = policy.backfill.overtake == "none"
        self._full_on_arrival = in_strict_order or any(rule.cells for rule in policy.queues)
        cell_plans = CellPlans(preferences)
        self._cells = CellScheduler(policy, cell_plans)
        self._claims = ClaimAdmission(cell_plans, preferences)
        self._demands, self._feasibility = SlotDemands(), FeasibilityCache()
        self._variants = JobVariants()
        self._cursor: _Cursor | None = None
        self._parked: Parked | None = None

    def run(self, builder: DecisionBuilder) -> None:
        """Make one pass, unless the cycle is parked and arrivals change nothing for others."""
        if builder.ledger.occupancy is None:
            return
        split_elements(builder)
        is_parked = self._is_parked(builder) and not self._admits_claims(builder)
        if not is_parked or self._affected_by_arrivals(builder):
            self._run_pass(builder)

    def wake_at(self, ledger: Ledger, now: float) -> float | None:
        """The next moment at which time alone may change a decision; now, if another pass is needed."""
        if ledger.occupancy is None:
            return None
        if self._parked is None:
            return now
        return None if self._parked.until == inf else self._parked.until

    # ----- full passes

    def _run_pass(self, builder: DecisionBuilder) -> None:
        """Make a pass from the top, or continue the one that stopped."""
        ledger, placings = builder.ledger, builder.ledger.placings
        move_as_planned(builder, self._preferences)
        current = self._begin_or_continue(builder)
        applied, before = ledger.applied, (refusal_versions(ledger), freed_versions(ledger))
        refusals = current.prefilter.refusals
        if not current.walk(builder):
            if ledger.applied == applied:
                has_refused = current.prefilter.refusals > refusals
                assert has_refused, "a pass neither decided nor refused anything"
                self._cursor = _Cursor(current, applied, builder.now)
            return
        self._claims.admit(builder, after_walk=True)
        moved = move_as_requested(builder, self._preferences)
        moved = leave_degraded(builder, self._preferences) or moved
        grow(builder, self._preferences)
        retries = ledger.placings > placings and current.selector.should_retry(ledger)
        unchanged = before == (refusal_versions(ledger), freed_versions(ledger))
        if unchanged and not moved and not retries:
            self._park(builder, current)

    def _begin_or_continue(self, builder: DecisionBuilder) -> SchedulingPass:
        """The pass that stopped, if nothing has changed; else a new one, after what comes before its walk."""
        cursor, self._cursor, self._parked = self._cursor, None, None
        if cursor is not None and (cursor.applied, cursor.now) == (
            builder.ledger.applied,
            builder.now,
        ):
            cursor.stopped.plans = 0
            return cursor.stopped
        self._prepare(builder)
        return self._new_pass(builder)

    def _prepare(self, builder: DecisionBuilder) -> None:
        """What comes before any pending job is considered."""
        end_boosts(builder)
        drop_unfounded_promises(builder)
        self._claims.admit(builder)
        replace_missing(builder, self._preferences)
        drain(builder, self._preferences)
        self._cells.run(builder)
        while any(map(builder.ledger.is_used_up, builder.ledger.unsplit)):
            split_elements(builder)
            self._cells.run(builder)
        review(builder, self._preferences)

    def _new_pass(
        self, builder: DecisionBuilder, only: frozenset[str] | None = None
    ) -> SchedulingPass:
        """A pass over all pending jobs, or over these only."""
        return SchedulingPass(
            self._policy,
            self._preferences,
            self._claims,
            self._demands,
            self._variants,
            self._prefilter(builder, only),
            ReservationSelector(builder.ledger, self._preferences),
        )

    def _prefilter(self, builder: DecisionBuilder, only: frozenset[str] | None) -> Prefilter:
        advanced = advanced_jobs(builder.facts)
        return Prefilter(
            builder.ledger, builder.now, self._demands, self._feasibility, only, advanced
        )

    # ----- while parked

    def _is_parked(self, builder: DecisionBuilder) -> bool:
        """Whether only arrivals need to be considered."""
        ledger, facts = builder.ledger, builder.facts
        if self._parked is None or builder.moves_for:
            return False
        if self._full_on_arrival and any(isinstance(fact, ARRIVAL_FACTS) for fact in facts):
            return False
        return are_neutral(ledger, facts) and self._parked.is_valid(ledger, builder.now)

    def _admits_claims(self, builder: DecisionBuilder, *, after_walk: bool = False) -> bool:
        """Whether a claim was met or dropped, now that a gang has left."""
        facts = len(builder.facts)
        if any(isinstance(fact, AttemptEnded) for fact in builder.facts):
            self._claims.admit(builder, after_walk=after_walk)
        return len(builder.facts) > facts

    def _affected_by_arrivals(self, builder: DecisionBuilder) -> bool:
        """Consider the jobs that have just arrived: whether other jobs have to be considered before one is decided."""
        assert self._parked is not None
        jobs = [fact.job for fact in builder.facts if isinstance(fact, ARRIVAL_FACTS)]
        if not jobs:
            return False
        current, until = self._new_pass(builder, frozenset(jobs)), self._parked.until
        current.waits_for_quota = self._parked.waits_for_quota
        try:
            is_complete = current.walk(ArrivalsBuilder(builder, self._policy))
        except AffectsOthers:
            return True
        if not is_complete or self._admits_claims(builder, after_walk=True):
            return True
        self._park(builder, current, until)
        return False

    def _park(self, builder: DecisionBuilder, current: SchedulingPass, until: float = inf) -> None:
        """Park the cycle until something changes or a moment comes, `until` at the latest."""
        ledger = builder.ledger
        until = next_moment(ledger, builder.now, (until, *current.moments))
        self._parked = Parked(
            refusal_versions(ledger), freed_versions(ledger), current.waits_for_quota, until
        )
