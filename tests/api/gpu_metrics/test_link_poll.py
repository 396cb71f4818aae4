"""A daemon asks node_exporters by itself which rates NICs have, and the next gang starts elsewhere."""

import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from support.daemon import Daemon
from support.serving import serving

CLUSTER = """
name: three
tiers: [node]
machines: {m2: {gpus: 2, gpu: H100-80GB, nics: 2}}
nodes: [{names: "n[0-2]", machine: m2}]
"""
JOB = """
name: a
queue: x
gang: [{role: w, members: 2, each: {gpus: 2}, run: [sleep, "600"]}]
"""
RATE = "node_infiniband_rate_bytes_per_second"


class _Exporter(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        node = self.path.strip("/")
        rates = {"mlx5_0": 5e10, "mlx5_1": 2.5e10 if node == "n0" else 5e10}
        text = "".join(f'{RATE}{{device="{nic}",port="1"}} {rate}\n' for nic, rate in rates.items())
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode() if node != "n2" else text.encode()[:-20])

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), _Exporter)) as exporter:
        url = f"http://127.0.0.1:{exporter.server_address[1]}/{{node}}"
        with Daemon(tmp_path / "state", CLUSTER, node_metrics=url) as running:
            yield running


def test_a_nic_at_half_rate_is_on_the_map_and_gangs_start_beside_it(daemon: Daemon) -> None:
    """n2 answers half a text: nothing is concluded from it."""
    deadline = time.monotonic() + 300
    while not daemon.client.links() and time.monotonic() < deadline:
        time.sleep(0.05)
    (row,) = daemon.client.links()
    assert (row["link"], row["health"], row["source"]) == ("nic:n0/mlx5_1", 0.5, "node_exporter")
    assert row["reason"] == "negotiated 200 Gb/s instead of 400 Gb/s"
    daemon.client.submit(JOB)
    daemon.wait("a", until="running")
    nodes = {row["node"]: len(row["jobs"]) for row in daemon.client.nodes()}
    assert nodes == {"n0": 0, "n1": 1, "n2": 1}
