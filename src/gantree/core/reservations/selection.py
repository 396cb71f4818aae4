"""Selects the jobs that get a reservation: the first in policy order that wait for room, or for quota in use elsewhere.

`Policy.backfill.reservations` limits their number. The start and the place of a reservation, and what breaks it, are in
`core.reservations.reservations`.

A job without any possible start does not use up a reservation: it never fits, or it would not fit even when all gangs
with a known end have ended (nodes are out of use). If the search finds no start for another cause, it is repeated for
as many jobs as there may be reservations, and no more.
"""

from collections.abc import Iterable, Sequence
from math import inf

from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.queue.cell_usage import runs_in_cells_only
from gantree.core.queue.job_variants import open_variants, variant_admissions
from gantree.core.reservations.reservations import (
    LATE_S,
    Outcome,
    is_independent_of_quota,
    later_estimates,
    make_reservation,
    running,
)
from gantree.model.facts import (
    Fact,
    JobAccepted,
    JobReleased,
    JobReprioritised,
    JobRequeued,
    PriorityChanged,
    ReservationDropped,
)
from gantree.model.verdicts import Gate
from gantree.placement.choice.search import fits
from gantree.placement.request.placement_preferences import PlacementPreferences
from gantree.planning.reservations.reserve import Running
from gantree.planning.rightsizing.ranking import chooses
from gantree.policy.quota.admission import Admission
from gantree.topology.occupancy.occupancy import Occupancy

ADVANCING_FACTS = (JobAccepted, JobRequeued, JobReleased, JobReprioritised, PriorityChanged)
"""Facts by which a job begins to wait, or may move forward in its queue."""


def advanced_jobs(facts: Iterable[Fact]) -> tuple[str, ...]:
    """The jobs that begin to wait by these facts, or may move forward in their queues."""
    return tuple(dict.fromkeys(fact.job for fact in facts if isinstance(fact, ADVANCING_FACTS)))


class ReservationSelector:
    """Makes the reservations of one pass, in policy order, up to the limit of the policy.

    _reserved counts the jobs with a reservation that the walk has passed, _failures the jobs without one for which no
    start was found although they might fit. _eventual is the occupancy when all gangs with a known end have ended;
    _fits_eventually caches by signature which gangs fit there; _in_vain has those tried in place of estimates.
    """

    def __init__(self, ledger: Ledger, preferences: PlacementPreferences) -> None:
        rules = ledger.policy.backfill
        self._limit = rules.reservations if rules.overtake == "promised" else 0
        self._preferences = preferences
        self._reserved = self._failures = 0
        self._eventual: Occupancy | None = None
        self._fits_eventually: dict[int, bool] = {}
        self._in_vain: set[int] = set()
        self._has_passed_over = False

    def may_reserve_more(self, ledger: Ledger) -> bool:
        """Whether the next job that waits for room may get a reservation."""
        done = self._reserved >= self._limit or self._failures >= self._limit
        return len(ledger.reservations) < self._limit and not done

    def should_retry(self, ledger: Ledger) -> bool:
        """Whether a search failed that may succeed once other jobs have been placed.

        A gang that its quota refuses, but that fits on free room now, has no later start until that room is taken; nor
        has any gang before the first one is placed.
        """
        may_succeed = self._failures > 0 or self._has_passed_over
        return may_succeed and len(ledger.reservations) < self._limit

    def consider(self, builder: DecisionBuilder, state: JobState) -> None:
        """Reserve a start for the next job in policy order, if it is among the first that wait for room."""
        ledger = builder.ledger
        if self._reserved >= self._limit or state.job in ledger.claims:
            return
        is_full = self._is_full(ledger)
        if not ledger.holding:
            self._has_passed_over = True
            return
        if state.job in ledger.reservations:
            self._reserved += 1
        elif self._failures < self._limit and self._may_reserve(builder, state):
            later = later_estimates(ledger, state)
            self._reserve(builder, state, later, replaced=later[-1:] if is_full else ())

    def _reserve(
        self,
        builder: DecisionBuilder,
        state: JobState,
        later: Sequence[str],
        replaced: Sequence[str],
    ) -> None:
        """Make a reservation, if a start is found. A job that cannot fit does not count as a failure.

        A job that has no start beside the later estimates, whose ends are unknown, has one in their place.
        """
        if self._fits_eventually.get(state.signature) is False and (
            not later or state.signature in self._in_vain
        ):
            return
        outcome = make_reservation(builder, state, self._preferences, replaced=replaced)
        if outcome is Outcome.NO_START and later:
            outcome = make_reservation(builder, state, self._preferences, replaced=later)
            self._in_vain.add(state.signature)
        if outcome is Outcome.RESERVED:
            self._reserved += 1
        elif replaced or self._may_fit_eventually(builder, state):
            self._failures += 1

    def _may_fit_eventually(self, builder: DecisionBuilder, state: JobState) -> bool:
        """Whether a gang fits when all gangs with a known end have ended.

        Not tested where nodes are kept as spares: there, more free nodes may mean less room.
        """
        ledger = builder.ledger
        if ledger.rooms().spares.any_kept:
            return True
        if self._eventual is None:
            self._eventual = _eventual_occupancy(ledger, builder.now)
        known = self._fits_eventually.get(state.signature)
        if known is None:
            variants = open_variants(ledger, state.spec)
            known = any(fits(self._eventual, variant) for variant in variants)
            self._fits_eventually[state.signature] = known
        return known

    def _is_full(self, ledger: Ledger) -> bool:
        return len(ledger.reservations) >= self._limit

    def _may_reserve(self, builder: DecisionBuilder, state: JobState) -> bool:
        """Whether a job may get a reservation. At the limit, one that has just advanced may replace an estimate."""
        ledger = builder.ledger
        if self._is_full(ledger):
            has_advanced = state.job in advanced_jobs(builder.facts)
            if not has_advanced or not later_estimates(ledger, state):
                return False
        return waits_for_room(ledger, state)


