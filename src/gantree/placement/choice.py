"""Which of several places a gang takes, where counting domains does not tell: by price, and by what it leaves behind.

A single member, at a site that says which members usually come, goes where it takes least from these
(`placement.packing`); what follows is of gangs.

Where all nodes are alike to traffic and data, the place with the fewest domains is the fastest, and nothing here is
asked. Else the gang is also searched for among the nodes of each kind alone (`placement.kinds`, `placement.locality`),
and each place found is priced:

    score = t / t_least + fetch_s / FETCH_WORTH_S + weight x stranded

Only places in equally few domains are compared, but for those that avoid what is worn or busy (`kinds.WHOLE`), and
those nearer to data. t is the predicted seconds of a step, or of the yardstick all-reduce where the job does not tell
its traffic; stranded the share of the GPUs of the gang's domain that stay free, which nobody can use as a whole any
more; weight the policy's `fragmentation_weight`. The least score wins, among equals the place with the fewest domains.
Which GPU models a gang prefers goes before all that: only places of the same choice of models are compared.
"""

from collections.abc import Hashable
from dataclasses import replace

import numpy as np

from gantree.model.jobs import Job
from gantree.model.placements import Placement
from gantree.placement.kinds import WHOLE, kinds_of
from gantree.placement.locality import fetch_s_of_node, nodes_with_data
from gantree.placement.members import placement_of
from gantree.placement.packing import best_node
from gantree.placement.solve import Solution, problems, solve
from gantree.placement.taste import Taste, Usual
from gantree.placement.wish import Wish
from gantree.topology.occupancy import Occupancy

FETCH_WORTH_S = 3600.0
"""Seconds of fetching that weigh as much as a step twice as long: about what a short training job runs."""


def best_place(occupancy: Occupancy, wish: Wish, job: Job, taste: Taste) -> Placement | None:
    """The place of the least score; None where the gang does not fit."""
    if taste.demand and _is_packed(wish):
        return _packed(occupancy, wish, job, taste.demand)
    found = solve(occupancy, wish)
    if found is None:
        return None
    sets = _node_sets(occupancy, job)
    if not sets:
        return placement_of(*found, job)
    return _cheapest(occupancy, job, taste, [found, *_others(occupancy, wish, found, sets)])


def _is_packed(wish: Wish) -> bool:
    """Whether the gang is one member, which goes where it takes least from those who usually come."""
    role = wish.roles[0]
    return len(wish.roles) == 1 and role.members == 1 and role.shape.mig is None


def _packed(
    occupancy: Occupancy, wish: Wish, job: Job, demand: tuple[Usual, ...]
) -> Placement | None:
    """The place of the least loss for one member (`placement.packing`)."""
    for problem in problems(occupancy, wish):
        fitting = np.flatnonzero(problem.tables[0].of_node)
        if len(fitting):
            node, gpu = best_node(occupancy, demand, wish.roles[0].shape, fitting)
            return placement_of(replace(problem, gpu=gpu), [(node, (1,))], job)
    return None


def _node_sets(occupancy: Occupancy, job: Job) -> tuple[Hashable, ...]:
    """Names of the sets of nodes among which the gang may be faster than among all."""
    fabric = occupancy.fabric
    sets = kinds_of(fabric) if _price_differs(job) else ()
    return (*sets, *nodes_with_data(fabric, job.data)) if job.data else sets


def _price_differs(job: Job) -> bool:
    """Whether traffic or arithmetic of the job can be faster in one place than in another."""
    if job.gpus > 1:
        return job.communicates
    return job.gpus == 1 and (job.trains is not None or job.traffic is not None)


def _others(
    occupancy: Occupancy, wish: Wish, found: Solution, sets: tuple[Hashable, ...]
) -> list[Solution]:
    """Places on each set of nodes, of the same GPU models as the one found, each once."""
    kinds = kinds_of(occupancy.fabric)
    seen, others = [found[1]], []
    for name in sets:
        other = solve(occupancy, wish, name)
        if other is None or other[0].models_of_role != found[0].models_of_role:
            continue
        alike = name in kinds and name != WHOLE
        if other[1] not in seen and not (alike and _domains(other) != _domains(found)):
            seen.append(other[1])
            others.append(other)
    return others


def _domains(found: Solution) -> tuple[int, ...]:
    """How many domains of each tier a place uses, widest first."""
    problem, spread = found
    nodes = [node for node, _ in spread]
    return tuple(len(set(domains[nodes].tolist())) for domains in problem.fabric.domain_of_node)


def _cheapest(occupancy: Occupancy, job: Job, taste: Taste, solutions: list[Solution]) -> Placement:
    fetch_s = fetch_s_of_node(occupancy.fabric, job.data)
    places = []
    for problem, spread in solutions:
        slowest_s = float(np.max(fetch_s[[node for node, _ in spread]]))
        places.append(replace(placement_of(problem, spread, job), fetch_s=slowest_s))
    least_s = min(map(_seconds, places))
    scores = [
        (_seconds(place) / least_s if least_s else 1.0)
        + place.fetch_s / FETCH_WORTH_S
        + taste.fragmentation_weight * _stranded(occupancy, place, job)
        for place in places
    ]
    return places[scores.index(min(scores))]


def _seconds(place: Placement) -> float:
    predicted = place.predicted
    return predicted.comm_s if predicted.step_s is None else predicted.step_s


def _stranded(occupancy: Occupancy, place: Placement, job: Job) -> float:
    """Share of the GPUs of the gang's domain that stay free."""
    fabric = occupancy.fabric
    tier, domain = fabric.narrowest_domain(fabric.index_of_node[m.node] for m in place.members)
    first, stop = fabric.first_node_of_domain[tier][domain : domain + 2].tolist()
    gpus = int(fabric.gpus_of_node[first:stop].sum())
    left = int(occupancy.free_gpus_in_domain(tier)[domain]) - job.gpus
    return left / gpus if gpus else 0.0
