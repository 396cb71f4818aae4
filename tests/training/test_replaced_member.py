"""A node is lost under a real training job with torchrun: one member moves to a spare, and training goes on.

Needs PyTorch in this environment, or a Python that has it in TORCH.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gantree.api.client.client import Client
from support.daemon import Daemon
from support.gangs import left_over

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "train"
PYTHON = os.environ.get("TORCH", sys.executable)
CLUSTER = """
name: four
tiers: [node]
nodes: [{names: "n[0-3]", machine: dgx-h100}]
"""


@cache
def has_torch() -> bool:
    found = subprocess.run([PYTHON, "-c", "import torch"], capture_output=True, check=False)
    return found.returncode == 0


needs_torch = pytest.mark.skipif(not has_torch(), reason="needs PyTorch (TORCH=PYTHON has it)")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with Daemon(tmp_path / "state", CLUSTER) as daemon:
        yield daemon
    assert left_over(tmp_path) == []


def until(done: Callable[[], Any], client: Client) -> Any:
    """Wait for something; what it gives."""
    deadline = time.monotonic() + 300
    while not (found := done()):
        assert time.monotonic() < deadline, client.jobs()
        time.sleep(0.05)
    return found


def agents(daemon: Daemon) -> list[list[str]]:
    """Pids of the processes that gantree started, by member and life."""
    run = daemon.state_dir / "runs" / "replace" / "1"
    mark = b"GANTREE_RUN=" + os.fsencode(run)
    found: dict[str, list[str]] = {}
    for entry in Path("/proc").iterdir():
        try:
            environ = (entry / "environ").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        if mark in environ and b"TORCHELASTIC_RUN_ID=" not in environ:
            folder = environ.partition(mark)[2].partition(b"\0")[0].decode()
            found.setdefault(folder, []).append(entry.name)
    return [sorted(found[folder]) for folder in sorted(found)]


def steps(daemon: Daemon) -> list[int]:
    """The steps that whoever had rank 0 printed, as they came."""
    logs = (daemon.state_dir / "runs/replace/1/log").glob("rank-*.log")
    text = "".join(log.read_text() for log in sorted(logs))
    return [int(step) for step in re.findall(r"^step (\d+) loss", text, re.MULTILINE)]


def resumed(daemon: Daemon) -> list[int]:
    logs = (daemon.state_dir / "runs/replace/1/log").glob("rank-*.log")
    text = "".join(log.read_text() for log in logs)
    return [int(step) for step in re.findall(r"resumed from step (\d+)", text)]


@needs_torch
@pytest.mark.parametrize("loss", ["a node whose processes die", "a GPU that is lost"])
def test_training_goes_on_from_its_checkpoint_and_the_others_are_not_started_again(
    daemon: Daemon, tmp_path: Path, loss: str
) -> None:
    text = (EXAMPLE / "replace.yaml").read_text()
    text = text.replace("[python,", f"[{PYTHON},").replace("ddp.py", str(EXAMPLE / "ddp.py"))
    text = text.replace("checkpoints/replace", str(tmp_path / "checkpoints"))
    daemon.client.submit(text, base_dir=str(tmp_path))
    until(lambda: len(steps(daemon)) > 25, daemon.client)
    before, nodes = agents(daemon), placed(daemon)
    if loss == "a GPU that is lost":
        daemon.client.node_fault(nodes[1], gpu=3, xid=79)
    else:
        daemon.client.cordon(nodes[1])
        for pid in before[1]:
            os.kill(int(pid), signal.SIGKILL)
    until(lambda: resumed(daemon), daemon.client)
    done = len(steps(daemon))
    until(lambda: len(steps(daemon)) > done + 5, daemon.client)
    assert min(resumed(daemon)) >= 20
    job, after = daemon.client.job("replace"), placed(daemon)
    assert (job["attempt"], job["phase"]) == (1, "running")
    assert [after[0], after[2]] == [nodes[0], nodes[2]]
    assert after[1] not in nodes
    assert [agents(daemon)[0], agents(daemon)[-1]] == [before[0], before[2]]


def placed(daemon: Daemon) -> list[str]:
    members = daemon.client.job("replace")["placement"]["members"]
    return [member["node"] for member in sorted(members, key=lambda each: each["rank"])]
