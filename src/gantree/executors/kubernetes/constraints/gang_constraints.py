"""What pods of one gang ask of each other, in words of the core: in one domain, one to a domain, or evenly over them.

So the core looks for a place that will do; whether one does is looked at once it has (`whereabouts`). A spread is
exact where no pod of its kind is there yet: of ten members over four domains, eight are at most two to a domain, and a
second role of the two that are left at most one, so none has two more than another.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from gantree.executors.kubernetes.apiserver.objects import Pod
from gantree.executors.kubernetes.constraints import spread
from gantree.executors.kubernetes.constraints.pod_index import Scene
from gantree.executors.kubernetes.pods.ports import sole_of
from gantree.executors.kubernetes.workloads.gangs import Gang
from gantree.model.jobs import Job, Role, Spread, TopologySpec

REST = ".rest"
"""Ends the name of the second role of members that are spread."""
Tier = Callable[[str], str | None]


def role_of(name: str) -> str:
    """The role of a gang that a role of its job is, or a part of."""
    return name.removesuffix(REST)


def wished(job: Job, gang: Gang, scene: Scene, tier: Tier) -> Job:
    """A job with what its pods ask of each other. tier gives the tier that a label of nodes means, if any."""
    has_several = any(len(pods) > 1 for _, pods in gang.roles)
    if job.topology.slices or job.topology.required or not has_several:
        return job
    roles: list[Role] = []
    for role, (_, pods) in zip(job.roles, gang.roles, strict=True):
        roles += _wished(role, pods, scene, tier) if len(pods) > 1 else [role]
    return replace(job, roles=tuple(roles))


def _wished(role: Role, pods: Sequence[Pod], scene: Scene, tier: Tier) -> Iterator[Role]:
    pod = pods[0]
    apart = _apart(pod, scene, tier)
    even = _even(pod, scene, tier)
    together = _together(pod, scene, tier)
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


def _together(pod: Pod, scene: Scene, tier: Tier) -> str | None:
    """The tier in one domain of which pods of a kind keep together."""
    terms = (term for term in pod.spec.keeps_to if scene.kind(term, pod).has(pod))
    return next(filter(None, (tier(term.topology_key) for term in terms)), None)


def _apart(pod: Pod, scene: Scene, tier: Tier) -> str | None:
    """The tier whose domains have one pod of a kind each, where sole devices do not say it."""
    for term in pod.spec.keeps_from:
        found = tier(term.topology_key)
        if found and not sole_of(pod, term) and scene.kind(term, pod).has(pod):
            return found
    return None


def _even(pod: Pod, scene: Scene, tier: Tier) -> tuple[str, int] | None:
    """The tier over which pods of a kind are spread, and over how many domains, if none is ahead of another."""
    for constraint in spread.constraints_of(pod):
        found = tier(constraint.topology_key)
        if found and spread.kind_of(pod, constraint).has(pod):
            counts = spread.counted(scene, pod, constraint)
            return (found, len(counts)) if len(set(counts.values())) == 1 else None
    return None
