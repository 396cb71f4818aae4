"""Services as plain JSON values: what is on record, and what is seen of them (`add_observed`)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from gantree.api.access.access import Caller
from gantree.api.access.permissions import Need, redacted_for, sees_service, service_for
from gantree.api.access.visibility import service_spec_visible_to
from gantree.api.views.job_view import domain_json, plain
from gantree.control.requests.read_view import ReadView
from gantree.control.services.router_reports import ServiceLoad
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.service_state import ServiceState
from gantree.core.ledger.state import JobState
from gantree.core.services.models import models_of, taken_models
from gantree.core.services.replicas import (
    holds_place,
    is_ending,
    live_replicas,
    name_of,
    runs_description,
    takes_requests,
)
from gantree.model.phases import AttemptKey
from gantree.model.service_facts import ServiceScaled
from gantree.model.services import Keeper

Json = dict[str, Any]
FACTS_BACK = 100_000
"""Scalings are looked for among so many of the last facts."""
SCALINGS_SHOWN = 20


def services(view: ReadView, caller: Caller) -> list[Json]:
    """A row for each live service that a caller may see, in order of arrival."""
    ledger = view.ledger
    live = (each for each in ledger.services.values() if each.is_live)
    return [service_row(ledger, each) for each in live if sees_service(caller, each)]


def service(view: ReadView, caller: Caller, name: str) -> Json:
    """A service with its description, its replicas and how it was scaled. Raises NotFound."""
    state = service_for(view.ledger, caller, name, Need.SEE)
    detail = {
        **service_row(view.ledger, state),
        "spec": service_spec_visible_to(caller, plain(state.spec)),
        "replicas": [replica_row(each) for each in live_replicas(view.ledger, state)],
        "scalings": list(_scalings(view, name))[-SCALINGS_SHOWN:],
    }
    value: Json = redacted_for(caller, view.ledger, detail)
    return value


def service_row(ledger: Ledger, service: ServiceState) -> Json:
    """One service in a list. Times in seconds since 1970."""
    spec, count = service.spec, service.spec.replicas
    replicas = live_replicas(ledger, service)
    staying = [each for each in replicas if not is_ending(each)]
    is_decided_here = service.keeper is not Keeper.PODS
    return {
        "service": service.service,
        "keeper": service.keeper.value,
        "queue": spec.replica.queue,
        "user": spec.replica.user,
        "priority": spec.replica.priority,
        "revision": service.revision,
        "state": _state(service, staying),
        "wanted": service.wanted if is_decided_here else None,
        "ready": sum(map(takes_requests, replicas)),
        "current": sum(runs_description(service, each) for each in staying),
        "placed": sum(holds_place(each) for each in replicas),
        "draining": sum(each.replica.draining for each in replicas),
        "min": count.min if is_decided_here else None,
        "max": count.max if is_decided_here else None,
        "floor": count.floor,
        "spare": count.spare,
        "gpus": spec.replica.gpus,
        "models": list(models_of(spec)),
        "taken_models": taken_models(ledger, spec),
        "accepted_at": service.accepted_at,
        "updated_at": service.updated_at,
        "ended_at": service.ended_at,
        "reason": service.reason,
        "scaled_at": service.scaled_at,
        "scaled_for": service.scaled_for,
        "scaled_automatically": service.scaled_automatically,
        "load": None,
        "autoscaler": None,
    }


def replica_row(state: JobState) -> Json:
    """One replica of a service that has not ended."""
    replica, of = state.replica, state.spec.service
    assert of is not None, f"{state.job} is no replica"
    first = replica.endpoints[0] if replica.endpoints else None
    members = () if state.placement is None else state.placement.members
    return {
        "replica": name_of(state),
        "job": state.job or None,
        "number": of.number,
        "revision": of.revision,
        "attempt": state.attempt,
        "phase": state.phase.value,
        "ready": takes_requests(state),
        "draining": replica.draining,
        "drain_ends_at": replica.drain_ends_at or None,
        "since": replica.since,
        "reason": replica.drain_reason or replica.reason or state.reason,
        "preemptible": state.spec.preemptible,
        "failures": state.failures,
        "last_failure": state.last_failure,
        "nodes": list(dict.fromkeys(each.node for each in members)),
        "domain": None if state.placement is None else domain_json(state.placement.domain),
        "host": None if first is None else first.host,
        "port": None if first is None else first.port,
        "in_flight": None,
    }


def add_observed(
    rows: Sequence[Json],
    loads: Mapping[str, ServiceLoad],
    answers: Mapping[AttemptKey, str],
    in_flight: Mapping[AttemptKey, int],
    scaling: Mapping[str, Json],
) -> None:
    """Put into rows of services the load and what the autoscaler recommends, and into those of replicas what is in
    flight and why a probe fails.
    """
    for row in rows:
        load = loads.get(row["service"])
        row["load"] = None if load is None else asdict(load)
        row["autoscaler"] = scaling.get(row["service"])
        for each in row.get("replicas", ()):
            key = (each["replica"], each["attempt"])
            each["in_flight"] = in_flight.get(key, 0) if load is not None else None
            if not each["ready"] and not each["draining"]:
                each["reason"] = answers.get(key) or each["reason"]


def _state(service: ServiceState, staying: Sequence[JobState]) -> str:
    """One word for a service: what happens to it."""
    if not service.is_live:
        return "ended"
    if service.is_ending:
        return "ending"
    if any(not runs_description(service, each) for each in staying):
        return "updating"
    if sum(map(takes_requests, staying)) < service.wanted:
        return "starting"
    return "ready" if service.wanted else "at zero"


def _scalings(view: ReadView, name: str) -> Iterator[Json]:
    """When another number of replicas was wanted, and why, oldest first."""
    for recorded in view.journal.facts_of(ServiceScaled, max(0, view.at.seq - FACTS_BACK)):
        fact = recorded.fact
        if isinstance(fact, ServiceScaled) and fact.service == name and recorded.seq <= view.at.seq:
            yield {
                "at": fact.at,
                "before": fact.before,
                "replicas": fact.replicas,
                "reason": fact.reason,
                "automatic": fact.automatic,
            }
