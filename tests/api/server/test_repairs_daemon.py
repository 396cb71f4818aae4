"""Nodes are repaired by real commands of a real daemon: in order, again, stopped, failed, cut off by kill -9."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Gantree
from gantree.api.client.client import Client
from support.daemon import Program

CLUSTER = """
name: ten
tiers: [node]
nodes: [{names: "n[0-9]", machine: dgx-h100}]
"""
HOOKS = """
repairs:
  - sign: XID 79
    steps:
      - {name: reset, run: [HERE/step, reset, "{node}", "{gpu}"], timeout: 1m, retries: 1}
      - {name: burn-in, run: [HERE/step, burn-in, "{node}"], timeout: 1m, repeatable: true}
  - sign: XID 48
    steps: [{name: slow, run: [HERE/step, slow], timeout: 300ms}]
  - sign: no such program
    steps: [{name: gone, run: [/no/such/program]}]
"""
STEP = """#!/bin/sh
echo "$*|$GANTREE_NODE|$GANTREE_GPU|$GANTREE_STEP|$GANTREE_TRY" >> HERE/ran
echo "$1 of $GANTREE_NODE says hello"
while [ -e HERE/hold-$1 ]; do sleep 0.05; done
[ -e HERE/fail-$1 ] && exit 3
[ "$1" = slow ] && sleep 60
exit 0
"""
"""Notes how it was run; waits while hold-STEP is there, fails while fail-STEP is."""


class Repairs:
    """A daemon with repair hooks, started and killed."""

    def __init__(self, here: Path) -> None:
        self.here, self.state = here, here / "state"
        self.client = Client(self.state)
        (here / "cluster.yaml").write_text(CLUSTER)
        (here / "repair.yaml").write_text(HOOKS.replace("HERE", str(here)))
        (here / "step").write_text(STEP.replace("HERE", str(here)))
        (here / "step").chmod(0o755)
        self.program = self.start()

    def start(self) -> Program:
        words = ("--cluster", str(self.here / "cluster.yaml"), "--log-level", "critical")
        hooks = ("--repair-hooks", str(self.here / "repair.yaml"))
        program = Program("up", "--state", str(self.state), *words, *hooks)
        program.says(" ready: ")
        return program

    def kill(self) -> None:
        self.program.process.kill()
        self.program.process.wait()
        self.program = self.start()

    def flag(self, name: str) -> Path:
        (self.here / name).touch()
        return self.here / name

    def ran(self) -> list[str]:
        path = self.here / "ran"
        return path.read_text().splitlines() if path.exists() else []

    def node(self, name: str = "n0") -> dict[str, Any]:
        return self.client.node(name)

    def until(self, done: Callable[[], object]) -> None:
        deadline = time.monotonic() + 120
        while not done():
            assert time.monotonic() < deadline, (self.client.nodes(), self.ran())
            time.sleep(0.05)

    def until_state(self, state: str, name: str = "n0") -> dict[str, Any]:
        self.until(lambda: (self.node(name)["repair"] or {}).get("state") == state)
        repair: dict[str, Any] = self.node(name)["repair"]
        return repair


@pytest.fixture
def repairs(tmp_path: Path) -> Iterator[Repairs]:
    repairs = Repairs(tmp_path)
    yield repairs
    repairs.program.stop()
    repairs.program.said.close()


def test_steps_run_in_order_and_the_node_is_used_again(
    repairs: Repairs, gantree: Gantree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANTREE_STATE", str(repairs.state))
    hold = repairs.flag("hold-burn-in")
    repairs.client.node_fault("n0", gpu=3, xid=79)
    repairs.until(lambda: len(repairs.ran()) == 2)
    row = repairs.node()
    assert (row["state"], row["repair"]["step"], row["repair"]["number"]) == (
        "cordoned",
        "burn-in",
        2,
    )
    assert "repair: burn-in, 2 of 2, since " in gantree("nodes").out
    hold.unlink()
    repairs.until(lambda: repairs.node()["state"] == "ready")
    assert repairs.node()["repair"] is None
    assert repairs.ran() == ["reset n0 3|n0|3|reset|1", "burn-in n0|n0|3|burn-in|1"]
    log = repairs.state / "repairs" / "n0.log"
    assert log.read_text() == "reset of n0 says hello\nburn-in of n0 says hello\n"


def test_a_step_that_fails_is_tried_again_and_then_the_node_stays_out_until_an_operator_acts(
    repairs: Repairs, gantree: Gantree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANTREE_STATE", str(repairs.state))
    fail = repairs.flag("fail-reset")
    repairs.client.node_fault("n0", gpu=3, xid=79)
    repair = repairs.until_state("failed")
    assert (repair["step"], repair["reason"]) == ("reset", "reset: exit code 3")
    assert [line.split("|")[-1] for line in repairs.ran()] == ["1", "2"]
    repairs.client.node_fault("n0")  # its source finds it healthy
    assert repairs.node()["state"] == "cordoned"
    assert "repair failed: reset, 1 of 2" in gantree("nodes").out
    fail.unlink()
    started = gantree("repair", "n0")
    assert (started.code, started.out) == (0, "the repair of n0 is started\n")
    repairs.until(lambda: repairs.node()["state"] == "ready")


def test_what_takes_too_long_or_is_not_there_fails(repairs: Repairs) -> None:
    repairs.client.node_fault("n0", gpu=1, xid=48)
    repairs.client.node_fault("n1", reason="no such program")
    assert repairs.until_state("failed")["reason"] == "slow: took longer than 0.3 s"
    gone = "gone: /no/such/program: No such file or directory"
    assert repairs.until_state("failed", "n1")["reason"] == gone


def test_an_operator_stops_a_repair_by_name_or_by_uncordoning(
    repairs: Repairs, gantree: Gantree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANTREE_STATE", str(repairs.state))
    repairs.flag("hold-reset")
    for node in ("n0", "n1"):
        repairs.client.node_fault(node, gpu=3, xid=79)
        repairs.until_state("running", node)
    repairs.until(lambda: len(repairs.ran()) == 2)
    stopped = gantree("repair", "--stop", "n0")
    assert (stopped.code, stopped.out) == (0, "the repair of n0 is stopped\n")
    assert repairs.until_state("stopped")["reason"] == "stopped by an operator"
    assert repairs.node()["state"] == "cordoned"
    repairs.client.uncordon("n1")
    assert "overruled" in repairs.until_state("stopped", "n1")["reason"]
    assert repairs.node("n1")["state"] == "ready"
    refused = gantree("repair", "--stop", "n1")
    assert refused.code != 0
    assert "node n1 is not being repaired" in refused.err
    assert "no fault has taken node n1 out" in gantree("repair", "n1").err


def test_a_step_cut_off_by_kill_9_is_not_run_twice_without_saying_so(repairs: Repairs) -> None:
    hold = repairs.flag("hold-reset")
    repairs.client.node_fault("n0", gpu=3, xid=79)
    repairs.until(lambda: len(repairs.ran()) == 1)
    repairs.kill()
    why = "the daemon ended while reset ran; it is not run again by itself"
    assert repairs.until_state("interrupted")["reason"] == why
    assert len(repairs.ran()) == 1
    assert repairs.node()["state"] == "cordoned"
    hold.unlink()
    repairs.client.repair("n0")
    repairs.until(lambda: repairs.node()["state"] == "ready")


def test_a_repeatable_step_goes_on_after_kill_9(repairs: Repairs) -> None:
    hold = repairs.flag("hold-burn-in")
    repairs.client.node_fault("n0", gpu=3, xid=79)
    repairs.until(lambda: len(repairs.ran()) == 2)
    repairs.kill()
    repairs.until(lambda: len(repairs.ran()) == 3)
    assert repairs.node()["repair"]["reason"] == "again, as the daemon ended while burn-in ran"
    hold.unlink()
    repairs.until(lambda: repairs.node()["state"] == "ready")
    assert [line.split("|")[3] for line in repairs.ran()] == ["reset", "burn-in", "burn-in"]


def test_a_daemon_without_hooks_says_so(
    gantree: Gantree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANTREE_STATE", str(tmp_path / "state"))
    with Program("up", "--virtual", "dgx-h100:1", GANTREE_STATE=os.environ["GANTREE_STATE"]) as up:
        up.says(" ready: ")
        node = Client(tmp_path / "state").nodes()[0]["node"]
        assert "start it with --repair-hooks FILE" in gantree("repair", node).err
        up.stop()
