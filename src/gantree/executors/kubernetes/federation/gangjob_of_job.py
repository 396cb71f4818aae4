"""The GangJob of a job of a federation, and the part of a GangService that is a gang. Pure.

A front hands in job files; a Kubernetes cluster runs GangJobs. What a job file asks for and a GangJob has no field for
is refused: the front then chooses another cluster, and `why` has the reason. What only describes a job (its model, its
traffic, how long it is expected to run) is left out.
"""

import re
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any

from gantree.executors.kubernetes.workloads.gangjob import API_VERSION, ASSIGNMENT, KIND
from gantree.model.errors import Unsupported
from gantree.model.jobs import Job, Role, Shape, TopologySpec

Json = dict[str, Any]
Volumes = Sequence[tuple[str, str]]
"""(directory, PersistentVolumeClaim) that each pod has."""
FEDERATION = "gantree.io/federation"
"""A label: the federation that it came from."""
LONGEST_NAME, DIGITS, LONGEST_ROLE = 40, 8, 15
KEPT_S = 86_400
"""So long a GangJob stays after its end, for the logs of its pods."""
_NO_NAME = re.compile(r"[^a-z0-9]+")


def gangjob_name(job: Job) -> str:
    """The name of the GangJob of an assignment: the same each time that it is handed in, and of no other one."""
    digest = sha256(job.assignment.encode()).hexdigest()[:DIGITS]
    return f"{_slug(job.name, LONGEST_NAME - DIGITS - 1, 'job')}-{digest}"


def gangjob_of(job: Job, namespace: str, scheduler: str, volumes: Volumes = ()) -> Json:
    """The manifest. Raises Unsupported for what a GangJob cannot say."""
    spec: Json = {
        "schedulerName": scheduler,
        **gang_fields(job, volumes),
        "ttlSecondsAfterFinished": KEPT_S,
    }
    if job.elastic is not None:
        spec["elastic"] = {"min": job.elastic.min, "max": job.elastic.max}
    if job.time_limit_s is not None:
        spec["timeLimitSeconds"] = job.time_limit_s
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": gangjob_name(job), "namespace": namespace, **origin_of(job)},
        "spec": spec,
    }


def origin_of(job: Job) -> Json:
    """The labels and annotations of what a federation has handed in."""
    return {
        "labels": {FEDERATION: job.assignment.partition("/")[0]},
        "annotations": {ASSIGNMENT: job.assignment, **_project(job)},
    }


def gang_fields(job: Job, volumes: Volumes) -> Json:
    """The fields of a GangJob that the template of a GangService has, too. Raises Unsupported."""
    if unsaid := list(_unsaid(job)):
        raise Unsupported(f"a GangJob of Kubernetes has no {', '.join(unsaid)}")
    restarts = job.restarts
    return {
        "queue": job.queue,
        "priority": job.priority,
        "preemptible": job.preemptible,
        "gang": [_role(role, job, volumes) for role in job.roles],
        "topology": _topology(job.topology),
        "restarts": {
            "limit": restarts.limit,
            "backoffSeconds": restarts.backoff_s,
            "backoffMaxSeconds": restarts.backoff_max_s,
            **({} if restarts.replace_s is None else {"replaceWithinSeconds": restarts.replace_s}),
        },
    }


def _project(job: Job) -> Json:
    return {"gantree.io/project": job.project} if job.project else {}


def _role(role: Role, job: Job, volumes: Volumes) -> Json:
    return {
        "role": _slug(role.name, LONGEST_ROLE, "worker"),
        "members": role.members,
        "processes": role.processes,
        "each": _each(role.shape),
        "topology": _topology(role.topology),
        "template": {"spec": _pod(role, job, volumes)},
    }


def _each(shape: Shape) -> Json:
    devices = dict(shape.devices)
    if shape.mig is not None:
        devices[f"nvidia.com/mig-{shape.mig}"] = 1
    amounts: Json = {
        "gpus": shape.gpus,
        "cpus": shape.cpus,
        "memoryGiB": shape.memory_GiB,
        "devices": devices,
    }
    return {key: value for key, value in amounts.items() if value}


def _pod(role: Role, job: Job, volumes: Volumes) -> Json:
    container: Json = {
        "name": "main",
        "image": role.image,
        "env": [{"name": name, "value": _literal(value)} for name, value in role.env],
    }
    if role.run:
        container["command"] = [_literal(word) for word in role.run]
    if role.workdir is not None:
        container["workingDir"] = role.workdir
    pod: Json = {"containers": [container]}
    if volumes:
        names = [f"volume-{number}" for number in range(len(volumes))]
        container["volumeMounts"] = [
            {"name": name, "mountPath": path}
            for name, (path, _) in zip(names, volumes, strict=True)
        ]
        pod["volumes"] = [
            {"name": name, "persistentVolumeClaim": {"claimName": claim}}
            for name, (_, claim) in zip(names, volumes, strict=True)
        ]
    if role.shape.labels:
        pod["nodeSelector"] = dict(role.shape.labels)
    if job.checkpoint is not None:
        pod["terminationGracePeriodSeconds"] = max(1, round(job.checkpoint.grace_s))
    return pod


def _literal(text: str) -> str:
    """A text in which the kubelet replaces nothing: `$(NAME)` would be a variable."""
    return text.replace("$(", "$$(")


def _topology(asked: TopologySpec) -> Json:
    told: Json = {"required": asked.required, "preferred": asked.preferred}
    if asked.slices:
        told["slices"] = {"members": asked.slices[0].members, "required": asked.slices[0].required}
    return {key: value for key, value in told.items() if value is not None}


def _unsaid(job: Job) -> Iterator[str]:
    """What a job asks for that no field of a GangJob says, as fields of the job file."""
    topologies = [job.topology, *(role.topology for role in job.roles)]
    slices = job.topology.slices
    shapes = [role.shape for role in job.roles]
    asked = {
        "role without image": any(role.image is None for role in job.roles),
        "gpu (name node_labels)": any(shape.models for shape in shapes),
        "gpu_share": any(shape.gpu_share or shape.gpu_memory_GiB for shape in shapes),
        "nics (name devices)": any(shape.nics for shape in shapes),
        "memory_GBps": any(shape.memory_GBps for shape in shapes),
        "shapes": bool(job.alternatives),
        "topology.spread": any(each.spread for each in topologies),
        "topology.apart": any(each.apart for each in topologies),
        "topology.box": any(each.box is not None for each in topologies),
        "topology.near": any(each.near for each in topologies),
        "topology.slices of a role, or several": len(slices) > 1
        or any(each.role is not None or each.preferred for each in slices)
        or any(role.topology.slices for role in job.roles),
        "secrets": bool(job.secrets),
        "notify": job.notify is not None,
        "warn": job.warn is not None,
        "idle": job.idle is not None,
        "budget_USD": job.budget_USD is not None,
        "spot": job.spot,
        "launcher": job.variables is not None,
        "held": job.held,
        "restarts.exit_codes": bool(job.restarts.exit_codes),
    }
    return (name for name, is_asked in asked.items() if is_asked)


def _slug(name: str, longest: int, otherwise: str) -> str:
    """A name as Kubernetes has them: it begins with a letter."""
    slug = _NO_NAME.sub("-", name.lower()).strip("-")[:longest].strip("-")
    if slug and slug[0].isdigit():
        slug = f"{otherwise[0]}{slug}"[:longest].strip("-")
    return slug or otherwise
