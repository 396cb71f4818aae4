"""GangServices as routers and autoscalers see them: the table of routes, drains that routers report, scaling."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gantree.api.access.access import Caller
from gantree.api.access.permissions import HiddenJob
from gantree.api.views import service_view
from gantree.control.metrics.service_metrics import ServiceFigures, service_figures
from gantree.control.services.observed import ObservedServices
from gantree.control.services.of_cluster import services_ledger, services_view
from gantree.control.services.router_reports import ReplicaReport, RouterReport, ServiceReport
from gantree.model.access import Grant, Power
from support.kubernetes.server.statuses import Json
from support.pods import PodStage
from support.yaml_text import read_yaml

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
  cacheEvents: {port: 5557}
  route:
    {models: [llama-8b], concurrency: 32, queue: 100, waitSeconds: 10, timeoutSeconds: 20, affinity: cache,
     tokenizer: meta/llama-8b}
  template:
    spec:
      queue: default
      gang:
        - {role: worker, members: 2, each: {gpus: 4}, template: {spec: {containers: [{name: serve, image: "serve:1"}]}}}
"""
LWS_DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: leaderworkersets.leaderworkerset.x-k8s.io}
spec:
  group: leaderworkerset.x-k8s.io
  scope: Namespaced
  names: {kind: LeaderWorkerSet, plural: leaderworkersets, singular: leaderworkerset}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""
GROUP_0 = ("vllm-0", "vllm-0-1")


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
            stage.api.define(read_yaml((CRDS / f"{name}.yaml").read_text()))
        stage.api.define(read_yaml(LWS_DEFINITION))
        stage.nodes("n[0-1]", network_topology_nvidia_com__leaf="l0")
        stage.start()
        create(stage)
        routed = Routed(stage)
        stage.until(lambda: len(routed.ready()) == 2)
        yield routed


def create(stage: PodStage, **spec: Any) -> None:
    body = read_yaml(MANIFEST)
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
        "affinity": "cache",
        "tokenizer": "meta/llama-8b",
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
            "cache_events_port": 5557,
            "cache_replay_port": 0,
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


LWS = """
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: vllm}
spec:
  replicas: 2
  leaderWorkerTemplate:
    size: 2
    leaderTemplate:
      metadata:
        labels: {role: leader, gantree.io/service: vllm}
        annotations: {gantree.io/port: "8080"}
      spec: {containers: [{name: vllm-leader, image: vllm}]}
    workerTemplate: {spec: {containers: [{name: vllm-worker, image: vllm}]}}
"""


def test_the_leader_of_each_group_of_a_leaderworkerset_is_a_replica(routed: Routed) -> None:
    """The set is as docs/examples/vllm/GPU/lws.yaml of kubernetes-sigs/lws, the pods as its controller makes them."""
    stage, prefix = routed.stage, "leaderworkerset.sigs.k8s.io"
    manifest = read_yaml(LWS)
    url = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/default/leaderworkersets"
    assert stage.api.post(url, manifest).status_code == 201
    leader = manifest["spec"]["leaderWorkerTemplate"]["leaderTemplate"]["metadata"]
    for group, index in itertools.product(range(2), range(2)):
        told = leader if index == 0 else {"labels": {}, "annotations": {}}
        of_set = {
            "name": "vllm",
            "group-index": str(group),
            "group-key": f"{group:040}",
            "worker-index": str(index),
            "template-revision-hash": "6968c9d5f8",
        }
        labels = {f"{prefix}/{key}": value for key, value in of_set.items()}
        annotations = {f"{prefix}/size": "2", **told["annotations"]}
        name = f"vllm-{group}-{index}" if index else f"vllm-{group}"
        stage.pod(name, labels={**labels, **told["labels"]}, annotations=annotations)
    assert replicas_of(routed, "default.vllm", 2) == ["default.vllm-0", "default.vllm-1"]
    jobs = {stage.pods()[name]["metadata"]["annotations"]["gantree.io/job"] for name in GROUP_0}
    assert len(jobs) == 1, "a group is a gang"


def test_the_predictors_of_an_inferenceservice_of_kserve_are_replicas(routed: Routed) -> None:
    """As KServe makes them in its standard mode (a Deployment): with labels and annotations of the InferenceService."""
    told = answering("8080", "sklearn-iris", **{"gantree.io/models": "iris"})
    labels = {
        **told["labels"],
        "app": "isvc.sklearn-iris-predictor",
        "component": "predictor",
        "pod-template-hash": "5d8c7f6b9",
        "serving.kserve.io/inferenceservice": "sklearn-iris",
    }
    mode = {"serving.kserve.io/deploymentMode": "Standard"}
    for end in ("a", "b"):
        routed.stage.pod(
            f"sklearn-iris-predictor-5d8c7f6b9-{end}",
            labels=labels,
            annotations={**told["annotations"], **mode},
            spec={"containers": [{"name": "kserve-container", "image": "sklearnserver"}]},
        )
    assert replicas_of(routed, "default.sklearn-iris", 2) == [
        f"default.sklearn-iris-predictor-5d8c7f6b9-{end}" for end in ("a", "b")
    ]
    row = other(routed, "default.sklearn-iris")
    assert row is not None and row["models"] == ["iris"]


def replicas_of(routed: Routed, service: str, replicas: int) -> list[str]:
    """The replicas of a service, once so many are ready."""

    def ready() -> list[str]:
        row = other(routed, service) or {"replicas": []}
        return [each["replica"] for each in row["replicas"] if each["ready"]]

    routed.stage.until(lambda: len(ready()) == replicas)
    return ready()


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


def listed_for(routed: Routed, *grants: Grant) -> list[str]:
    """The names of the services that a caller of these grants sees."""
    caller = Caller("ann", grants, "tcp")
    return [
        row["service"]
        for row in service_view.services(services_view(routed.stage.controller), caller)
    ]


def test_who_may_not_see_a_queue_sees_none_of_its_services(routed: Routed) -> None:
    assert listed_for(routed, Grant(Power.SEE, "")) == ["default.chat"]
    assert listed_for(routed, Grant(Power.SEE, "default")) == ["default.chat"]
    assert listed_for(routed, Grant(Power.SEE, "research")) == []
    with pytest.raises(HiddenJob):
        service_view.service(
            services_view(routed.stage.controller),
            Caller("ann", (Grant(Power.SEE, "research"),), "tcp"),
            "default.chat",
        )


def test_metrics_have_its_replicas_and_of_pods_no_wanted_number(routed: Routed) -> None:
    routed.stage.pod(
        "embed-1",
        labels={"gantree.io/service": "embed"},
        annotations={"gantree.io/port": "9000"},
    )

    def figures() -> dict[str, ServiceFigures]:
        return service_figures(services_ledger(routed.stage.controller))

    routed.stage.until(lambda: getattr(figures().get("default.embed"), "ready", 0) == 1)
    assert figures() == {
        "default.chat": ServiceFigures(wanted=2, ready=2, draining=0, placed=2, gpus=16),
        "default.embed": ServiceFigures(wanted=None, ready=1, draining=0, placed=1, gpus=0),
    }
