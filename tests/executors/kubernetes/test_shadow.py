"""A dry run: another scheduler binds, gantree decides about the same pods, and no write reaches the server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gantree.api.observability.dry_run_metrics import ShadowFigures
from gantree.executors.kubernetes.apiserver.objects import Metadata, Pod
from gantree.executors.kubernetes.apiserver.settings import Shadow
from gantree.executors.kubernetes.tools.shadow_tally import ShadowPod
from gantree.model.phases import Phase
from support.pods import GANTREE, PodStage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PodStage]:
    with PodStage(tmp_path) as stage:
        yield stage


def shadow(stage: PodStage, path: Path, of: str = "default-scheduler") -> None:
    stage.start(shadow=Shadow(of, path / "shadow.json"))


def theirs(stage: PodStage, name: str, gpus: int = 8, **told: Any) -> None:
    stage.pod(name, gpus, spec={"schedulerName": "default-scheduler"}, **told)


def until_placed(stage: PodStage, times: int) -> None:
    """Until a gang was placed so often, as the same job or as another, and is there."""
    jobs = stage.controller.ledger.jobs
    stage.until(lambda: sum(job.attempt for job in jobs.values()) == times and bool(places(stage)))


def until_running(stage: PodStage, name: str) -> None:
    stage.until(lambda: stage.phase(name) == "Running")


def bind(stage: PodStage, name: str, node: str) -> None:
    """As the scheduler in charge does."""
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    answer = stage.api.post(f"/api/v1/namespaces/default/pods/{name}/binding", body)
    assert answer.status_code == 201, answer.text


def list_anew(stage: PodStage) -> None:
    """Have gantree list pods: its watch ends, and what happened meanwhile the server has forgotten."""
    server = stage.running.server
    lists = server.asked[GANTREE, "list", "", "pods"]

    def is_listed() -> bool:
        stage.running.call(server.end_watches, "pods", False)
        note = {"metadata": {"annotations": {"note": str(sum(server.asked.values()))}}}
        stage.api.patch("/api/v1/namespaces/default/pods/p0", note)
        stage.running.call(server.compact)
        return server.asked[GANTREE, "list", "", "pods"] > lists

    stage.until(is_listed)


def places(stage: PodStage) -> dict[str, list[str]]:
    """The nodes of each gang that runs, as gantree would have it."""
    held = stage.controller.ledger.holding.values()
    return {
        state.spec.name: [member.node for member in state.placement.members]
        for state in held
        if state.placement and state.phase is Phase.RUNNING
    }


def written(stage: PodStage) -> list[tuple[str, str, str, str]]:
    """What gantree has asked the server for, beside looking."""
    return [
        each
        for each in stage.running.server.asked
        if each[0] == GANTREE and each[1] not in ("get", "list", "watch")
    ]


GANG: dict[str, Any] = {
    "labels": {"gantree.io/gang": "g"},
    "annotations": {"gantree.io/gang-size": "2", "gantree.io/required-topology": "leaf"},
}


@pytest.mark.faults
def test_no_write_reaches_the_server_and_the_report_compares(
    stage: PodStage, tmp_path: Path
) -> None:
    stage.nodes("a0", network_topology_nvidia_com__leaf="l0")
    stage.nodes("b[0-1]", network_topology_nvidia_com__leaf="l1")
    theirs(stage, "old")
    bind(stage, "old", "a0")
    shadow(stage, tmp_path)
    theirs(stage, "g-0", **GANG)
    theirs(stage, "g-1", **GANG)
    stage.until(lambda: sorted(places(stage).get("default/g", [])) == ["b0", "b1"])
    stage.exit("old")
    stage.until(lambda: stage.phase("old") == "Succeeded")
    bind(stage, "g-0", "a0")
    theirs(stage, "late", gpus=8)
    stage.until(lambda: places(stage).get("default/late") == ["a0"])  # g-0 was seen bound before it
    bind(stage, "g-1", "b0")
    theirs(stage, "later", gpus=8)
    stage.until(
        lambda: "default/later" in [s.spec.name for s in stage.controller.ledger.jobs.values()]
    )
    before = stage.pods()
    stage.stop()
    assert written(stage) == []
    assert not before["late"]["spec"].get("nodeName")
    assert "gantree.io/job" not in str(before)
    gang, late, later = stage.report["gangs"]
    assert (gang["gang"], gang["pods"], gang["gpus"]) == ("default/g", 2, 16)
    assert gang["theirs"]["domains"] == {"leaf": 2, "node": 2}
    assert gang["ours"]["domains"] == {"leaf": 1, "node": 2}
    assert 0 <= gang["ours"]["wait_s"] < gang["theirs"]["wait_s"]
    assert gang["theirs"]["gpu_s_of_a_part"] > 0
    assert (late["theirs"]["nodes"], late["ours"]["nodes"]) == ([], ["a0"])
    assert later["ours"]["wait_s"] is None
    totals = stage.report["totals"]
    assert (totals["started_by_both"], totals["earlier"], totals["gpus"]) == (1, 1, 24)
    assert (totals["theirs"]["started"], totals["ours"]["started"]) == (1, 2)
    assert totals["writes_withheld"]["POST binding"] == 3


@pytest.mark.faults
def test_a_pod_ends_in_the_dry_run_once_it_has_ended_in_truth(
    stage: PodStage, tmp_path: Path
) -> None:
    stage.nodes("n0")
    shadow(stage, tmp_path)
    theirs(stage, "p0")
    stage.until(lambda: places(stage) == {"default/p0": ["n0"]})
    theirs(stage, "p1")
    bind(stage, "p0", "n0")
    stage.until(lambda: stage.phase("p0") == "Running")
    stage.exit("p0")
    stage.until(lambda: places(stage) == {"default/p1": ["n0"]})
    stage.api.delete("/api/v1/namespaces/default/pods/p0")
    stage.api.delete("/api/v1/namespaces/default/pods/p1")
    stage.until(lambda: places(stage) == {})
    assert written(stage) == []


def test_a_pod_that_was_bound_before_gantree_saw_it_is_decided_about_too(
    stage: PodStage, tmp_path: Path
) -> None:
    stage.nodes("n[0-1]")
    shadow(stage, tmp_path)
    stage.pod("p0", gpus=4, spec={"schedulerName": "default-scheduler", "nodeName": "n1"})
    stage.until(lambda: "default/p0" in places(stage))
    stage.stop()
    (row,) = stage.report["gangs"]
    assert row["theirs"]["nodes"] == ["n1"]
    assert row["ours"]["nodes"] in (["n0"], ["n1"])


@pytest.mark.faults
def test_pods_of_a_gantree_in_charge_are_decided_about_anew(
    stage: PodStage, tmp_path: Path
) -> None:
    """What that one wrote onto them is no word of the dry run's."""
    stage.nodes("n[0-1]")
    shadow(stage, tmp_path, of="gantree")
    stage.pod("p0", gpus=8)
    stage.until(lambda: "default/p0" in places(stage))
    assert written(stage) == []
    annotations = {"gantree.io/job": "x", "gantree.io/attempt": "1", "gantree.io/gang": "g"}
    shown = ShadowPod(Pod(Metadata("p0", annotations=annotations)), 0.0).shown()
    assert shown.metadata.annotations == {"gantree.io/gang": "g"}


