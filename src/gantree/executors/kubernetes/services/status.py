"""The status of a GangService. Pure.

Its conditions are those of a Deployment: Available while enough replicas are ready, Progressing while it goes from one
revision or number to another, and why it does not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gantree.executors.kubernetes.apiserver.conditions import with_transition
from gantree.executors.kubernetes.apiserver.objects import Group
from gantree.executors.kubernetes.services.gang_service import GangService
from gantree.executors.kubernetes.services.replica_jobs import revision_of
from gantree.executors.kubernetes.services.replicas import Replica, ready_of
from gantree.executors.kubernetes.workloads.serving import SERVES
from gantree.executors.kubernetes.writes.pod_status import MISCONFIGURED

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class NotMade:
    """An object that the server refused: a "Replica" or the "Service"; and why."""

    kind: str
    why: str


def status_of(
    group: Group,
    service: GangService,
    replicas: Sequence[Replica],
    last: int,
    refused: NotMade | None,
    now: float,
) -> Json:
    """What is to be said of a service; last is the highest number of a replica, refused what was not made, and why."""
    revision = revision_of(service)
    there = [each for each in replicas if not each.is_ending]
    ready, current = ready_of(there), sum(each.revision == revision for each in there)
    needed = max(service.wanted - service.update.unavailable, 0)
    waits = [each for each in there if not each.is_ready]
    is_complete = ready == service.wanted == current == len(replicas) and refused is None
    reason, message = _progress(is_complete, refused, waits)
    conditions = [
        _condition("Available", str(ready >= needed), "ReplicasReady" if ready >= needed else "TooFewReady",
                   f"{ready} of {service.wanted} replicas are ready"),
        _condition("Progressing", str(not refused), reason, message),
    ]  # fmt: skip
    return {
        "observedGeneration": group.metadata.generation,
        "wanted": service.wanted,
        "replicas": len(there),
        "readyReplicas": ready,
        "updatedReplicas": current,
        "drainingReplicas": len(replicas) - len(there),
        "revision": revision,
        "lastReplica": last,
        "selector": f"{SERVES}={service.name}",
        "reason": None if is_complete else reason,
        "message": None if is_complete else message,
        "conditions": [with_transition(each, group.status, now) for each in conditions],
    }


def _progress(
    is_complete: bool, refused: NotMade | None, waits: Sequence[Replica]
) -> tuple[str, str]:
    """Why it is not as it is wanted yet: the first replica that waits says why."""
    if refused:
        return f"{refused.kind}NotMade", refused.why
    if is_complete:
        return "Complete", "all replicas are ready and of this revision"
    for each in waits:
        told = each.gangjob.status
        if told.get("phase") == "Pending" and isinstance(told.get("message"), str):
            return str(told.get("reason") or "Waiting"), f"{each.name}: {told['message']}"
    return "ReplicasChange", "replicas start, get ready, or end"


def misconfigured(group: Group, why: str, now: float) -> Json:
    """What is said of one that cannot be read; its replicas stay as they are."""
    condition = _condition("Progressing", "False", MISCONFIGURED, why)
    told = group.status.get("conditions")
    others = [each for each in told if each.get("type") != "Progressing"] if isinstance(told, list) else []  # fmt: skip
    return {
        "observedGeneration": group.metadata.generation,
        "reason": MISCONFIGURED,
        "message": why,
        "conditions": [*others, with_transition(condition, group.status, now)],
    }


def _condition(kind: str, status: str, reason: str, message: str) -> Json:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def last_replica(status: Mapping[str, Any]) -> int:
    """The highest number of a replica that a status has."""
    said = status.get("lastReplica")
    return said if isinstance(said, int) and said > 0 else 0
