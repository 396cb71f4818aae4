"""Explains a refusal: the first gate that refused, the shortage, the nearest miss, and relaxations.

    SHAPE        no machine that a role's labels and models admit is large enough for one member, ignoring use
    CONTIGUITY   (never) the empty, healthy fabric could not hold the gang, or its request contradicts itself
    ROOM         the empty fabric could, but of some resource less is free than the gang asks
    CONTIGUITY   all of it is free, but not together, or not as far apart as asked

Room is counted on usable nodes that could hold a member of the role if they were empty, and that are not too near jobs
it wants to be apart from. What is short of what is counted in `placement.refusal.amounts`, what would help in
`placement.refusal.advice`, what the empty fabric could hold in `placement.refusal.on_empty`.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gantree.model.cluster import CUT_NOT_PERMITTED
from gantree.model.jobs import Job, Shape
from gantree.model.node_rules import without_tolerations
from gantree.model.verdicts import Gate, Refused, Relaxation, Shortage
from gantree.placement.refusal.advice import advice, looser_or_fewer, nearer_or_fewer
from gantree.placement.refusal.amounts import (
    Lack,
    Resource,
    amount_in_words,
    are,
    for_people,
    lack_of_room,
    largest_machine,
    nodes_to_empty,
    resources_of,
    share_refused,
    wanted,
)
from gantree.placement.refusal.nearest import (
    Roomiest,
    domain_word,
    free_gpus,
    is_bound,
    members_in_one_domain,
    members_with_room,
    room_when_spread,
    roomiest_domain,
    table_of,
    usable_nodes,
)
from gantree.placement.refusal.on_empty import OnEmpty
from gantree.placement.request.anti_affinity import without_excluded_domains
from gantree.placement.request.topology_request import RoleRequest, TopologyRequest
from gantree.placement.slots.slots import slots_of
from gantree.text.words import did_you_mean, plural
from gantree.topology.fabric.fabric import BoolArray, Fabric
from gantree.topology.hardware.mig import mig_table
from gantree.topology.occupancy.occupancy import Occupancy

Told = tuple[str, Shortage | None]
"""What is wrong, in words and in numbers."""


def explain(occupancy: Occupancy, job: Job, request: TopologyRequest) -> Refused:
    """Explain why `solve` found nothing for this request on this occupancy."""
    for role in request.roles:
        refused = _too_large(occupancy, request, role)
        if refused is not None:
            return refused
    if request.contradiction:
        return _contradicted(occupancy, job, request)
    never = not OnEmpty.of(occupancy).holds(request)
    where = occupancy.emptied() if never else without_excluded_domains(occupancy, request.apart)
    if not never and (usable := usable_nodes(where)) is not None and not usable.any():
        none_left = _none_usable(occupancy, where, request)
        helps = nearer_or_fewer(occupancy, job, request)
        return _refused(Gate.ROOM, occupancy, where, request, none_left, helps)
    lack = lack_of_room(where, request)
    gate = Gate.CONTIGUITY if never or lack is None else Gate.ROOM
    if lack is not None:
        helps = nearer_or_fewer(occupancy, job, request)
        return _refused(
            gate,
            occupancy,
            where,
            request,
            _too_little(where, lack, bool(request.apart) and not never),
            helps,
        )
    helps = looser_or_fewer(occupancy, job, request)
    return _refused(gate, occupancy, where, request, _not_together(where, request), helps)


def _refused(
    gate: Gate,
    occupancy: Occupancy,
    where: Occupancy,
    request: TopologyRequest,
    told: Told,
    helps: tuple[Relaxation, ...],
) -> Refused:
    """A refusal that counts on `where`: the empty fabric if it never fits."""
    never = where is occupancy.emptied()
    by_gpus = told[1] is not None and told[1].resource == "gpus"
    nearest = roomiest_domain(where, request, by_gpus)
    start = "Never fits:" if never else "Waiting:"
    return Refused(
        gate,
        f"{start} {told[0]}{_left_out(occupancy, where)}.{advice(helps)}",
        never=never,
        short_by=told[1],
        nearest=(nearest.name, nearest.free_gpus if by_gpus else nearest.members),
        wakes_on=() if never else _wakes_on(where, request),
        would_fit_if=helps,
    )


def _contradicted(occupancy: Occupancy, job: Job, request: TopologyRequest) -> Refused:
    helps = looser_or_fewer(occupancy, job, request)
    sentence = f"Never fits: {request.contradiction}.{advice(helps)}"
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


def _wakes_on(where: Occupancy, request: TopologyRequest) -> tuple[str, ...]:
    """Return the resources whose release may change the answer, and "nodes" while some are unusable."""
    asked = tuple(
        dict.fromkeys(r.name for role in request.roles for r in resources_of(request, role))
    )
    return asked if usable_nodes(where) is None else (*asked, "nodes")


# ----- SHAPE


def _too_large(occupancy: Occupancy, request: TopologyRequest, role: RoleRequest) -> Refused | None:
    if OnEmpty.of(occupancy).eligible(role).some:
        return None
    admitted = occupancy.fabric.nodes_with(role.shape.labels, role.shape.models)
    if not admitted.any():
        sentence = f"Never fits: {_none_admits(occupancy.fabric, role)}."
        return Refused(Gate.SHAPE, sentence + _meant(occupancy.fabric, role), never=True)
    that_admits = f" with {wanted(role)}" if wanted(role) else ""
    held_back = admitted & occupancy.emptied().held_back_node
    spares, left = int(held_back.sum()), admitted & ~held_back
    if not left.any():
        sentence = f"Never fits: every node{that_admits} ({spares}) is held back as a spare."
        return Refused(Gate.SHAPE, sentence, never=True)
    lack = largest_machine(occupancy.emptied(), request, role, left)
    told, short = (
        _no_part(occupancy.emptied(), role, left, that_admits)
        if lack is None
        else _no_machine(role, lack, that_admits)
    )
    besides = f"; {spares} {_nodes(spares)} held back as spares" if spares else ""
    return Refused(Gate.SHAPE, f"Never fits: {told}{besides}.", never=True, short_by=short)


def _none_admits(fabric: Fabric, role: RoleRequest) -> str:
    """What of a role no node is as, or has; one that asks for nothing is kept away by taints, or by the market."""
    asked = wanted(role)
    if not asked and fabric.has_taints:
        return f"every node has a taint that role {role.name} does not tolerate"
    if not asked:
        return (
            f"every node is a spot node, which role {role.name} does not ask for; write `spot: true` and `checkpoint` "
            f"in the job file, or `any` in the column `market` of a trace"
        )
    return f"no node has {asked}, which role {role.name} asks for"


def _no_machine(role: RoleRequest, lack: tuple[str, float, float], that_admits: str) -> Told:
    name, asked, largest = lack
    told = (
        f"a member of role {role.name} needs {amount_in_words(asked)} {for_people(name, asked)}; "
        f"the largest machine{that_admits} has {amount_in_words(largest)}"
    )
    return told, Shortage(name, asked - largest)


def _no_part(empty: Occupancy, role: RoleRequest, nodes: BoolArray, that_admits: str) -> Told:
    """No GPU of these nodes provides the part of a GPU that a member requests."""
    shape = role.shape
    why = share_refused(empty, shape, nodes) if shape.part and shape.mig is None else None
    if why is not None:
        short = Shortage("gpu_memory_GiB", why[1]) if why[1] else None
        return f"a member of role {role.name} needs {why[0]}", short
    part = f"cut, or may be cut, into {shape.mig}" if shape.mig else "shared"
    told = f"no machine{that_admits} has a GPU that is {part} as a member of role {role.name} asks"
    if shape.mig and _may_not_partition(empty.fabric, nodes):
        told += (
            ", and this daemon may not partition GPUs; start it with --partition-gpus, or create the instances and "
            "start it again"
        )
    return told, None


def _may_not_partition(fabric: Fabric, nodes: BoolArray) -> bool:
    """Whether the daemon is not permitted to partition GPUs of these nodes that have MIG."""
    return any(
        fabric.nodes[node].mig_by == CUT_NOT_PERMITTED
        and mig_table(fabric.machine_of_node(node).gpu) is not None
        for node in np.flatnonzero(nodes).tolist()
    )


# ----- ROOM


def _meant(fabric: Fabric, role: RoleRequest) -> str:
    """What a role probably meant, of models that no node has; "" where nothing is near."""
    there = sorted({machine.gpu for machine in fabric.machines if machine.gpu})
    hints = [did_you_mean(model, there) for model in role.shape.models if model not in there]
    return "".join(f" {hint}" for hint in hints[:1] if hint)


def _none_usable(occupancy: Occupancy, where: Occupancy, request: TopologyRequest) -> Told:
    """Every node is unhealthy, unusable, held back or excluded by anti-affinity (`_left_out`)."""
    gpus = sum(role.members * role.shape.gpus for role in request.roles)
    short = Shortage("gpus", gpus) if gpus else Shortage("nodes", 1)
    left_out = _usable(occupancy) > 0
    return f"no {'other ' if left_out else ''}node may be used", short


def _too_little(where: Occupancy, lack: Lack, kept_away: bool) -> Told:
    needed = f"{amount_in_words(lack.asked)} {for_people(lack.resource, lack.asked)}"
    short = Shortage(lack.resource, lack.asked - lack.free)
    return f"needs {needed}{lack.because}; {_there(where, lack, kept_away)}", short


def _there(where: Occupancy, lack: Lack, kept_away: bool) -> str:
    """What there is of it; of GPUs, whatever else is free and why that does not count.

    kept_away: what is too near jobs to be apart from is not told here.
    """
    free = amount_in_words(lack.free)
    all_free = free_gpus(where, usable_nodes(where))
    if lack.resource == "gpus" and lack.free < all_free:
        of = "the empty cluster's" if where is where.emptied() else "the"
        far = " far enough away" if kept_away else ""
        kind = "" if where is where.emptied() else "free "
        return f"{free} of {of} {all_free} {kind}GPU{'s' * (all_free != 1)}{far} {_which_count(where, lack)}"
    if where is where.emptied():
        return f"the empty cluster has {free}"
    is_mig = any(lack.resource == role.shape.mig for role in lack.roles)
    to_empty = nodes_to_empty(where, lack) if is_mig else 0
    a_cut = _in_use(to_empty) if to_empty else ""
    return f"{free} {are(lack.free)} free{a_cut}"


def _in_use(nodes: int) -> str:
    """What holds up instances that could be made there."""
    return f"; a cut needs an empty node, and {nodes} {_nodes(nodes)} in use"


def _which_count(where: Occupancy, lack: Lack) -> str:
    """What is true of the GPUs that count and of no others: what their nodes are, or how large."""
    shapes, usable = [role.shape for role in lack.roles], usable_nodes(where)
    admitted = np.logical_or.reduce([where.fabric.nodes_with(s.labels, s.models) for s in shapes])
    free = free_gpus(where, admitted if usable is None else admitted & usable)
    words = [
        "model" if any(shape.models for shape in shapes) else "",
        "label" if any(without_tolerations(shape.labels) for shape in shapes) else "",
        "market" if where.fabric.has_spot else "",
        "taint" if where.fabric.has_taints else "",
    ]
    told = []
    if free < free_gpus(where, usable):
        told.append(f"of an acceptable {' and '.join(filter(None, words))}")
    if lack.free < free:
        scarce = " and ".join(_scarce_devices(where, shapes))
        told.append(
            f"in machines with enough {scarce}"
            if scarce
            else "in machines large enough for a member"
        )
    return f"{are(lack.free)} {', '.join(told)}"


def _scarce_devices(where: Occupancy, shapes: Sequence[Shape]) -> dict[str, None]:
    """Devices that a machine has too few of for a member, although it has the GPUs."""
    there = [(machine.gpus, dict(machine.devices)) for machine in where.fabric.machines]
    return {
        name: None
        for shape in shapes
        for name, count in shape.devices
        if any(gpus >= shape.gpus and devices.get(name, 0) < count for gpus, devices in there)
    }


# ----- CONTIGUITY


def _not_together(where: Occupancy, request: TopologyRequest) -> Told:
    told = _short_on_every_node(where, request) or _not_spread(where, request)
    if told is not None:
        return told
    if not is_bound(request) and sum(role.members for role in request.roles) > 1:
        return _scattered(where, request)
    return _not_in_one(where, request, _nearest_for_gang(where, request))


def _nearest_for_gang(where: Occupancy, request: TopologyRequest) -> Roomiest:
    """The domain with most free GPUs while these are too few in every one, else the one with room for most members."""
    by_gpus = roomiest_domain(where, request, by_gpus=True)
    too_few = by_gpus.free_gpus < members_in_one_domain(request)[1]
    return by_gpus if too_few else roomiest_domain(where, request, by_gpus=False)


def _short_on_every_node(where: Occupancy, request: TopologyRequest) -> Told | None:
    """Nodes have room for all requests of a member but one resource, of which none has enough."""
    for role in request.roles:
        if table_of(where, request, role).in_domain[0][0]:
            continue
        for resource in resources_of(request, role):
            shape = _without(role.shape, resource.name)
            if shape is None:
                continue
            room_for_rest = slots_of(where, shape, shape.models).of_node > 0
            most = int(resource.free_of_node(where)[room_for_rest].max(initial=-1))
            if 0 <= most < resource.asked:
                return _most_of(role, shape, resource, most)
    return None


def _most_of(role: RoleRequest, rest: Shape, resource: Resource, most: int) -> Told:
    asked, free = resource.asked / resource.unit, most / resource.unit
    with_room = "" if rest == _nothing_of(rest) else " with room for the rest of it"
    told = (
        f"a member of role {role.name} needs {amount_in_words(asked)} {for_people(resource.name, asked)}; "
        f"no node{with_room} has more than {amount_in_words(free)} free"
    )
    return told, Shortage(resource.name, asked - free)


def _without(shape: Shape, resource: str) -> Shape | None:
    """Return the shape without one resource; None for GPUs and their parts."""
    match resource:
        case "cpus":
            return replace(shape, cpus=0)
        case "memory_GiB":
            return replace(shape, memory_GiB=0)
        case "memory_GBps":
            return replace(shape, memory_GBps=0)
        case "nics":
            return replace(shape, nics=0)
    devices = tuple(device for device in shape.devices if device[0] != resource)
    return None if devices == shape.devices else replace(shape, devices=devices)


def _nothing_of(shape: Shape) -> Shape:
    return Shape(models=shape.models, labels=shape.labels)


def _not_spread(where: Occupancy, request: TopologyRequest) -> Told | None:
    """There is room for all members, but not for so few in each domain."""
    for role in request.roles:
        if role.is_limited:
            tier, most, room = room_when_spread(where, request, role)
            if room < role.members:
                told = (
                    f"needs room for {plural(role.members, 'member')} of role {role.name}, at most {most} in one "
                    f"{where.fabric.tiers[tier]}; so spread there is room for {room}"
                )
                return told, Shortage("members", role.members - room)
    return None


def _scattered(where: Occupancy, request: TopologyRequest) -> Told:
    """What is free lies in pieces too small for members, which nothing else binds together."""
    asked, room = sum(role.members for role in request.roles), members_with_room(where, request)
    if not any(role.shape.gpus for role in request.roles):
        told = f"needs room for {plural(asked, 'member')}, each on one node"
        short = Shortage("members", asked - room) if room < asked else None
        return (
            f"{told}; there is {f'room for {room} of them' if short else 'not for all roles side by side'}",
            short,
        )
    told = f"needs GPUs for {plural(asked, 'member')}, each on one node; {_there_is(where)}"
    if room >= asked:
        return f"{told}, but not for all roles side by side", None
    return f"{told}, in pieces for {room} of them", Shortage("members", asked - room)


def _not_in_one(where: Occupancy, request: TopologyRequest, nearest: Roomiest) -> Told:
    """What must be in one domain is free in no one domain."""
    members, gpus = members_in_one_domain(request)
    what = _gpus(gpus) if gpus else f"{plural(members, 'member')}"
    told = (
        f"needs {what} in one {domain_word(where.fabric, request)}; {_there_is(where)}, "
        f"the roomiest, {nearest.tier} {nearest.name}, has {nearest.free_gpus}"
    )
    if nearest.free_gpus < gpus:
        return told, Shortage("gpus", gpus - nearest.free_gpus)
    if nearest.members < members:
        told = f"{told}, in pieces for {plural(nearest.members, 'member')}"
        return told, Shortage("members", members - nearest.members)
    spread = ", spread" if any(role.is_limited for role in request.roles) else ""
    return f"{told}, but not in the slices{spread} or for the roles asked", None


def _there_is(where: Occupancy) -> str:
    gpus = free_gpus(where, usable_nodes(where))
    if where is where.emptied():
        return f"the empty cluster has {gpus}"
    return f"{gpus} {are(gpus)} free"


def _gpus(count: int) -> str:
    return f"{plural(count, 'GPU')}"
