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


def answering(port: str = "9000", service: str = "embed", **annotations: str) -> dict[str, Any]:
    """Labels and annotations of a pod that others make."""
    told = {"gantree.io/port": port, **annotations}
    return {"labels": {"gantree.io/service": service}, "annotations": told}


def other(routed: Routed, name: str) -> Json | None:
    """The row of a service."""
    return next((row for row in routed.table()[1] if row["service"] == name), None)


def test_pods_of_a_deployment_are_replicas_until_they_are_to_go(routed: Routed) -> None:
    stage = routed.stage
    told = answering(**{"gantree.io/models": "e5, bge", "gantree.io/concurrency": "64"})
    slow = {**told["annotations"], "kubelet.gantree/stops-s": "300"}
    for name in ("embed-7d-a", "embed-7d-b"):
        spec = {"terminationGracePeriodSeconds": 600}
        stage.pod(name, labels=told["labels"], annotations=slow, spec=spec)

    def ready() -> list[str]:
        row = other(routed, "default.embed")
        replicas = row["replicas"] if row else []
        return [each["replica"] for each in replicas if each["ready"] and not each["draining"]]

    stage.until(lambda: ready() == ["default.embed-7d-a", "default.embed-7d-b"])
    row = other(routed, "default.embed")
    assert row is not None
    assert (row["models"], row["concurrency"], row["wanted"]) == (["e5", "bge"], 64, 2)
    first = row["replicas"][0]
    pod = stage.pods()["embed-7d-a"]
    assert (first["host"], first["port"]) == (pod["status"]["podIP"], 9000)
    assert first["node"] == pod["spec"]["nodeName"]
    stage.api.delete("/api/v1/namespaces/default/pods/embed-7d-a")
    stage.until(lambda: ready() == ["default.embed-7d-b"])
    row = other(routed, "default.embed")
    assert row is not None
    assert [each["draining"] for each in row["replicas"]] == [True, False]
    stage.running.run(stage.kubelet.answer("default", "embed-7d-b", is_ready=False))
    stage.until(lambda: ready() == [])
    unlabelled = {"metadata": {"labels": {"gantree.io/service": None}}}
    for name in ("embed-7d-a", "embed-7d-b"):
        stage.api.patch(f"/api/v1/namespaces/default/pods/{name}", unlabelled)
    stage.until(lambda: other(routed, "default.embed") is None)


def test_the_leader_of_each_group_of_a_leaderworkerset_is_a_replica(routed: Routed) -> None:
    """Its leader template has the port; pods of one gang stand together."""
    stage, name = routed.stage, "leaderworkerset.sigs.k8s.io/name"
    for group in range(2):
        for index in range(2):
            told = answering("8000", "vllm") if index == 0 else {"annotations": {}}
            gang = {"gantree.io/gang": f"vllm-{group}", name: "vllm"}
            annotations = {**told["annotations"], "gantree.io/gang-size": "2"}
            labels = {**told.get("labels", {}), **gang}
            stage.pod(f"vllm-{group}-{index}", labels=labels, annotations=annotations)
    stage.until(lambda: len((other(routed, "default.vllm") or {"replicas": []})["replicas"]) == 2)
    row = other(routed, "default.vllm")
    assert row is not None
    assert [each["replica"] for each in row["replicas"]] == ["default.vllm-0-0", "default.vllm-1-0"]


def test_a_gangservice_has_its_name_for_itself_and_an_odd_port_is_none(routed: Routed) -> None:
    stage = routed.stage
    for name, port, service in (("a", "8000", "chat"), ("b", "70000", "odd"), ("c", "x", "odd")):
        told = answering(port, service)
        stage.pod(name, labels=told["labels"], annotations=told["annotations"])
    stage.until(lambda: stage.bound("a", "b", "c"))
    stage.work_for(0.2)
    _, rows = routed.table()
    assert [row["service"] for row in rows] == ["default.chat"]
    assert len(rows[0]["replicas"]) == 2
