"""Reading `nvidia-smi nvlink -s`: recorded prints against their verdicts, a table of traps, and fuzz."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.errors import BadFields, BadInput, GantreeError
from gantree.topology.discovery.machines.nvidia.nvlink_status import (
    NvlinkStatus,
    carried_GBps,
    parse,
)
from support.examples import examples

SHARED = Path(__file__).parents[3] / "shared" / "data" / "topology" / "nvlink-status"


def shared(name: str) -> NvlinkStatus:
    path = SHARED / name
    if not path.exists():
        pytest.skip("needs ../shared/data/topology, whose prints carry no licence")
    return parse(path.read_text(), name)


def test_twelve_of_eighteen_links_of_a_bridged_h100_are_active_at_25_GBps() -> None:
    found = shared("h100-pcie-bridge-nvlink-s-gpu0.txt")
    assert (found.gpus, found.links_of_gpu, found.active_of_gpu) == ((0,), (18,), (12,))
    assert found.GBps_of_link == (25.0,)
    assert "12 of 18 links are active, which is NV12" in "\n".join(found.inferred)
    assert found.warnings == ()


def test_error_counters_alone_tell_no_links() -> None:
    found = shared("h100-nvlink-e-errors-excerpt.txt")
    assert found.active_of_gpu == found.links_of_gpu == (None,)
    assert "only error counters are given" in "\n".join(found.warnings)


@pytest.mark.parametrize(
    ("wire", "carried"),
    [(26.562, 25.0), (26.5625, 25.0), (53.125, 50.0), (106.25, 100.0), (25.781, 25.0), (25.0, 25.0),
     (14.062, 14.062), (20.0, 20.0), (19.531, 19.531), (50.0, 50.0), (0.0, 0.0), (99999.0, 99999.0)],
)  # fmt: skip
def test_the_rate_of_the_wires_is_made_the_rate_that_is_carried(
    wire: float, carried: float
) -> None:
    assert carried_GBps(wire) == carried


def test_a_gpu_without_links_may_say_so_at_the_end_of_its_line_or_below_it() -> None:
    text = (
        "GPU 0: NVIDIA RTX A4000 (UUID: GPU-a) Device does not have or support Nvlink\n"
        "GPU 1: Quadro RTX 5000 (UUID: GPU-b) NVML: Unable to retrieve NVLink information as all links are inActive\n"
        "GPU 2: NVIDIA RTX A4000 (UUID: GPU-c)\n\t Device does not support NVLink\n"
        "GPU 3: NVIDIA L4 (UUID: GPU-d)\n\t (Not supported)\n"
    )
    found = parse(text, "f")
    assert (found.active_of_gpu, found.warnings) == ((0, 0, 0, 0), ())
    assert found.uuid_of_gpu == ("GPU-a", "GPU-b", "GPU-c", "GPU-d")
    assert found.product_of_gpu[0] == "NVIDIA RTX A4000"


def gpu(number: int, links: str, rate: str = "25 GB/s", product: str = "A100") -> str:
    """A GPU with one character a link: + is active, - is not."""
    lines = [f"GPU {number}: NVIDIA {product} (UUID: GPU-{number})"]
    lines += [f"\t Link {at}: {rate if up == '+' else '<inactive>'}" for at, up in enumerate(links)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("text", "links", "active", "told"),
    [
        (gpu(0, "++++") + gpu(1, "++++"), (4, 4), (4, 4), ""),
        (gpu(0, "++++") + gpu(1, "++-+"), (4, 4), (4, 3), "GPU1: 3 links are active, others of its model have 4"),
        (gpu(0, "++++") + gpu(1, "++", product="A30"), (4, 2), (4, 2), ""),
        (gpu(0, "++++") + gpu(1, "+++"), (4, None), (4, None), "GPU1: 3 links are given, others are missing"),
        (gpu(0, "++++").replace("Link 2", "[...]"), (None,), (None,), "3 links are given"),
        (gpu(0, "++") + gpu(1, ""), (2, None), (2, None), "GPU1: no link is given"),
        (gpu(0, "++++") + gpu(1, "") + "NVML: Unable to retrieve NVLink information as all links are inActive\n",
         (4, None), (4, 0), "GPU1: 0 links are active, others of its model have 4"),
        (gpu(0, "") + "NVML: Unable to retrieve NVLink information as all links are inActive\n", (None,), (0,), ""),
        (gpu(3, "++++"), (4,), (4,), ""),
        ("$ nvidia-smi nvlink -s\r\n" + gpu(0, "++").replace("\n", "\r\n"), (2,), (2,), ""),
        (gpu(0, "++") + gpu(0, "++"), (2,), (2,), ""),
        (gpu(0, "++") + "GPU 0: NVIDIA A100 (UUID: GPU-0)\n Link 0: Replay Errors: 0\n Link 1: CRC Errors: 891\n",
         (2,), (2,), "GPU0: errors on its links (link 1: 891)"),
        (gpu(0, "+") + " Link 1: 12.5 GB/s\n", (2,), (2,), "its links run at 12.5 GB/s and 25 GB/s"),
        (gpu(0, "++") + " Link 0, P2P is supported: true\n", (2,), (2,), ""),
    ],
)  # fmt: skip
def test_links_are_counted_and_what_is_odd_is_told(
    text: str, links: tuple[int | None, ...], active: tuple[int | None, ...], told: str
) -> None:
    found = parse(text, "f")
    assert (found.links_of_gpu, found.active_of_gpu) == (links, active)
    assert told in "\n".join(found.warnings) and bool(told) == bool(found.warnings)


def test_gpus_keep_the_numbers_that_were_printed() -> None:
    assert parse(gpu(7, "+") + gpu(2, "++", product="A30"), "f").gpus == (2, 7)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            gpu(0, "++") + gpu(0, "+-"),
            "f:6: Link 1: found inactive; allowed: 25 GB/s, as in line 3",
        ),
        (
            gpu(0, "+") + gpu(0, "+").replace("GPU-0", "GPU-9"),
            "f:3: GPU 0, UUID: found GPU-9; allowed: GPU-0",
        ),
    ],
)
def test_contradictions_are_refused_with_their_lines(text: str, told: str) -> None:
    with pytest.raises(BadFields) as caught:
        parse(text, "f")
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "the text is empty"),
        ("GPU 0: NVIDIA H100 (UUID: GPU-1)", "GPUs, but no link of theirs"),
        ("\tGPU0\tGPU1\n GPU0\tX\tOK\n", "peer-to-peer matrix"),
        (" " * (9 << 20), "larger text"),
    ],
)
def test_what_is_no_status_is_named(text: str, told: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse(text, "f")
    assert told in str(caught.value)


LINES = st.sampled_from(
    ["GPU 0: A (UUID: GPU-0)", "GPU 1: A", "GPU 99999: A", " Link 0: 25 GB/s", " Link 1: <inactive>",
     " Link 1: 26.562 GB/s", " Link 999: 99999.9 GB/s", " Link 0: CRC Errors: 7", "all links are inActive", "", "Link"]
)  # fmt: skip


@settings(max_examples=examples(150), deadline=None)
@given(st.one_of(st.text(), st.lists(LINES, max_size=30).map("\n".join)))
def test_no_text_makes_it_raise_anything_but_its_own_errors(text: str) -> None:
    try:
        found = parse(text, "fuzz")
    except GantreeError as error:
        assert "fuzz" in str(error)
    else:
        counts = zip(found.active_of_gpu, found.links_of_gpu, strict=True)
        assert all(active is None or links is None or active <= links for active, links in counts)
        assert len(found.gpus) == len(found.GBps_of_link) == len(found.active_of_gpu)


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(0, 200))
def test_a_print_cut_at_its_end_never_counts_too_few_links(length: int) -> None:
    text = gpu(0, "++++") + gpu(1, "++++")
    try:
        found = parse(text[:length], "f")
    except GantreeError:
        return
    assert set(found.active_of_gpu[1:]) <= {None, 4}
