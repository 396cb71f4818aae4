"""Services as JSON: the word for their state, their counts, and what is observed of them."""

from dataclasses import replace
from typing import Any

from gantree.api.views.service_view import add_observed, replica_row, service_row
from gantree.control.services.router_reports import RouterReport, RouterReports, ServiceReport
from gantree.core.services.replicas import live_replicas
from gantree.model.events import (
    CancelRequested,
    GangEnded,
    GangStarted,
    ReplicaReadinessChanged,
    ServiceScaleRequested,
    ServiceSubmitted,
)
from gantree.model.replicas import Endpoint
from gantree.model.services import Autoscaling, ReplicaCount, ScaleTarget, ServiceSpec
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage

SPEC = ServiceSpec(
    "chat", job("chat", 1, 4), ReplicaCount(0, 3),
    scaling=Autoscaling((ScaleTarget("concurrency", 8.0),)),
)  # fmt: skip


def scaled(stage: Stage, replicas: int) -> None:
    stage.tell(ServiceScaleRequested, service="chat", replicas=replicas)


def ready(stage: Stage, name: str) -> None:
    at = (Endpoint("worker", 0, "127.0.0.1", 40001),)
    stage.tell(GangStarted, job=name, attempt=1, endpoints=at)
    stage.tell(ReplicaReadinessChanged, job=name, attempt=1, ready=True)


def served() -> Stage:
    """A service that may have no replica, on one node."""
    stage = Stage(cluster(leaves=1, nodes=1))
    stage.tell(ServiceSubmitted, service="chat", spec=SPEC)
    return stage


def row(stage: Stage) -> dict[str, Any]:
    """The service with its replicas, without what only the API adds."""
    ledger = stage.scheduler.ledger
    service = ledger.services["chat"]
    rows = [replica_row(each) for each in live_replicas(ledger, service)]
    return {**service_row(ledger, service), "replicas": rows}


def test_a_service_has_one_word_for_what_happens_to_it() -> None:
    stage = served()
    words = [row(stage)["state"]]
    scaled(stage, 1)
    words.append(row(stage)["state"])
    ready(stage, "chat.1")
    words.append(row(stage)["state"])
    stage.tell(ServiceSubmitted, service="chat", spec=replace(SPEC, port=8000))
    words.append(row(stage)["state"])
    ready(stage, "chat.2")
    words.append(row(stage)["state"])
    stage.tell(CancelRequested, job="chat")
    words.append(row(stage)["state"])
    for name in ("chat.1", "chat.2"):
        stage.tell(GangEnded, job=name, attempt=1, exit_code=0)
    words.append(row(stage)["state"])
    assert words == ["at zero", "starting", "ready", "updating", "ready", "ending", "ended"]


def test_replicas_are_counted_by_what_they_do() -> None:
    stage = served()
    scaled(stage, 3)
    ready(stage, "chat.1")
    names = ("wanted", "ready", "current", "placed", "draining")
    assert [row(stage)[name] for name in names] == [3, 1, 3, 2, 0], "the third waits"
    ready(stage, "chat.2")
    scaled(stage, 1)
    assert [row(stage)[name] for name in names] == [1, 1, 1, 2, 1]


def test_what_is_observed_says_why_a_replica_is_not_ready_and_leaves_the_reason_of_a_drain() -> (
    None
):
    stage = served()
    scaled(stage, 2)
    ready(stage, "chat.2")
    answers = {("chat.1", 1): "port 1 does not answer", ("chat.2", 1): "port 2 does not answer"}
    found = row(stage)
    add_observed([found], {}, answers, {}, {})
    reasons = [each["reason"] for each in found["replicas"]]
    assert reasons == ["port 1 does not answer", ""], "the second is ready"
    assert found["load"] is None and found["autoscaler"] is None
    assert [each["in_flight"] for each in found["replicas"]] == [None, None]
    ready(stage, "chat.1")
    scaled(stage, 0)
    draining = row(stage)
    reports = RouterReports()
    reports.take(RouterReport("r1", 5.0, 0.0, (ServiceReport("chat", rate=2.0),)))
    add_observed([draining], reports.loads(0.0), answers, {("chat.1", 1): 3}, {})
    first = draining["replicas"][0]
    assert (first["draining"], first["reason"], first["in_flight"]) == (True, "scaled down to 0", 3)
    assert draining["load"]["rate"] == 2.0
