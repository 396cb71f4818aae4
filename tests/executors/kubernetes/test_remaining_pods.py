"""A gang that is to end and cannot, as a pod of it does not go: who waits for it, and how to find out."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gantree.executors.kubernetes.apiserver.objects import Metadata, Pod, PodSpec
from gantree.executors.kubernetes.controllers.attempts.remaining_pods import why_remaining
from gantree.model.phases import Phase
from support.pods import PodStage

PODS = "/api/v1/namespaces/default/pods"
GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PodStage]:
    with PodStage(tmp_path) as stage:
        yield stage


def member(stage: PodStage, name: str) -> None:
    stage.pod(name, gpus=8, spec={"schedulingGroup": {"podGroupName": "g"}})


def lose(stage: PodStage, node: str) -> None:
    """A node stops answering: nobody says any more what became of its pods."""
    stage.running.call(stage.kubelet.freeze, node)
    stage.running.run(stage.kubelet.tell_ready(node, "Unknown"))


def message(stage: PodStage, name: str) -> str:
    conditions = stage.pods()[name]["status"].get("conditions", ())
    found = (each.get("message", "") for each in conditions if each["type"] == "PodScheduled")
    return next(found, "")


def of_group(stage: PodStage) -> tuple[str, str]:
    """Status and message of the condition of the pod group."""
    conditions = stage.api.get(f"{GROUPS}/g").json()["status"].get("conditions", ())
    return next(((each["status"], each["message"]) for each in conditions), ("", ""))


def test_a_gang_that_lost_a_node_says_which_pod_it_waits_for(stage: PodStage) -> None:
    stage.nodes("n[0-2]")
    stage.start()
    policy = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    assert stage.api.post(GROUPS, {"metadata": {"name": "g"}, "spec": policy}).status_code == 201
    for name in ("g-0", "g-1"):
        member(stage, name)
    stage.until(lambda: of_group(stage)[0] == "True")
    node = stage.node_of("g-0")
    lose(stage, node)
    stage.until(lambda: stage.phase("g-1") == "")
    told = f"pod g-0 of its last attempt is still there, on node {node}, which is lost"
    stage.until(lambda: of_group(stage)[0] == "False" and told in of_group(stage)[1])
    for name in ("g-2", "g-3"):
        member(stage, name)
    stage.until(lambda: told in message(stage, "g-2") and told in message(stage, "g-3"))
    (job,) = stage.controller.ledger.jobs
    assert told in stage.controller.cluster.remains(job)
    events = stage.api.get("/api/v1/namespaces/default/events").json()["items"]
    warned = [e["involvedObject"]["name"] for e in events if e["reason"] == "WaitingForPodToEnd"]
    assert warned == ["g-0"]
    stage.api.delete(f"{PODS}/g-0", {"gracePeriodSeconds": 0})
    stage.until(lambda: stage.bound("g-2", "g-3") and of_group(stage)[0] == "True")
    assert stage.controller.ledger.jobs[job].phase in (Phase.STARTING, Phase.RUNNING)
    assert not stage.controller.cluster.remains(job)


@pytest.mark.parametrize(
    ("ends_at", "finalizers", "says"),
    [
        (None, (), ""),
        ("2026-01-01T00:00:30Z", (), ""),
        ("2026-01-01T00:00:10Z", (), "past its grace period"),
        ("2026-01-01T00:00:10Z", ("example.com/hold",), "held by example.com/hold"),
    ],
)
def test_a_pod_that_ends_within_its_grace_is_no_news(
    ends_at: str | None, finalizers: tuple[str, ...], says: str
) -> None:
    now = 1_767_225_630.0  # 2026-01-01T00:00:30Z
    meta = Metadata(name="p0", deletion_timestamp=ends_at, finalizers=finalizers)
    pod = Pod(meta, PodSpec(node_name="n0"))
    assert (says in why_remaining([pod], lambda node: False, now)) and (
        bool(says) == bool(why_remaining([pod], lambda node: False, now))
    )
    assert "which is lost" in why_remaining([pod], lambda node: True, now)
