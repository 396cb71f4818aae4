"""The programs of a check over gloo: real processes on this machine, one program for each member, as shims start them.

A slow member is one whose program is started by a wrapper that slows its collectives (`slowed`). What needs PyTorch
is skipped without; what happens without it is tested too.
"""

import json
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from support.slowed import SLOWED

needs_torch = pytest.mark.skipif(
    find_spec("torch") is None, reason="needs PyTorch (the extra torch)"
)
PAIRS_OF_THREE = ["n0-n1", "n0-n2", "n1-n2"]
PROGRAM = "gantree.telemetry.checking.member"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def spec(folder: Path, index: int, count: int, port: int, **changes: Any) -> Path:
    """The spec of one member, in a file."""
    members = [
        {"node": f"n{n}", "gpus": [], "nics": [], "domains": [["node", f"n{n}"]], "processes": 1}
        for n in range(count)
    ]
    told = {
        "index": index, "members": members, "address": "127.0.0.1", "port": port, "seconds": 240.0,
        "folder": str(folder), "cuda": False, "required": False, "may_replace": True,
        "on_loopback": True, "soak_s": 0.0, **changes,
    }  # fmt: skip
    path = folder / f"spec-{index}.json"
    path.write_text(json.dumps(told))
    return path


def check(
    folder: Path, count: int, slow: int | None = None, **changes: Any
) -> tuple[dict[str, Any], list[int], str]:
    """The report of a check of so many members, the exit status of each program, and what the first printed."""
    port = free_port()
    programs = []
    for index in range(count):
        command = [sys.executable, "-m", PROGRAM, str(spec(folder, index, count, port, **changes))]
        prefix = SLOWED if index == slow else []
        programs.append(
            subprocess.Popen([*prefix, *command], stdout=subprocess.PIPE, text=True)
        )  # fmt: skip
    printed = [program.communicate()[0] for program in programs]
    report = json.loads((folder / "report.json").read_text())
    return report, [program.returncode for program in programs], printed[0]


@needs_torch
def test_a_gang_of_equals_passes_and_starts(tmp_path: Path) -> None:
    report, codes, printed = check(tmp_path, 3)
    assert (report["state"], report["outcome"], codes) == ("passed", "start", [0, 0, 0]), report
    assert [each["name"] for each in report["figures"] if each["kind"] == "pair"] == PAIRS_OF_THREE
    assert all(each["measured"] > 0 for each in report["figures"])
    assert "gantree: check: links passed their check: 3 members, 3 pairs" in printed


@needs_torch
def test_a_slow_member_is_named_and_nothing_starts(tmp_path: Path) -> None:
    report, codes, printed = check(tmp_path, 4, slow=2)
    assert [fault["node"] for fault in report["faults"]] == ["n2"], report
    assert (report["outcome"], codes) == ("replace", [10, 10, 10, 10])
    assert "node n2 failed the check: its all-reduces with each other member reach" in printed


@needs_torch
def test_who_may_not_be_replaced_starts_with_what_was_found_on_record(tmp_path: Path) -> None:
    report, codes, _ = check(tmp_path, 3, slow=1, may_replace=False)
    assert [fault["node"] for fault in report["faults"]] == ["n1"], report
    assert (report["outcome"], codes) == ("start", [0, 0, 0])


@needs_torch
def test_a_check_without_enough_time_says_so_and_starts(tmp_path: Path) -> None:
    report, codes, _ = check(tmp_path, 2, seconds=0.5)
    assert (report["state"], report["outcome"], codes) == ("unfinished", "start", [0, 0]), report
    assert report["sentence"] == "the check of its links did not end: 0.5 s were not enough"


@needs_torch
def test_a_required_check_that_did_not_end_starts_nothing(tmp_path: Path) -> None:
    report, codes, _ = check(tmp_path, 2, seconds=0.5, required=True)
    assert (report["outcome"], codes) == ("fail", [10, 10]), report


@needs_torch
def test_a_pytorch_that_sees_no_gpu_blames_no_node(tmp_path: Path) -> None:
    report, codes, _ = check(tmp_path, 1, cuda=True, soak_s=1.0, seconds=60.0)
    assert (report["state"], report["faults"], codes) == ("unfinished", [], [0]), report
    assert "PyTorch sees 0 GPUs here" in report["sentence"]


@needs_torch
@pytest.mark.parametrize(
    ("words", "is_fault"),
    [
        ("CUDA error: uncorrectable ECC error encountered", True),
        ("CUDA error: an illegal memory access was encountered", True),
        ("CUDA error: unspecified launch failure", True),
        ("CUDA out of memory. Tried to allocate 2.00 GiB.", False),
        ("CUDA error: no kernel image is available for execution on the device", False),
        ("The NVIDIA driver on your system is too old (found version 12020).", False),
    ],
)
def test_only_words_for_a_broken_device_blame_it(words: str, is_fault: bool) -> None:
    from gantree.telemetry.checking.soak import Faulty, is_device_fault

    assert is_device_fault(RuntimeError(words)) == is_fault
    assert is_device_fault(Faulty("a copy in memory differs from its source"))


@needs_torch
def test_one_process_alone_has_nothing_to_check(tmp_path: Path) -> None:
    report, codes, _ = check(tmp_path, 1)
    assert (report["state"], codes) == ("passed", [0]), report


@pytest.mark.skipif(find_spec("torch") is not None, reason="PyTorch is installed here")
@pytest.mark.parametrize(("required", "outcome", "code"), [(False, "start", 0), (True, "fail", 10)])
def test_without_pytorch_it_is_skipped_or_refused(
    tmp_path: Path, required: bool, outcome: str, code: int
) -> None:
    report, codes, printed = check(tmp_path, 2, required=required)
    assert (report["state"], report["outcome"], codes) == ("skipped", outcome, [code, code]), report
    assert "PyTorch is not installed beside gantree" in printed
