"""What a look at the cluster costs does not grow with what is there and stays as it is."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from gantree.executors.kubernetes.controllers.attempts import controller as attempt_controller
from gantree.executors.kubernetes.controllers.attempts.events import all_events
from gantree.executors.kubernetes.workloads.attempts import Attempt, MemberBinding
from gantree.model.phases import Phase
from support.pods import PodStage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PodStage]:
    with PodStage(tmp_path) as stage:
        stage.nodes("n[0-1]")
        stage.start()
        yield stage


def cluster_of(stage: PodStage) -> Any:
    return stage.controller.cluster


def test_a_job_that_has_its_place_is_gone_through_no_more_until_that_ends(stage: PodStage) -> None:
    stage.pod("p", gpus=1)
    stage.until(lambda: stage.phase("p") == "Running")
    admission = cluster_of(stage)._admission
    stage.until(lambda: not admission._undecided)
    stage.exit("p", 1)
    (state,) = stage.controller.ledger.jobs.values()
    stage.until(lambda: state.phase is Phase.PENDING and state.held)
    stage.until(lambda: not admission._undecided)


def test_of_a_job_that_is_over_nothing_is_kept(stage: PodStage) -> None:
    stage.pod("p", gpus=1)
    stage.until(lambda: stage.phase("p") == "Running")
    stage.exit("p")
    pending = cluster_of(stage)._pending
    stage.until(lambda: not pending.gangs and not pending.key_of_job)


def test_an_order_that_is_said_again_looks_at_no_pod_where_all_have_their_seats(
    stage: PodStage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.pod("p", gpus=1)
    stage.until(lambda: stage.phase("p") == "Running")
    monkeypatch.delattr(attempt_controller.AttemptController, "_assign_pods")
    stage.controller.reconcile()
    assert not caplog.records


def test_the_gpus_of_nodes_are_counted_once_for_each_site(stage: PodStage) -> None:
    nodes = cluster_of(stage)._nodes
    before = nodes.gpus_of_node
    stage.controller.step()
    assert nodes.gpus_of_node is before
    stage.nodes("n2", gpus=4)
    stage.until(lambda: "n2" in nodes.gpus_of_node)
    assert nodes.gpus_of_node == {"n0": 8, "n1": 8, "n2": 4}


FATES = tuple(product(("Pending", "Running", "Succeeded"), (False, True)))
"""Phases of a pod, and whether it is gone."""


@pytest.mark.parametrize(("failed", "stopping"), [("", False), ("no", False), ("", True)])
def test_who_is_quiet_would_tell_nothing_and_who_waits_for_kubelets_is_quiet(
    failed: str, stopping: bool
) -> None:
    told = 0
    for fates in product((None, *FATES), repeat=2):
        seats = {
            number: MemberBinding(number, number, "w", f"u{number}", phase=fate[0], gone=fate[1])
            for number, fate in enumerate(fates)
            if fate is not None
        }
        attempt = Attempt("j", 1, 2, seats, failed=failed, stopping=stopping)
        events = list(all_events(attempt, 0.0, holds=True))
        told += bool(events)
        assert not (attempt.is_quiet and events)
    waits = {number: MemberBinding(number, number, "w", f"u{number}") for number in range(2)}
    attempt = Attempt("j", 1, 2, waits, failed=failed, stopping=stopping)
    assert attempt.is_quiet == (not failed and not stopping)
    assert told
