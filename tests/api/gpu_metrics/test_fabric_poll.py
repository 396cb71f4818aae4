"""A daemon reads the fabric's ports from a file, unless it is stale, and the load of links from a server."""

import json
import os
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gantree.api.gpu_metrics.exporters import answers, checked_ports, questions
from gantree.model.errors import BadInput
from gantree.telemetry.fabric_ports import uplinks_in
from support.daemon import Daemon
from support.serving import serving
from support.ufm import fabric

CLUSTER = """
name: two
tiers: [spine, leaf, node]
machines: {m2: {gpus: 2, gpu: H100-80GB, nics: 2}}
nodes:
  - {names: "u0n[0-1]", machine: m2, at: {spine: s0, leaf: l0}}
  - {names: "u1n[0-1]", machine: m2, at: {spine: s0, leaf: l1}}
"""


@pytest.fixture
def ports(tmp_path: Path) -> Path:
    """Three of four cables of the first unit."""
    _, found, _ = fabric()
    (one,) = (each for each in found if each["system_name"] == "leaf-0-0" and each["number"] == 1)
    one.update(logical_state="Down", physical_state="Polling")
    path = tmp_path / "ports.json"
    path.write_text(json.dumps(found))
    return path


class _Prometheus(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(
            b'gantree_link_load{link="leaf:s0/l1",instance="p:9090"} 0.83 1795837129053\n'
        )

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def daemon(tmp_path: Path, ports: Path) -> Iterator[Daemon]:
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), _Prometheus)) as prometheus:
        url = f"http://127.0.0.1:{prometheus.server_address[1]}/federate?match[]=gantree_link_load"
        ports_url = f"file://{ports}"
        with Daemon(tmp_path / "state", CLUSTER, fabric_ports=ports_url, link_load=url) as running:
            yield running


def test_a_leaf_of_which_a_cable_is_out_and_a_busy_one_are_listed(daemon: Daemon) -> None:
    deadline = time.monotonic() + 300
    while len(daemon.client.links()) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [
        (row["link"], row["health"], row["load"], row["source"]) for row in daemon.client.links()
    ] == [("leaf:s0/l0", 0.75, 0.0, "fabric-ports"), ("leaf:s0/l1", 1.0, 0.8, "link-load")]


def test_a_file_that_nobody_keeps_fresh_is_not_heard(ports: Path) -> None:
    address = f"file://{ports}"
    asked = questions([address], ["u0n0"], uplinks_in)
    assert list(answers(asked, ["u0n0"])[0]) == ["u0n0"]
    os.utime(ports, (time.time() - 3600, time.time() - 3600))
    assert answers(asked, ["u0n0"]) == ({}, {address: "the file was written 60 minutes ago"})


@pytest.mark.parametrize(
    "address", ["ports.json", "file://host/x", "http://{node}/x", "https://u:p@ufm/", "ftp://x/y"]
)
def test_what_is_no_source_of_ports_is_refused(address: str) -> None:
    with pytest.raises(BadInput, match="--fabric-ports"):
        checked_ports(address)
