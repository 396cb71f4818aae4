"""Devices that are attached once they are allocated: pods are bound when the conditions of these are met."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gantree.executors.kubernetes.devices import binding_conditions
from support.devices import API, NIC, DeviceStage, device, request
from support.kubernetes.server.statuses import Json

READY, FAILED = "example.com/attached", "example.com/attach-failed"


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DeviceStage]:
    monkeypatch.setattr(binding_conditions, "LOOKS_EVERY_S", 0.05)
    with DeviceStage(tmp_path) as stage:
        stage.nodes("n[0-1]", gpus=0)
        stage.classes(box=NIC)
        stage.template("one", request("box", "box"))
        yield stage


def boxes(stage: DeviceStage, *names: str) -> None:
    """Devices that any node can be attached to, one at a time."""
    told = {
        "bindingConditions": [READY],
        "bindingFailureConditions": [FAILED],
        "bindsToNode": True,
    }
    pool = {"name": "boxes", "generation": 1, "resourceSliceCount": 1}
    devices = [{**device(name), **told} for name in names]
    stage.slice("boxes", NIC, devices, pool=pool, nodeName=None, allNodes=True)


def allocated(stage: DeviceStage) -> list[Json]:
    """Claims that have devices."""
    return [claim for claim in stage.claims().values() if claim["status"].get("allocation")]


def report(stage: DeviceStage, claim: Json, condition: str) -> None:
    """Who attaches devices says how that of a claim is."""
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    where = {field: result[field] for field in ("driver", "pool", "device")}
    told = {
        "type": condition, "status": "True", "reason": "Told", "message": "",
        "lastTransitionTime": "2026-11-27T00:00:00Z",
    }  # fmt: skip
    path = f"{API}/namespaces/default/resourceclaims/{claim['metadata']['name']}/status"
    body = {"status": {"devices": [{**where, "conditions": [told]}]}}
    assert stage.api.patch(path, body).status_code == 200


def test_a_pod_is_bound_when_its_device_is_attached_to_the_node(stage: DeviceStage) -> None:
    boxes(stage, "box-0")
    stage.start()
    stage.claimant("p0", "one")
    stage.until(lambda: allocated(stage) != [])
    (claim,) = allocated(stage)
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert result["bindingConditions"] == [READY]
    assert result["bindingFailureConditions"] == [FAILED]
    (term,) = claim["status"]["allocation"]["nodeSelector"]["nodeSelectorTerms"]
    ((field, node),) = [(each["key"], each["values"][0]) for each in term["matchFields"]]
    assert field == "metadata.name"
    stage.work_for(0.5)
    assert not stage.bound("p0")
    report(stage, claim, READY)
    stage.until(lambda: stage.phase("p0") == "Running")
    assert stage.node_of("p0") == node


def test_it_waits_on_after_a_restart(stage: DeviceStage) -> None:
    boxes(stage, "box-0")
    stage.start()
    stage.claimant("p0", "one")
    stage.until(lambda: allocated(stage) != [])
    (claim,) = allocated(stage)
    stage.kill()
    stage.start()
    stage.work_for(0.5)
    assert not stage.bound("p0")
    assert [each["metadata"]["uid"] for each in allocated(stage)] == [claim["metadata"]["uid"]]
    report(stage, claim, READY)
    stage.until(lambda: stage.phase("p0") == "Running")


def test_a_claim_whose_device_cannot_be_attached_is_given_back(stage: DeviceStage) -> None:
    boxes(stage, "box-0")
    stage.start()
    stage.claimant("p0", "one")
    stage.until(lambda: allocated(stage) != [])
    report(stage, allocated(stage)[0], FAILED)
    stage.until(lambda: allocated(stage) == [])
    stage.until(lambda: allocated(stage) != [])
    stage.work_for(0.5)
    assert not stage.bound("p0")
    report(stage, allocated(stage)[0], READY)
    stage.until(lambda: stage.phase("p0") == "Running")


def test_devices_that_are_not_ready_in_time_are_given_back(
    stage: DeviceStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binding_conditions, "TIMEOUT_S", 0.2)
    boxes(stage, "box-0")
    stage.start()
    stage.claimant("p0", "one")
    stage.until(lambda: allocated(stage) != [])
    stage.until(lambda: allocated(stage) == [])
    monkeypatch.setattr(binding_conditions, "TIMEOUT_S", 60.0)
    stage.until(lambda: allocated(stage) != [])
    report(stage, allocated(stage)[0], READY)
    stage.until(lambda: stage.phase("p0") == "Running")
