"""The fragmentation score: what a placement takes from future demand. It chooses between nodes that all have room.

A cluster that is never asked to move anything fills up to what its leftovers allow: GPUs whose remaining share suits
nobody, GPUs beside which no CPU is left, nodes with some GPUs free where a job needs all eight. Each placement makes
such leftovers or avoids them. This module measures that, for states of nodes against a demand: classes of members
with their frequencies, known from what a site ran before. It knows of no cluster, job or trace; arrays in, arrays out.

A placement is judged by two losses, the second only among equals in the first.

1. **Worth lost.** Every size of share has a price in GPUs (`share_prices`), at which the demand packs GPUs as tightly
   as it can. A GPU with a rest is worth the dearest set of shares that the rest holds, counting only sizes of which
   some class still finds CPU, memory and an admitted model on that node: a free GPU without CPU is worth nothing. A
   node is worth the sum of its GPUs. Loss is worth before less worth after. So a share goes where the rest stays
   useful (0.47 beside 0.47; 0.32 beside 0.65), small shares go into rests that are lost anyhow, and CPU is not taken
   from beside free GPUs as long as it lies elsewhere.

2. **Slots lost.** A slot is room for one member of a class on a node: CPU, memory and GPUs together. For each class
   count the slots of the node before and after, and weigh them by how scarce such slots are in the whole cluster:

       slot_value = sum over classes of  frequency x scarcity x amount

       one GPU or less     amount = sqrt(GPUs in slots on this node)     scarcity = 1 / (GPUs in slots anywhere + 1)
       several GPUs        amount =      GPUs in slots on this node      scarcity = (SEVERAL / (slots anywhere + 1))^2

   The scarcity of the first kind makes equal shares of what is left count equally, a class with half the slots twice
   as much each. The root says that a node's last slots of a class matter more than its first ones: losing the last one
   means that what is left there is closed to the class. A member of several GPUs has few nodes to go to, and once they
   are broken up nothing brings them back, so its scarcity rises with the square, and overtakes the first when about
   SEVERAL whole nodes are left.

Nothing here declines a member, moves one or looks ahead; frequencies are the only knowledge of the future.

What was chosen and on what: the prices follow from the frequencies alone. The root, the square and SEVERAL were chosen
on random arrival orders made for it, one set for three demands, and reported on others; see docs/packing.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Self

import numpy as np
from numpy.typing import NDArray

from gantree.placement.scoring.share_prices import WHOLE_MILLI, prices_of_sizes, worth_of_left
from gantree.placement.scoring.simplex import FloatArray
from gantree.topology.fabric.fabric import IntArray

BoolArray = NDArray[np.bool_]

SEVERAL = 8.0
"""Slots in the whole cluster, about, below which members of several GPUs come before all others."""

WORTH_DECIMALS = 6
"""Losses of worth are rounded to millionths of a GPU, so that equal ones compare as equal. (Worths are not: a rounded
third less a rounded sixth is not always the same.)"""

SLOT_VALUE_DECIMALS = 12
"""Standings are of the order of 1 at most; the last digits depend on the order of a sum."""

UNBOUNDED = 1 << 40
"""Members that a resource admits of which they ask nothing."""


@dataclass(frozen=True, slots=True)
class DemandClass:
    """Members that ask for the same on one node, and how often they come (any unit; only ratios count).

    gpu_milli is what each of `gpus` GPUs gives: WHOLE_MILLI, or less for a share, which is of one GPU. models are the
    numbers of the GPU models admitted; empty for any. memory_MiB 0 asks for none.
    """

    cpu_milli: int
    gpus: int
    gpu_milli: int
    frequency: float
    memory_MiB: int = 0
    models: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        assert self.cpu_milli >= 0 and self.memory_MiB >= 0 and self.frequency >= 0, self
        assert self.gpus == 0 or 0 < self.gpu_milli <= WHOLE_MILLI, self
        assert self.gpus <= 1 or self.gpu_milli == WHOLE_MILLI, self


@dataclass(frozen=True, slots=True)
class NodeStates:
    """What is left on nodes: cpu_milli[state], memory_MiB[state], model[state], gpu_milli[state, gpu].

    GPUs that a node does not have are 0.
    """

    cpu_milli: IntArray
    memory_MiB: IntArray
    model: IntArray
    gpu_milli: IntArray

    def __len__(self) -> int:
        return len(self.cpu_milli)

    def __getitem__(self, rows: IntArray | BoolArray | slice) -> Self:
        return type(self)(
            self.cpu_milli[rows], self.memory_MiB[rows], self.model[rows], self.gpu_milli[rows]
        )


@dataclass(frozen=True, slots=True)
class Loss:
    """What placements take away: worth[...] in GPUs first, then slot_value[...]. Smaller is better."""

    worth: FloatArray
    slot_value: FloatArray

    def best(self) -> IntArray:
        """Flat indices of the best, all of them that are equal."""
        worth, slot_value = self.worth.ravel(), self.slot_value.ravel()
        least: IntArray = np.flatnonzero(worth == worth.min())
        best: IntArray = least[slot_value[least] == slot_value[least].min()]
        return best


@dataclass(frozen=True)
class Demand:
    """The classes that the future draws from, as arrays by class; those that need no GPU keep no GPU from idling."""

    classes: tuple[DemandClass, ...]

    @classmethod
    def of(cls, classes: Sequence[DemandClass]) -> Self:
        """A demand of these classes; equal ones are added up, frequencies made to sum to 1 (CPU-only included)."""
        total = sum(each.frequency for each in classes) or 1.0
        asking = sorted((each for each in classes if each.gpus), key=_asked)
        return cls(
            tuple(
                replace(first, frequency=sum(each.frequency for each in (first, *others)) / total)
                for _, (first, *others) in groupby(asking, key=_asked)
            )
        )

    @cached_property
    def cpu_milli(self) -> IntArray:
        """cpu_milli[class]."""
        return np.array([each.cpu_milli for each in self.classes], dtype=np.int64)

    @cached_property
    def memory_MiB(self) -> IntArray:
        """memory_MiB[class]."""
        return np.array([each.memory_MiB for each in self.classes], dtype=np.int64)

    @cached_property
    def gpus(self) -> IntArray:
        """gpus[class]."""
        return np.array([each.gpus for each in self.classes], dtype=np.int64)

    @cached_property
    def gpus_taken(self) -> FloatArray:
        """gpus_taken[class]: GPUs that one member takes up, shares as parts of one."""
        milli = np.array([each.gpu_milli for each in self.classes], dtype=np.int64)
        return self.gpus * milli / WHOLE_MILLI

    @cached_property
    def frequency(self) -> FloatArray:
        """frequency[class]."""
        return np.array([each.frequency for each in self.classes])

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The sizes asked of a single GPU, rising; WHOLE_MILLI among them if any class wants whole ones."""
        return tuple(sorted({each.gpu_milli for each in self.classes}))

    @cached_property
    def size_of_class(self) -> IntArray:
        """size_of_class[class]: index in sizes."""
        return np.array([self.sizes.index(each.gpu_milli) for each in self.classes], dtype=np.int64)

    @cached_property
    def price_of_size(self) -> dict[int, float]:
        """GPUs that one more of each size costs, from the frequencies."""
        frequency = np.bincount(self.size_of_class, weights=self.frequency, minlength=1)
        return prices_of_sizes(dict(zip(self.sizes, frequency.tolist(), strict=False)))

    @cached_property
    def models(self) -> int:
        """Models that some class names, counted from 0; higher numbers are admitted only by classes for any."""
        return max((model + 1 for each in self.classes for model in each.models), default=0)

    @cached_property
    def admits(self) -> BoolArray:
        """admits[model, class]; the last row is for models that no class names."""
        rows = [
            [not each.models or model in each.models for each in self.classes]
            for model in range(self.models + 1)
        ]
        return np.array(rows, dtype=np.bool_).reshape(self.models + 1, len(self.classes))

    @cached_property
    def parts_of_left(self) -> IntArray:
        """parts_of_left[left, size]: how many of a size a GPU with so much left holds."""
        left = np.arange(WHOLE_MILLI + 1)
        return left[:, None] // np.array(self.sizes, dtype=np.int64)[None, :]

    @cached_property
    def first_class_of_size(self) -> IntArray:
        """first_class_of_size[size]: classes are in the order of their sizes."""
        return np.searchsorted(self.size_of_class, np.arange(len(self.sizes)))

    @cached_property
    def worths(self) -> "WorthTables":
        """What GPUs are worth by what is left of them."""
        return WorthTables(self.sizes, self.price_of_size)


