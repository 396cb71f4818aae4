"""Cells on a fabric: the domains of the tiers of a policy's cells, by number and by name.

Tiers of the fabric come first; "nvlink", "socket", "pcie" and "gpu" inside a node where the fabric has no tier of that
name; LOOSE ("gpus") is a tier whose domains are single GPUs. GPUs are numbered over the whole fabric in node order.
A domain of a fabric tier goes by its path, a node by its name; inside a node it is "n3/nvlink1", a loose GPU "n3/gpu5".
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

import numpy as np

from gantree.model.errors import BadInput
from gantree.model.placements import MemberPlacement
from gantree.placement.machine.devices import INNER_TIERS, inner_domains
from gantree.policy.cells import NOT_IN_ANY, Cell, Level, cells_of, levels_of, pack
from gantree.policy.rules import LOOSE, QueueRule
from gantree.text.words import counted
from gantree.topology.fabric.fabric import Fabric, IntArray

MOST_KEPT_PER_GPU = 4
"""Owners whose GPUs are kept by number, for each GPU of the fabric, before they are all forgotten."""

Bound = Mapping[tuple[str, str, int], str]
"""(queue, tier, number) of a cell -> name of the domain that it is bound to."""


@dataclass(frozen=True, slots=True, eq=False)
class CellDomains:
    """The cells of a policy on a fabric. Build it with `CellDomains.of`, once for each of the two.

    first_gpu_of_node[node] has one more entry than there are nodes; domain_of_name[level][name] and
    names_of_domain[level][domain] are inverse to each other.
    """

    fabric: Fabric
    cells: tuple[Cell, ...]
    levels: tuple[Level, ...]
    first_gpu_of_node: IntArray
    node_of_gpu: IntArray
    names_of_domain: tuple[tuple[str, ...], ...]
    domain_of_name: tuple[Mapping[str, int], ...]
    _gpus_of_owner: dict[str, tuple[Sequence[MemberPlacement], tuple[int, ...]]] = field(
        default_factory=dict
    )

    @classmethod
    def of(
        cls, queues: Iterable[QueueRule], fabric: Fabric, *, check: bool = True
    ) -> "CellDomains":
        """Read the cells of a policy's queues. Empty for a policy without any (`cell_domains.cells == ()`).

        Raises BadInput, naming queue and tier, for a tier that is not there, tiers that do not nest, and, where check,
        for cells that do not all fit the empty, healthy fabric at once. Without check such cells are never bound.
        """
        cells = cells_of(queues)
        first = np.concatenate([[0], np.cumsum(fabric.gpus_of_node)]).astype(np.int64)
        node_of_gpu = np.repeat(np.arange(len(fabric.nodes)), fabric.gpus_of_node).astype(np.int64)
        named = [(tier, *_domains(fabric, tier, node_of_gpu)) for tier in _tiers(fabric, cells)]
        levels = levels_of([(tier, domain_of_gpu) for tier, domain_of_gpu, _ in named])
        names = tuple(tuple(of_tier) for _, _, of_tier in named)
        index = tuple({name: number for number, name in enumerate(one)} for one in names)
        cell_domains = cls(fabric, cells, levels, first, node_of_gpu, names, index)
        if check:
            cell_domains._check_fit()
        return cell_domains

    @property
    def queues(self) -> tuple[str, ...]:
        """Queues that own cells, in the order of the policy."""
        return tuple(dict.fromkeys(cell.queue for cell in self.cells))

    def place_of_tier(self, tier: str) -> int | None:
        """Which of the levels a tier is; None where no queue has a cell of it."""
        return next((n for n, level in enumerate(self.levels) if level.tier == tier), None)

    def counts(self, cells: Iterable[Cell]) -> list[int]:
        """How many of some cells are of each level."""
        counts = [0] * len(self.levels)
        place_of_tier = {level.tier: place for place, level in enumerate(self.levels)}
        for cell in cells:
            counts[place_of_tier[cell.tier]] += 1
        return counts

    def gpus_of_members(self, members: Iterable[MemberPlacement]) -> tuple[int, ...]:
        """GPUs of members, those of which they hold a part among them, by number over the whole fabric."""
        first, index_of_node = self.first_gpu_of_node, self.fabric.index_of_node
        gpus: list[int] = []
        for member in members:
            start = int(first[index_of_node[member.node]])
            gpus += [start + gpu for gpu in member.gpus]
            if member.mig or member.share:
                gpus += [start + gpu for gpu in member.parts]
        return tuple(gpus)

    def gpus_of_owner(self, owner: str, members: Sequence[MemberPlacement]) -> tuple[int, ...]:
        """As `gpus_of_members`, cached for an owner while it has the very same members."""
        kept = self._gpus_of_owner.get(owner)
        if kept is not None and kept[0] is members:
            return kept[1]
        if len(self._gpus_of_owner) > MOST_KEPT_PER_GPU * len(self.node_of_gpu):
            self._gpus_of_owner.clear()
        gpus = self.gpus_of_members(members)
        self._gpus_of_owner[owner] = (members, gpus)
        return gpus

    def domain(self, tier: str, name: str) -> tuple[int, int] | None:
        """(level, domain) of a domain by its name; None where there is none."""
        place = self.place_of_tier(tier)
        domain = None if place is None else self.domain_of_name[place].get(name)
        return None if place is None or domain is None else (place, domain)

    def _check_fit(self) -> None:
        everything = np.ones(len(self.node_of_gpu), dtype=np.bool_)
        none = [0] * len(self.levels)
        if pack(self.levels, everything, none, self.counts(self.cells)) is not None:
            return
        for upto in range(1, len(self.cells) + 1):
            if pack(self.levels, everything, none, self.counts(self.cells[:upto])) is None:
                self._does_not_fit(upto)

    def _does_not_fit(self, upto: int) -> None:
        cell = self.cells[upto - 1]
        place = self.place_of_tier(cell.tier)
        assert place is not None, f"{cell} has no level"
        there = int(self.levels[place].whole.sum())
        cells = f"cell of tier {cell.tier} does", f"cells of tier {cell.tier} do"
        raise BadInput(
            f"queue {cell.queue}: {counted(cell.number + 1, *cells)} not fit cluster "
            f"{self.fabric.cluster.name} beside the cells listed before them ({there} such domains there in all); "
            "own fewer cells, or narrower ones"
        )


def _tiers(fabric: Fabric, cells: Iterable[Cell]) -> list[str]:
    """Tiers of the cells, widest first: those of the fabric, those inside a node by the GPUs they hold, loose GPUs."""
    found: dict[str, tuple[int, float]] = {}
    for cell in cells:
        if cell.tier in found:
            continue
        if cell.tier == LOOSE:
            found[cell.tier] = (len(fabric.tiers) + 1, 0.0)
        elif cell.tier in fabric.tiers:
            found[cell.tier] = (fabric.tiers.index(cell.tier), 0.0)
        elif cell.tier in INNER_TIERS:
            sizes = [
                gpus.bit_count()
                for one in fabric.machines
                for gpus in inner_domains(one, cell.tier)
            ]
            found[cell.tier] = (len(fabric.tiers), -sum(sizes) / max(1, len(sizes)))
        else:
            raise BadInput(_no_tier(fabric, cell))
    return sorted(found, key=found.__getitem__)


def _no_tier(fabric: Fabric, cell: Cell) -> str:
    allowed = list(dict.fromkeys((*fabric.tiers, *INNER_TIERS, LOOSE)))
    near = get_close_matches(cell.tier, allowed, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return (
        f"queue {cell.queue}: cells of tier {cell.tier!r}: cluster {fabric.cluster.name} has no such tier; "
        f"allowed: {', '.join(allowed)}{hint}"
    )


def _domains(fabric: Fabric, tier: str, node_of_gpu: IntArray) -> tuple[IntArray, list[str]]:
    """(domain of each GPU, names of the domains) of a tier."""
    if tier in fabric.tiers:
        number = fabric.tiers.index(tier)
        return fabric.domain_of_node[number][node_of_gpu], list(fabric.index_of_domain[number])
    if tier == LOOSE:
        names = [
            f"{node.name}/gpu{gpu}"
            for node, gpus in zip(fabric.nodes, fabric.gpus_of_node.tolist(), strict=True)
            for gpu in range(gpus)
        ]
        return np.arange(len(names), dtype=np.int64), names
    return _inside(fabric, tier)


def _inside(fabric: Fabric, tier: str) -> tuple[IntArray, list[str]]:
    names: list[str] = []
    domain_of_gpu: list[int] = []
    for index, node in enumerate(fabric.nodes):
        machine = fabric.machine_of_node(index)
        domains = inner_domains(machine, tier)
        of_gpu = [NOT_IN_ANY] * machine.gpus
        for number, gpus in enumerate(domains):
            for gpu in range(machine.gpus):
                if gpus >> gpu & 1:
                    of_gpu[gpu] = len(names) + number
        domain_of_gpu += of_gpu
        names += [f"{node.name}/{tier}{number}" for number in range(len(domains))]
    return np.array(domain_of_gpu, dtype=np.int64), names
