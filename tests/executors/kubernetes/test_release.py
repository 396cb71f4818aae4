"""A namespace goes back to the scheduler that it had: which waiting pods are made again, and which are left."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gantree.executors.kubernetes.apiserver.client import Client
from gantree.executors.kubernetes.apiserver.objects import Metadata, OwnerReference
from gantree.executors.kubernetes.tools import release as tool
from gantree.executors.kubernetes.tools.release import (
    BEFORE,
    RELEASED,
    SWITCH,
    JobSpec,
    PodSpec,
    PodStatus,
    Released,
    SwitchedJob,
    SwitchedPod,
    plan_of,
    release,
)
from gantree.model.errors import BadInput
from support.pods import PodStage

SWITCHED = {BEFORE: "default-scheduler"}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PodStage]:
    with PodStage(tmp_path) as stage:
        yield stage


@pytest.fixture(autouse=True)
def _looks_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool, "AGAIN_S", 0.05)


def pod(
    name: str, owner: str = "ReplicaSet", node: str = "", phase: str = "Pending"
) -> SwitchedPod:
    owners = (OwnerReference(owner, "owner", "job-uid", controller=True),) if owner else ()
    meta = Metadata(name, "research", name, annotations=SWITCHED, owner_references=owners)
    return SwitchedPod(meta, PodSpec(node, "gantree"), PodStatus(phase))


def job(*, is_suspended: bool = False, is_marked: bool = False) -> SwitchedJob:
    annotations = {RELEASED: "true"} if is_marked else {}
    meta = Metadata("owner", "research", "job-uid", annotations=annotations)
    return SwitchedJob(meta, JobSpec(is_suspended))


def names(found: tuple[Any, ...]) -> list[str]:
    return [each.metadata.name for each in found]


@pytest.mark.parametrize(
    ("pods", "jobs", "evicted", "suspended", "resumed", "left"),
    [
        ([pod("a"), pod("b", node="n0")], [], ["a"], [], [], []),
        ([pod("a", "StatefulSet")], [], ["a"], [], [], []),
        ([pod("a", "")], [], [], [], [], ["research/a"]),
        ([pod("a", "Job"), pod("b", "Job")], [job()], [], ["owner"], [], []),
        ([pod("a", "Job"), pod("b", "Job", node="n0")], [job()], [], [], [], ["research/a"]),
        ([pod("a", "Job"), pod("b", "Job", node="n0", phase="Failed")], [job()], [], ["owner"], [], []),
        ([pod("a", "Job")], [job(is_suspended=True, is_marked=True)], [], [], [], []),
        ([], [job(is_suspended=True, is_marked=True)], [], [], ["owner"], []),
        ([], [job(is_suspended=True)], [], [], [], []),
    ],
)  # fmt: skip
def test_what_happens_to_waiting_pods(
    pods: list[SwitchedPod],
    jobs: list[SwitchedJob],
    evicted: list[str],
    suspended: list[str],
    resumed: list[str],
    left: list[str],
) -> None:
    plan = plan_of(pods, jobs, "gantree")
    assert names(plan.evict) == evicted
    assert names(plan.suspend) == suspended
    assert names(plan.resume) == resumed
    assert [name for name, _ in plan.left] == left


def test_a_job_is_waited_for_until_its_pods_are_gone() -> None:
    waiting = plan_of([pod("a", "Job")], [job(is_suspended=True, is_marked=True)], "gantree")
    assert (waiting.is_waiting, waiting.is_done) == (True, False)


def owners_of(stage: PodStage) -> list[dict[str, Any]]:
    """A controller that makes no pods and that nobody collects."""
    made = stage.api.post("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "owner"}})
    told = {"name": "owner", "uid": made.json()["metadata"]["uid"], "controller": True}
    return [{"apiVersion": "v1", "kind": "ConfigMap", **told}]


def released(stage: PodStage, *spaces: str, of_all: bool = False) -> list[Released]:
    connection = stage.connection(stage.running.token)
    return asyncio.run(release(connection, spaces, "gantree", of_all=of_all))


def test_waiting_pods_of_a_controller_go_and_all_others_stay(stage: PodStage) -> None:
    space = "/api/v1/namespaces/default"
    stage.api.patch(space, {"metadata": {"labels": {SWITCH: "gantree"}}})
    owners = owners_of(stage)
    stage.nodes("n0")
    stage.pod("waits", owners=owners, annotations=SWITCHED)
    stage.pod("bound", owners=owners, annotations=SWITCHED, spec={"nodeName": "n0"})
    stage.pod("own", owners=owners)
    stage.pod("bare", annotations=SWITCHED)
    stage.pod(
        "theirs", owners=owners, annotations=SWITCHED, spec={"schedulerName": "default-scheduler"}
    )
    (told,) = released(stage, of_all=True)
    assert (told.namespace, told.evicted, told.restarted) == ("default", ["waits"], [])
    assert [name for name, _ in told.left] == ["default/bare"]
    assert sorted(stage.pods()) == ["bare", "bound", "own", "theirs"]
    assert SWITCH not in (stage.api.get(space).json()["metadata"].get("labels") or {})
    assert released(stage, of_all=True) == []


def test_a_pod_that_is_bound_meanwhile_stays(stage: PodStage) -> None:
    """It is evicted as the version that was read."""
    stage.nodes("n0")
    made = stage.pod("p0", owners=owners_of(stage), annotations=SWITCHED)
    target = {"apiVersion": "v1", "kind": "Node", "name": "n0"}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p0"}, "target": target}
    stage.api.post("/api/v1/namespaces/default/pods/p0/binding", body)
    meta = made["metadata"]
    read = SwitchedPod(
        Metadata("p0", "default", meta["uid"], meta["resourceVersion"], annotations=SWITCHED)
    )

    async def evicted() -> bool:
        client = Client(stage.connection(stage.running.token))
        try:
            return await tool._evicted(client, read)
        finally:
            await client.close()

    assert asyncio.run(evicted()) is False
    assert "p0" in stage.pods()


def test_a_namespace_that_is_not_there_is_named(stage: PodStage) -> None:
    with pytest.raises(BadInput, match="there is no namespace 'nowhere'"):
        released(stage, "nowhere")
