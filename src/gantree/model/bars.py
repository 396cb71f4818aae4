"""Bars: rules on nodes that whoever runs a cluster puts on a waiting job for the moment, role by role.

They stand among the labels that members ask of nodes, under a key of their own, so that all who look for room go by
them; what the job's author wrote is as it was. "" as a rule is none at all.
"""

from collections.abc import Mapping
from dataclasses import replace

from gantree.model.jobs import Job, Role, Shape
from gantree.model.node_rules import BARS_LABEL

Bars = Mapping[str, str]
"""A rule, as `model.node_rules` writes them, by the name of a role."""


def barred(job: Job, bars: Bars) -> Job:
    """The job with these bars and no others."""
    return replace(job, roles=tuple(_barred(role, bars.get(role.name, "")) for role in job.roles))


def bars_of(job: Job) -> dict[str, str]:
    """The bars of a job, as it has them."""
    told = ((role.name, dict(role.shape.labels).get(BARS_LABEL, "")) for role in job.roles)
    return {name: rule for name, rule in told if rule}


def unbarred(shape: Shape) -> Shape:
    """What a member asks for, whatever bars there are."""
    labels = tuple(label for label in shape.labels if label[0] != BARS_LABEL)
    return shape if labels == shape.labels else replace(shape, labels=labels)


def _barred(role: Role, rule: str) -> Role:
    shape = unbarred(role.shape)
    if rule:
        shape = replace(shape, labels=(*shape.labels, (BARS_LABEL, rule)))
    return role if shape == role.shape else replace(role, shape=shape)
