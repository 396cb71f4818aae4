"""Reading `nvidia-smi topo -m`: recorded machines against their verdicts, a table of traps, and fuzz."""

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.errors import BadFields, BadInput, GantreeError
from gantree.topology.discovery.gpus import GpuTopology, machine_from
from gantree.topology.discovery.machines.nvidia.nvidia_smi import parse
from support.examples import examples

DATA = Path(__file__).parents[1] / "data" / "nvidia_smi"
SHARED = Path(__file__).parents[3] / "shared" / "data" / "topology" / "nvidia-smi-topo"
VERDICTS: dict[str, Any] = json.loads((DATA / "verdicts.json").read_text())
OURS = sorted(path.stem for path in DATA.glob("*.txt"))


def expected_links(verdict: dict[str, Any]) -> list[list[str | None]]:
    gpus, links = verdict["gpus"], {}
    for name, pairs in sorted(verdict["links"].items(), key=lambda item: item[1] == "rest"):
        for a, b in combinations(range(gpus), 2):
            if (
                pairs == "all"
                or f"{a}-{b}" in pairs.split()
                or (pairs == "rest" and (a, b) not in links)
            ):
                links[a, b] = None if name == "None" else name
    return [
        ["X" if a == b else links[min(a, b), max(a, b)] for b in range(gpus)] for a in range(gpus)
    ]


def assert_verdict(text: str, name: str) -> None:
    verdict = VERDICTS[name]
    answer = parse(text, name).as_json()
    assert list(answer)[:6] == [
        "gpus",
        "links",
        "nvlink_islands",
        "numa",
        "nearest_nics",
        "warnings",
    ]
    for key in ("gpus", "nvlink_islands", "numa", "nearest_nics"):
        assert answer[key] == verdict[key], key
    assert answer["links"] == expected_links(verdict)
    assert bool(answer["warnings"]) == verdict["warns"], answer["warnings"]


@pytest.mark.parametrize("name", OURS)
def test_each_recorded_machine_gets_its_verdict(name: str) -> None:
    assert_verdict((DATA / f"{name}.txt").read_text(), name)


@pytest.mark.parametrize("name", sorted(VERDICTS))
def test_each_collected_print_gets_its_verdict(name: str) -> None:
    path = SHARED / f"{name}.txt"
    if not path.exists():
        pytest.skip("needs ../shared/data/topology, whose prints carry no licence")
    assert_verdict(path.read_text(), name)


def test_peer_matrices_are_refused_by_name() -> None:
    paths = sorted(SHARED.glob("*p2p*.txt"))
    if not paths:
        pytest.skip("needs ../shared/data/topology, whose prints carry no licence")
    for path in paths:
        with pytest.raises(BadInput, match="peer-to-peer matrix"):
            parse(path.read_text(), path.name)


def table(*lines: str) -> str:
    return "\n".join(lines) + "\n"


PAIR = (" GPU0 GPU1 CPU Affinity NUMA Affinity", "GPU0 X NV4 0-7 0", "GPU1 NV4 X 8-15 1")


