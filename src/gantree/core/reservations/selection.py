"""Who is told a start: the first gangs in the order that wait for room, or for quota that others use now, as many as
`Policy.backfill.reservations` says. Which start that is, and what becomes of it, is `core.reservations.reservations`.

A gang to which nobody can tell a start keeps nobody from one: who would not fit if all had left who leave at any time
(it never fits, or nodes are out of use) is left out. For other causes a walk looks in vain a few times at most.
"""

from math import inf

from gantree.core.ledger.decision_builder import Draft
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.queue.cell_usage import only_at_home
from gantree.core.queue.job_variants import answers, open_ways
from gantree.core.reservations.reservations import (
    LATE_S,
    Outcome,
    book,
    first_in_the_way,
    is_sure_of_quota,
    line_of,
    review,
    running,
)
from gantree.model.facts import (
    AttemptEnded,
    JobAccepted,
    JobEnded,
    JobHeld,
    JobReleased,
    JobReprioritised,
    JobRequeued,
    PriorityChanged,
    ReservationDropped,
)
from gantree.model.verdicts import Gate
from gantree.placement.choice.search import fits
from gantree.placement.request.preferences import Taste
from gantree.planning.reserve import Running
from gantree.planning.rightsize import chooses
from gantree.policy.admission import Admission
from gantree.policy.order import Line, Position, Standing
from gantree.policy.rules import Policy
from gantree.topology.occupancy.occupancy import Occupancy

MANY = 1000
"""Lines that are remembered before those are forgotten in which nobody stands."""


class AtLast:
    """The room when all have left who leave at any time, and who would not fit even there: no start is told to them.

    True until anything is decided or time passes.
    """

    def __init__(self) -> None:
        self._at = (-1, 0.0)
        self._room: Occupancy | None = None
        self._fits: dict[int, bool] = {}

    def is_too_small(self, ledger: Ledger, state: JobState, now: float) -> bool:
        """Whether a gang would not fit there; not told where nodes are kept as spares: there more free nodes are not
        always more room.
        """
        if ledger.rooms().keeps_spares:
            return False
        if self._room is None or self._at != (ledger.applied, now):
            self._at, self._room = (ledger.applied, now), _room_at_last(ledger, now)
            self._fits.clear()
        known = self._fits.get(state.signature)
        if known is None:
            known = any(fits(self._room, way) for way in open_ways(ledger, state.spec))
            self._fits[state.signature] = known
        return not known


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


OUT_OF_THE_WAY = (AttemptEnded, JobEnded, JobHeld)
"""Facts by which a job needs no room any more, or none it was to have."""
CAME = (JobAccepted, JobRequeued, JobReleased, JobReprioritised, PriorityChanged)
"""Facts by which a job begins to wait, or to wait further ahead."""


