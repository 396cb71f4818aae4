"""Quota in shapes: which cells queues own, and whether all of them have a place at once. Which place suits a gang is
in `planning.cells.home`.

A queue owns cells: two nvlink domains, a leaf, sixteen GPUs anywhere. A cell is a promise, not a place: it is bound to
a domain when a job of the queue needs it, and released when none of the queue's jobs is left in it. Until then its
room is lent. The model is HiveD (Zhao et al., OSDI 2020); "buddy" below is theirs.

What makes the promise good is one invariant. Take away what nobody may evict: domains that are bound, GPUs held by
owners that are no guests, unusable nodes. Then *all unbound cells of all queues still have domains of their own in what
is left*, each wholly clean, no two overlapping. Such an assignment is a *packing*. Whatever keeps the invariant is
allowed (binding a cell to the domain that a packing gives it does, and so does releasing one); whatever breaks it is
not, unless the world does it (a node is lost), and then `lost` says which queues lose what, later ones of the policy
first.

Packing goes from wide tiers to narrow ones, loose GPUs last. A cell of a tier takes a clean domain; which one matters
only for what it takes from narrower cells, so those with the fewest whole narrower domains in them go first (on a
fabric of equal domains all are equal). Splitting is implied: a domain that no wider cell took is room for the narrower
cells in it. So is merging: nothing remembers a split, a domain is clean again when what made it unclean is gone.

The packing finds a place for all cells whenever there is one, if the clean domains of each tier can be put in a row in
which each holds at most as many whole domains of every narrower tier, and as many GPUs, as the next. Let D be the first
of that row and P a packing of all cells. Where P gives D to nobody of that tier but a later E, swap D and E: what P
puts into narrower cells of D fits into E, which holds as many of each. So some packing uses the first of the row, and
by induction the first so many of them. A tree of machines with equally many GPUs is such a fabric, whatever the number
of nodes in its leaves. Elsewhere the packing may miss an assignment (then a binding is refused that would have been
safe), but it never finds one that is none.

How large a domain must be for a cell of its tier is `Level.whole`: no smaller than most domains of that tier.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gantree.model.errors import BadInput
from gantree.policy.rules import QueueRule
from gantree.topology.fabric.fabric import BoolArray, FloatArray, IntArray

NOT_IN_ANY = -1
"""Domain of a GPU that is in no domain of a tier."""


class Cell(NamedTuple):
    """One cell of a queue; number counts the queue's cells of that tier from 0."""

    queue: str
    tier: str
    number: int


def cells_of(queues: Iterable[QueueRule]) -> tuple[Cell, ...]:
    """All cells, queue by queue as the policy lists them, and of each queue as it lists its tiers.

    A tier listed twice by a queue adds up. BadInput for a count below 0.
    """
    cells: list[Cell] = []
    for rule in queues:
        count_of_tier: dict[str, int] = {}
        for tier, count in rule.cells:
            if count < 0:
                raise BadInput(f"queue {rule.path}: {count} cells of tier {tier}: say 0 or more")
            count_of_tier[tier] = count_of_tier.get(tier, 0) + count
        for tier, count in count_of_tier.items():
            cells += (Cell(rule.path, tier, number) for number in range(count))
    return tuple(cells)


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """The domains of one tier of which cells are made, over the GPUs of the fabric in node order.

    domain_of_gpu[gpu] is NOT_IN_ANY outside all; order[domain] counts up with what a domain takes from narrower levels
    when a cell of this one takes it; whole[domain] says whether it is as large as a cell must be.
    """

    tier: str
    domain_of_gpu: IntArray
    gpus_of_domain: IntArray
    whole: BoolArray
    order: IntArray

    def count(self, gpus: BoolArray) -> IntArray:
        """GPUs of a mask in each domain."""
        inside = self.domain_of_gpu[gpus]
        return np.bincount(inside[inside >= 0], minlength=len(self.gpus_of_domain)).astype(np.int64)

    def clean(self, gpus: BoolArray) -> IntArray:
        """The whole domains of which every GPU is in a mask, rising."""
        return np.flatnonzero(self.whole & (self.count(gpus) == self.gpus_of_domain))

    def total(self, of_gpu: FloatArray) -> FloatArray:
        """Sum over the GPUs of each domain."""
        inside = self.domain_of_gpu >= 0
        sums = np.bincount(
            self.domain_of_gpu[inside], of_gpu[inside], minlength=len(self.gpus_of_domain)
        )
        return sums.astype(np.float64)

    def gpus_in(self, domains: Iterable[int]) -> BoolArray:
        """Mask of the GPUs of some domains."""
        chosen = np.zeros(len(self.gpus_of_domain) + 1, dtype=np.bool_)
        chosen[list(domains)] = True
        chosen[NOT_IN_ANY] = False
        mask: BoolArray = chosen[self.domain_of_gpu]
        return mask


def levels_of(
    domains_of_tier: Sequence[tuple[str, IntArray]],
) -> tuple[Level, ...]:
    """Levels from (tier, domain of each GPU), widest tier first. BadInput where a tier does not nest in the one before.

    A cell is as large as most domains of its tier: the commonest number of GPUs, of several the largest.
    """
    levels: list[Level] = []
    for place, (tier, domain_of_gpu) in enumerate(domains_of_tier):
        for wider, outer in domains_of_tier[:place]:
            if not _nests(domain_of_gpu, outer):
                raise BadInput(
                    f"cells of tiers {wider} and {tier}: domains of {tier} do not lie within those of {wider} here; "
                    "use one of the two"
                )
        inside = domain_of_gpu[domain_of_gpu >= 0]
        gpus = np.bincount(inside).astype(np.int64)
        levels.append(Level(tier, domain_of_gpu, gpus, gpus >= _usual(gpus), gpus))
    return tuple(
        Level(one.tier, one.domain_of_gpu, one.gpus_of_domain, one.whole, _order(levels, place))
        for place, one in enumerate(levels)
    )


