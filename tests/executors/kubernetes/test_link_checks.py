"""Pods of a GangJob check their links before they start: gantree on an API server, and posts as its pods make them."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gantree.executors.kubernetes.controllers import link_checks
from gantree.executors.kubernetes.controllers.gangjob_checks import GangJobChecks
from gantree.executors.kubernetes.pods.gang_spec import InvalidObject
from gantree.formats import read_policy
from gantree.model.errors import BadInput, Unauthenticated
from gantree.model.jobs import Check
from support.kubernetes.server.statuses import Json
from support.pods import PodStage
from support.yaml_text import read_yaml

CRD = Path(__file__).parents[3] / "deploy/kubernetes/crds/gangjobs.yaml"
JOBS = "/apis/gantree.io/v1alpha1/namespaces/default/gangjobs"
TOLD: dict[str, Any] = {"report_url": "https://gantree.gantree.svc:8080", "check_image": "check:1"}
CHECKED = {"collectiveSeconds": 60}


def manifest(members: int, check: Json | None, **template: Any) -> Json:
    container = {"name": "train", "image": "train:1", **template}
    role = {
        "role": "worker", "members": members, "each": {"gpus": 8},
        "template": {"spec": {"containers": [container]}},
    }  # fmt: skip
    return {
        "apiVersion": "gantree.io/v1alpha1",
        "kind": "GangJob",
        "metadata": {"name": "g"},
        "spec": {"gang": [role], "restarts": {"limit": 1}, **({"check": check} if check else {})},
    }


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PodStage]:
    with PodStage(tmp_path) as stage:
        stage.nodes("n[0-4]")
        stage.api.define(read_yaml(CRD.read_text()))
        yield stage


def submit(stage: PodStage, members: int, check: Json | None = CHECKED, **template: Any) -> None:
    answer = stage.api.post(JOBS, manifest(members, check, **template))
    assert answer.status_code == 201, answer.text


def initializing(stage: PodStage, count: int) -> dict[str, str]:
    """The tokens of the pods whose check runs, by name, once so many do."""
    stage.until(lambda: len(stage.kubelet.initializing) == count)
    pods = stage.pods()
    key = "gantree.io/report-token"
    return {
        name: pods[name]["metadata"]["annotations"][key]
        for name in sorted(stage.kubelet.initializing)
    }


def post(stage: PodStage, token: str, **told: Any) -> Json:
    """What gantree answers to a post, once it has heard of the pod."""
    body = json.dumps({"gpus": 0, "done": None, "result": None, **told}).encode()
    answers: list[Json] = []

    def is_taken() -> bool:
        try:
            answers.append(stage.controller.cluster.take_check(token, body))
        except Unauthenticated:
            return False
        return True

    stage.until(is_taken)
    return answers[0]


def until_told(stage: PodStage, token: str, state: str, **told: Any) -> Json:
    answers: list[Json] = []

    def is_told() -> bool:
        answers.append(post(stage, token, **told))
        return bool(answers[-1]["state"] == state)

    stage.until(is_told)
    return answers[-1]


def pair(a: int, b: int, rate: float) -> Json:
    return {"kind": "pair", "members": [a, b], "gpus": [], "measured": rate, "expected": None}


def result(slow: int | None, members: int, **told: Any) -> Json:
    """What a pod finds where all pairs with one member are slow."""
    pairs = [(a, b) for a in range(members) for b in range(a + 1, members)]
    figures = [pair(a, b, 0.1 if slow in (a, b) else 2.0) for a, b in pairs]
    return {"figures": figures, "faults": [], "done": [6, 6], "warnings": [], "why": "", **told}


def condition(stage: PodStage) -> Json:
    status = stage.api.get(f"{JOBS}/g").json().get("status") or {}
    found = (each for each in status.get("conditions", ()) if each["type"] == "LinksChecked")
    return next(found, {})


def start_all(stage: PodStage) -> None:
    for name in list(stage.kubelet.initializing):
        stage.running.run(stage.kubelet.end_init(name, 0))


def sick(stage: PodStage) -> dict[str, str]:
    return dict(stage.controller.decided.site.unhealthy_nodes())


def test_all_pods_measure_once_all_are_there_and_start_once_all_have_answered(
    stage: PodStage,
) -> None:
    stage.start(**TOLD)
    submit(stage, 3)
    first, *others = initializing(stage, 3).values()
    assert post(stage, first)["state"] == "wait"
    for token in others:
        post(stage, token)
    plan = until_told(stage, first, "measure")["plan"]
    assert (plan["index"], plan["cuda"], len(plan["members"])) == (0, False, 3)
    assert [each["processes"] for each in plan["members"]] == [1, 1, 1]
    assert post(stage, others[1])["plan"]["index"] == 2
    post(stage, first, done=[2, 6])
    (job,) = stage.controller.ledger.jobs.values()
    status = stage.controller.cluster.check(job.job, job.attempt)
    assert status is not None
    assert (status.state, status.done, status.total) == ("checking", 2, 6)
    stage.until(lambda: condition(stage).get("reason") == "Checking")
    for token in others:
        assert post(stage, token, result=result(None, 3))["state"] == "wait"
    lines = until_told(stage, first, "start", result=result(None, 3))["lines"]
    assert lines[-1] == "links passed their check: 3 members, 3 pairs"
    assert len(lines) == 4
    assert post(stage, others[0])["lines"] == lines[-1:]
    start_all(stage)
    stage.until(lambda: condition(stage).get("status") == "True")
    assert [stage.phase(name) for name in stage.pods()] == ["Running"] * 3


def test_who_is_at_fault_is_marked_and_replaced_at_no_cost_for_the_job(stage: PodStage) -> None:
    stage.start(**TOLD)
    submit(stage, 4)
    before = initializing(stage, 4)
    bad = stage.node_of(list(before)[1])
    for token in before.values():
        post(stage, token)
    until_told(stage, before["g-worker-0"], "measure")
    for token in before.values():
        post(stage, token, result=result(1, 4))
    (job,) = stage.controller.ledger.jobs.values()
    stage.until(lambda: job.attempt == 2 and not set(before.values()) & set(tokens(stage)))
    assert list(sick(stage)) == [bad]
    after = initializing(stage, 4)
    assert bad not in {stage.node_of(name) for name in after}
    assert job.failures == 0
    for token in after.values():
        post(stage, token)
    until_told(stage, after["g-worker-0"], "measure")
    for token in after.values():
        post(stage, token, result=result(None, 4))
    until_told(stage, after["g-worker-0"], "start")
    start_all(stage)
    stage.until(lambda: {stage.phase(name) for name in after} == {"Running"})
    with pytest.raises(Unauthenticated):
        stage.controller.cluster.take_check(before["g-worker-0"], b"{}")


def tokens(stage: PodStage) -> list[str]:
    told = [pod["metadata"]["annotations"] for pod in stage.pods().values()]
    return [each.get("gantree.io/report-token", "") for each in told]


def test_a_restart_in_the_middle_loses_nothing(stage: PodStage) -> None:
    stage.start(**TOLD)
    submit(stage, 2)
    tokens = initializing(stage, 2)
    for token in tokens.values():
        post(stage, token)
    until_told(stage, tokens["g-worker-0"], "measure")
    stage.kill()
    stage.start(**TOLD)
    for token in tokens.values():
        post(stage, token, result=result(None, 2))
    until_told(stage, tokens["g-worker-1"], "start", result=result(None, 2))
    start_all(stage)
    stage.until(lambda: [stage.phase(name) for name in tokens] == ["Running"] * 2)


@pytest.mark.parametrize("required", [False, True])
def test_a_pod_that_never_answers_delays_the_others_until_the_time_is_over(
    stage: PodStage, monkeypatch: pytest.MonkeyPatch, required: bool
) -> None:
    monkeypatch.setattr(link_checks, "ARRIVE_S", 0.2)
    stage.start(**TOLD)
    submit(stage, 2, {**CHECKED, "required": required})
    tokens = initializing(stage, 2)
    node = stage.node_of("g-worker-1")
    answer = until_told(stage, tokens["g-worker-0"], "stop" if required else "start")
    said = f"the check of its links did not end: the pod on {node} did not come to it within 0.2 s"
    assert answer["lines"][-1] == said
    assert sick(stage) == {}
    if required:
        (job,) = stage.controller.ledger.jobs.values()
        stage.until(lambda: job.failures == 1)


@pytest.mark.parametrize("required", [False, True])
def test_of_a_pod_without_a_result_at_the_end_the_others_results_are_judged(
    stage: PodStage, monkeypatch: pytest.MonkeyPatch, required: bool
) -> None:
    now = 0.0
    monkeypatch.setattr(link_checks.LinkChecks.__init__, "__defaults__", (lambda: now, time.time))
    stage.start(**TOLD)
    submit(stage, 3, {**CHECKED, "required": required})
    tokens = initializing(stage, 3)
    for token in tokens.values():
        post(stage, token)
    first, second, _ = tokens.values()
    silent = stage.node_of("g-worker-2")
    until_told(stage, first, "measure")
    now = 60.0 + link_checks.LATE_S - 1.0
    for token in (first, second):
        post(stage, token, result=result(None, 3))
    stage.work_for(0.3)
    assert post(stage, first)["state"] == "wait"
    now += 1.0
    answer = until_told(stage, first, "stop" if required else "start")
    assert answer["lines"][-1].endswith(f"the pod on {silent} did not answer")
    assert sick(stage) == {}
    job = next(iter(stage.controller.ledger.jobs.values()))
    stage.until(lambda: job.failures == int(required))


@pytest.mark.parametrize("required", [False, True])
def test_without_pytorch_in_its_image_it_is_skipped_or_fails_for_good(
    stage: PodStage, required: bool
) -> None:
    stage.start(**TOLD)
    submit(stage, 2, {**CHECKED, "required": required})
    tokens = initializing(stage, 2)
    skipped = {"gpus": None, "result": {"skipped": "PyTorch is not installed in the image"}}
    until_told(stage, tokens["g-worker-1"], "stop" if required else "start", **skipped)
    said = "links were not checked: PyTorch is not installed in the image"
    if required:
        (job,) = stage.controller.ledger.jobs.values()
        stage.until(lambda: str(job.phase) == "failed")
        assert (job.attempt, said in job.reason) == (1, True)
    else:
        stage.until(lambda: condition(stage).get("message") == said)


def test_a_device_that_cannot_compute_is_named_before_the_others_have_answered(
    stage: PodStage,
) -> None:
    stage.start(**TOLD)
    submit(stage, 2)
    tokens = initializing(stage, 2)
    bad = stage.node_of("g-worker-1")
    for token in tokens.values():
        post(stage, token, gpus=8)
    plan = until_told(stage, tokens["g-worker-0"], "measure", gpus=8)["plan"]
    assert (plan["cuda"], plan["members"][0]["gpus"]) == (True, list(range(8)))
    assert plan["expected"]["pairs"]
    broken = result(None, 2, faults=[[3, "CUDA error: uncorrectable ECC error encountered"]])
    post(stage, tokens["g-worker-1"], gpus=8, result=broken)
    stage.until(lambda: list(sick(stage)) == [bad])
    assert "GPU 3: it cannot compute: CUDA error: uncorrectable ECC" in sick(stage)[bad]


HOSTILE: tuple[bytes, ...] = (
    b"\xff",
    b"[]",
    b'{"gpus": -1}',
    b'{"gpus": 8, "done": [3]}',
    b'{"gpus": 8, "done": [9, 8]}',
    b'{"gpus": 8, "result": []}',
    b'{"gpus": 8, "result": {}}',
    b'{"gpus": 8, "result": {"skipped": 5}}',
    json.dumps({"gpus": 8, "result": result(0, 2, faults=[[0]])}).encode(),
    json.dumps({"gpus": 8, "result": result(0, 2, faults=[[99, "x"]])}).encode(),
    json.dumps({"gpus": 8, "result": result(0, 2, figures=[pair(0, -1, 1.0)])}).encode(),
    json.dumps({"gpus": 8, "result": result(0, 2, figures=[pair(0, 1, float("inf"))])}).encode(),
    json.dumps({"gpus": 8, "result": result(0, 2, figures=[{"kind": "odd"}])}).encode(),
    json.dumps({"gpus": 8, "result": result(0, 2, why=None)}).encode(),
)


def test_what_is_no_post_of_its_pod_changes_nothing(stage: PodStage) -> None:
    stage.start(**TOLD)
    submit(stage, 2)
    tokens = initializing(stage, 2)
    for token in tokens.values():
        post(stage, token)
    for body in HOSTILE:
        with pytest.raises(BadInput):
            stage.controller.cluster.take_check(tokens["g-worker-0"], body)
    with pytest.raises(Unauthenticated):
        stage.controller.cluster.take_check("of-nobody", b"{}")
    foreign = result(None, 2, figures=[pair(0, 7, 0.0)])
    post(stage, tokens["g-worker-0"], result=foreign)
    answer = until_told(stage, tokens["g-worker-1"], "start", result=result(None, 2))
    assert answer["lines"] == ["links passed their check: 2 members, 1 pair"]


def test_a_gang_is_told_to_start_that_runs_already_or_has_a_new_member(stage: PodStage) -> None:
    stage.start(**TOLD)
    body = manifest(2, CHECKED)
    body["spec"]["restarts"] = {"limit": 1, "replaceWithinSeconds": 600}
    assert stage.api.post(JOBS, body).status_code == 201
    tokens = initializing(stage, 2)
    start_all(stage)
    stage.until(lambda: [stage.phase(name) for name in tokens] == ["Running"] * 2)
    until_told(stage, tokens["g-worker-0"], "start")
    stage.exit("g-worker-1", 1)
    (again,) = initializing(stage, 1).values()
    assert again != tokens["g-worker-1"]
    assert post(stage, again)["state"] == "start"


def test_cordoned_nodes_burn_in_by_a_gangjob_that_tolerates_it(stage: PodStage) -> None:
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    stage.api.patch("/api/v1/nodes/n3", {"spec": {"unschedulable": True, "taints": [taint]}})
    stage.start(**TOLD)
    check = {"collectiveSeconds": 600, "soakSeconds": 360, "required": True}
    body = manifest(1, check)
    body["spec"]["gang"][0]["template"]["spec"] |= {
        "nodeSelector": {"kubernetes.io/hostname": "n3"},
        "tolerations": [{"key": taint["key"], "operator": "Exists"}],
    }
    assert stage.api.post(JOBS, body).status_code == 201
    (token,) = initializing(stage, 1).values()
    plan = until_told(stage, token, "measure")["plan"]
    assert stage.node_of("g-worker-0") == "n3"
    told = (plan["seconds"], plan["soak_s"], plan["required"], plan["members"][0]["processes"])
    assert told == (600.0, 360.0, True, 2)


@pytest.mark.parametrize(
    ("members", "gpus", "soak", "is_checked"),
    [(2, 0, 0, True), (1, 8, 0, True), (1, 1, 0, False), (1, 0, 0, False), (1, 1, 5, True)],
)
def test_a_gangjob_without_links_has_no_check(
    members: int, gpus: int, soak: int, is_checked: bool
) -> None:
    body = manifest(members, {"collectiveSeconds": 60, "soakSeconds": soak})
    body["spec"]["gang"][0]["each"] = {"gpus": gpus}
    found = GangJobChecks("check:1", lambda _: None, lambda *_: None).of(body["spec"])
    assert (found is not None) == is_checked


@pytest.mark.parametrize(("gpus", "is_checked"), [("8", True), ("1", False)])
@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "amd.com/gpu", "amd.com/spx_nps1"])
def test_one_pod_with_several_gpus_of_any_vendor_has_links(
    resource: str, gpus: str, is_checked: bool
) -> None:
    body = manifest(1, CHECKED, resources={"limits": {resource: gpus}})
    del body["spec"]["gang"][0]["each"]
    found = GangJobChecks("check:1", lambda _: None, lambda *_: None).of(body["spec"])
    assert (found is not None) == is_checked


def test_a_soak_longer_than_its_check_is_refused() -> None:
    told = manifest(2, {"collectiveSeconds": 60, "soakSeconds": 60})
    with pytest.raises(InvalidObject, match="soakSeconds is part of collectiveSeconds"):
        GangJobChecks("check:1", lambda _: None, lambda *_: None).of(told["spec"])


QUEUES = """
preset: fair
queues:
  - {name: default, check: {collective: 30s}}
