"""GangService on an API server over real HTTP: replicas are GangJobs that come, get ready, roll over, drain and go."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gantree.executors.kubernetes.services import controller
from gantree.model.services import ANOTHER_CLIENT
from support.kubernetes.server.statuses import Json
from support.pods import PodStage
from support.yaml_text import read_yaml

HTTPX = "python-httpx"
"""Who a real server says has scaled; that of the tests keeps no managedFields."""
CRDS = Path(__file__).parents[3] / "deploy/kubernetes/crds"
HOME = "/apis/gantree.io/v1alpha1/namespaces/default"
URL = f"{HOME}/gangservices"
MANIFEST = """
apiVersion: gantree.io/v1alpha1
kind: GangService
metadata: {name: chat}
spec:
  replicas: {min: 1, max: 4, wanted: 2}
  port: 8000
  ready: {http: /health, everySeconds: 2, failures: 3, withinSeconds: 60}
  drainSeconds: 600
  template:
    metadata: {labels: {team: search}}
    spec:
      queue: default
      gang:
        - role: worker
          members: 2
          each: {gpus: 2}
          template: {spec: {containers: [{name: serve, image: "serve:1"}]}}
      restarts: {backoffSeconds: 0.1}
"""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PodStage]:
    """Four nodes of 8 GPUs."""
    with PodStage(tmp_path) as stage:
        for name in ("gangjobs", "gangservices"):
            stage.api.define(read_yaml((CRDS / f"{name}.yaml").read_text()))
        stage.nodes("n[0-3]", network_topology_nvidia_com__leaf="l0")
        stage.start()
        yield stage


def create(stage: PodStage, **spec: Any) -> None:
    body = read_yaml(MANIFEST)
    body["spec"] |= spec
    answer = stage.api.post(URL, body)
    assert answer.status_code == 201, answer.text


def change(stage: PodStage, spec: Json) -> None:
    answer = stage.api.patch(f"{URL}/chat", {"spec": spec})
    assert answer.status_code == 200, answer.text


def scale(stage: PodStage, replicas: int) -> None:
    answer = stage.api.patch(f"{URL}/chat/scale", {"spec": {"replicas": replicas}})
    assert answer.status_code == 200, answer.text


def status(stage: PodStage) -> Json:
    found: Json = stage.api.get(f"{URL}/chat").json().get("status", {})
    return found


def gangjobs(stage: PodStage) -> dict[str, Json]:
    found = stage.api.get(f"{HOME}/gangjobs").json()["items"]
    return {each["metadata"]["name"]: each for each in found}


def ready(stage: PodStage, replicas: int) -> bool:
    """Whether so many replicas are there, all of them ready, as the object is by now."""
    found = stage.api.get(f"{URL}/chat").json()
    told = found.get("status", {})
    if told.get("observedGeneration") != found["metadata"]["generation"]:
        return False
    return bool(told.get("readyReplicas") == told.get("replicas") == replicas)


def container_of(pod: Json) -> Json:
    (container,) = pod["spec"]["containers"]
    found: Json = container
    return found


def image(text: str) -> Json:
    """A change of the template: another image."""
    spec = read_yaml(MANIFEST)["spec"]["template"]["spec"]
    spec["gang"][0]["template"]["spec"]["containers"][0]["image"] = text
    return {"template": {"spec": {"gang": spec["gang"]}}}


def test_each_replica_is_a_gangjob_whose_first_pod_answers(stage: PodStage) -> None:
    create(stage)
    stage.until(lambda: ready(stage, 2))
    assert set(gangjobs(stage)) == {"chat-1", "chat-2"}
    pods = stage.pods()
    first, second = pods["chat-1-worker-0"], pods["chat-1-worker-1"]
    container = container_of(first)
    probe, get = container["readinessProbe"], {"path": "/health", "port": 8000}
    assert probe["httpGet"].items() >= get.items()
    numbers = ("periodSeconds", "timeoutSeconds", "failureThreshold")
    assert [probe[each] for each in numbers] == [2, 1, 3]
    assert container["startupProbe"] == {**probe, "failureThreshold": 30}
    assert [each["containerPort"] for each in container["ports"]] == [8000]
    assert {"name": "PORT", "value": "8000"} in container["env"]
    assert not {"readinessProbe", "startupProbe", "ports"} & container_of(second).keys()
    assert first["metadata"]["labels"]["gantree.io/serves"] == "chat"
    assert "gantree.io/serves" not in second["metadata"]["labels"]
    assert second["metadata"]["labels"]["gantree.io/service"] == "chat"
    assert first["spec"]["terminationGracePeriodSeconds"] == 600
    front = stage.api.get("/api/v1/namespaces/default/services/chat").json()["spec"]
    assert front["selector"] == {"gantree.io/serves": "chat"}
    assert front["ports"][0]["targetPort"] == 8000
    made = gangjobs(stage)["chat-1"]
    assert made["metadata"]["labels"]["team"] == "search"
    assert (made["spec"]["priority"], made["spec"]["restarts"]["limit"]) == ("serving", 1000000)
    assert made["metadata"]["ownerReferences"][0]["kind"] == "GangService"


def test_its_status_says_how_many_are_ready(stage: PodStage) -> None:
    create(stage)
    stage.until(lambda: ready(stage, 2))
    told = status(stage)
    assert (told["wanted"], told["updatedReplicas"], told["lastReplica"]) == (2, 2, 2)
    conditions = {each["type"]: (each["status"], each["reason"]) for each in told["conditions"]}
    assert conditions == {
        "Available": ("True", "ReplicasReady"),
        "Progressing": ("True", "Complete"),
    }
    stage.running.run(stage.kubelet.answer("default", "chat-2-worker-0", is_ready=False))
    stage.until(lambda: status(stage)["readyReplicas"] == 1)
    (available, _) = status(stage)["conditions"]
    assert (available["type"], available["status"]) == ("Available", "False")
    stage.running.run(stage.kubelet.answer("default", "chat-2-worker-0", is_ready=True))
    stage.until(lambda: ready(stage, 2))


def test_kubectl_scale_and_autoscalers_set_how_many_there_are(stage: PodStage) -> None:
    create(stage, drainSeconds=0)
    stage.until(lambda: ready(stage, 2))
    scale(stage, 4)
    stage.until(lambda: ready(stage, 4))
    told = stage.api.get(f"{URL}/chat/scale").json()
    assert (told["spec"]["replicas"], told["status"]["replicas"]) == (4, 4)
    selected = told["status"]["selector"].partition("=")
    first = [
        p for p in stage.pods().values() if p["metadata"]["labels"].get(selected[0]) == selected[2]
    ]
    assert len(first) == 4
    stage.until(lambda: "scaledFor" in status(stage))
    assert status(stage)["scaledFor"] in (f"4 replicas: {by}" for by in (ANOTHER_CLIENT, HTTPX))
    scale(stage, 9)
    scale(stage, 0)
    stage.until(
        lambda: ready(stage, 1) and set(stage.pods()) == {"chat-1-worker-0", "chat-1-worker-1"}
    )
    assert set(gangjobs(stage)) == {"chat-1"}
    scale(stage, 2)
    stage.until(lambda: ready(stage, 2))
    assert set(gangjobs(stage)) == {"chat-1", "chat-5"}, "no number comes again"


def test_an_update_replaces_replicas_and_leaves_enough_ready(stage: PodStage) -> None:
    create(stage, drainSeconds=0)
    stage.until(lambda: ready(stage, 2))
    change(stage, image("serve:2"))
    least = []

    def done() -> bool:
        is_ready = ready(stage, 2)
        told = status(stage)  # read later: updatedReplicas may count the older revision before
        least.append(told["readyReplicas"])
        return is_ready and told["updatedReplicas"] == 2

    stage.until(done)
    assert min(least) >= 2
    assert set(gangjobs(stage)) == {"chat-3", "chat-4"}
    assert {container_of(pod)["image"] for pod in stage.pods().values()} >= {"serve:2"}


def test_a_replica_that_never_gets_ready_stops_an_update_and_need_not_drain(
    stage: PodStage,
) -> None:
    create(stage)
    stage.until(lambda: ready(stage, 2))
    template = image("serve:2")
    meta = {"annotations": {"kubelet.gantree/unready": "it hangs"}}
    template["template"]["spec"]["gang"][0]["template"]["metadata"] = meta
    change(stage, template)
    stage.until(lambda: stage.phase("chat-3-worker-0") == "Running")
    stage.work_for(0.5)
    assert set(gangjobs(stage)) == {"chat-1", "chat-2", "chat-3"}
    told = status(stage)
    assert (told["readyReplicas"], told["updatedReplicas"]) == (2, 1)
    change(stage, image("serve:1"))
    meta["annotations"]["kubelet.gantree/unready"] = None  # type: ignore[assignment]  # takes it away
    stage.until(lambda: set(gangjobs(stage)) == {"chat-1", "chat-2"} and ready(stage, 2))


def test_a_replica_that_drains_gets_nothing_new_and_goes_in_the_end(stage: PodStage) -> None:
    create(stage)
    stage.until(lambda: ready(stage, 2))
    scale(stage, 1)
    stage.until(lambda: status(stage)["drainingReplicas"] == 1)
    stage.until(
        lambda: "gantree.io/serves" not in stage.pods()["chat-2-worker-0"]["metadata"]["labels"]
    )
    assert stage.phase("chat-2-worker-0") == "Running"
    assert "gantree.io/drain-until" in gangjobs(stage)["chat-2"]["metadata"]["annotations"]
    assert status(stage)["replicas"] == 1
    past = {"metadata": {"annotations": {"gantree.io/drain-until": "2026-01-01T00:00:00Z"}}}
    stage.api.patch(f"{HOME}/gangjobs/chat-2", past)
    stage.until(lambda: set(gangjobs(stage)) == {"chat-1"})


def test_a_new_leader_goes_on_where_the_last_one_was_killed(stage: PodStage) -> None:
    create(stage)
    stage.until(lambda: ready(stage, 2))
    scale(stage, 1)
    stage.until(lambda: status(stage)["drainingReplicas"] == 1)
    stage.kill()
    scale(stage, 3)
    stage.start()
    stage.until(lambda: ready(stage, 3))
    assert set(gangjobs(stage)) == {"chat-1", "chat-2", "chat-3", "chat-4"}, "one drains on"


def test_no_number_comes_again_under_a_new_leader(stage: PodStage) -> None:
    create(stage, drainSeconds=0)
    stage.until(lambda: ready(stage, 2))
    scale(stage, 1)
    stage.until(lambda: ready(stage, 1))
    stage.kill()
    scale(stage, 2)
    stage.start()
    stage.until(lambda: ready(stage, 2))
    assert set(gangjobs(stage)) == {"chat-1", "chat-3"}


@pytest.mark.faults
def test_a_replica_that_cannot_be_made_is_made_later_and_the_status_says_why(
    stage: PodStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "AGAIN_S", 0.2)
    faults = stage.running.server.faults
    gangjobs_fail = {"verb": "create", "resource": "gangjobs", "code": 500, "times": None}
    stage.running.call(lambda: faults.add(**gangjobs_fail))
    create(stage)
    stage.until(lambda: status(stage).get("reason") == "ReplicaNotMade")
    assert "a fault of a test: 500" in status(stage)["message"]
    stage.work_for(0.5)
    stage.running.call(faults.clear)
    stage.until(lambda: ready(stage, 2))
    assert set(gangjobs(stage)) == {"chat-1", "chat-2"}


def test_one_that_exits_is_replaced_after_a_while(stage: PodStage) -> None:
    create(stage, replicas={"min": 1})
    stage.until(lambda: ready(stage, 1))
    for name in ("chat-1-worker-0", "chat-1-worker-1"):
        stage.exit(name)
    stage.until(lambda: set(gangjobs(stage)) == {"chat-2"} and ready(stage, 1))


def test_one_that_fails_starts_again_under_its_name(stage: PodStage) -> None:
    create(stage, replicas={"min": 1})
    stage.until(lambda: ready(stage, 1))
    stage.exit("chat-1-worker-0", 1)
    stage.until(lambda: gangjobs(stage)["chat-1"]["status"].get("attempt") == 2)
    stage.until(lambda: ready(stage, 1))
    assert set(gangjobs(stage)) == {"chat-1"}


def test_the_example_of_the_documentation_is_one(stage: PodStage) -> None:
    text = (Path(__file__).parents[3] / "docs/kubernetes-services.md").read_text()
    begin = "    apiVersion: gantree.io/v1alpha1\n    kind: GangService\n"
    _, _, after = text.partition(begin)
    lines = [line[4:] for line in (begin + after).splitlines()]
    body = read_yaml("\n".join(lines[: lines.index("")]))
    answer = stage.api.post(URL, body)
    assert answer.status_code == 201, answer.text
    assert answer.json()["spec"]["template"] == body["spec"]["template"]
    stage.until(lambda: ready(stage, 1))


@pytest.mark.parametrize("is_required", [True, False])
@pytest.mark.parametrize("members", [1, 2])
def test_replicas_stand_on_different_nodes(
    stage: PodStage, members: int, is_required: bool
) -> None:
    """All are handed in at once, and none starts twice."""
    spec = read_yaml(MANIFEST)["spec"]["template"]["spec"]
    spec["gang"][0]["members"] = members
    template = {"spec": {**spec, "topology": {"required": "node"}}}
    spread = {"tier": "node", "required": is_required}
    create(stage, replicas={"min": 4}, spread=spread, template=template)
    stage.until(lambda: ready(stage, 4))
    nodes = {
        name: {
            pod["spec"]["nodeName"]
            for pod in stage.pods().values()
            if pod["metadata"]["labels"]["gantree.io/gangjob"] == name
        }
        for name in gangjobs(stage)
    }
    assert sorted(nodes.values(), key=str) == [{"n0"}, {"n1"}, {"n2"}, {"n3"}]
    attempts = {
        pod["metadata"]["annotations"]["gantree.io/attempt"] for pod in stage.pods().values()
    }
    assert attempts == {"1"}


def test_as_many_as_the_floor_are_not_preemptible(stage: PodStage) -> None:
    create(stage, replicas={"min": 3, "max": 4, "floor": 1}, drainSeconds=0)
    stage.until(lambda: ready(stage, 3))
    told = {name: each["spec"].get("preemptible") for name, each in gangjobs(stage).items()}
    assert told == {"chat-1": False, "chat-2": None, "chat-3": None}
    assert stage.api.delete(f"{HOME}/gangjobs/chat-1").status_code == 200
    stage.until(lambda: "chat-4" in gangjobs(stage) and ready(stage, 3))
    assert gangjobs(stage)["chat-4"]["spec"]["preemptible"] is False


@pytest.mark.only_ours
def test_one_that_cannot_be_read_says_so_and_keeps_its_replicas(stage: PodStage) -> None:
    """A server that has the definition refuses the like."""
    create(stage)
    stage.until(lambda: ready(stage, 2))
    change(stage, {"update": {"surge": 0, "unavailable": 0}})
    stage.until(lambda: status(stage).get("reason") == "Misconfigured")
    assert status(stage)["message"].startswith("update.surge and update.unavailable are both 0")
    assert set(gangjobs(stage)) == {"chat-1", "chat-2"}
    change(stage, {"update": None, "replicas": {"wanted": 3}})
    stage.until(lambda: ready(stage, 3))


def test_replicas_are_not_spread_by_a_tier_that_no_node_has(stage: PodStage) -> None:
    create(stage)
    stage.until(lambda: ready(stage, 2))
    change(stage, {"spread": {"tier": "row"}, "replicas": {"wanted": 3}})
    stage.until(lambda: status(stage).get("reason") == "ReplicaNotMade")
    assert status(stage)["message"] == "spread.tier: no label of the nodes has tier 'row'"
    change(stage, {"spread": None})
    stage.until(lambda: ready(stage, 3))


def test_all_goes_with_the_service(stage: PodStage) -> None:
    create(stage)
    stage.until(lambda: ready(stage, 2))
    assert stage.api.delete(f"{URL}/chat").status_code == 200
    stage.until(lambda: not gangjobs(stage) and not stage.pods())
    assert stage.api.get("/api/v1/namespaces/default/services/chat").status_code == 404


def test_one_that_is_named_as_a_gangjob_waits_for_the_name_and_says_so(stage: PodStage) -> None:
    job = {
        "apiVersion": "gantree.io/v1alpha1",
        "kind": "GangJob",
        "metadata": {"name": "chat"},
        "spec": read_yaml(MANIFEST)["spec"]["template"]["spec"],
    }
    assert stage.api.post(f"{HOME}/gangjobs", job).status_code == 201
    stage.until(lambda: stage.phase("chat-worker-0") == "Running")
    create(stage)
    stage.until(lambda: status(stage).get("reason") == "Misconfigured")
    assert status(stage)["message"].startswith("metadata.name: GangJob chat has a Service of this")
    assert set(gangjobs(stage)) == {"chat"}
    assert stage.api.delete(f"{HOME}/gangjobs/chat").status_code == 200
    stage.until(lambda: ready(stage, 2))


def test_no_replica_is_named_as_another_service(stage: PodStage) -> None:
    body = read_yaml(MANIFEST)
    body["metadata"]["name"] = "chat-1"
    body["spec"]["replicas"] = {"min": 1}
    assert stage.api.post(URL, body).status_code == 201
    stage.until(lambda: set(gangjobs(stage)) == {"chat-1-1"})
    create(stage)
    stage.until(lambda: ready(stage, 2))
    assert set(gangjobs(stage)) == {"chat-1-1", "chat-2", "chat-3"}


SERVICES = "/api/v1/namespaces/default/services"


def test_a_service_of_another_is_in_the_way_until_it_is_gone(
    stage: PodStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as that of a Deployment before, or of a GangService of the same name which was deleted a moment ago."""
    monkeypatch.setattr(controller, "AGAIN_S", 0.2)
    theirs = {
        "metadata": {"name": "chat"},
        "spec": {"ports": [{"port": 80}], "selector": {"a": "b"}},
    }
    assert stage.api.post(SERVICES, theirs).status_code == 201
    create(stage)
    stage.until(lambda: ready(stage, 2) and status(stage).get("reason") == "ServiceNotMade")
    assert status(stage)["message"].startswith("Service chat is not of this GangService")
    assert stage.api.delete(f"{SERVICES}/chat").status_code == 200
    stage.until(lambda: "reason" not in status(stage))
    made = stage.api.get(f"{SERVICES}/chat").json()
    assert made["spec"]["selector"] == {"gantree.io/serves": "chat"}


