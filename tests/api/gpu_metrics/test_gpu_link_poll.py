"""A daemon reads the links of GPUs from DCGM exporters by itself, and gangs start beside one at half width."""

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
machines: {m4: {gpus: 4, gpu: H100-80GB}}
nodes: [{names: "n[0-2]", machine: m4}]
"""
JOB = """
name: a
queue: x
gang: [{role: w, members: 1, each: {gpus: 2}, run: [sleep, "600"]}]
"""
WIDTH = "DCGM_FI_DEV_PCIE_LINK_WIDTH"


class _Exporter(BaseHTTPRequestHandler):
    """n1 tells more than there can be, n2 half a text."""

    def do_GET(self) -> None:
        node = self.path.strip("/")
        width = {"n0": 8, "n1": 999}.get(node, 16)
        text = "".join(
            f'{WIDTH}{{gpu="{gpu}",hostname="{node}"}} {width if gpu == 0 else 16}\n'
            f'DCGM_FI_DEV_GPU_TEMP{{gpu="{gpu}",hostname="{node}"}} 40\n'
            for gpu in range(4)
        )
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode() if node != "n2" else text.encode()[:-20])

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), _Exporter)) as exporter:
        url = f"http://127.0.0.1:{exporter.server_address[1]}/{{node}}"
        with Daemon(tmp_path / "state", CLUSTER, gpu_metrics=url) as running:
            yield running


def test_a_gpu_at_half_width_is_shown_avoided_and_overruled(daemon: Daemon) -> None:
    deadline = time.monotonic() + 300
    while not daemon.client.links() and time.monotonic() < deadline:
        time.sleep(0.05)
    (row,) = daemon.client.links()
    assert (row["link"], row["health"], row["source"]) == ("gpu-pcie:n0/0", 0.5, "dcgm")
    assert row["reason"] == "PCIe x8 instead of x16"
    (node,) = (each for each in daemon.client.nodes() if each["node"] == "n0")
    assert [each["link"] for each in node["links"]] == ["gpu-pcie:n0/0"]
    daemon.client.submit(JOB)
    daemon.wait("a", until="running")
    held = {each["node"]: each["jobs"] for each in daemon.client.nodes() if each["jobs"]}
    assert "n0" not in held
    daemon.client.restore("gpu-pcie:n0/0")
    (row,) = daemon.client.links()
    assert row["overruled"]
