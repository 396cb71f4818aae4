"""gantree on an API server over real HTTP: gangs are bound whole or not at all, and what ends is noticed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gantree.executors.kubernetes.writes import pod_status as telling
from gantree.model.phases import Phase
from support.pods import PodStage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PodStage]:
    with PodStage(tmp_path) as stage:
        yield stage


def group(stage: PodStage, name: str, members: int, **constraints: Any) -> None:
    """A pod group of the gang API."""
    body = {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": {"gang": {"minCount": members}}, **constraints},
    }
    url = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
    answer = stage.api.post(url, body)
    assert answer.status_code == 201, answer.text


def member(stage: PodStage, name: str, of: str, gpus: int = 8) -> None:
    stage.pod(name, gpus, spec={"schedulingGroup": {"podGroupName": of}})


def phases(stage: PodStage) -> list[Phase]:
    return [state.phase for state in stage.controller.ledger.jobs.values()]


def test_a_pod_alone_is_bound_runs_and_ends(stage: PodStage) -> None:
    stage.nodes("n[0-1]")
    stage.start()
    stage.pod("p0", gpus=2)
    stage.until(lambda: stage.phase("p0") == "Running")
    assert stage.node_of("p0") in ("n0", "n1")
    stage.until(lambda: phases(stage) == [Phase.RUNNING])
    stage.exit("p0")
    stage.until(lambda: phases(stage) == [Phase.SUCCEEDED])


def test_a_gang_is_bound_when_it_is_whole_and_not_before(stage: PodStage) -> None:
    stage.nodes("n[0-3]")
    stage.start()
    group(stage, "g", 4)
    for number in range(3):
        member(stage, f"g-{number}", "g")
    stage.pod("alone", gpus=1)
    stage.until(lambda: stage.bound("alone"))
    assert not any(stage.bound(f"g-{number}") for number in range(3))
    stage.exit("alone")
    member(stage, "g-3", "g")
    stage.until(lambda: stage.bound("g-0", "g-1", "g-2", "g-3"))
    nodes = {stage.node_of(f"g-{number}") for number in range(4)}
    assert len(nodes) == 4


def test_a_gang_of_a_rack_is_in_one_rack(stage: PodStage) -> None:
    stage.nodes("a[0-2]", network_topology_nvidia_com__leaf="l0")
    stage.nodes("b[0-3]", network_topology_nvidia_com__leaf="l1")
    stage.start()
    key = "network.topology.nvidia.com/leaf"
    group(stage, "g", 4, schedulingConstraints={"topology": [{"key": key}]})
    for number in range(4):
        member(stage, f"g-{number}", "g")
    stage.until(lambda: stage.bound("g-0", "g-1", "g-2", "g-3"))
    assert {stage.node_of(f"g-{number}")[0] for number in range(4)} == {"b"}


def test_what_others_hold_is_not_given_out(stage: PodStage) -> None:
    stage.nodes("n0")
    stage.pod("theirs", gpus=6, spec={"schedulerName": "other", "nodeName": "n0"})
    stage.start()
    stage.pod("p0", gpus=4)
    stage.pod("p1", gpus=2)
    stage.until(lambda: stage.bound("p1"))
    assert not stage.bound("p0")
    stage.exit("theirs")
    stage.until(lambda: stage.bound("p0"))


def test_after_a_restart_nothing_is_bound_twice_and_ends_are_noticed(stage: PodStage) -> None:
    stage.nodes("n[0-1]")
    stage.start()
    group(stage, "g", 2)
    member(stage, "g-0", "g")
    member(stage, "g-1", "g")
    stage.until(lambda: phases(stage) == [Phase.RUNNING])
    stage.stop()
    stage.exit("g-0")
    stage.exit("g-1")
    stage.pod("p0", gpus=8)
    stage.start()
    stage.until(lambda: phases(stage) == [Phase.SUCCEEDED, Phase.RUNNING])


def test_a_failed_pod_ends_its_gang_and_new_pods_start_it_again(stage: PodStage) -> None:
    stage.nodes("n[0-1]")
    stage.start()
    group(stage, "g", 2)
    member(stage, "g-0", "g")
    member(stage, "g-1", "g")
    stage.until(lambda: phases(stage) == [Phase.RUNNING])
    stage.exit("g-0", 7)
    stage.until(lambda: phases(stage) == [Phase.PENDING] and stage.phase("g-1") == "")
    (state,) = stage.controller.ledger.jobs.values()
    assert state.held_for
    stage.api.delete("/api/v1/namespaces/default/pods/g-0")
    member(stage, "g-0", "g")
    member(stage, "g-1", "g")
    stage.until(lambda: phases(stage) == [Phase.RUNNING])
    assert state.attempt == 2


@pytest.mark.parametrize("is_down", [False, True])
def test_a_node_that_is_deleted_takes_its_gang_along_and_others_start(
    stage: PodStage, is_down: bool
) -> None:
    stage.nodes("n[0-1]")
    stage.start()
    stage.pod("p0", gpus=8)
    stage.until(lambda: phases(stage) == [Phase.RUNNING])
    node = stage.node_of("p0")
    if is_down:
        stage.stop()
    stage.api.delete(f"/api/v1/nodes/{node}")
    if is_down:
        stage.start()
    stage.pod("p1", gpus=8)
    stage.until(lambda: stage.phase("p1") == "Running" and stage.phase("p0") == "")
    assert stage.node_of("p1") != node
    fabric = stage.controller.ledger.fabric
    stage.until(lambda: node not in stage.controller.ledger.rooms().fabric.index_of_node)
    assert fabric is not None
    stage.until(lambda: Phase.CANCELLED in phases(stage))


def said(stage: PodStage, name: str) -> str:
    """What the condition PodScheduled of a pod says."""
    conditions = stage.pods()[name]["status"].get("conditions", [])
    told = [each for each in conditions if each["type"] == "PodScheduled"]
    return str(told[0]["message"]) if told and told[0]["status"] == "False" else ""


def reasons(stage: PodStage) -> set[str]:
    """Why events say that something is as it is."""
    events = stage.api.get("/api/v1/events").json()["items"]
    return {event["reason"] for event in events}


def test_pods_are_told_why_they_wait(stage: PodStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telling, "EVERY_S", 0.2)
    stage.nodes("n0")
    stage.start()
    group(stage, "g", 2)
    member(stage, "g-0", "g")
    stage.until(lambda: said(stage, "g-0") == "Waiting: 1 of 2 pods of 'g' are there.")
    member(stage, "g-1", "g")
    stage.until(lambda: "16 GPUs" in said(stage, "g-0"))
    url = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups/g"
    stage.until(lambda: "conditions" in stage.api.get(url).json().get("status", {}))
    due = {"WaitingForPodsReady", "TopologyPlacementFailed"}
    stage.until(lambda: due <= reasons(stage))


def test_a_gang_that_is_soon_whole_is_told_nothing(
    stage: PodStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pods come one after the other: each would be told of the missing ones."""
    monkeypatch.setattr(telling, "LATER_S", 60.0)
    stage.nodes("n[0-1]")
    group(stage, "g", 2)
    stage.start()
    member(stage, "g-0", "g")
    stage.work_for(0.3)
    member(stage, "g-1", "g")
    stage.until(lambda: stage.bound("g-0", "g-1"))
    assert "WaitingForPodsReady" not in reasons(stage)


