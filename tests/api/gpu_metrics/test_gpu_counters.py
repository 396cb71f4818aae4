"""The use of GPUs from exporters and the driver: read when somebody looks, beside all else, and never waited for."""

import asyncio
import logging
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gantree.api.gpu_metrics import gpu_counters
from gantree.api.gpu_metrics.exporters import checked
from gantree.api.gpu_metrics.gpu_counters import GpuCounters
from gantree.model.errors import BadInput, Unreachable
from gantree.telemetry.gpu_use import GpuUse, UseOfGpu
from support.serving import serving

UTIL = 'DCGM_FI_DEV_GPU_UTIL{{gpu="{gpu}",Hostname="{host}"}} {value}\n'


class Exporter(ThreadingHTTPServer):
    """Serves what it is told to, by path."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.says: dict[str, str] = {}
        self.asked: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Exporter

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        said = self.server.says.get(self.path)
        self.send_response(404 if said is None else 200)
        self.end_headers()
        self.wfile.write((said or "").encode())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    with serving(Exporter()) as server:
        yield server


def looked(counters: GpuCounters, nodes: tuple[str, ...], times: int = 1) -> None:
    """Have it read so often, one after the other."""

    async def look() -> None:
        for _ in range(times):
            before = counters.version
            counters.refresh(nodes)
            async with asyncio.timeout(60):
                while counters.version == before:
                    await asyncio.sleep(0.01)

    asyncio.run(look())


def test_an_exporter_on_each_node_is_asked_for_its_own(exporter: Exporter) -> None:
    for node, value in (("n0", 10), ("n1", 90)):
        exporter.says[f"/{node}"] = UTIL.format(
            gpu=0, host="whatever-the-pod-is-called", value=value
        )
    counters = GpuCounters([exporter.url + "/{node}"])
    assert counters.use_of_node == {}
    looked(counters, ("n0", "n1"))
    assert counters.use_of_node == {"n0": {0: GpuUse(0.1)}, "n1": {0: GpuUse(0.9)}}


def test_one_that_tells_of_all_is_read_by_host_and_others_nodes_are_left_out(
    exporter: Exporter,
) -> None:
    exporter.says["/federate"] = "".join(
        UTIL.format(gpu=gpu, host=host, value=50) for host in ("n0", "n9") for gpu in (0, 1)
    )
    counters = GpuCounters([exporter.url + "/federate"])
    looked(counters, ("n0", "n1"))
    assert counters.use_of_node == {"n0": {0: GpuUse(0.5), 1: GpuUse(0.5)}}


def test_who_is_silent_is_left_out_and_said_once_until_he_speaks(
    exporter: Exporter, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(gpu_counters, "FRESH_S", 0.0)
    exporter.says["/n0"] = UTIL.format(gpu=0, host="n0", value=10)
    counters = GpuCounters([exporter.url + "/{node}"])
    with caplog.at_level(logging.WARNING):
        looked(counters, ("n0", "n1"), times=3)
        assert list(counters.use_of_node) == ["n0"]
        assert [line.getMessage().split(": ")[0] for line in caplog.records] == [
            f"the use of GPUs is not known from {exporter.url}/n1"
        ]
        exporter.says["/n1"] = "no metrics{"
        exporter.says["/n0"] = 'DCGM_FI_DEV_GPU_UTIL{gpu="0"} many\n'
        looked(counters, ("n0", "n1"))
        assert dict(counters.use_of_node.get("n0", {})) == {}
        assert "no metrics in Prometheus" in caplog.records[-1].getMessage()
    assert len(caplog.records) == 2


def test_what_is_fresh_is_not_asked_for_again(exporter: Exporter) -> None:
    exporter.says["/m"] = UTIL.format(gpu=0, host="n0", value=10)
    counters = GpuCounters([exporter.url + "/m"])

    async def look_often() -> None:
        for _ in range(50):
            counters.refresh(("n0",))
            await asyncio.sleep(0.01)

    asyncio.run(look_often())
    assert exporter.asked == ["/m"]


@pytest.mark.parametrize(("nodes", "is_asked"), [(("here", "n1"), True), (("n0", "n1"), False)])
def test_the_driver_is_asked_where_this_machine_is_a_node(
    nodes: tuple[str, ...], is_asked: bool
) -> None:
    counters = GpuCounters(here=("here", lambda: {2: GpuUse(0.3)}))
    assert counters.covers(nodes) is is_asked
    looked(counters, nodes)
    assert counters.use_of_node == ({"here": {2: GpuUse(0.3)}} if is_asked else {})


def test_a_driver_that_does_not_answer_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> UseOfGpu:
        raise Unreachable("no NVIDIA driver answers here")

    looked(GpuCounters(here=("n0", broken)), ("n0",))
    assert "no NVIDIA driver answers" in caplog.text


@pytest.mark.parametrize(
    "address", ["http://{node}:9400/metrics", "https://prometheus.example:9090/federate?match[]=x"]
)
def test_an_address_of_http_may_be_asked(address: str) -> None:
    assert checked(address, "--gpu-metrics") == address


@pytest.mark.parametrize(
    "address", ["file:///etc/passwd", "{node}:9400", "http://", "http://a:b@c/", "http://[", ""]
)
def test_other_addresses_are_bad_input(address: str) -> None:
    with pytest.raises(BadInput, match="--gpu-metrics: found"):
        checked(address, "--gpu-metrics")