def _eventual_occupancy(ledger: Ledger, now: float) -> Occupancy:
    """The occupancy when all gangs with a known end have ended; the others have their whole claims and reservations."""
    room, stay = ledger.rooms().copy(), list[Running]()
    for one in running(ledger, now, limits_only=False):
        if one.ends_at < inf or one.place:
            room.give_back(one.owner)
        if one.ends_at == inf and one.place:
            stay.append(one)
    for one in stay:
        room.take_free(one.owner, one.place)
    return room


def drop_unfounded_promises(builder: DecisionBuilder) -> None:
    """Drop the promises of an earlier policy that this one would not make."""
    ledger, reason = builder.ledger, "its queue's quota may stand before it by another policy"
    for job, reservation in list(ledger.reservations.items()):
        if reservation.promised and not is_independent_of_quota(ledger, ledger.jobs[job]):
            builder.record(ReservationDropped(at=builder.now, job=job, reason=reason))


def next_overdue(ledger: Ledger, now: float) -> float:
    """The next moment after now at which a reserved start becomes overdue, in seconds; inf if there is none."""
    overdue = (reservation.starts_at + LATE_S for reservation in ledger.reservations.values())
    return min((moment for moment in overdue if moment > now), default=inf)


def waits_for_room(ledger: Ledger, state: JobState) -> bool:
    """Whether a pending job waits for room or quota that running gangs hold.

    Not if a limit of its own queue refuses it, or no GPU model is open to it: reserved room would be idle. Nor if it
    may run in the cells of its queue only.
    """
    if runs_in_cells_only(ledger, state):
        return False
    as_written = ledger.accounts.admission(state, ledger.accounts.amounts.requested(state))
    if not _may_be_admitted(as_written):
        return False
    if not chooses(state.spec) and not ledger.accounts.guarantees.of_models:
        return True
    return any(_may_be_admitted(admission) for _, admission in variant_admissions(ledger, state))


def _may_be_admitted(admission: Admission) -> bool:
    """Whether a queue admits a job, or would if other gangs were gone."""
    used_by_others = admission.gate is Gate.QUOTA and not admission.never
    return not admission.refused or admission.reclaim or used_by_others
