"""The simulated NVML: what fits, what is refused and how, and that it survives whoever partitions."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.gpu_partitions import PartitionError, PartitionFault
from gantree.model.placements import MigPart
from gantree.telemetry.partitions.simulated import SimulatedPartitioner
from gantree.topology.hardware.mig import TABLES, MigInstance
from support.examples import examples

H100 = TABLES["H100-80GB"]


@pytest.fixture
def gpus(tmp_path: Path) -> SimulatedPartitioner:
    """A node whose GPU 0 is in MIG mode."""
    gpus = SimulatedPartitioner(tmp_path / "n0.json", "n0", H100)
    gpus.set_mig_mode(0, on=True)
    return gpus


@contextmanager
def refused(fault: PartitionFault) -> Iterator[None]:
    with pytest.raises(PartitionError) as caught:
        yield
    assert caught.value.fault is fault


def test_an_instance_is_there_until_it_is_destroyed(gpus: SimulatedPartitioner) -> None:
    uuid = gpus.create(0, "3g.40gb", 4)
    assert gpus.instances(0) == {MigPart(0, "3g.40gb", 4): uuid}
    assert uuid.startswith("MIG-")
    gpus.destroy(0, "3g.40gb", 4)
    gpus.destroy(0, "3g.40gb", 4)
    assert gpus.instances(0) == {}


def test_creating_twice_creates_once(gpus: SimulatedPartitioner) -> None:
    assert gpus.create(0, "1g.10gb", 6) == gpus.create(0, "1g.10gb", 6)
    assert len(gpus.instances(0)) == 1


def test_the_state_outlives_who_partitions(gpus: SimulatedPartitioner, tmp_path: Path) -> None:
    uuid = gpus.create(0, "1g.10gb", 6)
    again = SimulatedPartitioner(tmp_path / "n0.json", "n0", H100)
    assert again.instances(0) == {MigPart(0, "1g.10gb", 6): uuid}
    assert again.mig_mode(0) == (True, True)


@pytest.mark.parametrize(
    ("gpu", "profile", "start", "fault"),
    [
        (0, "7g.80gb", 0, PartitionFault.INSUFFICIENT_RESOURCES),
        (0, "3g.40gb", 2, PartitionFault.INVALID_ARGUMENT),
        (0, "9g.90gb", 0, PartitionFault.INVALID_ARGUMENT),
        (1, "1g.10gb", 0, PartitionFault.NOT_SUPPORTED),
    ],
    ids=["no room", "no such place", "no such profile", "MIG mode off"],
)
def test_what_does_not_fit_is_refused_as_nvml_refuses(
    gpus: SimulatedPartitioner, gpu: int, profile: str, start: int, fault: PartitionFault
) -> None:
    gpus.create(0, "1g.10gb", 6)
    with refused(fault):
        gpus.create(gpu, profile, start)
    assert len(gpus.instances(0)) == 1


def test_an_instance_that_a_process_sees_is_in_use(gpus: SimulatedPartitioner) -> None:
    uuid = gpus.create(0, "1g.10gb", 6)
    command = [sys.executable, "-I", "-S", "-c", "print(1, flush=True); input()"]
    process = subprocess.Popen(
        command,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": uuid},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        with refused(PartitionFault.IN_USE):
            gpus.destroy(0, "1g.10gb", 6)
        process.communicate(b"\n")
    gpus.destroy(0, "1g.10gb", 6)


def test_mig_mode_stays_on_while_an_instance_is_there(gpus: SimulatedPartitioner) -> None:
    gpus.create(0, "1g.10gb", 6)
    with refused(PartitionFault.IN_USE):
        gpus.set_mig_mode(0, on=False)
    assert gpus.mig_mode(0) == (True, False)
    gpus.reset(0)
    assert gpus.mig_mode(0) == (False, False)
    assert gpus.instances(0) == {}


def test_mig_mode_is_pending_until_a_gpu_that_needs_it_is_reset(gpus: SimulatedPartitioner) -> None:
    gpus.require_reset(1)
    with refused(PartitionFault.RESET_REQUIRED):
        gpus.set_mig_mode(1, on=True)
    assert gpus.mig_mode(1) == (False, True)
    gpus.reset(1)
    assert gpus.mig_mode(1) == (True, True)


def test_it_fails_as_often_as_it_is_told(gpus: SimulatedPartitioner) -> None:
    gpus.fail_next("create", PartitionFault.NO_PERMISSION, times=2)
    for _ in range(2):
        with refused(PartitionFault.NO_PERMISSION):
            gpus.create(0, "1g.10gb", 6)
    gpus.create(0, "1g.10gb", 6)


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(st.sampled_from([p.name for p in H100.profiles]), st.integers(0, 7))))
def test_it_keeps_to_the_placements_of_the_table(
    tmp_path_factory: pytest.TempPathFactory, wanted: list[tuple[str, int]]
) -> None:
    gpus = SimulatedPartitioner(tmp_path_factory.mktemp("gpus") / "n.json", "n", H100)
    gpus.set_mig_mode(0, on=True)
    there: list[MigInstance] = []
    for profile, start in wanted:
        instance = MigInstance(profile, start)
        fits = instance in there or start in H100.fits(there, profile)
        try:
            gpus.create(0, profile, start)
        except PartitionError:
            assert not fits
        else:
            assert fits
            there += [] if instance in there else [instance]
    assert set(gpus.instances(0)) == {MigPart(0, one.profile, one.start) for one in there}
