"""The starts that pending jobs may expect: by the claim that stopping gangs leave room for, or by a reservation."""

from dataclasses import dataclass
from math import inf, isfinite
from operator import attrgetter

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.model.phases import ENDED
from gantree.model.placements import Placement


@dataclass(frozen=True, slots=True)
class Start:
    """When a pending job starts: at starts_at, in seconds, when the jobs in waits_for have ended; promised or not.

    reserved: room is held for it; otherwise it is a forecast. slips: how often the reservation moved later.
    """

    starts_at: float
    promised: bool
    waits_for: tuple[str, ...]
    reserved: bool
    slips: int = 0
    domain: str = ""


def known_start(ledger: Ledger, state: JobState) -> Start | None:
    """The start of a pending job by its reservation or its claim, the earlier one; None where it has neither.

    A claim is no promise: a job that goes first may take the room over.
    """
    starts = (_by_reservation(ledger, state), _by_claim(ledger, state))
    return min((each for each in starts if each), key=attrgetter("starts_at"), default=None)


def domain_in_words(placement: Placement) -> str:
    """The domain of a placement, such as "leaf l0"."""
    return f"{placement.domain.tier} {placement.domain.name}".strip()


def _by_claim(ledger: Ledger, state: JobState) -> Start | None:
    """When all its victims have left, at the latest; None where one of them has no enforced end."""
    claim, grace_s = ledger.claims.get(state.job), ledger.policy.grace_s
    if claim is None:
        return None
    leaving = tuple(dict.fromkeys(job for job in claim.victims if job in ledger.leaving))
    gone_at = max((ledger.leaving[job].ends_at(grace_s) for job in leaving), default=inf)
    if not isfinite(gone_at):
        return None
    return Start(gone_at, False, leaving, True, domain=domain_in_words(claim.placement))


def _by_reservation(ledger: Ledger, state: JobState) -> Start | None:
    """The reservation as it stands, without jobs that have ended meanwhile."""
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
