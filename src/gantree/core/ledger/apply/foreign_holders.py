"""Applies facts about foreign holders, which gantree did not start: pods of other schedulers and of DaemonSets.

They do not ask, so what they hold may be taken already: by a gang that was placed at the same moment, or because a node
is overcommitted. Then only what is free of it is counted, and all of it as soon as it is free. Claims and reservations
yield to them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from gantree.model.facts import RoomOfOthers
from gantree.model.placements import MemberPlacement
from gantree.topology.occupancy.occupancy import Occupancy
from gantree.topology.occupancy.site import OWNER_PREFIX

if TYPE_CHECKING:
    from gantree.core.ledger.ledger import Ledger


def foreign_room(ledger: Ledger, fact: RoomOfOthers) -> None:
    """Somebody holds this from now on."""
    others = ledger.site.others
    before = others.pop(fact.holder, ())
    if fact.members:
        others[fact.holder] = fact.members
    nodes = dict.fromkeys(member.node for member in (*before, *fact.members))
    _count_anew(ledger, nodes, dict.fromkeys((fact.holder, *_short_on(ledger, nodes))))
    if before:
        ledger.more_room()


def foreign_holders_first(ledger: Ledger, nodes: Iterable[str]) -> None:
    """What came free on nodes goes to those who hold it already."""
    short = _short_on(ledger, nodes) if ledger.site.short else []
    if short:
        _count_anew(ledger, nodes, short)


def count_foreign_holders(ledger: Ledger, holders: Iterable[str]) -> None:
    """Let these others have what is free now of what they hold, in the order in which they are named."""
    rooms, site = ledger.rooms(), ledger.site
    for holder in list(holders):
        owner, members = OWNER_PREFIX + holder, site.others.get(holder, ())
        rooms.give_back(owner)
        known = [member for member in members if member.node in rooms.fabric.index_of_node]
        if known and rooms.missing(known):
            known = [_free_part(rooms, member) for member in known]
        if known:
            rooms.take(owner, known)
        if rooms.owners.get(owner, ()) == members:
            site.short.pop(holder, None)
        else:
            site.short[holder] = None


def release_foreign_holders(ledger: Ledger, nodes: Iterable[str]) -> list[str]:
    """Free what others hold on nodes, for what is known to be held otherwise; whom to count anew after that."""
    there, others = set(nodes), ledger.site.others
    holders = [
        holder for holder, members in others.items() if any(m.node in there for m in members)
    ]
    for holder in holders:
        ledger.rooms().give_back(OWNER_PREFIX + holder)
    return holders


def _count_anew(ledger: Ledger, nodes: Iterable[str], holders: Iterable[str]) -> None:
    """Count others anew, before room on these nodes is held for claims and reservations."""
    there = set(nodes)
    waiting = [owner for owner, place in ledger.held_places() if not there.isdisjoint(place.nodes)]
    ledger.let_go(waiting)
    count_foreign_holders(ledger, holders)
    ledger.hold(owners=frozenset(waiting))


def _short_on(ledger: Ledger, nodes: Iterable[str]) -> list[str]:
    """Those on these nodes of whom less is counted than they hold, in the order in which that came about."""
    others, there = ledger.site.others, set(nodes)
    return [
        holder
        for holder in ledger.site.short
        if any(member.node in there for member in others.get(holder, ()))
    ]


def _free_part(rooms: Occupancy, member: MemberPlacement) -> MemberPlacement:
    """What is free of a member; instead of GPUs that are not, others of the node, the last ones first."""
    free = rooms.free_gpus(member.node)
    own = [gpu for gpu in member.gpus if gpu in free]
    spare = [gpu for gpu in reversed(free) if gpu not in own]
    gpus = sorted((*own, *spare[: len(member.gpus) - len(own)]))
    room = rooms.room_of_node(rooms.fabric.index_of_node[member.node])
    return room.part_of(replace(member, gpus=tuple(gpus)))