class Desk:
    """Where starts are told: to the first that wait for room, as many as the policy says.

    _heads counts how many of them a walk has met, _in_vain for how many more it has found no start that might have
    one. Who is left out is known before a start is looked for where somebody was left out in this walk, or in the one
    before (_left_out). _other_things are the lines of which those from a position on wait for other things than room,
    with what must not have changed since.
    """

    def __init__(self, policy: Policy, taste: Taste) -> None:
        rules = policy.backfill
        self._most = rules.reservations if rules.overtake == "promised" else 0
        self._taste = taste
        self._heads = self._in_vain = 0
        self._at_last = AtLast()
        self._looks_at_last = self._left_out = False
        self._other_things: dict[Line, tuple[Position, object]] = {}
        self._most_lines = MANY
        self._has_begun = False

    def begin(self, draft: Draft) -> None:
        """Take back, before its first decision, what was promised by another policy and would not be by this one."""
        if self._has_begun:
            return
        self._has_begun = True
        ledger, reason = draft.ledger, "its queue's quota may stand before it by another policy"
        for job, booking in list(ledger.bookings.items()):
            if booking.promised and not is_sure_of_quota(ledger, ledger.jobs[job]):
                draft.record(ReservationDropped(at=draft.now, job=job, reason=reason))

    def open(self, ledger: Ledger) -> None:
        """A walk begins."""
        self._heads = self._in_vain = 0
        self._looks_at_last, self._left_out = self._left_out, False

    def wants_more(self, ledger: Ledger) -> bool:
        """Whether the next that waits for room is to be told a start, if anybody can say."""
        enough = self._heads >= self._most or self._in_vain >= self._most
        return len(ledger.bookings) < self._most and not enough

    def found_none(self, ledger: Ledger) -> bool:
        """Whether the walk has found no start for somebody: who fits where nobody is may yet be told when, once others
        have taken that room whom the quota admits.
        """
        return self._in_vain > 0 and len(ledger.bookings) < self._most

    def consider(self, draft: Draft, state: JobState) -> None:
        """The next in the order still waits: tell it when it starts, if it is one of the first that wait for room."""
        ledger = draft.ledger
        if self._heads >= self._most or state.job in ledger.claims or not ledger.holding:
            return
        if state.job in ledger.bookings:
            self._heads += 1
        elif self._in_vain < self._most:
            is_full = self._is_full(ledger)
            if not is_full and self._looks_at_last and self._is_left_out(draft, state):
                return
            if self._has_turn(draft, state):
                self._tell(draft, state, first_in_the_way(ledger, state) if is_full else None)

    def _tell(self, draft: Draft, state: JobState, instead: str | None = None) -> None:
        """Tell a gang a start, if anybody can say."""
        outcome = book(draft, state, self._taste, instead=instead)
        if outcome is Outcome.TOLD:
            self._heads += 1
        elif outcome is Outcome.FITS_NOW or instead or not self._is_left_out(draft, state):
            self._in_vain += 1

    def _is_left_out(self, draft: Draft, state: JobState) -> bool:
        """Whether no time makes room for a gang."""
        is_left_out = self._at_last.is_too_small(draft.ledger, state, draft.now)
        self._left_out = self._left_out or is_left_out
        self._looks_at_last = self._looks_at_last or is_left_out
        return is_left_out

    def _is_full(self, ledger: Ledger) -> bool:
        return len(ledger.bookings) >= self._most

    def _has_turn(self, draft: Draft, state: JobState) -> bool:
        """Whether there is a start to be told; where all are, one that has just come may take an estimate's place."""
        ledger = draft.ledger
        if self._is_full(ledger):
            has_come = any(isinstance(fact, CAME) and fact.job == state.job for fact in draft.facts)
            if not has_come or first_in_the_way(ledger, state) is None:
                return False
        line = line_of(state)
        if self.waits_for_other_things(ledger, Standing(state.position, line)):
            return False
        waits = waits_for_room(ledger, state)
        if not waits:
            self._forget_lines(ledger)
            self._other_things[line] = (state.position, _freed(ledger, line))
        return waits

    def _forget_lines(self, ledger: Ledger) -> None:
        """Forget what is known of lines in which nobody stands, whenever twice as many are known as there were."""
        known = self._other_things
        if len(known) > self._most_lines:
            self._other_things = {line: known[line] for line in known if line in ledger.lines}
            self._most_lines = MANY + 2 * len(self._other_things)

    def waits_for_other_things(self, ledger: Ledger, standing: Standing) -> bool:
        """Whether a job is known to lack something else than room: its queue has used up its limit.

        Who comes later in its line lacks it, too, until something is given back or a claim lost: all else only takes.
        """
        position, line = standing
        known = self._other_things.get(line)
        return known is not None and known[0] <= position and known[1] == _freed(ledger, line)

    def review(self, draft: Draft) -> bool:
        """After the walk: make anew what does not stand, and better what can be; whether anything has changed."""
        if not draft.ledger.bookings:
            return False
        before = len(draft.facts)
        ended = [fact.job for fact in draft.facts if isinstance(fact, OUT_OF_THE_WAY)]
        review(draft, self._taste, frozenset(ended))
        return len(draft.facts) > before

    def wake_at(self, ledger: Ledger, now: float) -> float:
        """The next moment after now at which a reserved start is late, in seconds; inf if there is none."""
        late = (booking.starts_at + LATE_S for booking in ledger.bookings.values())
        return min((moment for moment in late if moment > now), default=inf)


def _freed(ledger: Ledger, line: Line) -> object:
    """What is different whenever the queue of a line may admit more."""
    return ledger.accounts.freed(line.queue), ledger.accounts.claims_lost()


def waits_for_room(ledger: Ledger, state: JobState) -> bool:
    """Whether a waiting job would start if only some that run were gone: for want of room, or of quota that they use.

    A limit of its own is no such thing: while its queue uses that up, room that were held for it would be idle; so it
    would where no model is open to it. Nor is room that a gang may not take: one that can never be told to leave stays
    in the cells of its queue.
    """
    if only_at_home(ledger, state):
        return False
    as_written = ledger.accounts.admission(state, ledger.accounts.asked(state))
    if not _lacks_room(as_written):
        return False
    if not chooses(state.spec) and not ledger.accounts.rations_models:
        return True
    return any(_lacks_room(admission) for _, admission in answers(ledger, state))


def _lacks_room(admission: Admission) -> bool:
    used_by_others = admission.gate is Gate.QUOTA and not admission.never
    return not admission.refused or admission.reclaim or used_by_others
