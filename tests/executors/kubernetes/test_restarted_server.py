"""A server that has just started again knows no roles yet: for a moment it refuses gantree everything."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gantree.executors.kubernetes.watch import api_thread
from support.devices import GPU, DeviceStage, request
from support.kubernetes.server.access import Access
from support.pods import GANTREE


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DeviceStage]:
    monkeypatch.setattr(api_thread, "LOOKS_AGAIN_S", 0.1)
    with DeviceStage(tmp_path) as stage:
        stage.classes(gpu=GPU)
        stage.claimed_nodes("n0", gpus=2)
        stage.template("one", request("gpu", "gpu"))
        yield stage


def access_of(stage: DeviceStage) -> Access:
    access = stage.running.server.settings.access
    assert isinstance(access, Access)
    return access


def asked(stage: DeviceStage) -> int:
    """How often gantree has asked for a list or a watch of what matters most."""
    told = stage.running.server.asked
    return sum(
        told[GANTREE, verb, group, kind]
        for verb in ("list", "watch")
        for group, kind in (("", "pods"), ("", "nodes"), ("resource.k8s.io", "resourceclaims"))
    )


def test_what_runs_goes_on_and_what_comes_is_bound(stage: DeviceStage) -> None:
    access = access_of(stage)
    stage.start()
    stage.claimant("p0", "one")
    stage.until(lambda: stage.phase("p0") == "Running")
    access.knows_roles = False
    before = asked(stage)
    stage.running.call(stage.running.server.end_watches, "", True)
    stage.claimant("p1", "one")
    stage.until(lambda: asked(stage) >= before + 9)
    assert not stage.bound("p1")
    access.knows_roles = True
    stage.until(lambda: stage.phase("p1") == "Running")
    assert stage.phase("p0") == "Running"
    assert len(set(stage.held())) == len(stage.held()) == 2


def test_gantree_that_starts_meanwhile_waits_for_it(stage: DeviceStage) -> None:
    access = access_of(stage)
    access.knows_roles = False
    stage.claimant("p0", "one")
    later = threading.Timer(0.5, setattr, (access, "knows_roles", True))
    later.start()
    stage.start()
    later.join()
    stage.until(lambda: stage.phase("p0") == "Running")