@pytest.mark.parametrize(
    "text",
    [
        table(*PAIR),
        "\ufeff" + table(*PAIR),
        table(*PAIR).replace("\n", "\r\n"),
        table(*PAIR).replace(" ", "\t"),
        table(*PAIR).replace(" ", "\u00a0  "),
        table(*PAIR).replace(" GPU0 ", "\x1b[4mGPU0 ", 1).replace("NUMA Affinity", "NUMA Affinity\x1b[0m"),
        table(*PAIR).replace(" GPU0 ", "[4mGPU0 ", 1).replace("NUMA Affinity", "NUMA Affinity[0m"),
        table("$ nvidia-smi topo -m", *PAIR, "", "GPU0 is the one that fails", "Legend:", "  X    = Self"),
        table(*PAIR).replace(" GPU0 ", "\x1b[4mGPU0 ", 1).replace("NUMA Affinity", "NUMA Affinity\x1b(B\x1b[m"),
        table(" GPU0 GPU1 CPU", "Affinity NUMA Affinity", "GPU0 X", "NV4 0-7 0", "GPU1 NV4 X", "8-15 1"),
        table(*PAIR, "", "\tGPU0\tGPU1", " GPU0\tX\tOK", " GPU1\tOK\tX"),
        table(*PAIR, "", "\tNVMe0\tNVMe1", " GPU0\tPIX\tSYS", " GPU1\tSYS\tPIX", "", "  NVMe0: nvme0n1"),
        table(*(f"> {line}" for line in PAIR)),
        table(*(f"# {line}" for line in PAIR)),
        table("||GPU0|GPU1|CPU Affinity|NUMA Affinity|", "|---|---|---|---|---|", *(
            f"|{line.replace(' ', '|')}|" for line in PAIR[1:])),
        table(PAIR[0].removesuffix(" Affinity"), *PAIR[1:]),
        table(PAIR[0], "", PAIR[1], "", PAIR[2]),
    ],
    ids=["plain", "bom", "crlf", "tabs", "nbsp", "ansi", "ansi-without-escape", "terminfo-reset", "prose", "wrapped",
         "then-p2p", "then-nvme", "quoted", "comment", "markdown", "short-title", "blank-lines"],
)  # fmt: skip
def test_the_same_table_is_read_however_it_was_pasted(text: str) -> None:
    found = parse(text, "f")
    assert found.links == (("X", "NV4"), ("NV4", "X"))
    assert found.numa == (0, 1)
    assert found.cpu_sets == (((0, 7),), ((8, 15),))


@pytest.mark.parametrize(
    ("cells", "gpu_ids", "nodes"),
    [
        (("0", "1"), None, (0, 1)),
        (("N/A", "N/A"), None, (None, None)),
        (("0,2-17", "1,18-33"), ("N/A", "N/A"), (0, 1)),
        (("0,2", "1,3"), ("2", "3"), (0, 1)),
        (("0-1", "0-1"), None, (None, None)),
        (("0,1", "0,1"), None, (None, None)),
        (("0,2-3", "2"), None, (None, 2)),
        (("2-17", "1"), None, (None, 1)),
    ],
)
def test_the_cpu_node_of_a_list_is_told_only_where_it_is_unambiguous(
    cells: tuple[str, str], gpu_ids: tuple[str, str] | None, nodes: tuple[int | None, ...]
) -> None:
    ids = gpu_ids or ("", "")
    title = " GPU NUMA ID" if gpu_ids else ""
    text = table(
        f" GPU0 GPU1 CPU Affinity NUMA Affinity{title}",
        f"GPU0 X SYS 0-7 {cells[0]} {ids[0]}",
        f"GPU1 SYS X 8-15 {cells[1]} {ids[1]}",
    )
    assert parse(text, "f").numa == nodes


def test_a_blank_cpu_column_does_not_shift_the_numa_column() -> None:
    text = table("\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID", "GPU0\t X \t\t1\tN/A")
    assert parse(text, "f").numa == (1,)
    assert parse(text, "f").cpu_sets == (None,)


def test_a_blank_cpu_column_is_seen_where_the_print_has_spaces_instead_of_tabs() -> None:
    text = table(
        "        GPU0    GPU1    CPU Affinity    NUMA Affinity   GPU NUMA ID",
        "GPU0     X      NV4                     1               N/A",
        "GPU1    NV4      X      0-7             0               N/A",
    )
    assert parse(text, "f").numa == (1, 0)
    assert parse(text, "f").cpu_sets == (None, ((0, 7),))


def test_cells_without_a_blank_between_them_are_taken_apart() -> None:
    text = table(
        " GPU0 GPU1 NIC0 NIC1 CPU Affinity NUMA Affinity",
        "GPU0 X NV18 PIXNODE 0-7 0",
        "GPU1 NV18X NODEPIX 8-15 1",
        "NIC0 PIX NODE X NODE",
        "NIC1 NODE PIX NODE X",
    )
    found = parse(text, "f")
    assert found.nic_links == (("PIX", "NODE"), ("NODE", "PIX"))
    assert (found.links, found.numa) == ((("X", "NV18"), ("NV18", "X")), (0, 1))
    assert "line 2, 3" in "".join(found.inferred)
    assert found.warnings == ()


