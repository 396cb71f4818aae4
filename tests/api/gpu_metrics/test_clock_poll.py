"""Clocks go from an exporter over HTTP to the rows of jobs and to the metric; scrapes follow each other at once."""

import asyncio
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gantree.api.gpu_metrics import polling
from gantree.api.server import straggler_watch
from gantree.api.views.straggler_view import StragglerJudge
from gantree.control.engine.controller import Controller
from gantree.control.engine.loop import Loop
from gantree.control.metrics.metrics import Metrics
from gantree.control.nodes.clock_watch import ClockWatch
from gantree.control.nodes.slow_rank_reports import SlowRankReports
from gantree.telemetry.slow_clocks import AT_LEAST
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from support.serving import serving


class _Exporter(BaseHTTPRequestHandler):
    """Of n0 GPU 2 is slow; n1 breaks off within a line."""

    def do_GET(self) -> None:
        node = self.path.strip("/")
        text = "".join(
            f'DCGM_FI_DEV_SM_CLOCK{{gpu="{gpu}",Hostname="{node}"}} {1000 if gpu == 2 else 1400}\n'
            f'DCGM_FI_DEV_GPU_UTIL{{gpu="{gpu}",Hostname="{node}"}} 100\n'
            f'DCGM_FI_DEV_GPU_TEMP{{gpu="{gpu}",Hostname="{node}"}} 40\n'
            for gpu in range(8)
        )
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode() if node == "n0" else text.encode()[:-20])

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class _Thread:
    """Runs at once what is to run on the controller's thread."""

    async def call(self, work: Callable[[], Any]) -> Any:
        return work()


@pytest.fixture
def exporter() -> Iterator[str]:
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), _Exporter)) as server:
        yield f"http://127.0.0.1:{server.server_address[1]}/{{node}}"


def test_a_gpu_of_a_low_clock_is_in_the_rows_of_its_job_the_metric_and_the_log(
    exporter: str, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(cluster(leaves=1, nodes=2))
    stage.submit(job("train", gpus=8, processes=8), job("other", gpus=8, processes=8))
    stage.started("train", "other")
    silent = SimpleNamespace(step_reports=lambda job, attempt: None)
    told = SimpleNamespace(
        ledger=stage.scheduler.ledger,
        clock=lambda: stage.now,
        epoch=1,
        inbox=SimpleNamespace(enqueue=lambda event: stage.handle([event])),
        metrics=Metrics(),
        cluster=silent,
        gpu_clocks=ClockWatch(),
    )
    controller, loop = cast("Controller", told), cast("Loop", _Thread())
    poll = polling.gpu_poll(is_exact=True, clocks=controller.gpu_clocks)
    for _ in range(AT_LEAST + 1):  # the first shows which gangs there are
        stage.now += polling.EVERY_S
        asyncio.run(polling.one_round(poll, (exporter,), loop, controller))
    (on_n0,) = (each for each in ("train", "other") if stage.nodes(each) == ["n0"])
    judge = StragglerJudge(clocks=controller.gpu_clocks)
    (row,) = judge.rows(silent, on_n0, 1)
    assert (row["rank"], row["gpus"], row["sign"], row["peers"]) == (2, [2], "clock", 7)
    for job_name in ("train", "other"):
        assert len(judge.rows(silent, job_name, 1)) == (job_name == on_n0)
    asyncio.run(straggler_watch.one_round(loop, controller, judge, {}, SlowRankReports()))
    value = told.metrics.registry.get_sample_value("gantree_stragglers", {"sign": "clock"})
    assert value == 1.0
    assert row["sentence"] in caplog.text
