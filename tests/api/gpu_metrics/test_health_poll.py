"""A daemon asks exporters by itself how GPUs are, and takes out of use what is broken."""

import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

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


class _Exporter(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(SAYS.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


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
