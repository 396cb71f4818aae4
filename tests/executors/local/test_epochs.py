"""Leaders that were replaced: whatever they were about to do, on this machine they start nothing and stop nothing."""

import fcntl
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from gantree.executors.local import epochs, processes
from gantree.executors.local.cluster import LocalCluster
from gantree.executors.local.epochs import EpochFile
from gantree.executors.local.shim.shim import read_json
from gantree.model.errors import JournalError
from gantree.model.events import Event, GangEnded, GangStarted
from gantree.model.orders import StopGang
from support.gangs import GangStage, four_nodes, start_order


def cluster_of(
    stage: GangStage, told: list[Event], leads: Callable[[], bool] = lambda: True
) -> LocalCluster:
    """The cluster of another daemon on the same directory."""
    return LocalCluster(stage.state_dir, four_nodes(), told.append, lambda: 0.0, leads=leads)


def stop(epoch: int) -> StopGang:
    return StopGang(id="j/1/stop", job="j", attempt=1, epoch=epoch, grace_s=0.0)


def test_an_order_of_an_older_epoch_is_refused_also_where_another_daemon_obeyed_the_newer_one(
    stage: GangStage, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stage.open().adopt(3)
    old = stage.cluster
    cluster_of(stage, []).adopt(4)
    old.carry_out(start_order("touch", str(tmp_path / "ran"), epoch=3))
    assert "has epoch 3, older than 4: refused" in caplog.text
    assert not (stage.state_dir / "runs").exists()


def test_a_leader_that_is_out_of_time_starts_nothing_and_stops_nothing(
    stage: GangStage, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stage.start("sleep", "600", members=2, epoch=3)
    stage.until_told(GangStarted)
    told: list[Event] = []
    late = cluster_of(stage, told, leads=lambda: False)
    late.carry_out(start_order("touch", str(tmp_path / "ran"), job="k", epoch=3))
    late.carry_out(stop(3))
    late.poll()
    assert caplog.text.count("is out of time") == 2
    assert told == []
    assert not (stage.state_dir / "runs/k").exists()
    assert not (stage.state_dir / "runs/j/1/stop.json").exists()


def test_a_leader_that_stops_for_a_while_just_before_a_process_starts_starts_none_if_another_came(
    stage: GangStage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worst moment: the order was admitted and put down. Another may have ended the attempt meanwhile."""
    spawn = processes.spawn_shim
    came: list[int] = []

    def pause_first(folder: Path, state_dir: Path, epoch: int) -> int:
        if not came:
            came.append(epoch)
            EpochFile(state_dir).raise_to(8)
        return spawn(folder, state_dir, epoch)

    monkeypatch.setattr(processes, "spawn_shim", pause_first)
    stage.open().adopt(7)
    monkeypatch.setattr(epochs, "FREE_WITHIN_S", 0.0)
    stage.start("touch", str(tmp_path / "ran"), epoch=7)
    assert came == [7]
    child = stage.cluster._gangs["j", 1].members[0]._child
    assert child is not None
    os.waitpid(child, 0)
    assert not (tmp_path / "ran").exists()
    assert read_json(str(stage.state_dir / "runs/j/1/m0/shim.json")) is None


def test_what_an_older_leader_put_down_first_stays(stage: GangStage) -> None:
    stage.start("sleep", "600", epoch=1)
    stage.until_told(GangStarted)
    gang = stage.cluster._gangs["j", 1]
    port = gang.master_port
    assert gang.order is not None
    gang.begin(gang.order, 1, {"not": "this"})
    assert gang.master_port == port


def test_the_epoch_is_raised_only_when_no_shim_is_coming_up(tmp_path: Path) -> None:
    file = EpochFile(tmp_path)
    file.raise_to(1)
    raised = threading.Thread(target=file.raise_to, args=(2,))
    with (tmp_path / "epoch.lock").open() as shim:
        fcntl.flock(shim, fcntl.LOCK_SH)
        raised.start()
        raised.join(0.1)
        assert file.newest() == 1
    raised.join()
    assert file.newest() == 2
    file.raise_to(1)
    assert file.newest() == 2


def test_a_directory_that_obeyed_a_newer_epoch_belongs_to_another_journal(stage: GangStage) -> None:
    EpochFile(stage.state_dir).raise_to(9)
    with pytest.raises(JournalError, match="has obeyed epoch 9, and this is epoch 2"):
        stage.open().adopt(2)


def test_the_next_leader_goes_on_with_what_the_last_one_started(
    stage: GangStage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    stage.open().adopt(1)
    stage.start("sleep", "600", members=2, epoch=1)
    stage.until_told(GangStarted)
    stage.events.clear()
    stage.open().adopt(2)
    assert [type(event) for event in stage.events] == [GangStarted]
    stage.stop(0.0, epoch=2)
    assert stage.until_told(GangEnded).job == "j"
