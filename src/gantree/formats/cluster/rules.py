"""Rules between the fields of a cluster file, with the line of what breaks them.

A rule looks only at what could be read: a node that was taken out for a wrong field must not make an allocation
on it look like one on an unknown node.
"""

from collections.abc import Iterator, Mapping
from itertools import islice

from gantree.formats.cluster.form import AllocationForm, ClusterForm, NodeForm
from gantree.formats.cluster.machines import machine_problems
from gantree.model.cluster import MARKET_LABEL, Machine
from gantree.model.errors import Problem
from gantree.model.placements import FABRIC_TIER
from gantree.text.hostlists import count_nodes, expand
from gantree.text.words import did_you_mean
from gantree.topology.hardware.catalog import MACHINES

LAST_TIER = "node"
INNER_TIERS = ("socket", "pcie", "gpu")
"""Tiers that the machine model has inside a node; a site cannot name them outside. `nvlink` may be either."""
MAX_NODES = 200_000
MAX_NAMES_FOR_A_HINT = 1000


def names_of_nodes(form: ClusterForm) -> list[list[str]]:
    """Return the names of each entry of `nodes`; from the entry on that makes them too many, none."""
    names: list[list[str]] = []
    count = 0
    for node in form.nodes:
        count += sum(count_nodes(text) for text in node.names)
        expanded = (
            [name for text in node.names for name in expand(text)] if count <= MAX_NODES else []
        )
        names.append(expanded)
    return names


def cluster_problems(form: ClusterForm, names: list[list[str]]) -> Iterator[Problem]:
    """Yield what is wrong between the fields of a cluster, allocations apart."""
    yield from _tier_problems(form)
    yield from _link_problems(form)
    for machine in form.machines.values():
        yield from machine_problems(machine)
    yield from _node_problems(form, names)


def _tier_problems(form: ClusterForm) -> Iterator[Problem]:
    tiers = form.tiers
    if tiers[-1] != LAST_TIER:
        yield form.problem(
            "tiers", f"`{tiers[-1]}` last", "tiers from widest to narrowest, ending with `node`"
        )
    for index, tier in enumerate(tiers):
        if tier in tiers[:index]:
            yield form.problem("tiers", f"`{tier}` again", "each tier once", at=(index,))
        elif tier in INNER_TIERS or tier == FABRIC_TIER:
            allowed = (
                f"names other than {', '.join(INNER_TIERS)} and {FABRIC_TIER}, which are reserved"
            )
            yield form.problem("tiers", f"`{tier}`", allowed, at=(index,))


def _link_problems(form: ClusterForm) -> Iterator[Problem]:
    lost = sorted(form.names_lost("links"))  # an entry that lacks a field may be of no tier besides
    for tier in (*form.links, *lost):
        if tier not in form.tiers and not form.any_lost("tiers"):
            hint = did_you_mean(tier, form.tiers)
            allowed = f"a tier of this cluster ({', '.join(form.tiers)})"
            yield form.problem("links", "an unknown tier", allowed, hint, at=(tier,))


def _node_problems(form: ClusterForm, names: list[list[str]]) -> Iterator[Problem]:
    own_machines = form.machines.keys() | form.names_lost("machines")
    outer = None if form.any_lost("tiers") else [tier for tier in form.tiers if tier != LAST_TIER]
    line_of_node: dict[str, int] = {}
    for node, own in zip(form.nodes, names, strict=True):
        if node.machine not in own_machines and node.machine not in MACHINES:
            yield _unknown_machine(node, sorted(own_machines))
        if outer is not None and "at" not in node.lost:
            yield from _at_problems(node, outer)
        if MARKET_LABEL in node.labels:
            allowed = "other labels; `spot: {per_day: ...}` marks a spot node"
            yield node.problem("labels", f"`{MARKET_LABEL}`", allowed, at=(MARKET_LABEL,))
        if not own:
            yield node.problem("names", "too many nodes", f"at most {MAX_NODES} nodes in all")
            return
        yield from _repeated(node, own, line_of_node)


