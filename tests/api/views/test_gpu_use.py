"""How busy the GPUs of each job are, over the API and on the command line: from a real exporter, as one may see it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gantree.api.access.access import EVERYTHING, Caller
from gantree.api.views.gpu_use_view import held, measured
from gantree.control.requests.read_view import ReadPoint, ReadView
from gantree.model.access import grant_of
from gantree.model.jobs import Role, Shape
from gantree.telemetry.gpu_use import GpuUse
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
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
name: {name}
user: ann
queue: x
gang: [{{role: w, members: 1, each: {{gpus: 2}}, run: [sleep, "600"]}}]
"""
SAYS = """
DCGM_FI_DEV_GPU_UTIL{gpu="0",Hostname="n0"} 90
DCGM_FI_DEV_GPU_UTIL{gpu="1",Hostname="n0"} 30
DCGM_FI_DEV_POWER_USAGE{gpu="0",Hostname="n0"} 500
"""


class _Exporter(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(SAYS.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Two jobs on two nodes, of which one tells how busy it is."""
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), _Exporter)) as exporter:
        url = f"http://127.0.0.1:{exporter.server_address[1]}/metrics"
        place = tmp_path_factory.mktemp("gpu-use") / "state"
        with Daemon(place, CLUSTER, gpu_metrics=url) as running:
            for name in ("told", "untold"):
                running.client.submit(JOB.format(name=name))
                running.wait(name, until="running")
            yield running


def test_each_job_comes_with_what_its_gpus_say_at_the_first_question(daemon: Daemon) -> None:
    told = daemon.client.gpu_use()
    assert told["is_told"]
    first, second = told["rows"]
    assert (first["name"], first["held_gpus"], first["told_gpus"]) == ("told", 2, 2)
    assert (first["busy"], first["least_busy"]) == (pytest.approx(0.6), 0.3)
    assert (first["power_W"], first["memory_GiB"], first["is_shared"]) == (500, None, False)
    assert (second["name"], second["told_gpus"], second["busy"]) == ("untold", 0, None)


def test_the_command_prints_a_table_csv_and_json(gantree: CommandLine, daemon: Daemon) -> None:
    command = partial(gantree, "usage", "--gpus", "--state", daemon.state_dir)
    head, told, untold = command().out.splitlines()
    assert head.split() == ["JOB", "QUEUE", "GPUS", "BUSY", "LEAST", "MEMORY", "GiB", "WATTS"]
    assert told.split() == ["told", "x", "2", "60%", "30%", "-", "500"]
    assert untold.split() == ["untold", "x", "2", "(0", "tell)", "-", "-", "-", "-"]
    assert command("--csv").out.splitlines()[1] == "told,2,2,0.6,0.3,,500.0"
    assert command("--json").json() == daemon.client.gpu_use()


def sharing(name: str, share: float) -> Any:
    return replace(
        job(name),
        user=name,
        queue="x",
        roles=(Role("w", 1, Shape(gpu_share=share, gpu_memory_GiB=8.0), run=("true",)),),
    )


def rows(who: str, grants: Sequence[Any], stage: Stage) -> list[dict[str, Any]]:
    ledger = stage.scheduler.ledger
    reading = ReadView(ledger, None, ReadPoint(1, stage.now), lambda policy: stage.scheduler)  # type: ignore[arg-type]  # nothing here asks a journal
    told = held(reading, Caller(who, tuple(grants), "tcp"))
    busy = {gpu: GpuUse(0.5, 4.0) for gpu in range(8)}
    return measured(told["rows"], dict.fromkeys(told["nodes"], busy))


def test_of_a_gpu_that_is_shared_with_somebody_unseen_nothing_is_told() -> None:
    stage = Stage(cluster(leaves=1, nodes=1))
    for name in ("ann", "bob"):
        stage.submit(sharing(name, 0.25))
    boss = rows("op", EVERYTHING, stage)
    assert [(row["name"], row["told_gpus"], row["busy"]) for row in boss] == [
        ("ann", 1, 0.5),
        ("bob", 1, 0.5),
    ]
    assert all(row["is_shared"] for row in boss)
    (own,) = rows("ann", [grant_of("user")], stage)
    assert (own["name"], own["held_gpus"], own["told_gpus"], own["busy"]) == ("ann", 1, 0, None)
    assert rows("eve", [grant_of("user")], stage) == []


def test_without_anybody_to_ask_the_command_says_how_to_have_one(
    gantree: CommandLine, tmp_path: Path
) -> None:
    with Daemon(tmp_path / "state", CLUSTER) as daemon:
        assert daemon.client.gpu_use() == {"is_told": False, "rows": []}
        (said,) = gantree("usage", "--gpus", "--state", daemon.state_dir).out.splitlines()
        assert "--gpu-metrics" in said
