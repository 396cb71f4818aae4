"""GangServices as routers and autoscalers see them: the table of routes, drains that routers report, scaling."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gantree.control.services.observed import ObservedServices
from gantree.control.services.of_cluster import services_ledger
from gantree.control.services.router_reports import ReplicaReport, RouterReport, ServiceReport
from support.kubernetes.server.statuses import Json
from support.pods import PodStage

CRDS = Path(__file__).parents[3] / "deploy/kubernetes/crds"
HOME = "/apis/gantree.io/v1alpha1/namespaces/default"
URL = f"{HOME}/gangservices"
MANIFEST = """
apiVersion: gantree.io/v1alpha1
kind: GangService
metadata: {name: chat}
spec:
  replicas: {min: 1, max: 4, wanted: 2, spare: 1}
  port: 8000
  drainSeconds: 600
  route: {models: [llama-8b], concurrency: 32, queue: 100, waitSeconds: 10, timeoutSeconds: 20, affinity: prefix}
  template:
    spec:
      queue: default
      gang:
        - {role: worker, members: 2, each: {gpus: 4}, template: {spec: {containers: [{name: serve, image: "serve:1"}]}}}
"""


class Routed:
    """A stage, and what a daemon on it tells routers."""

    def __init__(self, stage: PodStage) -> None:
        self.stage, self.observed = stage, ObservedServices()

    def table(self) -> tuple[int, list[Json]]:
        """The version of the table, and its rows."""
        controller = self.stage.controller
        version = self.observed.table.look(services_ledger(controller), controller.clock())
        return version, [row for _, row in self.observed.table.rows]

    def replicas(self) -> list[Json]:
        """Those of the one service."""
        _, rows = self.table()
        found: list[Json] = rows[0]["replicas"] if rows else []
        return found

    def ready(self) -> list[str]:
        """The names of those that get requests."""
        return [row["replica"] for row in self.replicas() if row["ready"] and not row["draining"]]

    def report(self, *in_flight: ReplicaReport) -> None:
        """A router says what is in flight."""
        version, _ = self.table()
        service = ServiceReport("default.chat", replicas=in_flight)
        now = self.stage.controller.clock()
        report = RouterReport("r1", 5.0, now, (service,), version)
        self.observed.take(report, self.stage.controller)


@pytest.fixture
def routed(tmp_path: Path) -> Iterator[Routed]:
    with PodStage(tmp_path) as stage:
        for name in ("gangjobs", "gangservices"):
            stage.api.define(yaml.safe_load((CRDS / f"{name}.yaml").read_text()))
        stage.nodes("n[0-1]", network_topology_nvidia_com__leaf="l0")
        stage.start()
        create(stage)
        routed = Routed(stage)
        stage.until(lambda: len(routed.ready()) == 2)
        yield routed


def create(stage: PodStage, **spec: Any) -> None:
    body = yaml.safe_load(MANIFEST)
    body["spec"] |= spec
    answer = stage.api.post(URL, body)
    assert answer.status_code == 201, answer.text


def scale(stage: PodStage, replicas: int) -> None:
    answer = stage.api.patch(f"{URL}/chat/scale", {"spec": {"replicas": replicas}})
    assert answer.status_code == 200, answer.text


def test_the_table_has_where_each_first_pod_listens_and_stands(routed: Routed) -> None:
    _, (row,) = routed.table()
    replicas = row.pop("replicas")
    assert row == {
        "service": "default.chat",
        "models": ["llama-8b"],
        "concurrency": 32,
        "queue": 100,
        "wait_s": 10.0,
        "timeout_s": 20.0,
        "affinity": "prefix",
        "wanted": 2,
    }
    pods = routed.stage.pods()
    for number, replica in enumerate(replicas, start=1):
        pod = pods[f"chat-{number}-worker-0"]
        node = pod["spec"]["nodeName"]
        assert replica == {
            "replica": f"default.chat-{number}",
            "attempt": 1,
            "host": pod["status"]["podIP"],
            "port": 8000,
            "node": node,
            "place": ["l0", node],
            "gpu": "H100-80GB",
            "speed": 1.0,
            "ready": True,
            "draining": False,
            "spare": number == 2,
        }


def test_the_version_rises_with_each_change_also_over_restarts(routed: Routed) -> None:
    stage = routed.stage
    before, _ = routed.table()
    assert routed.table()[0] == before
    stage.running.run(stage.kubelet.answer("default", "chat-1-worker-0", is_ready=False))
    stage.until(lambda: routed.ready() == ["default.chat-2"])
    after, _ = routed.table()
    assert after > before
    stage.stop()
    stage.start()
    again = Routed(stage)
    stage.until(lambda: again.ready() == ["default.chat-2"])
    assert again.table()[0] > after


def test_a_replica_goes_as_soon_as_routers_have_nothing_left_on_it(routed: Routed) -> None:
    stage = routed.stage
    routed.report(ReplicaReport("default.chat-2", 1, in_flight=3))
    scale(stage, 1)
    stage.until(lambda: routed.ready() == ["default.chat-1"])
    (draining,) = (row for row in routed.replicas() if row["draining"])
    assert draining["replica"] == "default.chat-2"
    routed.report(ReplicaReport("default.chat-2", 1, in_flight=1))
    stage.work_for(0.3)
    assert stage.phase("chat-2-worker-0") == "Running", "a request is in flight"
    routed.report(ReplicaReport("default.chat-2", 1))
    stage.until(lambda: not stage.phase("chat-2-worker-0"))


def test_a_service_that_is_gone_is_in_no_table(routed: Routed) -> None:
    assert routed.stage.api.delete(f"{URL}/chat").status_code == 200
    routed.stage.until(lambda: routed.table()[1] == [])
