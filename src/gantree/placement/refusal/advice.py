"""Relaxations for a refused gang: patches of its job under which it fits now, and their cost.

Every patch has been tried on this very occupancy. Of each request that the job has the smallest step that suffices is
offered; where none does alone, all requests together; and the largest smaller gang.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import replace

from gantree.model.jobs import Apart, Job, Slices, Spread
from gantree.model.verdicts import Patch, PatchValue, Relaxation
from gantree.placement.counting.preferred_topology_fallback import has_place
from gantree.placement.counting.solve import solve
from gantree.placement.members.members import placement_of
from gantree.placement.refusal.nearest import table_of
from gantree.placement.refusal.on_empty import OnEmpty
from gantree.placement.request.anti_affinity import without_excluded_domains
from gantree.placement.request.relaxations import (
    APART,
    MEMBERS,
    REQUIRED,
    SLICES,
    SPREAD,
    all_dropped,
    fewer_members,
    looser_slices,
    looser_spread,
    nearer_others,
    relaxed,
    wider_places,
)
from gantree.placement.request.topology_request import TopologyRequest, topology_request_of
from gantree.topology.occupancy.occupancy import Occupancy


def looser_or_fewer(
    occupancy: Occupancy, job: Job, request: TopologyRequest
) -> tuple[Relaxation, ...]:
    """What of the topology to let go, then how many members fewer."""
    chains = (
        wider_places(occupancy.fabric, job, request),
        looser_slices(occupancy.fabric, job),
        looser_spread(job),
        nearer_others(job),
    )
    found = [_first_that_fits(occupancy, job, request, patches) for patches in chains]
    looser = [relaxation for relaxation in found if relaxation is not None]
    if not looser:
        together = _first_that_fits(occupancy, job, request, all_dropped(job))
        looser = [together] if together else []
    return (*looser, *_fewer(occupancy, job, request))


def nearer_or_fewer(
    occupancy: Occupancy, job: Job, request: TopologyRequest
) -> tuple[Relaxation, ...]:
    """Where there is too little of something: which jobs to be near to, then how many members fewer."""
    nearer = _first_that_fits(occupancy, job, request, nearer_others(job))
    fewer = tuple(_fewer(occupancy, job, request))
    return (nearer, *fewer) if nearer else fewer


def _first_that_fits(
    occupancy: Occupancy, job: Job, request: TopologyRequest, patches: Iterable[Patch]
) -> Relaxation | None:
    for patch in patches:
        looser = topology_request_of(occupancy.fabric, relaxed(job, patch))
        if has_place(occupancy, looser):
            return Relaxation(patch, _comm_ratio(occupancy, request, looser))
    return None


def _comm_ratio(
    occupancy: Occupancy, request: TopologyRequest, looser: TopologyRequest
) -> float | None:
    """Predicted communication time over that of the best place of the request as written on the empty fabric."""
    best_s = OnEmpty.of(occupancy).best_comm_s(request)
    if not best_s:
        return None
    found = solve(without_excluded_domains(occupancy, looser.apart), looser)
    assert found is not None, "it fits"
    return placement_of(*found).predicted.comm_s / best_s


def _fewer(occupancy: Occupancy, job: Job, request: TopologyRequest) -> Iterator[Relaxation]:
    """The largest smaller gang that fits; what fits n members fits fewer of them too."""
    sizes = fewer_members(job)
    if not sizes:
        return

    def fits(members: int) -> bool:
        return has_place(occupancy, _with_members(occupancy, job, request, members))

    low, high = 0, bisect_right(sizes, _most_members(occupancy, request))
    middle = high
    while low < high:
        if fits(sizes[middle - 1]):
            low = middle
        else:
            high = middle - 1
        middle = (low + high + 1) // 2
    if low:
        yield Relaxation(((MEMBERS, sizes[low - 1]),))


def _most_members(occupancy: Occupancy, request: TopologyRequest) -> int:
    """No more members fit, but one may where parts of GPUs must be apart; without slices as a rule so many do."""
    where, (role,) = without_excluded_domains(occupancy, request.apart), request.roles
    slots = table_of(where, request, role).in_domain[max(request.whole_at, role.whole_at)]
    return max(1, int(slots.max()))


def _with_members(
    occupancy: Occupancy, job: Job, request: TopologyRequest, members: int
) -> TopologyRequest:
    """The request of a smaller gang of its one role; one that contradicts itself may not do so with fewer members."""
    if request.contradiction:
        return topology_request_of(occupancy.fabric, relaxed(job, ((MEMBERS, members),)))
    return replace(request, roles=(replace(request.roles[0], members=members),))


# ----- words


def advice(relaxations: tuple[Relaxation, ...]) -> str:
    """The first relaxation as a sentence of its own, with a space before; empty without one."""
    if not relaxations:
        return ""
    first = relaxations[0]
    return f" Fits now {' and '.join(_in_words(key, value) for key, value in first.patch)}{_price(first)}."


def _in_words(key: str, value: PatchValue) -> str:
    if key == MEMBERS:
        return f"with {value} member{'s' * (value != 1)}"
    if key == REQUIRED:
        return "if no tier is required" if value is None else f"if relaxed to {value}"
    if key == SLICES:
        slices = [run for run in _several(value) if isinstance(run, Slices) and not run.preferred]
        tiers = " or ".join(dict.fromkeys(run.required for run in slices))
        return f"with slices in one {tiers} each" if tiers else "without slices"
    if key == SPREAD:
        if isinstance(value, Spread):
            return (
                f"with up to {value.at_most} member{'s' * (value.at_most != 1)} in one {value.tier}"
            )
        return "if not spread"
    assert key == APART, f"{key} is no patch of these"
    others = [
        name for request in _several(value) if isinstance(request, Apart) for name in request.jobs
    ]
    return f"if apart from {' and '.join(others)} only" if others else "if apart from nobody"


def _several(value: PatchValue) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else ()


def _price(relaxation: Relaxation) -> str:
    if relaxation.comm_ratio is None:
        return ""
    return f", at {(relaxation.comm_ratio - 1) * 100:+.0f} % communication time"
