"""Pods with volumes go where their volumes are, or their volumes are made where they go."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gantree.executors.kubernetes.writes import pod_status as telling
from support.kubernetes.controllers.provisioner import NAME, SELECTED_NODE, ZONE, Provisioner
from support.kubernetes.server.statuses import Json
from support.pods import PodStage

CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"


@pytest.fixture(autouse=True)
def _reasons_are_told_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that tests need not wait for the next turn of a gang."""
    monkeypatch.setattr(telling, "EVERY_S", 0.2)


@contextmanager
def staged(state: Path) -> Iterator[tuple[PodStage, Provisioner]]:
    """Two zones of two nodes, a class that waits for its first consumer and one that does not."""
    with PodStage(state) as stage:
        provisioner = Provisioner(stage.kubelet.client)
        stage.running.run(provisioner.__aenter__())
        try:
            stage.nodes("a[0-1]", topology_kubernetes_io__zone="a")
            stage.nodes("b[0-1]", topology_kubernetes_io__zone="b")
            storage_class(stage, "late", volumeBindingMode="WaitForFirstConsumer")
            storage_class(stage, "early")
            stage.start()
            yield stage, provisioner
        finally:
            stage.running.run(provisioner.__aexit__(None, None, None))


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PodStage]:
    with staged(tmp_path) as (stage, _):
        yield stage


def storage_class(stage: PodStage, name: str, **told: object) -> None:
    body = {"metadata": {"name": name}, "provisioner": NAME, **told}
    assert stage.api.post(CLASSES, body).status_code == 201


def claim(stage: PodStage, name: str, of: str, mode: str = "ReadWriteOnce") -> None:
    amount = {"requests": {"storage": "1Gi"}}
    spec = {"storageClassName": of, "accessModes": [mode], "resources": amount}
    answer = stage.api.post(CLAIMS, {"metadata": {"name": name}, "spec": spec})
    assert answer.status_code == 201


def using(*claims: str) -> Json:
    """The spec of a pod with these claims."""
    volumes = [{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claims]
    return {"volumes": volumes}


def said(stage: PodStage, name: str) -> str:
    told = [c for c in stage.pods()[name]["status"].get("conditions", ()) if c["status"] == "False"]
    return str(told[0]["message"]) if told else ""


def test_a_volume_is_made_where_its_pod_goes_and_found_there_again(stage: PodStage) -> None:
    """The second pod of the claim goes to the zone of the volume, though the other has more room."""
    claim(stage, "data", "late")
    stage.pod("p0", gpus=8, spec=using("data"))
    stage.until(lambda: stage.bound("p0"))
    node = stage.node_of("p0")
    made = stage.api.get(f"{CLAIMS}/data").json()
    assert made["metadata"]["annotations"][SELECTED_NODE] == node
    assert made["status"]["phase"] == "Bound"
    stage.pod("p1", gpus=8, spec=using("data"))
    stage.pod("p2", gpus=8, spec=using("data"))
    stage.until(lambda: stage.bound("p1") and said(stage, "p2") != "")
    assert stage.node_of("p1")[0] == node[0]
    assert "its volumes are not everywhere" in said(stage, "p2")


def test_a_class_says_where_its_volumes_may_be_made(stage: PodStage) -> None:
    terms = [{"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]}]
    storage_class(stage, "in-b", volumeBindingMode="WaitForFirstConsumer", allowedTopologies=terms)
    claim(stage, "data", "in-b")
    stage.pod("p0", spec=using("data"))
    stage.until(lambda: stage.bound("p0"))
    assert stage.node_of("p0")[0] == "b"


def test_a_gang_is_bound_once_all_its_volumes_are_there(tmp_path: Path) -> None:
    """One that cannot be made takes nothing along: no pod is bound, no claim stays with a node."""
    with staged(tmp_path) as (stage, provisioner):
        stage.running.call(provisioner.full_nodes.update, ("a0", "a1", "b0", "b1"))
        stage.running.call(provisioner.slow_claims.add, "data-1")
        for number in range(2):
            claim(stage, f"data-{number}", "late")
            stage.pod(
                f"g-{number}",
                gpus=8,
                labels={"gantree.io/gang": "g"},
                annotations={"gantree.io/gang-size": "2"},
                spec=using(f"data-{number}"),
            )
        jobs = stage.controller.ledger.jobs
        stage.until(lambda: any(state.failures for state in jobs.values()))
        assert not stage.bound("g-0")
        assert not stage.bound("g-1")
        stage.until(lambda: all(SELECTED_NODE not in notes(stage, f"data-{n}") for n in range(2)))
        stage.running.call(provisioner.full_nodes.clear)
        stage.running.call(provisioner.slow_claims.clear)
        stage.until(lambda: stage.bound("g-0", "g-1"))


def notes(stage: PodStage, name: str) -> Json:
    found: Json = stage.api.get(f"{CLAIMS}/{name}").json()["metadata"].get("annotations") or {}
    return found


def test_a_pod_waits_for_a_claim_that_is_not_there_or_not_bound(stage: PodStage) -> None:
    storage_class(stage, "local", provisioner="kubernetes.io/no-provisioner")
    claim(stage, "slow", "local")
    stage.pod("p0", spec=using("none"))
    stage.pod("p1", spec=using("slow"))
    told = {
        "p0": "Waiting: there is no PersistentVolumeClaim 'none'.",
        "p1": "Waiting: the PersistentVolumeClaim 'slow' is not bound yet.",
    }
    stage.until(lambda: {name: said(stage, name) for name in told} == told)
    claim(stage, "none", "early")
    stage.until(lambda: stage.bound("p0"))


def test_a_claim_for_one_pod_alone_is_had_by_one_after_the_other(stage: PodStage) -> None:
    claim(stage, "data", "early", "ReadWriteOncePod")
    stage.pod("p0", spec=using("data"))
    stage.until(lambda: stage.bound("p0"))
    stage.pod("p1", spec=using("data"))
    stage.until(lambda: "is for one pod alone, and p0 has it" in said(stage, "p1"))
    stage.exit("p0")
    stage.until(lambda: stage.bound("p1"))
