"""Gangs that run when gantree starts with an empty journal: they are its own again, as far as their pods tell."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gantree.core.ledger.state import JobState
from gantree.model.phases import Phase
from support.devices import GPU, DeviceStage, request
from support.pods import PodStage

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PodStage]:
    with PodStage(tmp_path) as stage:
        stage.nodes("n[0-1]")
        stage.start()
        yield stage


def gang(stage: PodStage, name: str, gpus: int, **annotations: str) -> None:
    """Two pods, until they run."""
    labels = {"gantree.io/gang": name, "gantree.io/gang-size": "2"}
    told = {key.replace("_", "-"): value for key, value in annotations.items()}
    for number in range(2):
        notes = {f"gantree.io/{key}": value for key, value in told.items()}
        stage.pod(f"{name}-{number}", gpus=gpus, labels=labels, annotations=notes)
    stage.until(lambda: all(stage.phase(f"{name}-{n}") == "Running" for n in range(2)))
    stage.until(
        lambda: all(s.phase is Phase.RUNNING for s in stage.controller.ledger.jobs.values())
    )


def lose_journal(stage: PodStage) -> None:
    """It was stopped."""
    place = Path(stage._state_dir)
    for each in place.iterdir():
        shutil.rmtree(each) if each.is_dir() else each.unlink()


def only(stage: PodStage) -> JobState:
    (state,) = stage.controller.ledger.jobs.values()
    return state


def runs(stage: PodStage) -> bool:
    jobs = stage.controller.ledger.jobs.values()
    return bool(jobs) and all(state.phase is Phase.RUNNING for state in jobs)


def bound(stage: PodStage) -> int:
    """How many bindings gantree has asked for."""
    asked: Any = stage.running.server.asked
    return int(asked["gantree", "create", "", "pods/binding"])


@pytest.mark.faults
def test_a_gang_is_its_own_again_with_the_very_devices_and_ends_as_it_would_have(
    stage: PodStage, caplog: pytest.LogCaptureFixture
) -> None:
    """Pods of others stay others'; nothing is bound a second time; with the new journal nothing is found."""
    stage.pod("theirs", gpus=2, spec={"schedulerName": "other", "nodeName": "n0"})
    gang(stage, "g", 4, queue="default", processes="2")
    before, bindings = only(stage), bound(stage)
    stage.stop()
    lose_journal(stage)
    stage.start()
    stage.until(lambda: runs(stage))
    after = only(stage)
    assert (after.job, after.attempt, after.found) == (before.job, before.attempt, True)
    assert after.spec == before.spec
    assert before.placement is not None
    assert after.placement is not None
    assert after.placement.members == before.placement.members
    assert after.placement.domain == before.placement.domain
    cluster: Any = stage.controller.cluster
    assert list(cluster._pending.key_of_job) == [after.job]
    stage.work_for(0.2)
    owners = stage.controller.ledger.rooms().owners.items()
    held = {owner: sum(len(each.gpus) for each in members) for owner, members in owners}
    assert held == {after.job: 8, "site:others on n0": 2}
    assert any("1 gangs run that no record knows" in each for each in caplog.messages)
    caplog.clear()
    stage.stop()
    stage.start()
    stage.until(lambda: runs(stage))
    assert not any("no record knows" in each for each in caplog.messages)
    for number in range(2):
        stage.exit(f"g-{number}")
    stage.until(lambda: only(stage).phase is Phase.SUCCEEDED)
    assert bound(stage) == bindings


def test_it_is_preempted_by_who_comes_before_it(stage: PodStage) -> None:
    gang(stage, "g", 8, priority="research")
    job = only(stage).job
    stage.stop()
    lose_journal(stage)
    stage.start()
    stage.until(lambda: runs(stage))
    stage.pod("first", gpus=8, annotations={"gantree.io/priority": "production"})
    stage.until(lambda: stage.phase("first") == "Running")
    stage.until(lambda: stage.phase("g-0") == stage.phase("g-1") == "")
    stage.exit("first")
    labels = {"gantree.io/gang": "g", "gantree.io/gang-size": "2"}
    for number in range(2, 4):
        notes = {"gantree.io/priority": "research"}
        stage.pod(f"g-{number}", gpus=8, labels=labels, annotations=notes)
    stage.until(lambda: stage.bound("g-2", "g-3"))
    assert stage.controller.ledger.jobs[job].preemptions == 1


def test_pods_that_are_no_whole_gang_of_ours_stay_others(stage: PodStage) -> None:
    """One has lost a member, one is what somebody wrote himself, and one of another scheduler bears our marks."""
    gang(stage, "g", 2)
    annotations = dict(stage.pods()["g-0"]["metadata"]["annotations"])
    stage.stop()
    stage.api.delete(f"{PODS}/g-1", {"gracePeriodSeconds": 0})
    forged = {**annotations, "gantree.io/members": "1", "gantree.io/job": "elsewhere.g.gang.1"}
    stage.pod("forged", gpus=2, annotations=forged, spec={"nodeName": "n1"})
    own = {**annotations, "gantree.io/members": "1", "gantree.io/job": "default.theirs.pod.1"}
    stage.pod("theirs", gpus=2, annotations=own, spec={"nodeName": "n1", "schedulerName": "other"})
    lose_journal(stage)
    stage.start()
    stage.until(lambda: "others on n1" in stage.controller.ledger.site.others)
    stage.work_for(0.2)
    ledger = stage.controller.ledger
    assert not ledger.jobs
    held = {each: len(members[0].gpus) for each, members in ledger.site.others.items()}
    assert held == {"others on n0": 2, "others on n1": 4}


def test_one_that_the_policy_has_no_class_for_is_counted_as_others(tmp_path: Path) -> None:
    """What is not taken over is told, and its room is not given out."""
    with PodStage(tmp_path) as stage:
        stage.nodes("n0")
        stage.start()
        gang(stage, "g", 2)
        for number in range(2):
            notes = {"metadata": {"annotations": {"gantree.io/priority": "nobody"}}}
            assert stage.api.patch(f"{PODS}/g-{number}", notes).status_code == 200
        stage.stop()
        lose_journal(stage)
        stage.start()
        stage.until(lambda: bool(stage.controller.ledger.site.others))
        assert not stage.controller.ledger.jobs
        (held,) = stage.controller.ledger.site.others.values()
        assert len(held[0].gpus) == 4


def test_devices_by_claims_are_known_again_and_given_to_nobody_else(tmp_path: Path) -> None:
    with DeviceStage(tmp_path) as stage:
        stage.classes(gpu=GPU)
        stage.claimed_nodes("n0", gpus=4)
        stage.template("two", request("gpus", "gpu", 2))
        stage.start()
        stage.claimant("p0", "two")
        stage.until(lambda: runs(stage))
        before, devices = only(stage).placement, stage.devices_of("p0")
        stage.stop()
        lose_journal(stage)
        stage.start()
        stage.until(lambda: runs(stage))
        after = only(stage)
        assert before is not None
        assert after.placement is not None
        assert after.placement.members == before.members
        stage.claimant("p1", "two")
        stage.claimant("p2", "two")
        stage.until(lambda: stage.bound("p1") or stage.bound("p2"))
        stage.until(lambda: len(stage.held()) == 4)
        assert len(set(stage.held())) == 4
        assert stage.devices_of("p0") == devices
        assert not (stage.bound("p1") and stage.bound("p2"))
        stage.exit("p0")
        stage.until(lambda: stage.bound("p1", "p2"))
