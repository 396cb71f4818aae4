"""Jobs and disks that do what nobody should: no such job may harm another, or be told of wrongly."""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gantree.executors.local.shim.shim import read_json, write_json
from gantree.model.events import (
    CheckpointSaved,
    GangEnded,
    GangStarted,
    GangStartFailed,
    MemberLost,
)
from support.gangs import GangStage, four_nodes

NO_RECORDS = {
    "text that is no JSON": "{nope",
    "no fields": "{}",
    "a list": "[]",
    "deep nesting": "[" * 100_000,
    "fields of other types": '{"step": "x", "request": [1], "request_step": null}',
    "a step that is null": '{"step": null, "request": null, "request_step": null}',
    "a step beyond all bounds": '{"step": 1e999, "request": null, "request_step": null}',
    "a request that is no text": '{"step": 1, "request": "\\ud800", "request_step": 1}',
}


@contextmanager
def files_of_at_most(size: int, pid: int = 0) -> Iterator[None]:
    """A process that cannot write a file longer than so many bytes."""
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


def member_folder(stage: GangStage) -> Path:
    return stage.state_dir / "runs" / "j" / "1" / "m0"


def checkpoint_folder(stage: GangStage) -> Path:
    return stage.state_dir / "runs" / "j" / "1" / "checkpoint"


@pytest.mark.parametrize("text", NO_RECORDS.values(), ids=NO_RECORDS.keys())
def test_a_job_may_write_anything_where_its_checkpoint_records_are(
    stage: GangStage, text: str
) -> None:
    stage.start("sleep", "600")
    stage.until_told(GangStarted)
    (checkpoint_folder(stage) / "rank-0.json").write_text(text)
    (checkpoint_folder(stage) / "saved.json").write_text(text)
    stage.save("r1")
    stage.cluster.poll()
    stage.open().adopt()
    assert stage.told(CheckpointSaved) == []
    whole = {"step": 5, "request": "r1", "request_step": 5}
    write_json(str(checkpoint_folder(stage) / "rank-0.json"), whole)
    saved = stage.until_told(CheckpointSaved)
    assert (saved.step, saved.request) == (5, "r1")


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo], ids=["folder", "pipe"])
def test_a_checkpoint_answer_that_is_no_file_holds_nobody_up(stage: GangStage, make: Any) -> None:
    stage.start("sleep", "600", checkpoint_signal="SIGUSR1")
    stage.until_told(GangStarted)
    make(checkpoint_folder(stage) / "answer")
    make(checkpoint_folder(stage) / "rank-0.json")
    stage.cluster.poll()
    stage.start("true", job="k")
    assert stage.until_ended() == 0


def test_many_long_complaints_at_once_do_not_run_into_each_other(stage: GangStage) -> None:
    stage.start("é" * 4000, processes=16)
    assert stage.until_ended() == 126
    assert len(stage.told(GangStartFailed)[0].reason) < 1000
    assert stage.told(MemberLost) == []


FEW_PROCESSES = """
import os, sys
from gantree.executors.local.shim import shim
fork, left = os.fork, [2]
def limited():
    left[0] -= 1
    if left[0] < 0:
        raise BlockingIOError(11, "Resource temporarily unavailable")
    return fork()
os.fork = limited
sys.exit(shim.main(sys.argv[1], sys.argv[1], 0))
"""


def test_a_rank_that_the_machine_has_no_room_for_is_a_failed_start(tmp_path: Path) -> None:
    processes = [{"rank": rank, "env": {}, "log": str(tmp_path / str(rank))} for rank in range(4)]
    launch: dict[str, Any] = {
        "argv": ["sleep", "600"], "env": {}, "workdir": "/", "processes": processes,
        "checkpoint_signal": None, "failure_grace_s": 5.0,
    }  # fmt: skip
    write_json(str(tmp_path / "launch.json"), launch)
    subprocess.run([sys.executable, "-c", FEW_PROCESSES, tmp_path], check=True, timeout=300)
    failed = read_json(str(tmp_path / "failed.json"))
    assert failed["rank"] == 2
    assert failed["reason"] == "could not be forked: Resource temporarily unavailable"
    assert sorted(path.name for path in tmp_path.glob("exit.*")) == ["exit.0.json", "exit.1.json"]
    assert (tmp_path / "ended.json").exists()


