"""Compute partitions by amd-smi, against a program that prints as it does: modes, UUIDs, changes, refusals."""

from pathlib import Path
from typing import Any

import pytest

from gantree.control.nodes.sharing.host_gpus import whole_gpu_ids
from gantree.model.errors import Unreachable
from gantree.model.gpu_partitions import PartitionError, PartitionFault
from gantree.model.placements import MigPart
from gantree.telemetry.partitions.amd_smi import AmdSmiPartitioner, check_amd_smi
from gantree.topology.hardware.mig import TABLES
from support.amd_smi import AmdSmi

MI300X = TABLES["MI300X-192GB"]


def machine(folder: Path, **state: Any) -> tuple[AmdSmi, AmdSmiPartitioner]:
    tool = AmdSmi(folder, **state)
    return tool, AmdSmiPartitioner(MI300X, str(tool.program))


def test_a_whole_gpu_is_divided_and_has_partitions_of_its_own(tmp_path: Path) -> None:
    tool, gpus = machine(tmp_path)
    assert (gpus.instances(1), gpus.mig_mode(1)) == ({}, (False, False))
    uuid = gpus.create(1, "qpx", 2)
    assert tool.modes == ["SPX", "QPX"]
    there = gpus.instances(1)
    assert [(part.profile, part.start) for part in there] == [("qpx", at) for at in (0, 2, 4, 6)]
    assert there[MigPart(1, "qpx", 2)] == uuid and len(set(there.values())) == 4
    assert gpus.create(1, "qpx", 6) == there[MigPart(1, "qpx", 6)]
    assert len(tool.settings) == 1
    assert gpus.mig_mode(1) == (True, True) and gpus.every_instance() == there


def test_a_gpu_behind_divided_ones_is_changed_by_its_number_among_the_partitions(
    tmp_path: Path,
) -> None:
    tool, gpus = machine(tmp_path, gpus=3)
    gpus.create(0, "cpx", 0)
    gpus.create(1, "dpx", 4)
    assert gpus.by_hand(2) == "amd-smi set --gpu 10 --compute-partition SPX"
    gpus.destroy(1, "cpx", 0)
    assert tool.modes == ["CPX", "DPX", "SPX"]
    gpus.destroy(1, "dpx", 0)
    gpus.set_mig_mode(0, on=False)
    assert tool.modes == ["SPX", "SPX", "SPX"]
    assert [words[2] for words in tool.settings] == ["0", "8", "8", "0"]


def test_whole_gpus_have_the_ids_of_the_runtime_whatever_the_others_are_divided_into(
    tmp_path: Path,
) -> None:
    tool, gpus = machine(tmp_path)
    tool.write(modes=["CPX", "SPX"])
    ids = whole_gpu_ids(gpus, "here")
    assert ids("here", (1,)) == "GPU-0000000100000000"
    assert ids("elsewhere", (1,)) == "1"
    assert whole_gpu_ids(AmdSmiPartitioner(MI300X, "/no/amd-smi"), "here")("here", (0, 1)) == "0,1"


def test_the_program_is_asked_again_once_the_driver_shows_another_mode(tmp_path: Path) -> None:
    tool, files = AmdSmi(tmp_path), tmp_path / "driver"
    for gpu in ("0000:00:00.0", "0000:01:00.0"):
        (files / gpu).mkdir(parents=True)
        (files / gpu / "current_compute_partition").write_text("SPX\n")
    gpus = AmdSmiPartitioner(MI300X, str(tool.program), files)
    assert set(gpus.whole_gpus()) == {0, 1}
    tool.write(modes=["CPX", "SPX"])
    assert set(gpus.whole_gpus()) == {0, 1}, "the driver has not changed it"
    (files / "0000:00:00.0" / "current_compute_partition").write_text("CPX\n")
    assert set(gpus.whole_gpus()) == {1} and len(gpus.every_instance()) == 8


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ("AMDSMI_STATUS_BUSY - Device busy", PartitionFault.IN_USE),
        ("PermissionError: Command requires elevation", PartitionFault.NO_PERMISSION),
        ("AMDSMI_STATUS_NOT_SUPPORTED - Feature not supported", PartitionFault.NOT_SUPPORTED),
        ("AMDSMI_STATUS_NO_DATA - 40", PartitionFault.UNKNOWN),
    ],
)
def test_a_change_that_did_not_come_about_is_an_error_in_the_words_of_the_tool(
    tmp_path: Path, words: str, fault: PartitionFault
) -> None:
    tool, gpus = machine(tmp_path, refuse=words)
    with pytest.raises(PartitionError) as error:
        gpus.create(0, "cpx", 0)
    assert error.value.fault is fault and tool.modes == ["SPX", "SPX"]
    assert "could not set GPU 0 from spx to cpx" in str(error.value)


def test_a_gpu_in_another_mode_leaves_no_room(tmp_path: Path) -> None:
    tool, gpus = machine(tmp_path)
    gpus.create(0, "qpx", 0)
    for profile, start, fault in (
        ("cpx", 0, PartitionFault.INSUFFICIENT_RESOURCES),
        ("cpx", 9, PartitionFault.INVALID_ARGUMENT),
        ("tpx", 0, PartitionFault.INVALID_ARGUMENT),
    ):
        with pytest.raises(PartitionError) as error:
            gpus.create(0, profile, start)
        assert error.value.fault is fault
    with pytest.raises(PartitionError, match="lists 2 GPUs, and no GPU 7"):
        gpus.instances(7)
    assert tool.modes == ["QPX", "SPX"]


def test_partitions_that_cannot_be_told_apart_are_an_error_with_the_way_out(tmp_path: Path) -> None:
    _, gpus = machine(tmp_path, shared_uuids=True)
    with pytest.raises(PartitionError, match=r"ROCm 7\.0 or newer"):
        gpus.create(0, "cpx", 0)
    with pytest.raises(Unreachable, match=r"ROCm 7\.0 or newer"):
        gpus.every_instance()


def test_a_machine_of_other_gpus_or_without_the_tool_is_refused_with_words(tmp_path: Path) -> None:
    _, gpus = machine(tmp_path, modes=["CPX"], xcds=6)
    with pytest.raises(PartitionError, match="6 partitions in mode cpx, unlike a MI300X-192GB"):
        gpus.instances(0)
    with pytest.raises(Unreachable, match="cannot be started"):
        check_amd_smi(str(tmp_path / "none"))
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\necho 'no GPU here'\n")
    silent.chmod(0o755)
    with pytest.raises(Unreachable, match="what amd-smi printed is not known"):
        check_amd_smi(str(silent))
