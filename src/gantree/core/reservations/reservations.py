"""Starts that waiting gangs are told: when and where, what becomes of them, and what breaks them.

A start (`planning.reservations.reserve`) is a promise where all that must end first has enforced limits and no quota is
in between, else an estimate, by learned run times, where that is earlier than anything promised. A promise stays as it
is until the gang starts, or until its moment has come in vain, or its place is lost; the cause is recorded. It becomes
better when what it waits for ends early, and so do those behind it. An estimate may also give way to a gang that goes
before it.

A gang that fits is started whatever it was told: reservations hold room, they do not delay.

Who is told one is `core.reservations.selection`.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import Enum, auto
from math import inf
from operator import attrgetter

from gantree.core.ledger.apply.held_room import behind_in_row
from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import CLAIM, RESERVATION, JobState, Reservation
from gantree.core.queue.job_variants import open_variants
from gantree.model.facts import (
    AttemptEnded,
    JobEnded,
    JobHeld,
    ReservationDropped,
    ReservationMade,
)
from gantree.model.jobs import Job
from gantree.placement.request.preferences import PlacementPreferences
from gantree.planning.reservations.reserve import PlannedStart, Running, Timeline, better, slip_of
from gantree.policy.runtimes import estimated_end
from gantree.policy.waiting_jobs import EquivalenceClass

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
    for job, reservation in ledger.reservations.items():
        eq_class = equivalence_class_of(ledger.jobs[job])
        span_s = eq_class.span_s if eq_class.enforced or not limits_only else inf
        ends_at = reservation.starts_at + span_s
        place = reservation.placement.members
        yield Running(RESERVATION + job, ends_at, reservation.promised and eq_class.enforced, place)


def _ends_at(ledger: Ledger, state: JobState) -> float:
    """When a gang that holds a place is gone, by what is enforced; inf where that is nothing."""
    if not state.leaving and ledger.accounts.run_times.may_suspend(state.spec):
        return inf
    return state.ends_at(ledger.policy.grace_s)


def _probable_end(ledger: Ledger, state: JobState, now: float) -> float:
    """When a gang that holds a place will be gone, by what is learned, guessed or enforced."""
    since = state.placed_at if state.running_at is None else state.running_at
    assert since is not None, f"{state.job} holds no place"
    policy, spec = ledger.policy, state.spec
    left_s = ledger.accounts.run_times.guess_s(state, state.work_s(now))
    guess_s = None if left_s is None else left_s - state.done_s
    return estimated_end(since, now, spec.time_limit_s, policy.grace_s, guess_s).ends_at


def reserved(
    ledger: Ledger,
    state: JobState,
    now: float,
    preferences: PlacementPreferences,
    *,
    can_promise: bool = True,
    without: Iterable[str] = (),
) -> PlannedStart | None:
    """When and where a waiting job starts, as far as can be said now: promised, else estimated; None if neither.

    without: the jobs whose reservations do not count.
    """
    gone = (RESERVATION + job for job in without)
    rooms, own = ledger.rooms(), (RESERVATION + state.job, CLAIM + state.job, *gone)
    variants = open_variants(ledger, state.spec)
    if can_promise:
        enforced = _others(ledger, now, own, limits_only=True)
        promise = _earliest(Timeline(rooms, enforced, now, own), variants, preferences)
        if promise is not None and promise.promised:
            return replace(promise, waits_for=_jobs(promise.waits_for))
    probable = _others(ledger, now, own, limits_only=False)
    admitted = _admitted_at(ledger, state, probable, now)
    if admitted is None:
        return None
    admitted_at, freed_by = admitted
    found = _earliest(Timeline(rooms, probable, admitted_at, own), variants, preferences)
    return found and replace(found, promised=False, waits_for=_jobs((*found.waits_for, *freed_by)))


def _earliest(
    timeline: Timeline, variants: Iterable[Job], preferences: PlacementPreferences
) -> PlannedStart | None:
    """The earliest start of a job in any of its variants, the first of them where several are as early."""
    found: PlannedStart | None = None
    for variant in variants:
        found = better(found, timeline.reserve(variant, preferences))
    return found


def _jobs(owners: Iterable[str]) -> tuple[str, ...]:
    """The jobs that hold room under these names, each once."""
    return tuple(dict.fromkeys(map(job_of, owners)))


def job_of(owner: str) -> str:
    """The job that holds room under a name: its own, that of its claim or that of its reservation."""
    return owner.removeprefix(CLAIM).removeprefix(RESERVATION)


def _as_held(reservation: Reservation) -> PlannedStart:
    """A reservation that stands, with all names under which those that it waits for may hold room."""
    names = ("", CLAIM, RESERVATION)
    waits_for = tuple(name + job for job in reservation.waits_for for name in names)
    return PlannedStart(
        reservation.starts_at, reservation.promised, reservation.placement, waits_for
    )


def _admitted_at(
    ledger: Ledger, state: JobState, others: Iterable[Running], now: float
) -> tuple[float, tuple[str, ...]] | None:
    """From when on a job's queue admits it, if all leave at their ends and nobody comes, and at whose end; None where
    nobody knows.
    """
    accounts, amounts = ledger.accounts, ledger.accounts.amounts.asked(state)
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


OUT_OF_THE_WAY = (AttemptEnded, JobEnded, JobHeld)
"""Facts by which a job needs no room any more, or none it was to have."""


def review(builder: DecisionBuilder, preferences: PlacementPreferences) -> None:
    """Make those anew that do not stand any more, and those better for whom somebody in the way is gone by now, or
    starts earlier.
    """
    ledger = builder.ledger
    ended = frozenset(fact.job for fact in builder.facts if isinstance(fact, OUT_OF_THE_WAY))
    for job, reservation in list(ledger.reservations.items()):
        state = ledger.jobs[job]
        cause = _broken(ledger, job, reservation, builder.now)
        if cause:
            builder.record(ReservationDropped(at=builder.now, job=job, reason=cause))
            slips = reservation.slips + (reservation.starts_at <= builder.now)
            book(builder, state, preferences, slips)
        elif not ended.isdisjoint(reservation.waits_for):
            facts = len(builder.facts)
            _improve(builder, state, reservation, preferences)
            ended |= {job} if len(builder.facts) > facts else set()


def _broken(ledger: Ledger, job: str, reservation: Reservation, now: float) -> str:
    """What happened so that a reservation does not stand; "" where it does."""
    due = reservation.starts_at + LATE_S <= now
    lost = any(node in ledger.unusable for node in reservation.placement.nodes)
    if not due and not lost:
        return ""
    claimed_from = ledger.claims[job].victims if job in ledger.claims else ()
    leaving = [
        x for x in dict.fromkeys((*claimed_from, *reservation.waits_for)) if x in ledger.leaving
    ]
    if (leaving or job in ledger.claims) and not lost:
        return f"{', '.join(leaving) or 'what was claimed'} is late to leave"
    slip = slip_of(
        ledger.rooms(),
        RESERVATION + job,
        _as_held(reservation),
        running(ledger, now, limits_only=reservation.promised),
        now,
    )
    if slip is None:
        return "its queue does not admit it" if due else ""
    by = job_of(slip.by)
    if slip.kind == "taken" and _began_late(ledger, by, reservation):
        return f"{by} began later than it was to"
    return replace(slip, by=by).sentence


def _began_late(ledger: Ledger, job: str, reservation: Reservation) -> bool:
    """Whether a gang would be gone by the start of another, did its time limit count from when it was placed."""
    state = ledger.holding.get(job)
    if state is None or state.placed_at is None or state.spec.time_limit_s is None:
        return False
    ends_at = state.placed_at + state.spec.time_limit_s + ledger.policy.grace_s
    return ends_at <= reservation.starts_at


def _improve(
    builder: DecisionBuilder,
    state: JobState,
    reservation: Reservation,
    preferences: PlacementPreferences,
) -> None:
    """An earlier start, now that a gang has ended; never a later one.

    Those who wait for it are not in its way: they start when it would have left anyway, and so when it leaves earlier.
    """
    ledger, old = builder.ledger, _as_held(reservation)
    behind = behind_in_row(ledger, state.job)
    new = reserved(
        ledger, state, builder.now, preferences, can_promise=reservation.promised, without=behind
    )
    if new is None or new.starts_at <= builder.now or new.promised < old.promised:
        return
    if better(old, new) is new:
        _record(builder, state, new, reservation.slips)


class Outcome(Enum):
    """What came of looking for a start: it was told, the gang fits already, or nobody can say."""

    TOLD = auto()
    FITS_NOW = auto()
    UNKNOWN = auto()


def book(
    builder: DecisionBuilder,
    state: JobState,
    preferences: PlacementPreferences,
    slips: int = 0,
    instead: str | None = None,
) -> Outcome:
    """Tell a gang that waits for room when it starts, if anybody can say. instead: whose estimate it takes."""
    sure = is_sure_of_quota(builder.ledger, state)
    found = reserved(
        builder.ledger,
        state,
        builder.now,
        preferences,
        can_promise=sure,
        without=() if instead is None else (instead,),
    )
    if found is None:
        return Outcome.UNKNOWN
    if found.starts_at <= builder.now:
        return Outcome.FITS_NOW
    if instead is not None:
        reason = f"{state.job} goes first"
        builder.record(ReservationDropped(at=builder.now, job=instead, reason=reason))
    _record(builder, state, found, slips)
    return Outcome.TOLD


def _record(builder: DecisionBuilder, state: JobState, found: PlannedStart, slips: int) -> None:
    builder.record(
        ReservationMade(
            at=builder.now,
            job=state.job,
            starts_at=found.starts_at,
            promised=found.promised,
            placement=found.placement,
            waits_for=found.waits_for,
            slips=slips,
        )
    )


def is_sure_of_quota(ledger: Ledger, state: JobState) -> bool:
    """Whether no quota can stand between the job and its start.

    What a queue is owed now it may have used up by then, for jobs that came later; so there are estimates only.
    """
    unbound = not any(rule.cells for rule in ledger.policy.queues)
    return unbound and ledger.accounts.guarantees.is_unlimited(state.queue)


def first_in_the_way(ledger: Ledger, state: JobState) -> str | None:
    """The last of the estimates that comes after a job: what gives way to it where there are enough."""
    later = [
        job
        for job in ledger.reservations
        if not ledger.reservations[job].promised
        and ledger.jobs[job].position.key > state.position.key
    ]
    return max(later, key=lambda job: ledger.jobs[job].position, default=None)


def equivalence_class_of(state: JobState) -> EquivalenceClass:
    """Where a job waits."""
    assert state.equivalence_class is not None, f"{state.job} does not wait"
    return state.equivalence_class
