"""Keeps a changed or deleted node in the site with its old spec until its gangs end.

A node may be deleted under a gang, or come back with a GPU less. What runs is carried over to each new site by name, so
every site must have room for it; events report the loss, and the gangs end. What such a node has no more is held by
nobody (`lost_parts`), so that it goes to no other gang in the moment in which the one there ends.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from gantree.core.view import LedgerView
from gantree.model.cluster import Cluster, Machine, Node
from gantree.model.jobs import GPU_DEVICES
from gantree.model.placements import MemberPlacement
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy

HOLDER, ROLE = "out of service on ", "others"


def with_stale_nodes(seen: Cluster, decided: LedgerView) -> tuple[Cluster, tuple[str, ...]]:
    """The observed site with stale nodes as they were, where gangs hold room on them; and their names."""
    old = decided.site.description
    if old is None:
        return seen, ()
    stay = dict.fromkeys(_without_room(seen, decided))
    if not stay:
        return seen, ()
    machines = dict(seen.machines)
    kept = [_kept(node, old, seen, machines) for node in old.nodes if node.name in stay]
    others = [node for node in seen.nodes if node.name not in stay]
    return replace(seen, machines=machines, nodes=(*others, *kept)), tuple(stay)


def lost_parts(site: Cluster, seen: Cluster, stale: Iterable[str]) -> dict[str, MemberPlacement]:
    """What stale nodes of a site have no more, of those that are still seen."""
    before, now = _machine_of_node(site), _machine_of_node(seen)
    lost = {name: _lost(name, before[name], now[name]) for name in stale if name in now}
    return {name: member for name, member in lost.items() if member is not None}


def _machine_of_node(cluster: Cluster) -> dict[str, Machine]:
    return {node.name: cluster.machines[node.machine] for node in cluster.nodes}


def _lost(node: str, before: Machine, now: Machine) -> MemberPlacement | None:
    """The difference of two machines; of GPUs, of which only the number is known, the last."""
    there = dict(now.devices)
    devices = {name: count - there.get(name, 0) for name, count in before.devices}
    devices = {name: count for name, count in devices.items() if count > 0}
    gpus = max(0, before.gpus - now.gpus, *(devices.get(name, 0) for name in GPU_DEVICES))
    member = MemberPlacement(
        ROLE,
        0,
        node,
        tuple(range(max(0, before.gpus - gpus), before.gpus)),
        cpus=max(0.0, (before.cpus or 0.0) - (now.cpus or 0.0)),
        memory_GiB=max(0.0, (before.memory_GiB or 0.0) - (now.memory_GiB or 0.0)),
        devices=tuple(sorted(devices.items())),
    )
    return None if member == MemberPlacement(ROLE, 0, node) else member


def attempts_on(nodes: Iterable[str], decided: LedgerView) -> frozenset[tuple[str, int]]:
    """The attempts that hold room on some of these nodes."""
    there = frozenset(nodes)
    return frozenset(
        (state.job, state.attempt)
        for state in (decided.placed_jobs() if there else ())
        if state.placement and not there.isdisjoint(state.placement.nodes)
    )


def _without_room(seen: Cluster, decided: LedgerView) -> Iterator[str]:
    """Nodes of a site without room for what gangs hold there."""
    rooms = Occupancy(Fabric.build(seen), empty=True)
    for state in decided.placed_jobs():
        assert state.placement is not None, "who holds has a place"
        for member in state.placement.members:
            if rooms.missing((member,)):
                yield member.node
            else:
                rooms.take(state.job, (member,))


def _kept(node: Node, old: Cluster, seen: Cluster, machines: dict[str, Machine]) -> Node:
    """Return an old node on a site whose tiers may have changed."""
    machine = old.machines[node.machine]
    name = node.machine
    while name in machines and machines[name] != replace(machine, name=name):
        name += "'"
    machines[name] = replace(machine, name=name)
    tiers = len(seen.tiers) - 1
    at = node.at if len(node.at) == tiers else (node.name,) * tiers
    return replace(node, machine=name, at=at)
