"""Relaxations: patches to a job under which it may fit where the job as written does not."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from math import lcm
from typing import Any

from gantree.model.errors import BadInput
from gantree.model.jobs import Apart, Job, Slices, Spread, TopologySpec
from gantree.model.verdicts import Patch, PatchValue
from gantree.placement.request.topology_request import TopologyRequest, slices_of
from gantree.topology.fabric.fabric import Fabric

REQUIRED, SLICES, SPREAD = "topology.required", "topology.slices", "topology.spread"
APART, BOX, MEMBERS = "topology.apart", "topology.box", "members"


def relaxed(job: Job, patch: Mapping[str, PatchValue] | Iterable[tuple[str, PatchValue]]) -> Job:
    """Apply a patch to a job.

    topology.required: a tier or None; topology.slices, topology.spread, topology.apart: the job's new ones instead of
    its own, None for none; topology.box: a shape or None; members: of the only role. Raises BadInput for another key or
    value.
    """
    for key, value in dict(patch).items():
        job = _with(job, key, value)
    return job


def _with(job: Job, key: str, value: PatchValue) -> Job:
    topology = _topology_with(job.topology, key, value)
    if topology is not None:
        return replace(job, topology=topology)
    if key == MEMBERS and isinstance(value, int) and len(job.roles) == 1 and value > 0:
        return replace(job, roles=(replace(job.roles[0], members=value),))
    raise BadInput(
        f"job {job.name}: cannot apply {key}: {value!r}; allowed: {REQUIRED} (a tier or nothing), {SLICES} (slices "
        f"or nothing), {SPREAD} (a tier and how many at most, or nothing), {APART} (tiers and jobs, or nothing), "
        f"{BOX} (a shape or nothing), {MEMBERS} (a number, for a job of one role)"
    )


_KINDS: dict[str, tuple[str, type, bool]] = {
    REQUIRED: ("required", str, False),
    SPREAD: ("spread", Spread, False),
    SLICES: ("slices", Slices, True),
    APART: ("apart", Apart, True),
    BOX: ("box", int, True),
}
"""By key: the field of a topology, the type of its value, and whether it is a tuple of such."""


def _topology_with(topology: TopologySpec, key: str, value: PatchValue) -> TopologySpec | None:
    """The topology with one field anew; None where that is no field of it or the value is none for it."""
    if key not in _KINDS:
        return None
    field, kind, several = _KINDS[key]
    if value is None:
        nothing: dict[str, Any] = {field: () if key in (SLICES, APART) else None}
        return replace(topology, **nothing)
    parts: tuple[object, ...] = (value,)
    if several:
        parts = value if isinstance(value, tuple) else (None,)
    new: dict[str, Any] = {field: value}
    return replace(topology, **new) if all(isinstance(part, kind) for part in parts) else None


def wider_places(fabric: Fabric, job: Job, request: TopologyRequest) -> Iterator[Patch]:
    """Patches that require a wider tier, smallest step first."""
    if job.topology.required is not None:
        last = request.whole_at if request.together else request.whole_at - 1
        yield from (((REQUIRED, fabric.tiers[tier]),) for tier in range(last, 0, -1))
        yield ((REQUIRED, None),)


def looser_slices(fabric: Fabric, job: Job) -> Iterator[Patch]:
    """Patches that ask for slices in wider domains, then for none; those that are only preferred stay as they are."""
    required = [run for run in job.topology.slices if not run.preferred]
    if required:
        tiers = [fabric.tiers.index(s.required) for s in required if s.required in fabric.tiers]
        last = min(tiers, default=fabric.node_tier + 1) - 1
        for tier in range(last, 0, -1):
            yield ((SLICES, _widened(job.topology.slices, fabric.tiers[tier])),)
        yield _without_slices(job)


def _widened(slices: tuple[Slices, ...], tier: str) -> tuple[Slices, ...]:
    return tuple(
        dict.fromkeys(run if run.preferred else replace(run, required=tier) for run in slices)
    )


def _without_slices(job: Job) -> Patch:
    return ((SLICES, tuple(run for run in job.topology.slices if run.preferred) or None),)


def looser_spread(job: Job) -> Iterator[Patch]:
    """Patches that allow twice, four times, ... as many members in a domain, then any number; at once on a GPU."""
    spread = job.topology.spread
    if spread is not None and spread.at_most is not None:
        at_most, most = spread.at_most * 2, max(role.members for role in job.roles)
        while at_most < most and spread.tier != "gpu":
            yield ((SPREAD, replace(spread, at_most=at_most)),)
            at_most *= 2
        yield ((SPREAD, None),)


def nearer_others(job: Job) -> Iterator[Patch]:
    """Patches that keep away from fewer jobs: each rule left out alone, then all."""
    apart = tuple(rule for rule in job.topology.apart if not rule.preferred)
    if len(apart) > 1:
        for number in range(len(apart)):
            yield ((APART, apart[:number] + apart[number + 1 :]),)
    if apart:
        yield ((APART, None),)


def all_dropped(job: Job) -> Iterator[Patch]:
    """The patch that asks for nothing of the topology, if the job asks for more than one thing."""
    topology = job.topology
    dropped: list[Patch] = []
    if topology.required is not None:
        dropped.append(((REQUIRED, None),))
    if any(not run.preferred for run in topology.slices):
        dropped.append(_without_slices(job))
    if topology.spread is not None and topology.spread.at_most is not None:
        dropped.append(((SPREAD, None),))
    if any(not rule.preferred for rule in topology.apart):
        dropped.append(((APART, None),))
    if len(dropped) > 1:
        yield tuple(entry for patch in dropped for entry in patch)


def fewer_members(job: Job) -> range:
    """Sizes below the job's own that its slices and its elastic range allow, rising; none for several roles."""
    if len(job.roles) != 1:
        return range(0)
    step = lcm(*(run.members for run in slices_of(job, job.roles[0])))
    least = job.elastic.min if job.elastic else 1
    return range(-(-least // step) * step, job.roles[0].members, step)