class WorthTables:
    """Worth of a GPU by what is left of it, a table for each set of sizes that can still come to its node."""

    def __init__(self, sizes: tuple[int, ...], price_of_size: dict[int, float]) -> None:
        self._sizes, self._price_of_size = sizes, price_of_size
        self._table_of_set: dict[bytes, int] = {}
        self._tables = np.zeros((0, WHOLE_MILLI + 1))

    def of(self, present: BoolArray, gpu_milli: IntArray) -> FloatArray:
        """worth[state] of GPUs gpu_milli[state, gpu] to the sizes present[state, size]."""
        sets = [row.tobytes() for row in present]
        new = {
            key: row
            for key, row in zip(sets, present, strict=True)
            if key not in self._table_of_set
        }
        for key, row in new.items():
            sizes = [size for size, here in zip(self._sizes, row, strict=True) if here]
            self._table_of_set[key] = len(self._tables)
            table = worth_of_left(self._price_of_size, sizes)
            self._tables = np.vstack([self._tables, table])
        tables = np.array([self._table_of_set[key] for key in sets], dtype=np.int64)
        worth: FloatArray = self._tables[tables[:, None], gpu_milli].sum(axis=1)
        return worth


def _asked(each: DemandClass) -> tuple[int, int, int, int, tuple[int, ...]]:
    return each.gpu_milli, each.gpus, each.cpu_milli, each.memory_MiB, each.models


