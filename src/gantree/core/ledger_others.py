"""What others hold, whom gantree did not start: on Kubernetes the pods of other schedulers and of every node.

They ask nobody, so what they are said to hold may be held already: by a gang that was placed in the same moment, or
because nodes take more than they have. Then they are counted with what is free of it, and with all of it as soon as it
is. Room that is held for a claim or a reservation yields to them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from gantree.model.facts import RoomOfOthers
from gantree.model.placements import MemberPlacement
from gantree.topology.occupancy import Occupancy
from gantree.topology.site import OWNER_PREFIX

if TYPE_CHECKING:
    from gantree.core.ledger import Ledger


def room_of_others(ledger: Ledger, fact: RoomOfOthers) -> None:
    """Somebody holds this from now on."""
    others = ledger.site.others
    before = others.pop(fact.holder, ())
    if fact.members:
        others[fact.holder] = fact.members
    nodes = dict.fromkeys(member.node for member in (*before, *fact.members))
    waiting = [
        owner for owner, place in ledger.held_places() if not nodes.keys().isdisjoint(place.nodes)
    ]
    ledger.let_go(waiting)
    count_others(ledger, dict.fromkeys((fact.holder, *_short_on(ledger, nodes))))
    ledger.hold(owners=frozenset(waiting))
    if before:
        ledger.room_version += 1


def count_others(ledger: Ledger, holders: Iterable[str]) -> None:
    """Let these others have what is free now of what they hold, in the order in which they are named."""
    rooms = ledger.rooms()
    for holder in holders:
        rooms.give_back(OWNER_PREFIX + holder)
        members = ledger.site.others.get(holder, ())
        known = [member for member in members if member.node in rooms.fabric.index_of_node]
        if known:
            rooms.take(OWNER_PREFIX + holder, [_free_part(rooms, member) for member in known])


def _short_on(ledger: Ledger, nodes: Iterable[str]) -> list[str]:
    """Those on these nodes of whom less is counted than they hold, in the order in which they came."""
    owners, there = ledger.rooms().owners, set(nodes)
    return [
        holder
        for holder, members in ledger.site.others.items()
        if any(member.node in there for member in members)
        and owners.get(OWNER_PREFIX + holder) != members
    ]


def _free_part(rooms: Occupancy, member: MemberPlacement) -> MemberPlacement:
    """What is free of a member; instead of GPUs that are not, others of the node, the last ones first."""
    free = rooms.free_gpus(member.node)
    own = [gpu for gpu in member.gpus if gpu in free]
    spare = [gpu for gpu in reversed(free) if gpu not in own]
    gpus = sorted((*own, *spare[: len(member.gpus) - len(own)]))
    room = rooms.room_of_node(rooms.fabric.index_of_node[member.node])
    return room.part_of(replace(member, gpus=tuple(gpus)))
