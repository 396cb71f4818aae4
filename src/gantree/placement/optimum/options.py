"""What a gang may put on each node, and what the GPUs of each such part are to traffic.

An option is a vector of members, so many of each role, with the GPUs that the project's own chooser
(`placement.members.members`) would give them. Which GPUs of a node are best is thus no question here: the optimum is
one over how many members go where.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from gantree.model.errors import Unsupported
from gantree.model.placements import MemberPlacement
from gantree.placement.members.members import placement_of
from gantree.placement.members.on_node import inside_node
from gantree.placement.slots.problem import Counts, Problem
from gantree.topology.cost.cost import pricer_of
from gantree.topology.hardware.masks import mask_of
from gantree.topology.occupancy.occupancy import UNCOUNTED
from gantree.topology.traffic.paths import figures_of
from gantree.topology.traffic.traffic_index import TrafficIndex

MOST_OPTIONS = 4096
"""Ways to fill one node: two roles of 63 members each on one node are as many."""

MOST_NODES = 1024
"""Nodes with room for a member; a model of more takes longer to write down than a decision may take."""


@dataclass(frozen=True, slots=True)
class Option:
    """Members of each role on one node, and what their GPUs (a mask) are to prices: GB/s, as in
    `topology.traffic.paths`.
    """

    counts: Counts
    mask: int = 0
    gpus: int = 0
    ring_GBps: float = 0.0
    nvlink: bool = True
    port_GBps: float = 0.0
    in_switch_share: float = 0.0
    generation: int = 0
    out_GBps: float = 0.0


@dataclass(frozen=True, slots=True)
class Options:
    """of_node[node]: the options of every node that could hold a member, that of holding none left out."""

    problem: Problem
    of_node: dict[int, tuple[Option, ...]]

    @classmethod
    def of(cls, problem: Problem) -> "Options":
        """Enumerate them. Raises Unsupported where they are too many to be stated."""
        if cls.too_large(problem):
            raise Unsupported(
                f"the optimum is stated for up to {MOST_NODES} nodes with room and {MOST_OPTIONS} ways to fill one; "
                f"this gang has more, place it with exact_s 0"
            )
        kept: dict[object, tuple[Option, ...]] = {}
        of_node = {}
        for node in _nodes_with_room(problem):
            key = _alike(problem, node)
            if key not in kept:
                kept[key] = tuple(_each_option(problem, node))
            if kept[key]:
                of_node[node] = kept[key]
        return cls(problem, of_node)

    @staticmethod
    def too_large(problem: Problem) -> bool:
        """Whether there are more nodes, or more ways to fill one, than are stated for CP-SAT."""
        nodes = _nodes_with_room(problem)
        ways = (prod(map(len, _counts(problem, node))) for node in nodes)
        return len(nodes) > MOST_NODES or any(way > MOST_OPTIONS for way in ways)

    @property
    def traffic_index(self) -> TrafficIndex:
        """The fabric as traffic sees it."""
        return pricer_of(self.problem.fabric).traffic_index

    @property
    def gpus(self) -> int:
        """GPUs of the whole gang."""
        shapes = (table.shape for table in self.problem.tables)
        pairs = zip(shapes, self.problem.members, strict=True)
        return sum(shape.gpus * members for shape, members in pairs)


def _alike(problem: Problem, node: int) -> object:
    """Equal for nodes of which the options are the same, figures and all."""
    occupancy, traffic_index = problem.occupancy, pricer_of(problem.fabric).traffic_index
    return (
        tuple(int(table.of_node[node]) for table in problem.tables),
        int(traffic_index.kind_of_node[node]),
        float(traffic_index.residual_of_node[node]),
        occupancy.free_mask_of_node[node],
        occupancy.host.nic_mask_of_node[node],
        int(occupancy.free_microcpus_of_node[node]) % UNCOUNTED,
        int(occupancy.free_memory_KiB_of_node[node]) % UNCOUNTED,
        occupancy.numa_use(node),
        node if node in occupancy.parts_of_node else None,
    )


def _nodes_with_room(problem: Problem) -> list[int]:
    """Nodes that could hold a member of some role."""
    room = sum(np.minimum(table.of_node, 1) for table in problem.tables)
    nodes: list[int] = np.flatnonzero(room).tolist()
    return nodes


def _each_option(problem: Problem, node: int) -> Iterator[Option]:
    for counts in product(*_counts(problem, node)):
        if not any(counts) or not problem.adds_up(node, counts):
            continue
        if inside_node(problem, node, counts) is not None:
            members = placement_of(problem, [(node, counts)]).members
            if not problem.occupancy.missing(members):
                yield _option(problem, node, counts, members)


def _counts(problem: Problem, node: int) -> list[range]:
    """Members of each role that a node could hold, each role by itself."""
    return [_counts_of_role(problem, role, node) for role in range(len(problem.members))]


def _counts_of_role(problem: Problem, role: int, node: int) -> range:
    request, tier = problem.request.roles[role], problem.fabric.node_tier
    most = min(problem.members[role], int(problem.tables[role].of_node[node]))
    if request.most_in_domain:
        most = min(most, request.most_in_domain[tier])
    return range(0, most + 1, request.multiple_in_domain[tier])


def _option(
    problem: Problem, node: int, counts: Counts, members: Sequence[MemberPlacement]
) -> Option:
    traffic_index = pricer_of(problem.fabric).traffic_index
    mask = mask_of(gpu for member in members for gpu in member.gpus)
    if not mask:
        return Option(counts)
    kind = int(traffic_index.kind_of_node[node])
    ring, _, _, nvlink, port, _, share, generation, out = figures_of(
        traffic_index, kind, mask, mask
    )
    return Option(
        counts,
        mask=mask,
        gpus=mask.bit_count(),
        ring_GBps=float(ring),
        nvlink=bool(nvlink),
        port_GBps=float(port),
        in_switch_share=float(share),
        generation=int(generation),
        out_GBps=float(out) * float(traffic_index.residual_of_node[node]),
    )
