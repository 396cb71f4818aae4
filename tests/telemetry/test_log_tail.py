"""A log is read on from its end, wherever it is moved to."""

import os
from pathlib import Path

import pytest

from gantree.telemetry.log_tail import LogTail


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "kern.log"
    path.write_text("before\n")
    return path


def test_only_what_comes_later_is_read_and_whole_lines_alone(log: Path) -> None:
    tail = LogTail(log)
    assert tail.lines() == []
    append(log, "one\ntw")
    assert tail.lines() == ["one"]
    append(log, "o\n")
    assert tail.lines() == ["two"]
    assert tail.lines() == []
    tail.close()


def test_a_file_that_is_rotated_is_read_to_its_end_and_then_the_new_one(log: Path) -> None:
    tail = LogTail(log)
    append(log, "last\n")
    log.rename(log.with_suffix(".1"))
    append(log.with_suffix(".1"), "later\n")
    assert tail.lines() == ["last", "later"]
    append(log, "first of the new\n")
    assert tail.lines() == ["first of the new"]
    tail.close()


def test_a_file_that_is_cut_off_is_read_from_its_start(log: Path) -> None:
    tail = LogTail(log)
    append(log, "half")
    assert tail.lines() == []
    log.write_text("new\n")
    assert tail.lines() == ["new"]
    tail.close()


def test_a_fifo_is_read_whoever_writes_and_however_often(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    tail = LogTail(path)
    assert tail.lines() == []
    for text in ("one", "two"):
        with path.open("w") as writer:
            writer.write(text + "\n")
        assert tail.lines() == [text]
    tail.close()


def test_a_line_without_end_and_bytes_that_are_no_text_do_no_harm(log: Path) -> None:
    tail = LogTail(log)
    append(log, "x" * 200_000)
    assert tail.lines() == []
    with log.open("ab") as file:
        file.write(b"\nafter \xff\n")
    assert tail.lines()[-1] == "after \ufffd"
    tail.close()


def test_one_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        LogTail(tmp_path / "none")


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="needs to read /dev/kmsg")
def test_the_kernels_own_log_is_read_from_its_end() -> None:
    tail = LogTail(Path("/dev/kmsg"))
    assert all(isinstance(line, str) for line in tail.lines())
    tail.close()
