"""Compute partitions made for gangs of real processes, simulated and by a program that prints as amd-smi does."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gantree.executors.local.partitions.created_instances import CreatedInstances
from gantree.model.events import GangEnded, GangStarted, GangStartFailed
from gantree.model.gpu_partitions import GpuPartitioner
from gantree.model.placements import GpuChange, MigPart
from gantree.telemetry.partitions.amd_smi import AmdSmiPartitioner
from gantree.telemetry.partitions.simulated import SimulatedPartitioner
from gantree.topology.hardware.mig import TABLES
from support.amd_smi import AmdSmi
from support.gangs import GangStage, four_nodes, left_over, start_order

MI300X = TABLES["MI300X-192GB"]
PRINT = ("sh", "-c", "echo $ROCR_VISIBLE_DEVICES / $CUDA_VISIBLE_DEVICES")


def parts(mode: str) -> tuple[MigPart, ...]:
    """All partitions of GPU 1 in a mode."""
    return tuple(MigPart(1, mode, start) for start in MI300X.placements(mode))


def change(to: str | None, before: str | None = None) -> GpuChange:
    """GPU 1 from one mode to another; None: whole."""
    mode = None if to and before else bool(to)
    return GpuChange("n0", 1, mode, parts(before) if before else (), parts(to) if to else (), 1.0)


class Divided(GangStage):
    """A stage whose node n0 has GPUs that are divided by one of the two."""

    def __init__(self, folder: Path, gpus: GpuPartitioner) -> None:
        self.gpus = gpus
        super().__init__(
            folder / "state",
            four_nodes(),
            partitioner_of=lambda node: gpus if node == "n0" else None,
        )

    def needs(self, *run: str, held: tuple[MigPart, ...], job: str = "j", **fields: Any) -> None:
        """Start a gang of one member that has these partitions."""
        order = start_order(*run, job=job, **fields)
        self.cluster.carry_out(replace(order, members=(replace(order.members[0], mig=held),)))


def divide_by_hand(stage: Divided) -> None:
    """GPU 1 is in CPX, and gantree has not noted that it set this."""
    stage.gpus.set_mig_mode(1, on=True)
    stage.gpus.create(1, "cpx", 0)


@pytest.fixture(params=["simulated", "amd-smi"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Divided]:
    tool = AmdSmi(tmp_path / "tool")
    gpus: GpuPartitioner = (
        SimulatedPartitioner(tmp_path / "gpus" / "n0.json", "n0", MI300X)
        if request.param == "simulated"
        else AmdSmiPartitioner(MI300X, str(tool.program))
    )
    stage = Divided(tmp_path, gpus)
    yield stage
    stage.end_all()
    stage.cluster.close()
    assert left_over(tmp_path) == []
    shutil.rmtree(tmp_path / "tool")


def test_a_gang_sees_its_partitions_and_the_others_are_there_for_the_next(stage: Divided) -> None:
    mine = parts("cpx")[2:4]
    stage.needs(*PRINT, held=mine, changes=(change("cpx"),))
    assert stage.until_ended() == 0
    there = stage.gpus.instances(1)
    assert tuple(there) == parts("cpx")
    assert stage.log().strip() == f"{there[mine[0]]},{there[mine[1]]} / 0,1"
    stage.needs(*PRINT, held=parts("cpx")[7:], job="next")
    assert stage.until_told(GangEnded, 2).exit_code == 0
    assert stage.gpus.instances(1) == there


def test_an_idle_gpu_changes_its_mode_and_is_whole_again_for_a_gang_that_needs_it(
    stage: Divided,
) -> None:
    stage.needs("true", held=parts("cpx")[:1], changes=(change("cpx"),))
    stage.until_ended()
    stage.needs("true", held=parts("qpx")[1:2], job="next", changes=(change("qpx", "cpx"),))
    assert stage.until_told(GangEnded, 2).exit_code == 0
    assert tuple(stage.gpus.instances(1)) == parts("qpx")
    stage.start("true", job="whole", gpus=(1,), changes=(change(None, "qpx"),))
    assert stage.until_told(GangEnded, 3).exit_code == 0
    assert stage.gpus.mig_mode(1) == (False, False)
    assert CreatedInstances(stage.state_dir).every() == []


def test_a_gpu_of_which_a_gang_has_one_partition_keeps_its_mode(stage: Divided) -> None:
    stage.needs("sleep", "600", held=parts("cpx")[:1], changes=(change("cpx"),))
    stage.until_told(GangStarted)
    stage.needs("true", held=parts("qpx")[3:], job="next", changes=(change("qpx", "cpx"),))
    told = stage.until_told(GangStartFailed)
    assert not told.final and "must stay" in told.reason
    assert tuple(stage.gpus.instances(1)) == parts("cpx")
    assert len(CreatedInstances(stage.state_dir).every()) == 8


def test_a_mode_that_was_set_as_the_daemon_died_is_changed_by_the_next_one(stage: Divided) -> None:
    created = CreatedInstances(stage.state_dir)
    for part in parts("cpx"):
        created.note("n0", part, "")
    divide_by_hand(stage)
    stage.open().adopt()
    stage.needs("true", held=parts("dpx")[:1])
    assert stage.until_ended() == 0
    assert tuple(stage.gpus.instances(1)) == parts("dpx")


def test_a_mode_that_somebody_else_set_is_used_and_never_changed(stage: Divided) -> None:
    divide_by_hand(stage)
    stage.needs("true", held=parts("cpx")[:1])
    assert stage.until_ended() == 0
    stage.start("true", job="whole", gpus=(1,), changes=(change(None, "cpx"),))
    reason = stage.until_told(GangStartFailed).reason
    assert "--compute-partition SPX" in reason
    assert tuple(stage.gpus.instances(1)) == parts("cpx")
