"""The cells of queues at one time: bound, lost, free of guests, and what may not be evicted.

A view is made of a `CellDomains`, an occupancy and the state of cells in the ledger, and is never changed: make another
one when one of them has changed. Its results for a queue (the packing) are cached.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from gantree.model.placements import MemberPlacement
from gantree.planning.cells.domains import Bound, CellDomains
from gantree.policy.cells import Cell, CellPreference, LevelPacking, lost, pack
from gantree.topology.fabric.fabric import BoolArray, FloatArray, IntArray
from gantree.topology.occupancy.occupancy import Occupancy

IDLE_FIRST_GPU_S = 1.0
"""What evicting a guest counts for each of its GPUs beside its harm, so that idle room goes first."""


@dataclass(frozen=True, slots=True)
class Binding:
    """A cell and the domain that it is, or could be, bound to, by level and number."""

    cell: Cell
    level: int
    domain: int


@dataclass(frozen=True, slots=True, eq=False)
class CellView:
    """Cells at one moment. Build it with `view_of`.

    homes: owner -> the queue in whose cells it is at home. harm_of_owner: the guests, with the cost of evicting each in
    GPU-seconds. fixed_gpu masks GPUs that are unusable or held by an owner that is no guest; cost_of_gpu is the cost of
    evicting guests from each. bound are the cells whose domain exists, lost those without a domain now (later queues of
    the policy first), unbound all others. clean_gpu masks the GPUs to which unbound cells may be bound.
    """

    cell_domains: CellDomains
    occupancy: Occupancy
    homes: Mapping[str, str]
    harm_of_owner: Mapping[str, float]
    gpus_of_owner: Mapping[str, tuple[int, ...]]
    fixed_gpu: BoolArray
    cost_of_gpu: FloatArray
    bound: tuple[Binding, ...]
    vanished: tuple[Cell, ...]
    lost: tuple[Cell, ...]
    unbound: tuple[Cell, ...]
    clean_gpu: BoolArray
    _private: dict[str, tuple[Binding, ...]] = field(default_factory=dict)

    def domain_name(self, binding: Binding) -> str:
        """Name of the domain of a binding."""
        return self.cell_domains.names_of_domain[binding.level][binding.domain]

    def gpus_of(self, bindings: Iterable[Binding]) -> BoolArray:
        """Mask of the GPUs of some domains."""
        return _gpus_of(self.cell_domains, bindings)

    @property
    def bound_names(self) -> dict[tuple[str, str, int], str]:
        """Bound cells as `view_of` takes them."""
        return {one.cell: self.domain_name(one) for one in self.bound}

    def without(self, owner: str) -> "CellView":
        """The view as if an owner held nothing: for the placement of a guest in its own cells."""
        occupancy = self.occupancy.copy()
        occupancy.give_back(owner)
        return view_of(
            occupancy, self.cell_domains, self.bound_names, self.homes, self.harm_of_owner
        )

    def bound_of(self, queue: str) -> tuple[Binding, ...]:
        """The bound cells of a queue."""
        return tuple(one for one in self.bound if one.cell.queue == queue)

    def unbound_of(self, queue: str) -> tuple[Cell, ...]:
        """The cells of a queue that are not bound and have a place."""
        return tuple(cell for cell in self.unbound if cell.queue == queue)

    def bindable(self, queue: str) -> tuple[Binding, ...]:
        """A domain for each unbound cell of a queue, such that all unbound cells of others keep theirs.

        The least harmful domains, near to what is bound already. Any part of it may be bound.
        """
        found = self._private.get(queue)
        if found is None:
            preference = CellPreference(self.cost_of_gpu, self._near(queue))
            found = self._private[queue] = self.packed_for(queue, preference) or ()
        return found

    def packed_for(self, queue: str, preference: CellPreference) -> tuple[Binding, ...] | None:
        """As `bindable`, with likings of one's own; None where not all unbound cells have a place."""
        mine = self.unbound_of(queue)
        others = [cell for cell in self.unbound if cell.queue != queue]
        cell_domains = self.cell_domains
        packings = pack(
            cell_domains.levels,
            self.clean_gpu,
            cell_domains.counts(mine),
            cell_domains.counts(others),
            preference,
        )
        return None if packings is None else tuple(_bindings(cell_domains, mine, packings))

    def most_free_gpus(self, queue: str) -> int:
        """GPUs of the queue's cells that are not held for good, unbound cells counted as the largest of their tier.

        Cheap, and never too few: a job of more GPUs has no place at home.
        """
        levels = self.cell_domains.levels
        free = int((self.gpus_of(self.bound_of(queue)) & ~self.fixed_gpu).sum())
        for place, count in enumerate(self.cell_domains.counts(self.unbound_of(queue))):
            if count:
                free += count * int(levels[place].gpus_of_domain.max())
        return free

    def gpus_of_members(self, members: Iterable[MemberPlacement]) -> IntArray:
        """GPUs of members, those of which they hold a part among them, by number over the whole fabric."""
        return np.array(self.cell_domains.gpus_of_members(members), dtype=np.int64)

    def _near(self, queue: str) -> FloatArray | None:
        """1 for GPUs in a narrowest domain above the node that holds something of the queue's bound cells."""
        fabric = self.cell_domains.fabric
        bound = self.bound_of(queue)
        if not bound or fabric.node_tier < 2:
            return None
        above = fabric.domain_of_node[fabric.node_tier - 1][self.cell_domains.node_of_gpu]
        near = np.zeros(fabric.domains(fabric.node_tier - 1))
        near[above[self.gpus_of(bound)]] = 1.0
        of_gpu: FloatArray = near[above]
        return of_gpu


