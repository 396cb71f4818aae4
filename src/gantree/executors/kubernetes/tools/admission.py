"""The patch of gantree's webhook for pods of other controllers. Pure: a pod in, a JSON patch out.

* A pod of a gang gets the variables that the pods of a GangJob have: which rank it is, of how many, where. They come
  from annotations that are written with the binding (`environment`). Whoever sets one of RANK and its like itself has
  ranks from somebody else, and gets none of ours. Where rank 0 listens is known of pods that use their node's network:
  at the name of its node. `gantree.io/environment: none` on a pod says that it wants none.
* Containers with GPUs get the variables of the site, such as NCCL_SOCKET_IFNAME.
* A pod that says `gantree.io/rdma: "true"` gets the site's RDMA resource for its containers with GPUs, unless they ask
  for one themselves, and IPC_LOCK for those that have one: without it memory cannot be registered.

What is there already is never changed, so a pod that comes a second time is left as it is. A pod that is odd is left to
the API server, which says better what is wrong with it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from gantree.executors.kubernetes.apiserver.objects import Pod
from gantree.executors.kubernetes.nodes.compute_partitions import RESOURCE as PARTITION
from gantree.executors.kubernetes.pods.annotations import FIRST_NODE
from gantree.executors.kubernetes.pods.environment import OF_PLACE, OF_RANK, environment
from gantree.executors.kubernetes.pods.gang_spec import (
    InvalidObject,
    Spec,
    flag,
    labels,
    table,
    tables,
    text,
    texts,
)
from gantree.executors.kubernetes.workloads.gang_labels import group_of
from gantree.executors.kubernetes.workloads.gangjob import MASTER_PORT

Json = dict[str, Any]

ENVIRONMENT, RDMA = "gantree.io/environment", "gantree.io/rdma"
NONE, ASKED = "none", "true"
IPC_LOCK = "IPC_LOCK"
RANKS = frozenset({"RANK", "WORLD_SIZE", "MASTER_ADDR", "NODE_RANK", "PET_NNODES", "PET_NODE_RANK"})
"""A container that sets one of these gets its ranks from another controller."""
_OF_RDMA = "rdma/"
_GPUS, _PARTS_OF_GPUS = frozenset({"nvidia.com/gpu", "amd.com/gpu"}), "nvidia.com/mig-"
_SHARED = "nvidia.com/gpu.shared"


@dataclass(frozen=True, slots=True)
class Site:
    """What a site adds: variables of containers with GPUs, and the RDMA resource of pods that ask for one."""

    scheduler: str = "gantree"
    variables: tuple[tuple[str, str], ...] = ()
    rdma: str = ""
    rdma_count: int = 1


def patch_of(pod: Spec, site: Site) -> list[Json]:
    """The operations that make a pod what it is to be; none where it is that already, or is not ours, or is odd."""
    try:
        spec = table(pod, "spec")
        if text(spec, "schedulerName") != site.scheduler:
            return []
        wants = labels(table(pod, "metadata"), "annotations")
        values, from_pod = _of_gang(pod, spec, wants)
        found = list(tables(spec, "containers"))
        made = [_container(each, site, wants, values, from_pod) for each in found]
    except (InvalidObject, msgspec.ValidationError):
        return []
    return [
        {"op": "add", "path": f"/spec/containers/{number}/{field}", "value": after[field]}
        for number, (before, after) in enumerate(zip(found, made, strict=True))
        for field in after
        if before.get(field) != after[field]
    ]


def _of_gang(
    pod: Spec, spec: Spec, wants: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """The variables of a pod that is of a gang: those with a value, and those that come from its annotations."""
    if wants.get(ENVIRONMENT) == NONE or group_of(msgspec.convert(pod, Pod)) is None:
        return {}, {}
    from_pod = {**OF_PLACE, **OF_RANK}
    if not flag(spec, "hostNetwork"):
        return {}, from_pod
    master = f"metadata.annotations['{FIRST_NODE}']"
    port = str(MASTER_PORT)
    return (
        {"MASTER_PORT": port, "PET_MASTER_PORT": port},
        {**from_pod, "MASTER_ADDR": master, "PET_MASTER_ADDR": master},
    )


def _container(
    told: Spec,
    site: Site,
    wants: Mapping[str, str],
    values: Mapping[str, str],
    from_pod: Mapping[str, str],
) -> Json:
    """A container with what it is to have beside its own."""
    has_own = any(text(each, "name") in RANKS for each in tables(told, "env"))
    if has_own and from_pod:
        values, from_pod = {}, OF_PLACE
    has_gpus = any(map(_is_gpu, _asked(told)))
    of_site = dict(site.variables) if has_gpus else {}
    env = environment(told, {**of_site, **values}, from_pod)
    made: Json = {**told, "env": env} if env else dict(told)
    if wants.get(RDMA) == ASKED:
        made = _with_lock(_with_rdma(made, site) if has_gpus else made)
    return made


def _asked(container: Spec) -> Iterator[str]:
    """Return the resources that a container requests; those of its claims are unknown."""
    resources = table(container, "resources")
    for kind in ("requests", "limits"):
        yield from table(resources, kind)


def _is_gpu(resource: str) -> bool:
    is_nvidia = resource == _SHARED or resource.startswith(_PARTS_OF_GPUS)
    return resource in _GPUS or is_nvidia or PARTITION.fullmatch(resource) is not None


def _has_rdma(container: Spec) -> bool:
    return any(each.startswith(_OF_RDMA) for each in _asked(container))


def _with_rdma(container: Json, site: Site) -> Json:
    if not site.rdma or _has_rdma(container):
        return container
    resources, more = table(container, "resources"), {site.rdma: str(site.rdma_count)}
    both = {kind: {**table(resources, kind), **more} for kind in ("requests", "limits")}
    return {**container, "resources": {**resources, **both}}


def _with_lock(container: Json) -> Json:
    context = table(container, "securityContext")
    capabilities = table(context, "capabilities")
    there = texts(capabilities, "add")
    if not _has_rdma(container) or flag(context, "privileged") or IPC_LOCK in there:
        return container
    more = {**capabilities, "add": [*there, IPC_LOCK]}
    return {**container, "securityContext": {**context, "capabilities": more}}
