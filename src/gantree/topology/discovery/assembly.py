"""Assembles one cluster from a fabric and its machines.

Which machine a node is: `machine_of_node`. What is given (for the node, by a print that states its host, for all nodes)
comes before what the fabric's source names or describes, and a node whose machine is not given is refused, for a node
without a machine cannot be placed on. Which rail each of its NICs hangs on is the fabric's word, as far as its nodes
agree: `machine_rails`.
"""

from dataclasses import dataclass, replace

from gantree.model.cluster import Cluster, Machine, Node
from gantree.model.errors import BadInput
from gantree.topology.discovery.fabrics import FabricReading, SeenNode
from gantree.topology.discovery.machine_of_node import (
    MachineChoice,
    machines_of_nodes,
    unknown_facts,
)
from gantree.topology.discovery.machine_rails import with_rails
from gantree.topology.discovery.merging import NODE, some


@dataclass(frozen=True, slots=True)
class Assembled:
    """A cluster, what was concluded on the way, and what is missing or odd."""

    cluster: Cluster
    inferred: tuple[str, ...]
    warnings: tuple[str, ...]


def assembled(name: str, reading: FabricReading, choice: MachineChoice, source: str) -> Assembled:
    """Make a cluster. source names the fabric's file in errors.

    BadInput where there is no node, a node's machine is not given, or a given machine cannot be a node's.
    """
    if not reading.nodes:
        raise BadInput(f"{source}: it tells of no node, so there is nothing to make a cluster of")
    known = {node.name for node in reading.nodes}
    strangers = sorted(choice.of_node.keys() - known)
    if strangers:
        raise BadInput(f"{source}: has no node {some(strangers)}, for which a machine was named")
    chosen = machines_of_nodes(reading.nodes, choice, source)
    machine_of_node, said, odd = with_rails(reading.nodes, chosen.machine_of_node)
    machines = {machine.name: machine for machine in machine_of_node.values()}
    tori = tuple(torus for torus in reading.tori if known.issuperset(torus.nodes))
    lost = [torus.name for torus in reading.tori if torus not in tori]
    cluster = Cluster(
        name=name,
        tiers=(*reading.tiers, NODE),
        machines=machines,
        nodes=tuple(_node(node, machine_of_node[node.name]) for node in reading.nodes),
        links=dict(reading.links),
        domains=reading.domains,
        tori=tori,
    )
    warnings = [*reading.warnings, *chosen.warnings, *odd, *unknown_facts(machines.values())]
    warnings += [f"torus {torus} is left out: some of its nodes are in no tier" for torus in lost]
    return Assembled(cluster, (*reading.inferred, *chosen.inferred, *said), tuple(warnings))


def without(reading: FabricReading, names: frozenset[str], source: str) -> FabricReading:
    """Return a reading without some nodes. BadInput where one is not in it, or none would be left."""
    strangers = sorted(names - {node.name for node in reading.nodes})
    if strangers:
        raise BadInput(f"{source}: has no node {some(strangers)} to leave out")
    nodes = tuple(node for node in reading.nodes if node.name not in names)
    if not nodes:
        raise BadInput(f"{source}: no node is left")
    left = {(NODE, node.name) for node in nodes}
    for number, tier in enumerate(reading.tiers):
        left |= {(tier, "/".join(node.at[: number + 1])) for node in nodes}
    domains = tuple(facts for facts in reading.domains if (facts.tier, facts.name) in left)
    return replace(reading, nodes=nodes, domains=domains)


def _node(node: SeenNode, machine: Machine) -> Node:
    given = Node(node.name, machine.name, node.at, node.labels, partitions=node.partitions)
    return given if node.address is None else replace(given, address=node.address)
