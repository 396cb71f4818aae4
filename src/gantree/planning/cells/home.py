"""Binds cells: the home placement of a job of a queue with cells, guests that leave for it, and released cells.

    cell_domains = CellDomains.of(policy.queues, fabric)             once per policy and fabric
    view = view_of(occupancy, cell_domains, bound, homes, harm_of_owner)   whenever one of them has changed
    plan = home(view, queue, job, preferences)                        None: it waits, or runs as a guest

A job of a queue with cells is *at home* when it runs in bound cells of its queue, within the guarantee. Any other job
on lent or unowned room is a *guest*, and stops when a job of the cells needs the room. `policy.cells` says why that is
safe.

A queue's *private cluster* is what its bound cells have, and one domain for each of its unbound cells, chosen such that
every unbound cell of every other queue keeps a domain of its own (`CellView.bindable`). Only owners that are no guests
hold anything there. A job is placed where it fits into the private cluster: beside the guests if possible, else with
the fewest of the least harmful ones stopped. Cells of which the placement uses nothing stay unbound.

A guest that is next to be placed in the cells is placed at once: it stays if its domain can become a cell
(`at_home_in_place`), and moves otherwise. To hold room for it and let it run on as a guest is not enough: a later
eviction would make it start later than in the private cluster.

Because the domains of unbound cells of one tier are alike, whether a job fits hardly depends on which ones were chosen;
it does where a job requires several cells to be in one wider domain (`topology.required`), which no cell promises but
which is tried, domain by domain.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gantree.model.jobs import Job
from gantree.model.placements import MemberPlacement, Placement
from gantree.placement.request.placement_preferences import (
    DEFAULT_PREFERENCES,
    PlacementPreferences,
)
from gantree.planning.cells.domains import Bound, CellDomains
from gantree.planning.cells.private_cluster import PrivateCluster, orders
from gantree.planning.cells.view import Binding, CellView, view_of
from gantree.policy.cells import Cell, CellPreference, pack
from gantree.topology.fabric.fabric import BoolArray, IntArray

__all__ = [
    "Bound",
    "Cell",
    "CellDomains",
    "CellView",
    "HomePlan",
    "Rebind",
    "at_home_in_place",
    "home",
    "keeps_cells",
    "preferred_for_guests",
    "promised_of_node",
    "releasable",
    "view_of",
]

Rebind = tuple[str, int, str]
"""(tier, number, domain): this cell of the queue is to be bound to this domain."""


@dataclass(frozen=True, slots=True)
class HomePlan:
    """A place at home: bind these cells, evict these guests, and the placement is free.

    evict holds exactly the guests whose room the placement uses; other guests in the bound domains stay.
    """

    placement: Placement
    bind: tuple[Rebind, ...]
    evict: tuple[str, ...]


def home(
    view: CellView, queue: str, job: Job, preferences: PlacementPreferences = DEFAULT_PREFERENCES
) -> HomePlan | None:
    """A place for a waiting job in its queue's private cluster; None where there is none now. Raises as `search.place`.

    An owner that leaves anyway should be given back in the view's occupancy; of a job that runs as a guest ask
    `view.without(owner)`. A job without GPUs needs no cell, and gets None.
    """
    if not job.on_gpus or job.gpus > view.most_free_gpus(queue):
        return None
    bound = view.bound_of(queue)
    for bindable in _choices(view, queue, job):
        plan = _home_in(view, (*bound, *bindable), job, preferences)
        if plan is not None:
            return plan
    return None


def releasable(view: CellView) -> tuple[Cell, ...]:
    """Bound cells in whose domain no home job of their queue holds anything, and those that are no more."""
    mine: dict[str, list[int]] = {}
    for owner, queue in view.homes.items():
        mine.setdefault(queue, []).extend(view.gpus_of_owner.get(owner, ()))
    held = {queue: np.array(gpus, dtype=np.int64) for queue, gpus in mine.items()}
    idle = [one.cell for one in view.bound if not _holds(view, one, held.get(one.cell.queue))]
    return (*view.vanished, *idle)


def at_home_in_place(view: CellView, queue: str, owner: str) -> tuple[Rebind, ...] | None:
    """The cells to bind so that a guest of a queue is at home at its present placement; None where none were found.

    Every GPU that it holds must be in a bound cell of the queue, or in a domain to which an unbound one may be bound.
    Cells that it fills best are bound first, of equals the wider. If that leaves something out (a loose GPU breaks up
    the node that it is in), the widest cells are bound first, of equals those that it fills best.
    """
    gpus = view.gpus_of_owner.get(owner)
    if not gpus or owner in view.homes:
        return None
    mine = np.zeros(len(view.fixed_gpu), dtype=np.bool_)
    mine[list(gpus)] = True
    open_gpu = mine & ~view.gpus_of(view.bound_of(queue))
    if (open_gpu & ~view.clean_gpu).any():
        return None
    fullest = _cover(view, queue, open_gpu, widest_first=False)
    return fullest if fullest is not None else _cover(view, queue, open_gpu, widest_first=True)


def keeps_cells(view: CellView, members: Sequence[MemberPlacement]) -> bool:
    """Whether all unbound cells keep a domain if a gang that is never evicted takes these members.

    Test this before such a gang is placed outside its cells. It may take no room in bound cells.
    """
    gpus = view.gpus_of_members(members)
    if view.gpus_of(view.bound)[gpus].any():
        return False
    clean = view.clean_gpu.copy()
    clean[gpus] = False
    cell_domains = view.cell_domains
    none = [0] * len(cell_domains.levels)
    return pack(cell_domains.levels, clean, none, cell_domains.counts(view.unbound)) is not None


def promised_of_node(view: CellView) -> IntArray:
    """GPUs of each node that are in bound cells, or that unbound cells would be bound to if all were needed now."""
    promised = view.gpus_of(view.bound)
    cell_domains = view.cell_domains
    none = [0] * len(cell_domains.levels)
    preference = CellPreference(
        -view.cost_of_gpu
    )  # others get what is liked least: room with the fewest guests
    packings = pack(
        cell_domains.levels, view.clean_gpu, none, cell_domains.counts(view.unbound), preference
    )
    for level, packing in zip(cell_domains.levels, packings or (), strict=False):
        promised |= level.gpus_in(packing.others)
    return np.bincount(
        cell_domains.node_of_gpu[promised], minlength=len(cell_domains.fabric.nodes)
    ).astype(np.int64)


def preferred_for_guests(view: CellView) -> BoolArray:
    """Mask of the nodes of which no cell will need anything; guests go there first, and to any node else."""
    mask: BoolArray = promised_of_node(view) == 0
    return mask


def _holds(view: CellView, binding: Binding, held: IntArray | None) -> bool:
    if held is None:
        return False
    domain_of_gpu = view.cell_domains.levels[binding.level].domain_of_gpu
    return bool((domain_of_gpu[held] == binding.domain).any())


# ----- the private cluster


def _choices(view: CellView, queue: str, job: Job) -> Iterator[tuple[Binding, ...]]:
    """Domains for the unbound cells: the least harmful; then, for a gang that requires one domain, together in one."""
    yield view.bindable(queue)
    fabric, tier = view.cell_domains.fabric, job.topology.required
    if tier is None or tier not in fabric.tiers or not view.unbound_of(queue):
        return
    domain_of_gpu = fabric.domain_of_node[fabric.tiers.index(tier)][view.cell_domains.node_of_gpu]
    room = view.clean_gpu | (view.gpus_of(view.bound_of(queue)) & ~view.fixed_gpu)
    enough = np.bincount(domain_of_gpu[room], minlength=1) >= max(1, job.gpus)
    cost = np.bincount(domain_of_gpu, view.cost_of_gpu, minlength=len(enough))
    far = 1.0 + float(view.cost_of_gpu.sum())
    for domain in sorted(np.flatnonzero(enough).tolist(), key=lambda one: (cost[one], one)):
        preference = CellPreference(view.cost_of_gpu + far * (domain_of_gpu != domain))
        yield view.packed_for(queue, preference) or ()


def _home_in(
    view: CellView, private: Sequence[Binding], job: Job, preferences: PlacementPreferences
) -> HomePlan | None:
    """A place in the domains of these bindings, with as little harm to guests as was found."""
    mask = view.gpus_of(private)  # of a GPU that a home job holds a part of, the rest is free
    if job.gpus > int((mask & ~view.fixed_gpu).sum()):
        return None
    trial = PrivateCluster(view, mask)
    plans = [
        HomePlan(placement, _bindings_used(view, private, placement), trial.in_the_way(placement))
        for placement in trial.places(job, orders(view, private, job), preferences)
    ]
    return min(plans, key=lambda plan: _harm(view, plan), default=None)


def _harm(view: CellView, plan: HomePlan) -> tuple[float, int]:
    return sum(view.harm_of_owner[owner] for owner in plan.evict), len(plan.evict)


def _bindings_used(
    view: CellView, private: Sequence[Binding], placement: Placement
) -> tuple[Rebind, ...]:
    """The cells, not bound yet, of whose domains a place uses something."""
    used = view.gpus_of_members(placement.members)
    touched = [one for one in private if _holds(view, one, used)]
    assert len(used) == sum(int((view.gpus_of([one])[used]).sum()) for one in touched), (
        f"a place outside the cells {private}"
    )
    already = {one.cell for one in view.bound}
    return tuple(
        (one.cell.tier, one.cell.number, view.domain_name(one))
        for one in touched
        if one.cell not in already
    )


# ----- guests that are at home where they are


def _cover(
    view: CellView, queue: str, open_gpu: BoolArray, *, widest_first: bool
) -> tuple[Rebind, ...] | None:
    """Unbound cells of a queue whose domains hold all these GPUs, such that all other cells keep a place."""
    left = list(view.unbound_of(queue))
    clean, chosen = view.clean_gpu.copy(), list[Rebind]()
    while open_gpu.any():
        found = next(_safe(view, left, clean, open_gpu, widest_first=widest_first), None)
        if found is None:
            return None
        left.remove(found.cell)
        gpus = view.gpus_of([found])
        clean &= ~gpus
        open_gpu = open_gpu & ~gpus
        chosen.append((found.cell.tier, found.cell.number, view.domain_name(found)))
    return tuple(chosen)


def _safe(
    view: CellView,
    left: Sequence[Cell],
    clean: BoolArray,
    open_gpu: BoolArray,
    *,
    widest_first: bool,
) -> Iterator[Binding]:
    """Bindings of a cell to a domain with some of these GPUs that leave every other cell a place, the best first."""
    if not left:
        return
    cell_domains, queue = view.cell_domains, left[0].queue
    still = [cell for cell in view.unbound if cell.queue != queue] + list(left)
    first_of_tier = {cell.tier: cell for cell in reversed(left)}
    options = [
        (place if widest_first else 0, -inside / size, place, domain)
        for place, domain, inside, size in _holding(view, first_of_tier, clean, open_gpu)
    ]
    none = [0] * len(cell_domains.levels)
    for _, _, place, domain in sorted(options):
        cell, rest = first_of_tier[cell_domains.levels[place].tier], clean.copy()
        rest[cell_domains.levels[place].gpus_in([domain])] = False
        counts = cell_domains.counts(one for one in still if one != cell)
        if pack(cell_domains.levels, rest, none, counts) is not None:
            yield Binding(cell, place, domain)


def _holding(
    view: CellView, tiers: Container[str], clean: BoolArray, open_gpu: BoolArray
) -> Iterator[tuple[int, int, int, int]]:
    """(level, domain, how many, its size) of the clean domains of some tiers that hold some of these GPUs."""
    for place, level in enumerate(view.cell_domains.levels):
        if level.tier in tiers:
            inside, domains = level.count(open_gpu), level.clean(clean)
            for domain in domains[inside[domains] > 0].tolist():
                yield place, domain, int(inside[domain]), int(level.gpus_of_domain[domain])
