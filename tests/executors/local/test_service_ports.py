"""Members of a replica of a service get ports, find them in their environment, and the start tells them."""

import errno
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from gantree.executors.local.launch.service_ports import endpoints_for, port_variables
from gantree.executors.local.run_directory import RunDirectory, order_from_json, order_to_json
from gantree.model.events import GangStarted, GangStartFailed
from gantree.model.replicas import CACHE_EVENTS, CACHE_REPLAY, Endpoint, Readiness, ReplicaOf
from support.gangs import GangStage, four_nodes, start_order

CHAT = ReplicaOf("chat", 3, 1, ready=Readiness("/health"))
TELLS = 'echo "$PORT $GANTREE_SERVICE $GANTREE_REPLICA $GANTREE_ENDPOINTS"; exec sleep 300'
RUN = RunDirectory(Path("/a/runs"), "chat.3", 1)
NODES = {node.name: node for node in four_nodes().nodes}


def listening_socket() -> socket.socket:
    return socket.create_server(("", 0))


@contextmanager
def listening() -> Iterator[int]:
    """A port at which something listens."""
    with listening_socket() as listener:
        yield listener.getsockname()[1]


def free() -> int:
    with listening() as port:
        return port


def test_each_member_finds_its_port_and_the_event_tells_all(stage: GangStage) -> None:
    stage.start("sh", "-c", TELLS, members=2, service=CHAT, job="chat.3")
    endpoints = stage.until_told(GangStarted).endpoints
    assert [(each.role, each.member) for each in endpoints] == [("worker", 0), ("worker", 1)]
    assert len({each.port for each in endpoints}) == 2
    every = ",".join(f"worker/{each.member}={each.host}:{each.port}" for each in endpoints)
    for rank, endpoint in enumerate(endpoints):
        stage.until(partial(stage.log, rank, "chat.3"))
        assert stage.log(rank, "chat.3").split() == [str(endpoint.port), "chat", "3", every]


def test_an_engine_finds_where_to_publish_its_cache_events(stage: GangStage) -> None:
    tells = 'echo "$GANTREE_CACHE_EVENTS_PORT $GANTREE_CACHE_REPLAY_PORT $GANTREE_ENDPOINTS"'
    service = replace(CHAT, cache_events_port=0, cache_replay_port=0)
    stage.start("sh", "-c", f"{tells}; exec sleep 300", service=service, job="chat.3")
    first, events, replay = stage.until_told(GangStarted).endpoints
    assert (events.role, replay.role) == (CACHE_EVENTS, CACHE_REPLAY)
    assert len({first.port, events.port, replay.port}) == 3
    stage.until(partial(stage.log, 0, "chat.3"))
    said = [str(events.port), str(replay.port), f"worker/0={first.host}:{first.port}"]
    assert stage.log(0, "chat.3").split() == said


def test_ports_of_cache_events_that_are_named_are_those() -> None:
    service = replace(CHAT, cache_events_port=(port := free()))
    order = start_order("true", service=service, job="chat.3")
    _, events = endpoints_for(order, NODES, (), RUN)
    assert events == Endpoint(CACHE_EVENTS, 0, "127.0.0.1", port)
    with pytest.raises(OSError, match="in use"):
        endpoints_for(order, NODES, {port}, RUN)


def test_addresses_of_ipv6_are_in_brackets() -> None:
    order = replace(start_order("sleep", "300"), service=CHAT)
    found = port_variables(order, (Endpoint("worker", 0, "fd00::7", 8000),), 0)
    assert found["GANTREE_ENDPOINTS"] == "worker/0=[fd00::7]:8000"


def test_the_ports_are_told_again_by_the_next_daemon(stage: GangStage) -> None:
    stage.start("sleep", "300", members=2, service=CHAT)
    first = stage.until_told(GangStarted)
    stage.events.clear()
    stage.open().adopt()
    again = stage.until_told(GangStarted)
    assert (again.id, again.endpoints) == (first.id, first.endpoints)
    assert len(again.endpoints) == 2


def test_the_first_member_listens_at_the_port_of_the_service(stage: GangStage) -> None:
    port = free()
    stage.start("sleep", "300", members=2, service=ReplicaOf("chat", 1, 1, port))
    first, second = stage.until_told(GangStarted).endpoints
    assert (first.port, second.port == port) == (port, False)


def test_a_port_that_is_in_use_fails_the_start_and_says_so(stage: GangStage) -> None:
    with listening() as port:
        stage.start("sleep", "300", service=ReplicaOf("chat", 1, 1, port))
        failed = stage.until_told(GangStartFailed)
    assert f"port {port} of the service is in use" in failed.reason
    assert not failed.final


def test_a_second_replica_at_the_port_of_a_service_fails_before_the_first_listens(
    stage: GangStage,
) -> None:
    service = ReplicaOf("chat", 1, 1, free())
    stage.start("sleep", "300", service=service, job="chat.1")
    stage.start("sleep", "300", service=service, job="chat.2")
    assert stage.until_told(GangStartFailed).job == "chat.2"


def test_a_connection_that_was_closed_a_moment_ago_does_not_hold_the_port() -> None:
    with listening_socket() as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            listener.accept()[0].close()  # first, so that this side waits for late packets
            assert client.recv(1) == b""
    with socket.socket() as plain, pytest.raises(OSError, match="in use"):
        plain.bind(("", port))
    order = start_order("true", service=ReplicaOf("chat", 1, 1, port))
    assert endpoints_for(order, NODES, (), RUN) == (Endpoint("worker", 0, "127.0.0.1", port),)


def test_two_daemons_with_replicas_of_one_name_begin_at_different_ports() -> None:
    order = start_order("true", service=CHAT, job="chat.3")
    other = RunDirectory(Path("/b/runs"), "chat.3", 1)
    (one,), (two,) = endpoints_for(order, NODES, (), RUN), endpoints_for(order, NODES, (), other)
    assert one.port != two.port


def test_a_job_has_no_port(stage: GangStage) -> None:
    stage.start("sh", "-c", 'echo "[${PORT-none}]"')
    assert stage.until_told(GangStarted).endpoints == ()
    stage.until_ended()
    assert stage.log().strip() == "[none]"


def test_an_order_for_a_replica_is_read_as_it_was_written() -> None:
    order = start_order("true", service=CHAT)
    assert order_from_json(json.loads(json.dumps(order_to_json(order)))) == order


def test_a_taken_port_raises() -> None:
    order = start_order("true", service=ReplicaOf("chat", 1, 1, port := free()))
    with pytest.raises(OSError, match="in use") as caught:
        endpoints_for(order, NODES, {port}, RUN)
    assert caught.value.errno == errno.EADDRINUSE
