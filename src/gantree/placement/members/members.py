"""From counts per node to members: ranks, GPUs and parts of them, NICs, cores, memory, and repartitioning.

Members are numbered per role in topology order, so consecutive ranks are neighbours and slices are aligned. On a node
the gang's GPUs are chosen together (`placement.members.on_node`), then role by role and member by member the nearest
NICs that are still free, and the NUMA nodes on which a member holds what it holds.
"""

from collections.abc import Iterator, Sequence

from gantree.model.cluster import Machine
from gantree.model.jobs import Job, Shape
from gantree.model.placements import (
    GpuChange,
    MemberPlacement,
    MigPart,
    NumaPart,
    Placement,
    SharePart,
)
from gantree.placement.machine.mig import changes_between
from gantree.placement.machine.numa import split_numa
from gantree.placement.members.on_node import NodeGpus, OnNode
from gantree.placement.slots.parts import Part
from gantree.placement.slots.problem import Counts, Problem
from gantree.placement.slots.sequential_members import nics_of_member
from gantree.topology.cost.cost import predict
from gantree.topology.hardware.numa import NumaUse


def placement_of(
    problem: Problem, spread: Sequence[tuple[int, Counts]], job: Job | None = None
) -> Placement:
    """The placement that a spread stands for; roles in the job's order, members by rank.

    Where the job is given and tells its traffic, the price of its step is predicted too.
    """
    of_role: list[list[MemberPlacement]] = [[] for _ in problem.members]
    changes: list[GpuChange] = []
    node_gpus, fabric = NodeGpus(problem), problem.fabric
    fills = [
        (number, role.name, role.shape, members, _has_more(role.shape))
        for number, (role, members) in enumerate(zip(problem.request.roles, of_role, strict=True))
    ]
    for node, counts in spread:
        name, here = fabric.nodes[node].name, node_gpus.on(node, counts)
        assert here is not None, f"{counts} do not fit inside {name}"
        left: _NicsAndNuma | None = None
        for number, role, shape, members, more in fills:
            if more:
                left = left or _NicsAndNuma(problem, node)
                left.append(here, number, role, shape, members)
            else:
                for gpus in here.gpus[number]:
                    members.append(MemberPlacement(role, len(members), name, gpus))
        if here.before is not None and here.after is not None:
            changes += changes_between(name, here.before, here.after)
    every = tuple(member for members in of_role for member in members)
    domain = fabric.domain(*fabric.narrowest_domain([node for node, _ in spread]))
    return Placement(every, domain, predict(fabric, every, job), tuple(changes))


def _has_more(shape: Shape) -> bool:
    """Whether a member has more than whole GPUs."""
    amounts = shape.cpus or shape.memory_GiB or shape.memory_GBps
    return bool(shape.part or shape.nics or amounts or shape.devices)


_SPLITS_CACHE: dict[tuple[object, ...], tuple[Machine, tuple[NumaPart, ...]]] = {}
"""Answers of `split_numa`, with the machine, held so that no other gets its id."""
MOST_CACHED = 1 << 16


class _NicsAndNuma:
    """What is left of a node's NICs and NUMA nodes while its members are placed one after the other."""

    def __init__(self, problem: Problem, node: int) -> None:
        occupancy = problem.occupancy
        self._by_number = problem.gpu_order is not None
        self._name = occupancy.fabric.nodes[node].name
        self._machine: Machine = occupancy.fabric.machine_of_node(node)
        self._use: NumaUse = occupancy.numa_use(node)
        self._held: tuple[NumaPart, ...] = ()
        self._taken: tuple[str, ...] = ()
        self._occupancy, self._node = occupancy, node
        self._free_nics: tuple[str, ...] | None = None

    def append(
        self, here: OnNode, number: int, role: str, shape: Shape, members: list[MemberPlacement]
    ) -> None:
        """Append the members of one role on the node."""
        for gpus, part, nics, numa in self._each(here, number, shape):
            members.append(
                MemberPlacement(
                    role,
                    len(members),
                    self._name,
                    gpus,
                    nics,
                    shape.cpus,
                    shape.memory_GiB,
                    (part,) if isinstance(part, MigPart) else (),
                    part if isinstance(part, SharePart) else None,
                    shape.devices,
                    numa,
                )
            )

    def _each(
        self, here: OnNode, number: int, shape: Shape
    ) -> Iterator[tuple[tuple[int, ...], Part | None, tuple[str, ...], tuple[NumaPart, ...]]]:
        """(GPUs, part of one, NICs, parts by NUMA node) of each member of a role."""
        if here.held:
            yield from ((one.gpus, one.part, one.nics, one.numa) for one in here.held[number])
            return
        parts: tuple[Part | None, ...] = here.parts[number] if shape.part else ()
        gpus_of_member = here.gpus[number]
        for gpus, part in zip(gpus_of_member, parts or (None,) * len(gpus_of_member), strict=True):
            self._count_previous()
            near = gpus if part is None else (part.gpu,)
            self._taken = nics = self._nics(near, shape) if shape.nics else ()
            self._held = numa = self._split(near, nics, shape)
            yield gpus, part, nics, numa

    def _split(
        self, gpus: tuple[int, ...], nics: tuple[str, ...], shape: Shape
    ) -> tuple[NumaPart, ...]:
        amounts = (shape.cpus, shape.memory_GiB, shape.memory_GBps)
        key = (id(self._machine), self._use, gpus, nics, amounts)
        kept = _SPLITS_CACHE.get(key)
        if kept is None:
            if len(_SPLITS_CACHE) >= MOST_CACHED:
                _SPLITS_CACHE.clear()
            parts = split_numa(self._machine, self._use, gpus, nics, shape)
            kept = _SPLITS_CACHE[key] = (self._machine, parts)
        return kept[1]

    def _count_previous(self) -> None:
        """Count what the previous member took."""
        if self._held:
            self._use = self._use.changed(self._machine, self._held, +1)
        if self._taken and self._free_nics is not None:
            self._free_nics = tuple(nic for nic in self._free_nics if nic not in self._taken)

    def _nics(self, gpus: tuple[int, ...], shape: Shape) -> tuple[str, ...]:
        if not self._machine.nics_counted:
            return ()
        if self._free_nics is None:
            self._free_nics = self._occupancy.host.sound_nics(self._node)
        if self._by_number:
            return self._free_nics[: shape.nics]
        return nics_of_member(self._machine, self._use, self._free_nics, gpus, shape)
