"""`gantree route` as a process: how it starts, ends, and is killed; what it says about bad input."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from support.command_line import CommandLine
from support.processes import below
from support.replica import ReplicaProcess
from support.routed import haproxy, row, service

WITHIN_S = 30.0


@contextmanager
def routing(table: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command while it runs, and where it listens."""
    command = [sys.executable, "-m", "gantree.cli", "route", "--listen", "127.0.0.1:0", "--explain"]
    process = subprocess.Popen(
        [*command, "--table", str(table), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        yield process, line.split()[-1]
    finally:
        process.kill()
        process.communicate()


def get(url: str) -> Any:
    """An answer as JSON."""
    with urllib.request.urlopen(url, timeout=WITHIN_S) as answer:
        return json.load(answer)


def until_ended(pid: int) -> None:
    """Wait until a process that is nobody's child has gone."""
    until_s = time.monotonic() + WITHIN_S
    while Path(f"/proc/{pid}/stat").exists():
        assert time.monotonic() < until_s
        time.sleep(0.01)


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[ReplicaProcess]:
    """One."""
    with ReplicaProcess("chat.1", tmp_path) as running:
        yield running


@pytest.fixture
def table(tmp_path: Path, replica: ReplicaProcess) -> Path:
    """A file with it."""
    haproxy()
    file = tmp_path / "table.json"
    file.write_text(json.dumps({"services": [service("chat", [row(replica, ["s0", "n0"])])]}))
    return file


def test_a_table_in_a_file_needs_no_daemon_and_metrics_are_served(table: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with routing(table, "--metrics", f"127.0.0.1:{port}") as (process, url):
        assert get(f"{url}/services/chat/x")["name"] == "chat.1"
        until_s = time.monotonic() + WITHIN_S
        while True:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                text = answer.read().decode()
            if 'requests_total{reason="closest",service="chat",status="200"} 1.0' in text:
                break
            assert time.monotonic() < until_s, text
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=WITHIN_S)
        assert process.returncode == 0
        choice = next(json.loads(line) for line in said.splitlines() if '"choice"' in line)
        assert (choice["server"], choice["reason"], choice["status"]) == (
            "chat.1_1",
            "closest",
            200,
        )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_has_begun_is_finished_when_the_router_ends_or_is_killed(
    table: Path, number: int
) -> None:
    with routing(table) as (process, url):
        (proxy,) = below(process.pid)["haproxy"]
        stream = urllib.request.urlopen(
            f"{url}/services/chat/?events=10&gap_ms=100", timeout=WITHIN_S
        )
        assert stream.readline() == b"data: 0 chat.1\n"
        os.kill(process.pid, number)
        assert stream.read().count(b"data: ") == 9
        stream.close()
        process.wait(WITHIN_S)
        until_ended(proxy)
        with pytest.raises(OSError):
            get(f"{url}/services/chat/")


def test_a_connection_that_a_client_keeps_does_not_delay_the_end(table: Path) -> None:
    with routing(table, "--drain", "1h") as (process, url):
        connection = HTTPConnection(url.removeprefix("http://"), timeout=WITHIN_S)
        connection.request("GET", "/services/chat/")
        assert connection.getresponse().read()
        process.send_signal(signal.SIGTERM)
        assert process.wait(WITHIN_S) == 0
        connection.close()


def test_without_haproxy_it_says_which_package_to_install(
    gantree: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    refused = gantree("route")
    assert refused.code == 1
    assert "install the package haproxy" in refused.err


@pytest.mark.parametrize(
    "told", ["HAProxy version 2.4.22-1 2023/02/14\n +LUA", "HAProxy version 2.8.1 -LUA", ""]
)
def test_an_haproxy_that_is_too_old_or_has_no_lua_is_refused(
    gantree: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, told: str
) -> None:
    program = tmp_path / "haproxy"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{told}\nEND\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    refused = gantree("route")
    assert refused.code == 1
    assert f"needs HAProxy 2.6 or newer with Lua; {program} is" in refused.err


def test_bad_input_is_named_with_its_place(gantree: CommandLine, tmp_path: Path) -> None:
    haproxy()
    table = tmp_path / "table.yaml"
    table.write_text(
        "services:\n  - service: chat\n    replicas:\n      - {replica: c.1, host: h, port: x}\n"
    )
    again = tmp_path / "again.yaml"
    again.write_text(
        "services:\n  - service: chat\n    replicas:\n"
        "      - {replica: c.1, host: h, port: 1}\n      - {replica: c.1, host: h, port: 2}\n"
    )
    places = tmp_path / "places"
    places.write_text("# ours\n10.0.0.0/8 s0\n10.0.0.1/8 s0\n")
    tenants = tmp_path / "tenants.yaml"
    tenants.write_text("tenants:\n  - {name: a, key_sha256: [secret]}\n")
    for options, words in (
        (("--table", str(table)), "table.yaml:4: services[0].replicas[0].port"),
        (("--table", str(again)), "again.yaml: replica c.1 stands there twice"),
        (("--places", str(places)), "places:3: found '10.0.0.1/8 s0'"),
        (("--tenants", str(tenants)), "tenants.yaml:2"),
        (("--listen", "nowhere"), "--listen: found 'nowhere'"),
        (("--metrics", "x:y:z"), "--metrics: found 'x:y:z'"),
        (("--tls-key", str(table)), "--tls-key needs --tls-cert"),
    ):
        refused = gantree("route", "--listen", "127.0.0.1:0", *options)
        assert refused.code == 2
        assert words in refused.err, refused.err
