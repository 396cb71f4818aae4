"""Repeat placement: a gang of one member that is equal to the gang placed before it.

Most of the search for the previous gang holds for this one: its request, that no other place is compared, which models
are tried, and which devices it gets on a node with the same free ones. Only the tightest node is searched
(`placement.counting.one_node`), and the placement priced. The cache is kept with the occupancy, for one job at a time.
Members with parts of GPUs, preferences, affinity, or a choice of models are not cached.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field

from gantree.model.jobs import Job
from gantree.model.placements import MemberPlacement, Placement
from gantree.placement.choice.affinity_tiebreak import has_affinity
from gantree.placement.counting.one_node import is_plain_inside, tightest_node
from gantree.placement.members.members import placement_of
from gantree.placement.request.placement_preferences import PlacementPreferences
from gantree.placement.request.preferred_topology import has_preferred_topology
from gantree.placement.request.topology_request import TopologyRequest
from gantree.placement.slots.problem import Problem
from gantree.topology.cost.cost import predict
from gantree.topology.occupancy.change_log import Index
from gantree.topology.occupancy.occupancy import Occupancy

_CACHED = "the gang that was placed last"
MOST_KEPT = 4096
"""Most states of a node for which the devices of a member are cached."""


@dataclass(frozen=True, slots=True)
class _LastPlacement(Index):
    """The last job that was placed, its request, and the devices its member gets by state of the node."""

    job: Job
    preferences: PlacementPreferences
    request: TopologyRequest
    models_of_role: tuple[tuple[str, ...], ...]
    got: dict[Hashable, MemberPlacement] = field(default_factory=dict)

    def check(self, occupancy: Occupancy) -> None:
        """Nothing to check: no field depends on the occupancy as it is now."""


def repeat_placement(
    occupancy: Occupancy, job: Job, preferences: PlacementPreferences
) -> Placement | None:
    """The best place of a job like the one that was placed last; None if it has to be searched."""
    last = occupancy.indexes.get(_CACHED)
    if last is None or len(job.roles) != 1 or job.roles[0].members != 1:
        return None
    assert isinstance(last, _LastPlacement), "the name is its own"
    if last.preferences != preferences or not job.equals_but_for_name(last.job):
        return None
    problem = Problem(occupancy, last.request, (1,), (), last.models_of_role)
    node = tightest_node(problem)
    if node is None:
        return None
    if node in occupancy.parts_of_node:
        return placement_of(problem, [(node, problem.members)], job)
    return _placed(last, problem, node, job)


def remember_placement(problem: Problem, job: Job, preferences: PlacementPreferences) -> None:
    """Cache a gang that was placed where counting found it, if an equal gang may be placed the same way."""
    if _is_simple(problem, job):
        known = _LastPlacement(job, preferences, problem.request, problem.models_of_role)
        problem.occupancy.indexes[_CACHED] = known


def _is_simple(problem: Problem, job: Job) -> bool:
    """Whether the place of such a gang depends only on amounts and on which node is the tightest."""
    request = problem.request
    if (
        problem.members != (1,)
        or problem.among_of(0) is not None
        or request.apart
        or job.topology.apart
        or request.even
        or len(job.roles[0].shape.models) > 1
    ):
        return False
    if has_affinity(problem.fabric, job) or has_preferred_topology(problem.fabric, job):
        return False
    return is_plain_inside(problem)


def _placed(last: _LastPlacement, problem: Problem, node: int, job: Job) -> Placement:
    """The placement on a node of whose GPUs nothing is cut or shared."""
    occupancy, fabric = problem.occupancy, problem.fabric
    free = occupancy.free_mask_of_node[node], occupancy.host.sound_nic_mask(node)
    kind = (int(fabric.machine_index_of_node[node]), *free, occupancy.numa_use(node))
    got = last.got.get(kind)
    if got is None:
        placement = placement_of(problem, [(node, problem.members)], job)
        if len(last.got) >= MOST_KEPT:
            last.got.clear()
        last.got[kind] = placement.members[0]
        return placement
    name = fabric.nodes[node].name
    member = MemberPlacement(
        got.role, 0, name, got.gpus, got.nics, got.cpus, got.memory_GiB,
        devices=got.devices, numa=got.numa,
    )  # fmt: skip
    domain = fabric.domain(fabric.node_tier, node)
    return Placement((member,), domain, predict(fabric, (member,), job))
