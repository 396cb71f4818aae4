"""What gangs demand, in numbers: so many slots of one shape in one domain of a tier.

A demand depends on the job and the fabric only, so it is computed once for each signature.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from gantree.core.ledger.ledger import Ledger
from gantree.core.queue.waiting_rows import first_of_signature
from gantree.model.gang_shapes import every_shape
from gantree.model.jobs import Job, Shape
from gantree.placement.request.sizes import sizes_of
from gantree.topology.fabric.fabric import BoolArray, Fabric, IntArray, Labels
from gantree.topology.occupancy.occupancy import Occupancy

CACHE_LIMIT = 10_000
"""Signatures in the cache; beyond that it is emptied."""


@dataclass(frozen=True, slots=True)
class SlotDemand:
    """At least `slots` slots of a shape, each of so many GPUs, in one domain of a tier; shape None: so many free GPUs.

    shape_tier: a number for shape and tier together.
    """

    shape: Shape | None
    tier: int
    slots: int
    gpus: int
    shape_tier: int = 0

    @classmethod
    def of(cls, occupancy: Occupancy, job: Job, shape_tier: int = 0) -> "SlotDemand":
        """The demand of a job at its smallest size; of one with alternatives, the fewest whole GPUs of any shape."""
        if job.alternatives:
            least = min(shape.gpus for _, shape in every_shape(job))
            return cls(None, 0, least, least, shape_tier)
        members = min((job.members, *sizes_of(job))) if job.elastic else job.members
        gpus = job.gpus // job.members * members if len(job.roles) == 1 else job.gpus
        if len(job.roles) > 1 or job.topology.box is not None or job.spot:
            return cls(None, 0, gpus, gpus, shape_tier)
        role, tiers = job.roles[0], occupancy.fabric.tiers
        required = role.topology.required or job.topology.required
        tier = 0 if required is None else len(tiers) - 1
        if required in tiers:
            tier = tiers.index(required)
        return cls(role.shape, tier, members, role.shape.gpus, shape_tier)

    @property
    def is_bounded(self) -> bool:
        """Whether free GPUs by node bound the slots: the members use whole GPUs of one shape."""
        return self.shape is not None and self.gpus > 0

    @property
    def admitting(self) -> tuple[int, Labels, tuple[str, ...]]:
        """The GPUs of a slot, and the labels and models of the nodes that admit it."""
        assert self.shape is not None
        return self.gpus, self.shape.labels, self.shape.models

    @property
    def all_gpus(self) -> int:
        """GPUs of all slots."""
        return self.slots * (self.gpus if self.shape is not None else 1)


@dataclass(frozen=True, slots=True)
class SlotDemandTable:
    """The demands of all pending jobs, as arrays by signature.

    shape_tier is an index into shape_tiers, which has one demand for each shape and tier. is_bounded: whether free GPUs
    by node bound the slots; unbounded are the indices of shape_tiers for which they do not.

    bounded_of_tier has (tier, indices of shape_tiers, rows of their shapes in gpus_of_shape and nodes_of_shape); tiers
    inside the node count as the tier of nodes. nodes_of_shape[shape, node]: the nodes that admit a shape.
    """

    shape_tiers: tuple[SlotDemand, ...]
    shape_tier: IntArray
    slots: IntArray
    all_gpus: IntArray
    is_bounded: BoolArray
    unbounded: tuple[int, ...]
    bounded_of_tier: tuple[tuple[int, IntArray, IntArray], ...]
    gpus_of_shape: IntArray
    nodes_of_shape: BoolArray

    @classmethod
    def of(cls, fabric: Fabric, demands: Mapping[int, SlotDemand], given: int) -> "SlotDemandTable":
        """The table of these demands by signature. given: the number of signatures ever given."""
        shape_tiers = {demand.shape_tier: demand for demand in demands.values()}
        number = {shape_tier: at for at, shape_tier in enumerate(shape_tiers)}
        shape_tier, slots, all_gpus = (np.zeros(given, dtype=np.int64) for _ in range(3))
        is_bounded, signature = np.zeros(given, dtype=np.bool_), list(demands)
        shape_tier[signature] = [number[demand.shape_tier] for demand in demands.values()]
        slots[signature] = [demand.slots for demand in demands.values()]
        all_gpus[signature] = [demand.all_gpus for demand in demands.values()]
        is_bounded[signature] = [demand.is_bounded for demand in demands.values()]
        all_shape_tiers = tuple(shape_tiers.values())
        bounded = [at for at, demand in enumerate(all_shape_tiers) if demand.is_bounded]
        unbounded = tuple(at for at, demand in enumerate(all_shape_tiers) if not demand.is_bounded)
        shapes = {all_shape_tiers[at].admitting: None for at in bounded}
        shape_number = {shape: at for at, shape in enumerate(shapes)}
        by_tier: dict[int, list[int]] = {}
        for at in bounded:
            by_tier.setdefault(min(all_shape_tiers[at].tier, fabric.node_tier), []).append(at)
        nodes = [fabric.nodes_with(labels, models) for _, labels, models in shapes]
        return cls(
            shape_tiers=all_shape_tiers,
            shape_tier=shape_tier,
            slots=slots,
            all_gpus=all_gpus,
            is_bounded=is_bounded,
            unbounded=unbounded,
            bounded_of_tier=tuple(
                (
                    tier,
                    np.array(of_tier, dtype=np.int64),
                    np.array(
                        [shape_number[all_shape_tiers[at].admitting] for at in of_tier], np.int64
                    ),
                )
                for tier, of_tier in by_tier.items()
            ),
            gpus_of_shape=np.array([gpus for gpus, _, _ in shapes], dtype=np.int64),
            nodes_of_shape=np.array(nodes, dtype=np.bool_).reshape(len(nodes), len(fabric.nodes)),
        )


class SlotDemands:
    """A cache of demands by signature; it is emptied when the fabric changes."""

    def __init__(self) -> None:
        self._fabric: object = None
        self._demands: dict[int, SlotDemand] = {}
        self._shape_tiers: dict[tuple[Shape | None, int], int] = {}
        self._table: tuple[object, SlotDemandTable] | None = None

    def of(self, ledger: Ledger, signature: int) -> SlotDemand:
        """The demand of a signature that a pending job has."""
        if self._fabric is not ledger.rooms().fabric or len(self._demands) > CACHE_LIMIT:
            self._fabric = ledger.rooms().fabric
            self._demands.clear()
            self._shape_tiers.clear()
        demand = self._demands.get(signature)
        if demand is None:
            demand = SlotDemand.of(ledger.rooms(), first_of_signature(ledger, signature).spec)
            shape_tier = self._shape_tiers.setdefault(
                (demand.shape, demand.tier), len(self._shape_tiers)
            )
            demand = self._demands[signature] = replace(demand, shape_tier=shape_tier)
        return demand

    def table(self, ledger: Ledger) -> SlotDemandTable:
        """The demands of all pending jobs; cached while they have the same signatures."""
        key = tuple(ledger.waiting.signatures), ledger.rooms().fabric
        if self._table is None or self._table[0] != key:
            demands = {each: self.of(ledger, each) for each in key[0]}
            self._table = key, SlotDemandTable.of(key[1], demands, ledger.signatures.given)
        return self._table[1]
