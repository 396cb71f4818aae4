"""Tests in several processes are reported as if one had run them; a test that ends its process has not passed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PASSES = """
import os, pathlib, pytest

@pytest.fixture(scope="module")
def made():
    notes = pathlib.Path("notes")
    with notes.open("a") as file:
        file.write(f"made in {os.getpid()}\\n")
    yield
    with notes.open("a") as file:
        file.write(f"gone in {os.getpid()}\\n")

@pytest.mark.parametrize("n", range(3))
def test_passes(made, n):
    print("nobody sees this")
"""
OTHERS = """
import sys, warnings, pytest

warnings.warn("while it was collected")

def test_fails():
    print("said before it failed")
    print("also this", file=sys.stderr)
    assert [1, 2] == [1, 3]

def test_is_skipped():
    pytest.skip("for this reason")

def test_warns():
    warnings.warn("of this")

@pytest.mark.xfail(strict=True, reason="known")
def test_is_known_to_fail():
    assert False

def test_breaks_at_its_end(broken):
    pass

@pytest.fixture
def broken():
    yield
    raise RuntimeError("while it was torn down")
"""
ENDS = """
import os

def test_before(): pass
def test_ends_its_process(): os._exit(0)
def test_after(): pass
"""


def said(directory: Path, files: dict[str, str], *options: str) -> tuple[int, str]:
    """The exit status and the output of a run of tests on these files alone."""
    for name, text in files.items():
        (directory / name).write_text(text)
    (directory / "pytest.ini").write_text("[pytest]\naddopts = -p gantree.testing.workers -rA\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=directory,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def told_at_the_end(output: str) -> list[str]:
    """Each test's line of the summary, the counts, and whatever it said or warned of."""
    output = re.sub(r" in [\d.]+s.*", "", output)
    of_results = (
        "PASSED",
        "FAILED",
        "ERROR",
        "SKIPPED",
        "XFAIL",
        "=",
        "E  ",
        "  warnings",
        "said",
        "also",
    )
    left_out = ("= test session", "= slowest")
    return sorted(
        line.strip("= ")
        for line in output.splitlines()
        if line.lstrip().startswith(tuple(of_results)) and not any(no in line for no in left_out)
    )


def test_workers_report_what_one_process_reports(tmp_path: Path) -> None:
    files = {"test_others.py": OTHERS, **{f"test_{n}.py": PASSES for n in range(4)}}
    (alone := tmp_path / "alone").mkdir()
    (together := tmp_path / "together").mkdir()
    status, by_one = said(alone, files)
    status_of_workers, by_workers = said(together, files, "--workers", "2")
    assert status == status_of_workers == 1
    assert "1 failed, 14 passed, 1 skipped, 1 xfailed, 2 warnings, 1 error" in by_workers
    assert by_workers.count("UserWarning: of this") == 1
    assert by_workers.count("UserWarning: while it was collected") == 1
    assert told_at_the_end(by_workers) == told_at_the_end(by_one)
    assert "nobody sees this" in by_workers.split("= short test summary")[0].split("= PASSES")[1]
    assert_made_once_a_file(together)


def assert_made_once_a_file(directory: Path) -> None:
    """The fixture of each module of PASSES is made once and goes in the process that made it; none is pytest's own."""
    notes = (directory / "notes").read_text().split("\n")[:-1]
    made = sorted(note.split()[-1] for note in notes if note.startswith("made"))
    assert len(made) == 4
    assert made == sorted(note.split()[-1] for note in notes if note.startswith("gone"))


def test_a_test_that_ends_its_process_fails_with_its_file_and_the_others_go_on(
    tmp_path: Path,
) -> None:
    files = {"test_0.py": ENDS, "test_1.py": PASSES, "test_2.py": PASSES}
    status, output = said(tmp_path, files, "--workers", "2")
    assert status == 1
    assert "2 failed, 7 passed" in output
    for lost in ("test_ends_its_process", "test_after"):
        assert f"FAILED test_0.py::{lost} - the process that ran this file ended" in output


def test_nothing_passes_when_every_worker_has_ended(tmp_path: Path) -> None:
    status, output = said(tmp_path, {"test_0.py": ENDS, "test_1.py": PASSES}, "--workers", "1")
    assert status == 1
    assert "5 failed, 1 passed" in output


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_run_that_is_to_stop_at_the_first_failure_stops_and_tears_down(
    tmp_path: Path, workers: str
) -> None:
    fails = PASSES + "\ndef test_fails_last(made): assert False\ndef test_after(made): pass\n"
    status, output = said(tmp_path, {"test_0.py": fails}, "-x", "--workers", workers)
    assert status == 1
    assert "1 failed, 3 passed" in output
    assert "stopping after 1 failures" in output
    assert (tmp_path / "notes").read_text().count("gone") == 1
