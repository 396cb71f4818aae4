"""Tests' daemons are forked from a process that has imported them: what a fork must have of who asked, and tell it."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.nursery import Born, Nursery


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    """Whoever it bears runs one command."""
    yield Nursery("subprocess:check_call")


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "output"


@pytest.fixture
def lives(tmp_path: Path) -> Path:
    """A file: whoever waits for its end goes on for as long as a test likes."""
    (file := tmp_path / "lives").touch()
    return file


def born(nursery: Nursery, output: Path, script: str) -> Born:
    with output.open("ab") as file:
        return nursery.bear(["sh", "-c", script], file.fileno())


def test_it_has_the_environment_directory_and_umask_of_who_asked_and_prints_where_it_should(
    nursery: Nursery, output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OURS", "ours")
    before = os.umask(0o027)
    try:
        child = born(nursery, output, "echo $OURS; pwd; umask")
    finally:
        os.umask(before)
    assert child.wait(timeout=300) == 0
    assert output.read_text().split("\n") == ["ours", str(tmp_path), "0027", ""]


def test_it_holds_no_file_but_its_output(nursery: Nursery, output: Path, lives: Path) -> None:
    sibling = born(nursery, output, f"while [ -e {lives} ]; do sleep 0.05; done")
    until_started = "while [ $(ls /proc/$PPID/fd | wc -l) -gt 3 ] && [ $((n += 1)) -lt 100 ]"
    child = born(
        nursery, output, f"n=0; {until_started}; do sleep 0.05; done; ls /proc/$PPID/fd | wc -l"
    )
    assert child.wait(timeout=300) == 0
    assert output.read_text().split() == ["3"]
    assert sibling.poll() is None
    lives.unlink()
    assert sibling.wait(timeout=300) == 0


def test_its_end_is_told_as_that_of_any_process(
    nursery: Nursery, output: Path, lives: Path
) -> None:
    failing = born(nursery, output, "exit 3")
    assert failing.wait(timeout=300) == failing.poll() == 1
    assert b"returned non-zero exit status 3" in output.read_bytes()
    killed = born(nursery, output, f"while [ -e {lives} ]; do sleep 0.05; done")
    assert killed.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        killed.wait(timeout=0.01)
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    lives.unlink()
    killed.send_signal(signal.SIGKILL)


def test_what_was_printed_and_left_for_the_end_is_done_though_it_ends_at_once(output: Path) -> None:
    script = (
        "import atexit, threading, sys\n"
        "atexit.register(print, 'at its end')\n"
        "later = 'import time; time.sleep(0.2); print(\\'by a thread\\')'\n"
        "threading.Thread(target=exec, args=(later,)).start()\n"
        "sys.stdout.write('without a newline, ')\n"
    )
    nursery = Nursery("builtins:exec")
    with output.open("ab") as file:
        child = nursery.bear(script, file.fileno())  # type: ignore[arg-type]  # exec takes one text
    assert child.wait(timeout=300) == 0
    assert output.read_text() == "without a newline, by a thread\nat its end\n"


def test_all_who_name_a_place_share_the_one_there_which_ends_with_the_last_of_them(
    output: Path, tmp_path: Path
) -> None:
    first, second = (Nursery("subprocess:check_call", place=tmp_path / "shared") for _ in "ab")
    for each in (first, second):
        assert born(each, output, "cut -d' ' -f4 /proc/$PPID/stat").wait(timeout=300) == 0
    assert output.read_text().split() == [str(first._process.pid)] * 2
    first._door.close()
    assert born(second, output, "true").wait(timeout=300) == 0
    second._door.close()
    assert first._process.wait(timeout=300) == 0
