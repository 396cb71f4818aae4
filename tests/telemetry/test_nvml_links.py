"""What NVML says of the links of this machine's GPUs; a stand-in answers as a driver of an H100 does."""

from contextlib import nullcontext
from pathlib import Path

import pynvml
import pytest

from gantree.telemetry.dcgm.links import MAX_WIDTH, REPLAYS, WIDTH, GpuLinkWatch, Usual
from gantree.telemetry.link_judgement import Judged
from gantree.telemetry.nvml import links as nvml_links
from gantree.telemetry.nvml.links import links_here

HAS_DRIVER = Path("/dev/nvidiactl").exists()


def stand_in(monkeypatch: pytest.MonkeyPatch, down: frozenset[int] = frozenset()) -> None:
    """One GPU with 18 NVLinks, PCIe 5 x16 at x8, and utilisation that is not told (MIG)."""

    def refuses(*_: object) -> None:
        raise pynvml.NVMLError_NotSupported

    def state(gpu: object, link: int) -> int:
        if link >= 18:
            raise pynvml.NVMLError_InvalidArgument
        return int(link not in down)

    monkeypatch.setattr(nvml_links, "driver", nullcontext)
    monkeypatch.setattr(nvml_links, "gpu_handles", lambda: ["a handle"])
    answers = {WIDTH: 8, MAX_WIDTH: 16, REPLAYS: 0}
    for name in list(nvml_links._ASK):
        value = answers.get(name)
        ask = refuses if value is None else lambda gpu, value=value: value
        monkeypatch.setitem(nvml_links._ASK, name, ask)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetNvLinkState", state)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetNvLinkErrorCounter", lambda gpu, link, kind: 2)


def test_width_and_nvlinks_come_by_the_names_of_dcgm(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, down=frozenset({4}))
    (figures,) = links_here().values()
    watch, usual = GpuLinkWatch(), Usual(16.0, 18)
    assert watch.pcie("n0", 0, figures, usual, 0.0) == Judged(0.5, "PCIe x8 instead of x16")
    assert watch.nvlink("n0", 0, figures, usual, 0.0) == Judged(0.944, "17 of 18 NVLinks up")
    assert figures["DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL"] == 34.0
    assert "DCGM_FI_DEV_GPU_UTIL" not in figures


@pytest.mark.skipif(not HAS_DRIVER, reason="needs an NVIDIA driver")
def test_with_a_driver_each_gpu_tells_the_width_of_its_port() -> None:
    for figures in links_here().values():
        assert 0 < figures[WIDTH] <= figures[MAX_WIDTH] <= 32
