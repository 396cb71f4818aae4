"""The table for routers: a row for each replica that listens, and a version that changes with any row."""

from dataclasses import replace

import pytest

from gantree.control.services.route_table import RouteTable, route_rows
from gantree.model.events import (
    GangStarted,
    ReplicaReadinessChanged,
    ServiceSubmitted,
    SuspendRequested,
)
from gantree.model.jobs import AlternativeShape, Shape
from gantree.model.replicas import CACHE_EVENTS, CACHE_REPLAY, Endpoint
from gantree.model.services import ReplicaCount, Routing, ServiceSpec
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage

REPLICA = replace(
    job("chat", gpus=1), priority="batch", queue="serving", speeds=(("H100-80GB", 0.5),)
)
CHAT = ServiceSpec("chat", REPLICA, ReplicaCount(1, 3, spare=1), routing=Routing(("llama",), 32))


@pytest.fixture
def stage() -> Stage:
    """A service that wants two replicas."""
    stage = Stage(cluster(leaves=1, nodes=2))
    stage.tell(ServiceSubmitted, service="chat", spec=CHAT)
    return stage


def listen(stage: Stage, replica: str, port: int) -> None:
    endpoints = (Endpoint("worker", 0, "10.0.0.7", port),)
    stage.tell(GangStarted, job=replica, attempt=1, endpoints=endpoints)


def ready(stage: Stage, replica: str) -> None:
    stage.tell(ReplicaReadinessChanged, job=replica, attempt=1, ready=True)


def replicas(stage: Stage) -> list[dict[str, object]]:
    ((queue, row),) = route_rows(stage.scheduler.ledger)
    assert (queue, row["models"], row["concurrency"], row["wanted"]) == (
        "serving",
        ["llama"],
        32,
        2,
    )
    found: list[dict[str, object]] = row["replicas"]
    return found


def test_a_replica_is_in_the_table_once_it_listens(stage: Stage) -> None:
    assert replicas(stage) == []
    listen(stage, "chat.1", 4001)
    (row,) = replicas(stage)
    node = stage.nodes("chat.1")[0]
    assert row == {
        "replica": "chat.1", "attempt": 1, "host": "10.0.0.7", "port": 4001, "node": node,
        "place": ["s0", "s0/l0", node], "gpu": "H100-80GB", "speed": 0.5, "ready": False,
        "draining": False, "spare": False, "cache_events_port": 0, "cache_replay_port": 0,
    }  # fmt: skip


def test_ports_of_cache_events_are_in_the_table(stage: Stage) -> None:
    found = (
        Endpoint("worker", 0, "10.0.0.7", 4001),
        Endpoint(CACHE_EVENTS, 0, "10.0.0.7", 4002),
        Endpoint(CACHE_REPLAY, 0, "10.0.0.7", 4003),
    )
    stage.tell(GangStarted, job="chat.1", attempt=1, endpoints=found)
    (row,) = replicas(stage)
    assert [row[name] for name in ("port", "cache_events_port", "cache_replay_port")] == [
        4001,
        4002,
        4003,
    ]


def test_the_last_ready_replicas_are_the_spare_ones_and_one_never_is(stage: Stage) -> None:
    for number in (1, 2):
        listen(stage, f"chat.{number}", 4000 + number)
    ready(stage, "chat.1")
    assert [each["spare"] for each in replicas(stage)] == [False, False]
    ready(stage, "chat.2")
    assert [(each["ready"], each["spare"]) for each in replicas(stage)] == [
        (True, False),
        (True, True),
    ]


def test_a_replica_that_stops_is_not_ready_and_drains(stage: Stage) -> None:
    listen(stage, "chat.1", 4001)
    ready(stage, "chat.1")
    stage.rank_failed("chat.1")
    assert [(each["ready"], each["draining"]) for each in replicas(stage)] == [(False, True)]
    stage.ended("chat.1", 1)
    assert replicas(stage) == []


def test_the_version_changes_with_a_row_and_only_then(stage: Stage) -> None:
    table, ledger = RouteTable(), stage.scheduler.ledger
    first = table.look(ledger, 0.0)
    stage.submit(job("other"))
    assert table.look(ledger, 0.0) == first
    listen(stage, "chat.1", 4001)
    second = table.look(ledger, 0.0)
    assert second > first
    assert RouteTable().look(ledger, 0.0) >= second  # that of the next daemon
    stage.cancel("chat")
    assert table.look(ledger, 0.0) > second


def test_a_drain_is_known_from_the_version_that_says_so(stage: Stage) -> None:
    table, ledger = RouteTable(), stage.scheduler.ledger
    listen(stage, "chat.1", 4001)
    ready(stage, "chat.1")
    table.look(ledger, 1.0)
    assert table.drains == {}
    stage.cancel("chat")
    version = table.look(ledger, 2.0)
    (drain,) = table.drains.values()
    assert (drain.service, drain.job, drain.since, drain.version) == (
        "chat",
        "chat.1",
        2.0,
        version,
    )
    stage.submit(job("other"))
    table.look(ledger, 3.0)
    assert list(table.drains.values()) == [drain]
    stage.ended("chat.1")
    table.look(ledger, 4.0)
    assert table.drains == {}


def test_a_replica_whose_place_is_taken_drains(stage: Stage) -> None:
    table, ledger = RouteTable(), stage.scheduler.ledger
    listen(stage, "chat.1", 4001)
    ready(stage, "chat.1")
    stage.tell(SuspendRequested, job="chat.1")
    version = table.look(ledger, 2.0)
    (drain,) = table.drains.values()
    assert (drain.job, drain.version, drain.is_urgent) == ("chat.1", version, True)
    (row,) = replicas(stage)
    assert (row["ready"], row["draining"]) == (False, True)


def test_the_speed_of_a_replica_is_that_of_its_shape_on_its_model(stage: Stage) -> None:
    (role,) = CHAT.replica.roles
    halves = AlternativeShape(role.name, Shape(gpu_share=0.5), 0.4)
    whole_node = replace(role, shape=Shape(gpus=8))
    spec = replace(CHAT.replica, roles=(whole_node,), alternatives=(halves,))
    stage.submit(job("all of one node", gpus=8))
    embed = replace(CHAT, name="embed", replica=spec, replicas=ReplicaCount(2, 2))
    stage.tell(ServiceSubmitted, service="embed", spec=embed)
    for number in (1, 2):
        listen(stage, f"embed.{number}", 4000 + number)
    _, (_, row) = route_rows(stage.scheduler.ledger)
    assert [each["speed"] for each in row["replicas"]] == [0.2, 0.2]
