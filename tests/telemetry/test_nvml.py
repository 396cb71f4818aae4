"""This machine as it is: with a driver it is read and agrees with itself, without one it says so."""

from pathlib import Path

import pytest

from gantree.model.errors import Unreachable
from gantree.placement.devices import choose_gpus
from gantree.telemetry.nvml import detect, uuids

HAS_DRIVER = Path("/dev/nvidiactl").exists()


@pytest.mark.skipif(HAS_DRIVER, reason="there is a driver here; the other test reads it")
def test_without_a_driver_it_says_so_and_offers_a_virtual_cluster() -> None:
    for ask in (detect, uuids):
        with pytest.raises(Unreachable, match=r"no NVIDIA driver answers.*gantree up --virtual"):
            ask()


@pytest.mark.skipif(not HAS_DRIVER, reason="needs an NVIDIA driver")
def test_with_a_driver_the_machine_it_reads_can_be_placed_on() -> None:
    found = detect("here").machine
    assert found.name == "here"
    assert found.gpus == len(uuids()) > 0
    assert all(name.startswith("GPU-") for name in uuids())
    assert sorted(choose_gpus(found, (1 << found.gpus) - 1, found.gpus)) == list(range(found.gpus))
    assert found.gpu is None or found.gpu.endswith("GB")
