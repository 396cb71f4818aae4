"""Idle gangs with real processes: warned in their own log, reclaimed across a kill -9, kept by a lease.

The exporter is simulated, samples come ten times a second, and a gang is warned after a second.
"""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

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
POLICY = "idle: {warn: 1s, reclaim: 3s, grace: 0s}"
JOB = """
name: NAME
queue: x
checkpoint: {signal: SIGUSR1, grace: 100ms}
gang: [{role: w, members: 1, each: {gpus: 2}, run: [sh, -c, "echo up; exec sleep 600"]}]
"""
SAMPLES = """
DCGM_FI_DEV_GPU_UTIL{{gpu="{gpu}",Hostname="{node}"}} 100
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{{gpu="{gpu}",Hostname="{node}"}} {tensor}
DCGM_FI_PROF_DRAM_ACTIVE{{gpu="{gpu}",Hostname="{node}"}} 0
"""


class Exporter(ThreadingHTTPServer):
    """GPUs of two nodes at 100 %; those of `hung` compute nothing."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.hung: set[str] = set()


class _Handler(BaseHTTPRequestHandler):
    server: Exporter

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        for node in ("n0", "n1"):
            tensor = 0.0 if node in self.server.hung else 0.7
            for gpu in (0, 1):
                self.wfile.write(SAMPLES.format(node=node, gpu=gpu, tensor=tensor).encode())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class SamplingDaemon(Daemon):
    """A daemon with many samples."""

    prefix = ("sampling",)

    def fact_of(self, kind: str, job: str) -> dict[str, Any]:
        """Wait for the first fact of a kind about a job."""
        facts = self.client.facts(follow=True)
        return next(each for each in facts if each["fact"] == kind and each["data"]["job"] == job)

    def submitted(self, name: str) -> str:
        """Submit a job, and wait until it runs: its node."""
        self.client.submit(JOB.replace("NAME", name))
        return self.node_of(name)

    def node_of(self, name: str) -> str:
        """Wait until a job runs: its node."""
        self.wait(name, until="running")
        node: str = self.client.job(name)["placement"]["members"][0]["node"]
        return node

    def page(self, path: str) -> str:
        """A page as a browser gets it."""
        token = (self.state_dir / "token").read_text().strip()
        asked = Request(self.url + path, headers={"Authorization": f"Bearer {token}"})
        with urlopen(asked, timeout=60) as answer:
            text: str = answer.read().decode()
        return text

    def log_of(self, job: str) -> str:
        return (self.state_dir / "runs" / job / "1" / "log" / "rank-0.log").read_text()


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    with serving(Exporter()) as exporter:
        yield exporter


@pytest.fixture
def daemon(tmp_path: Path, exporter: Exporter) -> Iterator[SamplingDaemon]:
    url = f"http://127.0.0.1:{exporter.server_address[1]}/metrics"
    with SamplingDaemon(
        tmp_path / "state", CLUSTER, POLICY, listen="127.0.0.1:0", pages=True, gpu_metrics=url
    ) as running:
        yield running


def test_a_hung_gang_is_warned_in_its_log_and_reclaimed_across_a_kill_while_a_lease_keeps_another(
    daemon: SamplingDaemon,
    exporter: Exporter,
    gantree: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GANTREE_STATE", str(daemon.state_dir))
    hung, kept = daemon.submitted("hung"), daemon.submitted("kept")
    daemon.client.submit(JOB.replace("NAME", "next"))
    assert "kept is extended" in gantree("extend", "kept", "2h").out
    exporter.hung = {hung, kept}
    noted, warned = (
        daemon.fact_of("GangIdlenessNoted", "hung"),
        daemon.fact_of("GangIdleWarned", "hung"),
    )
    daemon.kill()
    daemon.start()
    reclaimed = daemon.fact_of("GangReclaimed", "hung")
    assert reclaimed["data"]["since"] == noted["data"]["since"]
    assert reclaimed["at"] >= warned["data"]["reclaim_at"] >= noted["data"]["since"] + 3.0
    assert daemon.node_of("next") == hung
    assert daemon.log_of("hung").startswith(
        "up\ngantree: the 2 GPUs of this job have not computed for "
    )
    assert daemon.log_of("hung").count("gantree extend hung 2h") == 1
    row = daemon.client.job("hung")
    assert (row["phase"], row["reason"]) == ("pending", "requeued: idle")
    assert b"job hung attempt 1 does not compute: requeue in 2 s" in daemon.output.read_bytes()
    noted = daemon.fact_of("GangIdlenessNoted", "kept")
    row = daemon.client.job("kept")
    assert row["idle"]["since"] == noted["data"]["since"] and row["idle"]["warned_at"] is None
    assert "idle for" in gantree("jobs").out and "lease for 1h59m" in gantree("jobs").out
    assert "`gantree extend kept 2h` keeps it" in gantree("why", "kept").out
    assert 'data-extend="7200"' in daemon.page("/jobs/kept")
    assert "data-extend" not in daemon.page("/jobs/next")
    refused = gantree("extend", "kept", "3d")
    assert "for_s: found 3 d" in refused.err
    assert "at most 1 d" in refused.err
    assert "kept is kept no longer" in gantree("extend", "kept", "0s").out
