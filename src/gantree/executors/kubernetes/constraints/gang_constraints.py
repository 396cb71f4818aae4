"""Constraints between pods of one gang as topology requests of its job: one domain, one per domain, even spread.

The core then searches for a fitting place, and `inter_pod_feasibility` checks it. A spread is exact where no matching
pod is running yet: of ten members over four domains, eight are at most two a domain, and a second role of the other two
at most one, so no domain has two more than another.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from gantree.executors.kubernetes.apiserver.objects import Pod
from gantree.executors.kubernetes.constraints import spread
from gantree.executors.kubernetes.constraints.pod_index import PodIndex
from gantree.executors.kubernetes.pods.ports import exclusive_device_of
from gantree.executors.kubernetes.workloads.gangs import Gang
from gantree.model.jobs import Job, Role, Spread, TopologySpec

REST = ".rest"
"""Ends the name of the second role of members that are spread."""
Tier = Callable[[str], str | None]


def role_of(name: str) -> str:
    """The role of a gang that a role of its job is, or a part of."""
    return name.removesuffix(REST)


def with_gang_constraints(job: Job, gang: Gang, index: PodIndex, tier: Tier) -> Job:
    """A job with the constraints between its pods. tier gives the tier of a node label, if any."""
    has_several = any(len(pods) > 1 for _, pods in gang.roles)
    if job.topology.slices or job.topology.required or not has_several:
        return job
    roles: list[Role] = []
    for role, (_, pods) in zip(job.roles, gang.roles, strict=True):
        roles += _constrained_roles(role, pods, index, tier) if len(pods) > 1 else [role]
    return replace(job, roles=tuple(roles))


def _constrained_roles(
    role: Role, pods: Sequence[Pod], index: PodIndex, tier: Tier
) -> Iterator[Role]:
    pod = pods[0]
    apart = _apart(pod, index, tier)
    even = _even(pod, index, tier)
    together = _together(pod, index, tier)
    if together is not None:
        yield replace(role, topology=TopologySpec(required=together))
    elif apart is not None:
        yield replace(role, topology=TopologySpec(spread=Spread(apart, 1)))
    elif even is not None:
        yield from _spread(role, *even)
    else:
        yield role


def _spread(role: Role, tier: str, domains: int) -> Iterator[Role]:
    """As evenly over all domains as so many members can be."""
    each, rest = divmod(role.members, domains)
    if each:
        topology = TopologySpec(spread=Spread(tier, each))
        yield replace(role, members=role.members - rest, topology=topology)
    if rest:
        name = role.name + REST if each else role.name
        topology = TopologySpec(spread=Spread(tier, 1))
        yield replace(role, name=name, members=rest, topology=topology)


def _together(pod: Pod, index: PodIndex, tier: Tier) -> str | None:
    """The tier in one domain of which pods must be together, by affinity to themselves."""
    terms = (term for term in pod.spec.affinity_terms if index.selector_of(term, pod).matches(pod))
    return next(filter(None, (tier(term.topology_key) for term in terms)), None)


def _apart(pod: Pod, index: PodIndex, tier: Tier) -> str | None:
    """The tier whose domains hold one pod each, by anti-affinity to themselves that no exclusive device expresses."""
    for term in pod.spec.anti_affinity_terms:
        found = tier(term.topology_key)
        if (
            found
            and not exclusive_device_of(pod, term)
            and index.selector_of(term, pod).matches(pod)
        ):
            return found
    return None


def _even(pod: Pod, index: PodIndex, tier: Tier) -> tuple[str, int] | None:
    """The tier over which pods are spread, and over how many domains, if all hold equally many now."""
    for constraint in spread.constraints_of(pod):
        found = tier(constraint.topology_key)
        if found and spread.selector_of(pod, constraint).matches(pod):
            counts = spread.counted(index, pod, constraint)
            return (found, len(counts)) if len(set(counts.values())) == 1 else None
    return None
