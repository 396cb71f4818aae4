"""What pods only prefer of nodes: likes of their role, by which the core chooses among places that are as good.

Upstream adds up the weights of the preferred terms that a node is like; so does the core, over the nodes of a gang
together (`placement.liked`). The first pod of a role speaks for all. What pods prefer of other pods (preferred
affinity to pods, spreads with ScheduleAnyway) changes with every pod that is bound, and is not looked at: an event
says so.
"""

from dataclasses import replace

from gantree.executors.kubernetes.gangs import Gang
from gantree.executors.kubernetes.objects import NodeSelector, Pod
from gantree.executors.kubernetes.shapes import alternatives_of
from gantree.executors.kubernetes.wishes import role_of
from gantree.model.jobs import Job, Like
from gantree.model.node_rules import rule_text


def liking(job: Job, gang: Gang) -> Job:
    """A job with what its pods prefer of nodes."""
    likes_of_role = {role.name: likes_of(pods[0]) for role, pods in gang.roles}
    if not any(likes_of_role.values()):
        return job
    roles = (
        replace(role, topology=replace(role.topology, likes=likes_of_role[role_of(role.name)]))
        for role in job.roles
    )
    return replace(job, roles=tuple(roles))


def likes_of(pod: Pod) -> tuple[Like, ...]:
    """The preferred terms of a pod's node affinity; one that means nothing is like no node."""
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    terms = affinity.preferred_during_scheduling_ignored_during_execution if affinity else ()
    asked = ((each.weight, alternatives_of(NodeSelector((each.preference,)))) for each in terms)
    return tuple(Like(rule_text(rule), weight) for weight, rule in asked if rule)
