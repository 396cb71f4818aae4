"""Rules of a service (`kind: service`) in a job file, with the line of what breaks them."""

from collections.abc import Iterator, Sequence

from gantree.formats.job.form import JobForm
from gantree.formats.job.service_form import LONGEST_NAME, RouteForm, ServiceForm, TargetForm
from gantree.model.errors import Problem
from gantree.model.jobs import SERVICE_NOTIFY_EVENTS
from gantree.model.services import LATENCIES

MOST_MODELS, LONGEST_MODEL = 32, 128
_RUNS_ON = "it in jobs, which end; a service runs until it is cancelled"
_ITS_OWN = "replicas, of which each is one gang"
_NOT_IN_SERVICES = {
    "array": _ITS_OWN,
    "elastic": _ITS_OWN,
    "after": "it in jobs; a service starts when it is submitted",
    "time_limit": _RUNS_ON,
    "warn": _RUNS_ON,
    "expected": _RUNS_ON,
    "budget_USD": "a budget of its queue in the policy: a service runs until it is cancelled",
    "idle": "`scale` with `to_zero`: a replica is never reclaimed as idle",
    "hold": "it in jobs; a service with `replicas: {min: 0}` waits for `gantree scale`",
}
"""Fields of a job that a service has not, and what is allowed in their place."""
_SET_BY_GANTREE = "PORT"


def service_problems(form: ServiceForm) -> Iterator[Problem]:
    """Yield what is wrong between the fields of one service."""
    written = form.written_fields()
    for field, allowed in _NOT_IN_SERVICES.items():
        if field in written:
            yield form.problem(field, f"`{field}` in a service", allowed)
    if len(form.name) > LONGEST_NAME and "name" not in form.lost:
        allowed = f"at most {LONGEST_NAME} characters: replicas are called NAME.NUMBER"
        yield form.problem("name", f"{len(form.name)} characters", allowed)
    yield from _restart_problems(form)
    yield from _notify_problems(form)
    yield from _port_problems(form)
    yield from _count_problems(form)
    if form.update.surge == form.update.unavailable == 0 and not form.update.lost:
        found = "surge and unavailable of 0"
        yield form.problem("update", found, "one of them at least 1, or no update could begin")
    yield from _target_problems(form.scale.on)
    yield from _model_problems(form.route)


def after_service_problems(forms: Sequence[JobForm]) -> Iterator[Problem]:
    """Yield the jobs that come after a service, which does not end."""
    services = {form.name for form in forms if isinstance(form, ServiceForm)}
    for form in forms:
        for index, name in enumerate(form.after):
            if name in services:
                found = f"the service `{name}`, which does not end"
                yield form.problem("after", found, "jobs", at=(index,))


def _restart_problems(form: ServiceForm) -> Iterator[Problem]:
    """A replica that exits is started again, however it ended and however often."""
    restarts = form.restarts
    for field, given in (
        ("limit", restarts.limit is not None),
        ("exit_codes", restarts.exit_codes),
    ):
        if given:
            allowed = "backoff, backoff_max, replace_within: replicas restart without limit"
            at = (field,) if "restarts" in form.origin else ()
            yield form.problem("restarts", f"`{field}` in a service", allowed, at=at)


def _notify_problems(form: ServiceForm) -> Iterator[Problem]:
    """Replicas start and end as load and updates have it, and are never idle."""
    for index, event in enumerate(form.notify.on if form.notify else ()):
        if form.notify and event not in SERVICE_NOTIFY_EVENTS:
            allowed = (
                f"{', '.join(SERVICE_NOTIFY_EVENTS)}: replicas start as load and updates have it"
            )
            yield form.notify.problem("on", f"`{event}` in a service", allowed, at=(index,))


def _port_problems(form: ServiceForm) -> Iterator[Problem]:
    """gantree tells each member its port."""
    for role in form.gang:
        if _SET_BY_GANTREE in role.env:
            allowed = "no PORT in env: gantree sets it; `port` of the service says which it is"
            yield role.problem("env", "`PORT`", allowed, at=(_SET_BY_GANTREE,))
    if _SET_BY_GANTREE in form.secrets:
        allowed = "other variables: gantree sets PORT"
        yield form.problem("secrets", "`PORT`", allowed, at=(_SET_BY_GANTREE,))


def _count_problems(form: ServiceForm) -> Iterator[Problem]:
    replicas = form.replicas
    if replicas.lost:
        return
    if replicas.min > replicas.most:
        yield replicas.problem("min", f"`{replicas.min}`", f"at most max, which is {replicas.most}")
    for field, found in (("floor", replicas.floor), ("spare", replicas.spare)):
        if found > replicas.most:
            yield replicas.problem(field, f"`{found}`", f"at most max, which is {replicas.most}")


def _model_problems(form: RouteForm) -> Iterator[Problem]:
    """A router hands all models of a service to its proxy in one line, which has bounds."""
    if form.lost:
        return
    if len(form.models) > MOST_MODELS:
        yield form.problem("models", f"{len(form.models)} names", f"at most {MOST_MODELS}")
    for index, model in enumerate(form.models):
        if (size := len(model.encode())) > LONGEST_MODEL:
            allowed = f"at most {LONGEST_MODEL} bytes"
            yield form.problem("models", f"a name of {size} bytes", allowed, at=(index,))


def _target_problems(targets: Sequence[TargetForm]) -> Iterator[Problem]:
    seen: set[str] = set()
    for form in targets:
        if form.lost:
            continue
        if (form.metric is None) == (form.query is None):
            found = "both metric and query" if form.metric else "neither metric nor query"
            yield form.problem("metric", found, "one of them")
            continue
        known_as = form.metric or form.query or ""
        if known_as in seen:
            field = "metric" if form.metric else "query"
            yield form.problem(field, f"`{known_as}` again", "each once")
        seen.add(known_as)
        yield from _value_problems(form)


def _value_problems(form: TargetForm) -> Iterator[Problem]:
    """A target has the unit of its metric."""
    found = f"`{form.origin['target']}`"
    if isinstance(form.origin["target"], str) and form.metric not in LATENCIES:
        yield form.problem("target", found, f"a number: durations are for {', '.join(LATENCIES)}")
    elif form.metric == "gpu_use" and form.target > 1.0:
        yield form.problem("target", found, "a share of the GPUs' time, at most 1")
    if form.metric is not None and form.per_replica is not None:
        yield form.problem("per_replica", "per_replica of a metric", "it beside query")
