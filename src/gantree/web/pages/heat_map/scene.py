"""The data of the heat map: the holder of each GPU or part, the state of each node, free GPUs by domain.

A function of the ledger alone. Holders have numbers that stay the same as long as they hold something, so that two
scenes of one map can be told apart node by node; where a node stands is in `layout`, what a caller may know of a
holder in `messages`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import numpy as np

from gantree.api.views.node_view import state_of_node
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import CLAIM, RESERVATION, JobState
from gantree.model.phases import HOLDING
from gantree.model.placements import MemberPlacement
from gantree.topology.fabric.conditions import sound_nodes
from gantree.topology.fabric.fabric import Fabric, IntArray
from gantree.topology.hardware.mig import mig_table
from gantree.topology.occupancy.gpus.gpu_state import REMAINDER, GpuState
from gantree.topology.occupancy.occupancy import Occupancy
from gantree.topology.occupancy.site import OWNER_PREFIX

FREE: Final = -1
TAKEN: Final = 0
"""The number of all holders that a caller may not read."""
_FIRST_OF_SITE: Final = -2
_KINDS_OF_A_JOB: Final = 3

WHOLE: Final = 1000
"""Parts of a GPU are in thousandths."""

NODE_STATES: Final = ("ready", "cordoned", "draining", "drained", "lost", "broken")
KINDS: Final = ("job", "claim", "reservation", "site")

Part = tuple[int, int, int]
"""(holder, start, size) of a part of a GPU; FREE for an idle MIG instance."""
Cell = int | tuple[Part, ...]
"""The holder of a whole GPU, or its parts by start."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A holder of GPUs. kind is one of KINDS; job is the job id, or the name of an allocation of the cluster file.

    gpus counts GPUs that it holds whole or in part. since: the time of its placement, in seconds since 1970.
    """

    number: int
    kind: str
    job: str
    queue: str
    user: str
    phase: str
    gpus: int
    since: float | None


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node: one of NODE_STATES, and the cell of each GPU."""

    state: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class DomainRow:
    """A domain above the node: its GPUs, those on usable nodes, the free ones of these.

    largest are the most free GPUs in one domain of each narrower tier inside it, widest first, nodes last.
    """

    tier: str
    name: str
    gpus: int
    usable: int
    free: int
    largest: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class HeatScene:
    """The cluster at a time. map_id changes when a node joins, leaves or changes its domain."""

    at: float
    map_id: str
    nodes: tuple[NodeRow, ...]
    holders: dict[int, Holder]
    domains: tuple[DomainRow, ...]
    names: tuple[str, ...] = ()
    """Of the nodes."""


def heat_scene(ledger: Ledger, now: float) -> HeatScene | None:
    """Return the scene; None before a cluster was observed."""
    rooms = ledger.occupancy
    if rooms is None:
        return None
    numbers = _numbers(ledger, rooms)
    rows, busy = _cells(rooms, numbers)
    sound = sound_nodes(rooms.fabric).tolist()
    usable = rooms.usable_node.tolist()
    nodes = tuple(
        NodeRow(
            "ready"
            if usable[index]
            else state_of_node(ledger, node.name, busy=index in busy, sound=sound[index]),
            tuple(rows[index]),
        )
        for index, node in enumerate(rooms.fabric.nodes)
    )
    holders = {number: _holder(ledger, owner, number) for owner, number in numbers.items()}
    names = tuple(node.name for node in rooms.fabric.nodes)
    return HeatScene(now, map_id_of(rooms.fabric), nodes, holders, domain_rows(rooms), names)


def map_id_of(fabric: Fabric) -> str:
    """Return a digest of the nodes, their domains and their GPU counts."""
    digest = blake2b(digest_size=8)
    digest.update(repr((fabric.cluster.name, fabric.tiers)).encode())
    for node, gpus in zip(fabric.nodes, fabric.gpus_of_node.tolist(), strict=True):
        digest.update(repr((node.name, node.at, node.machine, gpus)).encode())
    return digest.hexdigest()


def _numbers(ledger: Ledger, rooms: Occupancy) -> dict[str, int]:
    """Return owner -> number: positive for jobs, in arrival order; below FREE for allocations of the cluster file."""
    numbers, of_site = {}, 0
    for owner in rooms.owners:
        kind, job = _kind_of(owner)
        if kind == "site":
            numbers[owner] = _FIRST_OF_SITE - of_site
            of_site += 1
        else:
            numbers[owner] = 1 + _KINDS_OF_A_JOB * ledger.jobs[job].seq + KINDS.index(kind)
    return numbers


def _kind_of(owner: str) -> tuple[str, str]:
    """The kind of a holder, and its job or allocation."""
    for prefix, kind in ((CLAIM, "claim"), (RESERVATION, "reservation"), (OWNER_PREFIX, "site")):
        if owner.startswith(prefix):
            return kind, owner.removeprefix(prefix)
    return "job", owner


def _holder(ledger: Ledger, owner: str, number: int) -> Holder:
    kind, job = _kind_of(owner)
    members = ledger.rooms().owners[owner]
    gpus = sum(len(member.gpus) + len(set(member.parts)) for member in members)
    state = ledger.jobs.get(job) if kind != "site" else None
    if state is None:
        return Holder(number, kind, job, "", "", "", gpus, None)
    spec = state.spec
    return Holder(
        number, kind, job, spec.queue, spec.user, _phase(state), gpus, _since(ledger, state)
    )


