"""Members on one node whose GPUs must share domains of the tiers inside it (socket, nvlink, pcie, gpu).

A wish for these tiers is a tuple of layers, widest run first: (4, "socket"), (2, "pcie") says each run of four
members within one socket, each run of two behind one PCIe switch; ALL members of a role on the node as one run is
what `required` asks. Sizes nest (`placement.wish` sees to that); the domains of two tiers need not.

Where several roles with such wishes meet on a node, GPUs are handed out by trying domains in turn, tightest first,
and going back where the rest then finds no room. That is complete while the tiers involved nest, as they do in
every machine of the catalogue; nodes are small, so it is also quick.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gantree.model.cluster import Machine
from gantree.placement.devices import choose_gpus, inner_domains
from gantree.topology.masks import mask_of

INNER_TIERS = ("socket", "nvlink", "pcie", "gpu")
"""Tiers that a machine model has inside; a site may put its own tier of the name nvlink above the node."""

Layers = tuple[tuple[int, str], ...]
GpusOfMembers = tuple[tuple[int, ...], ...]

ALL = 0
"""Run size of a layer that takes all members of the role on the node as one run."""


@dataclass(frozen=True, slots=True)
class Demand:
    """So many members of one role on a node, gpus_each GPUs a member, under these layers."""

    members: int
    gpus_each: int
    layers: Layers = ()


def members_inside(machine: Machine, free: int, gpus_each: int, layers: Layers) -> int:
    """How many members of gpus_each (at least 1) fit the free GPUs such that every layer is kept."""
    if not layers:
        return free.bit_count() // gpus_each
    run, tier = layers[0]
    in_each = [
        members_inside(machine, free & domain, gpus_each, layers[1:])
        for domain in inner_domains(machine, tier)
    ]
    if run == ALL:
        return max(in_each, default=0)
    return sum(members // run * run for members in in_each)


def choose_for_members(
    machine: Machine, free: int, demands: Sequence[Demand], together: str | None = None
) -> tuple[GpusOfMembers, ...] | None:
    """GPUs for every member of every demand, or None where they do not fit.

    together names an inner tier of which one domain must hold all GPUs of all demands.
    """
    if together is not None:
        domains = sorted(inner_domains(machine, together), key=lambda d: (free & d).bit_count())
        answers = (choose_for_members(machine, free & domain, demands) for domain in domains)
        return next((answer for answer in answers if answer is not None), None)
    if not any(demand.layers for demand in demands):
        return _choose_unbound(machine, free, demands)
    order = sorted(range(len(demands)), key=lambda number: not demands[number].layers)
    chosen = next(_choose_in_turn(machine, free, [demands[number] for number in order]), None)
    if chosen is None:
        return None
    return tuple(chosen[order.index(number)] for number in range(len(demands)))


def _choose_unbound(
    machine: Machine, free: int, demands: Sequence[Demand]
) -> tuple[GpusOfMembers, ...] | None:
    """First the best set for all together, then each member's best part of it."""
    total = sum(demand.members * demand.gpus_each for demand in demands)
    if total > free.bit_count():
        return None
    left = mask_of(choose_gpus(machine, free, total))
    answer = []
    for demand in demands:
        members = _split(machine, left, demand.members, demand.gpus_each)
        left &= ~mask_of(gpu for gpus in members for gpu in gpus)
        answer.append(members)
    return tuple(answer)


def _split(machine: Machine, left: int, members: int, gpus_each: int) -> GpusOfMembers:
    chosen = []
    for _ in range(members):
        gpus = choose_gpus(machine, left, gpus_each)
        left &= ~mask_of(gpus)
        chosen.append(gpus)
    return tuple(chosen)


def _choose_in_turn(
    machine: Machine, free: int, demands: Sequence[Demand]
) -> Iterator[list[GpusOfMembers]]:
    if not any(demand.layers for demand in demands):
        rest = _choose_unbound(machine, free, demands)
        if rest is not None:
            yield list(rest)
        return
    first = demands[0]
    for members in _runs(machine, free, first.members, first.gpus_each, first.layers):
        taken = mask_of(gpu for gpus in members for gpu in gpus)
        for others in _choose_in_turn(machine, free & ~taken, demands[1:]):
            yield [members, *others]


def _runs(
    machine: Machine, free: int, members: int, gpus_each: int, layers: Layers
) -> Iterator[GpusOfMembers]:
    """Every way that matters to hand out GPUs run by run, tightest domain first."""
    if not members:
        yield ()
    elif not layers:
        alone = _choose_unbound(machine, free, [Demand(members, gpus_each)])
        if alone is not None:
            yield alone[0]
    else:
        size = layers[0][0] or members
        domains = inner_domains(machine, layers[0][1])
        for domain in sorted(domains, key=lambda d: (free & d).bit_count()):
            for run in _runs(machine, free & domain, size, gpus_each, layers[1:]):
                left = free & ~mask_of(gpu for gpus in run for gpu in gpus)
                for rest in _runs(machine, left, members - size, gpus_each, layers):
                    yield run + rest
