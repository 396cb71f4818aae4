"""Adopts running gangs that are not on record, as far as possible.

A cluster tells of such gangs when the journal was lost, or when another process led with a journal of its own. The
job is accepted and the attempt has its place in one step, so that nothing can start it a second time in between.
Where its place is not free, or it is not what its job asks for, the job is rejected, and whoever found it counts it
as others' again. What others are said to hold on its nodes is counted after it: which devices they have is a guess.
"""

from collections.abc import Callable
from typing import Any

from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.ledger import Ledger
from gantree.core.lifecycle.lifecycle import accept
from gantree.model.events import Event, GangFound
from gantree.model.facts import GangPlaced
from gantree.policy.rules import Policy
from gantree.topology.occupancy.site import OWNER_PREFIX


def _gang_found(builder: DecisionBuilder, event: GangFound, policy: Policy) -> None:
    ledger = builder.ledger
    if event.job in ledger.jobs or event.job in ledger.rejected:
        return
    accept(builder, event.job, event.spec, policy, _trouble(ledger, event))
    if event.job in ledger.jobs:
        builder.record(
            GangPlaced(
                at=builder.now,
                job=event.job,
                attempt=event.attempt,
                placement=event.placement,
                found=True,
            )
        )


def _trouble(ledger: Ledger, event: GangFound) -> str:
    """Why its members cannot hold what they are said to hold; "" where they can."""
    members = event.placement.members
    asked = {
        (role.name, rank): role.shape.gpus
        for role in event.spec.roles
        for rank in range(role.members)
    }
    if {(each.role, each.rank): len(each.gpus) for each in members} != asked:
        return "it was found running otherwise than its job asks for"
    if ledger.occupancy is None:
        return "it was found running where there is no site yet"
    if not ledger.occupancy.missing(members):
        return ""
    rooms = ledger.occupancy.copy()
    held = [owner for owner, _ in ledger.held_places()]
    for owner in (*(OWNER_PREFIX + holder for holder in ledger.site.others), *held):
        rooms.give_back(owner)
    missing = rooms.missing(members)
    return f"it was found running, and {missing}" if missing else ""


REACTIONS: dict[type[Event], Callable[[DecisionBuilder, Any, Policy], None]] = {
    GangFound: _gang_found
}
