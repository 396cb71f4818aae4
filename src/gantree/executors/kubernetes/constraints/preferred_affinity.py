"""What pods only prefer: likes and company of their role, by which the core chooses among places that are as good.

Upstream adds up the weights of the preferred terms that a node is like; so does the core (`placement.scoring.scores`).
The first pod of a role speaks for all. What pods prefer of other pods is in `company`.
"""

from dataclasses import replace

from gantree.executors.kubernetes.apiserver.objects import NodeSelector, Pod
from gantree.executors.kubernetes.constraints.gang_constraints import role_of
from gantree.executors.kubernetes.constraints.pod_index import Scene
from gantree.executors.kubernetes.constraints.preferred_pod_affinity import company_of
from gantree.executors.kubernetes.pods.shapes import alternatives_of
from gantree.executors.kubernetes.workloads.gangs import Gang
from gantree.model.jobs import Company, Job, Like, Role
from gantree.model.node_rules import rule_text


def liking(job: Job, gang: Gang, scene: Scene) -> Job:
    """A job with what its pods prefer of nodes and of other pods."""
    told = {role.name: (likes_of(pods[0]), company_of(scene, pods[0])) for role, pods in gang.roles}
    if not any(likes or company for likes, company in told.values()):
        return job
    return replace(job, roles=tuple(_liking(role, *told[role_of(role.name)]) for role in job.roles))


def _liking(role: Role, likes: tuple[Like, ...], company: tuple[Company, ...]) -> Role:
    return replace(role, topology=replace(role.topology, likes=likes, company=company))


def likes_of(pod: Pod) -> tuple[Like, ...]:
    """The preferred terms of a pod's node affinity; one that means nothing is like no node."""
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    terms = affinity.preferred_during_scheduling_ignored_during_execution if affinity else ()
    asked = ((each.weight, alternatives_of(NodeSelector((each.preference,)))) for each in terms)
    return tuple(Like(rule_text(rule), weight) for weight, rule in asked if rule)
