"""The metrics of services: replicas as the ledger has them, load as routers reported it."""

from dataclasses import replace

from gantree.control.metrics.service_metrics import (
    SERVICES_BY_NAME,
    ServiceFigures,
    of_services,
    service_figures,
)
from gantree.control.services.router_reports import RouterReport, RouterReports, ServiceReport
from gantree.model.events import (
    CancelRequested,
    GangStarted,
    ReplicaReadinessChanged,
    ServiceScaleRequested,
    ServiceSubmitted,
)
from gantree.model.replicas import Endpoint
from gantree.model.services import ReplicaCount, ServiceSpec
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage

REPORT = ServiceReport(
    "chat", requests=50, errors=4, shed=1, in_flight=3, queued=2, concurrency=4.0, rate=10.0,
    latency_p50_s=0.2, latency_p99_s=0.9,
)  # fmt: skip


def serve(stage: Stage, name: str = "chat", replicas: int = 3, gpus: int = 4) -> None:
    spec = ServiceSpec(name, job(name, 1, gpus), ReplicaCount(1, replicas))
    stage.tell(ServiceSubmitted, service=name, spec=spec)
    stage.tell(ServiceScaleRequested, service=name, replicas=replicas)


def ready(stage: Stage, name: str) -> None:
    at = (Endpoint("worker", 0, "127.0.0.1", 40001),)
    stage.tell(GangStarted, job=name, attempt=1, endpoints=at)
    stage.tell(ReplicaReadinessChanged, job=name, attempt=1, ready=True)


def samples(
    figures: dict[str, ServiceFigures], reports: RouterReports
) -> dict[tuple[str, ...], float]:
    """(metric without its prefix, values of its labels) -> value."""
    return {
        (sample.name.removeprefix("gantree_service_"), *sample.labels.values()): sample.value
        for metric in of_services(figures, reports.load_figures(0.0))
        for sample in metric.samples
    }


def test_replicas_are_counted_by_what_they_do() -> None:
    stage = Stage(cluster(leaves=1, nodes=1))
    serve(stage)
    ready(stage, "chat.1")
    ready(stage, "chat.2")
    found = service_figures(stage.scheduler.ledger)
    assert found == {"chat": ServiceFigures(3, 2, 0, placed=2, gpus=8)}, "no room for the third"
    stage.tell(ServiceScaleRequested, service="chat", replicas=1)
    assert service_figures(stage.scheduler.ledger)["chat"] == ServiceFigures(1, 1, 1, 2, 8)
    stage.tell(CancelRequested, job="chat")
    assert service_figures(stage.scheduler.ledger)["chat"] == ServiceFigures(0, 0, 2, 2, 8)


def test_of_very_many_services_the_oldest_have_labels() -> None:
    stage = Stage(cluster(leaves=1, nodes=1))
    for number in range(SERVICES_BY_NAME + 1):
        serve(stage, f"s{number}", 1, 8)
    found = service_figures(stage.scheduler.ledger)
    assert list(found) == [f"s{number}" for number in range(SERVICES_BY_NAME)]


def test_what_nobody_measured_is_not_told() -> None:
    figures = {"chat": ServiceFigures(3, 2, 1, 3, 12), "quiet": ServiceFigures(1, 1, 0, 1, 4)}
    reports = RouterReports()
    reports.take(RouterReport("r1", 5.0, 0.0, (REPORT, replace(REPORT, service="gone"))))
    found = samples(figures, reports)
    assert found == {
        ("replicas", "chat", "wanted"): 3, ("replicas", "chat", "ready"): 2,
        ("replicas", "chat", "draining"): 1, ("replicas", "chat", "placed"): 3,
        ("replicas", "quiet", "wanted"): 1, ("replicas", "quiet", "ready"): 1,
        ("replicas", "quiet", "draining"): 0, ("replicas", "quiet", "placed"): 1,
        ("held_gpus", "chat"): 12, ("held_gpus", "quiet"): 4,
        ("open_requests", "chat", "working"): 3, ("open_requests", "chat", "waiting"): 2,
        ("request_rate", "chat"): 10, ("error_rate", "chat"): 1,
        ("latency_p50_seconds", "chat"): 0.2, ("latency_p99_seconds", "chat"): 0.9,
    }  # fmt: skip


def test_what_fails_is_counted_by_the_second_in_the_window_of_each_router() -> None:
    reports = RouterReports()
    shed = replace(REPORT, requests=0, rate=0.0, errors=0, shed=10)
    reports.take(RouterReport("r1", 5.0, 0.0, (shed,)))
    reports.take(RouterReport("r2", 2.0, 0.0, (replace(REPORT, errors=4, shed=0),)))
    found = samples({"chat": ServiceFigures(1, 1, 0, 1, 4)}, reports)
    assert found["error_rate", "chat"] == 4.0, "two a second at each"
