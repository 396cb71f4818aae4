"""GangJob on an API server over real HTTP: gantree makes its pods, starts them as a gang, and says how it ended."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gantree.executors.kubernetes.controllers import gangjobs
from gantree.model.phases import ENDED
from support.kubernetes.server.statuses import Json
from support.pods import PodStage
from support.yaml_text import read_yaml

CRD = Path(__file__).parents[3] / "deploy/kubernetes/crds/gangjobs.yaml"
URL = "/apis/gantree.io/v1alpha1/namespaces/default/gangjobs"
MANIFEST = """
apiVersion: gantree.io/v1alpha1
kind: GangJob
metadata: {name: llama}
spec:
  queue: default
  priority: batch
  gang:
    - role: worker
      members: 2
      processes: 8
      each: {gpus: 8, cpus: 64, memoryGiB: 512, devices: {rdma/hca: 0}}
      template:
        spec:
          containers:
            - name: train
              image: train:1
              env: [{name: SEED, value: "1"}, {name: MASTER_PORT, value: "4711"}]
    - role: logger
      each: {cpus: 1}
      template:
        metadata: {labels: {app: logger}}
        spec: {containers: [{name: log, image: log:1}]}
  topology: {required: network.topology.nvidia.com/leaf}
  restarts: {limit: 1, backoffSeconds: 0.1, backoffMaxSeconds: 0.1}
