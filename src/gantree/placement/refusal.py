"""Why a gang has no place: the first gate that said no, by how much, the nearest miss, and what would help.

    SHAPE        no machine that a role's labels and models admit is large enough for one member, ignoring use
    CONTIGUITY   (never) the empty, healthy fabric could not hold the gang, or its wish contradicts itself
    ROOM         the empty fabric could, but of some resource less is free than the gang asks
    CONTIGUITY   all of it is free, but not together, or not as far apart as asked

Room is counted on usable nodes that could hold a member of the role if they were empty, and that are not too near jobs
it wants to be apart from. What is short of what is counted in `placement.amounts`, what would help in
`placement.advice`, what the empty fabric could hold in `placement.on_empty`.
"""

from dataclasses import replace

import numpy as np

from gantree.model.jobs import Job
from gantree.model.verdicts import Gate, Refused, Relaxation, Shortage
from gantree.placement.advice import advice, looser_or_fewer, nearer_or_fewer
from gantree.placement.amounts import (
    Lack,
    amount_in_words,
    are,
    for_people,
    lack_of_room,
    largest_machine,
    resources_of,
    wanted,
)
from gantree.placement.apart import kept_apart
from gantree.placement.nearest import (
    Roomiest,
    asked_together,
    domain_word,
    free_gpus,
    is_bound,
    members_with_room,
    room_when_spread,
    roomiest_domain,
    usable_nodes,
)
from gantree.placement.on_empty import OnEmpty
from gantree.placement.slots import slots_of
from gantree.placement.wish import RoleWish, Wish
from gantree.topology.occupancy import Occupancy

Told = tuple[str, Shortage | None]
"""What is wrong, in words and in numbers."""


def explain(occupancy: Occupancy, job: Job, wish: Wish) -> Refused:
    """Explain why `solve` found nothing for this wish on this occupancy."""
    for role in wish.roles:
        refused = _too_large(occupancy, wish, role)
        if refused is not None:
            return refused
    if wish.contradiction:
        return _contradicted(occupancy, job, wish)
    never = not OnEmpty.of(occupancy).holds(wish)
    where = occupancy.emptied() if never else kept_apart(occupancy, wish.apart)
    lack = lack_of_room(where, wish)
    gate = Gate.CONTIGUITY if never or lack is None else Gate.ROOM
    if lack is not None:
        helps = nearer_or_fewer(occupancy, job, wish)
        return _refused(gate, occupancy, where, wish, _too_little(where, lack), helps)
    helps = looser_or_fewer(occupancy, job, wish)
    return _refused(gate, occupancy, where, wish, _not_together(where, wish), helps)


def _refused(
    gate: Gate,
    occupancy: Occupancy,
    where: Occupancy,
    wish: Wish,
    told: Told,
    helps: tuple[Relaxation, ...],
) -> Refused:
    """A refusal that counts on `where`: the empty fabric if it never fits."""
    never = where is occupancy.emptied()
    nearest = roomiest_domain(where, wish)
    start = "Never fits:" if never else "Waiting:"
    return Refused(
        gate,
        f"{start} {told[0]}{_left_out(occupancy, where)}.{advice(helps)}",
        never=never,
        short_by=told[1],
        nearest=(nearest.name, nearest.free_gpus),
        wakes_on=() if never else _wakes_on(where, wish),
        would_fit_if=helps,
    )


def _contradicted(occupancy: Occupancy, job: Job, wish: Wish) -> Refused:
    helps = looser_or_fewer(occupancy, job, wish)
    sentence = f"Never fits: {wish.contradiction}.{advice(helps)}"
    return Refused(Gate.CONTIGUITY, sentence, never=True, would_fit_if=helps)


def _left_out(occupancy: Occupancy, where: Occupancy) -> str:
    """Nodes that do not count though they are sound: near jobs to be apart from, or held back as spares."""
    told = []
    if where.fabric.cluster.spares and (spares := int(where.held_back_node.sum())):
        told.append(f"{spares} {_nodes(spares)} held back as spares")
    near = 0 if where is occupancy.emptied() else _usable(occupancy) - _usable(where)
    if near:
        told.append(f"{near} {_nodes(near)} too near jobs to be apart from")
    return "".join(f"; {words}" for words in told)


def _usable(occupancy: Occupancy) -> int:
    return int(np.count_nonzero(occupancy.usable_node))


def _nodes(count: int) -> str:
    return "node is" if count == 1 else "nodes are"


def _wakes_on(where: Occupancy, wish: Wish) -> tuple[str, ...]:
    """Resources whose release could change the answer, and "nodes" while some may not be used."""
    asked = tuple(dict.fromkeys(r.name for role in wish.roles for r in resources_of(wish, role)))
    return asked if usable_nodes(where) is None else (*asked, "nodes")


# ----- SHAPE


def _too_large(occupancy: Occupancy, wish: Wish, role: RoleWish) -> Refused | None:
    if OnEmpty.of(occupancy).eligible(role).some:
        return None
    admitted = occupancy.fabric.nodes_with(role.shape.labels, role.shape.models)
    if not admitted.any():
        sentence = f"Never fits: no node has {wanted(role)}, which role {role.name} asks for."
        return Refused(Gate.SHAPE, sentence, never=True)
    that_admits = f" with {wanted(role)}" if wanted(role) else ""
    lack = largest_machine(occupancy.emptied(), wish, role, admitted)
    if lack is None:
        shape = role.shape
        part = f"cut, or may be cut, into {shape.mig}" if shape.mig else "shared"
        sentence = f"Never fits: no machine{that_admits} has a GPU that is {part} as a member of role {role.name} asks."
        return Refused(Gate.SHAPE, sentence, never=True)
    name, asked, largest = lack
    sentence = (
        f"Never fits: a member of role {role.name} needs {amount_in_words(asked)} {for_people(name, asked)}; "
        f"the largest machine{that_admits} has {amount_in_words(largest)}."
    )
    return Refused(Gate.SHAPE, sentence, never=True, short_by=Shortage(name, asked - largest))