def _usual(gpus_of_domain: IntArray) -> int:
    sizes, times = np.unique(gpus_of_domain[gpus_of_domain > 0], return_counts=True)
    return int(sizes[times == times.max()].max()) if len(sizes) else 1


def _nests(inner: IntArray, outer: IntArray) -> bool:
    """Whether no inner domain has GPUs in two outer ones."""
    there = inner >= 0
    pairs = np.unique(np.stack([inner[there], outer[there]]), axis=1)
    return bool(len(np.unique(pairs[0])) == pairs.shape[1])


def _order(levels: Sequence[Level], place: int) -> IntArray:
    """Rank of each domain by how many whole domains of each narrower tier it holds, then by its GPUs."""
    here = levels[place]
    columns = [_held(here, narrower) for narrower in levels[place + 1 :]]
    rows = np.stack([*columns, here.gpus_of_domain], axis=1)
    return np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _held(outer: Level, inner: Level) -> IntArray:
    there = (inner.domain_of_gpu >= 0) & (outer.domain_of_gpu >= 0)
    pairs = np.unique(
        np.stack([inner.domain_of_gpu[there], outer.domain_of_gpu[there]], axis=1), axis=0
    )
    whole = pairs[inner.whole[pairs[:, 0]], 1]
    return np.bincount(whole, minlength=len(outer.gpus_of_domain)).astype(np.int64)


class LevelPacking(NamedTuple):
    """The domains of one level that a packing gives to one queue, best first, and to the others."""

    mine: tuple[int, ...]
    others: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class CellPreference:
    """What one queue would like of a packing: cost_of_gpu (the lower the better), then near_of_gpu (the higher)."""

    cost_of_gpu: FloatArray
    near_of_gpu: FloatArray | None = None


def pack(
    levels: Sequence[Level],
    clean: BoolArray,
    mine: Sequence[int],
    others: Sequence[int],
    preference: CellPreference | None = None,
) -> tuple[LevelPacking, ...] | None:
    """Give each unbound cell a domain of its own among the clean GPUs; None where some get none.

    mine[level] and others[level] count the unbound cells of one queue and of all other ones. Where it does not matter
    to the packing, the queue gets what it likes best and the others get what it likes least.
    """
    left = clean.copy()
    packings: list[LevelPacking] = []
    for place, level in enumerate(levels):
        if not mine[place] and not others[place]:
            packings.append(LevelPacking((), ()))
            continue
        candidates = level.clean(left)
        if len(candidates) < mine[place] + others[place]:
            return None
        liked = _liked(levels, place, left, candidates, preference)
        packing = _shared(level, liked, mine[place], others[place])
        left &= ~level.gpus_in((*packing.mine, *packing.others))
        packings.append(packing)
    return tuple(packings)


def _liked(
    levels: Sequence[Level],
    place: int,
    left: BoolArray,
    candidates: IntArray,
    preference: CellPreference | None,
) -> IntArray:
    """Candidates, the best liked first: least cost, nearest, within domains that are split anyway, first in order."""
    level = levels[place]
    keys: list[NDArray[np.generic]] = [candidates]
    keys += [_within_clean(level, wider, left)[candidates] for wider in reversed(levels[:place])]
    if preference is not None:
        if preference.near_of_gpu is not None:
            keys.append(-level.total(preference.near_of_gpu)[candidates])
        keys.append(level.total(preference.cost_of_gpu)[candidates])
    return candidates[np.lexsort(keys)]


def _within_clean(level: Level, wider: Level, left: BoolArray) -> BoolArray:
    """Whether each domain of a level lies in a domain of a wider one that is still clean."""
    there = level.domain_of_gpu >= 0
    clean = np.zeros(len(wider.gpus_of_domain) + 1, dtype=np.bool_)
    clean[wider.clean(left)] = True
    inside = np.zeros(len(level.gpus_of_domain), dtype=np.bool_)
    inside[level.domain_of_gpu[there]] = clean[wider.domain_of_gpu[there]]
    return inside


def _shared(level: Level, liked: IntArray, mine: int, others: int) -> LevelPacking:
    """Take the domains that cost narrower cells least; of the last that are taken, among equals, what is liked."""
    order = level.order[liked]
    last = np.sort(order)[mine + others - 1]
    sure, equal = liked[order < last], liked[order == last]
    need = mine + others - len(sure)
    for_me = min(mine, need)
    taken = [*sure.tolist(), *equal[:for_me].tolist()]
    taken += equal[len(equal) - (need - for_me) :].tolist() if need > for_me else []
    place_of = {domain: place for place, domain in enumerate(liked.tolist())}
    taken.sort(key=place_of.__getitem__)
    return LevelPacking(tuple(taken[:mine]), tuple(taken[mine:]))


def lost(levels: Sequence[Level], clean: BoolArray, unbound: Sequence[Cell]) -> tuple[Cell, ...]:
    """The unbound cells that have no place beside those listed before them: later ones lose first."""
    place_of_tier = {level.tier: place for place, level in enumerate(levels)}
    counts = [0] * len(levels)
    for cell in unbound:
        counts[place_of_tier[cell.tier]] += 1
    none = [0] * len(levels)
    if pack(levels, clean, none, counts) is not None:
        return ()
    kept, gone = none.copy(), []
    for cell in unbound:
        kept[place_of_tier[cell.tier]] += 1
        if pack(levels, clean, none, kept) is None:
            kept[place_of_tier[cell.tier]] -= 1
            gone.append(cell)
    return tuple(gone)