"""
PODS = ("llama-worker-0", "llama-worker-1", "llama-logger-0")


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PodStage]:
    """Two nodes in leaf l1 that can hold the gang, one in l0 that cannot."""
    with PodStage(tmp_path) as stage:
        define(stage)
        stage.nodes("a0", network_topology_nvidia_com__leaf="l0")
        stage.nodes("b[0-1]", network_topology_nvidia_com__leaf="l1")
        stage.start()
        yield stage


def define(stage: PodStage) -> None:
    body = read_yaml(CRD.read_text())
    stage.api.define(body)


def create(stage: PodStage, **spec: Any) -> None:
    body = read_yaml(MANIFEST)
    body["spec"] |= spec
    answer = stage.api.post(URL, body)
    assert answer.status_code == 201, answer.text


def status(stage: PodStage) -> Json:
    found: Json = stage.api.get(f"{URL}/llama").json().get("status", {})
    return found


def env_of(pod: Json) -> dict[str, str]:
    (container,) = pod["spec"]["containers"]
    return {
        each["name"]: each.get("value") or each["valueFrom"]["fieldRef"]["fieldPath"]
        for each in container["env"]
    }


def runs(stage: PodStage) -> bool:
    return status(stage).get("phase") == "Running"


def test_its_pods_run_together_where_it_asked_and_know_each_other(stage: PodStage) -> None:
    create(stage)
    stage.until(lambda: runs(stage))
    pods = stage.pods()
    assert tuple(pods) == tuple(sorted(PODS))
    assert {pod["spec"]["nodeName"] for pod in pods.values()} <= {"b0", "b1"}
    worker, logger = pods["llama-worker-1"], pods["llama-logger-0"]
    told = env_of(worker)
    assert (told["RANK"], told["WORLD_SIZE"], told["NODE_RANK"], told["LOCAL_WORLD_SIZE"]) == (
        "8", "17", "1", "8",
    )  # fmt: skip
    assert told["MASTER_ADDR"] == "llama-worker-0.llama.default.svc"
    assert (told["SEED"], told["MASTER_PORT"]) == ("1", "4711")
    assert told["GANTREE_GPUS"] == "metadata.annotations['gantree.io/gpus']"
    assert env_of(logger)["RANK"] == "16"
    assert worker["metadata"]["annotations"]["gantree.io/rank"] == "8"
    assert logger["metadata"]["annotations"]["gantree.io/rank"] == "16"
    assert worker["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "8"
    assert logger["metadata"]["labels"]["app"] == "logger"
    service = stage.api.get("/api/v1/namespaces/default/services/llama").json()["spec"]
    assert (service["clusterIP"], service["selector"]) == ("None", {"gantree.io/gangjob": "llama"})
    assert (worker["spec"]["hostname"], worker["spec"]["subdomain"]) == ("llama-worker-1", "llama")


def test_the_example_of_the_documentation_is_one(stage: PodStage) -> None:
    text = (Path(__file__).parents[3] / "docs/kubernetes.md").read_text()
    _, _, after = text.partition("    apiVersion: gantree.io/v1alpha1\n    kind: GangJob\n")
    lines = [line[4:] for line in after.splitlines()]
    body = read_yaml("\n".join(lines[: lines.index("")]))
    whole = {"apiVersion": "gantree.io/v1alpha1", "kind": "GangJob", **body}
    answer = stage.api.post(URL, whole)
    assert answer.status_code == 201, answer.text
    assert answer.json()["spec"]["gang"][0] == whole["spec"]["gang"][0]
    stage.until(lambda: len(stage.pods()) == 4)


def test_its_status_says_where_it_runs_and_how_it_ended(stage: PodStage) -> None:
    create(stage)
    stage.until(lambda: runs(stage))
    told = status(stage)
    assert (told["attempt"], told["members"], told["domain"]) == (1, 3, "leaf:l1")
    assert set(told["nodes"]) == {"b0", "b1"}
    assert told["startTime"]
    assert "finishTime" not in told
    for name in PODS:
        stage.exit(name)
    stage.until(lambda: status(stage)["phase"] == "Succeeded")
    told = status(stage)
    assert told["finishTime"] >= told["startTime"]
    conditions = {each["type"]: each["status"] for each in told["conditions"]}
    assert conditions == {"Scheduled": "True", "Complete": "True", "Failed": "False"}
    assert set(stage.pods()) == set(PODS)


def test_it_starts_again_after_a_failure_as_often_as_it_may(stage: PodStage) -> None:
    create(stage)
    stage.until(lambda: runs(stage))
    first = {name: pod["metadata"]["uid"] for name, pod in stage.pods().items()}
    stage.exit("llama-worker-0", 7)
    stage.until(lambda: runs(stage) and status(stage)["attempt"] == 2)
    pods = stage.pods()
    assert set(pods) == set(PODS)
    assert not set(first.values()) & {pod["metadata"]["uid"] for pod in pods.values()}
    stage.exit("llama-worker-1", 7)
    stage.until(lambda: status(stage)["phase"] == "Failed")
    assert (status(stage)["failures"], status(stage)["attempt"]) == (1, 2)


def test_a_lost_node_starts_it_again_elsewhere_and_counts_as_no_failure(stage: PodStage) -> None:
    create(stage, restarts={"limit": 0, "backoffSeconds": 0.1}, topology={})
    stage.until(lambda: runs(stage))
    lost = stage.pods()["llama-worker-1"]["spec"]["nodeName"]
    stage.api.delete(f"/api/v1/nodes/{lost}")
    stage.until(lambda: status(stage).get("attempt") == 2 and runs(stage))
    assert status(stage)["failures"] == 0
    assert lost not in status(stage)["nodes"]


def test_one_that_leaves_a_drained_node_keeps_the_room_that_it_was_given(stage: PodStage) -> None:
    role = read_yaml(MANIFEST)["spec"]["gang"][0] | {"members": 1}
    create(stage, gang=[role], topology={})
    stage.until(lambda: runs(stage))
    left = stage.pods()["llama-worker-0"]["spec"]["nodeName"]
    stage.pod("other", gpus=8)
    stage.until(lambda: stage.phase("other") == "Running")
    stage.controller.nodes.drain(left)
    stage.pod("next", gpus=8)
    stage.until(lambda: stage.phase("next") == "Running" or status(stage).get("attempt") == 2)
    assert stage.phase("next") == "Pending"
    stage.until(lambda: runs(stage))


def test_with_it_go_its_pods_and_its_job(stage: PodStage) -> None:
    create(stage)
    stage.until(lambda: runs(stage))
    job = status(stage)["job"]
    stage.api.delete(f"{URL}/llama")
    stage.until(lambda: stage.pods() == {})
    stage.until(lambda: str(stage.controller.ledger.jobs[job].phase) == "cancelled")


@pytest.mark.faults
def test_one_that_waits_says_why_and_makes_no_second_pods(stage: PodStage) -> None:
    create(stage, topology={"required": "network.topology.nvidia.com/spine"})
    stage.until(lambda: set(stage.pods()) == set(PODS))
    uids = {pod["metadata"]["uid"] for pod in stage.pods().values()}
    stage.stop()
    stage.api.patch(f"{URL}/llama/status", {"status": {"phase": None}})
    faults = stage.running.server.faults
    fault = stage.running.call(
        lambda: faults.add(verb="create", resource="pods", code=500, times=9)
    )
    stage.start()
    stage.until(lambda: status(stage).get("phase") == "Pending")
    assert fault.met == 0
    assert {pod["metadata"]["uid"] for pod in stage.pods().values()} == uids
    stage.until(lambda: "conditions" in stage.pods()["llama-logger-0"]["status"])
    (condition,) = stage.pods()["llama-logger-0"]["status"]["conditions"]
    assert "topology 'network.topology.nvidia.com/spine'" in condition["message"]


def test_one_that_ended_while_nobody_looked_is_over(stage: PodStage) -> None:
    create(stage)
    stage.until(lambda: runs(stage))
    stage.stop()
    for name in PODS:
        stage.exit(name)
    stage.start()
    stage.until(lambda: status(stage)["phase"] == "Succeeded")
    assert len(stage.pods()) == 3


def test_one_that_is_over_is_deleted_after_its_time(stage: PodStage) -> None:
    create(stage, ttlSecondsAfterFinished=0)
    stage.until(lambda: runs(stage))
    for name in PODS:
        stage.exit(name)
    stage.until(lambda: stage.api.get(f"{URL}/llama").status_code == 404 and not stage.pods())


NO_GANGS: tuple[Json, ...] = (
    {"gang": []},
    {"gang": [{"role": "Worker!", "template": {"spec": {"containers": [{}]}}}]},
    {"gang": [{"role": "worker"}]},
    {"timeLimitSeconds": 0},
    {"topology": {"slices": {"members": 0, "required": "leaf"}}},
)


def test_the_schema_refuses_what_is_no_gang(stage: PodStage) -> None:
    for odd in NO_GANGS:
        body = read_yaml(MANIFEST)
        body["spec"] |= odd
        assert stage.api.post(URL, body).status_code == 422, odd


@pytest.mark.faults
def test_how_it_ended_is_written_again_where_the_server_refused_it(stage: PodStage) -> None:
    create(stage)
    stage.until(lambda: runs(stage))
    faults = stage.running.server.faults
    refused = stage.running.call(
        lambda: faults.add(verb="patch", resource="gangjobs/status", code=500, times=None)
    )
    for name in PODS:
        stage.exit(name)
    ledger = stage.controller.ledger
    stage.until(lambda: all(state.phase in ENDED for state in ledger.jobs.values()))
    stage.until(lambda: refused.met > 0)
    stage.work_for(0.1)
    refused.times = 0
    stage.until(lambda: status(stage).get("phase") == "Succeeded", within_s=30.0)


def test_one_that_is_to_go_gets_no_new_pods(stage: PodStage) -> None:
    """As a Job: what holds the object (a finalizer, a deletion in the foreground) may take its time."""
    held = {"metadata": {"finalizers": ["example.com/held"]}}
    create(stage)
    stage.until(lambda: runs(stage))
    assert stage.api.patch(f"{URL}/llama", held).status_code == 200
    assert stage.api.delete(f"{URL}/llama").status_code == 200
    for name in PODS:
        assert stage.api.delete(f"/api/v1/namespaces/default/pods/{name}").status_code == 200
    stage.until(lambda: status(stage)["phase"] == "Pending")
    stage.work_for(0.5)
    assert stage.pods() == {}
    stage.api.patch(f"{URL}/llama", {"metadata": {"finalizers": None}})


@pytest.mark.faults
def test_a_pod_that_the_server_refuses_is_made_later_and_the_status_says_why(
    stage: PodStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gangjobs, "AGAIN_S", 0.2)
    faults = stage.running.server.faults
    pods_fail = {"verb": "create", "resource": "pods", "code": 403, "times": None}
    stage.running.call(lambda: faults.add(**pods_fail))
    create(stage)
    stage.until(lambda: status(stage).get("reason") == "PodNotMade")
    assert "a fault of a test: 403" in status(stage)["message"]
    stage.running.call(faults.clear)
    stage.until(lambda: runs(stage))
    assert "reason" not in status(stage)


def test_a_service_of_another_is_in_the_way_until_it_is_gone(
    stage: PodStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as that of a GangJob of the same name which was deleted a moment ago."""
    monkeypatch.setattr(gangjobs, "AGAIN_S", 0.2)
    home = "/api/v1/namespaces/default/services"
    theirs = {
        "metadata": {"name": "llama"},
        "spec": {"ports": [{"port": 80}], "selector": {"a": "b"}},
    }
    assert stage.api.post(home, theirs).status_code == 201
    create(stage)
    stage.until(lambda: status(stage).get("reason") == "ServiceNotMade")
    assert status(stage)["message"].startswith("Service llama is not of this GangJob")
    assert stage.api.delete(f"{home}/llama").status_code == 200
    stage.until(lambda: "reason" not in status(stage) and runs(stage))
    assert stage.api.get(f"{home}/llama").json()["spec"]["clusterIP"] == "None"
