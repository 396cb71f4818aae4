"""Which nodes are repaired, when, and by which steps; what a restart makes of a step that was running."""

from dataclasses import replace
from typing import Any

import pytest

from gantree.api.gpu_metrics.exporters import answers, questions
from gantree.control.nodes.health_watch import HealthWatch
from gantree.control.nodes.repairs import (
    command_of,
    due_repairs,
    fault_of,
    gpus_in,
    interrupted,
)
from gantree.core.snapshot.ledger_snapshot import snapshot_of
from gantree.core.snapshot.restore import restored
from gantree.model.events import (
    NODE_CONDITIONS,
    CordonRequested,
    HealthObserved,
    OthersHold,
    RepairObserved,
    UncordonRequested,
)
from gantree.model.placements import MemberPlacement
from gantree.model.repairs import RepairChain, RepairState, RepairStep
from gantree.policy.rules import Policy
from gantree.telemetry.dcgm.health import signs_in
from gantree.testing.builders import cluster, job, machine
from gantree.testing.stage import Stage

XID = "GPU 3: XID 79 (GPU has fallen off the bus)"
STEPS = (RepairStep("reset", ("/r", "{node}", "{gpu}"), 60.0), RepairStep("burn-in", ("/b",), 60.0))
CHAINS = (RepairChain("XID 79", STEPS), RepairChain("CRC", STEPS[1:]))


def stage_of(nodes: int = 10) -> Stage:
    return Stage(cluster(leaves=1, nodes=nodes))


def sick(stage: Stage, node: str, reason: str = XID, source: str = "kernel-log") -> None:
    stage.tell(HealthObserved, node=node, source=source, reason=reason)


def noted(stage: Stage, node: str, state: RepairState, step: int = 0, reason: str = "") -> None:
    told = {"sign": XID, "steps": ("reset", "burn-in"), "step": step, "reason": reason}
    stage.tell(RepairObserved, node=node, state=state, **told)


def due(stage: Stage, *asked: str, busy: tuple[str, ...] = ()) -> list[str]:
    return [each.node for each in due_repairs(stage.scheduler.ledger, CHAINS, asked, busy)]


def cordoned(stage: Stage) -> list[str]:
    return list(stage.scheduler.ledger.site.cordoned)


def test_a_node_is_repaired_by_the_first_chain_whose_sign_fits_once_nobody_holds_anything() -> None:
    stage = stage_of()
    stage.submit(job("a", 1, 8))
    stage.started("a")
    (node,) = stage.nodes("a")
    sick(stage, node)
    assert due(stage) == []
    stage.ended("a", 0)
    (found,) = due_repairs(stage.scheduler.ledger, CHAINS)
    assert (found.node, found.sign, found.steps, found.first) == (node, XID, STEPS, 0)


def test_a_cordon_a_kept_node_and_a_sign_without_a_chain_repair_nothing() -> None:
    stage = stage_of()
    stage.tell(CordonRequested, node="n0", reason="XID 79, says a note")
    sick(stage, "n1", "fan 3")
    stage.tell(HealthObserved, node="n2", source="logs", reason=XID, kept="2 nodes are out already")
    assert due(stage) == []


def test_at_most_a_fifth_of_the_nodes_is_in_repair_the_oldest_fault_first() -> None:
    stage = stage_of(nodes=10)
    for node in ("n5", "n3", "n1"):
        stage.wait(1)
        sick(stage, node)
    assert due(stage) == ["n5", "n3"]
    assert due(stage, busy=("n5",)) == ["n3"]
    noted(stage, "n5", RepairState.RUNNING)
    assert due(stage) == ["n3"]
    assert due(stage, busy=("n5", "n3")) == []


def test_a_repair_that_succeeds_lets_the_node_be_used_whatever_still_shows_the_fault() -> None:
    stage = stage_of()
    sick(stage, "n0")
    noted(stage, "n0", RepairState.RUNNING)
    sick(stage, "n0", "")  # found healthy half-way: the burn-in is still to come
    assert cordoned(stage) == ["n0"]
    sick(stage, "n0")
    noted(stage, "n0", RepairState.RUNNING, step=1)
    noted(stage, "n0", RepairState.SUCCEEDED, step=1)
    assert cordoned(stage) == []
    sick(stage, "n0")  # as a gauge of the last XID does
    assert cordoned(stage) == []
    stage.wait(1)
    sick(stage, "n0", XID + "; GPU 4: XID 79")
    assert (cordoned(stage), due(stage)) == (["n0"], ["n0"])


