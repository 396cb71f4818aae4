"""Scores of nodes for members of a role: preferred node and pod affinity, soft spread and PreferNoSchedule taints.

Scores are computed as by kube-scheduler, so that weights mean the same. Each of four terms is normalised to 100 over
the nodes that members fit on now, and multiplied by the default weight of its plugin:

    nodes      sum of the weights of matching rules, over the largest                                       2
    members    sum over kinds of weight x members in the node's domain, between least and largest           2
    spread     sum over kinds of members in the domain x ln(domains + 2), over the largest; subtracted      2
    taints     PreferNoSchedule taints that are not tolerated, over the most; subtracted                    3

A node without the label of a spread scores as the worst. Scores are rounded to whole numbers, so equal ones are equal.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import log

import numpy as np

from gantree.model.jobs import Job, PreferredMembers, PreferredNodes, Role
from gantree.model.node_rules import TOLERATES_LABEL, read_tolerations, satisfies
from gantree.topology.fabric.fabric import BoolArray, Fabric, FloatArray, IntArray
from gantree.topology.occupancy.occupancy import Occupancy

PREFERS_NOT = "PreferNoSchedule"
SCALE = 100
NODE_AFFINITY_WEIGHT, POD_AFFINITY_WEIGHT, SPREAD_WEIGHT, TAINT_WEIGHT = 2, 2, 2, 3
"""Of preferred node affinity, preferred pod affinity, topology spread and taints against each other."""
STEPS = 1000
"""Steps of one point of the scale: smaller differences are ignored."""


def scores_of(occupancy: Occupancy, job: Job, role: Role, fits: BoolArray) -> IntArray:
    """Return score[node] for members of a role; meaningless for nodes on which they do not fit."""
    fabric, requests = occupancy.fabric, (job.topology, role.topology)
    likes = tuple(dict.fromkeys(each for request in requests for each in request.likes))
    company = tuple(dict.fromkeys(each for request in requests for each in request.company))
    near = [each for each in company if not each.spread]
    apart = [each for each in company if each.spread]
    total = np.zeros(len(fabric.nodes))
    if likes:
        total += NODE_AFFINITY_WEIGHT * _scaled_to_largest(
            _sum_of_preferred_nodes(fabric, likes), fits
        )
    if near:
        total += POD_AFFINITY_WEIGHT * _scaled_to_range(
            _sum_of_preferred_members(occupancy, near), fits
        )
    if apart:
        total -= SPREAD_WEIGHT * _scaled_to_largest(_sum_of_spread(occupancy, apart, fits), fits)
    if has_soft_taints(fabric):
        tolerations = dict(role.shape.labels).get(TOLERATES_LABEL, "")
        total -= TAINT_WEIGHT * _scaled_to_largest(_untolerated_taints(fabric, tolerations), fits)
    found: IntArray = np.rint(total * STEPS).astype(np.int64)
    return found


@lru_cache(maxsize=8)
def has_soft_taints(fabric: Fabric) -> bool:
    """Return whether any node has a PreferNoSchedule taint."""
    return fabric.has_taints and any(
        taint.effect == PREFERS_NOT for node in fabric.nodes for taint in node.taints
    )


def _scaled_to_largest(raw: FloatArray, fits: BoolArray) -> FloatArray:
    largest = float(np.abs(raw[fits]).max(initial=0.0))
    return raw * (SCALE / largest) if largest else np.zeros_like(raw)


def _scaled_to_range(raw: FloatArray, fits: BoolArray) -> FloatArray:
    if not fits.any():
        return np.zeros_like(raw)
    least, largest = float(raw[fits].min()), float(raw[fits].max())
    return (raw - least) * (SCALE / (largest - least)) if largest > least else np.zeros_like(raw)


def _sum_of_preferred_nodes(fabric: Fabric, preferred: Sequence[PreferredNodes]) -> FloatArray:
    total = np.zeros(len(fabric.nodes))
    for each in preferred:
        total += each.weight * _nodes_matching(fabric, each.rule)
    return total


def _sum_of_preferred_members(
    occupancy: Occupancy, kinds: Sequence[PreferredMembers]
) -> FloatArray:
    total = np.zeros(len(occupancy.fabric.nodes))
    for kind in kinds:
        number_of_value, domain_of_node = occupancy.fabric.values_of(kind.key)
        there = _members_by_domain(occupancy, kind, number_of_value, domain_of_node)
        total += kind.weight * np.append(there, 0.0)[domain_of_node]
    return total


def _sum_of_spread(
    occupancy: Occupancy, kinds: Sequence[PreferredMembers], fits: BoolArray
) -> FloatArray:
    total = np.zeros(len(occupancy.fabric.nodes))
    is_counted = np.ones(len(total), dtype=np.bool_)
    for kind in kinds:
        number_of_value, domain_of_node = occupancy.fabric.values_of(kind.key)
        there = _members_by_domain(occupancy, kind, number_of_value, domain_of_node)
        has_domain = domain_of_node >= 0
        domains = len(np.unique(domain_of_node[has_domain & fits]))
        total += kind.weight * log(domains + 2) * np.append(there, 0.0)[domain_of_node]
        is_counted &= has_domain
    worst = float(total[is_counted & fits].max(initial=0.0))
    return np.where(is_counted, total, max(worst, 1.0))


def _members_by_domain(
    occupancy: Occupancy,
    kind: PreferredMembers,
    number_of_value: dict[str, int],
    domain_of_node: IntArray,
) -> FloatArray:
    """Return the members of a kind in each domain of its label."""
    found = np.zeros(len(number_of_value))
    for value, count in kind.there:
        if value in number_of_value:
            found[number_of_value[value]] += count
    for node, count in occupancy.devices.held(kind.kind):
        if domain_of_node[node] >= 0:
            found[domain_of_node[node]] += count
    return found


def _nodes_matching(fabric: Fabric, rule: str) -> BoolArray:
    named, name = fabric.nodes_named, ("like", rule)
    if name not in named:
        told = [satisfies(node.name, dict(node.labels), rule) for node in fabric.nodes]
        named[name] = np.array(told, dtype=np.bool_)
    return named[name]


@lru_cache(maxsize=8)
def _untolerated_taints(fabric: Fabric, tolerations: str) -> FloatArray:
    """Return the number of PreferNoSchedule taints of each node that are not tolerated, [node]."""
    covered = read_tolerations(tolerations)
    counts = [
        sum(
            taint.effect == PREFERS_NOT and not any(each.covers(taint) for each in covered)
            for taint in node.taints
        )
        for node in fabric.nodes
    ]
    return np.array(counts, dtype=np.float64)
