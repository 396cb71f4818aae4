"""Times collectives with torch.distributed: a process for each GPU (NCCL), or some without GPUs (gloo).

The processes of one node meet at a file; those of several nodes at the address and port that the launcher named. They
are the program `rank`; this module starts them, waits for them, and reads what rank 0 wrote.
"""

import json
import os
import sys
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gantree.model.errors import Unreachable, Unsupported
from gantree.telemetry.measuring.fit import busbw_GBps
from gantree.telemetry.measuring.processes import running, wait
from gantree.telemetry.measuring.request import Advance, Found, Task
from gantree.topology.fabric.calibration import MeasuredRow

PROGRAM = "gantree.telemetry.measuring.rank"
NEEDS_TORCH = (
    "measuring with torch.distributed needs PyTorch 2.4 or later beside gantree, and there is none. In a clone: "
    ".venv/bin/python -m uv pip install -e '.[torch]'; where gantree was installed: pip install 'torch>=2.4' with that "
    "Python; or give the programs of nccl-tests with --binary-dir"
)
_OF_LAUNCHERS = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
)
"""torch.distributed would read them."""
LATE_S = 5.0
"""Seconds after the deadline of this process at which ranks end themselves, in case it is gone."""


def time_with_torch(
    task: Task, backend: str, more_env: Mapping[str, str], pass_number: int, advance: Advance
) -> Found | None:
    """Time a task's collectives; backend is "nccl" or "gloo". None on commands that do not have rank 0.

    Passes of one measurement are numbered from 0, so that they meet at different ports. Raises Unsupported where it
    times nothing; Unreachable without PyTorch, where a rank fails or the time is over.
    """
    if find_spec("torch") is None:
        raise Unreachable(NEEDS_TORCH)
    with TemporaryDirectory(prefix="gantree-measure-") as name:
        folder = Path(name)
        spec = _spec(task, backend, pass_number, folder)
        lines = run_ranks(
            PROGRAM, spec, folder, task.processes, _env(task, more_env), task.timeout_s, advance
        )
        return _found(lines) if spec["first_rank"] == 0 else None


def run_ranks(
    program: str,
    spec: Mapping[str, Any],
    folder: Path,
    processes: int,
    env: Mapping[str, str],
    timeout_s: float,
    advance: Advance,
) -> list[dict[str, Any]]:
    """Run the ranks of this node to their end and return the lines that rank 0 appended to `out` of the spec.

    program is a module that reads a spec and a local index; each rank's output is in rank<index>.log of the folder.
    Raises Unreachable where one fails or the time is over; lines until then are in the file.
    """
    path = folder / "spec.json"
    path.write_text(json.dumps(spec), encoding="utf-8")
    commands = [[sys.executable, "-m", program, str(path), str(i)] for i in range(processes)]
    logs = [folder / f"rank{i}.log" for i in range(processes)]
    out = _Tail(Path(spec["out"]), advance)
    with running(commands, env, logs) as programs:
        wait(programs, logs, time.monotonic() + timeout_s, out.read)
    out.read()
    return out.lines


def _spec(task: Task, backend: str, pass_number: int, folder: Path) -> dict[str, Any]:
    launch = task.launch
    meet = f"file://{folder}/meet"
    if launch:
        meet = f"tcp://{launch.address}:{launch.port + pass_number}"
    return {
        "backend": backend,
        "cuda": backend == "nccl",
        "meet": meet,
        "world": task.processes * (launch.count if launch else 1),
        "first_rank": task.processes * (launch.index if launch else 0),
        "first_gpu": 0,
        "node": launch.node if launch else "",
        "in_first_node": [[each.within, list(each.ranks)] for each in task.in_node],
        "tiers": list(task.tiers),
        "place_of_node": {node: list(at) for node, at in task.place_of_node.items()},
        "collectives": list(task.collectives),
        "sizes": list(task.sizes),
        "seconds": task.timeout_s + LATE_S,
        "out": str(folder / "out.jsonl"),
    }


def rank_environment(more_env: Mapping[str, str]) -> dict[str, str]:
    """This process's variables for a rank, with one thread, and without what a launcher set for its own ranks."""
    env = {**os.environ, **more_env, "OMP_NUM_THREADS": "1"}
    for word in _OF_LAUNCHERS:
        env.pop(word, None)
    return env


def _env(task: Task, more_env: Mapping[str, str]) -> dict[str, str]:
    """The environment of a rank: its GPUs by UUID, and the loopback where all is on one host."""
    env = rank_environment(more_env)
    if task.gpu_uuids:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(task.gpu_uuids)
    if task.launch is None:
        env.setdefault("GLOO_SOCKET_IFNAME", "lo")
    return env


class _Tail:
    """Reads the lines that rank 0 appends to a file, as far as they are whole."""

    def __init__(self, path: Path, advance: Advance) -> None:
        self.lines: list[dict[str, Any]] = []
        self._path = path
        self._advance = advance
        self._read_bytes = 0

    def read(self) -> None:
        """Read what is new."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._read_bytes)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        for line in whole.splitlines():
            self.lines.append(json.loads(line))
            if "done" in self.lines[-1]:
                self._advance(self.lines[-1]["done"], self.lines[-1]["total"])


def _found(lines: list[dict[str, Any]]) -> Found:
    if not lines:
        raise Unreachable("the ranks ended without a word")
    head, *told = lines
    rows = [row for line in told for row in _rows(line)]
    refused = dict.fromkeys(
        f"{line['collective']}: {head['library']} refused it: {line['unsupported']}"
        for line in told
        if "unsupported" in line
    )
    if not told:
        raise Unsupported(
            f"all ranks ran on node {head['nodes'][0]}, and there was nothing to time on it; "
            "commands on one node say so by LOCAL_RANK and LOCAL_WORLD_SIZE, nodes by their host names or GANTREE_NODE"
        )
    if not rows:
        raise Unsupported("nothing could be timed; " + "; ".join(refused))
    return Found(head["library"], tuple(head["nodes"]), tuple(rows), tuple(refused))


def _rows(line: dict[str, Any]) -> list[MeasuredRow]:
    name, ranks = line["collective"], line["ranks"]
    return [
        MeasuredRow(
            name,
            ranks,
            line["nodes"],
            size_bytes,
            time_s,
            busbw_GBps(name, ranks, size_bytes, time_s),
            line["within"],
        )
        for size_bytes, time_s in line.get("times", ())
    ]