def test_a_condition_that_is_still_there_after_the_last_step_keeps_the_node_out() -> None:
    stage = stage_of()
    sick(stage, "n0", source=NODE_CONDITIONS)
    sick(stage, "n0")
    stage.wait(1)
    noted(stage, "n0", RepairState.RUNNING)
    noted(stage, "n0", RepairState.SUCCEEDED, step=1)
    assert (cordoned(stage), due(stage)) == (["n0"], [])
    sick(stage, "n0", "", source=NODE_CONDITIONS)
    assert cordoned(stage) == []
    stage.wait(1)
    sick(stage, "n0", source=NODE_CONDITIONS)
    assert due(stage) == ["n0"]


@pytest.mark.parametrize(
    ("held", "is_due"),
    [
        ({"devices": (("pods", 3),)}, True),
        ({"gpus": (7,)}, False),
        ({"devices": (("pods", 1), ("rdma/hca", 1))}, False),
    ],
)
def test_only_foreign_pods_with_devices_are_waited_for(held: dict[str, Any], is_due: bool) -> None:
    site, model = cluster(leaves=1, nodes=10), machine()
    equipped = replace(model, devices=(("pods", 110), ("rdma/hca", 8)))
    stage = Stage(replace(site, machines={model.name: equipped}))
    members = (MemberPlacement("others", 0, "n0", **held),)
    stage.tell(OthersHold, holder="others on n0", members=members)
    sick(stage, "n0")
    assert due(stage) == (["n0"] if is_due else [])


@pytest.mark.parametrize(
    "state", [RepairState.FAILED, RepairState.STOPPED, RepairState.INTERRUPTED]
)
def test_one_that_ends_otherwise_keeps_the_node_out_until_an_operator_acts(
    state: RepairState,
) -> None:
    stage = stage_of()
    sick(stage, "n0")
    noted(stage, "n0", RepairState.RUNNING)
    stage.wait(1)
    noted(stage, "n0", state, reason="reset: exit code 3")
    sick(stage, "n0", "")
    assert cordoned(stage) == ["n0"]
    assert due(stage) == []
    assert due(stage, "n0") == ["n0"]
    stage.tell(UncordonRequested, node="n0")
    assert cordoned(stage) == []


def test_an_operators_own_cordon_outlives_a_repair() -> None:
    stage = stage_of()
    sick(stage, "n0")
    stage.tell(CordonRequested, node="n0", reason="mine")
    noted(stage, "n0", RepairState.RUNNING)
    noted(stage, "n0", RepairState.SUCCEEDED, step=1)
    assert cordoned(stage) == ["n0"]
    assert fault_of(stage.scheduler.ledger, "n0") == ""


def test_a_step_that_the_daemon_left_runs_again_only_if_it_is_repeatable() -> None:
    stage = stage_of()
    sick(stage, "n0")
    noted(stage, "n0", RepairState.RUNNING, step=1)
    ledger = restored(snapshot_of(stage.scheduler), Policy()).ledger
    assert list(interrupted(ledger, CHAINS)) == [("n0", None)]
    again = (STEPS[0], RepairStep("burn-in", ("/b",), 60.0, repeatable=True))
    ((node, found),) = interrupted(ledger, (RepairChain("XID 79", again),))
    assert found is not None
    assert (node, found.first, found.steps) == ("n0", 1, again)


def test_words_of_a_command_are_filled_in_and_braces_of_others_stay() -> None:
    step = RepairStep("x", ("/r", "{node}", "--gpu={gpu}", "{sign}", "{other}"), 1.0)
    words = ["/r", "n0", "--gpu=3", XID, "{other}"]
    assert command_of(step, "n0", XID) == words
    assert gpus_in(f"{XID}; GPU 5: XID 48; GPU 3: CRC") == "3,5"


def test_a_telemetry_outage_takes_out_no_node_and_repairs_none() -> None:
    stage, watch = stage_of(), HealthWatch()
    nodes = [f"n{number}" for number in range(10)]
    asked = questions(["http://127.0.0.1:9/{node}"], nodes, signs_in)  # nobody answers there
    for _ in range(3):
        told, silent = answers(asked, nodes)
        assert (told, len(silent)) == ({}, 10)
        judged = watch.judge(told, stage.scheduler.ledger.fabric, stage.now)
        stage.handle(watch.events(judged, stage.scheduler.ledger, stage.now, 1))
        stage.wait(1000)
    assert (cordoned(stage), due(stage)) == ([], [])
