"""Gangs that hold devices by claims give way to those of a higher priority, and the devices change hands."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gantree.formats.policy.reader import PRESETS
from support.devices import GPU, NIC, DeviceStage, request
from support.kubernetes.server.statuses import Json

SAVES = {"gantree.io/checkpoint": "all", "gantree.io/checkpoint-grace": "1s"}
SLOW = {"kubelet.gantree/stops-s": "1"}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[DeviceStage]:
    """A policy that preempts at once."""
    policy = replace(PRESETS["gantree"], min_run_s=0.0, restart_s=0.0, evictions_per_day=None)
    with DeviceStage(tmp_path, policy) as stage:
        stage.classes(gpu=GPU, nic=NIC)
        yield stage


def gang(
    stage: DeviceStage,
    name: str,
    template: str,
    priority: str,
    members: int = 2,
    saves: bool = False,
) -> None:
    """Pods of a claim each."""
    told = {"gantree.io/gang-size": str(members), **(SAVES if saves else {})}
    labels = {"gantree.io/gang": name, "gantree.io/priority": priority}
    for number in range(members):
        stage.claimant(f"{name}-{number}", template, labels=labels, annotations=told)


def runs(stage: DeviceStage, name: str, members: int = 2) -> bool:
    return all(stage.phase(f"{name}-{number}") == "Running" for number in range(members))


def leaves(stage: DeviceStage, name: str) -> bool:
    """Whether a pod is gone, or told to go."""
    pod = stage.pods().get(name)
    return pod is None or "deletionTimestamp" in pod["metadata"]


def devices_of_gang(stage: DeviceStage, name: str, members: int = 2) -> set[object]:
    return {each for number in range(members) for each in stage.devices_of(f"{name}-{number}")}


def test_the_devices_of_the_gang_that_loses_the_least_work_change_hands(stage: DeviceStage) -> None:
    """Both have run as long; one saves, so that it loses a second at most."""
    stage.claimed_nodes("n0", "n1", "n2", "n3", gpus=1)
    stage.template("one", request("gpu", "gpu"))
    stage.start()
    gang(stage, "loses", "one", "research")
    stage.until(lambda: runs(stage, "loses"))
    gang(stage, "saves", "one", "research", saves=True)
    stage.until(lambda: runs(stage, "saves"))
    stage.work_for(2.5)
    had = devices_of_gang(stage, "saves")
    gang(stage, "high", "one", "production")
    stage.until(lambda: runs(stage, "high"))
    assert devices_of_gang(stage, "high") == had
    assert runs(stage, "loses")
    assert len(stage.held()) == len(set(stage.held())) == 4


@pytest.mark.faults
def test_nobody_else_leaves_while_the_devices_of_those_who_left_are_not_free(
    stage: DeviceStage,
) -> None:
    """The control plane takes a claim back a while after the pod has ended."""
    stage.claimed_nodes("n0", "n1", gpus=1)
    stage.template("one", request("gpu", "gpu"))
    stage.start()
    names = ("low-0", "low-1")
    for name in names:
        stage.claimant(name, "one", labels={"gantree.io/priority": "research"}, annotations=SLOW)
    stage.until(lambda: all(stage.phase(name) == "Running" for name in names))
    stage.claimant("high", "one", labels={"gantree.io/priority": "production"})
    stage.until(lambda: any(leaves(stage, name) for name in names))
    faults = stage.running.server.faults
    stage.running.call(lambda: faults.held.add("resourceclaims"))
    (victim,) = [name for name in names if leaves(stage, name)]
    stage.until(lambda: victim not in stage.pods())
    stage.work_for(1.0)
    assert [name for name in names if leaves(stage, name)] == [victim]
    stage.running.call(faults.held.clear)
    stage.until(lambda: stage.phase("high") == "Running")
    assert [name for name in names if leaves(stage, name)] == [victim]


def test_a_named_claim_is_free_again_and_its_pod_gets_it_later(stage: DeviceStage) -> None:
    stage.claimed_nodes("n0", gpus=1)
    stage.template("one", request("gpu", "gpu"))
    stage.claim("mine", request("gpu", "gpu"))
    stage.start()
    low = {"labels": {"gantree.io/priority": "research"}}
    stage.claimant("low", claims=["mine"], **low)
    stage.until(lambda: stage.phase("low") == "Running")
    stage.claimant("high", "one", labels={"gantree.io/priority": "production"})
    stage.until(lambda: stage.phase("high") == "Running")
    assert not stage.claims()["mine"]["status"].get("allocation")
    assert not stage.claims()["mine"]["status"].get("reservedFor")
    stage.claimant("low-again", claims=["mine"], **low)
    stage.exit("high")
    stage.until(lambda: stage.phase("low-again") == "Running")


SAME = {"requests": [], "matchAttribute": "resource.kubernetes.io/pcieRoot"}
LARGE = f'device.capacity["{GPU}"].memory.compareTo(quantity("40Gi")) >= 0'
KINDS: dict[str, tuple[list[Json], list[Json]]] = {
    "any": ([request("gpu", "gpu", 2)], []),
    "large": ([request("gpu", "gpu", 2, selectors=[LARGE])], []),
    "pairs": ([request("gpu", "gpu"), request("nic", "nic")], [SAME]),
}


@pytest.mark.parametrize("low", KINDS)
@pytest.mark.parametrize("high", KINDS)
def test_devices_change_hands_between_claims_of_other_kinds(
    stage: DeviceStage, low: str, high: str
) -> None:
    stage.claimed_nodes("n0", "n1", gpus=2, nics=1)
    for name, (requests, constraints) in KINDS.items():
        stage.template(name, *requests, constraints=constraints)
    stage.start()
    gang(stage, "low", low, "research")
    stage.until(lambda: runs(stage, "low"))
    gang(stage, "high", high, "production")
    stage.until(lambda: runs(stage, "high"), within_s=30)
    assert not stage.pods().keys() & {"low-0", "low-1"}


def test_a_whole_gpu_and_its_partitions_change_hands(stage: DeviceStage) -> None:
    """A gang that has both halves of a GPU makes room for a whole one, and the other way round."""
    stage.nodes("n0", gpus=0)
    stage.partitioned("n0", gpus=1)
    stage.template("one-whole", request("gpu", "whole"))
    stage.template("one-half", request("gpu", "half"))
    stage.start()
    gang(stage, "low", "one-half", "research")
    stage.until(lambda: runs(stage, "low"))
    gang(stage, "mid", "one-whole", "batch", members=1)
    stage.until(lambda: runs(stage, "mid", 1))
    gang(stage, "high", "one-half", "production")
    stage.until(lambda: runs(stage, "high"))
    assert len(stage.held()) == 2


def test_gangs_that_share_a_gpu_do_not_leave_for_a_whole_one_one_by_one(stage: DeviceStage) -> None:
    """A whole GPU comes free only with both of them: that either makes room for it cannot be shown."""
    stage.nodes("n0", gpus=0)
    stage.partitioned("n0", gpus=1)
    stage.template("one-whole", request("gpu", "whole"))
    stage.template("one-half", request("gpu", "half"))
    stage.start()
    for name in ("a", "b"):
        gang(stage, name, "one-half", "research", members=1)
    stage.until(lambda: runs(stage, "a", 1) and runs(stage, "b", 1))
    gang(stage, "high", "one-whole", "production", members=1)
    stage.until(lambda: len(stage.controller.ledger.jobs) == 3)
    stage.work_for(0.5)
    assert runs(stage, "a", 1)
    assert runs(stage, "b", 1)
    stage.exit("a-0")
    stage.until(lambda: runs(stage, "high", 1))
    assert leaves(stage, "b-0")