def test_disks_are_no_nics() -> None:
    text = table(
        " GPU0 GPU1 NIC0 NVMe0 NVMe1 CPU Affinity NUMA Affinity",
        "GPU0 X SYS NODE PIX SYS 0-7 0",
        "GPU1 SYS X SYS SYS PIX 8-15 1",
        "NIC0 NODE SYS X NODE SYS",
        "NVMe0 PIX SYS NODE X SYS",
        "NVMe1 SYS PIX SYS SYS X",
    )
    found = parse(text, "f")
    assert (found.nics, found.nic_links) == (("NIC0",), (("NODE",), ("SYS",)))
    assert (found.numa, found.warnings) == ((0, 1), ())


def test_nodes_of_gpu_memory_are_left_out_of_the_runs_that_they_part() -> None:
    text = table(
        " GPU0 GPU1 CPU Affinity NUMA Affinity GPU NUMA ID",
        "GPU0 X NV18 0-71 0,3-9,11-17 2",
        "GPU1 NV18 X 72-143 1,19-25,27-33 18",
    )
    assert parse(text, "f").numa == (0, 1)


@pytest.mark.parametrize(
    ("lines", "numa", "told"),
    [
        ([" GPU0 GPU1 CPU Affinity NUMA Affinity", "GPU0 X NV8 -31,64-95 0", "GPU1 NV8 X 32-63 1"], (0, 1),
         "line 2: row GPU0, CPU Affinity: '-31,64-95' is no list of CPUs"),
        ([" GPU0 GPU1 CPU Affinity NUMA Affinity GPU NUMA ID", "GPU0 X NV8 0-31,64-950 N/A", "GPU1 NV8 X 32-63 1 N/A"],
         (None, 1), "line 2: row GPU0 has fewer cells than the header has columns"),
        ([" GPU0 GPU1 CPU Affinity NUMA Affinity", "GPU0 X NV8 0-31 0", "GPU1 NV8 X 32-63 1", "NIC0 PIX SYS"], (0, 1),
         "NIC0 have rows, and no columns"),
        (["$ nvidia-smi topo -mp", *PAIR[:1], "GPU0 X PXB 0-7 0", "GPU1 PXB X 8-15 1"], (0, 1), "leaves NVLinks out"),
    ],
)  # fmt: skip
def test_what_a_print_lost_is_warned_of_and_the_rest_is_read(
    lines: list[str], numa: tuple[int | None, ...], told: str
) -> None:
    found = parse(table(*lines), "f")
    assert found.numa == numa
    assert told in "\n".join(found.warnings)


def test_a_blank_cpu_column_is_seen_where_tabs_were_made_spaces_and_no_cell_is_below_its_title() -> (
    None
):
    text = (
        "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
        "GPU0\t X \tNV18\tPIX\t\t0\t\tN/A\n"
        "GPU1\tNV18\t X \tNODE\t56\t1\t\tN/A\n"
        "NIC0\tPIX\tNODE\t X \t\t\t\n"
    ).expandtabs(8)
    found = parse(text, "f")
    assert (found.numa, found.cpu_sets) == ((0, 1), (None, ((56, 56),)))
    assert found.warnings == ()


def test_a_row_with_more_cells_than_titles_gives_no_affinities_and_says_so() -> None:
    text = table(" GPU0 GPU1 CPU Affinity NUMA Affinity", "GPU0 X NV4 0-7 8 1", "GPU1 NV4 X 8-15 1")
    assert parse(text, "f").numa == (None, 1)
    assert "line 2: row GPU0 has more cells" in "\n".join(parse(text, "f").warnings)


