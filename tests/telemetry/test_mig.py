"""MIG instances as NVML tells of them; this machine's own where it has a driver."""

from pathlib import Path

import pytest

from gantree.model.errors import Unreachable
from gantree.model.placements import MigPart
from gantree.telemetry.mig import MigReading, instances_of, mig_instances
from gantree.topology.hardware.mig import TABLES

HAS_DRIVER = Path("/dev/nvidiactl").exists()


@pytest.mark.parametrize(
    ("name", "start", "instance"),
    [
        ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", 4, MigPart(2, "3g.40gb", 4)),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb+me", 6, MigPart(2, "1g.10gb+me", 6)),
        ("NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb", 0, None),
        ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", None, None),
        ("NVIDIA A100-SXM4-80GB", 0, None),
        ("", 0, None),
    ],
    ids=["whole", "with an engine", "a piece of one", "place not told", "no MIG device", "no name"],
)
def test_instances_of_which_profile_and_place_are_told_are_found(
    name: str, start: int | None, instance: MigPart | None
) -> None:
    found = instances_of([MigReading(2, name, start, "MIG-u")])
    assert found == ({} if instance is None else {instance: "MIG-u"})


def test_every_profile_of_every_gpu_is_read_from_a_name() -> None:
    cut = [
        table for table in TABLES.values() if not table.uniform
    ]  # AMD has partitions of other names
    names = {profile.name for table in cut for profile in table.profiles}
    for name in names:
        found = instances_of([MigReading(0, f"NVIDIA H100 MIG {name}", 0, "MIG-u")])
        assert found == {MigPart(0, name, 0): "MIG-u"}


@pytest.mark.skipif(HAS_DRIVER, reason="there is a driver here; the other test reads it")
def test_without_a_driver_it_says_so() -> None:
    with pytest.raises(Unreachable, match="no NVIDIA driver answers"):
        mig_instances()


@pytest.mark.skipif(not HAS_DRIVER, reason="needs an NVIDIA driver")
def test_with_a_driver_its_instances_are_read() -> None:
    for part, uuid in mig_instances().items():
        assert part.start >= 0
        assert uuid.startswith("MIG-")
