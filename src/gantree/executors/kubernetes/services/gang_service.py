"""GangService, gantree's custom resource for services: its fields. Pure.

`deploy/kubernetes/crds/gangservices.yaml` is its schema. It has the words of a job file of `kind: service`, and instead
of a gang the template of a GangJob, which is one replica. How many replicas are wanted is a field of the spec, as of a
Deployment: whoever may scale it writes there, through the subresource `scale`.
"""

from dataclasses import dataclass, replace

from gantree.executors.kubernetes.apiserver.objects import Group
from gantree.executors.kubernetes.apiserver.settings import SCHEDULER
from gantree.executors.kubernetes.pods.gang_spec import (
    InvalidObject,
    Spec,
    amount,
    count,
    flag,
    table,
    tables,
    text,
    texts,
)
from gantree.executors.kubernetes.workloads.gangjob import gang_spec
from gantree.executors.kubernetes.workloads.serving import HIGHEST_PORT, port_of, readiness_of
from gantree.model.replicas import Readiness
from gantree.model.services import (
    AFFINITIES,
    METRICS,
    Autoscaling,
    ReplicaCount,
    Routing,
    ScaleSteps,
    ScaleTarget,
    Update,
)

API_VERSION, KIND = "gantree.io/v1alpha1", "GangService"
_UPDATE, _SCALING, _ROUTING = Update(), Autoscaling(), Routing()
DRAIN_S = 30.0


@dataclass(frozen=True, slots=True)
class GangService:
    """A GangService as its author wrote it. template is that of the GangJobs; wanted is how many, within the bounds."""

    namespace: str
    name: str
    template: Spec
    replicas: ReplicaCount
    wanted: int
    port: int
    ready: Readiness
    update: Update
    drain_s: float
    spread: str | None
    spread_required: bool
    scaling: Autoscaling
    routing: Routing
    cache_events_port: int | None = None
    cache_replay_port: int | None = None

    @property
    def full_name(self) -> str:
        """The name of the service in gantree, for there is one in each namespace: namespaces have no dots."""
        return f"{self.namespace}.{self.name}"


def scheduler_of_service(spec: Spec) -> str:
    """The schedulerName of the gantree that a GangService is for."""
    return str(spec.get("schedulerName") or SCHEDULER)


def gang_service(group: Group) -> GangService:
    """Read a GangService. Raises InvalidObject, also where its template makes no gang."""
    spec, meta = group.spec, group.metadata
    template = table(spec, "template")
    of_gang = table(template, "spec")
    if not tables(of_gang, "gang") or gang_spec(of_gang).members < 1:
        raise InvalidObject("template.spec.gang has no member")
    replicas = _replicas(table(spec, "replicas"))
    spread = table(spec, "spread")
    drain_s = amount(spec, "drainSeconds")
    return GangService(
        namespace=meta.namespace,
        name=meta.name,
        template=template,
        replicas=replicas,
        wanted=_wanted(table(spec, "replicas"), replicas),
        port=port_of(spec),
        ready=readiness_of(spec),
        update=_update(table(spec, "update")),
        drain_s=DRAIN_S if drain_s is None else drain_s,
        spread=text(spread, "tier"),
        spread_required=flag(spread, "required"),
        scaling=_scaling(table(spec, "scale")),
        routing=_routing(table(spec, "route"), meta.name),
        cache_events_port=_port(table(spec, "cacheEvents"), "port"),
        cache_replay_port=_port(table(spec, "cacheEvents"), "replayPort"),
    )


def _port(told: Spec, name: str) -> int | None:
    port = count(told, name)
    if port is not None and not 1 <= port <= HIGHEST_PORT:
        raise InvalidObject(f"cacheEvents.{name} is no port from 1 to {HIGHEST_PORT}")
    return port


def _replicas(told: Spec) -> ReplicaCount:
    least, most = count(told, "min"), count(told, "max")
    least = 1 if least is None else least
    most = max(least, 1) if most is None else most
    if not least <= most or most < 1:
        raise InvalidObject("replicas.max is less than replicas.min, or than one")
    return ReplicaCount(least, most, count(told, "floor") or 0, count(told, "spare") or 0)


def _wanted(told: Spec, replicas: ReplicaCount) -> int:
    """The replicas that are wanted, within the bounds; the least where nobody has said."""
    wanted = count(told, "wanted")
    return max(replicas.min, min(replicas.max, replicas.min if wanted is None else wanted))


def _update(told: Spec) -> Update:
    surge, unavailable = count(told, "surge"), count(told, "unavailable")
    update = Update(
        _UPDATE.surge if surge is None else surge,
        _UPDATE.unavailable if unavailable is None else unavailable,
    )
    if not update.surge and not update.unavailable:
        raise InvalidObject("update.surge and update.unavailable are both 0: no replica may change")
    return update


def _scaling(told: Spec) -> Autoscaling:
    tolerance, to_zero = amount(told, "tolerance"), amount(told, "toZeroSeconds")
    return Autoscaling(
        targets=tuple(map(_target, tables(told, "targets"))),
        every_s=amount(told, "everySeconds") or _SCALING.every_s,
        tolerance=_SCALING.tolerance if tolerance is None else tolerance,
        up=_steps(table(told, "up"), _SCALING.up),
        down=_steps(table(told, "down"), _SCALING.down),
        to_zero_s=_SCALING.to_zero_s if to_zero is None else to_zero,
        predict=flag(told, "predict"),
    )


def _target(told: Spec) -> ScaleTarget:
    metric, query, target = (
        text(told, "metric") or "",
        text(told, "query") or "",
        amount(told, "target"),
    )
    if bool(metric) == bool(query) or not target:
        raise InvalidObject(
            "a target of scale.targets has a metric or a query, and a target above 0"
        )
    if metric and metric not in METRICS:
        raise InvalidObject(
            f"scale.targets has no metric {metric!r}; there are {', '.join(METRICS)}"
        )
    per_replica = flag(told, "perReplica") if told.get("perReplica") is not None else True
    return ScaleTarget(metric, target, query, per_replica)


def _steps(told: Spec, default: ScaleSteps) -> ScaleSteps:
    stabilise = amount(told, "stabiliseSeconds")
    return replace(
        default,
        stabilise_s=default.stabilise_s if stabilise is None else stabilise,
        at_most=count(told, "atMost") or default.at_most,
        per_s=amount(told, "perSeconds") or default.per_s,
    )


def _routing(told: Spec, name: str) -> Routing:
    queue, wait = count(told, "queue"), amount(told, "waitSeconds")
    affinity = text(told, "affinity") or _ROUTING.affinity
    if affinity not in AFFINITIES:
        raise InvalidObject(f"route.affinity is none of {', '.join(AFFINITIES)}")
    return Routing(
        models=texts(told, "models") or (name,),
        concurrency=count(told, "concurrency") or 0,
        queue=_ROUTING.queue if queue is None else queue,
        wait_s=_ROUTING.wait_s if wait is None else wait,
        timeout_s=amount(told, "timeoutSeconds") or _ROUTING.timeout_s,
        affinity=affinity,
        tokenizer=text(told, "tokenizer") or "",
    )