def pieces(text: str, width: int, *, trimmed: bool) -> str:
    """The text as a terminal of that width shows it, with or without the blanks at the ends of its lines."""
    lines = [line.expandtabs(8) for line in text.split("\n")]
    shown = [line[at : at + width] for line in lines for at in range(0, max(1, len(line)), width)]
    return "\n".join(line.rstrip() if trimmed else line for line in shown)


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("width", [60, 80, 100, 132])
def test_a_print_that_a_terminal_wrapped_says_the_same(name: str, width: int) -> None:
    text = (DATA / f"{name}.txt").read_text()
    found, whole = parse(pieces(text, width, trimmed=False), "f"), parse(text, "f")
    assert (found.links, found.nic_links, found.numa) == (whole.links, whole.nic_links, whole.numa)
    assert found.cpu_sets == whole.cpu_sets


def assert_nothing_invented(text: str, whole: GpuTopology) -> None:
    try:
        found = parse(text, "f")
    except GantreeError:
        return
    assert found.gpus <= whole.gpus
    for seen, true in zip(found.links, whole.links, strict=False):
        assert all(a in (None, b) for a, b in zip(seen, true, strict=False))
    assert all(a in (None, b) for a, b in zip(found.numa, whole.numa, strict=False))


@settings(max_examples=examples(150), deadline=None)
@given(st.sampled_from(OURS), st.integers(40, 200), st.booleans())
def test_a_wrapped_print_invents_no_link_and_no_node(name: str, width: int, trimmed: bool) -> None:
    text = (DATA / f"{name}.txt").read_text()
    assert_nothing_invented(pieces(text, width, trimmed=trimmed), parse(text, name))


@settings(max_examples=examples(150), deadline=None)
@given(st.sampled_from(OURS), st.integers(10, 200))
def test_a_print_cut_at_a_right_edge_invents_no_link_and_no_node(name: str, width: int) -> None:
    text = (DATA / f"{name}.txt").read_text()
    cut = "\n".join(line.expandtabs(8)[:width] for line in text.split("\n"))
    assert_nothing_invented(cut, parse(text, name))


def test_nics_whose_columns_were_cut_off_are_known_by_their_rows() -> None:
    name = "dgx-a100-8gpu-10nic-nps4"
    text = (DATA / f"{name}.txt").read_text()
    whole = parse(text, name)
    for width in (80, 84, 100):
        cut = "\n".join(line.expandtabs(8)[:width].rstrip() for line in text.split("\n"))
        assert parse(cut, name).nearest_nics() == whole.nearest_nics()


STORAGE = (
    "\tGPU0\tGPU1\tNIC0\tNIC1\tNIC2\tCPU Affinity\tNUMA Affinity",
    "GPU0\t X \tNV18\tPIX\tNODE\tNODE\t0-7\t0",
    "GPU1\tNV18\t X \tNODE\tNODE\tPIX\t0-7\t0",
)


def test_a_nic_is_near_to_no_gpu_that_has_a_better_one() -> None:
    nics = machine_from(parse(table(*STORAGE), "f"), "m").nics
    assert [(nic.name, nic.near, nic.rail) for nic in nics] == [
        ("NIC0", (0,), 0),
        ("NIC1", (), None),
        ("NIC2", (1,), 1),
    ]


@pytest.mark.parametrize(
    ("rows", "links", "told"),
    [
        (["GPU0 X NV4 NV4 0-7"], ["NV4", "NV4", None], "no row for GPU1, GPU2"),
        (["GPU0 X NV4 NV4 0-7", "GPU1 NV4"], ["NV4", "NV4", None], "line 3: row GPU1 ends after 1 of 3"),
        (["GPU0 X NV4 NV4 0-7", "GPU1 NV"], ["NV4", "NV4", None], "the last of them a fragment"),
        (["GPU0 X NV12 NV12 0-7", "GPU1 NV1"], ["NV12", "NV12", None], "the last of them a fragment"),
        (["GPU2 SYS NODE X 0-7"], [None, "SYS", "NODE"], "the paths of 1 pairs of GPUs are not given"),
        (["GPU0 X SOC SOC", "GPU1 SOC X PIX", "GPU2 SOC PIX X"], ["SYS", "SYS", "PIX"], "SOC is the old name"),
        (["GPU0 X NV1"], [None, None, None], "the last of them a fragment"),
        (["GPU0 X SYS ... 0-7"], ["SYS", None, None], "line 2: row GPU0 ends after 2 of 3"),
    ],
)  # fmt: skip
def test_what_was_cut_is_reported_and_filled_only_from_the_mirror(
    rows: list[str], links: list[str | None], told: str
) -> None:
    found = parse(table(" GPU0 GPU1 GPU2 CPU Affinity", *rows), "f")
    assert [found.links[a][b] for a, b in combinations(range(3), 2)] == links
    assert [found.links[b][a] for a, b in combinations(range(3), 2)] == links
    assert told in "\n".join(found.warnings + found.inferred)


