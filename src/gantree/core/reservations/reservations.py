"""Reservations of pending gangs: their start and place, and what improves or breaks them.

A start (`planning.reservations.reserve`) is a promise if every gang that must end first has an enforced end and no
quota applies. Otherwise it is an estimate by probable run times; an estimate is also made where it is earlier than any
promise. A promise stands until its gang starts, its start is overdue, or its place is lost; the cause is recorded. A
reservation moves earlier when a gang that it waits for ends early, and with it the reservations that wait for its gang.
An estimate may also be replaced by one of a job that goes first.

A gang that fits starts at any time: a reservation holds room, it never delays its own gang.

Which jobs get a reservation is in `core.reservations.selection`.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from enum import Enum, auto
from math import inf
from operator import attrgetter

from gantree.core.ledger.apply.held_room import behind_in_row
from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import CLAIM, RESERVATION, JobState, Reservation
from gantree.core.queue.eligibility import equivalence_class_of
from gantree.core.queue.job_variants import open_variants
from gantree.model.facts import (
    AttemptEnded,
    JobEnded,
    JobHeld,
    ReservationDropped,
    ReservationMade,
)
from gantree.model.jobs import Job
from gantree.placement.request.placement_preferences import PlacementPreferences
from gantree.planning.reservations.reserve import PlannedStart, Running, Timeline, better, slip_of
from gantree.policy.runtimes import estimated_end

LATE_S = 5.0
"""Seconds after its start at which a reservation is overdue: the end of a killed gang is reported a little late."""


def running(ledger: Ledger, now: float, *, limits_only: bool) -> Iterator[Running]:
    """Every gang, claim and reservation with its end: the enforced one, or the probable one unless limits_only."""
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
    """The enforced end of a placed gang; inf where it has none."""
    if not state.leaving and ledger.accounts.run_times.may_suspend(state.spec):
        return inf
    return state.ends_at(ledger.policy.grace_s)


def _probable_end(ledger: Ledger, state: JobState, now: float) -> float:
    """The probable end of a placed gang, by its time limit and its expected or learned run time.

    A replica of a service has none before it drains.
    """
    if state.spec.service is not None:
        drained_at = state.replica.drain_ends_at
        return inf if drained_at is None else max(now, drained_at) + ledger.policy.grace_s
    since = state.placed_at if state.running_at is None else state.running_at
    assert since is not None, f"{state.job} holds no place"
    policy, spec = ledger.policy, state.spec
    left_s = ledger.accounts.run_times.guess_s(state, state.work_s(now))
    guess_s = None if left_s is None else left_s - state.done_s
    return estimated_end(since, now, spec.time_limit_s, policy.grace_s, guess_s).ends_at


def planned_start(
    ledger: Ledger,
    state: JobState,
    now: float,
    preferences: PlacementPreferences,
    *,
    can_promise: bool = True,
    without: Iterable[str] = (),
) -> PlannedStart | None:
    """The start and the place of a pending job: promised, else estimated; None if neither is known.

    without: jobs whose reservations are ignored.
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
    admitted = _admitted_from(ledger, state, probable, now)
    if admitted is None:
        return None
    admitted_at, freed_by = admitted
    found = _earliest(Timeline(rooms, probable, admitted_at, own), variants, preferences)
    return found and replace(found, promised=False, waits_for=_jobs((*found.waits_for, *freed_by)))


def _earliest(
    timeline: Timeline, variants: Iterable[Job], preferences: PlacementPreferences
) -> PlannedStart | None:
    """The earliest start of any variant of a job; of equally early ones, that of the first variant."""
    found: PlannedStart | None = None
    for variant in variants:
        found = better(found, timeline.reserve(variant, preferences))
    return found


def _jobs(owners: Iterable[str]) -> tuple[str, ...]:
    """The jobs behind these owners of room, each once."""
    return tuple(dict.fromkeys(map(job_of, owners)))


def job_of(owner: str) -> str:
    """The job behind an owner of room: a gang, a claim or a reservation."""
    return owner.removeprefix(CLAIM).removeprefix(RESERVATION)


def _as_planned(reservation: Reservation) -> PlannedStart:
    """A reservation as a planned start that waits for the gangs, claims and reservations of the jobs it waits for."""
    names = ("", CLAIM, RESERVATION)
    waits_for = tuple(name + job for job in reservation.waits_for for name in names)
    return PlannedStart(
        reservation.starts_at, reservation.promised, reservation.placement, waits_for
    )


