"""Bindings that land after they were given up, and a server that was set back: what must not run, and must be seen."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gantree.executors.kubernetes.writes import writes
from gantree.model.phases import HOLDING
from support.kubernetes.samples import binding
from support.pods import PodStage

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PodStage]:
    """gantree soon asks again for what is to go."""
    for module in ("late_bindings", "attempts.controller"):
        monkeypatch.setattr(f"gantree.executors.kubernetes.controllers.{module}.AGAIN_S", 0.05)
    with PodStage(tmp_path) as stage:
        stage.nodes("n[0-1]")
        stage.start()
        yield stage


def gang(stage: PodStage, *names: str) -> None:
    for name in names:
        stage.pod(name, gpus=8, labels={"gantree.io/gang": "g", "gantree.io/gang-size": "2"})


def land(stage: PodStage, name: str, node: str, annotations: dict[str, str]) -> None:
    """The server carries out a binding of which nobody waits to hear any more."""
    late = binding(name, node)
    late["metadata"]["annotations"] = annotations
    assert stage.api.post(f"{PODS}/{name}/binding", late).status_code == 201


def given_up(stage: PodStage, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A gang one pod of which cannot be bound, until it waits again; the marks of that pod's binding."""
    monkeypatch.setattr(writes, "GIVE_UP_S", 0.0)
    faults = stage.running.server.faults
    stage.running.call(
        lambda: faults.add(verb="create", resource="pods/binding", name="g-1", code=500)
    )
    gang(stage, "g-0", "g-1")
    stage.until(lambda: "g-0" not in stage.pods())
    ledger = stage.controller.ledger
    stage.until(lambda: not ledger.holding)
    (state,) = ledger.jobs.values()
    assert state.attempt == 1
    told = {"job": state.job, "attempt": "1", "member": "1", "members": "2", "rank": "1"}
    return {f"gantree.io/{key}": value for key, value in told.items()}


@pytest.mark.faults
def test_a_binding_that_lands_after_it_was_given_up_is_taken_back(
    stage: PodStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    annotations = given_up(stage, monkeypatch)
    stage.controller.reconcile()
    land(stage, "g-1", "n1", annotations)
    stage.until(lambda: "g-1" not in stage.pods())
    gang(stage, "g-2", "g-3")
    stage.until(lambda: stage.bound("g-2", "g-3"))
    stage.until(lambda: not stage.controller.ledger.site.others)


@pytest.mark.faults
def test_one_that_lands_before_the_end_is_on_record_goes_too(
    stage: PodStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server refuses to delete it once."""
    annotations = given_up(stage, monkeypatch)
    faults = stage.running.server.faults
    stage.running.call(lambda: faults.add(verb="delete", resource="pods", code=500))
    land(stage, "g-1", "n1", annotations)
    stage.until(lambda: "g-1" not in stage.pods())


@pytest.mark.faults
def test_a_pod_of_a_later_attempt_than_is_known_is_left_alone(
    stage: PodStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process leads by now, and has bound it."""
    annotations = given_up(stage, monkeypatch)
    stage.controller.reconcile()
    land(stage, "g-1", "n1", {**annotations, "gantree.io/attempt": "2"})
    stage.until(lambda: bool(stage.controller.ledger.site.others))
    for _ in range(9):
        stage.controller.step()
    assert stage.phase("g-1") in ("Pending", "Running")


def test_what_a_server_that_was_set_back_says_from_then_on_is_seen(stage: PodStage) -> None:
    """etcd restored from a snapshot counts on from its revision; a watch from a later one is told nothing."""
    server: Any = stage.running.server
    before = stage.running.call(lambda: server.store.revision)
    stage.pod("lost", gpus=8)
    stage.until(lambda: stage.phase("lost") == "Running")

    def set_back() -> None:
        server.store.set_back(before)
        server.end_watches(cut=True)

    stage.running.call(set_back)
    assert not stage.pods()
    stage.until(lambda: not stage.controller.ledger.holding)
    stage.pod("next", gpus=8)
    stage.until(lambda: stage.bound("next"))
    assert [state.phase in HOLDING for state in stage.controller.ledger.jobs.values()][-1:] == [
        True
    ]


@pytest.mark.faults
def test_a_pod_of_which_nobody_knows_whether_it_is_bound_keeps_its_room_until_the_server_says_so(
    stage: PodStage,
) -> None:
    faults = stage.running.server.faults
    stage.running.call(lambda: faults.add(verb="create", resource="pods/binding", is_lost=True))
    asked = stage.running.call(lambda: faults.add(verb="get", resource="pods", code=500, times=3))
    stage.pod("p0", gpus=8)
    stage.until(lambda: stage.phase("p0") == "Running" and asked.met == 3)
    (state,) = stage.controller.ledger.jobs.values()
    assert (state.attempt, state.failures) == (1, 0)