def test_a_list_of_cpus_that_was_cut_is_not_given() -> None:
    text = table(" GPU0 GPU1 CPU Affinity NUMA Affinity", "GPU0 X NV4 0-7 0", "GPU1 NV4 X 8-")
    assert parse(text, "f").cpu_sets == (((0, 7),), None)
    assert parse(text, "f").numa == (0, None)


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (
            ["GPU0 X NV4 0-7", "GPU1 NV2 X 0-7"],
            "f:3: row GPU1, column GPU0: found 'NV2'; allowed: 'NV4'",
        ),
        (
            ["GPU0 NV4 X 0-7", "GPU1 X NV4 0-7"],
            "f:2: row GPU0, column GPU0: found 'NV4'; allowed: X on the",
        ),
        (["GPU0 X WHAT 0-7", "GPU1 NV4 X 0-7"], "f:2: row GPU0, column GPU1: found 'WHAT'"),
        (["GPU0 X NV0 0-7", "GPU1 NV4 X 0-7"], "f:2: row GPU0, column GPU1: found 'NV0'"),
        (["GPU0 X 0-7", "GPU1 NV4 X 0-7"], "f:2: row GPU0, column GPU1: found '0-7'"),
        (
            ["GPU0 X NV4 0-7", "GPU1 NV4 X 0-7", "GPU0 X NV4 0-7"],
            "f:4: row GPU0: found a second one",
        ),
        (["GPU0 X NV4 0-7", "GPU7 NV4 X 0-7"], "f:3: row GPU7: found a row without a column"),
        (["GPU0 X NV4 many", "GPU1 NV4 X 0-7"], "f:2: row GPU0, CPU Affinity: found 'many'"),
    ],
)
def test_contradictions_are_refused_with_their_lines(lines: list[str], told: str) -> None:
    with pytest.raises(BadFields) as caught:
        parse(table(" GPU0 GPU1 CPU Affinity", *lines), "f")
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "the text is empty"),
        ("hello", "nothing in it looks like a header"),
        ("\tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n", "peer-to-peer"),
        ("GPU0 GPU1\nGPU0 0 15\nGPU1 15 0\n", "there is a header but no row"),
        ("===== ROCm System Management Interface =====\n GPU0 GPU1\nGPU0 0 15\n", "rocm-smi"),
        ("GPU0 X NV4\nGPU1 NV4 X\n", "no header line"),
        ("<?xml?>\n<nvidia_smi_log>", "nvidia-smi -q -x"),
        ("| NVIDIA-SMI 570.1 Driver Version: 570.1 |", "plain `nvidia-smi`"),
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
            "cannot reach",
        ),
        ("bash: nvidia-smi: command not found", "there is no nvidia-smi"),
        ('{"gpus": 8}', "JSON"),
        ("GPU 0: NVIDIA H100 (UUID: GPU-1)", "nvidia-smi -L"),
        (table(*PAIR, *PAIR), "two matrices, from line 1 and from line 4"),
        (table(" ".join(f"GPU{i}" for i in range(600)), "GPU0 X"), "600 columns"),
    ],
)
def test_what_is_no_matrix_is_named(text: str, told: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse(text, "f")
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ((" GPU0 GPU0 CPU Affinity", "GPU0 X X 0-7"), "a column twice"),
        ((" GPU0 GPU2 CPU Affinity", "GPU0 X SYS 0-7"), "GPU0 to GPU1 in order"),
    ],
)
def test_columns_are_counted_from_zero_and_stand_once(lines: tuple[str, ...], told: str) -> None:
    with pytest.raises(BadFields, match=told):
        parse(table(*lines), "f")


