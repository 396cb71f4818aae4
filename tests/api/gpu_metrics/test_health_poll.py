"""A daemon asks exporters by itself how GPUs are, and takes out of use what is broken."""

import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from support.command_line import CommandLine
from support.daemon import Daemon
from support.serving import serving

CLUSTER = """
name: two
tiers: [node]
machines: {m2: {gpus: 2, gpu: H100-80GB}}
nodes: [{names: "n[0-1]", machine: m2}]
"""
JOB = """
name: a
queue: x
gang: [{role: w, members: 1, each: {gpus: 2}, run: [sleep, "600"]}]
"""
SAYS = """
DCGM_FI_DEV_XID_ERRORS{gpu="1",Hostname="n0"} 79
DCGM_FI_DEV_XID_ERRORS{gpu="1",Hostname="n1"} 13
"""


BOTH_BROKEN = SAYS.replace(" 13", " 79")


class _Exporter(BaseHTTPRequestHandler):
    says = SAYS

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.says.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class _BrokenTwice(_Exporter):
    says = BOTH_BROKEN


@pytest.fixture
def sick_daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon of two nodes that are both broken: one is taken out, which is all that may be."""
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), _BrokenTwice)) as exporter:
        url = f"http://127.0.0.1:{exporter.server_address[1]}/metrics"
        with Daemon(tmp_path / "state", CLUSTER, gpu_metrics=url) as running:
            yield running


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), _Exporter)) as exporter:
        url = f"http://127.0.0.1:{exporter.server_address[1]}/metrics"
        with Daemon(tmp_path / "state", CLUSTER, gpu_metrics=url) as running:
            yield running


def test_a_node_with_a_broken_gpu_is_cordoned_with_the_reason(daemon: Daemon) -> None:
    def told() -> tuple[str, str]:
        row = daemon.client.node("n0")
        return row["state"], row["reason"]

    deadline = time.monotonic() + 300
    while told()[0] != "cordoned" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert told() == ("cordoned", "GPU 1: XID 79 (GPU has fallen off the bus)")
    assert daemon.client.node("n1")["state"] == "ready"
    daemon.client.submit(JOB)
    daemon.wait("a", until="running")
    assert [each["phase"] for each in daemon.client.node("n1")["jobs"]] == ["running"]


FAULT = "GPU 1: XID 79 (GPU has fallen off the bus)"
KEPT = "kept in use: 1 node is out already, the limit is a fifth of 2 nodes; `gantree cordon {}` takes it out"


def test_a_node_beyond_the_limit_is_shown_with_its_fault_by_nodes_and_why_over_a_restart(
    sick_daemon: Daemon, gantree: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANTREE_STATE", str(sick_daemon.state_dir))

    def rows() -> dict[str, dict[str, Any]]:
        return {row["node"]: row for row in sick_daemon.client.nodes()}

    deadline = time.monotonic() + 300
    while not all(row["signs"] for row in rows().values()) and time.monotonic() < deadline:
        time.sleep(0.05)
    before = rows()
    (out,) = [row for row in before.values() if row["state"] == "cordoned"]
    (kept,) = [row for row in before.values() if row["state"] == "ready"]
    (sign,) = kept["signs"]
    assert (sign["source"], sign["reason"], sign["overruled"]) == ("dcgm", FAULT, False)
    assert sign["kept"] == KEPT.format(kept["node"]) and out["signs"][0]["kept"] == ""
    sick_daemon.client.submit(JOB)
    sick_daemon.wait("a", until="running")
    assert f"{FAULT} ({KEPT.format(kept['node'])})" in gantree("nodes").out
    assert KEPT.format(kept["node"]) in gantree("why", "a").out
    sick_daemon.kill()
    sick_daemon.start()
    assert rows()[kept["node"]]["signs"] == kept["signs"]
    gantree("uncordon", kept["node"])
    deadline = time.monotonic() + 300
    while not rows()[kept["node"]]["signs"][0]["overruled"] and time.monotonic() < deadline:
        time.sleep(0.05)
    assert rows()[kept["node"]]["signs"] == [{**sign, "overruled": True, "kept": ""}]
