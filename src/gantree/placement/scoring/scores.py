"""How much members of a role like each node: likes, company, and taints that only ask to be kept away from, added up.

It is reckoned as the default scheduler of Kubernetes does, so that weights that people wrote for that mean the same
here. Four sorts are each brought to a scale of a hundred, over the nodes that members fit on now, and added up, each
as often as that scheduler does unless it is told otherwise:

    nodes      sum of the weights of the likes that a node is like, beside the largest                              2
    company    sum over kinds, of the weight times those who are in the node's domain, between least and largest    2
    spread     sum over kinds, of those who are in the domain times ln(domains + 2), beside the largest; off it     2
    taints     taints with PreferNoSchedule that are not tolerated, beside the most; off it                         3

A node without the label of a spread is worth as little as the worst. Scores are whole numbers: equal ones are equal.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import log

import numpy as np

from gantree.model.jobs import Company, Job, Like, Role
from gantree.model.node_rules import TOLERATES_LABEL, read_tolerations, satisfies
from gantree.topology.fabric.fabric import BoolArray, Fabric, FloatArray, IntArray
from gantree.topology.occupancy.occupancy import Occupancy

PREFERS_NOT = "PreferNoSchedule"
SCALE = 100
NODE_AFFINITY_WEIGHT, POD_AFFINITY_WEIGHT, SPREAD_WEIGHT, TAINT_WEIGHT = 2, 2, 2, 3
"""Of preferred node affinity, preferred pod affinity, topology spread and taints against each other."""
STEPS = 1000
"""In one of the scale: what differs by less is equal."""


def scores_of(occupancy: Occupancy, job: Job, role: Role, fits: BoolArray) -> IntArray:
    """score[node] for members of a role; of nodes that they do not fit on it says nothing."""
    fabric, requests = occupancy.fabric, (job.topology, role.topology)
    likes = tuple(dict.fromkeys(like for request in requests for like in request.likes))
    company = tuple(dict.fromkeys(each for request in requests for each in request.company))
    near = [each for each in company if not each.spread]
    apart = [each for each in company if each.spread]
    total = np.zeros(len(fabric.nodes))
    if likes:
        total += NODE_AFFINITY_WEIGHT * _beside_largest(_liked(fabric, likes), fits)
    if near:
        total += POD_AFFINITY_WEIGHT * _between(_with_company(occupancy, near), fits)
    if apart:
        total -= SPREAD_WEIGHT * _beside_largest(_crowded(occupancy, apart, fits), fits)
    if has_soft_taints(fabric):
        tolerations = dict(role.shape.labels).get(TOLERATES_LABEL, "")
        total -= TAINT_WEIGHT * _beside_largest(_tainted(fabric, tolerations), fits)
    found: IntArray = np.rint(total * STEPS).astype(np.int64)
    return found


@lru_cache(maxsize=8)
def has_soft_taints(fabric: Fabric) -> bool:
    """Whether any node asks to be kept away from where that can be."""
    return fabric.has_taints and any(
        taint.effect == PREFERS_NOT for node in fabric.nodes for taint in node.taints
    )


def _beside_largest(raw: FloatArray, fits: BoolArray) -> FloatArray:
    largest = float(np.abs(raw[fits]).max(initial=0.0))
    return raw * (SCALE / largest) if largest else np.zeros_like(raw)


def _between(raw: FloatArray, fits: BoolArray) -> FloatArray:
    if not fits.any():
        return np.zeros_like(raw)
    least, largest = float(raw[fits].min()), float(raw[fits].max())
    return (raw - least) * (SCALE / (largest - least)) if largest > least else np.zeros_like(raw)


def _liked(fabric: Fabric, likes: Sequence[Like]) -> FloatArray:
    total = np.zeros(len(fabric.nodes))
    for like in likes:
        total += like.weight * _nodes_like(fabric, like.rule)
    return total


def _with_company(occupancy: Occupancy, kinds: Sequence[Company]) -> FloatArray:
    total = np.zeros(len(occupancy.fabric.nodes))
    for kind in kinds:
        number_of_value, domain_of_node = occupancy.fabric.values_of(kind.key)
        there = _there(occupancy, kind, number_of_value, domain_of_node)
        total += kind.weight * np.append(there, 0.0)[domain_of_node]
    return total


def _crowded(occupancy: Occupancy, kinds: Sequence[Company], fits: BoolArray) -> FloatArray:
    total = np.zeros(len(occupancy.fabric.nodes))
    is_counted = np.ones(len(total), dtype=np.bool_)
    for kind in kinds:
        number_of_value, domain_of_node = occupancy.fabric.values_of(kind.key)
        there = _there(occupancy, kind, number_of_value, domain_of_node)
        has_domain = domain_of_node >= 0
        domains = len(np.unique(domain_of_node[has_domain & fits]))
        total += kind.weight * log(domains + 2) * np.append(there, 0.0)[domain_of_node]
        is_counted &= has_domain
    worst = float(total[is_counted & fits].max(initial=0.0))
    return np.where(is_counted, total, max(worst, 1.0))


def _there(
    occupancy: Occupancy, kind: Company, number_of_value: dict[str, int], domain_of_node: IntArray
) -> FloatArray:
    """Members of a kind in each domain of its label."""
    found = np.zeros(len(number_of_value))
    for value, count in kind.there:
        if value in number_of_value:
            found[number_of_value[value]] += count
    for node, count in occupancy.devices.held(kind.kind):
        if domain_of_node[node] >= 0:
            found[domain_of_node[node]] += count
    return found


def _nodes_like(fabric: Fabric, rule: str) -> BoolArray:
    named, name = fabric.nodes_named, ("like", rule)
    if name not in named:
        told = [satisfies(node.name, dict(node.labels), rule) for node in fabric.nodes]
        named[name] = np.array(told, dtype=np.bool_)
    return named[name]


@lru_cache(maxsize=8)
def _tainted(fabric: Fabric, tolerations: str) -> FloatArray:
    """How many taints of each node who tolerates these would rather be kept away by."""
    covered = read_tolerations(tolerations)
    counts = [
        sum(
            taint.effect == PREFERS_NOT and not any(each.covers(taint) for each in covered)
            for taint in node.taints
        )
        for node in fabric.nodes
    ]
    return np.array(counts, dtype=np.float64)
