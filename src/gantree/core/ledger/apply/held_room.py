"""Applies facts about held room: claims and reservations of gangs that are not placed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantree.core.ledger.apply.preempting_claims import count_claim
from gantree.core.ledger.state import CLAIM, RESERVATION, Claim, Reservation
from gantree.model.facts import (
    ClaimDropped,
    GangMoving,
    ReservationDropped,
    ReservationMade,
    RoomClaimed,
)
from gantree.model.placements import Placement

MOST_LEFT_SLOW = 64
"""Slow ranks that a job left are kept, the newest."""

if TYPE_CHECKING:
    from gantree.core.ledger.ledger import Ledger


def take_place(ledger: Ledger, job: str, placement: Placement) -> None:
    """A gang takes its place, also where room that it may use is held for others: they hold what is left of theirs."""
    _opens_spares(ledger, placement)
    rooms = ledger.rooms()
    if _shares_with_held(ledger, placement):
        given_way = [owner for owner, _ in ledger.held_places()]
        ledger.let_go(given_way)
    else:
        given_way = _gives_way(ledger, placement)
    rooms.take(job, placement.members)
    if given_way:
        ledger.hold(owners=frozenset(given_way))


def _opens_spares(ledger: Ledger, placement: Placement) -> None:
    """Room is about to be taken or held: where a node is begun that was kept as a spare, its rest is free to others.

    So it is, for those who may pass what is held there or stop who is, where nothing but that kept it from being one.
    """
    if ledger.rooms().spares.any_kept and any(
        _may_be_spare(ledger, node) for node in placement.nodes
    ):
        ledger.more_room()


def _may_be_spare(ledger: Ledger, node: str) -> bool:
    """Whether a node is kept as a spare, or would be for somebody: once those are gone who might leave it."""
    rooms = ledger.rooms()
    index, holders = rooms.fabric.index_of_node[node], rooms.holders(node)
    if not holders:
        return bool(rooms.held_back_node[index])
    may_be = bool(rooms.spares.usable_node[index])
    return may_be and all(_might_leave(ledger, owner) for owner in holders)


def _might_leave(ledger: Ledger, owner: str) -> bool:
    """Whether room is held for a gang that stands elsewhere or nowhere, or by one that leaves or might be stopped."""
    if owner.startswith((CLAIM, RESERVATION)):
        return True
    state = ledger.holding.get(owner)
    return state is not None and (state.leaving or state.spec.preemptible)


def _gives_way(ledger: Ledger, placement: Placement) -> list[str]:
    """Let the last of those for whom room is held go until a place is free; whom.

    Those before them hold what they would hold if all let go: room is given to the first of them first.
    """
    rooms = ledger.rooms()
    if not (ledger.reservations or ledger.claims) or not rooms.missing(placement.members):
        return []
    held, gone = [owner for owner, _ in ledger.held_places()], 0
    while gone < len(held) and rooms.missing(placement.members):
        more = max(1, gone)
        ledger.let_go(held[max(0, len(held) - gone - more) : len(held) - gone])
        gone = min(len(held), gone + more)
    return held[len(held) - gone :]


def _shares_with_held(ledger: Ledger, placement: Placement) -> bool:
    """Whether parts of GPUs are taken where room is held for others, who may keep the rest of these."""
    if not (ledger.claims or ledger.reservations) or not any(m.parts for m in placement.members):
        return False
    nodes = placement.nodes
    return any(not nodes.keys().isdisjoint(held.nodes) for _, held in ledger.held_places())


def _claim(ledger: Ledger, job: str, claim: Claim) -> None:
    """A claim takes what reservations hold of its room. Older claims keep what they hold."""
    _opens_spares(ledger, claim.placement)
    ledger.set_claim(job, claim)
    ledger.accounts.claim(ledger.jobs[job], claim.placement, at_home=claim.at_home)
    reservations = [RESERVATION + each for each in ledger.reservations]
    ledger.let_go(reservations)
    ledger.hold(owners=(CLAIM + job, *reservations))


def room_claimed(ledger: Ledger, fact: RoomClaimed) -> None:
    """Room is to come free for a gang that stands nowhere yet."""
    _claim(ledger, fact.job, Claim(fact.placement, fact.victims, fact.at_home))
    count_claim(ledger.jobs[fact.job], fact)


def claim_dropped(ledger: Ledger, fact: ClaimDropped) -> None:
    """Nothing is held for it any more; what it held goes to those that come after."""
    claim = ledger.end_claim(fact.job)
    ledger.accounts.drop_claim(fact.job)
    ledger.jobs[fact.job].moving = None
    ledger.let_go([CLAIM + fact.job])
    ledger.hold(claim.placement.nodes)
    ledger.more_room()


def gang_moving(ledger: Ledger, fact: GangMoving) -> None:
    """A gang that stands elsewhere is to go on there."""
    state = ledger.jobs[fact.job]
    state.moving, state.preempted_by = fact.cause, fact.by or None
    if fact.flees:
        state.fled_at = (*state.fled_at, fact.at)
        state.left_slow = (*state.left_slow, *state.slow)[-MOST_LEFT_SLOW:]
    _claim(ledger, fact.job, Claim(fact.placement, (fact.job,), fact.at_home))


def reservation_made(ledger: Ledger, fact: ReservationMade) -> None:
    """A gang is to start there at a moment. What it was told before is void; those who wait for it come after it."""
    _opens_spares(ledger, fact.placement)
    nodes, behind = set(fact.placement.nodes), behind_in_row(ledger, fact.job)
    if fact.job in ledger.reservations:
        ledger.let_go([RESERVATION + job for job in (fact.job, *behind)])
        nodes |= ledger.reservations.pop(fact.job).placement.nodes.keys()
        ledger.more_room()
    ledger.reservations[fact.job] = Reservation(
        fact.starts_at, fact.promised, fact.placement, fact.waits_for, fact.slips, fact.at
    )
    for job in behind:
        ledger.reservations[job] = ledger.reservations.pop(job)
        nodes |= ledger.reservations[job].placement.nodes.keys()
    ledger.hold(nodes)


def behind_in_row(ledger: Ledger, job: str) -> list[str]:
    """Those who were told a start at which a job that was told one will have left: if it leaves earlier, so much the
    better. Who has a claim is not among them, nor who was promised a start where that job has no limit.
    """
    reservation, eq_class = (
        ledger.reservations.get(job),
        ledger.jobs[job].equivalence_class,
    )
    if reservation is None or eq_class is None:
        return []
    ends_at = reservation.starts_at + eq_class.span_s
    return [
        other
        for other, told in ledger.reservations.items()
        if told.starts_at >= ends_at
        and (eq_class.enforced or not told.promised)
        and other not in ledger.claims
    ]


def reservation_dropped(ledger: Ledger, fact: ReservationDropped) -> None:
    """What a reservation held goes to those that come after."""
    reservation = ledger.reservations.pop(fact.job)
    ledger.let_go([RESERVATION + fact.job])
    ledger.hold(reservation.placement.nodes)
    ledger.more_room()
