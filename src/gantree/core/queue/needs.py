"""What gangs need, in numbers: so many slots of one shape in one domain of a tier.

It depends on a job and the fabric alone, so it is worked out once a signature.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from gantree.core.ledger.ledger import Ledger
from gantree.core.queue.waiting_rows import first_of_signature
from gantree.model.jobs import Job, Shape
from gantree.placement.request.sizes import sizes_of
from gantree.topology.fabric.fabric import BoolArray, Fabric, IntArray, Labels
from gantree.topology.occupancy.occupancy import Occupancy

MOST_NEEDS = 10_000
"""Signatures that are remembered; beyond that all are worked out anew."""


@dataclass(frozen=True, slots=True)
class Need:
    """At least `slots` slots of a shape in one domain of a tier; shape None: so many free GPUs.

    where is a number for the shape and the tier together.
    """

    shape: Shape | None
    tier: int
    slots: int
    gpus: int
    where: int = 0

    @classmethod
    def of(cls, occupancy: Occupancy, job: Job, where: int = 0) -> "Need":
        """What a job needs at its smallest size."""
        members = min((job.members, *sizes_of(job))) if job.elastic else job.members
        gpus = job.gpus // job.members * members if len(job.roles) == 1 else job.gpus
        if len(job.roles) > 1 or job.topology.box is not None or job.spot:
            return cls(None, 0, gpus, gpus, where)
        role, tiers = job.roles[0], occupancy.fabric.tiers
        required = role.topology.required or job.topology.required
        tier = 0 if required is None else len(tiers) - 1
        if required in tiers:
            tier = tiers.index(required)
        return cls(role.shape, tier, members, role.shape.gpus, where)

    @property
    def is_counted(self) -> bool:
        """Whether the members have whole GPUs of one shape."""
        return self.shape is not None and self.gpus > 0

    @property
    def admitting(self) -> tuple[int, Labels, tuple[str, ...]]:
        """GPUs of a slot, and the labels and models of the nodes that admit it."""
        assert self.shape is not None
        return self.gpus, self.shape.labels, self.shape.models

    @property
    def all_gpus(self) -> int:
        """GPUs of all slots."""
        return self.slots * (self.gpus if self.shape is not None else 1)


@dataclass(frozen=True, slots=True)
class NeedTable:
    """Needs as arrays by signature, of all that wait. where is an index into wheres: one need for each shape and tier.

    is_counted: whether the members have whole GPUs of one shape, so that GPUs by node bound what fits. uncounted are
    the indices of wheres that have not. The others are told by tier, at most that of nodes: counted_of_tier has (tier,
    their indices, the row of the shape of each in gpus_of_shape and nodes_of_shape[shape, node], the nodes that admit
    it).
    """

    wheres: tuple[Need, ...]
    where: IntArray
    slots: IntArray
    all_gpus: IntArray
    is_counted: BoolArray
    uncounted: tuple[int, ...]
    counted_of_tier: tuple[tuple[int, IntArray, IntArray], ...]
    gpus_of_shape: IntArray
    nodes_of_shape: BoolArray

    @classmethod
    def of(cls, fabric: Fabric, needs: Mapping[int, Need], given: int) -> "NeedTable":
        """The table of these needs, by signature; given: how many signatures there ever were."""
        wheres = {need.where: need for need in needs.values()}
        number = {where: at for at, where in enumerate(wheres)}
        where, slots, all_gpus = (np.zeros(given, dtype=np.int64) for _ in range(3))
        is_counted, signature = np.zeros(given, dtype=np.bool_), list(needs)
        where[signature] = [number[need.where] for need in needs.values()]
        slots[signature] = [need.slots for need in needs.values()]
        all_gpus[signature] = [need.all_gpus for need in needs.values()]
        is_counted[signature] = [need.is_counted for need in needs.values()]
        of_wheres = tuple(wheres.values())
        counted = [at for at, need in enumerate(of_wheres) if need.is_counted]
        uncounted = tuple(at for at, need in enumerate(of_wheres) if not need.is_counted)
        shapes = {of_wheres[at].admitting: None for at in counted}
        shape_number = {shape: at for at, shape in enumerate(shapes)}
        by_tier: dict[int, list[int]] = {}
        for at in counted:
            by_tier.setdefault(min(of_wheres[at].tier, fabric.node_tier), []).append(at)
        nodes = [fabric.nodes_with(labels, models) for _, labels, models in shapes]
        return cls(
            of_wheres,
            where,
            slots,
            all_gpus,
            is_counted,
            uncounted,
            tuple(
                (
                    tier,
                    np.array(of_tier, dtype=np.int64),
                    np.array([shape_number[of_wheres[at].admitting] for at in of_tier], np.int64),
                )
                for tier, of_tier in by_tier.items()
            ),
            np.array([gpus for gpus, _, _ in shapes], dtype=np.int64),
            np.array(nodes, dtype=np.bool_).reshape(len(nodes), len(fabric.nodes)),
        )


class Needs:
    """What gangs need, by signature: it depends on the job and the fabric alone, so it is kept while both stay."""

    def __init__(self) -> None:
        self._fabric: object = None
        self._needs: dict[int, Need] = {}
        self._where: dict[tuple[Shape | None, int], int] = {}
        self._table: tuple[object, NeedTable] | None = None

    def of(self, ledger: Ledger, signature: int) -> Need:
        """What the gangs of a signature that somebody waits with need."""
        if self._fabric is not ledger.rooms().fabric or len(self._needs) > MOST_NEEDS:
            self._fabric = ledger.rooms().fabric
            self._needs.clear()
            self._where.clear()
        need = self._needs.get(signature)
        if need is None:
            need = Need.of(ledger.rooms(), first_of_signature(ledger, signature).spec)
            where = self._where.setdefault((need.shape, need.tier), len(self._where))
            need = self._needs[signature] = replace(need, where=where)
        return need

    def table(self, ledger: Ledger) -> NeedTable:
        """The needs of all that wait; kept while those who wait ask for the same."""
        asked = tuple(ledger.waiting.signatures), ledger.rooms().fabric
        if self._table is None or self._table[0] != asked:
            needs = {each: self.of(ledger, each) for each in asked[0]}
            self._table = asked, NeedTable.of(asked[1], needs, ledger.signatures.given)
        return self._table[1]
