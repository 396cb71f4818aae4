"""`gantree submit`, `services`, `scale`, `why` and `cancel` of a service, on a daemon."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Complaints, Gantree
from support.daemon import Daemon

SERVER = Path(__file__).parents[3] / "examples" / "services" / "server.py"
CLUSTER = "name: one\ntiers: [node]\nmachines: {m8: {gpus: 8}}\nnodes: [{names: n0, machine: m8}]\n"
RUN = json.dumps([sys.executable, "-I", "-S", str(SERVER), "--seconds", "0.05"])
CHAT = f"""
kind: service
name: NAME
priority: batch
gang: [{{role: server, members: 1, each: {{gpus: 1}}, run: {RUN}}}]
replicas: {{min: 1, max: 3}}
ready: {{http: /health, every: 100ms, timeout: 1m}}
drain: 100ms
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("services") / "state", CLUSTER) as running:
        yield running


@pytest.fixture
def on(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> Daemon:
    """Commands of this test are for the daemon."""
    monkeypatch.setenv("GANTREE_STATE", str(daemon.state_dir))
    return daemon


def until(holds: Callable[[], Any]) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + 300
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def service_file(tmp_path: Path, name: str) -> Path:
    path = tmp_path / f"{name}.yaml"
    path.write_text(CHAT.replace("NAME", name))
    return path


def is_ready(daemon: Daemon, name: str, replicas: int) -> bool:
    found: bool = daemon.client.service(name)["ready"] == replicas
    return found


def test_a_service_is_submitted_listed_scaled_explained_and_cancelled(
    gantree: Gantree, on: Daemon, tmp_path: Path, complaints: Complaints
) -> None:
    assert gantree("services").out == "No services.\n"
    assert gantree("submit", service_file(tmp_path, "chat")).out == "chat\n"
    until(lambda: is_ready(on, "chat", 1))
    head, row = gantree("services").out.splitlines()
    assert head.split()[:4] == ["SERVICE", "STATE", "READY", "BOUNDS"]
    assert row.split()[:5] == ["chat", "ready", "1/1", "1-3", "1"]
    assert gantree("scale", "chat", "--replicas", 2).out == "chat is scaled\n"
    until(lambda: is_ready(on, "chat", 2))
    shown = gantree("services", "chat").out.splitlines()
    assert shown[0].startswith("chat: ready; 2 of 2 replicas are ready; 1 to 3 replicas")
    assert shown[1:3] == ["  load: no router reports it", shown[2]]
    assert " from 1 to 2, set by " in shown[2]
    assert [line.split()[:3] for line in shown[4:]] == [
        ["chat.1", "running", "yes"],
        ["chat.2", "running", "yes"],
    ]
    assert gantree("why", "chat").out.startswith("chat wants 2 replicas (set by a user: ")
    assert "is ready for requests" in gantree("why", "chat.2").out
    assert "chat.1 listens at port" in gantree("logs", "chat.1").out
    for words, schema in (("services",), "services"), (("services", "chat"), "service"):
        assert complaints(gantree(*words, "--json").json(), schema) == []
    assert gantree("cancel", "chat").out == "chat is being cancelled\n"
    until(lambda: on.client.service("chat")["state"] == "ended")
    ended = gantree("cancel", "chat")
    assert (ended.code, "service chat has ended" in ended.err) == (1, True)
    assert "  ended 20" in gantree("services", "chat").out


def test_what_an_autoscaler_does_not_know_is_said(
    gantree: Gantree, on: Daemon, tmp_path: Path
) -> None:
    path = service_file(tmp_path, "blind")
    path.write_text(path.read_text() + "scale: {on: [{query: sum(x), target: 1}], every: 500ms}\n")
    gantree("submit", path)
    until(lambda: on.client.service("blind")["autoscaler"])
    shown = gantree("services", "blind").out.splitlines()
    assert shown[2:4] == [
        "  autoscaler: 1 for sum(x) is not known",
        "  not known: sum(x): queries need a daemon with --prometheus URL",
    ]
    gantree("cancel", "blind")


def test_what_cannot_be_is_said(gantree: Gantree, on: Daemon, tmp_path: Path) -> None:
    both = gantree("scale", "x", "--replicas", 1, "--members", 2)
    neither = gantree("scale", "x")
    assert (both.code, neither.code, both.err) == (2, 2, neither.err)
    missing = gantree("services", "nothing")
    assert (missing.code, missing.err) == (1, "gantree: there is no service nothing\n")
    path = service_file(tmp_path, "odd")
    path.write_text(path.read_text() + "array: 0-3\n")
    refused = gantree("submit", path)
    assert (refused.code, f"{path}:9: array: found `array` in a service" in refused.err) == (
        2,
        True,
    )
    assert gantree("cancel", "nothing").err == "gantree: there is no job nothing\n"


def test_a_submission_prints_services_as_json(
    gantree: Gantree, on: Daemon, tmp_path: Path, complaints: Complaints
) -> None:
    taken = gantree("submit", service_file(tmp_path, "json"), "--json").json()
    assert (taken["jobs"], taken["services"]) == ([], [{"service": "json"}])
    assert complaints(taken, "submit") == []
    scaled = gantree("scale", "json", "--replicas", 2, "--json").json()
    assert complaints(scaled, "scale") == []
    assert scaled == {"scaled": ["json"]}


def test_replicas_are_placed_without_a_daemon(
    gantree: Gantree, tmp_path: Path, cluster_file: Path
) -> None:
    path = service_file(tmp_path, "chat")
    path.write_text(path.read_text().replace("min: 1", "min: 2"))
    placed = gantree("place", cluster_file, path, "--json").json()
    assert [each["job"] for each in placed["placements"]] == ["chat.1", "chat.2"]


def test_a_watch_prints_a_service_again_when_it_changes(on: Daemon) -> None:
    on.client.submit(CHAT.replace("NAME", "seen"))
    until(lambda: is_ready(on, "seen", 1))
    words = [sys.executable, "-m", "gantree.cli", "services", "--watch", "0.1", "seen"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, b"")
        assert next(lines).startswith(b"seen: ready; 1 of 1 replicas are ready")
        on.client.scale_service("seen", 2)
        assert any(line.startswith(b"seen: ready; 2 of 2 replicas are ready") for line in lines)
        process.send_signal(signal.SIGINT)
        assert process.wait(300) == 130
    on.client.cancel_service("seen")


def test_a_watch_prints_no_json(gantree: Gantree, on: Daemon) -> None:
    refused = gantree("services", "--watch", "--json")
    assert refused.code == 2 and "/v1/events" in refused.err
