"""Processes that are bound to a lease end with it, though nobody tells their shim."""

from dataclasses import asdict
from pathlib import Path

from gantree.control.federation.lease import Lease
from gantree.executors.local.shim.lease import FILE, boottime_s
from gantree.executors.local.shim.shim import boot_id, write_json
from gantree.model.events import GangStarted
from gantree.model.federation import Stamp
from support.gangs import GangStage

LASTING = "trap '' TERM; echo up; while :; do sleep 0.02; done"


def hold(stage: GangStage, for_s: float, number: int = 1, boot: str | None = None) -> None:
    until = Stamp(boot or boot_id(), boottime_s() + for_s)
    write_json(str(stage.state_dir / FILE), asdict(Lease("f", number, 60.0, until)))


def start(stage: GangStage) -> None:
    stage.start("sh", "-c", LASTING, members=2, leased=True)
    stage.until_told(GangStarted)
    stage.until(lambda: stage.log(0) == stage.log(1) == "up\n")


def test_they_are_killed_at_its_end_and_not_before(stage: GangStage) -> None:
    hold(stage, 600.0)
    start(stage)
    hold(stage, 0.5)  # a renewal of the same lease; ever later ones come from a daemon
    ends_at = boottime_s() + 0.4
    assert stage.until_ended() == 137
    assert boottime_s() >= ends_at
    assert set(stage.exit_codes().values()) == {137}


def test_a_lease_of_another_number_is_another_lease(stage: GangStage) -> None:
    hold(stage, 1.5)
    start(stage)
    hold(stage, 600.0, number=2)
    assert stage.until_ended() == 137


def test_nothing_is_started_without_a_lease_that_holds(stage: GangStage, tmp_path: Path) -> None:
    stage.start("touch", str(tmp_path / "ran"), leased=True)
    assert stage.until_ended() == 143
    hold(stage, 600.0, boot="another boot")
    stage.start("touch", str(tmp_path / "ran"), attempt=2, leased=True)
    stage.until(lambda: stage.cluster.inventory().status("j", 2) == "ended")
    assert not (tmp_path / "ran").exists()


def test_a_gang_that_is_not_leased_heeds_no_lease(stage: GangStage) -> None:
    hold(stage, -1.0)
    stage.start("true")
    assert stage.until_ended() == 0
