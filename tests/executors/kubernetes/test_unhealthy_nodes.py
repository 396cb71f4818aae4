"""GPUs of which an exporter says that they fail: no pod is put beside them, and gangs that can save go elsewhere."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gantree.api.gpu_metrics.exporters import answers, questions
from gantree.control.nodes.health_watch import HealthWatch
from gantree.telemetry.dcgm.health import signs_in
from support.pods import PodStage
from support.serving import serving

XID = 'DCGM_FI_DEV_XID_ERRORS{{gpu="{gpu}",UUID="GPU-{gpu}",Hostname="exporter-x",pod=""}} {xid}\n'
CHECKPOINT = {"gantree.io/checkpoint": "first", "gantree.io/checkpoint-grace": "60s"}
ASKED, DONE = "gantree.io/checkpoint-requested", "gantree.io/checkpoint-done"


class Exporters(ThreadingHTTPServer):
    """One exporter for each node, at /NODE; xids are the last of each (node, GPU), silent who does not answer."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.xids: dict[tuple[str, int], int] = {}
        self.silent: set[str] = set()
        self.url = f"http://127.0.0.1:{self.server_address[1]}/{{node}}"


class _Handler(BaseHTTPRequestHandler):
    server: Exporters

    def do_GET(self) -> None:
        node = self.path.removeprefix("/")
        self.send_response(500 if node in self.server.silent else 200)
        self.end_headers()
        for gpu in range(8):
            xid = self.server.xids.get((node, gpu), 0)
            self.wfile.write(XID.format(gpu=gpu, xid=xid).encode())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class WatchedKinds(PodStage):
    """A stage whose nodes have exporters, which are asked when the test says so."""

    def __init__(self, state_dir: Path, exporters: Exporters) -> None:
        super().__init__(state_dir)
        self.exporters, self.watch = exporters, HealthWatch(clean_s=0.0)

    def ask(self) -> None:
        """Ask the exporters of all nodes once."""
        ledger = self.controller.ledger
        nodes = () if ledger.fabric is None else tuple(ledger.fabric.index_of_node)
        told, _ = answers(questions([self.exporters.url], nodes, signs_in), nodes)
        now = self.controller.clock()
        judged = self.watch.judge(told, ledger.fabric, now)
        for event in self.watch.events(judged, ledger, now, 1):
            self.controller.inbox.enqueue(event)

    def events(self, reason: str) -> list[tuple[str, str]]:
        """Events of a reason: what each is about, and its sentence."""
        items = self.api.get("/api/v1/events").json()["items"]
        return [
            (each["involvedObject"]["name"], each["message"])
            for each in items
            if each["reason"] == reason
        ]

    def unwell(self) -> list[str]:
        return list(self.controller.ledger.site.cordoned)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[WatchedKinds]:
    with serving(Exporters()) as exporters, WatchedKinds(tmp_path / "a", exporters) as stage:
        yield stage


def running(stage: WatchedKinds, name: str, **annotations: str) -> str:
    """A pod of eight GPUs runs; its node."""
    stage.pod(name, gpus=8, annotations=annotations)
    stage.until(lambda: stage.phase(name) == "Running")
    return stage.node_of(name)


def test_nothing_new_comes_to_a_node_with_a_broken_gpu_and_the_node_says_why(
    stage: WatchedKinds,
) -> None:
    stage.nodes("n[0-1]")
    stage.start()
    node = running(stage, "p0")
    stage.ask()
    assert stage.unwell() == []
    stage.exporters.xids[node, 3] = 48
    stage.ask()
    stage.until(lambda: stage.unwell() == [node])
    said = "GPU 3: XID 48 (double-bit ECC error)"
    stage.until(
        lambda: stage.events("NodeUnwell") == [(node, f"Nothing new is placed here: {said}")]
    )
    stays = f"Node {node} is unwell: {said}. The gang stays, for it does not say how it saves."
    stage.until(lambda: stage.events("NodeMayFail") == [("p0", stays)])
    stage.pod("p1", gpus=8)
    stage.until(lambda: stage.bound("p1"))
    assert stage.node_of("p1") != node
    assert stage.phase("p0") == "Running"

    stage.exit("p0")
    stage.pod("p2", gpus=8)
    stage.exporters.silent.add(node)
    stage.ask()
    stage.work_for(0.3)
    assert not stage.bound("p2")
    stage.exporters.silent.clear()
    stage.exporters.xids.clear()
    stage.ask()
    stage.until(lambda: stage.bound("p2"))
    stage.until(lambda: [name for name, _ in stage.events("NodeWell")] == [node])


def test_a_gang_that_can_save_is_asked_to_and_goes_elsewhere(stage: WatchedKinds) -> None:
    stage.nodes("n[0-1]")
    stage.start()
    node = running(stage, "p0", **CHECKPOINT)
    stage.exporters.xids[node, 0] = 48
    stage.ask()

    def asked() -> str | None:
        found: str | None = stage.pods()["p0"]["metadata"]["annotations"].get(ASKED)
        return found

    stage.until(lambda: asked() is not None)
    assert stage.phase("p0") == "Running"
    body = {"metadata": {"annotations": {DONE: asked()}}}
    path = "/api/v1/namespaces/default/pods/p0"
    assert stage.api.patch(path, body, "application/merge-patch+json").status_code == 200
    stage.until(lambda: "p0" not in stage.pods())
    assert running(stage, "p0", **CHECKPOINT) != node
    (state,) = [each for each in stage.controller.ledger.jobs.values() if each.fled_at]
    assert state.preemptions == 0


def test_a_restart_forgets_neither_what_is_wrong_nor_what_was_forgiven(stage: WatchedKinds) -> None:
    stage.nodes("n[0-1]")
    stage.start()
    stage.until(lambda: stage.controller.ledger.fabric is not None)
    stage.exporters.xids["n0", 0] = 95
    stage.ask()
    stage.until(lambda: stage.unwell() == ["n0"])
    stage.stop()
    stage.start()
    assert stage.unwell() == ["n0"]
    stage.controller.nodes.uncordon("n0")
    stage.until(lambda: stage.unwell() == [])
    stage.stop()
    stage.start()
    stage.watch = HealthWatch(clean_s=0.0)
    stage.ask()
    stage.work_for(0.3)
    assert stage.unwell() == []


def test_a_node_beyond_the_limit_says_its_fault_and_that_it_is_kept_in_use(
    stage: WatchedKinds,
) -> None:
    stage.nodes("n[0-1]")
    stage.start()
    stage.until(lambda: stage.controller.ledger.fabric is not None)
    stage.exporters.xids["n0", 3] = 48
    stage.ask()
    stage.until(lambda: stage.unwell() == ["n0"])
    stage.exporters.xids["n1", 3] = 48
    stage.ask()
    kept = "kept in use: 1 node is out already, the limit is a fifth of 2 nodes; `gantree cordon n1` takes it out"
    said = "GPU 3: XID 48 (double-bit ECC error)"
    stage.until(lambda: ("n1", f"{said}, {kept}") in stage.events("NodeUnwell"))
    stage.pod("p0", gpus=8)
    stage.until(lambda: stage.bound("p0"))
    assert stage.node_of("p0") == "n1"
    stage.exporters.xids.clear()
    stage.ask()
    stage.until(lambda: sorted(name for name, _ in stage.events("NodeWell")) == ["n0", "n1"])
