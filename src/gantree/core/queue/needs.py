"""What gangs need, in numbers: so many slots of one shape in one domain of a tier.

It depends on a job and the fabric alone, so it is worked out once a signature.
"""

from dataclasses import dataclass, replace

import numpy as np

from gantree.core.ledger.ledger import Ledger
from gantree.core.queue.waiting_rows import first_of_signature
from gantree.model.jobs import Job, Shape
from gantree.placement.request.sizes import sizes_of
from gantree.topology.fabric.fabric import BoolArray, IntArray
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
    def of(cls, occupancy: Occupancy, job: Job) -> "Need":
        """What a job needs at its smallest size."""
        members = min((job.members, *sizes_of(job))) if job.elastic else job.members
        gpus = job.gpus // job.members * members if len(job.roles) == 1 else job.gpus
        if len(job.roles) > 1 or job.topology.box is not None or job.spot:
            return cls(None, 0, gpus, gpus)
        role, tiers = job.roles[0], occupancy.fabric.tiers
        required = role.topology.required or job.topology.required
        tier = 0 if required is None else len(tiers) - 1
        if required in tiers:
            tier = tiers.index(required)
        return cls(role.shape, tier, members, role.shape.gpus)

    @property
    def all_gpus(self) -> int:
        """GPUs of all slots."""
        return self.slots * (self.gpus if self.shape is not None else 1)


@dataclass(frozen=True, slots=True)
class NeedTable:
    """Needs as arrays by signature, of all that wait. where is an index into wheres, a need of each shape and tier;
    is_counted: whether the members have whole GPUs of one shape, so that GPUs by node bound what fits.
    """

    wheres: tuple["Need", ...]
    where: IntArray
    slots: IntArray
    all_gpus: IntArray
    is_counted: BoolArray


class Needs:
    """What gangs need, by signature: it depends on the job and the fabric alone, so it is kept while both stay."""

    def __init__(self) -> None:
        self._fabric: object = None
        self._needs: dict[int, Need] = {}
        self._where: dict[tuple[Shape | None, int], int] = {}

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
        """The needs of all that wait."""
        of_signature = {each: self.of(ledger, each) for each in ledger.waiting.signatures}
        index: dict[int, int] = {}
        wheres: list[Need] = []
        where, slots, all_gpus = (
            np.zeros(ledger.signatures.given, dtype=np.int64) for _ in range(3)
        )
        is_counted = np.zeros(ledger.signatures.given, dtype=np.bool_)
        for signature, need in of_signature.items():
            is_counted[signature] = need.shape is not None and need.gpus > 0
            if is_counted[signature] and need.where not in index:
                index[need.where] = len(wheres)
                wheres.append(need)
            where[signature] = index.get(need.where, 0)
            slots[signature], all_gpus[signature] = need.slots, need.all_gpus
        return NeedTable(tuple(wheres), where, slots, all_gpus, is_counted)
