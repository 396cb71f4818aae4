"""Reruns a job on a placement equal to that of an earlier attempt. Pure: the record of the attempt is an argument.

Two places are equal if their members have the same machines and numbers of GPUs, and for each tier the same members
share a domain. Names of nodes do not count. What a job can request of that becomes its topology request (`demanded`);
`obstacles` checks on the empty cluster that such a place exists.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gantree.executors.local.launch.rank_map import NODE, NVLINK, rank_map
from gantree.model.jobs import Job, Role, Slices, Spread, TopologySpec
from gantree.model.orders import MemberLaunch, StartGang
from gantree.model.placements import Placement
from gantree.model.verdicts import Refused
from gantree.placement.choice.search import place
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy

Groups = tuple[int, ...]
"""For each member the number of its domain, counted as they are first met: (0, 0, 1) if the first two share one."""


@dataclass(frozen=True, slots=True)
class Relation:
    """What equal places have in common. machines and gpus go by member, together by tier, nvlink by process."""

    machines: tuple[str, ...]
    models: tuple[str | None, ...]
    gpus: tuple[int, ...]
    together: Mapping[str, Groups]
    nvlink: Groups


def relation_of(record: Mapping[str, Any]) -> Relation:
    """The relation of a rank map, as records have it."""
    members = sorted(record["members"], key=lambda each: (each["role"], each["member"]))
    tiers = record["tiers"]
    return Relation(
        machines=tuple(each["machine"] for each in members),
        models=tuple(each["gpu"] for each in members),
        gpus=tuple(len(each["gpus"]) for each in members),
        together={tier: _groups(each["domains"].get(tier) for each in members) for tier in tiers},
        nvlink=_groups(name for each in members for name in each[NVLINK]),
    )


def relation_at(job: Job, placement: Placement, fabric: Fabric) -> Relation:
    """The relation of a place that was found."""
    processes = {role.name: role.processes for role in job.roles}
    launches = tuple(
        MemberLaunch(
            role=each.role, rank=each.rank, node=each.node, node_rank=number, first_rank=0,
            processes=processes[each.role], gpus=each.gpus, nics=each.nics, run=(), mig=each.mig, share=each.share,
        )
        for number, each in enumerate(placement.members)
    )  # fmt: skip
    order = StartGang(id="", job="", attempt=0, world_size=job.processes, members=launches)
    nodes = {node.name: node for node in fabric.nodes}
    return relation_of(rank_map(order, fabric.cluster, nodes))


def _groups(names: Iterable[Hashable]) -> Groups:
    numbers: dict[Hashable, int] = {}
    return tuple(numbers.setdefault(name, len(numbers)) for name in names)


def demanded(job: Job, record: Mapping[str, Any]) -> Job:
    """The job with the members, the GPU models and the topology of a record as what it requires."""
    relation = relation_of(record)
    members = [each["role"] for each in record["members"]]
    models = tuple(dict.fromkeys(model for model in relation.models if model))
    roles = tuple(_role(role, members.count(role.name), models) for role in job.roles)
    topology = _topology(job.topology, relation, record["tiers"])
    return replace(job, roles=roles, topology=topology, elastic=None, held=False)


def _role(role: Role, members: int, models: tuple[str, ...]) -> Role:
    shape = role.shape
    if models and shape.on_gpus:
        shape = replace(shape, models=models)
    return replace(role, members=members, shape=shape)


def _topology(own: TopologySpec, relation: Relation, tiers: Sequence[str]) -> TopologySpec:
    """One domain of the narrowest tier that held all; below it runs of members together, and no more in one domain."""
    count = len(relation.machines)
    if count == 1 or own.box is not None:
        return own
    one = [tier for tier in tiers if set(relation.together[tier]) == {0}]
    required = one[-1] if one else own.required
    runs = {
        tier: size
        for tier in tiers
        if tier not in one and (size := _run(relation.together[tier])) is not None
    }
    slices = tuple(Slices(size, tier) for tier, size in runs.items() if 1 < size < count)
    spread = next((Spread(tier, size) for tier, size in runs.items()), own.spread)
    return replace(own, required=required, preferred=None, slices=slices, spread=spread)


def _run(groups: Groups) -> int | None:
    """How many consecutive members share each domain, if it is the same number everywhere."""
    size = groups.count(0)
    expected = tuple(number // size for number in range(len(groups)))
    return size if groups == expected and len(groups) % size == 0 else None


def obstacles(job: Job, record: Mapping[str, Any], fabric: Fabric) -> tuple[str, ...]:
    """Why this cluster, were it empty, would have no place equal to the recorded one; () if it has. job is `demanded`.

    Raises BadInput and Unsupported as `place` does: for a tier that is not there any more.
    """
    found = place(Occupancy(fabric, empty=True), job)
    if isinstance(found, Refused):
        return (found.sentence,)
    return tuple(differences(relation_of(record), relation_at(job, found, fabric)))


def differences(then: Relation, now: Relation) -> Iterator[str]:
    """Sentences on what is not equal."""
    if then.machines != now.machines:
        yield f"machines were {_counted(then.machines)}, and would be {_counted(now.machines)}"
    if then.gpus != now.gpus:
        yield f"members had {_counted(then.gpus)} GPUs, and would have {_counted(now.gpus)}"
    for tier in [tier for tier in then.together if tier not in now.together]:
        yield f"the cluster has no tier {tier} any more"
    for tier, groups in then.together.items():
        others = now.together.get(tier, groups)
        if others != groups:
            yield f"members shared {tier} domains {_sizes(groups)}, and would share them {_sizes(others)}"
    if then.nvlink != now.nvlink and then.together.get(NODE) == now.together.get(NODE):
        yield f"ranks shared NVLink domains {_sizes(then.nvlink)}, and would share them {_sizes(now.nvlink)}"


def _counted(words: Sequence[object]) -> str:
    counts = {word: words.count(word) for word in words}
    return ", ".join(f"{count} x {word}" for word, count in counts.items())


def _sizes(groups: Groups) -> str:
    """How many in each: "2 + 2"."""
    return " + ".join(str(groups.count(number)) for number in range(max(groups, default=-1) + 1))
