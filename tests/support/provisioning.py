"""The definition of ProvisioningRequest, and what an autoscaler answers.

Schema: kubernetes/autoscaler, `cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1/types.go`.
"""

from typing import Any

from support.kubernetes.client import MERGE
from support.kubernetes.server.statuses import Json
from support.pods import PodStage

VERSION = "autoscaling.x-k8s.io/v1"
REQUESTS = f"/apis/{VERSION}/namespaces/default/provisioningrequests"
TEMPLATES = "/api/v1/namespaces/default/podtemplates"
SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
IMMUTABLE = [{"rule": "self == oldSelf", "message": "Value is immutable"}]


def _text(longest: int, **told: Any) -> Json:
    return {"type": "string", "maxLength": longest, **told}


def _object(required: list[str], **properties: Json) -> Json:
    told = {"required": required} if required else {}
    return {"type": "object", **told, "properties": properties}


def _list(of: Json, **told: Any) -> Json:
    return {"type": "array", "items": of, **told}


REFERENCE = _object(["name"], name=_text(253, pattern=SUBDOMAIN))
POD_SET = _object(
    ["count", "podTemplateRef"],
    count={"type": "integer", "format": "int32", "minimum": 1},
    podTemplateRef=REFERENCE,
)
PARAMETERS = {
    "type": "object",
    "maxProperties": 100,
    "additionalProperties": _text(255),
    "x-kubernetes-validations": IMMUTABLE,
}
CONDITION = _object(
    ["lastTransitionTime", "message", "reason", "status", "type"],
    lastTransitionTime={"type": "string", "format": "date-time"},
    message=_text(32768),
    observedGeneration={"type": "integer", "format": "int64", "minimum": 0},
    reason=_text(1024, minLength=1),
    status={"type": "string", "enum": ["True", "False", "Unknown"]},
    type=_text(316),
)
SCHEMA = _object(
    ["spec"],
    apiVersion={"type": "string"},
    kind={"type": "string"},
    metadata={"type": "object"},
    spec=_object(
        ["podSets", "provisioningClassName"],
        podSets=_list(POD_SET, minItems=1, maxItems=32, **{"x-kubernetes-validations": IMMUTABLE}),
        provisioningClassName=_text(
            253, pattern=SUBDOMAIN, **{"x-kubernetes-validations": IMMUTABLE}
        ),
        parameters=PARAMETERS,
    ),
    status=_object(
        [],
        conditions=_list(
            CONDITION,
            **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
        provisioningClassDetails={
            "type": "object",
            "maxProperties": 64,
            "additionalProperties": _text(32768),
        },
    ),
)


def define(stage: PodStage) -> None:
    """Install the definition."""
    version = {"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}}
    names = {
        "kind": "ProvisioningRequest",
        "listKind": "ProvisioningRequestList",
        "plural": "provisioningrequests",
        "singular": "provisioningrequest",
    }
    spec = {
        "group": "autoscaling.x-k8s.io",
        "scope": "Namespaced",
        "names": names,
        "versions": [{**version, "schema": {"openAPIV3Schema": SCHEMA}}],
    }
    stage.api.define(
        {"metadata": {"name": "provisioningrequests.autoscaling.x-k8s.io"}, "spec": spec}
    )


def requests(stage: PodStage) -> list[Json]:
    """All requests, by name."""
    found: list[Json] = stage.api.get(REQUESTS).json()["items"]
    return sorted(found, key=lambda each: str(each["metadata"]["name"]))


def templates(stage: PodStage) -> list[Json]:
    """All pod templates, by name."""
    found: list[Json] = stage.api.get(TEMPLATES).json()["items"]
    return sorted(found, key=lambda each: str(each["metadata"]["name"]))


def answer(stage: PodStage, request: Json, *types: str, message: str = "as asked") -> None:
    """An autoscaler sets these conditions to true."""
    told = {"status": "True", "reason": "Test", "message": message}
    at = {"lastTransitionTime": "2026-11-27T18:00:00Z"}
    conditions = [{**told, **at, "type": name} for name in types]
    path = f"{REQUESTS}/{request['metadata']['name']}/status"
    said = stage.api.patch(path, {"status": {"conditions": conditions}}, MERGE)
    assert said.status_code == 200, said.text
