"""Smaller wishes: patches to a job under which it may fit where the job as written does not."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from math import lcm

from gantree.model.errors import BadInput
from gantree.model.jobs import Job, Slices
from gantree.model.verdicts import Patch, PatchValue
from gantree.placement.wish import Wish, slices_of
from gantree.topology.fabric import Fabric

REQUIRED, SLICES, MEMBERS = "topology.required", "topology.slices", "members"


def relaxed(job: Job, patch: Mapping[str, PatchValue] | Iterable[tuple[str, PatchValue]]) -> Job:
    """Apply a patch to a job.

    topology.required: a tier or None; topology.slices: the job's slices instead of its own, None for none; members:
    of the only role. Raises BadInput for another key or value.
    """
    for key, value in dict(patch).items():
        job = _with(job, key, value)
    return job


def _with(job: Job, key: str, value: PatchValue) -> Job:
    topology = job.topology
    if key == REQUIRED and (value is None or isinstance(value, str)):
        return replace(job, topology=replace(topology, required=value))
    if key == SLICES and (value is None or isinstance(value, tuple)):
        return replace(job, topology=replace(topology, slices=value or ()))
    if key == MEMBERS and isinstance(value, int) and len(job.roles) == 1 and value > 0:
        return replace(job, roles=(replace(job.roles[0], members=value),))
    raise BadInput(
        f"job {job.name}: cannot apply {key}: {value!r}; allowed: {REQUIRED} (a tier or nothing), {SLICES} (slices "
        f"or nothing), {MEMBERS} (a number, for a job of one role)"
    )


def wider_places(fabric: Fabric, job: Job, wish: Wish) -> Iterator[Patch]:
    """Patches that ask for less togetherness, smallest step first."""
    if job.topology.required is not None:
        last = wish.whole_at if wish.together else wish.whole_at - 1
        yield from (((REQUIRED, fabric.tiers[tier]),) for tier in range(last, 0, -1))
        yield ((REQUIRED, None),)


def looser_slices(fabric: Fabric, job: Job) -> Iterator[Patch]:
    """Patches that ask for slices in wider domains, then for none."""
    if job.topology.slices:
        tiers = [
            fabric.tiers.index(s.required)
            for s in job.topology.slices
            if s.required in fabric.tiers
        ]
        last = min(tiers, default=fabric.node_tier + 1) - 1
        for tier in range(last, 0, -1):
            yield ((SLICES, _widened(job.topology.slices, fabric.tiers[tier])),)
        yield ((SLICES, None),)


def _widened(slices: tuple[Slices, ...], tier: str) -> tuple[Slices, ...]:
    return tuple(dict.fromkeys(replace(run, required=tier) for run in slices))


def both_dropped(job: Job) -> Iterator[Patch]:
    """The patch that asks for no togetherness at all."""
    if job.topology.required is not None and job.topology.slices:
        yield ((REQUIRED, None), (SLICES, None))


def fewer_members(job: Job) -> tuple[int, ...]:
    """Sizes below the job's own that its slices and its elastic range allow, rising; () for several roles."""
    if len(job.roles) != 1:
        return ()
    step = lcm(*(run.members for run in slices_of(job, job.roles[0])))
    least = max(step, job.elastic.min if job.elastic else 1)
    return tuple(n for n in range(step, job.roles[0].members, step) if n >= least)