def _unknown_machine(node: NodeForm, own: list[str]) -> Problem:
    allowed = "a machine of the catalogue or of `machines`"
    allowed += f" ({', '.join(own)})" if own else ""
    hint = did_you_mean(node.machine, [*own, *MACHINES])
    return node.problem("machine", f"the unknown machine `{node.machine}`", allowed, hint)


def _at_problems(node: NodeForm, outer: list[str]) -> Iterator[Problem]:
    allowed = (
        f"a name for each of {', '.join(outer)}"
        if outer
        else "nothing: this cluster has no tier above node"
    )
    lost = node.names_lost("at")
    for tier in outer:
        if tier not in node.at and tier not in lost:
            yield node.problem("at", f"no `{tier}`", allowed)
    for tier in node.at:
        if tier not in outer:
            hint = did_you_mean(tier, outer)
            yield node.problem("at", "an unknown tier", allowed, hint, at=(tier,))


def _repeated(node: NodeForm, names: list[str], line_of_node: dict[str, int]) -> Iterator[Problem]:
    line = node.line_of("names")
    for name in names:
        if name in line_of_node:
            found = f"`{name}` again (first in line {line_of_node[name]})"
            yield node.problem("names", found, "each node once")
        line_of_node[name] = line


def allocation_problems(
    form: ClusterForm, machine_of_node: Mapping[str, Machine | None]
) -> Iterator[Problem]:
    """Yield what is wrong with allocations. A node whose machine could not be read has None."""
    holder_of_gpu: dict[tuple[str, int], str] = {}
    held: dict[tuple[str, str], float] = {}
    nodes_lost = form.any_lost("nodes")
    for allocation in form.allocations:
        if allocation.node not in machine_of_node:
            if not nodes_lost:
                yield _unknown_node(allocation, machine_of_node)
            continue
        machine = machine_of_node[allocation.node]
        if machine is not None:
            yield from _range_problems(allocation, machine)
            yield from _amount_problems(allocation, machine, held)
        yield from _twice_problems(allocation, holder_of_gpu)


def _unknown_node(allocation: AllocationForm, known: Mapping[str, object]) -> Problem:
    hint = did_you_mean(allocation.node, islice(known, MAX_NAMES_FOR_A_HINT))
    found = f"the unknown node `{allocation.node}`"
    return allocation.problem("node", found, "a node of this cluster", hint)


def _range_problems(allocation: AllocationForm, machine: Machine) -> Iterator[Problem]:
    for place, gpu in enumerate(allocation.gpus):
        if gpu >= machine.gpus:
            allowed = f"GPUs 0 to {machine.gpus - 1} ({machine.name})" if machine.gpus else "no GPU"
            yield allocation.problem("gpus", f"GPU `{gpu}`", allowed, at=(place,))


def _twice_problems(
    allocation: AllocationForm, holder_of_gpu: dict[tuple[str, int], str]
) -> Iterator[Problem]:
    for place, gpu in enumerate(allocation.gpus):
        key = (allocation.node, gpu)
        if key in holder_of_gpu:
            found = f"GPU `{gpu}`, which {holder_of_gpu[key]} holds"
            yield allocation.problem("gpus", found, "each GPU once", at=(place,))
        holder_of_gpu[key] = allocation.job


def _amount_problems(
    allocation: AllocationForm, machine: Machine, held: dict[tuple[str, str], float]
) -> Iterator[Problem]:
    """Add up what a node gives away, and complain where it becomes more than the node has."""
    amounts: tuple[tuple[str, float, float | None], ...] = (
        ("cpus", allocation.cpus, machine.cpus),
        ("memory_GiB", allocation.memory_GiB, machine.memory_GiB),
        ("nics", allocation.nics, len(machine.nics) if machine.nics_counted else None),
    )
    for field, amount, capacity in amounts:
        key = (allocation.node, field)
        held[key] = held.get(key, 0.0) + amount
        if amount and capacity is not None and held[key] > capacity:
            found = f"{held[key]:g} in all on {allocation.node}"
            yield allocation.problem(field, found, f"at most {capacity:g} ({machine.name})")
