"""Pods that change while they wait, over HTTP: they are handed in again, and bound, whatever was on record of them."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gantree.model.events import JobSubmitted
from gantree.model.phases import ENDED, Phase
from support.kubernetes.client import STRATEGIC
from support.pods import WITHIN_S, PodStage

PODS = "/api/v1/namespaces/default/pods"
TAINT = {"key": "example.com/ours", "effect": "NoSchedule"}
TOLERATION = {**TAINT, "operator": "Exists"}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PodStage]:
    with PodStage(tmp_path) as stage:
        yield stage


def amounts(cpu: str) -> dict[str, Any]:
    told = {"cpu": cpu, "memory": "1Gi"}
    return {"requests": told, "limits": told}


def large(stage: PodStage, name: str, **spec: Any) -> None:
    """A pod that is larger than every node."""
    container = {"name": "main", "image": "train", "resources": amounts("1000")}
    stage.pod(name, spec={"containers": [container], **spec})


def resize(stage: PodStage, name: str, cpu: str) -> None:
    container = {"name": "main", "resources": amounts(cpu)}
    patch = {"spec": {"containers": [container]}}
    answer = stage.api.patch(f"{PODS}/{name}/resize", patch, STRATEGIC)
    assert answer.status_code == 200, answer.text


def tolerate(stage: PodStage, name: str) -> None:
    before = stage.pods()[name]["spec"]["tolerations"]
    answer = stage.api.patch(f"{PODS}/{name}", {"spec": {"tolerations": [*before, TOLERATION]}})
    assert answer.status_code == 200, answer.text


def group(stage: PodStage, name: str, members: int) -> None:
    body = {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": {"gang": {"minCount": members}}},
    }
    url = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
    assert stage.api.post(url, body).status_code == 201


def jobs(stage: PodStage) -> list[tuple[str, Phase]]:
    """Names and phases of all jobs on record."""
    return [(each.spec.name, each.phase) for each in stage.controller.ledger.jobs.values()]


def hand_in(stage: PodStage, name: str) -> None:
    """Create a pod, and have it in the inbox as a job that no turn has come to."""
    controller = stage.controller
    stage.until(lambda: controller.ledger.fabric is not None)
    stage.pod(name, gpus=1)
    deadline = time.monotonic() + WITHIN_S
    while True:
        controller.cluster.poll()
        controller.inbox.flush()
        unread = controller.journal.read_inbox(controller.journal.cursor(), 99)
        if any(isinstance(entry.event, JobSubmitted) for entry in unread):
            return
        assert time.monotonic() < deadline, stage.told()
        time.sleep(0.02)


def waiting(stage: PodStage) -> list[str]:
    return [name for name, phase in jobs(stage) if phase is Phase.PENDING]


def open_jobs(stage: PodStage) -> list[str]:
    return [name for name, phase in jobs(stage) if phase not in ENDED]


def changed_again(stage: PodStage, name: str, cpu: str) -> None:
    """Resize a waiting pod, and go on until it is another job."""
    before = set(stage.controller.ledger.jobs)
    resize(stage, name, cpu)
    stage.until(lambda: set(stage.controller.ledger.jobs) > before)


def message(stage: PodStage, name: str) -> str:
    """What the condition says that a pod is not bound for."""
    conditions = stage.pods()[name]["status"].get("conditions", ())
    found = (each.get("message", "") for each in conditions if each["type"] == "PodScheduled")
    return next(found, "")


def test_a_waiting_pod_that_is_resized_is_bound(stage: PodStage) -> None:
    stage.nodes("n0")
    stage.start()
    large(stage, "p0")
    stage.until(lambda: waiting(stage) == ["default/p0"])
    resize(stage, "p0", "1")
    stage.until(lambda: stage.bound("p0"))


def test_a_waiting_pod_to_which_a_toleration_is_added_is_bound(stage: PodStage) -> None:
    stage.nodes("n0")
    stage.api.patch("/api/v1/nodes/n0", {"spec": {"taints": [TAINT]}})
    stage.start()
    stage.pod("p0", gpus=1)
    stage.until(lambda: waiting(stage) == ["default/p0"])
    tolerate(stage, "p0")
    stage.until(lambda: stage.bound("p0"))


def test_a_waiting_pod_that_is_changed_to_and_fro_is_handed_in_each_time(stage: PodStage) -> None:
    stage.nodes("n0")
    stage.start()
    large(stage, "p0")
    for cpu in ("2000", "1000", "2000", "1000"):
        stage.until(lambda: waiting(stage) == ["default/p0"])
        changed_again(stage, "p0", cpu)
    stage.until(lambda: waiting(stage) == ["default/p0"])
    resize(stage, "p0", "1")
    stage.until(lambda: stage.bound("p0"))


@pytest.mark.parametrize("stops", ["not", "before", "after"])
def test_a_gang_whose_pods_change_while_it_waits_is_bound_also_over_a_restart(
    stage: PodStage, stops: str
) -> None:
    stage.nodes("n[0-1]")
    stage.start()
    group(stage, "g", 2)
    for name in ("g-0", "g-1"):
        large(stage, name, schedulingGroup={"podGroupName": "g"})
    stage.until(lambda: waiting(stage) == ["default/g"])
    if stops == "before":
        stage.kill()
    resize(stage, "g-0", "2")
    if stops == "after":
        stage.until(lambda: len(jobs(stage)) == 2)
        stage.kill()
    resize(stage, "g-1", "2")
    if stops != "not":
        stage.start()
    stage.until(lambda: stage.bound("g-0", "g-1"))
    assert open_jobs(stage) == ["default/g"]


def test_a_job_that_an_operator_has_cancelled_stays_so_over_a_restart(stage: PodStage) -> None:
    stage.nodes("n0")
    stage.start()
    large(stage, "p0")
    stage.until(lambda: waiting(stage) == ["default/p0"])
    (job,) = stage.controller.ledger.jobs
    stage.controller.jobs.cancel(job)
    stage.until(lambda: jobs(stage) == [("default/p0", Phase.CANCELLED)])
    stage.until(lambda: f"{job} cancelled" in message(stage, "p0"))
    stage.stop()
    stage.start()
    stage.pod("p1", gpus=1)
    stage.until(lambda: stage.bound("p1"))
    assert [phase for name, phase in jobs(stage) if name == "default/p0"] == [Phase.CANCELLED]


def test_what_was_handed_in_and_not_decided_before_a_crash_is_one_job(stage: PodStage) -> None:
    stage.nodes("n0")
    stage.start()
    hand_in(stage, "p0")
    stage.kill()
    stage.start()
    stage.until(lambda: stage.bound("p0"))
    stage.pod("p1", gpus=1)
    stage.until(lambda: stage.bound("p1"))
    assert sorted(name for name, _ in jobs(stage)) == ["default/p0", "default/p1"]


def test_a_pod_whose_job_is_rejected_is_told_why_and_again_after_a_restart(stage: PodStage) -> None:
    stage.nodes("n0")
    stage.start()
    stage.pod("p0", gpus=1, labels={"gantree.io/priority": "nowhere"})
    told = "Rejected: "
    stage.until(lambda: told in message(stage, "p0"))
    stage.stop()
    empty = {"status": {"conditions": [{"type": "PodScheduled", "status": "False", "message": ""}]}}
    stage.api.patch(f"{PODS}/p0/status", empty)
    stage.start()
    stage.until(lambda: told in message(stage, "p0"))


def test_a_node_that_leaves_between_hand_in_and_decision_does_not_keep_gantree_from_starting(
    stage: PodStage,
) -> None:
    stage.nodes("n0")
    stage.start()
    hand_in(stage, "p0")
    stage.kill()
    stage.api.delete("/api/v1/nodes/n0")
    stage.nodes("n1")
    stage.start()
    stage.pod("p1", gpus=1)
    stage.until(lambda: stage.bound("p1"))
    assert stage.node_of("p1") == "n1"
