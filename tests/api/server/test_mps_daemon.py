"""`gantree up --mps-control`: jobs that share a GPU by MPS, over the death of the daemon, with a stand-in program."""

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gantree.api.client.client import Client
from support.daemon import Program
from support.gangs import left_over
from support.mps_control import program_in


def job(name: str, script: str) -> str:
    run = json.dumps(["sh", "-c", script])
    each = "{gpu_share: 0.5, gpu_memory_GiB: 20, isolation: mps}"
    return f"name: {name}\ncommunicates: false\ngang:\n  - {{role: w, members: 1, each: {each}, run: {run}}}\n"


def until(holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 300
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


@pytest.fixture
def place() -> Iterator[Path]:
    # Sockets have short paths; those of pytest's folders are long.
    with tempfile.TemporaryDirectory(prefix="mps") as folder:
        yield Path(folder)


def test_two_jobs_share_a_gpu_over_kill_9_and_leave_no_control_daemon(place: Path) -> None:
    program, state, go = program_in(place), place / "s", place / "go"
    words = ("up", "--state", str(state), "--mps-control", program)
    script = f"echo $CUDA_MPS_PIPE_DIRECTORY; while [ ! -e {go} ]; do sleep 0.1; done"
    client = Client(state)
    with Program(*words, "--virtual", "dgx-h100:1") as first:
        first.says("ready")
        for name in ("one", "two"):
            client.submit(job(name, script))
            client.job(name, wait_s=300, until="running")
        first.process.kill()
        first.process.wait(60)
    pid = (state / "mps" / "0" / "nvidia-cuda-mps-control.pid").read_text()
    with Program(*words) as second:
        second.says("ready")
        assert (state / "mps" / "0" / "nvidia-cuda-mps-control.pid").read_text() == pid
        go.touch()
        assert [client.job(name, wait_s=300)["phase"] for name in ("one", "two")] == [
            "succeeded"
        ] * 2
        until(lambda: not left_over(state / "mps"))
        second.stop()
    logs = [
        (state / "runs" / name / "1" / "log" / "rank-0.log").read_text() for name in ("one", "two")
    ]
    assert logs == [f"{state}/mps/0\n"] * 2
