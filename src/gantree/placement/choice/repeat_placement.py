"""The next of many that are alike: a gang of one member that asks for what the one before it got.

Of a gang that was placed most holds for the next one: what it wishes, that no other place is compared, which models are
tried, and what it gets of a node of which as much is free. What is looked for is the tightest node
(`placement.counting.one_node`), and what it costs. Kept beside the occupancy, of one job at a time: those that are
alike come one after the other. Whoever has parts of GPUs, preferences, likes, or a choice of models is searched for
anew.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field

from gantree.model.jobs import Job
from gantree.model.placements import MemberPlacement, Placement
from gantree.placement.choice.affinity_tiebreak import has_likes
from gantree.placement.counting.one_node import is_plain_inside, tightest_node
from gantree.placement.members.members import placement_of
from gantree.placement.request.preferences import PlacementPreferences
from gantree.placement.request.preferred import may_prefer
from gantree.placement.request.topology_request import Wish
from gantree.placement.slots.problem import Problem
from gantree.topology.cost.cost import predict
from gantree.topology.occupancy.change_log import Index
from gantree.topology.occupancy.occupancy import Occupancy

_KEPT = "the gang that was placed last"
MOST_KEPT = 4096
"""Ways in which a node may be free of which it is remembered what a member gets there."""


@dataclass(frozen=True, slots=True)
class _Again(Index):
    """A job that was placed, what was asked for it, and what its member got of nodes that were free in some way."""

    job: Job
    preferences: PlacementPreferences
    wish: Wish
    models_of_role: tuple[tuple[str, ...], ...]
    got: dict[Hashable, MemberPlacement] = field(default_factory=dict)

    def check(self, occupancy: Occupancy) -> None:
        """Nothing of it is about the moment."""


def placed_again(
    occupancy: Occupancy, job: Job, preferences: PlacementPreferences
) -> Placement | None:
    """The best place of a job like the one that was placed last; None where it has to be searched for."""
    last = occupancy.indexes.get(_KEPT)
    if last is None or len(job.roles) != 1 or job.roles[0].members != 1:
        return None
    assert isinstance(last, _Again), "the name is its own"
    if last.preferences != preferences or not job.is_alike(last.job):
        return None
    problem = Problem(occupancy, last.wish, (1,), (), last.models_of_role)
    node = tightest_node(problem)
    if node is None:
        return None
    if node in occupancy.parts_of_node:
        return placement_of(problem, [(node, problem.members)], job)
    return _placed(last, problem, node, job)


def note_placed(problem: Problem, job: Job, preferences: PlacementPreferences) -> None:
    """Remember a gang that was placed where counting found it, if the next of its kind may be placed the same way."""
    if _is_simple(problem, job):
        known = _Again(job, preferences, problem.wish, problem.models_of_role)
        problem.occupancy.indexes[_KEPT] = known


def _is_simple(problem: Problem, job: Job) -> bool:
    """Whether the place of such a gang hangs on nothing but amounts and which node is the tightest."""
    wish = problem.wish
    if (
        problem.members != (1,)
        or problem.among_of(0) is not None
        or wish.apart
        or wish.even
        or len(job.roles[0].shape.models) > 1
    ):
        return False
    if has_likes(problem.fabric, job) or may_prefer(problem.fabric, job):
        return False
    return is_plain_inside(problem)


def _placed(last: _Again, problem: Problem, node: int, job: Job) -> Placement:
    """The placement on a node of whose GPUs nothing is cut or shared."""
    occupancy, fabric = problem.occupancy, problem.fabric
    free = occupancy.free_mask_of_node[node], occupancy.free_nic_mask_of_index(node)
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
