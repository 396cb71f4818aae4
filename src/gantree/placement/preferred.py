"""What a job only prefers of the topology: its wish with all of that, then with less and less of it.

Each preferred slice, and the preferred tier of a role beside others, is a layer that is required or left out, for all
of its runs or for none. The smaller a run, the longer its layer is kept, for most traffic is within the innermost
groups: of three layers the outermost goes first, then the middle one with the outermost back, then both, then the
innermost with the other two back. The preferred tier of the gang is no layer: every search goes from narrow to wide
anyway.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

from gantree.model.jobs import Job, Slices, TopologyWish
from gantree.placement.wish import Wish, allowed_tiers, read_wish
from gantree.topology.fabric import Fabric

MOST_COMBINED = 6
"""Preferred layers of which every combination is tried; of more than these the outermost go one after the other."""

_Layer = tuple[int, int | None, int | None]
"""(members of a run, role, slices): numbers of the role (None: the gang) and of its slices (None: its tier)."""


def wishes(fabric: Fabric, job: Job) -> Sequence[Wish]:
    """The wish with all that is preferred, then with less of it, at last `read_wish`. Raises as that does."""
    plain = read_wish(fabric, job)
    if not _may_prefer(job):
        return (plain,)
    stricter = [read_wish(fabric, variant) for variant in _variants(fabric, job, _preferred(job))]
    return (*dict.fromkeys(wish for wish in stricter if not wish.contradiction), plain)


def _may_prefer(job: Job) -> bool:
    """Whether there may be a preferred layer: cheap, for most jobs have none."""
    return len(job.roles) > 1 or bool(job.topology.slices) or bool(job.roles[0].topology.slices)


def _preferred(job: Job) -> list[_Layer]:
    """Preferred layers, the smallest runs first; a role's preferred tier counts where it says more than the gang's."""
    layers: list[_Layer] = [
        (run.members, None, number)
        for number, run in enumerate(job.topology.slices)
        if run.preferred
    ]
    for number, role in enumerate(job.roles):
        topology = role.topology
        layers += [
            (run.members, number, place)
            for place, run in enumerate(topology.slices)
            if run.preferred
        ]
        if topology.preferred is not None and len(job.roles) > 1:
            layers.append((role.members, number, None))
    return sorted(layers, key=lambda layer: layer[0]) if len(layers) > 1 else layers


def _variants(fabric: Fabric, job: Job, preferred: Sequence[_Layer]) -> Iterator[Job]:
    """The job with all preferred layers required, then with some of them, the innermost kept longest; never without."""
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
    topology = replace(job.topology, slices=_required(job.topology.slices, None, layers))
    roles = []
    for number, role in enumerate(job.roles):
        wish = replace(role.topology, slices=_required(role.topology.slices, number, layers))
        if any(of == number and place is None for _, of, place in layers):
            wish = replace(wish, required=_narrower(wish, fabric))
        roles.append(replace(role, topology=wish))
    return replace(job, topology=topology, roles=tuple(roles))


def _required(
    slices: tuple[Slices, ...], role: int | None, layers: Sequence[_Layer]
) -> tuple[Slices, ...]:
    kept = {place for _, of, place in layers if of == role}
    return tuple(
        replace(run, preferred=False)
        for place, run in enumerate(slices)
        if not run.preferred or place in kept
    )


def _narrower(wish: TopologyWish, fabric: Fabric) -> str | None:
    """Of the tier that a role requires and that it prefers the narrower."""
    tiers = allowed_tiers(fabric)
    named = [tier for tier in (wish.required, wish.preferred) if tier is not None]
    return max(named, key=tiers.index, default=None)