def test_a_machine_takes_device_names_from_the_legend_and_rails_from_the_order_of_near_nics() -> (
    None
):
    name = "dgx-a100-8gpu-10nic-nps4"
    machine = machine_from(parse((DATA / f"{name}.txt").read_text(), name), "mine")
    assert (machine.name, machine.gpus, machine.numa) == ("mine", 8, (3, 3, 1, 1, 7, 7, 5, 5))
    assert [(nic.name, nic.near, nic.rail) for nic in machine.nics] == [
        *((f"mlx5_{i}", (i // 2 * 2, i // 2 * 2 + 1), i) for i in range(8)),
        ("mlx5_8", (), None),
        ("mlx5_9", (), None),
    ]


@pytest.mark.parametrize(
    ("name", "numa"),
    [
        ("t4-4gpu-1plus3", (0, 1, 1, 1)),
        ("v100-sxm2-8gpu-hybrid-cube-mesh-1nic", (0, 0, 0, 0, 1, 1, 1, 1)),
        ("consumer-2gpu-nvlink-nv2", (0, 0)),
        ("dgx2-16gpu-10nic-PARTIAL", (0, 0, 0, 0, *[None] * 12)),
    ],
)
def test_without_numa_numbers_sockets_come_from_cpu_sets(
    name: str, numa: tuple[int | None, ...]
) -> None:
    assert machine_from(parse((DATA / f"{name}.txt").read_text(), name), "m").numa == numa


def test_overlapping_cpu_sets_tell_no_sockets() -> None:
    text = table(" GPU0 GPU1 CPU Affinity", "GPU0 X SYS 0-7", "GPU1 SYS X 4-15")
    assert machine_from(parse(text, "f"), "m").numa == ()


WORDS = st.sampled_from(
    [*"\n\n\n\t\t", "GPU0", "GPU1", "GPU2", "NIC0", "mlx5_0", "X", "NV4", "NV12", "SYS", "PIX", "NODE", "SOC",
     "CPU Affinity", "NUMA Affinity", "GPU NUMA ID", "0-7", "0,2-17", "N/A", "Legend:", "NIC0: mlx5_0", "OK",
     "\x1b[4m", "...", "NV0", "7-0", "99999999999", "NV999999", "-", ","]
)  # fmt: skip


@settings(max_examples=examples(150), deadline=None)
@given(st.one_of(st.text(), st.lists(WORDS, max_size=60).map(" ".join)))
def test_no_text_makes_it_raise_anything_but_its_own_errors(text: str) -> None:
    try:
        found = parse(text, "fuzz")
    except GantreeError as error:
        assert "fuzz" in str(error)
    else:
        json.dumps(found.as_json())
        assert machine_from(found, "m").gpus == found.gpus


@settings(max_examples=examples(150), deadline=None)
@given(st.sampled_from(OURS), st.data())
def test_a_damaged_print_is_refused_or_read_without_inventing_a_link(
    name: str, data: st.DataObject
) -> None:
    text = (DATA / f"{name}.txt").read_text()
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    whole = parse(text, name)
    try:
        found = parse(text[:start] + text[end:], name)
    except GantreeError:
        return
    assert found.gpus <= whole.gpus
    known = {link for row in whole.links for link in row}
    if start == len(text) - (end - start):
        assert {link for row in found.links for link in row} <= known | {None}


@settings(max_examples=examples(50), deadline=None)
@given(st.sampled_from(OURS), st.data())
def test_a_print_cut_at_its_end_never_contradicts_the_whole(name: str, data: st.DataObject) -> None:
    text = (DATA / f"{name}.txt").read_text()
    header = text.index("\n")
    whole = parse(text, name)
    try:
        found = parse(text[: data.draw(st.integers(header, len(text)))], name)
    except GantreeError:
        return
    assert found.gpus == whole.gpus
    for seen, true in zip(found.links, whole.links, strict=True):
        assert all(a in (None, b) for a, b in zip(seen, true, strict=True))
