"""`gantree kubernetes --repair-hooks`: commands of a real daemon repair nodes that a condition has taken out."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gantree.api.client.client import Client
from support.daemon import Program
from support.pods import PodStage

Gantree = Callable[..., Any]
WITHIN_S = 300.0
HOOKS = """
repairs:
  - sign: XID 79
    steps:
      - {name: reboot, run: [HERE/step, reboot, "{node}"], timeout: 1m}
      - {name: burn-in, run: [HERE/step, burn-in, "{node}"], timeout: 1m}
"""
STEP = """#!/bin/sh
echo "$*" >> HERE/ran
while [ -e HERE/hold-$1 ]; do sleep 0.05; done
"""
"""Notes how it was run, and waits while hold-STEP is there."""


class Repairs(PodStage):
    """A cluster of one node, on which a DaemonSet has a pod, with the daemon as a process of its own."""

    def __init__(self, here: Path) -> None:
        super().__init__(here / "unused")
        self.here, self.client_of_daemon = here, Client(here / "state")
        (here / "repair.yaml").write_text(HOOKS.replace("HERE", str(here)))
        (here / "step").write_text(STEP.replace("HERE", str(here)))
        (here / "step").chmod(0o755)

    def begin(self) -> None:
        self.nodes("n0")
        self.foreign_pod("exporter")
        self.program = self.program_of()

    def foreign_pod(self, name: str, gpus: int = 0) -> None:
        self.pod(name, gpus, spec={"schedulerName": "other", "nodeName": "n0"})

    def program_of(self) -> Program:
        where = ("--api-server", self.running.url, "--state", str(self.here / "state"))
        hooks = ("--name", "a", "--repair-hooks", str(self.here / "repair.yaml"))
        program = Program("kubernetes", *where, *hooks)
        program.says("ready: cluster kubernetes, 1 node")
        return program

    def kill_daemon(self) -> None:
        self.program.process.kill()
        self.program.process.wait()
        self.program = self.program_of()

    def condition(self, status: str) -> None:
        """As NVSentinel writes it."""
        told = {"type": "SysLogsXIDError", "status": status, "reason": "XID 79", "message": "lost"}
        kind = "application/strategic-merge-patch+json"
        answer = self.api.patch("/api/v1/nodes/n0/status", {"status": {"conditions": [told]}}, kind)
        assert answer.status_code == 200, answer.text

    def hold(self, step: str) -> Path:
        path = self.here / f"hold-{step}"
        path.touch()
        return path

    def ran(self) -> list[str]:
        path = self.here / "ran"
        return path.read_text().splitlines() if path.exists() else []

    def node(self) -> dict[str, Any]:
        return self.client_of_daemon.node("n0")

    def state(self) -> str:
        return str((self.node()["repair"] or {}).get("state"))

    def wait(self, done: Callable[[], object]) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not done():
            assert time.monotonic() < deadline, (self.node(), self.ran())
            time.sleep(0.05)


@pytest.fixture
def repairs(tmp_path: Path) -> Iterator[Repairs]:
    with Repairs(tmp_path) as repairs:
        repairs.begin()
        yield repairs
        repairs.program.stop()
        repairs.program.said.close()


def test_a_condition_has_its_node_repaired_which_is_used_again_once_both_are_over(
    repairs: Repairs,
) -> None:
    repairs.foreign_pod("of-others", gpus=1)
    repairs.wait(lambda: repairs.node()["free_gpus"] == 7)
    repairs.condition("True")
    repairs.wait(lambda: repairs.node()["state"] == "cordoned")
    assert repairs.node()["repair"] is None, "a pod has a GPU there"
    hold = repairs.hold("burn-in")
    repairs.exit("of-others")
    repairs.wait(lambda: len(repairs.ran()) == 2)
    repairs.pod("p0", gpus=8)
    hold.unlink()
    wrong = "SysLogsXIDError (XID 79: lost)"
    repairs.wait(lambda: repairs.state() != "running")
    row = repairs.node()
    assert (row["state"], row["reason"]) == ("cordoned", wrong), "the condition is still there"
    repairs.condition("False")
    repairs.wait(lambda: repairs.bound("p0"))
    assert repairs.node()["state"] == "ready"
    assert repairs.ran() == ["reboot n0", "burn-in n0"]


def test_a_node_whose_condition_ends_in_mid_step_stays_out_until_the_last_step(
    repairs: Repairs,
) -> None:
    hold = repairs.hold("burn-in")
    repairs.condition("True")
    repairs.wait(lambda: len(repairs.ran()) == 2)
    repairs.condition("False")
    repairs.wait(lambda: all(each["source"] == "repair" for each in repairs.node()["signs"]))
    assert (repairs.node()["state"], repairs.state()) == ("cordoned", "running")
    hold.unlink()
    repairs.wait(lambda: repairs.node()["state"] == "ready")


def test_kill_9_in_mid_step_leaves_the_node_out_until_an_operator_acts(
    repairs: Repairs, gantree: Gantree
) -> None:
    hold = repairs.hold("reboot")
    repairs.condition("True")
    repairs.wait(lambda: repairs.ran() == ["reboot n0"])
    repairs.kill_daemon()
    repairs.wait(lambda: repairs.state() == "interrupted")
    assert (repairs.node()["state"], repairs.ran()) == ("cordoned", ["reboot n0"])
    hold.unlink()
    repairs.condition("False")
    assert gantree("repair", "n0", "--state", repairs.here / "state").code == 0
    repairs.wait(lambda: repairs.node()["state"] == "ready")
    assert repairs.ran() == ["reboot n0", "reboot n0", "burn-in n0"]


@pytest.mark.parametrize(
    ("text", "more", "complaint"),
    [
        (HOOKS, ("--dry-run",), "--repair-hooks is of no use in a dry run"),
        ("repairs:\n  - sign: XID\n", (), "repair.yaml:2: repairs[0].steps"),
    ],
)
def test_hooks_that_make_no_sense_are_refused(
    gantree: Gantree, tmp_path: Path, text: str, more: tuple[str, ...], complaint: str
) -> None:
    file, state = tmp_path / "repair.yaml", tmp_path / "state"
    file.write_text(text)
    words = ("--state", state, "--repair-hooks", file, *more)
    told = gantree("kubernetes", "--api-server", "http://127.0.0.1:9", *words)
    assert told.code != 0
    assert complaint in told.err
    assert not (state / "journal.sqlite3").exists()
