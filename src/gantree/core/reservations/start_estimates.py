"""Starts that waiting jobs are told: by the room that others are leaving for them, else by their reservations."""

from dataclasses import dataclass
from math import inf, isfinite
from operator import attrgetter

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.model.phases import ENDED
from gantree.model.placements import Placement


@dataclass(frozen=True, slots=True)
class Start:
    """When a waiting job starts: at starts_at seconds, promised or estimated, when the jobs in waits_for have ended.

    reserved: the room is held for it; else it is a forecast that nothing holds to. slips: how often it was later than
    it was told.
    """

    starts_at: float
    promised: bool
    waits_for: tuple[str, ...]
    reserved: bool
    slips: int = 0
    domain: str = ""


def told_start(ledger: Ledger, state: JobState) -> Start | None:
    """The start that a waiting job was told; None where it was told none.

    A claim is no promise, though those who leave for it must be gone in time: who goes before it may have that room.
    """
    told = (_by_reservation(ledger, state), _by_claim(ledger, state))
    return min((each for each in told if each), key=attrgetter("starts_at"), default=None)


def domain_in_words(placement: Placement) -> str:
    """The domain of a place, such as "leaf l0"."""
    return f"{placement.domain.tier} {placement.domain.name}".strip()


def _by_claim(ledger: Ledger, state: JobState) -> Start | None:
    """When all have left who leave for it, at the latest; None where nothing makes one of them."""
    claim, grace_s = ledger.claims.get(state.job), ledger.policy.grace_s
    if claim is None:
        return None
    leaving = tuple(dict.fromkeys(job for job in claim.victims if job in ledger.leaving))
    gone_at = max((ledger.leaving[job].ends_at(grace_s) for job in leaving), default=inf)
    if not isfinite(gone_at):
        return None
    return Start(gone_at, False, leaving, True, domain=domain_in_words(claim.placement))


def _by_reservation(ledger: Ledger, state: JobState) -> Start | None:
    """As it stands; who has ended meanwhile is waited for no more."""
    reservation = ledger.reservations.get(state.job)
    if reservation is None:
        return None
    waits_for = tuple(
        job
        for job in reservation.waits_for
        if job in ledger.jobs and ledger.jobs[job].phase not in ENDED
    )
    where = domain_in_words(reservation.placement)
    return Start(
        reservation.starts_at, reservation.promised, waits_for, True, reservation.slips, where
    )
