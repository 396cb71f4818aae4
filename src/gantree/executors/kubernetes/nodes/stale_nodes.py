"""Keeps a changed or deleted node in the site with its old spec until its gangs end.

A node may be deleted under a gang, or come back with a GPU less. What runs is carried over to each new site by name, so
every site must have room for it; events report the loss, and the gangs end.
"""

from collections.abc import Iterator
from dataclasses import replace

from gantree.core.view import LedgerView
from gantree.model.cluster import Cluster, Machine, Node
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy


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