def members_beside_gpus(demand: Demand, states: NodeStates) -> IntArray:
    """members[state, class]: how many members CPU, memory and model would admit, if GPUs were no object."""
    members = _times(states.cpu_milli, demand.cpu_milli)
    if demand.memory_MiB.any():
        members = np.minimum(members, _times(states.memory_MiB, demand.memory_MiB))
    return np.where(demand.admits[np.minimum(states.model, demand.models)], members, 0)


def _times(left: IntArray, asked: IntArray) -> IntArray:
    """times[state, class]: how often what is left holds what is asked; UNBOUNDED where nothing is asked."""
    return np.where(asked > 0, left[:, None] // np.maximum(asked, 1), UNBOUNDED)


def slots(demand: Demand, states: NodeStates, members: IntArray) -> IntArray:
    """slots[state, class]: members of one class alone that fit the node, given `members_beside_gpus`."""
    parts = demand.parts_of_left[states.gpu_milli].sum(axis=1)
    slots: IntArray = np.minimum(parts[:, demand.size_of_class] // demand.gpus, members)
    return slots


def worth(demand: Demand, states: NodeStates, members: IntArray) -> FloatArray:
    """worth[state]: GPUs that those to come can still use of each node, given `members_beside_gpus`."""
    present = np.logical_or.reduceat(members > 0, demand.first_class_of_size, axis=1)
    return demand.worths.of(present, states.gpu_milli)


def amounts(demand: Demand, slots: IntArray) -> FloatArray:
    """amounts[state, class]: what the slots of a node count, before scarcity."""
    gpus = slots * demand.gpus_taken
    return np.where(demand.gpus > 1, gpus, np.sqrt(gpus))


def weights(demand: Demand, slots_anywhere: IntArray) -> FloatArray:
    """weights[class]: frequency x scarcity, from the slots of each class in the whole cluster."""
    one = 1 / (slots_anywhere * demand.gpus_taken + 1)
    several = (SEVERAL / (slots_anywhere + 1)) ** 2
    return demand.frequency * np.where(demand.gpus > 1, several, one)
