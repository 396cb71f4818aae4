"""A ProvisioningRequest (`autoscaling.x-k8s.io`) for a whole gang: its objects, and what its conditions say.

One request names all pods of the gang, one pod set a role, so an autoscaler makes nodes for all of them or for none.
Each pod template has the labels of the node group as its node selector: all nodes come from that group. The first pod
owns the request and its templates, so they go with it. Types: kubernetes/autoscaler,
`cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1/types.go`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gantree.executors.kubernetes.apiserver.objects import Group, Pod
from gantree.executors.kubernetes.pods.gang_spec import GroupKind
from gantree.executors.kubernetes.workloads.gangs import Gang
from gantree.executors.kubernetes.workloads.keys import Key
from gantree.model.node_groups import NodeGroup

Json = dict[str, Any]

PROVISIONING = GroupKind("autoscaling.x-k8s.io", "provisioningrequests", ("v1", "v1beta1"))
CONSUMES = "autoscaling.x-k8s.io/consume-provisioning-request"
CLASS = "autoscaling.x-k8s.io/provisioning-class-name"
"""Annotations of pods for which an autoscaler is to make no nodes beside those of the request."""
GANG_NAME, GANG_KIND = "gantree.io/gang-name", "gantree.io/gang-kind"
FIRST_POD, NODE_GROUP, ATTEMPT = "gantree.io/first-pod", "gantree.io/node-group", "gantree.io/attempt"  # fmt: skip
MOST_SETS = 32
LONGEST = 200
FIRST_PAUSE_S, LONGEST_PAUSE_S = 60.0, 1800.0
_NO_NAME = re.compile(r"[^a-z0-9.-]+")
_TOKEN = "kube-api-access-"  # noqa: S105 - the name of a volume


class Stage(StrEnum):
    """How far a request is."""

    CREATED = "not accepted yet"
    ACCEPTED = "accepted"
    PROVISIONED = "provisioned"
    EXPIRED = "its booking has expired"
    REVOKED = "its capacity was revoked"
    FAILED = "failed"


OVER = frozenset({Stage.EXPIRED, Stage.REVOKED, Stage.FAILED})
"""Requests that bring no nodes any more."""
_CONDITIONS = (
    ("Failed", Stage.FAILED),
    ("CapacityRevoked", Stage.REVOKED),
    ("BookingExpired", Stage.EXPIRED),
    ("Provisioned", Stage.PROVISIONED),
    ("Accepted", Stage.ACCEPTED),
)
"""The first that is true counts."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request for a gang, as it is on the server."""

    namespace: str
    name: str
    gang: Key
    first_pod: str
    node_group: str
    attempt: int
    templates: tuple[str, ...]
    stage: Stage
    message: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request that is to be made: of a gang, for nodes of a group; the how-manieth."""

    gang: Gang
    group: NodeGroup
    attempt: int

    @property
    def namespace(self) -> str:
        """Where it is made."""
        return self.gang.key[0]

    @property
    def name(self) -> str:
        """A name that tells gangs and attempts apart."""
        word = _NO_NAME.sub("-", self.gang.key[1].lower()).strip("-.")[:LONGEST] or "gang"
        return f"{word}-{self.gang.pods[0].metadata.uid[:8]}-{self.attempt}"

    @property
    def templates(self) -> list[tuple[str, Pod, int]]:
        """The name of each pod template, a pod that it is like, and how many there are."""
        return [
            (f"{self.name}-{number}", pods[0], len(pods))
            for number, (_, pods) in enumerate(self.gang.roles)
        ]


def said_of(request: Request) -> str:
    """What a gang waits for, as a part of a sentence."""
    asked = f"ProvisioningRequest {request.name} asks node group {request.node_group} for the whole gang"
    said = f": {request.message}" if request.stage in OVER and request.message else ""
    return f"{asked} ({request.stage}{said})"


def pause_s(attempt: int) -> float:
    """How long to wait after an attempt that came to nothing."""
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(attempt - 1, 16))


def read_request(group: Group) -> Request | None:
    """A request of ours; None for anybody else's."""
    meta = group.metadata
    told = meta.annotations
    if not told.get(GANG_NAME) or not told.get(ATTEMPT, "").isdecimal():
        return None
    stage, message = _stage(group.status.get("conditions") or ())
    sets = group.spec.get("podSets") or ()
    return Request(
        meta.namespace,
        meta.name,
        (meta.namespace, told[GANG_NAME], told.get(GANG_KIND, "")),
        told.get(FIRST_POD, ""),
        told.get(NODE_GROUP, ""),
        int(told[ATTEMPT]),
        tuple(str((each.get("podTemplateRef") or {}).get("name")) for each in sets),
        stage,
        message,
    )


def _stage(conditions: Sequence[Mapping[str, Any]]) -> tuple[Stage, str]:
    true = {str(each.get("type")): each for each in conditions if each.get("status") == "True"}
    for name, stage in _CONDITIONS:
        if name in true:
            return stage, str(true[name].get("message") or true[name].get("reason") or "")
    return Stage.CREATED, ""


def request_body(wanted: Wanted, version: str) -> Json:
    """The request."""
    group = wanted.group
    spec: Json = {
        "provisioningClassName": group.provisioning_class,
        "podSets": [
            {"podTemplateRef": {"name": name}, "count": count}
            for name, _, count in wanted.templates
        ],
    }
    if group.parameters:
        spec["parameters"] = dict(group.parameters)
    return {
        "apiVersion": f"{PROVISIONING.group}/{version}",
        "kind": "ProvisioningRequest",
        "metadata": {
            **_metadata(wanted, wanted.name),
            "annotations": {
                GANG_NAME: wanted.gang.key[1],
                GANG_KIND: wanted.gang.key[2],
                FIRST_POD: wanted.gang.pods[0].metadata.uid,
                NODE_GROUP: group.name,
                ATTEMPT: str(wanted.attempt),
            },
        },
        "spec": spec,
    }


def template_body(wanted: Wanted, name: str, pod: Json) -> Json:
    """The template of pods like one, as the server has it, on nodes of the group."""
    spec = {key: value for key, value in pod["spec"].items() if key != "schedulingGates"}
    spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **dict(wanted.group.labels)}
    spec["volumes"] = [each for each in spec.get("volumes") or () if not _is_token(each)]
    for kind in ("containers", "initContainers"):
        if spec.get(kind):
            spec[kind] = [_without_token(each) for each in spec[kind]]
    labels = pod["metadata"].get("labels") or {}
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": _metadata(wanted, name),
        "template": {"metadata": {"labels": labels}, "spec": spec},
    }


def _metadata(wanted: Wanted, name: str) -> Json:
    first = wanted.gang.pods[0].metadata
    owner = {"apiVersion": "v1", "kind": "Pod", "name": first.name, "uid": first.uid}
    return {"name": name, "namespace": wanted.namespace, "ownerReferences": [owner]}


def _is_token(volume: Mapping[str, Any]) -> bool:
    """Whether a volume is that of a service account, which the server gives each pod."""
    return str(volume.get("name", "")).startswith(_TOKEN)


def _without_token(container: Json) -> Json:
    mounts = [each for each in container.get("volumeMounts") or () if not _is_token(each)]
    return {**container, "volumeMounts": mounts}
