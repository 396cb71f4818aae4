"""One cluster out of a fabric and the machines on it: which machine each node is, and which rail each NIC is on.

A node's machine is, in this order: the one that was named for it; the one whose own print gives its host name; the
one that the fabric's source names or describes; the one given for all nodes. What none of these tells is refused,
for a node without a machine cannot be placed on.

Which rail each of its NICs hangs on is the fabric's word, as far as its nodes agree: `machine_rails`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gantree.model.cluster import Cluster, Machine, Node
from gantree.model.errors import BadInput
from gantree.topology.catalog import machine as catalog_machine
from gantree.topology.catalog import plain
from gantree.topology.discovery.fabrics import FabricReading, SeenNode
from gantree.topology.discovery.machine_rails import with_rails
from gantree.topology.discovery.merging import NODE, some


@dataclass(frozen=True, slots=True)
class MachineChoice:
    """Which machine nodes are: of_node by name, of_host by what a machine's own print calls its host, else default."""

    of_node: Mapping[str, Machine]
    of_host: Mapping[str, Machine]
    default: Machine | None = None


@dataclass(frozen=True, slots=True)
class Assembled:
    """A cluster, what was concluded on the way, and what is missing or odd."""

    cluster: Cluster
    inferred: tuple[str, ...]
    warnings: tuple[str, ...]


def assembled(name: str, reading: FabricReading, choice: MachineChoice, source: str) -> Assembled:
    """Make a cluster. source names the fabric's file in errors.

    BadInput where there is no node, or a node's machine is not told.
    """
    if not reading.nodes:
        raise BadInput(f"{source}: it tells of no node, so there is nothing to make a cluster of")
    known = {node.name for node in reading.nodes}
    strangers = sorted(choice.of_node.keys() - known)
    if strangers:
        raise BadInput(f"{source}: has no node {some(strangers)}, for which a machine was named")
    machine_of_node = _machines(reading.nodes, choice, source)
    machine_of_node, said, odd = with_rails(reading.nodes, machine_of_node)
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
    warnings = [*reading.warnings, *odd]
    warnings += [f"torus {torus} is left out: some of its nodes are in no tier" for torus in lost]
    return Assembled(cluster, (*reading.inferred, *said), tuple(warnings))


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
    told = Node(node.name, machine.name, node.at, node.labels, partitions=node.partitions)
    return told if node.address is None else replace(told, address=node.address)


def _machines(nodes: Sequence[SeenNode], choice: MachineChoice, source: str) -> dict[str, Machine]:
    """Return the machine of each node; different machines never share a name."""
    found: dict[str, Machine] = {}
    untold: list[str] = []
    for node in nodes:
        machine = _machine(node, choice)
        if machine is None:
            untold.append(node.name)
        else:
            found[node.name] = machine
    if untold:
        raise BadInput(
            f"{source}: nothing tells what machine {len(untold)} nodes are ({some(untold)}); name a model with "
            f"--machine, or give what the machine itself prints, such as `nvidia-smi topo -m`"
        )
    return _named_apart(found)


def _machine(node: SeenNode, choice: MachineChoice) -> Machine | None:
    short = node.name.partition(".")[0]
    named = (
        choice.of_node.get(node.name) or choice.of_host.get(node.name) or choice.of_host.get(short)
    )
    if named is not None:
        return _checked(node, named)
    if node.machine is not None:
        return _checked(node, catalog_machine(node.machine))
    if choice.default is not None and _may_be(node, choice.default):
        return replace(choice.default, gpu=choice.default.gpu or node.gpu)
    return _described(node)


def _checked(node: SeenNode, machine: Machine) -> Machine:
    if not _may_be(node, machine):
        raise BadInput(
            f"node {node.name}: the fabric's source tells of {_words(node.gpus, node.gpu)}, but machine "
            f"{machine.name} has {_words(machine.gpus, machine.gpu)}"
        )
    return replace(machine, gpu=machine.gpu or node.gpu)


def _may_be(node: SeenNode, machine: Machine) -> bool:
    same_count = node.gpus is None or node.gpus == machine.gpus
    return same_count and (None in (node.gpu, machine.gpu) or node.gpu == machine.gpu)


def _words(gpus: int | None, gpu: str | None) -> str:
    return f"{'some' if gpus is None else gpus} GPUs" + (f" ({gpu})" if gpu else "")


def _described(node: SeenNode) -> Machine | None:
    """Return a machine with the counts that the fabric's source tells, if it tells how many GPUs there are.

    Memory is rounded down to whole GiB: nodes of one model report a few MiB more or less.
    """
    if node.gpus is None:
        return None
    name = f"{node.gpu or 'gpu'}-x{node.gpus}" if node.gpus else "cpu-only"
    memory_GiB = None if node.memory_GiB is None else float(int(node.memory_GiB))
    machine = plain(name, node.gpus, node.gpu, node.cpus, memory_GiB)
    return replace(machine, nics_counted=False)


def _named_apart(machine_of_node: Mapping[str, Machine]) -> dict[str, Machine]:
    """Give machines that differ different names: the second "m" becomes "m-2"."""
    known: dict[str, list[Machine]] = {}
    found: dict[str, Machine] = {}
    for node, machine in machine_of_node.items():
        alike = known.setdefault(machine.name, [])
        if machine not in alike:
            alike.append(machine)
        number = alike.index(machine) + 1
        found[node] = machine if number == 1 else replace(machine, name=f"{machine.name}-{number}")
    return found
