"""Signs of what is broken in what the DCGM exporter tells, and what each means."""

import pytest

from gantree.model.errors import BadInput
from gantree.telemetry.dcgm.health import SLOW_FOR, GpuWatch, has_xid, signs_in

TEXT = """
# HELP DCGM_FI_DEV_XID_ERRORS Value of the last XID error encountered.
# TYPE DCGM_FI_DEV_XID_ERRORS gauge
DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-a",pci_bus_id="00000000:0F:00.0",Hostname="n0",err_code="79",pod="train-0"} 79
DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-a",Hostname="n0"} 41
DCGM_FI_DEV_GPU_TEMP{gpu="1",UUID="GPU-b",Hostname="n0"} 42
DCGM_FI_DEV_ROW_REMAP_FAILURE{gpu="1",UUID="GPU-b",Hostname="n0"} 0
DCGM_EXP_XID_ERRORS_COUNT{gpu="1",Hostname="n0",window_size_in_ms="300000",xid="31"} 2
DCGM_EXP_GPU_HEALTH_STATUS{gpu="1",Hostname="n0",health_watch="MEM"} 10
DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL{gpu="1",Hostname="n0"} 77
DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{gpu="1",Hostname="n0"} NaN
"""


def test_signs_are_read_by_node_and_gpu_and_a_gpu_without_any_is_there() -> None:
    found = signs_in(TEXT + 'DCGM_FI_DEV_GPU_TEMP{gpu="2",Hostname="n0"} 42\n')
    assert found == {
        "n0": {
            0: {"DCGM_FI_DEV_XID_ERRORS": 79.0},
            1: {
                "DCGM_FI_DEV_ROW_REMAP_FAILURE": 0.0,
                "DCGM_EXP_XID_ERRORS_COUNT/31": 2.0,
                "DCGM_EXP_GPU_HEALTH_STATUS/MEM": 10.0,
            },
            2: {},
        }
    }


def test_what_is_no_metrics_is_refused() -> None:
    with pytest.raises(BadInput, match="Prometheus"):
        signs_in('DCGM_FI_DEV_XID_ERRORS{gpu="0"} many\n')


@pytest.mark.parametrize(
    ("sign", "value", "wrong"),
    [
        ("DCGM_FI_DEV_XID_ERRORS", 79, "XID 79 (GPU has fallen off the bus)"),
        ("DCGM_FI_DEV_XID_ERROR", 48, "XID 48 (double-bit ECC error)"),
        ("DCGM_FI_DEV_XID_ERRORS", 31, None),  # a program's page fault
        ("DCGM_FI_DEV_XID_ERRORS", 0, None),
        ("DCGM_EXP_XID_ERRORS_COUNT/95", 1, "XID 95 (uncontained ECC error)"),
        ("DCGM_EXP_XID_ERRORS_COUNT/95", 0, None),
        ("DCGM_EXP_XID_ERRORS_COUNT/43", 9, None),
        ("DCGM_EXP_GPU_HEALTH_STATUS/MEM", 20, "DCGM says that it fails (MEM)"),
        ("DCGM_EXP_GPU_HEALTH_STATUS/MEM", 10, None),
        ("DCGM_FI_DEV_ROW_REMAP_FAILURE", 1, "a row of memory could not be remapped"),
        ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 2, "double-bit ECC errors"),
        ("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", 3, None),  # in its life
        ("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", 3, None),  # since it was switched on
        ("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", 10**9, None),
        ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", 0x40, None),  # once
    ],
)
def test_what_signs_say_at_once(sign: str, value: float, wrong: str | None) -> None:
    assert GpuWatch().look({sign: value}, 0.0) == (() if wrong is None else (wrong,))


@pytest.mark.parametrize(
    ("sign", "first", "then", "wrong"),
    [
        ("UNCORRECTABLE_REMAPPED_ROWS", 3, 4, "a row of memory was remapped after an uncorrectable error"),
        ("UNCORRECTABLE_REMAPPED_ROWS", 3, 3, None),
        ("NVLINK_RECOVERY_ERROR_COUNT_TOTAL", 0, 1, "an NVLink was lost and came back"),
        ("NVLINK_RECOVERY_ERROR_COUNT_TOTAL", 9, 0, None),  # the driver was loaded anew
        ("NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", 0, 1000, "CRC errors on NVLink"),
        ("NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", 0, 999, None),
    ],
)  # fmt: skip
def test_what_counters_say_by_growing(
    sign: str, first: float, then: float, wrong: str | None
) -> None:
    watch, name = GpuWatch(), f"DCGM_FI_DEV_{sign}"
    watch.look({name: first}, 100.0)
    assert watch.look({name: then}, 110.0) == (() if wrong is None else (wrong,))


def test_a_gpu_that_is_slowed_for_long_is_unwell_and_one_that_cools_down_is_not() -> None:
    watch, hot = GpuWatch(), {"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": float(0x40 | 0x4)}
    told = [watch.look(hot, at) for at in range(SLOW_FOR)]
    assert told == [()] * (SLOW_FOR - 1) + [("slowed by the hardware, for heat or power",)]
    assert watch.look({"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": float(0x4)}, 100.0) == ()
    assert watch.look(hot, 101.0) == ()


def test_a_harmless_xid_is_one_too() -> None:
    assert has_xid({"DCGM_FI_DEV_XID_ERRORS": 45.0})
    assert has_xid({"DCGM_EXP_XID_ERRORS_COUNT/45": 1.0})
    assert not has_xid({"DCGM_FI_DEV_XID_ERRORS": 0.0, "DCGM_FI_DEV_ROW_REMAP_FAILURE": 1.0})