def test_a_record_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = str(tmp_path / "record.json")
    write_json(path, ["old"])
    with files_of_at_most(100), pytest.raises(OSError, match="too large"):
        write_json(path, ["new"] * 1000)
    assert read_json(path) == ["old"]


def test_an_exit_code_outlives_a_full_disk(stage: GangStage) -> None:
    os.mkfifo(stage.state_dir / "go")
    stage.start("sh", "-c", "read line < go; exit 7", workdir=str(stage.state_dir))
    stage.until_told(GangStarted)
    shim: int = read_json(str(member_folder(stage) / "shim.json"))["pid"]
    with files_of_at_most(0, shim):
        (stage.state_dir / "go").write_text("now\n")
        time.sleep(0.3)
        stage.cluster.poll()
        assert stage.exit_codes() == {}
    assert stage.until_ended() == 7
    assert stage.told(MemberLost) == []


def test_an_end_that_is_told_late_says_when_it_happened(stage: GangStage) -> None:
    before = time.time()
    stage.start("true", members=2)
    members = [member_folder(stage).with_name(name) for name in ("m0", "m1")]
    while not all((member / "ended.json").exists() for member in members):
        time.sleep(0.01)
    time.sleep(0.5)
    stage.open().adopt()
    stage.until_ended()
    (ended,) = stage.told(GangEnded)
    assert ended.occurred_at is not None
    assert before < ended.occurred_at < ended.observed_at - 0.45


def test_a_gang_whose_records_are_damaged_fails_and_the_others_go_on(stage: GangStage) -> None:
    stage.start("sleep", "600")
    stage.until_told(GangStarted)
    (member_folder(stage) / "exit.0.json").write_text("{nope")
    stage.start("true", job="k")
    stage.until_told(GangEnded, 2)
    assert {event.job: event.exit_code for event in stage.told(GangEnded)} == {"j": 126, "k": 0}
    (failed,) = stage.told(GangStartFailed)
    assert failed.reason.startswith("its run directory is damaged: ")
    assert failed.reason.endswith("exit.0.json")


def test_folders_that_are_nobodys_are_passed_over(tmp_path: Path) -> None:
    for name in ("my backup/1", ".hidden/2", "j/notes", "j/²"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    stage = GangStage(tmp_path, four_nodes())
    stage.cluster.adopt()
    assert stage.cluster.inventory().attempts == {}


ODD_REQUESTS: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "no JSON": lambda path: path.write_text("{nope"),
}


@pytest.mark.parametrize("make", ODD_REQUESTS.values(), ids=ODD_REQUESTS.keys())
def test_what_a_job_puts_in_place_of_a_request_does_not_keep_its_shim_from_obeying(
    stage: GangStage, make: Callable[[Path], object]
) -> None:
    stage.start("sleep", "600", checkpoint_signal="SIGUSR1")
    stage.until_told(GangStarted)
    make(checkpoint_folder(stage) / "request.json")
    time.sleep(0.6)  # longer than a shim sleeps between two looks
    stage.stop(0.1)
    stage.until_told(GangEnded)
    assert stage.told(MemberLost) == []


def test_records_of_a_job_are_not_looked_for_elsewhere(stage: GangStage, tmp_path: Path) -> None:
    stage.start("sleep", "600", checkpoint_signal="SIGUSR1")
    stage.until_told(GangStarted)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("12345")
    (checkpoint_folder(stage) / "answer").symlink_to(elsewhere)
    stage.cluster.poll()
    assert stage.told(CheckpointSaved) == []
