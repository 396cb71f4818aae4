"""Members on one node whose GPUs must share domains of the tiers inside it (socket, nvlink, pcie, gpu).

A request for these tiers is a tuple of layers, widest run first: (4, "socket"), (2, "pcie") says each run of four
members within one socket, each run of two behind one PCIe switch; ALL members of a role on the node as one run is
what `required` asks. Sizes nest (`placement.request.topology_request` checks that); the domains of two tiers need not.

Where several roles with such requests meet on a node, GPUs are handed out by trying domains in turn, tightest first,
and going back where the rest then finds no room. That is complete while the tiers involved nest, as they do in
every machine of the catalogue; nodes are small, so it is also quick.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from gantree.model.cluster import Machine
from gantree.placement.machine.devices import choose_gpus, inner_domains
from gantree.placement.machine.gpu_sets import NumaShortages
from gantree.topology.hardware.masks import mask_of

INNER_TIERS = ("socket", "nvlink", "pcie", "gpu")
"""Tiers that a machine model has inside; a site may put its own tier of the name nvlink above the node."""

Layers = tuple[tuple[int, str], ...]
GpusOfMembers = tuple[tuple[int, ...], ...]

ALL = 0
"""Run size of a layer that takes all members of the role on the node as one run."""


@dataclass(frozen=True, slots=True)
class RoleDemand:
    """Members of one role on a node: how many, gpus_each GPUs and nics_each NICs a member, under these layers."""

    members: int
    gpus_each: int
    layers: Layers = ()
    nics_each: int = 0


@dataclass(frozen=True, slots=True)
class NodeContext:
    """What is free near the GPUs of a node, for `devices.choose_gpus`: free NICs, NUMA nodes short of cores.

    free_nics is a mask, None where no traffic leaves the node.
    """

    free_nics: int | None = None
    shortages: NumaShortages = ()


NO_CONTEXT = NodeContext()


def members_inside(machine: Machine, free: int, gpus_each: int, layers: Layers) -> int:
    """How many members of gpus_each (at least 1) fit the free GPUs such that every layer is kept."""
    return most_inside(machine, free, layers, lambda gpus: gpus.bit_count() // gpus_each)


def most_inside(machine: Machine, gpus: int, layers: Layers, fit: Callable[[int], int]) -> int:
    """How many members fit a mask of GPUs such that every layer is kept; fit says how many a mask holds without any."""
    if not layers:
        return fit(gpus)
    run, tier = layers[0]
    in_each = [
        most_inside(machine, gpus & domain, layers[1:], fit)
        for domain in inner_domains(machine, tier)
    ]
    if run == ALL:
        return max(in_each, default=0)
    return sum(members // run * run for members in in_each)


def choose_for_members(
    machine: Machine,
    free: int,
    demands: Sequence[RoleDemand],
    together: str | None = None,
    context: NodeContext = NO_CONTEXT,
) -> tuple[GpusOfMembers, ...] | None:
    """GPUs for every member of every demand, or None where they do not fit.

    together names an inner tier of which one domain must hold all GPUs of all demands, if there are any.
    """
    if together is not None and any(demand.gpus_each for demand in demands if demand.members):
        domains = sorted(inner_domains(machine, together), key=lambda d: (free & d).bit_count())
        answers = (
            choose_for_members(machine, free & domain, demands, None, context) for domain in domains
        )
        return next((answer for answer in answers if answer is not None), None)
    if not any(demand.layers for demand in demands):
        return _choose_unbound(machine, free, demands, context)
    order = sorted(range(len(demands)), key=lambda number: not demands[number].layers)
    ordered = [demands[number] for number in order]
    chosen = next(_choose_in_turn(machine, free, ordered, context), None)
    if chosen is None:
        return None
    return tuple(chosen[order.index(number)] for number in range(len(demands)))


def _choose_unbound(
    machine: Machine, free: int, demands: Sequence[RoleDemand], context: NodeContext
) -> tuple[GpusOfMembers, ...] | None:
    """First the best set for all together, then each member's best part of it."""
    total = sum(demand.members * demand.gpus_each for demand in demands)
    if total > free.bit_count():
        return None
    nics = sum(demand.members * demand.nics_each for demand in demands)
    together = choose_gpus(machine, free, total, context.free_nics, nics, context.shortages)
    if len(demands) == 1 and demands[0].members == 1:
        return ((together,),)
    left = mask_of(together)
    answer = []
    for demand in demands:
        members = _split(machine, left, demand, context)
        left &= ~mask_of(gpu for gpus in members for gpu in gpus)
        answer.append(members)
    return tuple(answer)


def _split(machine: Machine, left: int, demand: RoleDemand, context: NodeContext) -> GpusOfMembers:
    chosen = []
    for _ in range(demand.members):
        gpus = choose_gpus(
            machine, left, demand.gpus_each, context.free_nics, demand.nics_each, context.shortages
        )
        left &= ~mask_of(gpus)
        chosen.append(gpus)
    return tuple(chosen)


def _choose_in_turn(
    machine: Machine, free: int, demands: Sequence[RoleDemand], context: NodeContext
) -> Iterator[list[GpusOfMembers]]:
    if not any(demand.layers for demand in demands):
        rest = _choose_unbound(machine, free, demands, context)
        if rest is not None:
            yield list(rest)
        return
    first = demands[0]
    for members in _runs(machine, free, first, first.members, first.layers, context):
        taken = mask_of(gpu for gpus in members for gpu in gpus)
        for others in _choose_in_turn(machine, free & ~taken, demands[1:], context):
            yield [members, *others]


def _runs(
    machine: Machine, free: int, of: RoleDemand, members: int, layers: Layers, context: NodeContext
) -> Iterator[GpusOfMembers]:
    """Every way that matters to hand out GPUs to so many members run by run, tightest domain first."""
    if not members:
        yield ()
    elif not layers:
        unbound = RoleDemand(members, of.gpus_each, (), of.nics_each)
        alone = _choose_unbound(machine, free, [unbound], context)
        if alone is not None:
            yield alone[0]
    else:
        size = layers[0][0] or members
        domains = inner_domains(machine, layers[0][1])
        for domain in sorted(domains, key=lambda d: (free & d).bit_count()):
            for run in _runs(machine, free & domain, of, size, layers[1:], context):
                left = free & ~mask_of(gpu for gpus in run for gpu in gpus)
                for rest in _runs(machine, left, of, members - size, layers, context):
                    yield run + rest
