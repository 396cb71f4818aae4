"""Chooses the MIG instance of a member, what must be repartitioned for it, and the cost of that.

Of the places on a node where an instance of the profile could be held, in this order:

    idle        it is there already and nobody holds it: 0 s
    made        it is made beside the others; none is destroyed
    in the way  it is made after idle instances were destroyed; held ones never are
    switched    it is made on a GPU of which nothing is held, and MIG mode is switched on there first

and among those of one kind where it fragments least: where the worth of what can still be held falls least, then
where fewest idle instances go, then on the first GPU at the first start. The worth of a GPU is the sum, over all
profiles and all starts at which an instance would still fit beside the held ones, of the instance's memory slices. So
small instances stand where large ones could not (1g on an H100: at slice 6, then 4, 5), 2g and 3g leave 4g its only
place, and an empty GPU is broken into last, because its worth falls most. Where a profile is a mode of the whole GPU
(AMD's compute partitions), a GPU that has it already comes first, and one of which anything is held keeps its mode.

Instances of one profile never overlap in part (their starts are multiples of their size), so how many fit does not
depend on the order in which they are placed, and `count` is exact. What may be cut is told in
`topology.occupancy.gpus.mig_cut`.
"""

from collections.abc import Iterator
from functools import lru_cache

from gantree.model.placements import GpuChange, MigPart
from gantree.topology.hardware.mig import TABLES, MigInstance, MigTable
from gantree.topology.occupancy.gpus.gpu_state import GpuState, Instance, PartRules
from gantree.topology.occupancy.gpus.mig_cut import kept_instances
from gantree.topology.occupancy.gpus.node_state import NodeState

MAKE_S = 0.25
"""Seconds to make one instance. Published: nvidia-mig-parted made four 1g.6gb on an A30 within one second of its log
(a public walk-through of the GPU operator, 2026)."""

DESTROY_S = 1.0
"""Seconds to destroy one instance. Published: "this operation may take O(1 s)", a comment of its author in the
source of kubernetes-sigs/dra-driver-nvidia-gpu (nvlib.go)."""

MODE_S = 10.0
"""Seconds to switch MIG mode of an empty GPU. An assumption, no measurement was found: from Hopper on no reset is
needed and it is quicker, on Ampere it takes effect with a reset of the GPU (NVIDIA's MIG user guide)."""

MODE_OF_GPU_S = 5.0
"""Seconds to give an AMD GPU another compute partition mode. An assumption, no measurement was found: the driver takes
the GPU's partitions away and makes the new ones, without a reset or a reload."""

NODE_S = 180.0
"""Seconds for a manager that cuts a whole node (nvidia-mig-manager), whatever it cuts. An assumption from its parts: it
stops and restarts device plugin, DCGM and feature discovery and runs the operator's validations; operators speak of
3 to 5 minutes, its own log shows 4 s for the cutting and relabelling of one GPU."""

IDLE, MADE, IN_THE_WAY, SWITCHED = range(4)

_Change = tuple[int, bool | None, tuple[MigPart, ...], tuple[MigPart, ...], float]
"""A `GpuChange` without its node."""

Order = tuple[int, int, int, int, int]
"""(kind, loss of worth, instances destroyed, GPU, start): the smaller is taken."""


def count(state: NodeState, profile: str, apart: bool, within: int = -1) -> int:
    """How many more instances of a profile members could hold on the GPUs of a mask; apart: one on each GPU."""
    on_each = (
        members_on(state, gpu, profile) for gpu in range(len(state.gpus)) if within >> gpu & 1
    )
    return sum(min(members, 1) if apart else members for members in on_each)


def members_on(state: NodeState, gpu: int, profile: str) -> int:
    """How many more instances of a profile members could hold on one GPU."""
    here, table = state.gpus[gpu], state.rules.table
    if here.whole or here.tenants or table is None:
        return 0
    if not state.recut:
        return sum(one.profile == profile and not one.held for one in here.instances)
    return _fitting(table.name, here.held_instances, profile)


@lru_cache(maxsize=1 << 16)
def _fitting(table_name: str, held: tuple[MigInstance, ...], profile: str) -> int:
    table = TABLES[table_name]
    if not has_profile(table, profile):
        return 0
    members, there = 0, list(held)
    while starts := table.fits(there, profile):
        there.append(MigInstance(profile, starts[0]))
        members += 1
    return members


def has_profile(table: MigTable | None, profile: str) -> bool:
    """Whether GPUs of a table can be cut into instances of a profile."""
    return table is not None and any(one.name == profile for one in table.profiles)


