"""Preferred affinity breaks ties between equally good places (scores of nodes: `placement.scoring.scores`).

The place is found without affinity first. Then the search is repeated among the nodes with the highest scores. The
first place is given up only for one that is as good: no more domains of any tier, the same GPU models if several are
accepted, no slower step, no longer fetching. So preferred affinity never delays a gang and never spreads it wider.

The score of a place is the least score of its members' nodes. It is maximised role by role, by bisection over the
scores that nodes have: one search for each halving. For a single member it is the score of its node.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from hashlib import blake2b

import numpy as np

from gantree.model.jobs import Job, Role
from gantree.model.placements import Placement
from gantree.placement.request.topology_request import TopologyRequest
from gantree.placement.scoring.scores import has_soft_taints, scores_of
from gantree.placement.slots.slots import slots_of
from gantree.topology.fabric.fabric import BoolArray, Fabric, IntArray
from gantree.topology.occupancy.occupancy import Occupancy

Among = Mapping[str, Hashable]
"""Names of nodes (`Fabric.nodes_named`) that roles may use; a role that is not named may use all."""
Find = Callable[[Among], Placement | None]
AFFINITY = "liked"


def has_affinity(fabric: Fabric, job: Job) -> bool:
    """Whether nodes may have different scores: cheap, for most jobs have no preferred affinity."""
    topologies = (job.topology, *(role.topology for role in job.roles))
    return any(each.likes or each.company for each in topologies) or has_soft_taints(fabric)


def limited_to_nodes(request: TopologyRequest, among: Among) -> TopologyRequest:
    """The request with its roles limited to these nodes."""
    if not among:
        return request
    roles = tuple(replace(role, among=among.get(role.name)) for role in request.roles)
    return replace(request, roles=roles)


def best_by_affinity(occupancy: Occupancy, job: Job, found: Placement, find: Find) -> Placement:
    """The place found, or one as good on nodes of higher scores; `find` finds the best place among some nodes."""
    names, best, among = _Names(occupancy.fabric), found, dict[str, Hashable]()
    fits_role = [
        slots_of(occupancy, role.shape, role.shape.models).of_node > 0 for role in job.roles
    ]
    before = set(occupancy.indexes)
    for role, fits in zip(job.roles, fits_role, strict=True):
        scores = scores_of(occupancy, job, role, fits)

        def trial(at_least: int, role: Role = role, scores: IntArray = scores) -> Placement | None:
            among[role.name] = names.name(scores >= at_least)
            other = find(among)
            is_as_good = other is not None and _is_as_good(occupancy.fabric, job, other, found)
            return other if is_as_good else None

        best, least = _highest(occupancy.fabric, role, best, scores, np.unique(scores[fits]), trial)
        among[role.name] = names.name(scores >= least)
    names.forget()
    for key in [key for key in occupancy.indexes if key not in before]:
        del occupancy.indexes[key]
    return best


def _highest(
    fabric: Fabric,
    role: Role,
    best: Placement,
    scores: IntArray,
    steps: IntArray,
    trial: Callable[[int], Placement | None],
) -> tuple[Placement, int]:
    """The place with the highest least score of a role's members, and that score. The highest is tried first."""
    least = _least(fabric, role, best, scores)
    steps = steps[steps > least]
    low, high, middle = 0, len(steps), len(steps) - 1
    while low < high:
        other = trial(int(steps[middle]))
        if other is None:
            high = middle
        else:
            best, least = other, _least(fabric, role, other, scores)
            assert least >= steps[middle], "it was to be among nodes of this score"
            low = int(np.searchsorted(steps, least, "right"))
        middle = (low + high) // 2
    return best, least


def _least(fabric: Fabric, role: Role, place: Placement, scores: IntArray) -> int:
    nodes = [fabric.index_of_node[each.node] for each in place.members if each.role == role.name]
    return int(scores[nodes].min())


class _Names:
    """Names of sets of nodes, which exist only during the search."""

    def __init__(self, fabric: Fabric) -> None:
        self._named, self._own = fabric.nodes_named, dict[Hashable, None]()

    def name(self, nodes: BoolArray) -> Hashable:
        """Equal for equal sets."""
        name = (AFFINITY, blake2b(np.packbits(nodes).tobytes(), digest_size=16).digest())
        self._named[name], self._own[name] = nodes, None
        return name

    def forget(self) -> None:
        """Remove the names, and the intersections that were named after them (`Problem.among_of`)."""
        named = list(self._named)
        for name in named:
            if name in self._own or (isinstance(name, tuple) and name[0] in self._own):
                del self._named[name]


def _is_as_good(fabric: Fabric, job: Job, other: Placement, found: Placement) -> bool:
    is_choice = any(role.shape.models for role in job.roles)
    if is_choice and _models(fabric, other) != _models(fabric, found):
        return False
    costs = zip(_costs(fabric, other), _costs(fabric, found), strict=True)
    return all(this <= least for this, least in costs)


def _models(fabric: Fabric, place: Placement) -> list[str | None]:
    return sorted(
        (fabric.machine_of_node(fabric.index_of_node[m.node]).gpu for m in place.members), key=str
    )


def _costs(fabric: Fabric, place: Placement) -> tuple[float, ...]:
    """How many domains of each tier a place uses, and seconds of a step and of fetching."""
    nodes = [fabric.index_of_node[name] for name in place.nodes]
    domains = (len(set(numbers[nodes].tolist())) for numbers in fabric.domain_of_node)
    told = place.predicted
    return (*domains, told.comm_s if told.step_s is None else told.step_s, place.fetch_s)