@pytest.mark.faults
def test_a_pod_that_is_made_anew_under_its_name_is_decided_about_too(
    stage: PodStage, tmp_path: Path
) -> None:
    """A StatefulSet's, say. The one before may still run in the dry run, where it came later to its node."""
    stage.nodes("n0")
    shadow(stage, tmp_path)
    for number in (1, 2):
        stage.pod("p0", gpus=8, spec={"schedulerName": "default-scheduler", "nodeName": "n0"})
        until_placed(stage, number)
        stage.api.delete("/api/v1/namespaces/default/pods/p0", {"gracePeriodSeconds": 0})
    stage.until(lambda: places(stage) == {})
    assert written(stage) == []


@pytest.mark.faults
def test_a_watch_that_breaks_changes_nothing(stage: PodStage, tmp_path: Path) -> None:
    stage.nodes("n[0-2]")
    shadow(stage, tmp_path)
    for number in range(3):
        theirs(stage, f"p{number}")
        stage.running.call(stage.running.server.end_watches, "pods", number == 1)
        if number == 1:
            stage.running.call(stage.running.server.compact)
    stage.until(lambda: len(places(stage)) == 3)
    list_anew(stage)
    theirs(stage, "small", gpus=0)
    stage.until(lambda: len(places(stage)) == 4)
    stage.api.delete("/api/v1/namespaces/default/pods/small", {"gracePeriodSeconds": 0})
    stage.until(lambda: len(places(stage)) == 3)
    for number in range(3):
        bind(stage, f"p{number}", f"n{number}")
        stage.running.call(stage.running.server.end_watches, "pods", number == 1)
        until_running(stage, f"p{number}")
        stage.exit(f"p{number}")
    stage.until(lambda: places(stage) == {})
    assert written(stage) == []


def test_the_metrics_have_both_sides() -> None:
    side = {
        "started": 2,
        "wait_s": 1.5,
        "gpu_s_idle": 3.0,
        "gpu_s_of_a_part": 0.0,
        "domains": {"leaf": 1.0},
    }
    told = {"totals": {"theirs": side, "ours": {**side, "wait_s": None}}}
    samples = {
        (each.name, each.labels["scheduler"]): each.value
        for family in ShadowFigures(lambda: told).collect()
        for each in family.samples
    }
    assert samples["gantree_shadow_wait_seconds", "in-charge"] == 1.5
    assert ("gantree_shadow_wait_seconds", "gantree") not in samples
    assert samples["gantree_shadow_partial_gpu_seconds", "in-charge"] == 0.0
    assert samples["gantree_shadow_domains", "gantree"] == 1.0
