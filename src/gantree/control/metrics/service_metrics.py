"""Metrics of services: their replicas, as the ledger has them, and their load, as routers reported it last.

Services are named as queues are: of those that are live the oldest hundred are told apart, the rest are left out, as a
sum of latencies means nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily, Metric

from gantree.core.ledger.ledger import Ledger
from gantree.core.services.replicas import holds_place, jobs_of, live_replicas, takes_requests
from gantree.model.services import Keeper

SERVICES_BY_NAME = 100
LoadFigures = Mapping[str, float | None]
"""The load of a service, as `control.services.router_reports.RouterReports.load_figures` has it."""


@dataclass(frozen=True, slots=True)
class ServiceFigures:
    """The replicas of one service: wanted, ready for new requests, draining, holding a place; and the GPUs of those.

    wanted is None where controllers of pods decide that.
    """

    wanted: int | None
    ready: int
    draining: int
    placed: int
    gpus: int


def service_figures(ledger: Ledger) -> dict[str, ServiceFigures]:
    """The figures of live services."""
    live = [each for each in ledger.services.values() if each.is_live][:SERVICES_BY_NAME]
    found = {}
    for service in live:
        states = live_replicas(ledger, service)
        placed = [each for each in states if holds_place(each)]
        wanted = None if service.keeper is Keeper.PODS else service.wanted
        found[service.service] = ServiceFigures(
            wanted=0 if service.is_ending else wanted,
            ready=sum(map(takes_requests, states)),
            draining=sum(each.replica.draining for each in states),
            placed=len(placed),
            gpus=sum(each.held_gpus for each in jobs_of(placed)),
        )
    return found


def of_services(
    figures: Mapping[str, ServiceFigures], loads: Mapping[str, LoadFigures]
) -> Iterator[Metric]:
    """The metrics; of services of which no router reported lately, only those of replicas."""
    replicas = GaugeMetricFamily(
        "gantree_service_replicas",
        "Replicas of a service: wanted, ready for new requests, draining, holding a place.",
        labels=["service", "state"],
    )
    for name, each in figures.items():
        for state in ("wanted", "ready", "draining", "placed"):
            number = getattr(each, state)
            if number is not None:
                replicas.add_metric([name, state], number)
    yield replicas
    gpus = {name: float(each.gpus) for name, each in figures.items()}
    yield _by("held_gpus", "GPUs that the replicas of a service hold.", gpus)
    yield from _of_loads({name: load for name, load in loads.items() if name in figures})


def _of_loads(loads: Mapping[str, LoadFigures]) -> Iterator[Metric]:
    requests = GaugeMetricFamily(
        "gantree_service_open_requests",
        "Requests that replicas work on, and that wait in front of them, as routers reported last.",
        labels=["service", "state"],
    )
    for name, load in loads.items():
        requests.add_metric([name, "working"], load["in_flight"] or 0.0)
        requests.add_metric([name, "waiting"], load["queued"] or 0.0)
    yield requests
    rows = (
        ("request_rate", "Requests a second in the last window of the routers.", "rate"),
        ("error_rate", "Requests a second that failed or were turned away, likewise.", "lost_rate"),
        ("token_rate", "Tokens written a second, likewise.", "tokens_per_s"),
        ("latency_p50_seconds", "Median time of a request, likewise.", "latency_p50_s"),
        ("latency_p99_seconds", "99th percentile of it.", "latency_p99_s"),
        (
            "first_token_p99_seconds",
            "99th percentile of the time to the first token.",
            "ttft_p99_s",
        ),
    )
    for name, text, field in rows:
        values = {service: load[field] for service, load in loads.items()}
        yield _by(name, text, {key: value for key, value in values.items() if value is not None})


def _by(name: str, text: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(f"gantree_service_{name}", text, labels=["service"])
    for key, value in values.items():
        family.add_metric([key], value)
    return family
