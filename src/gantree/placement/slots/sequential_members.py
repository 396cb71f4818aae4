"""Members placed on one node one after the other, because the parts of one limit those of the next.

Whole GPUs alone are chosen all at once (`placement.machine.intra_node`), and so are parts of GPUs
(`placement.slots.parts`). Here are members for which that does not suffice: with memory bandwidth, which belongs to a
NUMA node; with parts of GPUs that must be inside a domain of the node; with parts beside members whose whole GPUs must.
The most constrained come first:

    requests inside the node, then bandwidth beside GPUs; parts, then whole GPUs, then members without GPUs, most
    bandwidth first

and where one then finds no room, the earlier ones try their other domains, tightest first, and single NUMA nodes, a
limited number of times. Nothing else is tried again, so for gangs with several such roles on one node a possible
arrangement may, rarely, be missed. For one role alone the count of `members_in_sequence` is what `served` then holds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gantree.model.cluster import Machine
from gantree.model.jobs import Shape
from gantree.model.placements import NumaPart
from gantree.placement.machine.devices import choose_nics, inner_domains
from gantree.placement.machine.intra_node import Layers, NodeContext, RoleDemand, choose_for_members
from gantree.placement.machine.numa import (
    gpus_within_bandwidth,
    members_by_bandwidth,
    nics_with_room,
    numa_shortages,
    split_numa,
)
from gantree.placement.slots.parts import Part, best_part, with_part
from gantree.topology.hardware.masks import mask_of
from gantree.topology.hardware.numa import NumaUse, numa_layout
from gantree.topology.occupancy.gpus.node_state import NodeState
from gantree.topology.occupancy.occupancy import Occupancy

MOST_TRIES = 512
"""Runs of members that are served before a node is given up as too full."""


@dataclass(frozen=True, slots=True)
class RoleMembers:
    """Members of a role on the node: how many, their shape, and layers (`machine.intra_node.Layers`)."""

    shape: Shape
    members: int
    layers: Layers = ()


@dataclass(frozen=True, slots=True)
class MemberDevices:
    """What one member gets: whole GPUs or a part of one, NICs, and its cores and memory by NUMA node."""

    gpus: tuple[int, ...]
    part: Part | None
    nics: tuple[str, ...]
    numa: tuple[NumaPart, ...]


OfRoles = tuple[tuple[MemberDevices, ...], ...]
"""What the members of each role get."""


@dataclass(frozen=True, slots=True)
class _Left:
    """What is left of a node; closed are GPUs of which no further part may be held."""

    state: NodeState
    use: NumaUse
    nics: tuple[str, ...]
    closed: int = 0


def members_in_sequence(occupancy: Occupancy, node: int, of: RoleMembers, *, apart: bool) -> int:
    """Return how many members of a role, up to the requested number, fit on a node; whole runs of its layers only."""
    run = max((run for run, _ in of.layers), default=1) or 1
    low, high = 0, of.members // run
    while low < high:
        middle = (low + high + 1) // 2
        fewer = replace(of, members=middle * run)
        if SequentialMembers(occupancy, node, apart=apart).served([fewer]) is None:
            high = middle - 1
        else:
            low = middle
    return low * run


class SequentialMembers:
    """The members of one gang on one node, by index, placed one after the other.

    apart: members with parts of GPUs must be on different ones. within is the mask of the GPUs that may be used.
    sparing: GPUs that others could have whole are broken into last.
    """

    def __init__(
        self,
        occupancy: Occupancy,
        node: int,
        *,
        apart: bool,
        within: int = -1,
        sparing: bool = False,
    ) -> None:
        self._machine: Machine = occupancy.fabric.machine_of_node(node)
        self._nic_of_bit = {nic.name: 1 << bit for bit, nic in enumerate(self._machine.nics)}
        self._apart, self._within, self._sparing = apart, within, sparing
        self._start = _Left(
            occupancy.state_of_node(node),
            occupancy.numa_use(node),
            occupancy.host.sound_nics(node),
        )
        self._tries = iter(range(MOST_TRIES))

    def served(
        self, asked: Sequence[RoleMembers], together: str | None = None
    ) -> tuple[OfRoles, NodeState] | None:
        """What all members get, and the GPUs afterwards; None where they do not all fit.

        together names an inner tier of which one domain must hold all of them that have GPUs.
        """
        order = sorted(range(len(asked)), key=lambda role: _constraint_order(asked[role]))
        for domain in (-1,) if together is None else self._domains(together, self._start, -1):
            within = self._within & domain
            found = next(
                self._in_sequence(self._start, [asked[role] for role in order], within), None
            )
            if found is not None:
                held, left = found
                of_role = dict(zip(order, held, strict=True))
                return tuple(of_role[role] for role in range(len(asked))), left.state
        return None

    def _in_sequence(
        self, left: _Left, asked: Sequence[RoleMembers], within: int
    ) -> Iterator[tuple[OfRoles, _Left]]:
        if not asked:
            yield (), left
            return
        first, *others = asked
        for held, after in self._runs(left, first, first.layers, within):
            for rest, last in self._in_sequence(after, others, within):
                yield (held, *rest), last

    def _runs(
        self, left: _Left, of: RoleMembers, layers: Layers, within: int
    ) -> Iterator[tuple[tuple[MemberDevices, ...], _Left]]:
        """Every way that matters to serve the members run by run, tightest domain first."""
        if not of.members:
            yield (), left
        elif not layers:
            ways = (self._at_once(left, of, gpus) for gpus in self._choices(of.shape, within))
            yield from (held for held in ways if held is not None)
        else:
            yield from self._in_domains(left, of, layers, self._domains(layers[0][1], left, within))

    def _choices(self, shape: Shape, within: int) -> Iterator[int]:
        """Yield all GPUs, then the GPUs of each NUMA node, which spares the memory bandwidth of the others."""
        yield within
        if shape.memory_GBps and (shape.gpus or shape.part):
            yield from (within & gpus for gpus in numa_layout(self._machine).gpus)

    def _in_domains(
        self, left: _Left, of: RoleMembers, layers: Layers, domains: Sequence[int]
    ) -> Iterator[tuple[tuple[MemberDevices, ...], _Left]]:
        """As above; runs are equal, so later ones go to the same domain or to later ones."""
        if not of.members:
            yield (), left
            return
        run = replace(of, members=layers[0][0] or of.members)
        rest = replace(of, members=of.members - run.members)
        for number, domain in enumerate(domains):
            for held, after in self._runs(left, run, layers[1:], domain):
                for others, last in self._in_domains(after, rest, layers, domains[number:]):
                    yield held + others, last

    def _domains(self, tier: str, left: _Left, within: int) -> list[int]:
        free = left.state.free_mask() & within
        masks = [domain & within for domain in inner_domains(self._machine, tier)]
        return sorted(masks, key=lambda mask: (free & mask).bit_count())

    # ----- members that nothing binds inside the GPUs named

    def _at_once(
        self, left: _Left, of: RoleMembers, within: int
    ) -> tuple[tuple[MemberDevices, ...], _Left] | None:
        if next(self._tries, None) is None:
            return None
        whole = self._whole(left, of, within) if of.shape.gpus else ((),) * of.members
        held: list[MemberDevices] = []
        for gpus in whole:
            part = self._part(left, of.shape, within) if of.shape.part else None
            one = self._one(left, of.shape, gpus, part)
            if one is None:
                return None
            held.append(one)
            left = self._without(left, one)
        return (tuple(held), left) if len(held) == of.members else None

    def _whole(self, left: _Left, of: RoleMembers, within: int) -> tuple[tuple[int, ...], ...]:
        """Whole GPUs of each member, on GPUs in MIG mode only where the others do not do; () where too few."""
        shape, machine = of.shape, self._machine
        free = left.state.free_mask() & within
        in_mode = mask_of(gpu for gpu, one in enumerate(left.state.gpus) if one.mig)
        for mask in (free & ~in_mode, free):
            usable = gpus_within_bandwidth(machine, left.use, mask, shape)
            nics = None
            if machine.nics_counted and machine.nics:
                nics = sum(self._nic_of_bit[name] for name in left.nics)
            context = NodeContext(nics, numa_shortages(machine, left.use, usable, shape))
            demand = RoleDemand(of.members, shape.gpus, (), shape.nics)
            found = choose_for_members(machine, usable, [demand], None, context)
            if found is not None:
                return found[0]
        return ()

    def _part(self, left: _Left, shape: Shape, within: int) -> Part | None:
        every = (1 << self._machine.gpus) - 1
        usable = gpus_within_bandwidth(self._machine, left.use, every & within, shape)
        excluded = every & ~usable | left.closed
        return best_part(left.state, shape, self._apart, excluded, self._sparing)

    def _one(
        self, left: _Left, shape: Shape, gpus: tuple[int, ...], part: Part | None
    ) -> MemberDevices | None:
        """What one member on these GPUs gets; None where a part, NICs or bandwidth are not there."""
        if (shape.part and part is None) or len(
            left.nics
        ) < shape.nics * self._machine.nics_counted:
            return None
        home = gpus if part is None else (part.gpu,)
        if not home and not members_by_bandwidth(self._machine, left.use, shape):
            return None
        nics = nics_of_member(self._machine, left.use, left.nics, home, shape)
        return MemberDevices(
            gpus, part, nics, split_numa(self._machine, left.use, home, nics, shape)
        )

    def _without(self, left: _Left, held: MemberDevices) -> _Left:
        state = left.state.take_whole(held.gpus) if held.gpus else left.state
        closed = left.closed
        if held.part is not None:
            state = with_part(state, held.part)
            closed |= 1 << held.part.gpu if self._apart else 0
        use = left.use.changed(self._machine, held.numa, +1)
        return _Left(state, use, tuple(nic for nic in left.nics if nic not in held.nics), closed)


def nics_of_member(
    machine: Machine, use: NumaUse, free: tuple[str, ...], gpus: tuple[int, ...], shape: Shape
) -> tuple[str, ...]:
    """Of the free NICs those for a member that lives on these GPUs, or on none; () where they are not counted."""
    if not (shape.nics and machine.nics_counted):
        return ()
    if gpus:
        return choose_nics(machine, gpus, free, shape.nics)
    return nics_with_room(machine, use, free, shape)


def _constraint_order(of: RoleMembers) -> tuple[bool, bool, int, float]:
    """Members that are limited to few GPUs first; of the others the largest."""
    shape = of.shape
    beside_bandwidth = shape.memory_GBps > 0 and (shape.part or shape.gpus > 0)
    bound_to = 0 if shape.part else 1 if shape.gpus else 2
    return not of.layers, not beside_bandwidth, bound_to, -shape.memory_GBps
