"""What DCGM's exporter serves: the use of each GPU out of it, and nothing but that."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.model.errors import BadInput
from gantree.telemetry.dcgm.use import use_in
from gantree.telemetry.gpu_use import GpuUse

LABELS = 'UUID="GPU-{gpu}",pci_bus_id="00000000:07:00.0",device="nvidia{gpu}",modelName="NVIDIA H100 80GB HBM3"'
HEAD = "# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).\n# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n"


def line(name: str, value: object, gpu: int = 0, host: str | None = "n0", more: str = "") -> str:
    named = "" if host is None else f',Hostname="{host}"'
    return f'{name}{{gpu="{gpu}",{LABELS.format(gpu=gpu)}{named}{more}}} {value}\n'


def test_a_gpu_is_told_with_all_its_figures() -> None:
    text = HEAD + "".join(
        line(name, value)
        for name, value in (
            ("DCGM_FI_DEV_GPU_UTIL", 87),
            ("DCGM_FI_DEV_FB_USED", 40 * 1024),
            ("DCGM_FI_DEV_FB_FREE", 39.5 * 1024),
            ("DCGM_FI_DEV_FB_RESERVED", 512),
            ("DCGM_FI_DEV_POWER_USAGE", 612.4),
            ("DCGM_FI_DEV_GPU_TEMP", 64),
            ("DCGM_FI_DEV_SM_CLOCK", 1980),
        )
    )
    assert use_in(text) == {"n0": {0: GpuUse(0.87, 40.0, 80.0, 612.4, 64.0)}}


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ((line("DCGM_FI_DEV_GPU_UTIL", 5, gpu=3, host="n7"),), {"n7": {3: GpuUse(0.05)}}),
        ((line("DCGM_FI_DEV_GPU_UTIL", 5, host=None),), {"": {0: GpuUse(0.05)}}),
        ((line("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.25),), {"n0": {0: GpuUse(0.25)}}),
        (
            (line("DCGM_FI_DEV_GPU_UTIL", 50), line("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.1)),
            {"n0": {0: GpuUse(0.5)}},
        ),
        ((line("DCGM_FI_DEV_GPU_UTIL", 104),), {"n0": {0: GpuUse(1.0)}}),
        ((line("DCGM_FI_DEV_GPU_UTIL", "NaN"),), {}),
        ((line("DCGM_FI_DEV_GPU_UTIL", "-1"),), {}),
        ((line("DCGM_FI_DEV_FB_USED", "+Inf"),), {}),
        ((line("DCGM_FI_DEV_FB_USED", 1024),), {"n0": {0: GpuUse(memory_GiB=1.0)}}),
        (
            (
                line(
                    "DCGM_FI_PROF_GR_ENGINE_ACTIVE", 1, more=',GPU_I_PROFILE="3g.40gb",GPU_I_ID="1"'
                ),
            ),
            {},
        ),
        (("node_load1 3\n", 'up{job="x"} 1\n', "something else {\n"), {}),
        ((), {}),
    ],
)
def test_of_each_line_what_it_says_of_a_whole_gpu(
    lines: tuple[str, ...], found: dict[str, dict[int, GpuUse]]
) -> None:
    assert use_in("".join(lines)) == found


@pytest.mark.parametrize(
    "text",
    [
        "DCGM_FI_DEV_GPU_UTIL{gpu=0} 3\n",
        'DCGM_FI_DEV_GPU_UTIL{gpu="0"} many\n',
        'DCGM_FI_DEV_GPU_UTIL{gpu="0\n',
    ],
)
def test_what_is_no_metric_is_bad_input(text: str) -> None:
    with pytest.raises(BadInput, match="Prometheus"):
        use_in(text)


@given(st.text(), st.text(alphabet='{}=",0 \\\n'))
def test_any_text_is_read_or_is_bad_input(text: str, tail: str) -> None:
    with suppress(BadInput):
        assert isinstance(use_in(text + "DCGM_FI_DEV_GPU_UTIL{" + tail), dict)