# ----- ROOM


def _too_little(where: Occupancy, lack: Lack) -> Told:
    needed = f"{amount_in_words(lack.asked)} {for_people(lack.resource, lack.asked)}"
    short = Shortage(lack.resource, lack.asked - lack.free)
    return f"needs {needed}{lack.because}; {_there(where, lack)}", short


def _there(where: Occupancy, lack: Lack) -> str:
    """What there is of it; of GPUs, whatever else is free and why that does not count."""
    free = amount_in_words(lack.free)
    all_free = free_gpus(where, usable_nodes(where))
    if lack.resource == "gpus" and lack.free < all_free:
        of = "the empty cluster's" if where is where.emptied() else "the"
        kind = "" if where is where.emptied() else "free "
        return f"{free} of {of} {all_free} {kind}GPU{'s' * (all_free != 1)} {_which_count(where, lack)}"
    if where is where.emptied():
        return f"the empty cluster has {free}"
    return f"{free} {are(lack.free)} free"


def _which_count(where: Occupancy, lack: Lack) -> str:
    """What is true of the GPUs that count and of no others: what their nodes are, or how large."""
    shapes, usable = [role.shape for role in lack.roles], usable_nodes(where)
    admitted = np.logical_or.reduce([where.fabric.nodes_with(s.labels, s.models) for s in shapes])
    free = free_gpus(where, admitted if usable is None else admitted & usable)
    words = [
        "model" if any(shape.models for shape in shapes) else "",
        "label" if any(shape.labels for shape in shapes) else "",
    ]
    told = []
    if free < free_gpus(where, usable):
        told.append(f"of an acceptable {' and '.join(filter(None, words))}")
    if lack.free < free:
        told.append("in machines large enough for a member")
    return f"{are(lack.free)} {', '.join(told)}"


# ----- CONTIGUITY


def _not_together(where: Occupancy, wish: Wish) -> Told:
    told = _nics_apart(where, wish) or _not_spread(where, wish)
    if told is not None:
        return told
    if not is_bound(wish) and sum(role.members for role in wish.roles) > 1:
        return _scattered(where, wish)
    return _not_in_one(where, wish, roomiest_domain(where, wish))


def _nics_apart(where: Occupancy, wish: Wish) -> Told | None:
    """Nodes have room for all that a member asks but its NICs, and none has enough of these."""
    for role in wish.roles:
        shape, models = role.shape, role.shape.models
        if not shape.nics or slots_of(where, shape, models).in_domain[0][0]:
            continue
        room_for_the_rest = slots_of(where, replace(shape, nics=0), models).of_node > 0
        if room_for_the_rest.any():
            most = int(where.free_nics_of_node[room_for_the_rest].max())
            needed = f"{shape.nics} {for_people('nics', shape.nics)}"
            told = (
                f"a member of role {role.name} needs {needed}; no node with room for the rest of it"
            )
            return f"{told} has more than {most} free", Shortage("nics", shape.nics - most)
    return None


def _not_spread(where: Occupancy, wish: Wish) -> Told | None:
    """There is room for all members, but not for so few in each domain."""
    for role in wish.roles:
        if role.is_limited:
            tier, most, room = room_when_spread(where, wish, role)
            if room < role.members:
                told = (
                    f"needs room for {role.members} members of role {role.name}, at most {most} in one "
                    f"{where.fabric.tiers[tier]}; so spread there is room for {room}"
                )
                return told, Shortage("members", role.members - room)
    return None


def _scattered(where: Occupancy, wish: Wish) -> Told:
    """What is free lies in pieces too small for members, which nothing else binds together."""
    asked, room = sum(role.members for role in wish.roles), members_with_room(where, wish)
    told = f"needs GPUs for {asked} members, each on one node; {_there_is(where)}"
    if room >= asked:
        return f"{told}, but not for all roles side by side", None
    return f"{told}, in pieces for {room} of them", Shortage("members", asked - room)


def _not_in_one(where: Occupancy, wish: Wish, nearest: Roomiest) -> Told:
    """What must be in one domain is free in no one domain."""
    members, gpus = asked_together(wish)
    what = _gpus(gpus) if gpus else f"{members} member{'s' * (members > 1)}"
    told = (
        f"needs {what} in one {domain_word(where.fabric, wish)}; {_there_is(where)}, "
        f"the roomiest, {nearest.tier} {nearest.name}, has {nearest.free_gpus}"
    )
    if nearest.free_gpus < gpus:
        return told, Shortage("gpus", gpus - nearest.free_gpus)
    if nearest.members < members:
        told = f"{told}, in pieces for {nearest.members} members"
        return told, Shortage("members", members - nearest.members)
    spread = ", spread" if any(role.is_limited for role in wish.roles) else ""
    return f"{told}, but not in the slices{spread} or for the roles asked", None


def _there_is(where: Occupancy) -> str:
    gpus = free_gpus(where, usable_nodes(where))
    if where is where.emptied():
        return f"the empty cluster has {gpus}"
    return f"{gpus} {are(gpus)} free"


def _gpus(count: int) -> str:
    return f"{count} GPU{'s' * (count != 1)}"
