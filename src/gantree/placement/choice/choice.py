"""Chooses between places that counting domains does not distinguish: by predicted time, and by fragmentation.

A single member, at a site that says which members usually come, goes where it takes least from these
(`placement.scoring.packing`); what follows is of gangs.

Where nothing but the number of domains makes one place faster than another, the place found by counting is taken as it
is. Else other places are looked for (`placement.choice.candidates`), each is priced, and the least score wins:

    score = t / t_least + fetch_s / FETCH_WORTH_S + weight x stranded

t is the predicted seconds of a step, or of the yardstick all-reduce where the job does not tell its traffic. stranded
is what the gang leaves in pieces: the share of the GPUs of its domain that stay free, which nobody can use as a whole
any more, and the share of its nodes that were whole and are no longer, though not full. weight is the policy's
`fragmentation_weight`. Among equals the place with the fewest nodes wins of which a link carries less than its rate,
then the one with the fewest domains.
"""

from dataclasses import replace

import numpy as np

from gantree.model.jobs import Job
from gantree.model.placements import Placement
from gantree.placement.choice.candidates import candidates, declares_traffic, price_differs
from gantree.placement.choice.repeat_placement import remember_placement
from gantree.placement.counting.solve import Solution, problems, solve
from gantree.placement.members.members import placement_of
from gantree.placement.request.locality import fetch_s_of_node
from gantree.placement.request.placement_preferences import PlacementPreferences, TypicalMember
from gantree.placement.request.topology_request import TopologyRequest
from gantree.placement.scoring.packing import best_node
from gantree.placement.scoring.traffic_classes import has_uneven_machines, node_sets
from gantree.topology.fabric.conditions import worn_nodes
from gantree.topology.occupancy.occupancy import Occupancy

FETCH_WORTH_S = 3600.0
"""Seconds of fetching that weigh as much as a step twice as long: about what a short training job runs."""


def best_place(
    occupancy: Occupancy, request: TopologyRequest, job: Job, preferences: PlacementPreferences
) -> Placement | None:
    """The place of the least score; None where the gang does not fit."""
    if preferences.demand and _is_packed(request):
        return _packed(occupancy, request, job, preferences.demand)
    found = solve(occupancy, request)
    if found is None:
        return None
    if not _is_worth_comparing(occupancy, job, found, preferences):
        remember_placement(found[0], job, preferences)
        return placement_of(*found, job)
    return _cheapest(
        occupancy, job, preferences, candidates(occupancy, request, job, found, preferences)
    )


def _is_packed(request: TopologyRequest) -> bool:
    """Whether the gang is one member, which goes where it takes least from those who usually come."""
    role = request.roles[0]
    return len(request.roles) == 1 and role.members == 1 and role.shape.mig is None


def _packed(
    occupancy: Occupancy, request: TopologyRequest, job: Job, demand: tuple[TypicalMember, ...]
) -> Placement | None:
    """The place of the least loss for one member (`placement.scoring.packing`)."""
    for problem in problems(occupancy, request):
        fitting = np.flatnonzero(problem.tables[0].of_node)
        if len(fitting):
            node, gpu = best_node(occupancy, demand, request.roles[0].shape, fitting)
            return placement_of(replace(problem, gpu=gpu), [(node, (1,))], job)
    return None


def _is_worth_comparing(
    occupancy: Occupancy, job: Job, found: Solution, preferences: PlacementPreferences
) -> bool:
    """Whether another place than the one found by counting may have a lower score."""
    if job.data:
        return True
    if not price_differs(job):
        return False
    if node_sets(occupancy.fabric).kinds or has_uneven_machines(occupancy.fabric):
        return True
    return len(found[1]) > 1 and (preferences.exact_s > 0 or declares_traffic(job))


def _cheapest(
    occupancy: Occupancy, job: Job, preferences: PlacementPreferences, solutions: list[Solution]
) -> Placement:
    fetch_s = fetch_s_of_node(occupancy.fabric, job.data)
    places, stranded = [], []
    for problem, spread in solutions:
        nodes = [node for node, _ in spread]
        place = placement_of(problem, spread, job)
        places.append(replace(place, fetch_s=float(np.max(fetch_s[nodes]))))
        stranded.append(_stranded(occupancy, place, nodes))
    least_s = min(map(_seconds, places))
    scores = [
        (_seconds(place) / least_s if least_s else 1.0)
        + place.fetch_s / FETCH_WORTH_S
        + preferences.fragmentation_weight * left
        for place, left in zip(places, stranded, strict=True)
    ]
    worn = worn_nodes(occupancy.fabric)
    ranks = [
        (score, len(worn & place.nodes.keys())) for score, place in zip(scores, places, strict=True)
    ]
    return places[ranks.index(min(ranks))]


def _seconds(place: Placement) -> float:
    predicted = place.predicted
    return predicted.comm_s if predicted.step_s is None else predicted.step_s


def _stranded(occupancy: Occupancy, place: Placement, nodes: list[int]) -> float:
    """Share of the GPUs of the gang's domain that stay free, and share of its nodes that it breaks."""
    fabric = occupancy.fabric
    tier, domain = fabric.narrowest_domain(nodes)
    first, stop = fabric.first_node_of_domain[tier][domain : domain + 2].tolist()
    gpus = int(fabric.gpus_of_node[first:stop].sum())
    taken: dict[int, int] = {}
    for member in place.members:
        node = fabric.index_of_node[member.node]
        taken[node] = taken.get(node, 0) + len(member.gpus)
    left = int(occupancy.free_gpus_in_domain(tier)[domain]) - sum(taken.values())
    whole = fabric.gpus_of_node
    free = occupancy.free_gpus_of_node
    broken = sum(
        1 for node, held in taken.items() if free[node] == whole[node] and 0 < held < whole[node]
    )
    return (left / gpus if gpus else 0.0) + broken / len(taken)
