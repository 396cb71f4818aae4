"""What it means to a ledger that room is held for gangs that are not placed: claims and bookings, and their ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantree.core.state import BOOKING, CLAIM, Booking, Claim
from gantree.model.facts import (
    ClaimDropped,
    GangMoving,
    ReservationDropped,
    ReservationMade,
    RoomClaimed,
)

if TYPE_CHECKING:
    from gantree.core.ledger import Ledger


def _claim(ledger: Ledger, job: str, claim: Claim) -> None:
    """A claim goes before bookings: what they hold of its room becomes its. Older claims hold what they can already."""
    ledger.claims[job] = claim
    ledger.lines.touch(ledger.jobs[job].queue)
    ledger.accounts.claim(ledger.jobs[job], claim.placement, at_home=claim.at_home)
    bookings = [BOOKING + each for each in ledger.bookings]
    ledger.let_go(bookings)
    ledger.hold(owners=(CLAIM + job, *bookings))


def room_claimed(ledger: Ledger, fact: RoomClaimed) -> None:
    """Room is to come free for a gang that stands nowhere yet."""
    _claim(ledger, fact.job, Claim(fact.placement, fact.victims, fact.at_home))


def claim_dropped(ledger: Ledger, fact: ClaimDropped) -> None:
    """Nothing is held for it any more; what it held goes to those that come after."""
    claim = ledger.claims.pop(fact.job)
    ledger.lines.touch(ledger.jobs[fact.job].queue)
    ledger.accounts.drop_claim(fact.job)
    ledger.jobs[fact.job].moving = None
    ledger.let_go([CLAIM + fact.job])
    ledger.hold(claim.placement.nodes)
    ledger.room_version += 1


def gang_moving(ledger: Ledger, fact: GangMoving) -> None:
    """A gang that stands elsewhere is to go on there."""
    state = ledger.jobs[fact.job]
    state.moving, state.preempted_by = fact.cause, fact.by or None
    _claim(ledger, fact.job, Claim(fact.placement, (fact.job,), fact.at_home))


def reservation_made(ledger: Ledger, fact: ReservationMade) -> None:
    """A gang is to start there at a moment; an older booking of its is void."""
    nodes = fact.placement.nodes
    if fact.job in ledger.bookings:
        nodes |= ledger.bookings.pop(fact.job).placement.nodes
        ledger.let_go([BOOKING + fact.job])
        ledger.room_version += 1
    ledger.bookings[fact.job] = Booking(
        fact.starts_at, fact.promised, fact.placement, fact.waits_for, fact.slips, fact.at
    )
    ledger.hold(nodes)


def reservation_dropped(ledger: Ledger, fact: ReservationDropped) -> None:
    """What a booking held goes to those that come after."""
    booking = ledger.bookings.pop(fact.job)
    ledger.let_go([BOOKING + fact.job])
    ledger.hold(booking.placement.nodes)
    ledger.room_version += 1
