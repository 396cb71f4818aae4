"""A document with `kind: service` to `ServiceSpec`."""

from gantree.formats.job.service_form import (
    CacheEventsForm,
    ReadyForm,
    RouteForm,
    ScaleForm,
    ServiceForm,
    StepsForm,
    TargetForm,
)
from gantree.model.jobs import Job
from gantree.model.replicas import Readiness
from gantree.model.services import (
    Autoscaling,
    ReplicaCount,
    Routing,
    ScaleSteps,
    ScaleTarget,
    ServiceSpec,
    Update,
)


def service_of(form: ServiceForm, replica: Job) -> ServiceSpec:
    """The service of a document; replica is its gang."""
    count, update, spread = form.replicas, form.update, form.spread
    return ServiceSpec(
        name=form.name,
        replica=replica,
        replicas=ReplicaCount(count.min, count.most, count.floor, count.spare),
        port=form.port,
        ready=_readiness(form.ready),
        update=Update(update.surge, update.unavailable),
        drain_s=form.drain,
        spread=spread.tier if spread else None,
        spread_required=spread.required if spread else False,
        scaling=_autoscaling(form.scale),
        routing=_routing(form.route),
        **_cache_ports(form.cache_events),
    )


def _cache_ports(form: CacheEventsForm | None) -> dict[str, int | None]:
    """Ports that are named; without any, both are chosen."""
    if form is None:
        return {}
    if form.port is None and form.replay_port is None:
        return {"cache_events_port": 0, "cache_replay_port": 0}
    return {"cache_events_port": form.port or 0, "cache_replay_port": form.replay_port}


def _readiness(form: ReadyForm) -> Readiness:
    return Readiness(form.http, form.every, form.timeout, form.failures, form.within)


def _autoscaling(form: ScaleForm) -> Autoscaling:
    default = Autoscaling()
    return Autoscaling(
        targets=tuple(map(_target, form.on)),
        every_s=form.every,
        tolerance=form.tolerance,
        up=_steps(form.up, default.up),
        down=_steps(form.down, default.down),
        to_zero_s=form.to_zero,
        predict=form.predict,
    )


def _target(form: TargetForm) -> ScaleTarget:
    per_replica = True if form.per_replica is None else form.per_replica
    return ScaleTarget(form.metric or "", form.target, form.query or "", per_replica)


def _steps(form: StepsForm, default: ScaleSteps) -> ScaleSteps:
    stabilise_s = default.stabilise_s if form.stabilise is None else form.stabilise
    return ScaleSteps(stabilise_s, form.at_most, form.per)


def _routing(form: RouteForm) -> Routing:
    models = tuple(dict.fromkeys(form.models))
    return Routing(
        models,
        form.concurrency,
        form.queue,
        form.wait,
        form.timeout,
        form.affinity,
        form.tokenizer or "",
    )
