"""Reading `slurmd -G`: a recorded node against its verdict, the forms that Slurm logs, and fuzz."""

import json
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.errors import BadFields, BadInput, GantreeError
from gantree.topology.discovery.gpus import machine_from
from gantree.topology.discovery.machines.slurmd_gres import parse
from support.examples import examples

SHARED = Path(__file__).parents[3] / "shared" / "data" / "topology" / "slurm"


def test_bridged_pairs_of_eight_a6000_have_nv4_and_nothing_else_is_told() -> None:
    path = SHARED / "slurmd-G-a6000-nvml-links.txt"
    if not path.exists():
        pytest.skip("needs ../shared/data/topology, whose prints carry no licence")
    found = parse(path.read_text(), path.name)
    assert found.nvlink_islands() == ((0, 1), (2, 3), (4, 5), (6, 7))
    links = {found.links[a][b] for a, b in combinations(range(8), 2)}
    assert links == {"NV4", None}
    assert found.warnings == ()
    assert machine_from(found, "m").numa == (0, 0, 0, 0, 1, 1, 1, 1)


def line(
    links: str, minor: int | str = 0, cores: str = "0-63", more: str = " Flags=HAS_FILE,ENV_NVML"
) -> str:
    return (
        f"slurmd: Gres Name=gpu Type=a100 Count=1 Index={minor} ID=7696487 File=/dev/nvidia{minor} "
        f"Cores={cores} CoreCnt=128 Links={links}{more}\n"
    )


def log_line(links: str, minor: int = 0, file: str = "", unique: str = "(null)") -> str:
    return (
        f"[2022-08-23T15:24:51.390]     GRES[gpu] Type:a100 Count:1 Cores(256):64-127  Links:{links} "
        f"Flags:HAS_FILE,ENV_NVML File:/dev/nvidia{minor}{file} UniqueId:{unique}\n"
    )


PAIR = line("-1,12", 0) + line("12,-1", 1, "64-127")
CAPS = ",/dev/nvidia-caps/nvidia-cap489,/dev/nvidia-caps/nvidia-cap490"


@pytest.mark.parametrize(
    "text",
    [
        PAIR,
        PAIR.replace("\n", "\r\n"),
        line("12,-1", 1, "64-127") + line("-1,12", 0),
        "slurmd: gpu/nvml: _get_system_gpu_list_nvml: 2 GPU system device(s) detected\n" + PAIR,
        PAIR + PAIR,
        line("-1,12", 0, more="") + line("12,-1", 1, "64-127", more=""),
        log_line("-1,7", 0) + log_line("7,-1", 1) + PAIR,
        PAIR + "slurmd: Gres Name=mps Type=(null) Count=100 ID=1 Links=(null)\n",
    ],
    ids=[
        "plain",
        "crlf",
        "other-order",
        "counted",
        "twice",
        "old",
        "log-before-the-final-list",
        "mps",
    ],
)
def test_the_same_node_is_read_however_it_was_logged(text: str) -> None:
    found = parse(text, "f")
    assert found.links == (("X", "NV12"), ("NV12", "X"))
    assert found.cpu_sets == (((0, 63),), ((64, 127),))
    assert found.warnings == ()


def test_the_lines_of_a_log_are_read_where_there_is_no_final_list() -> None:
    found = parse(log_line("-1,4") + log_line("4,-1", 1), "f")
    assert found.links == (("X", "NV4"), ("NV4", "X"))
    assert found.cpu_sets == (((64, 127),),) * 2


def test_gpus_are_numbered_by_their_own_place_and_not_by_their_device_file() -> None:
    found = parse(line("-1,0,2", 2) + line("0,-1,0", 0) + line("2,0,-1", 1), "f")
    assert found.links[0] == ("X", None, "NV2")
    assert "/dev/nvidiaN of them in this order: 2, 0, 1" in "\n".join(found.inferred)


