"""Node restrictions: rules on nodes that an executor currently imposes on a pending job, role by role.

They are stored among the node labels that members require, under a key of their own, so every search applies them. The
submitted job does not change. An empty rule is no restriction. Events and facts call them `bars`.
"""

from collections.abc import Mapping
from dataclasses import replace

from gantree.model.jobs import Job, Role, Shape
from gantree.model.node_rules import NODE_RESTRICTIONS_LABEL

NodeRestrictions = Mapping[str, str]
"""A rule, as `model.node_rules` writes them, by the name of a role."""


def with_node_restrictions(job: Job, restrictions: NodeRestrictions) -> Job:
    """Return the job with exactly these restrictions."""
    return replace(
        job,
        roles=tuple(
            _with_node_restriction(role, restrictions.get(role.name, "")) for role in job.roles
        ),
    )


def node_restrictions_of(job: Job) -> dict[str, str]:
    """Return the restrictions of a job, by role."""
    told = (
        (role.name, dict(role.shape.labels).get(NODE_RESTRICTIONS_LABEL, "")) for role in job.roles
    )
    return {name: rule for name, rule in told if rule}


def without_node_restrictions(shape: Shape) -> Shape:
    """Return the shape without restrictions."""
    labels = tuple(label for label in shape.labels if label[0] != NODE_RESTRICTIONS_LABEL)
    return shape if labels == shape.labels else replace(shape, labels=labels)


def _with_node_restriction(role: Role, rule: str) -> Role:
    shape = without_node_restrictions(role.shape)
    if rule:
        shape = replace(shape, labels=(*shape.labels, (NODE_RESTRICTIONS_LABEL, rule)))
    return role if shape == role.shape else replace(role, shape=shape)
