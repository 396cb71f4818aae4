"""The typical members of a site as demand classes of one fabric: what they request on its kinds of nodes.

A node's kind is what decides, beside its free resources, whether it admits a member and how much of a GPU the member
uses there: its GPU model, its ways of sharing, and those of its labels that some typical member requests. Classes of
`placement.scoring.fragmentation` name GPU models by number; here these are numbers of kinds.

A member that names its GPU memory uses a larger part of a small GPU than of a large one. It becomes a class for each
part, with its frequency divided among them as the GPUs are. Members with a MIG profile, or that no node admits, count
in the total but have no slots: what they find depends on how GPUs are cut, which the score does not know.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Self

import numpy as np

from gantree.model.jobs import Shape
from gantree.placement.machine.shares import Share, milli_asked, sharing_of
from gantree.placement.request.placement_preferences import TypicalMember
from gantree.placement.scoring.fragmentation import Demand, DemandClass
from gantree.placement.scoring.fragmentation_state import MemberDemand
from gantree.placement.scoring.share_prices import WHOLE_MILLI
from gantree.topology.fabric.fabric import Fabric, IntArray
from gantree.topology.occupancy.gpus.gpu_state import PartRules, rules_of
from gantree.topology.occupancy.occupancy import memory_KiB, microcpus


@dataclass(frozen=True, slots=True, eq=False)
class Kinds:
    """Kinds of nodes of a fabric: of_node[node]; per kind its GPU model, labels (of those asked for), rules, GPUs."""

    of_node: IntArray
    labels: tuple[frozenset[tuple[str, str]], ...]
    rules: tuple[PartRules, ...]
    gpus: IntArray

    @classmethod
    def of(cls, fabric: Fabric, typical: Sequence[TypicalMember]) -> Self:
        """The kinds that these members distinguish."""
        asked_for = frozenset(label for each in typical for label in each.shape.labels)
        number_of: dict[tuple[object, ...], int] = {}
        of_node, labels, rules = [], list[frozenset[tuple[str, str]]](), list[PartRules]()
        for node in fabric.nodes:
            its = rules_of(fabric.cluster.machines[node.machine], node)
            told = frozenset(label for label in asked_for if node.suits(label))
            number = number_of.setdefault((its.gpu, its.shares, its.tenants, told), len(labels))
            if number == len(labels):
                labels.append(told)
                rules.append(its)
            of_node.append(number)
        kinds = np.array(of_node, dtype=np.int64)
        gpus = np.zeros(len(labels), dtype=np.int64)
        np.add.at(gpus, kinds, fabric.gpus_of_node)
        return cls(kinds, tuple(labels), tuple(rules), gpus)

    def asked(self, shape: Shape) -> tuple[MemberDemand, ...]:
        """What a member asks of a node, by kind. Of a share that a kind cannot give, all of a GPU."""
        cpu_milli, memory_MiB = _cpu_milli(shape), _memory_MiB(shape)
        if not shape.part:
            gpu_milli = WHOLE_MILLI if shape.gpus else 0
            return (MemberDemand(cpu_milli, memory_MiB, shape.gpus, gpu_milli),) * len(self.rules)
        return tuple(
            MemberDemand(cpu_milli, memory_MiB, 1, _share_milli(rules, shape) or WHOLE_MILLI)
            for rules in self.rules
        )

    def gpu_milli(self, shape: Shape) -> list[int | None]:
        """Thousandths that a member takes of each of its GPUs, by kind; None where it is not admitted."""
        return [
            self._gpu_milli(shape, labels, rules)
            for labels, rules in zip(self.labels, self.rules, strict=True)
        ]

    @staticmethod
    def _gpu_milli(
        shape: Shape, labels: frozenset[tuple[str, str]], rules: PartRules
    ) -> int | None:
        if not labels.issuperset(shape.labels) or (shape.models and rules.gpu not in shape.models):
            return None
        return _share_milli(rules, shape) if shape.part else WHOLE_MILLI


def demand_of(typical: Sequence[TypicalMember], fabric: Fabric) -> Demand:
    """Typical members as the classes of a fabric; models of a class are numbers of `Kinds`."""
    kinds = Kinds.of(fabric, typical)
    return Demand.of([each for member in typical for each in _classes(member, kinds)])


def _classes(typical: TypicalMember, kinds: Kinds) -> Iterator[DemandClass]:
    """The classes of one typical member, one for each part of a GPU that it comes to on some kind of node."""
    shape, weight = typical.shape, typical.weight
    cpu_milli, memory_MiB = _cpu_milli(shape), _memory_MiB(shape)
    gpu_milli = kinds.gpu_milli(shape)
    admitting = [kind for kind, milli in enumerate(gpu_milli) if milli is not None]
    gpus = int(kinds.gpus[admitting].sum())
    if not gpus or not (shape.gpus or shape.part):
        yield DemandClass(cpu_milli, 0, 0, weight, memory_MiB)
        return
    for milli in dict.fromkeys(gpu_milli[kind] for kind in admitting):
        alike = [kind for kind in admitting if gpu_milli[kind] == milli]
        part = kinds.gpus[alike].sum() / gpus
        models = () if len(alike) == len(gpu_milli) else tuple(alike)
        assert milli is not None
        yield DemandClass(cpu_milli, shape.gpus or 1, milli, weight * part, memory_MiB, models)


def _share_milli(rules: PartRules, shape: Shape) -> int | None:
    """Thousandths of a GPU that a share takes of it; None where GPUs under these rules cannot give it."""
    if shape.mig is not None:
        return None
    sharing = sharing_of(rules)
    share = Share.of(sharing, shape, apart=False)
    return None if share is None else milli_asked(sharing, share)


def _cpu_milli(shape: Shape) -> int:
    return ceil(microcpus(shape.cpus) / 1000)


def _memory_MiB(shape: Shape) -> int:
    return ceil(memory_KiB(shape.memory_GiB) / 1024)
