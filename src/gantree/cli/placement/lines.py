"""Placements as lines for people: resources, domains, MIG instances to create, member by member.

As JSON it is in `placement_text`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from gantree.cli.output.printing import span
from gantree.model.jobs import COMPUTE_PARTITIONS, Job
from gantree.model.placements import GpuChange, MemberPlacement, MigPart, Placement
from gantree.text.words import plural, ranges


def placement_lines(
    job: Job, placement: Placement, ranks_of_member: Mapping[tuple[str, int], str]
) -> Iterator[str]:
    """A line for the gang, then a line for each change, for data that must be fetched, and for each member.

    ranks_of_member: ranks in words by role and number of the member; what is not in it is not told.
    """
    nodes = len({member.node for member in placement.members})
    where = f"{placement.domain.tier} {placement.domain.name}".rstrip()
    on = where if nodes == 1 else f"{plural(nodes, 'node')} of {where}"
    yield f"{job.name}: {_resized(job, placement)}{_held_by_all(placement)} on {on}"
    for change in placement.changes:
        yield f"  first, {_seconds(change.seconds)}: {change.node} gpu {change.gpu}: {_steps(change)}"
    if placement.fetch_s:
        yield f"  fetches its data for {span(placement.fetch_s)}"
    for member in placement.members:
        ranks = ranks_of_member.get((member.role, member.rank))
        shown = [*_held(member), *([f"ranks {ranks}"] if ranks else [])]
        yield f"  {member.role} {member.rank}  {member.node}  {'  '.join(shown)}"


def _seconds(seconds: float) -> str:
    """As `span`, but what is below a second as it is: making one instance takes 0.25 s."""
    return f"{seconds:g} s" if 0 < seconds < 1 else span(seconds)


def _resized(job: Job, placement: Placement) -> str:
    """ "4 of 8 members, " where an elastic gang got others than it asked for, else nothing."""
    requested, got = job.members, len(placement.members)
    return "" if got == requested else f"{got} of {plural(requested, 'member')}, "


def _held_by_all(placement: Placement) -> str:
    """ "8 GPUs", "2 MIG instances 3g.40gb and 1 GPU share"; "0 GPUs" where nothing of a GPU is held."""
    members = placement.members
    gpus = sum(len(member.gpus) for member in members)
    parts = Counter((part.kind, part.profile) for member in members for part in member.mig)
    shares = sum(member.share is not None for member in members)
    shown = [f"{plural(count, kind)} {profile}" for (kind, profile), count in parts.items()]
    shown += [plural(shares, "GPU share")] if shares else []
    return " and ".join([plural(gpus, "GPU"), *shown] if gpus or not shown else shown)


def _held(member: MemberPlacement) -> Iterator[str]:
    """What a member holds of its node; its NUMA nodes, CPUs and memory are for programs."""
    if member.gpus:
        yield f"gpus {ranges(member.gpus)}"
    for part in member.mig:
        yield f"gpu {part.gpu}: {_instance(part)}"
    if member.share is not None:
        share = member.share
        yield f"gpu {share.gpu}: {share.compute:g} and {share.memory_GiB:g} GiB by {share.isolation}"
    if not member.gpus and not member.parts:
        yield "no GPU"
    if member.nics:
        yield f"nics {','.join(member.nics)}"
    for name, count in member.devices:
        yield f"{name} x{count}"


def _instance(part: MigPart) -> str:
    return f"{part.profile} at {part.start}"


def _steps(change: GpuChange) -> str:
    """What is done to one GPU, in the order in which it is done. AMD's GPUs have no mode beside their partitions."""
    parts = (*change.destroy, *change.create)
    has_mode = not any(part.profile in COMPUTE_PARTITIONS for part in parts)
    mode = {None: [], False: ["MIG mode off"], True: ["MIG mode on"]}[
        change.mode if has_mode else None
    ]
    destroy = [f"destroy {_instance(part)}" for part in change.destroy]
    create = [f"create {_instance(part)}" for part in change.create]
    steps = [*destroy, *mode] if change.mode is False else [*mode, *destroy]
    return ", ".join([*steps, *create])
