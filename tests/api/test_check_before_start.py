"""A gang checks its links before its command: real daemons, shims and ranks over gloo on virtual nodes.

A slow node is one whose `launch` prefix slows the collectives of a check (`support.slowed`). What needs PyTorch is
skipped without it.
"""

import json
import os
import signal
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from support.daemon import Daemon
from support.slowed import SLOWED

has_torch = find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not has_torch, reason="needs PyTorch (the extra torch)")
needs_no_torch = pytest.mark.skipif(has_torch, reason="PyTorch is installed here")
LONG = "{collective: 240s}"


def cluster(nodes: int, *slow: str) -> str:
    """A leaf of nodes with 4 CPUs each; slow ones have a prefix."""
    lines = [
        f"  - {{names: n{n}, machine: m, at: {{leaf: l0}}"
        + (f", launch: {json.dumps(SLOWED)}" if f"n{n}" in slow else "")
        + "}"
        for n in range(nodes)
    ]
    head = "name: t\ntiers: [leaf, node]\nmachines:\n  m: {gpus: 0, cpus: 4}\nnodes:\n"
    return head + "\n".join(lines)


def job(members: int, command: str, check: str = LONG) -> str:
    role = {"role": "w", "members": members, "each": {"cpus": 4}, "run": ["sh", "-c", command]}
    return json.dumps({"name": "train", "gang": [role], "check": {}}).replace("{}", check)


def until(daemon: Daemon, says: Callable[[Any], bool]) -> Any:
    """Wait until the job is as asked."""
    deadline = time.monotonic() + 300
    while not says(detail := daemon.client.job("train")):
        assert time.monotonic() < deadline, detail
        time.sleep(0.05)
    return detail


def checkers(state_dir: Path) -> list[int]:
    """Processes of checks of this daemon, by the mark of their member."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            marked = f"GANTREE_RUN={state_dir}".encode() in (entry / "environ").read_bytes()
            if marked and b"telemetry.checking" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except (OSError, ValueError):
            continue
    return found


@needs_no_torch
def test_without_pytorch_the_check_is_skipped_with_a_word(tmp_path: Path) -> None:
    with Daemon(tmp_path / "state", cluster(2)) as daemon:
        daemon.client.submit(job(2, "echo ran"))
        detail: Any = daemon.wait("train")
        assert detail["phase"] == "succeeded", detail
        assert detail["check"]["state"] == "skipped"
        assert "PyTorch is not installed beside gantree" in detail["check"]["sentence"]
        assert daemon.client.record("train")["check"]["state"] == "skipped"


@needs_no_torch
def test_a_required_check_that_cannot_run_fails_the_job_for_good(tmp_path: Path) -> None:
    with Daemon(tmp_path / "state", cluster(2)) as daemon:
        daemon.client.submit(job(2, "echo ran", "{collective: 30s, required: true}"))
        detail = daemon.wait("train")
        assert (detail["phase"], detail["attempt"]) == ("failed", 1), detail
        assert "PyTorch is not installed beside gantree" in str(detail["reason"])


@needs_torch
def test_a_slow_node_is_named_cordoned_and_replaced_at_no_cost(tmp_path: Path) -> None:
    with Daemon(tmp_path / "state", cluster(5, "n1")) as daemon:
        daemon.client.submit(job(4, "echo $GANTREE_NODE"))
        detail: Any = daemon.wait("train")
        assert (detail["phase"], detail["attempt"], detail["failures"]) == ("succeeded", 2, 0), (
            detail
        )
        nodes = {member["node"] for member in daemon.client.record("train")["members"]}
        assert nodes == {"n0", "n2", "n3", "n4"}
        first = daemon.client.record("train", attempt=1)["check"]
        assert [fault["node"] for fault in first["faults"]] == ["n1"]
        assert daemon.client.record("train")["check"]["state"] == "passed"
        (sick,) = [row for row in daemon.client.nodes() if row["state"] != "ready"]
        assert (sick["node"], sick["state"]) == ("n1", "cordoned")
        assert sick["reason"].startswith("check of train: its all-reduces with each other member")
        output = (tmp_path / "state/runs/train/1/log/rank-0.log").read_text()
        assert "gantree: check: node n1 failed the check" in output
        assert "n2\n" not in output


@needs_torch
def test_a_job_that_is_cancelled_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    with Daemon(tmp_path / "state", cluster(3, "n0", "n1", "n2")) as daemon:
        daemon.client.submit(job(3, "echo ran"))
        detail = until(daemon, lambda each: each["check"] and each["check"]["total"])
        assert detail["phase"] == "starting"
        assert detail["check"]["sentence"].startswith("checking its links, ")
        assert "checking its links, " in daemon.client.why("train")["check"]["sentence"]
        daemon.client.cancel("train")
        assert daemon.wait("train")["phase"] == "cancelled"
        assert checkers(tmp_path / "state") == []
        assert "ran\n" not in (tmp_path / "state/runs/train/1/log/rank-0.log").read_text()


@needs_torch
def test_a_daemon_that_is_killed_in_the_middle_changes_nothing(tmp_path: Path) -> None:
    with Daemon(tmp_path / "state", cluster(4, "n1")) as daemon:
        daemon.client.submit(job(3, "echo ran"))
        until(daemon, lambda each: each["check"] and each["check"]["total"])
        daemon.kill()
        assert checkers(tmp_path / "state"), "the check goes on without a daemon"
        daemon.start()
        detail: Any = daemon.wait("train")
        assert (detail["phase"], detail["attempt"], detail["failures"]) == ("succeeded", 2, 0), (
            detail
        )
        assert {m["node"] for m in daemon.client.record("train")["members"]} == {"n0", "n2", "n3"}


@needs_torch
def test_a_checker_that_is_killed_fails_the_attempt_and_it_starts_again(tmp_path: Path) -> None:
    with Daemon(tmp_path / "state", cluster(2)) as daemon:
        daemon.client.submit(job(2, "echo ran"))
        until(daemon, lambda _: bool(checkers(tmp_path / "state")))
        os.kill(checkers(tmp_path / "state")[0], signal.SIGKILL)
        detail: Any = daemon.wait("train")
        assert (detail["phase"], detail["attempt"]) == ("succeeded", 2), detail
