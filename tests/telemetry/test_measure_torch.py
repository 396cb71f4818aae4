"""Measuring with torch.distributed over gloo: real processes on this machine; several commands stand for nodes.

Needs PyTorch, an optional dependency; skipped where it is not installed. What happens without it is tested too.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from gantree.model.errors import Unreachable
from gantree.telemetry.measuring.launch import Launch
from gantree.telemetry.measuring.measure import calibration_of, measure
from gantree.telemetry.measuring.plan import processes_of_host
from gantree.telemetry.measuring.request import Found, Task
from gantree.topology.fabric.calibration import MeasuredRow

needs_torch = pytest.mark.skipif(
    find_spec("torch") is None, reason="needs PyTorch (the extra torch)"
)
SIZES = (1024, 16384, 262144)


def quiet(_done: int, _total: int) -> None:
    """Progress that nobody watches."""


def task(
    *collectives: str, processes: int = 2, launch: Launch | None = None, timeout_s: float = 300
) -> Task:
    inside = processes_of_host(processes)
    places = {"n0": ("l0",), "n1": ("l0",), "n2": ("l1",)}
    return Task(
        collectives or ("all_reduce",),
        SIZES,
        processes,
        inside,
        timeout_s,
        launch=launch,
        tiers=("leaf", "node"),
        place_of_node=places,
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def figure(row: MeasuredRow) -> tuple[str, int, int, str]:
    return row.within, row.ranks, row.nodes, row.collective


@pytest.mark.skipif(find_spec("torch") is not None, reason="PyTorch is installed here")
def test_without_torch_the_way_out_is_told() -> None:
    with pytest.raises(
        Unreachable,
        match=r"needs PyTorch.*uv pip install -e '\.\[torch\]'.*pip install 'torch>=2\.4'.*--binary-dir",
    ):
        measure(task(), "gloo", quiet)


@needs_torch
def test_every_collective_is_timed_at_every_size() -> None:
    names = (
        "all_reduce",
        "all_gather",
        "reduce_scatter",
        "all_to_all",
        "broadcast",
        "reduce",
        "send_recv",
    )
    steps: list[tuple[int, int]] = []
    found = measure(task(*names), "gloo", lambda done, total: steps.append((done, total)))
    assert found is not None
    assert (found.library, found.warnings) == ("gloo", ())
    assert [figure(row) for row in found.rows] == [
        ("host", 2, 1, name) for name in names for _ in SIZES
    ]
    assert [row.size_bytes for row in found.rows] == [*SIZES] * len(names)
    assert all(0 < row.time_s < 60 and row.busbw_GBps > 0 for row in found.rows)
    assert steps == [(done, 7) for done in range(1, 8)]
    calibration, _ = calibration_of(found, "here")
    assert list(calibration.links) == ["host"]


@needs_torch
def test_four_processes_are_timed_in_a_pair_and_together() -> None:
    found = measure(task(processes=4), "gloo", quiet)
    assert found is not None
    assert {figure(row) for row in found.rows} == {
        ("host", 2, 1, "all_reduce"),
        ("host", 4, 1, "all_reduce"),
    }


@needs_torch
def test_commands_on_several_nodes_measure_what_lies_between_them() -> None:
    port = free_port()
    results: dict[int, Found | None] = {}

    def command(index: int) -> None:
        launch = Launch(index, 3, "127.0.0.1", port, f"n{index}")
        results[index] = measure(task(launch=launch), "gloo", quiet)

    threads = [threading.Thread(target=command, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [0, 1, 2]
    assert (results[1], results[2]) == (None, None)
    found = results[0]
    assert found is not None
    assert found.nodes == ("n0", "n1", "n2")
    series = list(dict.fromkeys((row.within, row.ranks, row.nodes) for row in found.rows))
    assert series == [("host", 2, 1), ("node", 2, 2), ("leaf", 2, 2), ("leaf", 6, 3)]


@needs_torch
def test_a_command_that_waits_for_others_in_vain_stops_in_time() -> None:
    launch = Launch(0, 2, "127.0.0.1", free_port(), "n0")
    with pytest.raises(Unreachable, match="did not end in time and was stopped"):
        measure(task(processes=1, launch=launch, timeout_s=8), "gloo", quiet)


def ranks_of(parent: int) -> list[int]:
    """Pids of the ranks that a process has started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            is_child = (folder / "stat").read_text().rpartition(")")[2].split()[1] == str(parent)
            if is_child and b"measuring.rank" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


@needs_torch
def test_a_rank_that_dies_ends_the_measurement() -> None:
    def kill_one() -> None:
        end = time.monotonic() + 60
        while len(ranks_of(os.getpid())) < 2 and time.monotonic() < end:
            time.sleep(0.05)
        os.kill(ranks_of(os.getpid())[1], signal.SIGKILL)

    killer = threading.Thread(target=kill_one)
    killer.start()
    with pytest.raises(Unreachable, match=r"measuring\.rank .* was ended by signal 9"):
        measure(task(), "gloo", quiet)
    killer.join()
    assert ranks_of(os.getpid()) == []


def test_nothing_of_a_measurement_is_imported_with_torch() -> None:
    code = "import sys, gantree.cli.topo.measure; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout.strip() == "False"