def test_a_refusal_is_told_at_once(stage: PodStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later updates would take an hour. The group has the server's defaults, of which nothing is said."""
    stage.nodes("n0")
    stage.start()
    stage.pod("p0", gpus=4)
    stage.until(lambda: stage.bound("p0"))
    monkeypatch.setattr(telling, "EVERY_S", 3_600.0)
    group(stage, "g", 1)
    member(stage, "g-0", "g", gpus=6)
    stage.until(lambda: said(stage, "g-0") == "Waiting: needs 6 GPUs; 4 are free.")
    group(stage, "h", 2)
    member(stage, "h-0", "h")
    stage.until(lambda: "1 of 2 pods" in said(stage, "h-0"))
    member(stage, "h-1", "h")
    stage.until(lambda: "16 GPUs" in said(stage, "h-0"))
    assert "NotHonoured" not in reasons(stage)


def test_what_is_not_honoured_is_told_in_an_event(stage: PodStage) -> None:
    stage.nodes("n0")
    stage.start()
    stage.pod("p0", gpus=1, annotations={"gantree.io/checkpoint": "now and then"})
    stage.until(lambda: stage.bound("p0"))
    about = {"fieldSelector": "involvedObject.name=p0"}
    stage.until(lambda: stage.api.get("/api/v1/events", **about).json()["items"] != [])
    (event,) = stage.api.get("/api/v1/events", **about).json()["items"]
    assert (event["reason"], event["type"]) == ("NotHonoured", "Warning")
    assert "gantree.io/checkpoint" in event["message"]


def scheduled(stage: PodStage, name: str) -> tuple[str, str, str]:
    """Status, reason and message of the condition of a pod group that says whether it was scheduled."""
    url = f"/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups/{name}"
    conditions = stage.api.get(url).json()["status"].get("conditions", ())
    found = [each for each in conditions if each["type"] == "PodGroupScheduled"]
    return (found[0]["status"], found[0]["reason"], found[0]["message"]) if found else ("", "", "")


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_pod_group_says_that_it_is_scheduled_once_its_gang_is_bound(
    stage: PodStage, is_killed: bool
) -> None:
    stage.nodes("n0")
    stage.start()
    group(stage, "g", 2)
    for name in ("g-0", "g-1"):
        member(stage, name, "g")
    stage.until(lambda: scheduled(stage, "g")[0] == "False")
    others = {
        "type": "DisruptionTarget",
        "status": "False",
        "reason": "None",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    url = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups/g/status"
    told = stage.api.get(url).json()["status"]["conditions"]
    body = {"status": {"conditions": [*told, others]}}
    assert stage.api.patch(url, body).status_code == 200
    stage.nodes("n1")
    stage.until(lambda: stage.bound("g-0", "g-1"))
    if is_killed:
        stage.kill()
        assert stage.api.patch(url, body).status_code == 200
        stage.start()
    stage.until(lambda: scheduled(stage, "g")[:2] == ("True", "Scheduled"))
    kinds = [each["type"] for each in stage.api.get(url).json()["status"]["conditions"]]
    assert sorted(kinds) == ["DisruptionTarget", "PodGroupScheduled"]


def test_a_pod_group_whose_gang_was_stopped_says_why_it_waits(stage: PodStage) -> None:
    stage.nodes("n[0-1]")
    stage.start()
    group(stage, "g", 2)
    for name in ("g-0", "g-1"):
        member(stage, name, "g")
    stage.until(lambda: scheduled(stage, "g")[0] == "True")
    stage.exit("g-0", 7)
    stage.until(lambda: phases(stage) == [Phase.PENDING] and stage.phase("g-1") == "")
    stage.api.delete("/api/v1/namespaces/default/pods/g-0")
    member(stage, "g-0", "g")
    stage.until(lambda: scheduled(stage, "g")[0] == "False")
    member(stage, "g-1", "g")
    stage.until(lambda: scheduled(stage, "g")[0] == "True")
