"""The input of one search: a gang in numbers, an occupancy, and one choice of GPU models per role."""

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gantree.model.values import quick
from gantree.placement.machine.intra_node import ALL, Layers
from gantree.placement.request.blind_rule import GpuOrder
from gantree.placement.request.topology_request import RoleRequest, TopologyRequest
from gantree.placement.slots.parts import is_apart
from gantree.placement.slots.slots import SlotTable, slots_of
from gantree.topology.fabric.fabric import BoolArray, Fabric, IntArray
from gantree.topology.occupancy.occupancy import Occupancy

Counts = tuple[int, ...]
Spread = list[tuple[int, Counts]]
"""(node index, members of each role there), in topology order; only nodes that hold some."""
Sum = tuple[IntArray, IntArray]
"""(amount per member of each role, free[node]) of a resource, in counted units."""


@quick
@dataclass(frozen=True)
class Problem:
    """Place members[role] members of tables[role] such that the request holds. No GPU model is left to choose.

    models_of_role are the GPU models that each role may use (none: any), among the name of the nodes that may be used
    (None: all), gpu the only GPU of its node of which a member may have a part (None: any). Tables are looked up when
    they are first asked for, unless they are given. even: members that talk are dealt out evenly over their nodes.
    gpu_order: GPUs of a node are taken in this order, and NICs by number (None: those that are linked best).
    """

    occupancy: Occupancy
    request: TopologyRequest
    members: Counts
    given: tuple[SlotTable, ...] = ()
    models_of_role: tuple[tuple[str, ...], ...] = ()
    among: Hashable = None
    gpu: int | None = None
    even: bool = True
    gpu_order: GpuOrder | None = None

    @classmethod
    def of(
        cls,
        occupancy: Occupancy,
        request: TopologyRequest,
        models_of_role: tuple[tuple[str, ...], ...],
        among: Hashable = None,
    ) -> "Problem":
        """A request with these models for each role (none: any), on the nodes of that name (None: on all)."""
        members = tuple([role.members for role in request.roles])
        return cls(occupancy, request, members, (), models_of_role, among)

    @cached_property
    def tables(self) -> tuple[SlotTable, ...]:
        """The slot table of each role, at the time of first use."""
        return self.given or tuple(map(self._table, range(len(self.members))))

    def _table(self, number: int) -> SlotTable:
        role, models = self.request.roles[number], self.models_of_role[number]
        apart = role.shape.part and is_apart(self.request)
        layers = _layers(self.request, role)
        among = self.among_of(number)
        return slots_of(self.occupancy, role.shape, models, layers, among, apart)

    def among_of(self, role: int) -> Hashable:
        """The name of the nodes that a role, by its number, may use; None: all."""
        own = self.request.roles[role].among
        if own is None or self.among is None:
            return self.among if own is None else own
        named, both = self.fabric.nodes_named, (own, self.among)
        if both not in named:
            named[both] = named[own] & named[self.among]
        return both

    @property
    def fabric(self) -> Fabric:
        """The tree that is searched."""
        return self.occupancy.fabric

    @cached_property
    def sums(self) -> tuple[Sum, ...]:
        """Requested resources that are limited only by their sum on a node."""
        occupancy, shapes = self.occupancy, [table.shape for table in self.tables]
        devices = [dict(role.shape.scarce) for role in self.request.roles]
        names = dict.fromkeys(name for of_role in devices for name in of_role)
        sums = [
            ([shape.gpus for shape in shapes], occupancy.free_gpus_of_node),
            ([shape.microcpus for shape in shapes], occupancy.free_microcpus_of_node),
            ([shape.memory_KiB for shape in shapes], occupancy.free_memory_KiB_of_node),
            ([shape.nics for shape in shapes], occupancy.free_nics_of_node),
            *(
                ([each.get(name, 0) for each in devices], occupancy.devices.free(name))
                for name in names
            ),
        ]
        return tuple((np.array(each, dtype=np.int64), free) for each, free in sums if any(each))

    def adds_up(self, node: int, counts: Counts) -> bool:
        """Whether a node has enough of every resource that adds up for members of all roles together."""
        return all(int(each @ counts) <= int(free[node]) for each, free in self.sums)

    def domains_with_room(self, tier: int) -> IntArray:
        """Return the domains of a tier whose sums may hold the gang; the others cannot."""
        enough: BoolArray = self.tables[0].in_domain[tier] >= self.members[0]
        for table, members in zip(self.tables[1:], self.members[1:], strict=True):
            enough &= table.in_domain[tier] >= members
        gpus = sum(
            table.shape.gpus * members
            for table, members in zip(self.tables, self.members, strict=True)
        )
        if len(self.tables) > 1 and gpus:
            enough &= self.occupancy.free_gpus_in_domain(tier) >= gpus
        return np.flatnonzero(enough)


def _layers(request: TopologyRequest, role: RoleRequest) -> Layers:
    """Layers inside a node, with the gang's own where it must be together inside one domain there."""
    if request.together is None:
        return role.layers
    return (
        (ALL, request.together),
        *(layer for layer in role.layers if layer != (ALL, request.together)),
    )
