"""Pods that share a claim: they are where its devices are, and what waits for them says so."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gantree.executors.kubernetes.constraints import claim_turns
from support.devices import API, GPU, NIC, DeviceStage, request
from support.kubernetes.server.statuses import Json

NAMES = ("p0", "p1", "p2")


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[DeviceStage]:
    with DeviceStage(tmp_path) as stage:
        stage.classes(gpu=GPU, nic=NIC)
        yield stage


def reserved_for(stage: DeviceStage, claim: str) -> set[str]:
    """The pods that a claim is reserved for."""
    consumers = stage.claims()[claim]["status"].get("reservedFor") or ()
    return {each["name"] for each in consumers}


@pytest.mark.parametrize("asked", ["any GPU", "one of a kind"])
def test_pods_that_come_together_are_bound_where_their_claim_is_allocated(
    stage: DeviceStage, asked: str
) -> None:
    stage.claimed_nodes("n0", "n1", "n2", gpus=1)
    selectors = () if asked == "any GPU" else ['device.attributes["gpu.example.com"].index == 0']
    stage.claim("shared", request("gpu", "gpu", selectors=selectors))
    for name in NAMES:
        stage.claimant(name, claims=["shared"])
    stage.start()
    stage.until(lambda: stage.bound(*NAMES))
    assert len({stage.node_of(name) for name in NAMES}) == len(stage.held()) == 1
    assert reserved_for(stage, "shared") == set(NAMES)


def message(stage: DeviceStage, name: str) -> str:
    """What the condition says that a pod is not bound for."""
    conditions = stage.pods()[name]["status"].get("conditions", ())
    found = (each.get("message", "") for each in conditions if each["type"] == "PodScheduled")
    return next(found, "")


def test_pods_that_share_a_claim_preempt_nobody_for_devices_that_they_get_with_it(
    stage: DeviceStage,
) -> None:
    stage.claimed_nodes("n0", "n1", gpus=1)
    stage.template("one", request("gpu", "gpu"))
    stage.claim("shared", request("gpu", "gpu"))
    stage.start()
    stage.claimant("low", "one", labels={"gantree.io/priority": "research"})
    stage.until(lambda: stage.phase("low") == "Running")
    for name in NAMES:
        stage.claimant(name, claims=["shared"], labels={"gantree.io/priority": "production"})
    stage.until(lambda: stage.bound(*NAMES))
    assert len({stage.node_of(name) for name in (*NAMES, "low")}) == 2
    assert stage.phase("low") == "Running"


def test_one_that_cannot_be_placed_keeps_the_others_of_its_claim_waiting_for_a_while(
    stage: DeviceStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_turns, "PATIENCE_S", float("inf"))
    stage.claimed_nodes("n0", gpus=1)
    stage.claim("shared", request("gpu", "gpu"))
    stage.start()
    stage.claimant("p0", claims=["shared"], spec={"nodeSelector": {"example.com/no": "such"}})
    stage.until(lambda: [*stage.controller.ledger.jobs.values()] != [])
    stage.claimant("p1", claims=["shared"])
    told = "Waiting: claim 'shared' is allocated with pod p0 first"
    stage.until(lambda: told in message(stage, "p1"))
    monkeypatch.setattr(claim_turns, "PATIENCE_S", 0.0)
    stage.until(lambda: stage.bound("p1"))


def test_a_claim_has_room_for_so_many_pods_and_the_next_one_waits_for_one_to_leave(
    stage: DeviceStage,
) -> None:
    stage.claimed_nodes("n0", gpus=1)
    stage.claim("full", request("gpu", "gpu"))
    others = [{"resource": "others", "name": f"o{n}", "uid": f"uid-{n}"} for n in range(256)]
    reserve(stage, "full", others)
    stage.start()
    stage.claimant("p0", claims=["full"])
    stage.until(lambda: "claim 'full' is reserved for 256 pods" in message(stage, "p0"))
    reserve(stage, "full", others[1:])
    stage.until(lambda: stage.bound("p0"))


def reserve(stage: DeviceStage, claim: str, consumers: list[Json]) -> None:
    """A claim has gpu-0 of n0 by somebody's allocation, for these."""
    result = {"request": "gpu", "driver": GPU, "pool": "n0", "device": "gpu-0"}
    field = {"key": "metadata.name", "operator": "In", "values": ["n0"]}
    allocation = {
        "devices": {"results": [result]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
    }
    status = {"allocation": allocation, "reservedFor": consumers}
    path = f"{API}/namespaces/default/resourceclaims/{claim}/status"
    assert stage.api.patch(path, {"status": status}).status_code == 200


def test_a_gang_whose_pods_share_a_claim_is_told_that_it_cannot_be_allocated(
    stage: DeviceStage,
) -> None:
    stage.claimed_nodes("n0", gpus=2)
    stage.claim("shared", request("gpu", "gpu"))
    stage.start()
    gang = {"annotations": {"gantree.io/gang-size": "2"}, "labels": {"gantree.io/gang": "g"}}
    stage.claimant("g-0", claims=["shared"], **gang)
    stage.claimant("g-1", claims=["shared"], **gang)
    stage.until(lambda: "share claim 'shared'" in message(stage, "g-0"))