@pytest.mark.parametrize(
    ("text", "links", "told"),
    [
        (line("-1,0") + line("0,-1", 1), [None], "no straight NVLinks; those over NVSwitches do not show"),
        (line("-1,12,12"), ["NV12", "NV12", None], "no line for GPU1, GPU2"),
        (line("-1,4,0") + line("4,-1,0", 1) + line("0,0,", 2, more="").rstrip("\n"), ["NV4", None, None],
         "line 3 is cut before the GPU's own place"),
        (line("-1,4,0") + line("4,-1,0", 1) + line("0,0,-1,1", 2, more="").rstrip("\n"), ["NV4", None, None], ""),
        ("9 GPU system device(s) detected\n" + PAIR, ["NV12"], "slurmd detected 9 GPUs, and 2 are described"),
    ],
)  # fmt: skip
def test_what_is_missing_is_told(text: str, links: list[str | None], told: str) -> None:
    found = parse(text, "f")
    assert [found.links[a][b] for a, b in combinations(range(found.gpus), 2)] == links
    assert told in "\n".join(found.warnings) and bool(told) == bool(found.warnings)


def test_a_gpu_cut_by_mig_has_no_links_and_the_number_that_is_left() -> None:
    text = line("0,-1", 1) + "".join(
        line(links, f"0{CAPS}", "0-31") for links in ("-1,0,0", "0,-1,0", "0,0,-1")
    )
    found = parse(text, "f")
    assert found.gpus == 2
    assert found.cpu_sets == (((0, 31),), ((0, 63),))
    assert "GPU0 is cut by MIG into 3 instances" in "\n".join(found.warnings)
    only = parse(
        log_line("-1,0", 2, CAPS, "MIG-GPU-1/9/0") + log_line("0,-1", 2, CAPS, "MIG-GPU-1/10/0"),
        "f",
    )
    assert only.gpus == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            line("-1,12") + line("4,-1", 1),
            "f:2: GPU1, Links: found 4 to GPU0; allowed: 12, as GPU0 says in line 1",
        ),
        (line("-1,-1") + line("4,-1", 1), "f:1: Links: found -1,-1; allowed: -1 once"),
        (line("0,4") + line("4,-1", 1), "f:1: Links: found 0,4; allowed: -1 once"),
        (
            line("-1,4,0") + line("4,-1", 1) + line("0,0,-1", 2),
            "f:2: Links: found 4,-1; allowed: 3 numbers",
        ),
        (
            line("-1,12") + line("-1,12", 1),
            "f:2: Links: found -1,12; allowed: GPU0 once, as in line 1",
        ),
        (line("-1,x") + line("4,-1", 1), "f:1: Links: found '-1,x'"),
        (line("-1,-7") + line("4,-1", 1), "f:1: Links: found '-1,-7'"),
        (line("-1,12", cores="9-1") + line("12,-1", 1), "f:1: Cores: found '9-1'"),
        (line(",".join(["-1"] + ["0"] * 600)), "f:1: Links"),
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
        (
            "slurmd: Gres Name=gpu Type=a100 Count=8\n",
            "the lines of GPUs have no Links; give what `slurmd -G`",
        ),
        (line("(null)"), "have no Links"),
        (
            line("-1,1", more=" Flags=HAS_FILE,ENV_RSMI"),
            "GPUs that are not NVIDIA's; for AMD's give",
        ),
        (" " * (9 << 20), "larger text"),
    ],
)
def test_what_is_no_print_is_named(text: str, told: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse(text, "f")
    assert told in str(caught.value)


THREE = (
    line("-1,4,0") + line("4,-1,0", 1) + line("0,0,-1", 2) + log_line("-1,0,0", 3, CAPS, "MIG-GPU")
)
PIECES = st.sampled_from(
    [
        line("-1,4"),
        line("4,-1", 1),
        line("0,-1"),
        log_line("-1"),
        "Links=-1",
        "Gres Name=gpu ",
        "Cores=0-1 ",
        "\n",
    ]
)


@settings(max_examples=examples(150), deadline=None)
@given(st.one_of(st.text(), st.lists(PIECES, max_size=8).map("".join)))
def test_no_text_makes_it_raise_anything_but_its_own_errors(text: str) -> None:
    check_no_stranger_error(text)


@settings(max_examples=examples(150), deadline=None)
@given(st.data())
def test_a_damaged_print_is_refused_or_read(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(THREE)))
    end = data.draw(st.integers(start, len(THREE)))
    middle = data.draw(st.one_of(st.just(""), st.just(THREE[start:end] * 2), st.text(max_size=9)))
    check_no_stranger_error(THREE[:start] + middle + THREE[end:])


def check_no_stranger_error(text: str) -> None:
    try:
        found = parse(text, "fuzz")
    except GantreeError as error:
        assert "fuzz" in str(error)
    else:
        json.dumps(found.as_json())
        assert machine_from(found, "m").gpus == found.gpus
