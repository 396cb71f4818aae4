"""What figures of a GPU's links mean, and which mean nothing."""

import pytest

from gantree.telemetry.dcgm.health import signs_in
from gantree.telemetry.dcgm.links import GpuLinkWatch, Usual, nvlinks_of
from gantree.telemetry.link_judgement import Judged

WIDTH, MAX_WIDTH = "DCGM_FI_DEV_PCIE_LINK_WIDTH", "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH"
GEN, MAX_GEN, UTIL = (
    "DCGM_FI_DEV_PCIE_LINK_GEN",
    "DCGM_FI_DEV_PCIE_MAX_LINK_GEN",
    "DCGM_FI_DEV_GPU_UTIL",
)
REPLAYS = "DCGM_FI_DEV_PCIE_REPLAY_COUNTER"
STATE, P2P = "DCGM_FI_DEV_NVLINK_GET_STATE", "DCGM_EXP_P2P_STATUS"
CRC = "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL"
USUAL = Usual(16.0, 18, peers=True)


@pytest.mark.parametrize(
    ("figures", "judged"),
    [
        ({WIDTH: 8, MAX_WIDTH: 16}, Judged(0.5, "PCIe x8 instead of x16")),
        ({WIDTH: 16, MAX_WIDTH: 16}, Judged(1.0)),
        ({WIDTH: 8}, Judged(0.5, "PCIe x8 instead of x16")),  # as its peers
        ({WIDTH: 8, MAX_WIDTH: 8}, Judged(1.0)),  # the slot has no more
        ({WIDTH: 16, MAX_WIDTH: 8}, None),  # contradicts itself
        ({WIDTH: 0, MAX_WIDTH: 16}, None),
        ({WIDTH: 64}, None),
        ({WIDTH: 8, MAX_WIDTH: 64}, None),
        ({GEN: 1, MAX_GEN: 5, UTIL: 0}, None),  # idle: it saves power
        ({GEN: 7, MAX_GEN: 5, UTIL: 99}, None),
        ({WIDTH: 16, GEN: 1, MAX_GEN: 5}, Judged(1.0)),
        ({"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": 0}, None),
        ({}, None),
    ],
)
def test_what_a_pcie_port_carries(figures: dict[str, float], judged: Judged | None) -> None:
    assert GpuLinkWatch().pcie("n0", 0, figures, USUAL, 0.0) == judged


def test_a_low_generation_counts_of_a_gpu_that_computes_until_the_whole_one_is_read() -> None:
    watch = GpuLinkWatch()

    def look(gen: float, util: float) -> Judged | None:
        return watch.pcie("n0", 0, {GEN: gen, MAX_GEN: 5, UTIL: util}, USUAL, 0.0)

    assert look(4, 90) is None
    assert look(4, 0) is None, "not in a row"
    assert look(4, 90) is None
    slow = Judged(0.5, "PCIe generation 4 instead of 5")
    assert look(4, 90) == slow
    assert look(1, 0) == slow, "idle: it says nothing"
    assert look(5, 10) == Judged(1.0)
    assert look(1, 0) is None


def test_replays_count_above_the_limit_of_dcgm() -> None:
    watch = GpuLinkWatch()

    def look(replays: float, at: float) -> Judged | None:
        return watch.pcie("n0", 0, {WIDTH: 16, REPLAYS: replays}, USUAL, at)

    assert [look(step, 15.0 * step) for step in range(6)] == [Judged(1.0)] * 6, "4 a minute"
    several = [look(5 + 3.0 * step, 75 + 15.0 * step) for step in range(1, 6)]
    assert several[-1] == Judged(0.9, "PCIe replays")


@pytest.mark.parametrize(
    ("figures", "judged"),
    [
        ({f"{STATE}/{link}": 1.0 for link in range(18)}, Judged(1.0)),
        ({f"{STATE}/{link}": float(link > 8) for link in range(18)}, Judged(0.5, "9 of 18 NVLinks up")),
        ({f"{STATE}/{link}": 0.0 for link in range(18)}, Judged(0.0, "0 of 18 NVLinks up")),
        ({f"{P2P}/1": 0.0, f"{P2P}/2": 3.0}, None),  # some are reached
        ({f"{P2P}/1": 3.0, f"{P2P}/2": 3.0}, Judged(0.0, "no GPU is reached over NVLink")),
        ({f"{P2P}/1": 6.0, f"{P2P}/2": 6.0}, None),  # unknown
        ({}, None),
    ],
)  # fmt: skip
def test_what_nvlinks_carry(figures: dict[str, float], judged: Judged | None) -> None:
    assert GpuLinkWatch().nvlink("n0", 0, figures, USUAL, 0.0) == judged


def test_gpus_without_nvlink_reach_no_peer_and_lack_nothing() -> None:
    alone = {f"{P2P}/1": 3.0, f"{P2P}/2": 3.0}
    assert GpuLinkWatch().nvlink("n0", 0, alone, Usual(16.0), 0.0) is None


def test_errors_on_nvlink_count_as_a_rate_and_not_as_a_sum() -> None:
    watch = GpuLinkWatch()
    looks = [watch.nvlink("n0", 0, {CRC: 1e9}, USUAL, 15.0 * step) for step in range(5)]
    assert looks == [Judged(1.0)] * 5
    looks = [
        watch.nvlink("n0", 0, {CRC: 1e9 + 30.0 * s}, USUAL, 75 + 15.0 * s) for s in range(1, 6)
    ]
    assert looks[-1] == Judged(0.9, "errors on NVLink")


def test_links_are_told_apart_in_the_exporters_text() -> None:
    """The link's own lines have `nvlink` first and the node as `hostname`, as the exporter writes them today."""
    text = "".join(
        f'{STATE}{{nvlink="{link}",gpu="3",gpu_uuid="GPU-a",hostname="n1"}} {int(link != 2)}\n'
        for link in range(4)
    )
    assert nvlinks_of(signs_in(text)["n1"][3]) == (3, 4)


def test_a_blank_of_dcgm_is_no_figure() -> None:
    text = f'{WIDTH}{{gpu="0",Hostname="n0"}} 2147483632\n{MAX_WIDTH}{{gpu="0",Hostname="n0"}} 9223372036854775794\n'
    assert signs_in(text).get("n0", {}).get(0, {}) == {}
