"""Preferred topology of a job (`preferred` tiers and slices): its requests, from all preferences to none.

Each preferred slice, and the preferred tier of a role of several, is a layer. A layer is required of all of its runs or
of none. Layers of small runs are dropped last, because most traffic is within the innermost groups: of three layers the
outermost is dropped first, then the middle one instead, then both, then the innermost instead, and so on. The preferred
tier of the gang is a layer if it is inside a node. A tier of the site is not, because every search goes from narrow to
wide anyway.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

from gantree.model.errors import Unsupported
from gantree.model.jobs import Job, TopologySpec
from gantree.placement.machine.intra_node import INNER_TIERS
from gantree.placement.request.topology_request import (
    TopologyRequest,
    allowed_tiers,
    topology_request_of,
)
from gantree.topology.fabric.fabric import Fabric

MOST_COMBINED = 6
"""Preferred layers of which every combination is tried; further ones are dropped one by one, outermost first."""

_Layer = tuple[int, int | None, int | None]
"""(members of a run, role, slices): numbers of the role (None: the gang) and of its slices (None: its tier)."""


def requests_by_strictness(fabric: Fabric, job: Job) -> Sequence[TopologyRequest]:
    """Return the requests of a job, the strictest first, the one without preferences last.

    Raises as `topology_request_of`.
    """
    plain = topology_request_of(fabric, job)
    if not has_preferred_topology(fabric, job):
        return (plain,)
    return (*dict.fromkeys(_stricter(fabric, job)), plain)


def _stricter(fabric: Fabric, job: Job) -> Iterator[TopologyRequest]:
    """Yield the requests with some preferences, without contradictory and unsupported ones."""
    for variant in _variants(fabric, job, _preferred(fabric, job)):
        try:
            request = topology_request_of(fabric, variant)
        except Unsupported:
            continue
        if not request.contradiction:
            yield request


def has_preferred_topology(fabric: Fabric, job: Job) -> bool:
    """Return whether a job may have a preferred layer: a cheap test, because most jobs have none."""
    if (
        len(job.roles) > 1
        or job.topology.slices
        or job.topology.apart
        or job.roles[0].topology.slices
    ):
        return True
    return _prefers_inside(fabric, job, job.topology) or _prefers_inside(
        fabric, job, job.roles[0].topology
    )


def _prefers_inside(fabric: Fabric, job: Job, topology: TopologySpec) -> bool:
    """Whether a tier inside the node is preferred by a gang that fits one."""
    tier = topology.preferred
    if tier is None or tier not in INNER_TIERS or tier in fabric.tiers:
        return False
    return job.gpus <= fabric.most_gpus_of_node


def _preferred(fabric: Fabric, job: Job) -> list[_Layer]:
    """Return the preferred layers, smallest runs first; a role's preferred tier is one unless the gang's equals it."""
    layers: list[_Layer] = [
        (run.members, None, number)
        for number, run in enumerate(job.topology.slices)
        if run.preferred
    ]
    if _prefers_inside(fabric, job, job.topology):
        layers.append((job.members, None, None))
    for number, role in enumerate(job.roles):
        topology = role.topology
        layers += [
            (run.members, number, place)
            for place, run in enumerate(topology.slices)
            if run.preferred
        ]
        says_more = len(job.roles) > 1 or _prefers_inside(fabric, job, topology)
        if topology.preferred is not None and says_more:
            layers.append((role.members, number, None))
    return sorted(layers, key=lambda layer: layer[0]) if len(layers) > 1 else layers


def _variants(fabric: Fabric, job: Job, preferred: Sequence[_Layer]) -> Iterator[Job]:
    """Yield the job with all preferred layers required, then with some, the innermost dropped last; never with none."""
    count = len(preferred)
    chains = max(0, count - MOST_COMBINED)
    for dropped in range(chains):
        yield _requiring(fabric, job, preferred[: count - dropped])
    inner = preferred[: count - chains]
    for kept in product((True, False), repeat=len(inner)):
        if any(kept):
            yield _requiring(
                fabric, job, [each for each, keep in zip(inner, kept, strict=True) if keep]
            )


def _requiring(fabric: Fabric, job: Job, layers: Sequence[_Layer]) -> Job:
    """The job with these preferred layers as required ones."""
    roles = tuple(
        replace(role, topology=_required(fabric, role.topology, number, layers))
        for number, role in enumerate(job.roles)
    )
    return replace(job, topology=_required(fabric, job.topology, None, layers), roles=roles)


def _required(
    fabric: Fabric, topology: TopologySpec, role: int | None, layers: Sequence[_Layer]
) -> TopologySpec:
    """The topology of a role (None: of the gang) with its layers among these as required ones."""
    kept = {place for _, of, place in layers if of == role}
    slices = tuple(
        replace(run, preferred=False)
        for place, run in enumerate(topology.slices)
        if not run.preferred or place in kept
    )
    required = _narrower(topology, fabric) if None in kept else topology.required
    return replace(topology, slices=slices, required=required)


def _narrower(request: TopologySpec, fabric: Fabric) -> str | None:
    """Of the tier that a role requires and that it prefers the narrower."""
    tiers = allowed_tiers(fabric)
    named = [tier for tier in (request.required, request.preferred) if tier is not None]
    return max(named, key=tiers.index, default=None)