"""


def test_a_queue_has_its_gangjobs_checked_and_says_so_of_others(tmp_path: Path) -> None:
    with PodStage(tmp_path, read_policy(QUEUES, "policy.yaml")) as stage:
        stage.nodes("n[0-4]")
        stage.api.define(read_yaml(CRD.read_text()))
        stage.start(**TOLD)
        submit(stage, 2, None)
        stage.until(lambda: len(stage.pods()) == 2)
        pod = stage.pods()["g-worker-1"]
        assert pod["metadata"]["annotations"]["gantree.io/check"] == "30s"
        size = {"gantree.io/gang-size": "2"}
        for name in ("a", "b"):
            stage.pod(name, gpus=8, annotations=size, labels={"gantree.io/gang": "other"})
        stage.until(lambda: stage.bound("a", "b"))
        events = stage.api.get("/api/v1/events").json()["items"]
        said = [each["message"] for each in events if "check of queue" in each.get("message", "")]
        assert said == [
            "gantree does not act on the check of queue 'default': pods of GangJobs alone check their links."
        ]


def test_without_an_image_a_gangjob_with_a_check_is_misconfigured_and_a_queues_is_left_out(
    tmp_path: Path,
) -> None:
    with PodStage(tmp_path, read_policy(QUEUES, "policy.yaml")) as stage:
        stage.nodes("n[0-4]")
        stage.api.define(read_yaml(CRD.read_text()))
        stage.start()
        submit(stage, 2)
        stage.until(lambda: "status" in stage.api.get(f"{JOBS}/g").json())
        status = stage.api.get(f"{JOBS}/g").json()["status"]
        assert (status["reason"], stage.pods()) == ("Misconfigured", {})
        assert status["message"].startswith("check is not carried out: this gantree has no image")
        stage.api.patch(f"{JOBS}/g", {"spec": {"check": None}})
        stage.until(lambda: [stage.phase(name) for name in stage.pods()] == ["Running"] * 2)
        stage.until(lambda: condition(stage).get("reason") == "NotCarriedOut")
        assert condition(stage)["message"].startswith(
            "the check of queue default is not carried out"
        )


def test_the_container_has_the_gangs_devices_and_of_its_words_addresses_alone(
    stage: PodStage,
) -> None:
    stage.start(**TOLD)
    submit(
        stage, 2,
        env=[
            {"name": "NCCL_SOCKET_IFNAME", "value": "eth7"},
            {"name": "LD_PRELOAD", "value": "/evil.so"},
            {"name": "GANTREE_REPORT_URL", "value": "https://evil"},
        ],
        securityContext={"readOnlyRootFilesystem": True, "capabilities": {"add": ["IPC_LOCK"]}},
    )  # fmt: skip
    stage.until(lambda: len(stage.pods()) == 2)
    spec = stage.pods()["g-worker-1"]["spec"]
    (init,), (main,) = spec["initContainers"], spec["containers"]
    assert (init["image"], init["command"][-1]) == ("check:1", "gantree.telemetry.checking.pod")
    assert init["resources"] == main["resources"]
    assert init["securityContext"] == {"capabilities": {"add": ["IPC_LOCK"]}}
    env = {each["name"]: each.get("value", each.get("valueFrom")) for each in init["env"]}
    assert env["NCCL_SOCKET_IFNAME"] == "eth7"
    assert env["MASTER_ADDR"] == "g-worker-0.g.default.svc"
    assert "LD_PRELOAD" not in env
    assert "annotations" in str(env["GANTREE_REPORT_URL"])
    stage.until(lambda: bool(stage.controller.ledger.jobs))
    (job,) = stage.controller.ledger.jobs.values()
    assert job.spec.check == Check(60.0)
