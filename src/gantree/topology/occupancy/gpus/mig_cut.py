"""Partitioning of a GPU in MIG mode: which instances exist, and which remain when one is created.

Holding an instance that is not there makes it, and destroys idle instances that are in its way: those whose memory
slices it needs first, then, if compute slices or media engines do not suffice, others, from the last memory slice
backwards. A held instance is never destroyed. Giving an instance back leaves it idle. `Node.mig_by` says who cuts:
"gpu" cuts each GPU alone, and switches MIG mode on or off on a GPU of which nothing is held; "node" is a manager that
needs the whole node empty of all holders for any of it; "nobody" leaves instances and modes as they are.

Where a profile is a mode of the whole GPU (AMD's compute partitions), making one instance makes those of all places.

Nothing is cut or switched for room that is only held for a waiting gang: the state says how the GPU would be, and
`GpuState.cut` how it is really cut, which shows again when the room is released.
"""

from collections.abc import Collection
from dataclasses import replace
from functools import lru_cache

from gantree.model.placements import GpuChange
from gantree.topology.hardware.mig import TABLES, MigInstance, MigTable
from gantree.topology.occupancy.gpus.gpu_state import GpuState, GpuStates, Instance


def over(before: GpuStates, after: GpuStates) -> GpuStates:
    """The states after room was held for those to come: nothing is cut for it, and how it was cut is remembered."""
    return tuple(
        now if now is was else _beneath(now, was.really)
        for was, now in zip(before, after, strict=True)
    )


def as_cut(table: MigTable | None, state: GpuState) -> GpuState:
    """A GPU of which less is held than before: its idle instances are those that it has and that have room."""
    if state.cut is None or table is None or not state.held:
        return state.cut or state
    there, shared = [one for one in state.instances if one.held], state.tenants or state.kept
    for one in () if shared else state.cut.instances:
        beside = [MigInstance(other.profile, other.start) for other in there]
        if one.start in table.fits(beside, one.profile):
            there.append(one)
    mig = bool(there) or (state.cut.mig and not shared)
    return _beneath(replace(state, mig=mig, instances=tuple(sorted(there))), state.cut)


def undone(table: MigTable | None, state: GpuState, change: GpuChange) -> GpuState:
    """A GPU without a change that was counted and not made; what somebody holds of it stays."""
    if state.cut is not None:
        return as_cut(table, replace(state, cut=_undone(table, state.cut, change)))
    return _undone(table, state, change)


def _undone(table: MigTable | None, state: GpuState, change: GpuChange) -> GpuState:
    if table is None or state.whole or state.tenants or state.kept:
        return state
    created = {(part.profile, part.start) for part in change.create}
    there = [one for one in state.instances if one.held or (one.profile, one.start) not in created]
    for part in change.destroy:
        beside = [MigInstance(one.profile, one.start) for one in there]
        if part.start in table.fits(beside, part.profile):
            there.append(Instance(part.start, part.profile))
    was_mig = state.mig if change.mode is None else not change.mode
    return replace(state, mig=bool(there) or was_mig, instances=all_made(table, there))


def _beneath(state: GpuState, cut: GpuState) -> GpuState:
    """A state of a GPU that really is cut so."""
    plain = state if state.cut is None else replace(state, cut=None)
    return plain if plain.really == cut else replace(state, cut=cut)


def cut_for(table: MigTable | None, state: GpuState, made: Instance) -> GpuState:
    """How a GPU is cut once an instance was really made beside what is held of it."""
    assert state.cut is not None
    there = tuple(
        replace(one, held=replace(one, held=True) in state.instances)
        for one in state.cut.instances
        if one != made
    )
    kept = kept_instances(table, there, made.profile, made.start)
    assert kept is not None, f"{made} has no room"
    return GpuState(mig=True, instances=all_made(table, (*(one.idle for one in kept), made)))


def all_made(table: MigTable | None, instances: Collection[Instance]) -> tuple[Instance, ...]:
    """These instances, by start, and the idle ones that are there with them where a profile is a mode of the GPU."""
    assert table is not None, "a GPU without MIG has no instances"
    if not table.uniform:
        return tuple(sorted(instances))
    given = {one.start for one in instances}
    there = table.filled([MigInstance(one.profile, one.start) for one in instances])
    beside = (Instance(each.start, each.profile) for each in there if each.start not in given)
    return tuple(sorted((*instances, *beside)))


def kept_instances(
    table: MigTable | None, instances: tuple[Instance, ...], profile: str, start: int
) -> tuple[Instance, ...] | None:
    """The other instances of a GPU that stay when one of a profile is held at a start: the held, and what idle can.

    None where held ones leave no room. The instance itself, where it is there and idle, is not among them.
    """
    assert table is not None, "a GPU without MIG has no instances"
    return _kept(table.name, instances, profile, start)


@lru_cache(maxsize=1 << 16)
def _kept(
    table_name: str, instances: tuple[Instance, ...], profile: str, start: int
) -> tuple[Instance, ...] | None:
    table = TABLES[table_name]
    mine = table.slices(MigInstance(profile, start))
    kept = []
    for one in instances:
        slices = table.slices(MigInstance(one.profile, one.start))
        apart = slices.stop <= mine.start or mine.stop <= slices.start
        if apart:
            kept.append(one)
        elif one.held:
            return None
    while start not in table.fits([MigInstance(o.profile, o.start) for o in kept], profile):
        idle = [one for one in kept if not one.held]
        if not idle:
            return None
        kept.remove(idle[-1])
    return tuple(kept)
