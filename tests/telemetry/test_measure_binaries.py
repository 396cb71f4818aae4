"""Measuring with nccl-tests: real programs, started for real, that print what all_reduce_perf prints."""

import json
import os
import stat
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gantree.model.errors import BadInput, GantreeError, Unreachable
from gantree.telemetry.measuring.binaries import binary, time_with_binaries
from gantree.telemetry.measuring.measure import calibration_of, measure
from gantree.telemetry.measuring.plan import gpu_sets
from gantree.telemetry.measuring.request import Found, Task
from gantree.topology.hardware.catalog import machine

PERF = r'''#!{python}
"""Prints the table of an nccl-tests program, on links of 20 us a step and {GBps} GB/s (in-switch: 1.3 times that)."""
import json, os, sys
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
told = {{"argv": sys.argv[1:], "gpus": os.environ.get("CUDA_VISIBLE_DEVICES"), "algo": os.environ.get("NCCL_ALGO")}}
with open({calls!r}, "a") as file:
    file.write(json.dumps(told) + "\n")
n, size = int(words["-g"]), int(words["-b"])
GBps = {GBps} * (1 if os.environ.get("NCCL_ALGO") == "Ring" else 1.3)
print(f"# nThread 1 nGpus {{n}} minBytes {{size}} maxBytes {{words['-e']}} step: 4(factor) warmup iters: 5 iters: 20")
print("# Using devices")
for rank in range({ranks} or n):
    print(f"#  Rank {{rank:2}} Group  0 Pid   52 on n0 device {{rank:2}} [0000:18:00] NVIDIA H100 80GB HBM3")
print("NCCL version 2.23.4+cuda12.6")
print("#   size    count    type   redop    root    time   algbw   busbw #wrong    time   algbw   busbw #wrong")
print("#    (B)  (elements)                         (us)  (GB/s)  (GB/s)           (us)  (GB/s)  (GB/s)")
factor = {{"all_reduce": 2 * (n - 1) / n, "all_gather": (n - 1) / n}}[{name!r}]
steps = {{"all_reduce": 2 * (n - 1), "all_gather": n - 1}}[{name!r}]
while size <= int(words["-e"]):
    us = 20 * steps + factor * size / GBps / 1000
    side = f"{{us:9.2f}} {{size / us / 1000:7.2f}} {{factor * size / us / 1000:7.2f}} {wrong:6}"
    count, redop = (size // 4, "sum") if {name!r} == "all_reduce" else (size // 4 // n, "none")
    print(f"{{size:12}} {{count:13}}     float     {{redop}}      -1 {{side}} {{side}}", flush=True)
    size *= int(words["-f"])
print("# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 1.0\n#")
{after}
'''

