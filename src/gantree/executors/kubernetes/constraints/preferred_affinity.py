"""Preferred node affinity of pods as weighted rules of a job, and preferred pod affinity put beside it.

kube-scheduler adds up the weights of the preferred terms that a node matches, and so does the core
(`placement.scoring`), to choose among equally good places. The first pod of a role stands for all of them. Preferences
about other pods are in `preferred_pod_affinity`.
"""

from dataclasses import replace

from gantree.executors.kubernetes.apiserver.objects import NodeSelector, Pod
from gantree.executors.kubernetes.constraints.gang_constraints import role_of
from gantree.executors.kubernetes.constraints.pod_index import PodIndex
from gantree.executors.kubernetes.constraints.preferred_pod_affinity import preferred_pod_affinity
from gantree.executors.kubernetes.pods.shapes import alternatives_of
from gantree.executors.kubernetes.workloads.gangs import Gang
from gantree.model.jobs import Job, PreferredMembers, PreferredNodes, Role
from gantree.model.node_rules import rule_text


def with_preferences(job: Job, gang: Gang, index: PodIndex) -> Job:
    """Return the job with the preferred node and pod affinity of its pods."""
    told = {
        role.name: (preferred_node_terms(pods[0]), preferred_pod_affinity(index, pods[0]))
        for role, pods in gang.roles
    }
    if not any(likes or company for likes, company in told.values()):
        return job
    return replace(
        job, roles=tuple(_with_preferences(role, *told[role_of(role.name)]) for role in job.roles)
    )


def _with_preferences(
    role: Role, likes: tuple[PreferredNodes, ...], company: tuple[PreferredMembers, ...]
) -> Role:
    return replace(role, topology=replace(role.topology, likes=likes, company=company))


def preferred_node_terms(pod: Pod) -> tuple[PreferredNodes, ...]:
    """Return the preferred terms of a pod's node affinity, without those that match no node."""
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    terms = affinity.preferred_during_scheduling_ignored_during_execution if affinity else ()
    asked = ((each.weight, alternatives_of(NodeSelector((each.preference,)))) for each in terms)
    return tuple(PreferredNodes(rule_text(rule), weight) for weight, rule in asked if rule)
