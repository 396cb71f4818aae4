"""Which of places that are as good a gang takes: one on the nodes that its members like most
(`placement.scoring.scores`).

What is liked breaks ties and nothing else. The place is found as if nothing were liked; then it is looked for among the
nodes with the highest score, or a score as high as can be had. The first place is left only for one that is as good: no
more domains of any tier, no GPU models but those of the first where they are chosen among, no slower step, no longer
fetching. So who likes nodes never waits for them, and no gang is pulled apart for their sake.

A gang is as content as the member whose node it likes least: that is what is made as high as can be, role by role, in
one search for each halving of the scores that nodes have. Of one member that is the node it likes most.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from hashlib import blake2b

import numpy as np

from gantree.model.jobs import Job, Role
from gantree.model.placements import Placement
from gantree.placement.request.topology_request import Wish
from gantree.placement.scoring.scores import has_soft_taints, scores_of
from gantree.placement.slots.slots import slots_of
from gantree.topology.fabric.fabric import BoolArray, Fabric, IntArray
from gantree.topology.occupancy.occupancy import Occupancy

Among = Mapping[str, Hashable]
"""Names of nodes (`Fabric.nodes_named`) that roles may use; a role that is not named may use all."""
Find = Callable[[Among], Placement | None]
LIKED = "liked"


def has_likes(fabric: Fabric, job: Job) -> bool:
    """Whether any nodes are liked more than others: cheap, for most jobs have no such wish."""
    topologies = (job.topology, *(role.topology for role in job.roles))
    return any(each.likes or each.company for each in topologies) or has_soft_taints(fabric)


def limited(wish: Wish, among: Among) -> Wish:
    """A wish whose roles use no nodes but these."""
    if not among:
        return wish
    roles = tuple(replace(role, among=among.get(role.name)) for role in wish.roles)
    return replace(wish, roles=roles)


def most_liked(occupancy: Occupancy, job: Job, found: Placement, find: Find) -> Placement:
    """The place found, or one as good on nodes that are liked more; `find` finds the best one among some nodes."""
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
    """Names that sets of nodes have for as long as a place is looked for among them."""

    def __init__(self, fabric: Fabric) -> None:
        self._named, self._own = fabric.nodes_named, dict[Hashable, None]()

    def name(self, nodes: BoolArray) -> Hashable:
        """Equal for equal sets."""
        name = (LIKED, blake2b(np.packbits(nodes).tobytes(), digest_size=16).digest())
        self._named[name], self._own[name] = nodes, None
        return name

    def forget(self) -> None:
        """Nobody looks any more; a set of two names (`Problem.among_of`) goes with the first of them."""
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
