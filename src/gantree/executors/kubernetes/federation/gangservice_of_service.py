"""The GangService of a service of a federation. Pure; `gangjob_of_job` has the part that is a gang.

A service is updated under its name, so the GangService has that, and not a digest. What is not asked for is written as
null: an update takes away what the description before it had.
"""

import re
from dataclasses import asdict
from typing import Any

from gantree.executors.kubernetes.federation.gangjob_of_job import Volumes, gang_fields, origin_of
from gantree.executors.kubernetes.services.gang_service import API_VERSION, KIND
from gantree.model.errors import Unsupported
from gantree.model.services import Autoscaling, Routing, ScaleSteps, ScaleTarget, ServiceSpec

Json = dict[str, Any]
PORT = 8000
"""Of a service that names none: each pod has an address of its own."""
LEAST_S = 1.0
"""Probes of Kubernetes come in whole seconds."""
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,32}[a-z0-9])?")
ALLOWED = "at most 34 lower-case letters, digits and `-`, a letter first"


def gangservice_of(
    service: ServiceSpec, namespace: str, scheduler: str, volumes: Volumes = ()
) -> Json:
    """The manifest. Raises Unsupported for what a GangService cannot say."""
    if not _NAME.fullmatch(service.name):
        raise Unsupported(f"a GangService of Kubernetes has no name {service.name}: {ALLOWED}")
    if 0 in (service.cache_events_port, service.cache_replay_port):
        raise Unsupported("a GangService of Kubernetes has no free port for cache_events: name it")
    gang = gang_fields(service.replica, volumes)
    del gang["restarts"]["limit"]  # a replica is started again as often as it fails
    count, update = service.replicas, service.update
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": service.name, "namespace": namespace, **origin_of(service.replica)},
        "spec": {
            "schedulerName": scheduler,
            "replicas": asdict(count),
            "port": service.port or PORT,
            "ready": _ready(service),
            "update": {"surge": update.surge, "unavailable": update.unavailable},
            "drainSeconds": service.drain_s,
            "spread": None
            if service.spread is None
            else {"tier": service.spread, "required": service.spread_required},
            "scale": _scale(service.scaling),
            "route": _route(service.routing, service.name),
            "cacheEvents": _cache_events(service),
            "template": {"spec": gang},
        },
    }


def _ready(service: ServiceSpec) -> Json:
    ready = service.ready
    return {
        "http": ready.http_path,
        "everySeconds": max(LEAST_S, ready.every_s),
        "timeoutSeconds": max(LEAST_S, ready.timeout_s),
        "failures": ready.failures,
        "withinSeconds": max(LEAST_S, ready.within_s),
    }


def _scale(scaling: Autoscaling) -> Json:
    return {
        "targets": [_target(each) for each in scaling.targets],
        "everySeconds": max(LEAST_S, scaling.every_s),
        "tolerance": scaling.tolerance,
        "up": _steps(scaling.up),
        "down": _steps(scaling.down),
        "toZeroSeconds": scaling.to_zero_s,
        "predict": scaling.predict,
    }


def _target(each: ScaleTarget) -> Json:
    what = {"query": each.query} if each.query else {"metric": each.metric}
    return {**what, "target": each.target, "perReplica": each.per_replica}


def _steps(steps: ScaleSteps) -> Json:
    return {
        "stabiliseSeconds": steps.stabilise_s,
        "atMost": steps.at_most,
        "perSeconds": max(LEAST_S, steps.per_s),
    }


def _route(routing: Routing, name: str) -> Json:
    return {
        "models": list(routing.models or (name,)),
        "concurrency": routing.concurrency,
        "queue": routing.queue,
        "waitSeconds": routing.wait_s,
        "timeoutSeconds": max(LEAST_S, routing.timeout_s),
        "affinity": routing.affinity,
        "tokenizer": routing.tokenizer or None,
    }


def _cache_events(service: ServiceSpec) -> Json | None:
    if service.cache_events_port is None:
        return None
    return {"port": service.cache_events_port, "replayPort": service.cache_replay_port}
