"""This machine as it is: with a driver it is read and agrees with itself, without one it says so."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest

from gantree.model.errors import Unreachable
from gantree.placement.machine.devices import choose_gpus
from gantree.telemetry.gpu_use import GpuUse
from gantree.telemetry.nvml import use as nvml_use
from gantree.telemetry.nvml.driver import detect, uuids
from gantree.telemetry.nvml.use import use_here

HAS_DRIVER = Path("/dev/nvidiactl").exists()


@pytest.mark.skipif(HAS_DRIVER, reason="there is a driver here; the other test reads it")
def test_without_a_driver_it_says_so_and_offers_a_virtual_cluster() -> None:
    for ask in (detect, uuids, use_here):
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


@pytest.mark.skipif(not HAS_DRIVER, reason="needs an NVIDIA driver")
def test_with_a_driver_each_gpu_tells_how_busy_it_is() -> None:
    told = use_here()
    assert sorted(told) == list(range(len(uuids())))
    assert all(use.busy is None or 0 <= use.busy <= 1 for use in told.values())


def test_what_nvml_tells_comes_in_our_units_and_what_it_does_not_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuses(*_: object) -> None:
        raise pynvml.NVMLError_NotSupported

    answers = {
        "nvmlDeviceGetUtilizationRates": lambda gpu: SimpleNamespace(gpu=87, memory=40),
        "nvmlDeviceGetMemoryInfo": lambda gpu: SimpleNamespace(used=40 << 30, total=80 << 30),
        "nvmlDeviceGetPowerUsage": lambda gpu: 612_400,
        "nvmlDeviceGetTemperature": lambda gpu, sensor: 64,
    }
    monkeypatch.setattr(nvml_use, "driver", nullcontext)
    monkeypatch.setattr(nvml_use, "gpu_handles", lambda: ["a handle"])
    for name, ask in answers.items():
        monkeypatch.setattr(pynvml, name, ask)
    assert use_here() == {0: GpuUse(0.87, 40.0, 80.0, 612.4, 64.0)}
    for name in answers:
        monkeypatch.setattr(pynvml, name, refuses)
    assert use_here() == {0: GpuUse()}
