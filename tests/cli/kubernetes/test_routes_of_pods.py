"""`gantree kubernetes` tells routers where pods of GangServices listen, and scales these by what routers report."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gantree.api.client.client import Client
from gantree.api.client.service_requests import report_routes, routes
from support.daemon import Program
from support.kubernetes.server.statuses import Json
from support.pods import PodStage
from support.yaml_text import read_yaml

CRDS = Path(__file__).parents[3] / "deploy/kubernetes/crds"
URL = "/apis/gantree.io/v1alpha1/namespaces/default/gangservices"
MANIFEST = """
apiVersion: gantree.io/v1alpha1
kind: GangService
metadata: {name: chat}
spec:
  replicas: {min: 1, max: 3}
  port: 8000
  scale: {targets: [{metric: concurrency, target: 2}], everySeconds: 1}
  template:
    spec: {gang: [{role: worker, each: {gpus: 8}, template: {spec: {containers: [{name: serve, image: "serve:1"}]}}}]}
"""
WITHIN_S = 300.0


def until(client: Client, is_so: Callable[[Json], bool]) -> Json:
    """The first table of which something is so; each is waited for at the daemon."""
    deadline, table = time.monotonic() + WITHIN_S, client.send(routes())
    while not is_so(table):
        assert time.monotonic() < deadline, table
        table = client.send(routes(table["version"], wait_s=1.0))
    return table


def ready(table: Json) -> list[bool]:
    return [each["ready"] for row in table["services"] for each in row["replicas"]]


def scaled(taken: Json) -> bool:
    """That a report was taken: it says again what the load is, which else is forgotten."""
    return bool(taken["version"])


def test_routers_wait_for_changes_of_pods_and_what_they_report_scales_the_service(
    tmp_path: Path,
) -> None:
    with PodStage(tmp_path / "unused") as stage:
        for name in ("gangjobs", "gangservices"):
            stage.api.define(read_yaml((CRDS / f"{name}.yaml").read_text()))
        stage.nodes("n[0-2]")
        state = tmp_path / "state"
        where = ("--api-server", stage.running.url, "--state", str(state), "--name", "a")
        with Program("kubernetes", *where) as running, ThreadPoolExecutor() as threads:
            client = Client(state)
            running.says("ready: cluster kubernetes, ")
            assert stage.api.post(URL, read_yaml(MANIFEST)).status_code == 201
            table = until(client, lambda table: ready(table) == [True])
            (row,) = table["services"]
            (replica,) = row["replicas"]
            (pod,) = stage.pods().values()
            assert (row["service"], replica["replica"]) == ("default.chat", "default.chat-1")
            assert (replica["host"], replica["node"]) == (
                pod["status"]["podIP"],
                pod["spec"]["nodeName"],
            )
            waits = threads.submit(until, client, lambda table: ready(table) == [False])
            stage.running.run(stage.kubelet.answer("default", "chat-1-worker-0", is_ready=False))
            assert waits.result()["version"] > table["version"]
            stage.running.run(stage.kubelet.answer("default", "chat-1-worker-0", is_ready=True))
            busy = {"service": "default.chat", "rate": 3.0, "concurrency": 5.0, "in_flight": 5}
            report = report_routes("r1", 5.0, [busy])
            until(client, lambda table: scaled(client.send(report)) and ready(table) == [True] * 3)
            scale = stage.api.get(f"{URL}/chat/scale").json()
            assert scale["spec"]["replicas"] == 3, "the autoscaler writes what any other would"
            told = stage.api.get(f"{URL}/chat").json()["status"]["scaledFor"]
            assert told.startswith("3 replicas: concurrency 5 "), told
            assert running.stop() == 0