def view_of(
    occupancy: Occupancy,
    cell_domains: CellDomains,
    bound: Bound,
    homes: Mapping[str, str],
    harm_of_owner: Mapping[str, float],
) -> CellView:
    """The state of the cells at one moment.

    homes: owner -> queue, for owners that run inside bound cells as owed work. harm_of_owner: every owner that may be
    evicted for the sake of a cell, with its harm in GPU-seconds; all other owners are fixed. An owner in both is fixed.
    Bound cells that the book does not have, or whose domain is not there, are `vanished` (to be released).
    """
    gpus_of_owner = {
        owner: cell_domains.gpus_of_owner(owner, members)
        for owner, members in occupancy.owners.items()
    }
    fixed, cost = _fixed_and_cost(occupancy, cell_domains, homes, harm_of_owner, gpus_of_owner)
    bindings, vanished = _bound(cell_domains, bound)
    taken = {one.cell for one in bindings}
    clean = ~fixed & ~_gpus_of(cell_domains, bindings)
    free = [cell for cell in cell_domains.cells if cell not in taken]
    gone = lost(cell_domains.levels, clean, free)
    return CellView(
        cell_domains=cell_domains,
        occupancy=occupancy,
        homes=homes,
        harm_of_owner=harm_of_owner,
        gpus_of_owner=gpus_of_owner,
        fixed_gpu=fixed,
        cost_of_gpu=cost,
        bound=bindings,
        vanished=vanished,
        lost=gone,
        unbound=tuple(cell for cell in free if cell not in gone),
        clean_gpu=clean,
    )


def _gpus_of(cell_domains: CellDomains, bindings: Iterable[Binding]) -> BoolArray:
    """Mask of the GPUs of the domains of some bindings."""
    mask = np.zeros(len(cell_domains.node_of_gpu), dtype=np.bool_)
    domains_of_level: dict[int, list[int]] = {}
    for one in bindings:
        domains_of_level.setdefault(one.level, []).append(one.domain)
    for level, domains in domains_of_level.items():
        mask |= cell_domains.levels[level].gpus_in(domains)
    return mask


def _bindings(
    cell_domains: CellDomains, mine: Iterable[Cell], packings: Iterable[LevelPacking]
) -> Iterable[Binding]:
    """Give the cells of each tier the domains of its share, lowest number first."""
    cells_of_tier: dict[str, list[Cell]] = {}
    for cell in mine:
        cells_of_tier.setdefault(cell.tier, []).append(cell)
    for place, packing in enumerate(packings):
        cells = cells_of_tier.get(cell_domains.levels[place].tier, [])
        for cell, domain in zip(cells, packing.mine, strict=True):
            yield Binding(cell, place, domain)


def _bound(cell_domains: CellDomains, bound: Bound) -> tuple[tuple[Binding, ...], tuple[Cell, ...]]:
    """Bound cells by number, in the order in which they are given, and those that cannot be."""
    known = frozenset(cell_domains.cells)
    bindings, vanished = [], []
    for key, name in bound.items():
        cell, found = Cell(*key), cell_domains.domain(key[1], name)
        if found is None or cell not in known:
            vanished.append(cell)
        else:
            bindings.append(Binding(cell, *found))
    return tuple(bindings), tuple(vanished)


def _fixed_and_cost(
    occupancy: Occupancy,
    cell_domains: CellDomains,
    homes: Mapping[str, str],
    harm_of_owner: Mapping[str, float],
    gpus_of_owner: Mapping[str, tuple[int, ...]],
) -> tuple[BoolArray, FloatArray]:
    """Masks and costs over GPUs; a guest's harm is spread evenly over its GPUs."""
    fixed: BoolArray = ~occupancy.usable_node[cell_domains.node_of_gpu]
    held: list[int] = []
    lent: list[int] = []
    costs: list[float] = []
    for owner, gpus in gpus_of_owner.items():
        harm = harm_of_owner.get(owner)
        if harm is None or owner in homes:
            held += gpus
        elif gpus:
            lent += gpus
            costs += [IDLE_FIRST_GPU_S + harm / len(gpus)] * len(gpus)
    fixed[held] = True
    cost: FloatArray = np.zeros(len(fixed))
    if lent:
        cost += np.bincount(lent, costs, minlength=len(fixed))
    return fixed, cost
