"""The predicted cost of a gang's placement: needed for every decision, so cached by the shape of the placement."""

from collections.abc import Hashable, Sequence
from functools import lru_cache

import numpy as np

from gantree.model.errors import BadInput
from gantree.model.jobs import Job
from gantree.model.placements import MemberPlacement, Predicted
from gantree.topology.cost.flow_cost import Step
from gantree.topology.cost.pricing import pricer_of, ranks_of
from gantree.topology.cost.step import step_time
from gantree.topology.fabric.fabric import Fabric, IntArray
from gantree.topology.traffic.signature import Kept

GIB = 1 << 30
PARTS = -1
"""Tells GPUs of which a member holds parts from whole ones, where places are compared."""


def predict(
    fabric: Fabric, members: Sequence[MemberPlacement], job: Job | None = None
) -> Predicted:
    """Price a gang's place: members in rank order, at least one.

    A part of a GPU counts as a rank on it. step_s is there where the job tells its model or its traffic, its members
    have whole GPUs (how fast a part computes is not known), and its parallelism fits their number (a gang that grew or
    shrank may not).
    """
    index_of_node = fabric.index_of_node
    nodes = [index_of_node[member.node] for member in members]
    gpus = tuple([member.gpus or (PARTS, *member.parts) for member in members])
    kept = _kept_of(fabric)
    key = (gpus, pricer_of(fabric).shapes.shape(nodes), _sends(job))
    predicted = kept.answers.get(key)
    if predicted is None:
        predicted = predict_anew(fabric, members, job)
        kept.keep(key, predicted, len(members))
    return predicted


def predict_anew(
    fabric: Fabric, members: Sequence[MemberPlacement], job: Job | None = None
) -> Predicted:
    """As `predict`, worked out again."""
    nodes = np.array([fabric.index_of_node[member.node] for member in members], dtype=np.int64)
    crossings = tuple(
        (fabric.tiers[tier], _hops_that_leave(fabric.domain_of_node[tier][nodes]))
        for tier in range(1, fabric.node_tier + 1)
    )
    pricer = pricer_of(fabric)
    held = [member.gpus or member.parts for member in members]
    gpus = [(node, mine) for node, mine in zip(nodes.tolist(), held, strict=True) if mine]
    step = _step(fabric, members, job) if _sends(job) is not None else None
    return Predicted(
        comm_s=pricer.price_members("all_reduce", GIB, gpus).seconds,
        crossings=crossings,
        step_s=step.step_s if step else None,
    )


def _step(fabric: Fabric, members: Sequence[MemberPlacement], job: Job | None) -> Step | None:
    """The step of a job whose members have whole GPUs; None where its parallelism does not fit their number."""
    if job is None or any(member.parts for member in members):
        return None
    try:
        return step_time(pricer_of(fabric), job, ranks_of(fabric, members))
    except BadInput:
        return None


@lru_cache(maxsize=8)
def _kept_of(fabric: Fabric) -> Kept[Predicted]:
    """Predictions on a fabric, beside its pricer."""
    return Kept()


def _sends(job: Job | None) -> Hashable:
    """What of a job its step depends on; None where it tells nothing."""
    if job is None:
        return None
    if job.serving is not None:
        return job.serving, tuple((role.name, role.members, role.shape.gpus) for role in job.roles)
    if job.trains is None and job.traffic is None:
        return None
    return job.parallelism, job.ranks_as_written, job.trains, job.traffic, job.overlap


def _hops_that_leave(domains: IntArray) -> int:
    """Hops of the closed ring over consecutive members whose two ends lie in different domains."""
    return int(np.count_nonzero(domains[1:] != domains[:-1])) + int(domains[0] != domains[-1])
