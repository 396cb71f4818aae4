"""Gangs that leave for others: evicted, budgets asked, saved first where they say how; their room is nominated."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gantree.executors.kubernetes.apiserver.client import Client
from gantree.executors.kubernetes.apiserver.connection import Connection
from gantree.executors.kubernetes.apiserver.objects import Metadata, Pod
from gantree.executors.kubernetes.pods.checkpoint_protocol import checkpoint_of
from gantree.executors.kubernetes.pods.shapes import pod_request
from gantree.executors.kubernetes.writes import eviction
from gantree.executors.kubernetes.writes.patches import nominate
from gantree.formats.policy.reader import PRESETS
from support.kubernetes.controllers.controllers import Controllers
from support.kubernetes.server.statuses import Json
from support.pods import TOKEN, PodStage

BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
PODS = "/api/v1/namespaces/default/pods"


@contextmanager
def staged(state: Path, grace_s: float = 60.0) -> Iterator[PodStage]:
    """Two nodes of eight GPUs, budgets with their controller, and a policy that preempts at once."""
    policy = replace(PRESETS["gantree"], grace_s=grace_s, min_run_s=0.0)
    with PodStage(state, policy) as stage:
        controllers = Controllers(stage.kubelet.client)
        stage.running.run(controllers.__aenter__())
        try:
            stage.nodes("n[0-1]")
            stage.start()
            yield stage
        finally:
            stage.running.run(controllers.__aexit__(None, None, None))


def gang(stage: PodStage, name: str, priority: str = "research", **annotations: str) -> None:
    """Two pods of a whole node each."""
    told = {"gantree.io/gang-size": "2", "gantree.io/priority": priority, **annotations}
    labels = {"gantree.io/gang": name, "app": name}
    for number in range(2):
        stage.pod(f"{name}-{number}", gpus=8, labels=labels, annotations=told)


def runs(stage: PodStage, name: str) -> bool:
    return all(stage.phase(f"{name}-{number}") == "Running" for number in range(2))


def budget(stage: PodStage, app: str, **spec: Any) -> None:
    body = {
        "metadata": {"name": app},
        "spec": {"selector": {"matchLabels": {"app": app}}, **spec},
    }
    assert stage.api.post(BUDGETS, body).status_code == 201
    stage.until(
        lambda: stage.api.get(f"{BUDGETS}/{app}").json()["status"].get("currentHealthy") == 2
    )


def disrupted(pod: Json) -> str:
    """The reason of its condition DisruptionTarget."""
    found = [c for c in pod["status"].get("conditions", ()) if c["type"] == "DisruptionTarget"]
    return str(found[0]["reason"]) if found else ""


def nominated(stage: PodStage, name: str) -> str:
    return str(stage.pods()[name]["status"].get("nominatedNodeName", ""))


def test_a_gang_that_is_preempted_is_evicted(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        gang(stage, "low")
        stage.until(lambda: runs(stage, "low"))
        for node in ("n0", "n1"):
            stage.running.call(stage.kubelet.freeze, node)
        budget(stage, "low", maxUnavailable=2)
        gang(stage, "high", "production")
        stage.until(lambda: all(disrupted(stage.pods()[name]) for name in ("low-0", "low-1")))
        reasons = {disrupted(stage.pods()[name]) for name in ("low-0", "low-1")}
        assert reasons == {"EvictionByEvictionAPI"}
        for node in ("n0", "n1"):
            stage.running.call(stage.kubelet.thaw, node)
        stage.until(lambda: runs(stage, "high"))


def test_a_budget_that_lets_only_a_part_of_a_gang_go_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eviction, "AGAIN_S", 0.1)
    with staged(tmp_path) as stage:
        gang(stage, "low")
        stage.until(lambda: runs(stage, "low"))
        budget(stage, "low", maxUnavailable=1)
        gang(stage, "high", "production")
        stage.until(lambda: nominated(stage, "high-1") != "")
        stage.work_for(0.5)
        assert runs(stage, "low"), "one of its pods went alone"
        patch = {"spec": {"maxUnavailable": 2}}
        assert stage.api.patch(f"{BUDGETS}/low", patch).status_code == 200
        stage.until(lambda: runs(stage, "high"))


def test_when_the_grace_is_over_budgets_are_not_asked_any_more(tmp_path: Path) -> None:
    with staged(tmp_path, grace_s=2.0) as stage:
        gang(stage, "low", **{"kubelet.gantree/stops-s": "1"})
        stage.until(lambda: runs(stage, "low"))
        budget(stage, "low", minAvailable=2)
        gang(stage, "high", "production")
        stage.until(lambda: disrupted(stage.pods().get("low-0", {"status": {}})) != "")
        assert disrupted(stage.pods()["low-0"]) == "PreemptionByScheduler"
        stage.until(lambda: runs(stage, "high"))
        events = stage.api.get("/api/v1/events").json()["items"]
        (told,) = [each for each in events if each["reason"] == "DisruptionBudgetViolated"]
        assert told["message"].startswith("The budget 'low' lets 0 of these 2 pods go;")


@pytest.mark.faults
def test_a_gang_stays_while_gantree_may_not_evict_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eviction, "AGAIN_S", 0.1)
    with staged(tmp_path, grace_s=0.5) as stage:
        gang(stage, "low")
        stage.until(lambda: runs(stage, "low"))
        uids = {name: pod["metadata"]["uid"] for name, pod in stage.pods().items()}
        no = {"verb": "create", "resource": "pods/eviction", "code": 403, "times": None}
        fault = stage.running.call(lambda: stage.running.server.faults.add(**no))
        gang(stage, "high", "production")
        stage.until(lambda: fault.met >= 6)
        assert {name: stage.pods()[name]["metadata"]["uid"] for name in uids} == uids
        events = stage.api.get("/api/v1/events").json()["items"]
        (told,) = [each for each in events if each["reason"] == "EvictionForbidden"]
        assert told["type"] == "Warning"
        assert "permission to create pods/eviction in namespace default" in told["message"]
        fault.times = 0
        stage.until(lambda: runs(stage, "high"))


def test_pods_that_wait_for_freed_room_are_nominated_and_it_is_taken_back(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        gang(stage, "low")
        stage.until(lambda: runs(stage, "low"))
        budget(stage, "low", maxUnavailable=0)
        gang(stage, "high", "production")
        names = ("high-0", "high-1")
        stage.until(lambda: {nominated(stage, name) for name in names} == {"n0", "n1"})
        stage.api.delete(f"{PODS}/high-1")
        stage.until(lambda: nominated(stage, "high-0") == "")


def test_a_nomination_that_a_killed_gantree_left_behind_is_taken_back(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        gang(stage, "low")
        stage.until(lambda: runs(stage, "low"))
        stage.pod("p0", gpus=8)
        stage.kill()
        status = {"status": {"nominatedNodeName": "n1"}}
        assert stage.api.patch(f"{PODS}/p0/status", status).status_code == 200
        stage.start()
        stage.until(lambda: nominated(stage, "p0") == "")


@pytest.mark.parametrize("answers", ["all", "first"])
def test_a_gang_that_can_save_is_asked_to_and_stopped_when_it_has(
    tmp_path: Path, answers: str
) -> None:
    with staged(tmp_path) as stage:
        gang(
            stage,
            "low",
            **{"gantree.io/checkpoint": answers, "gantree.io/checkpoint-grace": "10m"},
        )
        stage.until(lambda: runs(stage, "low"))
        gang(stage, "high", "production")
        key = "gantree.io/checkpoint-requested"
        stage.until(lambda: all(key in annotations(stage, f"low-{n}") for n in range(2)))
        moment = annotations(stage, "low-0")[key]
        save(stage, "low-1", "2020-01-01T00:00:00Z")
        save(stage, "low-0", moment)
        if answers == "all":
            stage.work_for(0.5)
            assert runs(stage, "low"), "the second has not answered yet"
            save(stage, "low-1", moment)
        stage.until(lambda: runs(stage, "high"))
        (low,) = [
            state
            for state in stage.controller.ledger.jobs.values()
            if state.spec.name == "default/low"
        ]
        assert low.checkpoint_step == 7


def annotations(stage: PodStage, name: str) -> dict[str, str]:
    found: dict[str, str] = stage.pods()[name]["metadata"]["annotations"]
    return found


def save(stage: PodStage, name: str, moment: str) -> None:
    """What a pod does that has saved."""
    told = {"gantree.io/checkpoint-done": moment, "gantree.io/checkpoint-step": "7"}
    answer = stage.api.patch(f"{PODS}/{name}", {"metadata": {"annotations": told}})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("told", "word"),
    [
        ({"gantree.io/checkpoint": "some"}, "neither 'all' nor 'first'"),
        ({"gantree.io/checkpoint-grace": "soon"}, "no duration, such as 90s"),
    ],
)
def test_words_on_checkpoints_that_mean_nothing_are_told(told: dict[str, str], word: str) -> None:
    metadata = {"name": "p", "uid": "u", "annotations": told}
    pod = msgspec.convert({"metadata": metadata}, Pod)
    assert word in " ".join(pod_request(pod).unknown)
    assert checkpoint_of([pod]) is None


@pytest.mark.faults
def test_a_change_to_a_pod_is_tried_again_and_is_of_no_other_pod(tmp_path: Path) -> None:
    with PodStage(tmp_path) as stage:
        made = msgspec.convert(stage.pod("p0"), Pod).metadata
        faults = stage.running.server.faults
        stage.running.call(lambda: faults.add(resource="pods/status", code=500, times=2))
        assert stage.running.run(told(stage.connection(TOKEN), made, "n0")) == ""
        assert nominated(stage, "p0") == "n0"
        other = msgspec.structs.replace(made, uid="of-another")
        assert stage.running.run(told(stage.connection(TOKEN), other, "n1")) == ""
        assert nominated(stage, "p0") == "n0"


async def told(connection: Connection, pod: Metadata, node: str) -> str:
    client = Client(connection)
    try:
        return await nominate(client, pod, node)
    finally:
        await client.close()
