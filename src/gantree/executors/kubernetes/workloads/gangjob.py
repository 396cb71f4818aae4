"""GangJob, gantree's custom resource: its fields, and the pods and the service that are made of it. Pure.

`deploy/kubernetes/crds/gangjobs.yaml` is its schema. A GangJob has the words of a job file, and a pod template for each
role; `gangjobs` makes what it asks for and says what became of it. The pods find each other by the variables that
processes have on the local executor too (docs/executor.md), at names that a headless service gives them.

What a variable says is written down when the pod is made, where that is known by then. The pods of an elastic GangJob
are made before anybody knows how many there will be: their ranks, and how many ranks there are, come from the
annotations that gantree writes with the binding, which the kubelet reads when it starts the containers.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gantree.executors.kubernetes.apiserver.objects import Group, Metadata, Pod
from gantree.executors.kubernetes.apiserver.settings import SCHEDULER
from gantree.executors.kubernetes.pods.environment import OF_PLACE, OF_RANK, environment
from gantree.executors.kubernetes.pods.gang_spec import (
    GangSpec,
    GroupKind,
    InvalidObject,
    RoleSpec,
    Spec,
    amount,
    count,
    flag,
    number,
    parsed_priority,
    table,
    tables,
    text,
)
from gantree.executors.kubernetes.pods.link_check import (
    CHECK,
    PodCheck,
    check_annotation,
    check_container,
)
from gantree.executors.kubernetes.workloads.serving import serve, serving_of
from gantree.model.jobs import GPU_RESOURCES, Elastic, Restarts
from gantree.text.words import NAME_PATTERN

Json = dict[str, Any]

GANGJOB = GroupKind("gantree.io", "gangjobs", ("v1alpha1",))
API_VERSION, KIND = "gantree.io/v1alpha1", "GangJob"
OF_GANGJOB = "gantree.io/gangjob"
"""A label: the GangJob that a pod was made for."""
ROLE, INDEX, PROCESSES = "gantree.io/role", "gantree.io/index", "gantree.io/processes"
ASSIGNMENT = "gantree.io/assignment"
"""An annotation of a GangJob: the assignment by which a federation handed it in."""
NO_ALTERNATIVES = (
    "gang.alternatives: a pod asks for one shape, and is there before its gang has a place; for other devices that"
    " serve as well, have the pod template name a ResourceClaimTemplate with firstAvailable"
)
"""Why shapes to choose from, as job files have them, are refused, and what there is instead."""
MASTER_PORT = 29500
GPU = "nvidia.com/gpu"
_RESTARTS = Restarts()
_ASSIGNMENT = re.compile(rf"{NAME_PATTERN}/{NAME_PATTERN}/[0-9]{{1,9}}")


@dataclass(frozen=True, slots=True)
class Member:
    """One pod of a GangJob: its role, its number in the gang and in the role, its first rank."""

    role: Spec
    member: int
    of_role: int
    first_rank: int


def gang_spec(spec: Spec) -> GangSpec:
    """What a GangJob asks for as a gang. Raises InvalidObject."""
    topology = table(spec, "topology")
    slices = table(topology, "slices")
    elastic = elastic_of(spec)
    roles = tuple(_role_spec(role, elastic) for role in tables(spec, "gang"))
    restarts = table(spec, "restarts")
    limit = count(restarts, "limit")
    return GangSpec(
        members=sum(role.members for role in roles) or 1,
        queue=text(spec, "queue"),
        priority=_priority(spec),
        required=text(topology, "required"),
        preferred=text(topology, "preferred"),
        slice_members=count(slices, "members"),
        slice_required=text(slices, "required"),
        preemptible=flag(spec, "preemptible") if spec.get("preemptible") is not None else None,
        roles=roles,
        restarts=Restarts(
            _RESTARTS.limit if limit is None else limit,
            amount(restarts, "backoffSeconds") or _RESTARTS.backoff_s,
            amount(restarts, "backoffMaxSeconds") or _RESTARTS.backoff_max_s,
            amount(restarts, "replaceWithinSeconds") or None,
        ),
        time_limit_s=amount(spec, "timeLimitSeconds") or None,
        elastic=elastic,
        size=None if elastic is None else size_written(spec),
    )


def assignment_in(meta: Metadata) -> str:
    """The assignment by which a GangJob came from a federation; "" for one that did not."""
    said = meta.annotations.get(ASSIGNMENT, "")
    return said if _ASSIGNMENT.fullmatch(said) else ""


def scheduler_of(spec: Spec) -> str:
    """The schedulerName of the gantree that a GangJob is for."""
    return str(spec.get("schedulerName") or SCHEDULER)


def elastic_of(spec: Spec) -> Elastic | None:
    """Between which numbers of members a GangJob may have any; None where it has one size. Raises InvalidObject."""
    told = table(spec, "elastic")
    least, most = count(told, "min"), count(told, "max")
    if least is None and most is None:
        return None
    if least is None or most is None or not 1 <= least <= size_written(spec) <= most:
        raise InvalidObject("elastic has no min and max between which the members are")
    if len(tables(spec, "gang")) != 1:
        raise InvalidObject("elastic is for a gang of one role")
    return Elastic(least, most)


def size_asked(spec: Spec) -> int | None:
    """Return the number of members set later, as by `kubectl scale`; None if unset. Raises InvalidObject."""
    return None if elastic_of(spec) is None else count(table(spec, "elastic"), "members")


def size_written(spec: Spec) -> int:
    """The members of a GangJob as its author wrote it."""
    return sum(_attempts(role) for role in tables(spec, "gang"))


def has_links(spec: Spec) -> bool:
    """Whether a GangJob has links to check: several members, or GPUs in one. Raises InvalidObject."""
    elastic = elastic_of(spec)
    if (size_written(spec) if elastic is None else elastic.max) > 1:
        return True
    roles = [role for role in tables(spec, "gang") if _attempts(role)]
    return any(_has_several_gpus(role) for role in roles)


def _has_several_gpus(role: Spec) -> bool:
    """Whether a member has several GPUs, or claims, which may be for some."""
    pod = table(table(role, "template"), "spec")
    first = next(iter(tables(pod, "containers")), {})
    limits = {GPU: count(table(role, "each"), "gpus"), **table(table(first, "resources"), "limits")}
    asked = (limits.get(resource) for resource in GPU_RESOURCES)
    has_several = any(str(each or 0) not in ("0", "1") for each in asked)
    return has_several or bool(tables(pod, "resourceClaims"))


def index_of(pod: Pod) -> int | None:
    """Which member of its GangJob a pod was made to be; None where it does not say."""
    said = pod.metadata.annotations.get(INDEX, "")
    return int(said) if said.isascii() and said.isdecimal() else None


def _role_spec(role: Spec, elastic: Elastic | None) -> RoleSpec:
    topology = table(role, "topology")
    if role.get("alternatives") is not None:
        raise InvalidObject(NO_ALTERNATIVES)
    table(table(role, "template"), "spec")
    return RoleSpec(
        _role_name(role),
        _attempts(role) if elastic is None else elastic.min,
        text(topology, "required"),
        text(topology, "preferred"),
    )


def _priority(spec: Spec) -> str | int | None:
    said = spec.get("priority")
    return parsed_priority(said) if isinstance(said, str) else number(spec, "priority")


def members_of(spec: Spec, size: int | None = None) -> Iterator[Member]:
    """All members, role by role, as ranks count; size: so many of an elastic one."""
    member = first_rank = 0
    for role in tables(spec, "gang"):
        for of_role in range(_attempts(role) if size is None else size):
            yield Member(role, member, of_role, first_rank)
            member += 1
            first_rank += _processes(role)


def pods_of(
    group: Group, scheduler: str, size: int | None = None, checked: PodCheck | None = None
) -> dict[str, Json]:
    """The pods that a GangJob asks for, by name; size: so many of an elastic one. Raises InvalidObject.

    checked: the check that they make before they start.
    """
    members = list(members_of(group.spec, size))
    world = sum(_processes(each.role) for each in members)
    pods = {_name(group, each): _pod(group, each, members, world, scheduler) for each in members}
    serving = serving_of(group.spec)
    if serving is not None and members:
        serve(pods[_name(group, members[0])], serving)
    if checked is not None:
        for each in members:
            _add_check(pods[_name(group, each)], each, _addresses(group, members), checked)
    return pods


def _add_check(pod: Json, member: Member, addresses: Mapping[str, str], checked: PodCheck) -> None:
    """Put the check before all else that a pod does."""
    told, spec = table(table(member.role, "template"), "spec"), pod["spec"]
    container = check_container(told, spec["containers"][0], checked, addresses)
    spec["initContainers"] = [container, *tables(told, "initContainers")]
    pod["metadata"]["annotations"][CHECK] = check_annotation(checked.check)


def _addresses(group: Group, members: list[Member]) -> dict[str, str]:
    """Where the ranks of a gang meet."""
    meta = group.metadata
    return {
        "MASTER_ADDR": f"{_name(group, members[0])}.{meta.name}.{meta.namespace}.svc",
        "MASTER_PORT": str(count(group.spec, "masterPort") or MASTER_PORT),
    }


def number_of(pod: Json) -> int:
    """The number in the gang of a pod that was made of a GangJob."""
    return int(pod["metadata"]["annotations"][INDEX])


def service_of(group: Group) -> Json:
    """The headless service by which its pods know each other's names, before they are ready too."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": group.metadata.name,
            "namespace": group.metadata.namespace,
            "labels": {OF_GANGJOB: group.metadata.name},
            "ownerReferences": [_owner(group)],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {OF_GANGJOB: group.metadata.name},
        },
    }