Program = Callable[..., Path]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Write a program of nccl-tests into the directory `bin`."""

    def write(
        name: str, GBps: float = 100.0, wrong: int = 0, ranks: int = 0, after: str = ""
    ) -> Path:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        path = folder / f"{name}_perf"
        calls = str(tmp_path / "calls")
        text = PERF.format(
            python=sys.executable,
            name=name,
            GBps=GBps,
            wrong=wrong,
            ranks=ranks,
            after=after,
            calls=calls,
        )
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return folder

    return write


def calls(tmp_path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]


def task(folder: Path, *collectives: str, gpus: int = 4, timeout_s: float = 300) -> Task:
    links = machine("a6000-pairs-8").links
    uuids = tuple(f"GPU-{gpu}" for gpu in range(gpus))
    return Task(
        collectives or ("all_reduce",),
        tuple(4096 * 4**k for k in range(8)),
        gpus,
        gpu_sets(links, range(gpus)),
        timeout_s,
        uuids,
        binaries=folder,
    )


def quiet(_done: int, _total: int) -> None:
    """Progress that nobody watches."""


def found(task: Task) -> Found:
    result = measure(task, "nccl-tests", quiet)
    assert result is not None
    return result


def test_links_come_from_rings_and_rows_from_what_nccl_chooses(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NCCL_ALGO", raising=False)
    program("all_reduce")
    result = found(task(program("all_gather"), "all_reduce", "all_gather"))
    calibration, warnings = calibration_of(result, "n0", datetime(2026, 11, 21, tzinfo=UTC))
    assert (calibration.backend, calibration.host, calibration.date) == ("nccl", "n0", "2026-11-21")
    assert list(calibration.links) == ["NV4", "NODE"]
    for link in calibration.links.values():
        assert link.bandwidth_GBps == pytest.approx(100, rel=0.02)
        assert link.latency_us == pytest.approx(20, rel=0.02)
    assert warnings == ()
    series = {(row.within, row.ranks, row.collective) for row in calibration.rows}
    assert series == {
        (within, ranks, name)
        for within, ranks in (("NV4", 2), ("NODE", 2), ("NODE", 4))
        for name in ("all_reduce", "all_gather")
    }
    largest = [row for row in calibration.rows if row.size_bytes == 4096 * 4**7]
    assert all(row.busbw_GBps > 110 for row in largest)
    assert all(row.nodes == 1 and row.time_s > 0 for row in calibration.rows)
    algos = [call["algo"] for call in calls(tmp_path)]
    assert algos == ["Ring"] * 3 + [None] * 6


def test_each_set_is_given_its_gpus_and_the_sizes(program: Program, tmp_path: Path) -> None:
    time_with_binaries(task(program("all_reduce")), ("all_reduce",), {}, quiet)
    told = calls(tmp_path)
    assert [call["gpus"] for call in told] == [
        "GPU-0,GPU-1",
        "GPU-0,GPU-2",
        "GPU-0,GPU-1,GPU-2,GPU-3",
    ]
    assert told[0]["argv"] == [
        "-b",
        "4096",
        "-e",
        "67108864",
        "-f",
        "4",
        "-g",
        "2",
        "-w",
        "5",
        "-n",
        "20",
    ]


def test_an_algorithm_of_the_callers_own_holds(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_ALGO", "Tree")
    found(task(program("all_reduce"), gpus=2))
    assert [call["algo"] for call in calls(tmp_path)] == ["Tree"]


def test_progress_counts_to_its_total(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NCCL_ALGO", raising=False)
    steps: list[tuple[int, int]] = []
    measure(
        task(program("all_reduce")), "nccl-tests", lambda done, total: steps.append((done, total))
    )
    assert steps == [(done, 6) for done in range(1, 7)]


def test_programs_are_found_in_a_folder_or_on_the_path(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = program("all_reduce")
    assert binary("all_reduce", folder) == str(folder / "all_reduce_perf")
    assert binary("all_to_all", folder) is None
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    assert binary("all_reduce", None) == str(folder / "all_reduce_perf")
    assert binary("all_reduce", tmp_path) is None


def test_a_collective_without_a_program_is_left_out_and_named(program: Program) -> None:
    result = found(task(program("all_reduce"), "all_reduce", "all_to_all"))
    assert "all_to_all: there is no alltoall_perf" in result.warnings
    assert {row.collective for row in result.rows} == {"all_reduce"}


def test_wrong_values_are_told(program: Program) -> None:
    result = found(task(program("all_reduce", wrong=3), gpus=2))
    assert any(
        "all_reduce within NV4: line" in words and "3 wrong values" in words
        for words in result.warnings
    )


@pytest.mark.parametrize(
    ("more", "kind", "told"),
    [
        ({"after": "sys.exit('Test CUDA failure common.cu:1: out of memory')"}, Unreachable, "out of memory"),
        ({"after": "import time; time.sleep(600)"}, Unreachable, "did not end in time"),
        ({"ranks": 8}, Unreachable, "it ran on 8 GPUs, not on the 2 it was given"),
        ({"GBps": float("nan")}, GantreeError, "all_reduce_perf: no row"),
    ],
)  # fmt: skip
def test_a_program_that_fails_is_told_with_its_reason(
    program: Program, more: dict[str, object], kind: type[GantreeError], told: str
) -> None:
    timeout_s = 2.0 if "sleep" in str(more) else 60.0
    folder = program("all_reduce", **more)
    if "GBps" in more:
        (folder / "all_reduce_perf").write_text(f"#!{sys.executable}\nprint('nothing to see')\n")
    with pytest.raises(kind) as caught:
        found(task(folder, gpus=2, timeout_s=timeout_s))
    assert told in str(caught.value)


def test_a_folder_without_programs_is_told(tmp_path: Path) -> None:
    with pytest.raises(
        BadInput, match=r"--binary-dir .*no program of nccl-tests .*there is no all_reduce_perf"
    ):
        found(task(tmp_path))


def test_a_path_without_programs_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unreachable, match=r"no program of nccl-tests on PATH.*--binary-dir says"):
        found(replace(task(tmp_path), binaries=None))