def test_a_service_that_was_deleted_is_made_again(
    stage: PodStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "AGAIN_S", 0.2)
    monkeypatch.setattr(controller, "FRONT_AGAIN_S", 0.2)
    create(stage)
    stage.until(lambda: ready(stage, 2))
    assert stage.api.delete(f"{SERVICES}/chat").status_code == 200
    stage.until(lambda: stage.api.get(f"{SERVICES}/chat").status_code == 200)


@pytest.mark.faults
def test_it_says_why_the_pods_of_a_replica_are_not_made(stage: PodStage) -> None:
    faults = stage.running.server.faults
    pods_fail = {"verb": "create", "resource": "pods", "code": 403, "times": None}
    stage.running.call(lambda: faults.add(**pods_fail))
    create(stage)
    stage.until(lambda: status(stage).get("reason") == "PodNotMade")
    assert "a fault of a test: 403" in status(stage)["message"]


def test_it_says_that_the_definition_of_gangjobs_is_older(tmp_path: Path) -> None:
    """The server cuts what it does not know; such replicas run, and get no request."""
    with PodStage(tmp_path) as stage:
        older, services = (
            yaml.safe_load((CRDS / f"{name}.yaml").read_text())
            for name in ("gangjobs", "gangservices")
        )
        schema = older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        del schema["properties"]["spec"]["properties"]["serving"]
        stage.api.define(older)
        stage.api.define(services)
        stage.nodes("n0", network_topology_nvidia_com__leaf="l0")
        stage.start()
        create(stage, replicas={"min": 1})
        stage.until(lambda: status(stage).get("reason") == "ReplicaNotMade")
        assert "older and has no field spec.serving" in status(stage)["message"]
