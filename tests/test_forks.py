"""Tests in forks of the process that collected them: each is run once and told of, whatever becomes of a fork."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PATIENCE_S = 120.0
KEPT = """
import os, pathlib, pytest
note = lambda word: pathlib.Path("notes").open("a").write(f"{word} {os.getpid()}\\n")
@pytest.fixture(scope="session")
def kept():
    note("made")
    yield
    note("ended")
"""


def run(place: Path, *options: str, **files: str) -> str:
    """What a run of these files of tests prints; it ends in good order."""
    for name, text in files.items():
        (place / f"{name}.py").write_text(text)
    plain = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "gantree.testing.forks", "-p", "no:cacheprovider", *options],
        cwd=place,
        env={**plain, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout


def notes(place: Path) -> list[str]:
    """The words that were noted, without by whom."""
    return [line.split()[0] for line in (place / "notes").read_text().splitlines()]


OUTCOMES = """
import os, pytest, warnings
def test_good(): warnings.warn("beware")
def test_bad(): print("said before"); assert 1 == 2
@pytest.mark.skip("not today")
def test_left_out(): pass
def test_dies(): os._exit(3)
def test_goes_on(tmp_path): print("after a death")
@pytest.fixture
def leaves(): yield; raise OSError("left badly")
def test_is_left(leaves): pass
"""


def test_whatever_comes_of_a_test_is_told_as_without_forks_and_a_death_costs_one_test(
    tmp_path: Path,
) -> None:
    told = run(tmp_path, "-n", "2", "-ra", test_a=OUTCOMES, test_b=OUTCOMES)
    assert "4 failed, 6 passed, 2 skipped, 2 warnings, 2 errors" in told
    for name in ("test_a", "test_b"):
        assert f"FAILED {name}.py::test_bad - assert 1 == 2" in told
        assert f"FAILED {name}.py::test_dies - the process that ran it ended with status 3" in told
        assert f"ERROR {name}.py::test_is_left - OSError: left badly" in told
        assert f"SKIPPED [1] {name}.py:5: not today" in told
    assert told.count("UserWarning: beware") == 2
    assert told.count("said before") == 2 * 2, "in the source and as what was captured"
    assert "after a death" not in told


def test_a_fork_takes_file_after_file_and_keeps_what_is_the_sessions(tmp_path: Path) -> None:
    """What is a file's ends with it, though the next one is not known yet."""
    text = """
import pytest
from conftest import note
@pytest.fixture(scope="module")
def files(): yield; note("file")
def test_one(kept, files): note("one")
def test_two(kept, files): note("two")
"""
    (tmp_path / "conftest.py").write_text(KEPT)
    assert "4 passed" in run(tmp_path, "-n", "1", test_a=text, test_b=text)
    assert notes(tmp_path) == ["made", *["one", "two", "file"] * 2, "ended"]


def test_all_forks_have_work_and_no_test_is_run_twice(tmp_path: Path) -> None:
    """Each waits for the others to have begun."""
    text = """
import time
from conftest import note, pathlib, os
def begun(): return {line.split()[1] for line in pathlib.Path("notes").read_text().splitlines()}
def test_meets():
    note(__name__)
    while len(begun()) < 3: time.sleep(0.01)
"""
    (tmp_path / "conftest.py").write_text(KEPT)
    told = run(tmp_path, "-n", "3", **{f"test_{name}": text for name in "abc"})
    assert "3 passed" in told
    assert sorted(notes(tmp_path)) == ["test_a", "test_b", "test_c"]


def test_at_the_first_failure_under_x_the_others_stop_and_their_fixtures_end(
    tmp_path: Path,
) -> None:
    """The one that sleeps is woken, gives back what it has, and counts as not run."""
    (tmp_path / "conftest.py").write_text(KEPT)
    sleeps = "from conftest import note\nimport time\ndef test_long(kept): note('sleeps'); time.sleep(600)"
    fails = """
import pathlib, time
def test_fails():
    while not (pathlib.Path("notes").exists() and "sleeps" in pathlib.Path("notes").read_text()):
        time.sleep(0.01)
    assert 0
def test_never(): assert 0
"""
    told = run(tmp_path, "-n", "2", "-x", test_a=sleeps, test_b=fails, test_c=fails)
    assert "stopping after 1 failures" in told
    assert "1 failed in" in told
    assert notes(tmp_path) == ["made", "sleeps", "ended"]


THREAD = (
    "import threading, time\nthreading.Thread(target=time.sleep, args=(3,), name='old').start()\n"
)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import nothing_of_this_name", "ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        (f"{THREAD}def test_a(): pass", "a fork would lack these threads: ['old']"),
        ("import pytest\n@pytest.fixture(scope='session')\ndef all(): yield; 1 / 0\ndef test_a(all): pass",
         "ZeroDivisionError"),
    ],
)  # fmt: skip
def test_what_no_test_can_be_blamed_for_fails_the_run(tmp_path: Path, text: str, why: str) -> None:
    told = run(tmp_path, "-n", "2", test_a=text)
    assert why in told
    assert re.search(r"\d error|INTERNALERROR", told)