def best_part(
    state: NodeState, profile: str, excluded: int = 0, sparing: bool = False
) -> MigPart | None:
    """The best instance of a profile that a member could hold now, None where there is none.

    excluded is a mask of GPUs that it must not be on. sparing: GPUs that others could have whole are taken last,
    however much must be cut elsewhere.
    """
    free = state.free_mask() if sparing else 0
    orders = [
        (free >> order[-2] & 1, *order)
        for gpu in range(len(state.gpus))
        if not excluded >> gpu & 1
        for order in _orders(state, gpu, profile)
    ]
    if not orders:
        return None
    *_, gpu, start = min(orders)
    return MigPart(gpu, profile, start)


def parts_on(state: NodeState, gpu: int, profile: str) -> tuple[MigPart, ...]:
    """Every instance of a profile that a member could hold on one GPU now, best first."""
    return tuple(MigPart(gpu, profile, order[-1]) for order in sorted(_orders(state, gpu, profile)))


def _orders(state: NodeState, gpu: int, profile: str) -> Iterator[Order]:
    """Every place on a GPU where an instance of a profile could be held, with what it is judged by."""
    here, table = state.gpus[gpu], state.rules.table
    if here.whole or here.tenants or table is None or not has_profile(table, profile):
        return
    for kind, destroyed, start in _places(state.recut, here, table.name, profile):
        yield kind, _loss(table.name, here.held_instances, profile, start), destroyed, gpu, start


@lru_cache(maxsize=1 << 16)
def _places(
    recut: bool, here: GpuState, table_name: str, profile: str
) -> tuple[tuple[int, int, int], ...]:
    """(kind, instances destroyed, start) of each place on one GPU."""
    table = TABLES[table_name]
    places = []
    for start in table.placements(profile):
        if Instance(start, profile) in here.instances:
            places.append((IDLE, 0, start))
        elif recut:
            kept = kept_instances(table, here.instances, profile, start)
            if kept is not None:
                destroyed = len(here.instances) - len(kept)
                kind = IN_THE_WAY if destroyed else MADE if here.mig else SWITCHED
                places.append((kind, destroyed, start))
    return tuple(places)


@lru_cache(maxsize=1 << 16)
def _loss(table_name: str, held: tuple[MigInstance, ...], profile: str, start: int) -> int:
    after = tuple(sorted((*held, MigInstance(profile, start)), key=lambda one: one.start))
    return worth(table_name, held) - worth(table_name, after)


@lru_cache(maxsize=1 << 16)
def worth(table_name: str, held: tuple[MigInstance, ...]) -> int:
    """Memory slices of all instances, one at a time, that would still fit on a GPU where these are held."""
    table = TABLES[table_name]
    return sum(
        profile.memory_slices * len(table.fits(held, profile.name)) for profile in table.profiles
    )


def changes_between(node: str, before: NodeState, after: NodeState) -> tuple[GpuChange, ...]:
    """What must be cut on a node so that its GPUs get from one state to another, with its price.

    Where a manager cuts the whole node, all changes of the node are made at once, in the seconds that each names.
    """
    return tuple(GpuChange(node, *change) for change in _changes(before, after))


def until_cut_s(before: NodeState, after: NodeState) -> float:
    """Seconds until a node's GPUs are cut so: one after the other, or all at once by a manager of the node."""
    seconds = [each for *_, each in _changes(before, after)]
    return max(seconds, default=0.0) if before.rules.mig_by == "node" else sum(seconds)


@lru_cache(maxsize=1 << 14)
def _changes(before: NodeState, after: NodeState) -> tuple[_Change, ...]:
    changes: list[_Change] = []
    for gpu, (was, now) in enumerate(zip(before.gpus, after.gpus, strict=True)):
        old, new = was.really, now.really
        there = {MigPart(gpu, one.profile, one.start) for one in old.instances}
        stays = {MigPart(gpu, one.profile, one.start) for one in new.instances}
        destroy = tuple(sorted(there - stays, key=_by_start))
        create = tuple(sorted(stays - there, key=_by_start))
        mode = new.mig if new.mig != old.mig else None
        if destroy or create or mode is not None:
            seconds = _seconds(before.rules, mode, destroy, create)
            changes.append((gpu, mode, destroy, create, seconds))
    return tuple(changes)


def _seconds(
    rules: PartRules, mode: bool | None, destroy: tuple[MigPart, ...], create: tuple[MigPart, ...]
) -> float:
    """Seconds to cut one GPU, by itself or with its node."""
    if rules.mig_by == "node":
        return NODE_S
    if rules.table is not None and rules.table.uniform:
        return MODE_OF_GPU_S
    switch = 0.0 if mode is None else MODE_S
    return switch + DESTROY_S * len(destroy) + MAKE_S * len(create)


def _by_start(part: MigPart) -> tuple[int, str]:
    return part.start, part.profile
