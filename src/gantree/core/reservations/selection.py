"""Who is told a start: the first gangs in the order that wait for room, or for quota that others use now, as many as
`Policy.backfill.reservations` says. Which start that is, and what becomes of it, is `core.reservations.reservations`.

A gang to which nobody can tell a start keeps nobody from one: who would not fit if all had left who leave at any time
(it never fits, or nodes are out of use) is left out. For other causes a walk looks in vain a few times at most.
"""

from math import inf

from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.queue.cell_usage import only_at_home
from gantree.core.queue.job_variants import open_variants, variant_admissions
from gantree.core.reservations.reservations import (
    LATE_S,
    Outcome,
    book,
    first_in_the_way,
    is_sure_of_quota,
    running,
)
from gantree.model.facts import (
    JobAccepted,
    JobReleased,
    JobReprioritised,
    JobRequeued,
    PriorityChanged,
    ReservationDropped,
)
from gantree.model.verdicts import Gate
from gantree.placement.choice.search import fits
from gantree.placement.request.preferences import PlacementPreferences
from gantree.planning.reservations.reserve import Running
from gantree.planning.rightsizing.ranking import chooses
from gantree.policy.quota.admission import Admission
from gantree.topology.occupancy.occupancy import Occupancy


def _room_at_last(ledger: Ledger, now: float) -> Occupancy:
    """What is free when all have left who leave at any time; others have their claims and reservations whole."""
    room, stay = ledger.rooms().copy(), list[Running]()
    for one in running(ledger, now, limits_only=False):
        if one.ends_at < inf or one.place:
            room.give_back(one.owner)
        if one.ends_at == inf and one.place:
            stay.append(one)
    for one in stay:
        room.take_free(one.owner, one.place)
    return room


CAME = (JobAccepted, JobRequeued, JobReleased, JobReprioritised, PriorityChanged)
"""Facts by which a job begins to wait, or to wait further ahead."""


class Desk:
    """Where starts are told, in one pass: to the first that wait for room, as many as the policy says.

    _heads counts how many of them the walk has met, _in_vain for how many more it has found no start that might have
    one. _at_last is the room when all have left who leave at any time, _fits_at_last who would fit there, by signature.
    """

    def __init__(self, ledger: Ledger, preferences: PlacementPreferences) -> None:
        rules = ledger.policy.backfill
        self._most = rules.reservations if rules.overtake == "promised" else 0
        self._preferences = preferences
        self._heads = self._in_vain = 0
        self._at_last: Occupancy | None = None
        self._fits_at_last: dict[int, bool] = {}

    def wants_more(self, ledger: Ledger) -> bool:
        """Whether the next that waits for room is to be told a start, if anybody can say."""
        enough = self._heads >= self._most or self._in_vain >= self._most
        return len(ledger.reservations) < self._most and not enough

    def found_none(self, ledger: Ledger) -> bool:
        """Whether no start was found for somebody: who fits where nobody is may yet be told when, once others have
        taken that room whom the quota admits.
        """
        return self._in_vain > 0 and len(ledger.reservations) < self._most

    def consider(self, builder: DecisionBuilder, state: JobState) -> None:
        """The next in the order still waits: tell it when it starts, if it is one of the first that wait for room."""
        ledger = builder.ledger
        if self._heads >= self._most or state.job in ledger.claims or not ledger.holding:
            return
        if state.job in ledger.reservations:
            self._heads += 1
        elif self._in_vain < self._most and self._has_turn(builder, state):
            self._tell(
                builder, state, first_in_the_way(ledger, state) if self._is_full(ledger) else None
            )

    def _tell(self, builder: DecisionBuilder, state: JobState, instead: str | None = None) -> None:
        """Tell a gang a start, if anybody can say. Whom no time makes room for keeps nobody from one."""
        if instead is None and self._fits_at_last.get(state.signature) is False:
            return
        if book(builder, state, self._preferences, instead=instead) is Outcome.TOLD:
            self._heads += 1
        elif instead is not None or not self._is_too_large(builder, state):
            self._in_vain += 1

    def _is_too_large(self, builder: DecisionBuilder, state: JobState) -> bool:
        """Whether a gang would not fit when all have left who leave at any time; not told where nodes are kept as
        spares: there more free nodes are not always more room.
        """
        ledger = builder.ledger
        if ledger.rooms().spares.any_kept:
            return False
        if self._at_last is None:
            self._at_last = _room_at_last(ledger, builder.now)
        known = self._fits_at_last.get(state.signature)
        if known is None:
            known = any(
                fits(self._at_last, variant) for variant in open_variants(ledger, state.spec)
            )
            self._fits_at_last[state.signature] = known
        return not known

    def _is_full(self, ledger: Ledger) -> bool:
        return len(ledger.reservations) >= self._most

    def _has_turn(self, builder: DecisionBuilder, state: JobState) -> bool:
        """Whether there is a start to be told; where all are, one that has just come may take an estimate's place."""
        ledger = builder.ledger
        if self._is_full(ledger):
            has_come = any(
                isinstance(fact, CAME) and fact.job == state.job for fact in builder.facts
            )
            if not has_come or first_in_the_way(ledger, state) is None:
                return False
        return waits_for_room(ledger, state)


def withdraw(builder: DecisionBuilder) -> None:
    """Take back what was promised by another policy and would not be by this one."""
    ledger, reason = builder.ledger, "its queue's quota may stand before it by another policy"
    for job, reservation in list(ledger.reservations.items()):
        if reservation.promised and not is_sure_of_quota(ledger, ledger.jobs[job]):
            builder.record(ReservationDropped(at=builder.now, job=job, reason=reason))


def next_late(ledger: Ledger, now: float) -> float:
    """The next moment after now at which a reserved start is late, in seconds; inf if there is none."""
    late = (reservation.starts_at + LATE_S for reservation in ledger.reservations.values())
    return min((moment for moment in late if moment > now), default=inf)


def waits_for_room(ledger: Ledger, state: JobState) -> bool:
    """Whether a waiting job would start if only some that run were gone: for want of room, or of quota that they use.

    A limit of its own is no such thing: while its queue uses that up, room that were held for it would be idle; so it
    would where no model is open to it. Nor is room that a gang may not take: one that can never be told to leave stays
    in the cells of its queue.
    """
    if only_at_home(ledger, state):
        return False
    as_written = ledger.accounts.admission(state, ledger.accounts.amounts.asked(state))
    if not _lacks_room(as_written):
        return False
    if not chooses(state.spec) and not ledger.accounts.guarantees.of_models:
        return True
    return any(_lacks_room(admission) for _, admission in variant_admissions(ledger, state))


def _lacks_room(admission: Admission) -> bool:
    used_by_others = admission.gate is Gate.QUOTA and not admission.never
    return not admission.refused or admission.reclaim or used_by_others