def _pod(group: Group, each: Member, members: list[Member], world: int, scheduler: str) -> Json:
    template = table(each.role, "template")
    meta, spec = table(template, "metadata"), table(template, "spec")
    name = _name(group, each)
    env, from_pod = _env(group, each, members, world), OF_PLACE
    if elastic_of(group.spec) is not None:
        env = {name: value for name, value in env.items() if name not in OF_RANK}
        from_pod = {**OF_PLACE, **OF_RANK}
    containers = [
        _container(one, env, from_pod, each.role, is_first=n == 0)
        for n, one in enumerate(tables(spec, "containers"))
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": group.metadata.namespace,
            "labels": {**table(meta, "labels"), OF_GANGJOB: group.metadata.name, ROLE: _role_name(each.role)},
            "annotations": {
                **table(meta, "annotations"),
                INDEX: str(each.member),
                PROCESSES: str(_processes(each.role)),
            },
            "ownerReferences": [_owner(group)],
        },
        "spec": {
            "restartPolicy": "Never",
            **spec,
            "schedulerName": scheduler,
            "hostname": name,
            "subdomain": group.metadata.name,
            "containers": containers,
        },
    }  # fmt: skip


def _env(group: Group, each: Member, members: list[Member], world: int) -> dict[str, str]:
    """The variables of one pod. Of several processes RANK is the first; torchrun, which starts them, has its own."""
    processes, addresses = _processes(each.role), _addresses(group, members)
    return {
        "RANK": str(each.first_rank),
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": str(processes),
        "NODE_RANK": str(each.member),
        "NNODES": str(len(members)),
        **addresses,
        "PET_NNODES": str(len(members)),
        "PET_NPROC_PER_NODE": str(processes),
        "PET_NODE_RANK": str(each.member),
        **{f"PET_{name}": value for name, value in addresses.items()},
        "GANTREE_ROLE": _role_name(each.role),
        "GANTREE_MEMBER": str(each.of_role),
        "GANTREE_WORLD_SIZE": str(world),
    }


