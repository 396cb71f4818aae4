"""Starts that waiting gangs are told: who gets a reservation, when it is asked for anew, and what breaks it.

The first `Policy.backfill.reservations` gangs in the order that wait for room, or for quota that others use now, each
get one (`planning.reserve`): a promise where all that must end first has enforced limits and no quota is in between,
else an estimate, by learned run times, where that is earlier than anything promised. A promise stays as it is until the
gang starts, or until its moment has come in vain, or its place is lost; the cause is recorded. It becomes better when
what it waits for ends early. An estimate may also give way to a gang that goes before it.

A gang that fits is started whatever it was told: reservations hold room, they do not delay.

A gang to which nobody can tell a start keeps nobody from one: who would not fit if all had left who leave at any time
(it never fits, or nodes are out of use) is left out. For other causes a walk looks in vain a few times at most.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import Enum, auto
from math import inf
from operator import attrgetter

from gantree.core.draft import Draft
from gantree.core.guests import only_at_home
from gantree.core.ledger import Ledger
from gantree.core.state import BOOKING, CLAIM, Booking, JobState
from gantree.core.ways import answers, open_ways
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
    ReservationMade,
)
from gantree.model.jobs import Job
from gantree.model.verdicts import Gate
from gantree.placement.search import fits
from gantree.placement.taste import Taste
from gantree.planning.reserve import Reservation, Running, Timeline, better, slip_of
from gantree.planning.rightsize import chooses
from gantree.policy.admission import Admission
from gantree.policy.order import Line, Position, Standing
from gantree.policy.rules import Policy
from gantree.policy.runtimes import estimated_end
from gantree.topology.occupancy import Occupancy

MANY = 1000
"""Lines that are remembered before those are forgotten in which nobody stands."""
LATE_S = 5.0
"""Seconds by which a start may be late and has not slipped: who is killed in time is reported gone a bit later."""


def running(ledger: Ledger, now: float, *, limits_only: bool) -> Iterator[Running]:
    """Everyone who holds room, with the end that is enforced, or, where not limits_only, the one that is probable."""
    for state in ledger.holding.values():
        latest = _ends_at(ledger, state)
        ends_at = latest if limits_only or state.leaving else _probable_end(ledger, state, now)
        yield Running(state.job, ends_at, latest <= ends_at)
    for job, claim in ledger.claims.items():
        yield Running(CLAIM + job, inf, False, claim.placement.members)
    for job, booking in ledger.bookings.items():
        line = _line(ledger.jobs[job])
        span_s = line.span_s if line.enforced or not limits_only else inf
        ends_at = booking.starts_at + span_s
        place = booking.placement.members
        yield Running(BOOKING + job, ends_at, booking.promised and line.enforced, place)


def _ends_at(ledger: Ledger, state: JobState) -> float:
    """When a gang that holds a place is gone, by what is enforced; inf where that is nothing."""
    if not state.leaving and ledger.accounts.may_suspend(state.spec):
        return inf
    return state.ends_at(ledger.policy.grace_s)


def _probable_end(ledger: Ledger, state: JobState, now: float) -> float:
    """When a gang that holds a place will be gone, by what is learned, guessed or enforced."""
    since = state.placed_at if state.running_at is None else state.running_at
    assert since is not None, f"{state.job} holds no place"
    policy, spec = ledger.policy, state.spec
    left_s = ledger.accounts.guess_s(state, state.work_s(now))
    guess_s = None if left_s is None else left_s - state.done_s
    return estimated_end(since, now, spec.time_limit_s, policy.grace_s, guess_s).ends_at


def reserved(
    ledger: Ledger,
    state: JobState,
    now: float,
    taste: Taste,
    *,
    can_promise: bool = True,
    instead: str | None = None,
) -> Reservation | None:
    """When and where a waiting job starts, as far as can be said now: promised, else estimated; None if neither.

    instead: the job whose reservation would be let go for it.
    """
    gone = (BOOKING + instead,) if instead else ()
    rooms, own = ledger.rooms(), (BOOKING + state.job, CLAIM + state.job, *gone)
    ways = open_ways(ledger, state.spec)
    if can_promise:
        enforced = _others(ledger, now, own, limits_only=True)
        promise = _earliest(Timeline(rooms, enforced, now, own), ways, taste)
        if promise is not None and promise.promised:
            return replace(promise, waits_for=_jobs(promise.waits_for))
    probable = _others(ledger, now, own, limits_only=False)
    admitted = _admitted_at(ledger, state, probable, now)
    if admitted is None:
        return None
    admitted_at, freed_by = admitted
    found = _earliest(Timeline(rooms, probable, admitted_at, own), ways, taste)
    return found and replace(found, promised=False, waits_for=_jobs((*found.waits_for, *freed_by)))


def _earliest(timeline: Timeline, ways: Iterable[Job], taste: Taste) -> Reservation | None:
    """The earliest start of a job in any of its ways, the first of them where several are as early."""
    found: Reservation | None = None
    for way in ways:
        found = better(found, timeline.reserve(way, taste))
    return found


def _jobs(owners: Iterable[str]) -> tuple[str, ...]:
    """The jobs that hold room under these names, each once."""
    return tuple(dict.fromkeys(map(job_of, owners)))


def job_of(owner: str) -> str:
    """The job that holds room under a name: its own, that of its claim or that of its reservation."""
    return owner.removeprefix(CLAIM).removeprefix(BOOKING)


def _as_held(booking: Booking) -> Reservation:
    """A reservation that stands, with all names under which those that it waits for may hold room."""
    names = ("", CLAIM, BOOKING)
    waits_for = tuple(name + job for job in booking.waits_for for name in names)
    return Reservation(booking.starts_at, booking.promised, booking.placement, waits_for)


def _admitted_at(
    ledger: Ledger, state: JobState, others: Iterable[Running], now: float
) -> tuple[float, tuple[str, ...]] | None:
    """From when on a job's queue admits it, if all leave at their ends and nobody comes, and at whose end; None where
    nobody knows.
    """
    accounts, amounts = ledger.accounts, ledger.accounts.asked(state)
    admission = accounts.admission(state, amounts)
    if not admission.refused or admission.reclaim:
        return now, ()
    leaving = [one for one in others if one.ends_at < inf and one.owner in ledger.holding]
    leaving.sort(key=attrgetter("ends_at"))

    def refuses(gone: int) -> bool:
        owners = [one.owner for one in leaving[:gone]]
        return accounts.admission(state, amounts, owners).refused

    first = bisect_left(range(len(leaving) + 1), True, key=lambda gone: not refuses(gone))
    if first > len(leaving):
        return None
    last = leaving[first - 1]
    return max(now, last.ends_at), (last.owner,)


def _others(
    ledger: Ledger, now: float, own: tuple[str, ...], *, limits_only: bool
) -> tuple[Running, ...]:
    everyone = running(ledger, now, limits_only=limits_only)
    return tuple(one for one in everyone if one.owner not in own)


def review(draft: Draft, taste: Taste, ended: frozenset[str]) -> None:
    """Make those anew that do not stand any more, and those better for whom somebody in the way is gone (`ended`)."""
    ledger = draft.ledger
    for job, booking in list(ledger.bookings.items()):
        state = ledger.jobs[job]
        cause = _broken(ledger, job, booking, draft.now)
        if cause:
            draft.record(ReservationDropped(at=draft.now, job=job, reason=cause))
            slips = booking.slips + (booking.starts_at <= draft.now)
            book(draft, state, taste, slips)
        elif not ended.isdisjoint(booking.waits_for):
            _improve(draft, state, booking, taste)


def _broken(ledger: Ledger, job: str, booking: Booking, now: float) -> str:
    """What happened so that a reservation does not stand; "" where it does."""
    due = booking.starts_at + LATE_S <= now
    lost = any(node in ledger.unusable for node in booking.placement.nodes)
    if not due and not lost:
        return ""
    if job in ledger.claims and not lost:
        hangs_on = dict.fromkeys((*ledger.claims[job].victims, *booking.waits_for))
        leaving = [one for one in hangs_on if one in ledger.leaving]
        return f"{', '.join(leaving) or 'what was claimed'} is late to leave"
    slip = slip_of(
        ledger.rooms(),
        BOOKING + job,
        _as_held(booking),
        running(ledger, now, limits_only=booking.promised),
        now,
    )
    if slip is None:
        return "its queue does not admit it" if due else ""
    by = job_of(slip.by)
    if slip.kind == "taken" and _began_late(ledger, by, booking):
        return f"{by} began later than it was to"
    return replace(slip, by=by).sentence


def _began_late(ledger: Ledger, job: str, booking: Booking) -> bool:
    """Whether a gang would be gone by the start of another, did its time limit count from when it was placed."""
    state = ledger.holding.get(job)
    if state is None or state.placed_at is None or state.spec.time_limit_s is None:
        return False
    ends_at = state.placed_at + state.spec.time_limit_s + ledger.policy.grace_s
    return ends_at <= booking.starts_at


def _improve(draft: Draft, state: JobState, booking: Booking, taste: Taste) -> None:
    """An earlier start, now that a gang has ended; never a later one."""
    old = _as_held(booking)
    new = reserved(draft.ledger, state, draft.now, taste, can_promise=booking.promised)
    if new is None or new.starts_at <= draft.now or new.promised < old.promised:
        return
    if better(old, new) is new:
        _record(draft, state, new, booking.slips)


class Outcome(Enum):
    """What came of looking for a start: it was told, the gang fits already, or nobody can say."""

    TOLD = auto()
    FITS_NOW = auto()
    UNKNOWN = auto()


def book(
    draft: Draft, state: JobState, taste: Taste, slips: int = 0, instead: str | None = None
) -> Outcome:
    """Tell a gang that waits for room when it starts, if anybody can say. instead: whose estimate it takes."""
    sure = _is_sure_of_quota(draft.ledger, state)
    found = reserved(draft.ledger, state, draft.now, taste, can_promise=sure, instead=instead)
    if found is None:
        return Outcome.UNKNOWN
    if found.starts_at <= draft.now:
        return Outcome.FITS_NOW
    if instead is not None:
        reason = f"{state.job} goes first"
        draft.record(ReservationDropped(at=draft.now, job=instead, reason=reason))
    _record(draft, state, found, slips)
    return Outcome.TOLD


def _record(draft: Draft, state: JobState, found: Reservation, slips: int) -> None:
    draft.record(
        ReservationMade(
            at=draft.now,
            job=state.job,
            starts_at=found.starts_at,
            promised=found.promised,
            placement=found.placement,
            waits_for=found.waits_for,
            slips=slips,
        )
    )


def _is_sure_of_quota(ledger: Ledger, state: JobState) -> bool:
    """Whether no quota can stand between the job and its start.

    What a queue is owed now it may have used up by then, for jobs that came later; so there are estimates only.
    """
    unbound = not any(rule.cells for rule in ledger.policy.queues)
    return unbound and ledger.accounts.is_unlimited(state.queue)


def first_in_the_way(ledger: Ledger, state: JobState) -> str | None:
    """The last of the estimates that comes after a job: what gives way to it where there are enough."""
    later = [
        job
        for job in ledger.bookings
        if not ledger.bookings[job].promised and ledger.jobs[job].position.key > state.position.key
    ]
    return max(later, key=lambda job: ledger.jobs[job].position, default=None)


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
        line = _line(state)
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


def _line(state: JobState) -> Line:
    assert state.line is not None, f"{state.job} does not wait"
    return state.line


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
