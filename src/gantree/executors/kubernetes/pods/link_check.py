"""The check before the start in a pod: its init container, and the annotation that says what is asked. Pure.

It has the devices of the first container, to which the kubelet gives the same, and runs before all others. Of the pod's
own words it has addresses alone; its image is the operator's, because a verdict takes nodes away from everybody.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gantree.executors.check_plan import NETWORK_VARIABLES
from gantree.executors.kubernetes.apiserver.objects import Pod
from gantree.executors.kubernetes.pods.environment import OF_PLACE
from gantree.executors.kubernetes.pods.gang_spec import (
    InvalidObject,
    Spec,
    amount,
    flag,
    table,
    tables,
    text,
)
from gantree.model.jobs import Check

Json = dict[str, Any]

NAME = "gantree-check"
CHECK = "gantree.io/check"
"""The annotation: "60s", "60s required", "600s required soak 360s"."""
COMMAND = ("python3", "-m", "gantree.telemetry.checking.pod")
LEAST_S, MOST_S = 1.0, 3600.0
_SECONDS = r"([0-9]{1,4}(?:\.[0-9]{1,3})?)s"
_ASKED = re.compile(rf"{_SECONDS}( required)?(?: soak {_SECONDS})?", re.ASCII)
_WRITABLE = "readOnlyRootFilesystem"


def check_in(spec: Spec) -> Check | None:
    """The check that a GangJob asks for. Raises InvalidObject."""
    told = table(spec, "check")
    if not told:
        return None
    seconds = amount(told, "collectiveSeconds")
    if seconds is None or not LEAST_S <= seconds <= MOST_S:
        raise InvalidObject("check.collectiveSeconds is not from 1 to 3600")
    soak_s = amount(told, "soakSeconds") or 0.0
    if soak_s >= seconds:
        raise InvalidObject("check.soakSeconds is part of collectiveSeconds, and must be less")
    return Check(round(seconds, 3), required=flag(told, "required"), soak_s=round(soak_s, 3))


def check_annotation(check: Check) -> str:
    """What the annotation says of a check."""
    soak = f" soak {check.soak_s:g}s" if check.soak_s else ""
    return f"{check.collective_s:g}s{' required' if check.required else ''}{soak}"


def check_of_pods(pods: Sequence[Pod]) -> Check | None:
    """The check that the pods of a gang carry out; None where their first has no container for it."""
    first = pods[0]
    found = _ASKED.fullmatch(first.metadata.annotations.get(CHECK, ""))
    has_container = any(each.name == NAME for each in first.spec.init_containers)
    if not found or not has_container:
        return None
    return Check(float(found[1]), required=bool(found[2]), soak_s=float(found[3] or 0.0))


@dataclass(frozen=True, slots=True)
class PodCheck:
    """A check and the image that carries it out."""

    check: Check
    image: str


def check_container(
    pod: Spec, first: Spec, checked: PodCheck, addresses: Mapping[str, str]
) -> Json:
    """The init container of a pod with this spec and first container.

    addresses are MASTER_ADDR and MASTER_PORT: the gang's own, which nobody uses before its commands start. Raises
    InvalidObject where the pod has a container of that name.
    """
    names = [text(each, "name") for each in (*tables(pod, "containers"), *tables(pod, "initContainers"))]  # fmt: skip
    if NAME in names:
        raise InvalidObject(f"a container is named {NAME}, as that of the check before the start")
    told = {key: table(first, key) for key in ("resources", "securityContext")}
    told["securityContext"] = {
        key: value for key, value in told["securityContext"].items() if key != _WRITABLE
    }
    mounts = _shared_memory(pod, first)
    return {
        "name": NAME,
        "image": checked.image,
        "command": list(COMMAND),
        "env": _env(first, checked.check, addresses),
        **{key: value for key, value in told.items() if value},
        **({"volumeMounts": mounts} if mounts else {}),
    }


def _env(first: Spec, check: Check, addresses: Mapping[str, str]) -> list[Json]:
    own = {
        str(each["name"]): str(each["value"])
        for each in tables(first, "env")
        if each.get("name") in NETWORK_VARIABLES and each.get("value")
    }
    values = {
        "HOME": "/tmp",  # noqa: S108 - of a user that the image may not know
        "GANTREE_CHECK_REQUIRED": "true" if check.required else "false",
        **addresses,
        **own,
    }
    of_pod = ("GANTREE_NODE", "GANTREE_GPUS", "GANTREE_REPORT_URL", "GANTREE_REPORT_TOKEN")
    return [
        *({"name": name, "value": value} for name, value in values.items()),
        *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": OF_PLACE[name]}}} for name in of_pod),
    ]  # fmt: skip


def _shared_memory(pod: Spec, first: Spec) -> list[Json]:
    """The mounts of volumes in memory, such as a large /dev/shm, over which NCCL reaches GPUs of the same pod."""
    in_memory = {
        text(each, "name")
        for each in tables(pod, "volumes")
        if text(table(each, "emptyDir"), "medium") == "Memory"
    }
    return [dict(each) for each in tables(first, "volumeMounts") if text(each, "name") in in_memory]