def _container(
    told: Spec, env: Mapping[str, str], from_pod: Mapping[str, str], role: Spec, *, is_first: bool
) -> Json:
    """A container with the variables that it does not set itself; the first asks for what each member needs."""
    container = {**told, "env": environment(told, env, from_pod)}
    needs = _needs(table(role, "each"))
    if is_first and needs:
        resources = table(told, "resources")
        both = ("requests", "limits")
        more = {kind: {**needs, **table(resources, kind)} for kind in both}
        container["resources"] = {**resources, **more}
    return container


def _needs(each: Spec) -> dict[str, str]:
    """What a member needs, as resources: GPUs, CPUs, memory, others by name."""
    gpus, cpus, memory = count(each, "gpus"), amount(each, "cpus"), amount(each, "memoryGiB")
    devices = {name: str(count(table(each, "devices"), name) or 0) for name in table(each, "devices")}  # fmt: skip
    return {
        **({GPU: str(gpus)} if gpus else {}),
        **({"cpu": f"{cpus:g}"} if cpus else {}),
        **({"memory": f"{round(memory * 1024)}Mi"} if memory else {}),
        **devices,
    }


def _name(group: Group, each: Member) -> str:
    """The name of a pod, which is its host name too; a GangJob's own name is short enough by its schema."""
    return f"{group.metadata.name}-{_role_name(each.role)}-{each.of_role}"


def _role_name(role: Spec) -> str:
    return text(role, "role") or "worker"


def _attempts(role: Spec) -> int:
    members = count(role, "members")
    return 1 if members is None else members


def _processes(role: Spec) -> int:
    return count(role, "processes") or 1


def _owner(group: Group) -> Json:
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": group.metadata.name,
        "uid": group.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
