"""Well-linked nodes for gangs of several nodes, on machines whose GPU links are of several classes.

On an NVLink mesh, or over PCIe, it matters which GPUs of a node are free: five of them may ring over NVLink or have to
cross the socket. The slowest node sets the pace of the whole gang, so it is searched for again on those nodes alone
whose best set of as many GPUs as a node would give reaches a rate, for the best few rates there are.
"""

from collections.abc import Iterator

import numpy as np

from gantree.placement.counting.solve import Solution, solve
from gantree.placement.machine.devices import choose_gpus
from gantree.placement.request.topology_request import TopologyRequest
from gantree.topology.cost.cost import pricer_of
from gantree.topology.fabric.conditions import worn_gpus
from gantree.topology.fabric.fabric import FloatArray
from gantree.topology.hardware.masks import mask_of

MOST_RATES = 3
"""Rates that are tried, the best first; each is one more search."""

MOST_NODES = 2048
"""On larger fabrics this would take longer than a decision may."""


def well_linked(request: TopologyRequest, found: Solution) -> Iterator[Solution]:
    """Places on the nodes that are linked better than the worst of the place found, for gangs of one role."""
    problem, spread = found
    if len(spread) < 2 or len(problem.members) > 1 or len(problem.fabric.nodes) > MOST_NODES:
        return
    rate = _rate_of_node(found)
    worst = min(rate[node] for node, _ in spread)
    better = sorted({step for step in rate.tolist() if step > worst}, reverse=True)
    tried = 0
    for step in better:
        enough = rate >= step
        if int(problem.tables[0].of_node[enough].sum()) < problem.members[0]:
            continue
        where = problem.occupancy.copy()
        where.usable_node &= enough
        other = solve(where, request)
        if other is not None and other[0].models_of_role == problem.models_of_role:
            yield other
            tried += 1
        if tried == MOST_RATES:
            return


def _rate_of_node(found: Solution) -> FloatArray:
    """GB/s of the ring over the GPUs that each node would give; 0 for nodes without room."""
    problem, spread = found
    fabric, traffic_index = problem.fabric, pricer_of(problem.fabric).traffic_index
    gpus_each = problem.request.roles[0].shape.gpus
    share = -(-problem.members[0] // len(spread))
    rate = np.zeros(len(fabric.nodes))
    if not gpus_each:
        return rate
    known: dict[tuple[int, int, int], float] = {}
    for node, slots in enumerate(problem.tables[0].of_node.tolist()):
        if slots:
            kind, free = (
                int(traffic_index.kind_of_node[node]),
                problem.occupancy.free_mask_of_node[node],
            )
            key = (kind, free, min(share, slots) * gpus_each)
            if key not in known:
                worn = worn_gpus(fabric, node)
                avoided = ((worn, 0),) if worn else ()
                chosen = choose_gpus(fabric.machine_of_node(node), free, key[2], shortages=avoided)
                known[key] = traffic_index.inside(kind, mask_of(chosen)).ring_GBps
            rate[node] = known[key]
    return rate