def _admitted_from(
    ledger: Ledger, state: JobState, others: Iterable[Running], now: float
) -> tuple[float, tuple[str, ...]] | None:
    """When a job's queue admits it if gangs end as expected and none starts, and whose end that is; None if unknown."""
    accounts, amounts = ledger.accounts, ledger.accounts.amounts.requested(state)
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


RELEASING_FACTS = (AttemptEnded, JobEnded, JobHeld)
"""Facts by which a job gives up its room or its reservation."""


def review(builder: DecisionBuilder, preferences: PlacementPreferences) -> None:
    """Replace broken reservations, and improve those that wait for a gang that has ended or starts earlier."""
    ledger = builder.ledger
    ended = frozenset(fact.job for fact in builder.facts if isinstance(fact, RELEASING_FACTS))
    for job, reservation in list(ledger.reservations.items()):
        state = ledger.jobs[job]
        cause = _cause_of_slip(ledger, job, reservation, builder.now)
        if cause:
            builder.record(ReservationDropped(at=builder.now, job=job, reason=cause))
            slips = reservation.slips + (reservation.starts_at <= builder.now)
            make_reservation(builder, state, preferences, slips)
        elif not ended.isdisjoint(reservation.waits_for):
            facts = len(builder.facts)
            _improve(builder, state, reservation, preferences)
            ended |= {job} if len(builder.facts) > facts else set()


def _cause_of_slip(ledger: Ledger, job: str, reservation: Reservation, now: float) -> str:
    """What broke a reservation, for people; "" while it stands."""
    overdue = reservation.starts_at + LATE_S <= now
    lost = any(node in ledger.unusable for node in reservation.placement.nodes)
    if not overdue and not lost:
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
        _as_planned(reservation),
        running(ledger, now, limits_only=reservation.promised),
        now,
    )
    if slip is None:
        return "its queue does not admit it" if overdue else ""
    by = job_of(slip.by)
    if slip.kind == "taken" and _began_late(ledger, by, reservation):
        return f"{by} began later than it was to"
    return replace(slip, by=by).sentence


def _began_late(ledger: Ledger, job: str, reservation: Reservation) -> bool:
    """Whether a gang would end before a reservation if its time limit had counted from its placement."""
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
    """Move a reservation earlier after a gang has ended; never later.

    Reservations that wait for this gang are ignored: they move with it (`review`).
    """
    ledger, old = builder.ledger, _as_planned(reservation)
    dependants = behind_in_row(ledger, state.job)
    new = planned_start(
        ledger,
        state,
        builder.now,
        preferences,
        can_promise=reservation.promised,
        without=dependants,
    )
    if new is None or new.starts_at <= builder.now or new.promised < old.promised:
        return
    if better(old, new) is new:
        _record(builder, state, new, reservation.slips)


class Outcome(Enum):
    """The outcome of `make_reservation`. FITS_NOW: the gang needs none. NO_START: no start is known."""

    RESERVED = auto()
    FITS_NOW = auto()
    NO_START = auto()


def make_reservation(
    builder: DecisionBuilder,
    state: JobState,
    preferences: PlacementPreferences,
    slips: int = 0,
    replaced: Sequence[str] = (),
) -> Outcome:
    """Reserve the earliest start of a pending gang, if known. replaced: the jobs that lose their estimates for it."""
    found = planned_start(
        builder.ledger,
        state,
        builder.now,
        preferences,
        can_promise=is_independent_of_quota(builder.ledger, state),
        without=replaced,
    )
    if found is None:
        return Outcome.NO_START
    if found.starts_at <= builder.now:
        return Outcome.FITS_NOW
    for job in replaced:
        reason = f"{state.job} goes first"
        builder.record(ReservationDropped(at=builder.now, job=job, reason=reason))
    _record(builder, state, found, slips)
    return Outcome.RESERVED


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


def is_independent_of_quota(ledger: Ledger, state: JobState) -> bool:
    """Whether no quota, limit or cell can delay a job.

    A guarantee is not enough for a promise: later jobs of the queue may have used it up by then.
    """
    unbound = not any(rule.cells for rule in ledger.policy.queues)
    return unbound and ledger.accounts.guarantees.is_unlimited(state.queue)


def later_estimates(ledger: Ledger, state: JobState) -> list[str]:
    """The jobs with estimates behind this one in the policy order as it is now, the last of them last."""
    later = [
        job
        for job in ledger.reservations
        if not ledger.reservations[job].promised
        and ledger.accounts.comes_first(state, ledger.jobs[job])
    ]
    return sorted(later, key=lambda job: ledger.jobs[job].position)
