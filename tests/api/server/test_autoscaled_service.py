"""A service on a real daemon is scaled by what a router reports: up within a sample, down, to none and back."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from support.daemon import Daemon

SERVER = Path(__file__).parents[3] / "examples" / "services" / "server.py"
CLUSTER = """
name: one
tiers: [leaf, node]
machines: {m8: {gpus: 8, gpu: H100-80GB}}
nodes: [{names: n0, machine: m8, at: {leaf: l0}}]
"""
WITHIN_S = 300.0


def service(name: str, replicas: str, *arguments: str) -> str:
    """A job file of a service of the example's servers."""
    run = json.dumps([sys.executable, "-I", "-S", str(SERVER), *arguments])
    return f"""
kind: service
name: {name}
replicas: {replicas}
gang: [{{role: server, members: 1, each: {{gpus: 1}}, run: {run}}}]
ready: {{http: /health, every: 100ms}}
drain: 1s
scale:
  on: [{{metric: concurrency, target: 2}}]
  every: 500ms
  down: {{stabilise: 1s}}
  to_zero: 1s
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    policy = "preset: gantree\nevictions: {grace: 1s}"
    with Daemon(tmp_path_factory.mktemp("autoscaled") / "state", CLUSTER, policy) as running:
        yield running


class Router:
    """Reports the same load again and again, as a router would, until something holds."""

    def __init__(self, daemon: Daemon) -> None:
        self.client = daemon.client
        self.load: dict[str, Any] = {}

    def until(self, holds: Callable[[dict[str, Any]], bool], **load: Any) -> dict[str, Any]:
        deadline = time.monotonic() + WITHIN_S
        while True:
            self.client.report_routes("r1", 0.5, [{"service": "chat", **load}])
            row: dict[str, Any] = self.client.service("chat")
            if holds(row):
                return row
            assert time.monotonic() < deadline, row
            time.sleep(0.1)


def steps(daemon: Daemon, service: str) -> list[dict[str, Any]]:
    """What is on record of the number of replicas."""
    facts = [fact["data"] for fact in daemon.client.facts() if fact["fact"] == "ServiceScaled"]
    return [fact for fact in facts if fact["service"] == service]


def test_replicas_follow_what_a_router_reports(daemon: Daemon) -> None:
    daemon.client.submit(service("chat", "{min: 0, max: 6}"))
    router = Router(daemon)
    router.until(lambda row: row["wanted"] == 1 and row["ready"] == 1, queued=1)
    many = {"concurrency": 7.0, "in_flight": 7, "rate": 10.0, "requests": 5}
    four = router.until(lambda row: row["wanted"] == 4 and row["ready"] == 4, **many)
    assert len(four["replicas"]) == 4
    few = {"concurrency": 1.0, "in_flight": 1, "rate": 1.0, "requests": 1}
    router.until(lambda row: row["wanted"] == 1 and len(row["replicas"]) == 1, **few)
    router.until(lambda row: row["wanted"] == 0 and not row["replicas"], rate=0.0)
    found = steps(daemon, "chat")
    assert all(each["automatic"] for each in found)
    assert [each["replicas"] for each in found if each["replicas"] > each["before"]] == [1, 4]
    reasons = [each["reason"] for each in found]
    assert reasons[0] == "a request waits and there is no replica"
    assert reasons[1] == "concurrency 7 on 1 replica, target 2"
    assert reasons[-1].startswith("no request for ")
    daemon.client.cancel_service("chat")


def test_without_a_router_the_metrics_of_the_replica_count(daemon: Daemon) -> None:
    """Its own number of running requests: five that take longer than the test."""
    daemon.client.submit(service("alone", "{min: 1, max: 6}", "--seconds", "600"))
    client, deadline = daemon.client, time.monotonic() + WITHIN_S

    def until(holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        while not holds(row := client.service("alone")):
            assert time.monotonic() < deadline, row
            time.sleep(0.1)
        return row

    until(lambda row: row["ready"] == 1)
    (replica,) = client.routes()["services"][0]["replicas"]
    body = json.dumps({"prompt": "hello", "max_tokens": 1})
    asked = [HTTPConnection(replica["host"], replica["port"]) for _ in range(5)]
    for connection in asked:
        connection.request("POST", "/v1/completions", body)
    until(lambda row: row["wanted"] == 3)
    assert steps(daemon, "alone")[-1]["reason"] == "concurrency 5 on 1 replica, target 2"
    row = until(lambda row: "over 3 replicas" in row["autoscaler"]["reason"])
    assert row["autoscaler"] == {
        "replicas": 3,
        "reason": "concurrency 5 over 3 replicas, target 2",
        "kept_by": "",
        "problems": [],
    }
    for connection in asked:
        connection.close()
    client.cancel_service("alone")
