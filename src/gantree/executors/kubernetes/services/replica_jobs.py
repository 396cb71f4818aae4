"""The GangJobs of a GangService: what each is made of, and what its labels and annotations say. Pure.

A GangJob never changes once it is made, so a rolling update makes others. Its label `gantree.io/revision` is a digest
of what it was made of, as the `pod-template-hash` of a Deployment; what only concerns numbers (replicas, scaling,
routes) is not part of it. The schema of the template fills in no defaults, so that a new version of the definition is
no new revision.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from gantree.executors.kubernetes.apiserver.conditions import seconds_of
from gantree.executors.kubernetes.apiserver.objects import Group
from gantree.executors.kubernetes.pods.gang_spec import Spec, labels, table, tables
from gantree.executors.kubernetes.services.gang_service import (
    API_VERSION,
    KIND,
    GangService,
    scheduler_of_service,
)
from gantree.executors.kubernetes.workloads import gangjob
from gantree.executors.kubernetes.workloads.gangjob import gang_spec
from gantree.executors.kubernetes.workloads.serving import SERVES, SERVICE

Json = dict[str, Any]

REVISION, REPLICA = "gantree.io/revision", "gantree.io/replica"
"""Labels of a GangJob: a digest of what it was made of, and its number in its service."""
DRAIN_UNTIL = "gantree.io/drain-until"
"""An annotation of a GangJob that is to end: when it is deleted at the latest."""
PRIORITY = "serving"
"""The class of a service that names none."""
RESTARTS = 1_000_000
"""A replica is started again as often as it fails."""
DIGITS = 10
WEIGHT = 100
"""Of the preference for other domains than those of the other replicas."""


def revision_of(service: GangService) -> str:
    """A digest of what the replicas of a service are made of."""
    made_of = {
        "template": service.template,
        "port": service.port,
        "ready": asdict(service.ready),
        "spread": (service.spread, service.spread_required),
        "drain": service.drain_s,
    }
    text = json.dumps(made_of, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def replica_name(service: str, number: int) -> str:
    """The name of a replica's GangJob."""
    return f"{service}-{number}"


def number_of(group: Group) -> int | None:
    """Which replica of its service a GangJob is; None for one that is none."""
    said = group.metadata.labels.get(REPLICA, "")
    return int(said) if said.isascii() and said.isdecimal() and len(said) < 10 else None


def drain_until(group: Group) -> float | None:
    """When a replica that is to end is deleted at the latest; None for one that is not to end."""
    said = group.metadata.annotations.get(DRAIN_UNTIL)
    return None if said is None else seconds_of(said) or 0.0


def draining(until: float) -> Json:
    """The change that makes a GangJob one that is to end."""
    said = datetime.fromtimestamp(until, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {"metadata": {"annotations": {DRAIN_UNTIL: said}}}


def replica_body(
    service: GangService, owner: Group, number: int, topology_key: str | None, *, is_floor: bool
) -> Json:
    """The GangJob of a new replica. topology_key is the label of nodes by which replicas are spread, None for none.

    is_floor: it is not preemptible. Raises InvalidObject.
    """
    name, revision = replica_name(service.name, number), revision_of(service)
    told = table(service.template, "metadata")
    own = {SERVICE: service.name, REVISION: revision}
    of_gang = table(service.template, "spec")
    roles = [_role(role, service, name, own, topology_key) for role in tables(of_gang, "gang")]
    restarts = {"limit": RESTARTS, **table(of_gang, "restarts")}
    spec: Json = {"priority": PRIORITY, **of_gang, "restarts": restarts, "gang": roles}
    if is_floor:
        spec["preemptible"] = False
    spec["schedulerName"] = scheduler_of_service(owner.spec)
    spec["serving"] = _serving(service)
    return {
        "apiVersion": gangjob.API_VERSION,
        "kind": gangjob.KIND,
        "metadata": {
            "name": name,
            "namespace": service.namespace,
            "labels": {**labels(told, "labels"), **own, REPLICA: str(number)},
            "annotations": dict(labels(told, "annotations")),
            "ownerReferences": [_owner(owner)],
        },
        "spec": spec,
    }


def _serving(service: GangService) -> Json:
    ready = service.ready
    told = {
        "http": ready.http_path,
        "everySeconds": ready.every_s,
        "timeoutSeconds": ready.timeout_s,
        "failures": ready.failures,
        "withinSeconds": ready.within_s,
    }
    asked = {name: value for name, value in told.items() if value is not None}
    return {"service": service.name, "port": service.port, "ready": asked}


def _role(
    role: Spec, service: GangService, name: str, own: Mapping[str, str], topology_key: str | None
) -> Json:
    """A role whose pods are known as those of their service, have time to drain, and keep away from other replicas."""
    template = table(role, "template")
    meta, pod = table(template, "metadata"), table(template, "spec")
    grace = {"terminationGracePeriodSeconds": max(round(service.drain_s), 1)}
    spec = {**grace, **pod}
    if topology_key is not None:
        spec["affinity"] = _apart(service, name, own, table(pod, "affinity"), topology_key)
    metadata = {**meta, "labels": {**labels(meta, "labels"), **own}}
    return {**role, "template": {**template, "metadata": metadata, "spec": spec}}


def _apart(
    service: GangService, name: str, own: Mapping[str, str], told: Spec, topology_key: str
) -> Json:
    """Affinities of a pod, and that it stands in another domain than the other replicas of its revision.

    Only of its revision, so that a rolling update needs no more domains than there are replicas.
    """
    selector: Json = {"matchLabels": dict(own)}
    if gang_spec(table(service.template, "spec")).members > 1:
        others = [{"key": gangjob.OF_GANGJOB, "operator": "NotIn", "values": [name]}]
        selector["matchExpressions"] = others
    term: Json = {"topologyKey": topology_key, "labelSelector": selector}
    kind = "requiredDuringSchedulingIgnoredDuringExecution"
    if not service.spread_required:
        kind = "preferredDuringSchedulingIgnoredDuringExecution"
        term = {"weight": WEIGHT, "podAffinityTerm": term}
    anti = table(told, "podAntiAffinity")
    return {**told, "podAntiAffinity": {**anti, kind: [*tables(anti, kind), term]}}


def front_of(service: GangService, owner: Group) -> Json:
    """The Kubernetes Service of a GangService: the first pods of its replicas that are ready and do not drain."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": service.name,
            "namespace": service.namespace,
            "labels": {SERVICE: service.name},
            "ownerReferences": [_owner(owner)],
        },
        "spec": {
            "selector": {SERVES: service.name},
            "ports": [{"name": "http", "port": service.port, "targetPort": service.port}],
        },
    }


def _owner(group: Group) -> Json:
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": group.metadata.name,
        "uid": group.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