def _phase(state: JobState) -> str:
    suspended = state.suspended and state.phase in HOLDING
    return "suspended" if suspended else state.phase.value


def _since(ledger: Ledger, state: JobState) -> float | None:
    if state.phase in HOLDING:
        return state.placed_at
    reservation = ledger.reservations.get(state.job)
    return None if reservation is None else reservation.made_at


def _cells(rooms: Occupancy, numbers: dict[str, int]) -> tuple[list[list[Cell]], set[int]]:
    """Return the cells by node and GPU, and the nodes of running jobs."""
    index_of_node = rooms.fabric.index_of_node
    rows: list[list[Cell]] = [[FREE] * gpus for gpus in rooms.fabric.gpus_of_node.tolist()]
    parts: dict[tuple[int, int], list[Part]] = {}
    busy: set[int] = set()
    for owner, members in rooms.owners.items():
        number, is_job = numbers[owner], _kind_of(owner)[0] == "job"
        for member in members:
            node = index_of_node[member.node]
            if is_job:
                busy.add(node)
            row = rows[node]
            for gpu in member.gpus:
                row[gpu] = number
            for gpu, start, size in _parts(rooms, node, member):
                parts.setdefault((node, gpu), []).append((number, start, size))
    for (node, gpu), held in parts.items():
        rows[node][gpu] = _side_by_side(held)
    _add_idle_instances(rooms, rows)
    return rows, busy


def _parts(rooms: Occupancy, node: int, member: MemberPlacement) -> Iterator[tuple[int, int, int]]:
    """Yield (GPU, start, size) of a member; the start of a share is assigned later."""
    for instance in member.mig:
        start, size = _slices(rooms, node, instance.profile, instance.start)
        yield instance.gpu, start, size
    if member.share is not None:
        yield member.share.gpu, -1, max(1, round(WHOLE * member.share.compute))


def _slices(rooms: Occupancy, node: int, profile: str, start: int) -> tuple[int, int]:
    """Return (start, size) of a MIG instance by its memory, in thousandths of the GPU."""
    table = mig_table(rooms.fabric.machine_of_node(node).gpu)
    if table is None:
        return 0, WHOLE
    slices = 1 if profile == REMAINDER else table.profile(profile).memory_slices
    return WHOLE * start // table.memory_slices, WHOLE * slices // table.memory_slices


def _side_by_side(held: list[Part]) -> tuple[Part, ...]:
    """Return parts by start; shares, which have no start of their own, one after the other."""
    placed = sorted((part for part in held if part[1] >= 0), key=lambda part: part[1])
    end = sum(size for _, _, size in placed)
    for number, start, size in held:
        if start < 0:
            placed.append((number, min(end, WHOLE - 1), max(1, min(size, WHOLE - end))))
            end += size
    return tuple(placed)


def _add_idle_instances(rooms: Occupancy, rows: list[list[Cell]]) -> None:
    """Add the idle instances of GPUs in MIG mode."""
    for node, states in rooms.parts_of_node.items():
        for gpu, state in enumerate(states):
            idle = tuple(
                (FREE, *_slices(rooms, node, profile, start))
                for profile, start in _idle_instances(state)
            )
            cell = rows[node][gpu]
            if state.mig and cell == FREE:
                rows[node][gpu] = idle
            elif idle and isinstance(cell, tuple):
                rows[node][gpu] = tuple(sorted((*cell, *idle), key=lambda part: part[1]))


def _idle_instances(state: GpuState) -> Iterator[tuple[str, int]]:
    return ((one.profile, one.start) for one in state.instances if not one.held)


def domain_rows(rooms: Occupancy) -> tuple[DomainRow, ...]:
    """Return every domain above the node, the fabric first, each tier in topology order."""
    fabric = rooms.fabric
    usable_of_node = fabric.gpus_of_node * rooms.usable_node
    free_of_node = rooms.free_gpus_of_node * rooms.usable_node
    free_of_tier = [_sums(fabric, tier, free_of_node) for tier in range(len(fabric.tiers))]
    return tuple(
        row
        for tier in range(fabric.node_tier)
        for row in _rows_of_tier(fabric, tier, usable_of_node, free_of_tier)
    )


def _rows_of_tier(
    fabric: Fabric, tier: int, usable_of_node: IntArray, free_of_tier: list[IntArray]
) -> Iterator[DomainRow]:
    gpus = _sums(fabric, tier, fabric.gpus_of_node).tolist()
    usable = _sums(fabric, tier, usable_of_node).tolist()
    largest = [
        np.maximum.reduceat(free_of_tier[inner], _first_inside(fabric, tier, inner)).tolist()
        for inner in range(tier + 1, fabric.node_tier + 1)
    ]
    for number, name in enumerate(fabric.names_of_domain[tier]):
        yield DomainRow(
            fabric.tiers[tier],
            name or fabric.cluster.name,
            gpus[number],
            usable[number],
            int(free_of_tier[tier][number]),
            tuple(of_inner[number] for of_inner in largest),
        )


def _sums(fabric: Fabric, tier: int, of_node: IntArray) -> IntArray:
    return np.add.reduceat(of_node, fabric.first_node_of_domain[tier][:-1])


def _first_inside(fabric: Fabric, tier: int, inner: int) -> IntArray:
    """Return the first domain of a narrower tier in each domain of a tier, [domain]."""
    return fabric.domain_of_node[inner][fabric.first_node_of_domain[tier][:-1]]
