"""Reading `nvidia-smi topo -p2p`: recorded prints against their verdicts, a table of traps, and fuzz."""

import json
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.errors import BadFields, BadInput, GantreeError
from gantree.topology.discovery.gpus import machine_from
from gantree.topology.discovery.machines.nvidia.nvidia_smi import parse as parse_links
from gantree.topology.discovery.machines.nvidia.peer_matrix import parse
from support.examples import examples

SHARED = Path(__file__).parents[3] / "shared" / "data" / "topology" / "nvidia-smi-topo"


@pytest.mark.parametrize(
    ("name", "gpus", "peers"),
    [
        ("h100-8gpu-p2p-r", 8, True),
        ("l4-2gpu-p2p-r-cns", 2, False),
        ("rtx5090-2gpu-p2p-rw-gns", 2, False),
    ],
)
def test_each_collected_print_gets_its_verdict(name: str, gpus: int, peers: bool) -> None:
    path = SHARED / f"{name}.txt"
    if not path.exists():
        pytest.skip("needs ../shared/data/topology, whose prints carry no licence")
    found = parse(path.read_text(), name)
    assert found.gpus == gpus
    assert all(found.peer[a][b] is peers for a, b in combinations(range(gpus), 2))
    assert all(link in (None, "X") for row in found.links for link in row)
    assert bool(found.warnings) is not peers


def table(*lines: str) -> str:
    return "\n".join(lines) + "\n"


OFF = (" \tGPU0\tGPU1\t", " GPU0\tX\tCNS\t", " GPU1\tCNS\tX\t")
LEGEND = (
    "",
    "Legend:",
    "",
    "  X    = Self",
    "  OK   = Status Ok",
    "  NS   = Not supported",
    "  U    = Unknown",
)
LINKS = ("\tGPU0\tGPU1\tNIC0\tCPU Affinity", "GPU0\t X \tPHB\tPHB\t0-7", "GPU1\tPHB\t X \tPHB\t0-7",
         "NIC0\tPHB\tPHB\t X ", "", "NIC Legend:", "", "  NIC0: mlx5_0", "")  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        table(*OFF),
        "\ufeff" + table(*OFF, *LEGEND),
        table(*OFF).replace("\n", "\r\n"),
        table(*OFF).replace("\t", "   "),
        table(*OFF).replace("\tGPU0\tGPU1\t", "\t\x1b[4mGPU0\tGPU1\x1b[0m\t"),
        table("$ nvidia-smi topo -p2p r", *OFF, *LEGEND, "$"),
        table("GPU0", "GPU1", "GPU0 X C", "NS", "GPU1 CNS", "X"),
        table(*LINKS, *OFF, *LEGEND),
        table("topo -p2p rw", *OFF, *LEGEND, "topo -m", *LINKS),
    ],
    ids=[
        "plain",
        "bom-legend",
        "crlf",
        "spaces",
        "ansi",
        "prompt",
        "wrapped",
        "after-links",
        "before-links",
    ],
)
def test_the_same_matrix_is_read_however_it_was_pasted(text: str) -> None:
    found = parse(text, "f")
    assert found.peer == ((True, False), (False, True))
    assert found.links == (("X", None), (None, "X"))
    assert found.nics == ()


@pytest.mark.parametrize("text", [table(*LINKS, *OFF, *LEGEND), table(*OFF, *LEGEND, *LINKS)])
def test_the_links_of_a_file_with_both_are_read_in_either_order(text: str) -> None:
    found = parse_links(text, "f")
    assert found.links == (("X", "PHB"), ("PHB", "X"))
    assert found.device_of_nic == {"NIC0": "mlx5_0"}
    assert "peer-to-peer matrix from line" in "\n".join(found.warnings)


@pytest.mark.parametrize(
    ("status", "peer"),
    [
        ("OK", True),
        ("CNS", False),
        ("GNS", False),
        ("TNS", False),
        ("NS", False),
        ("DR", False),
        ("U", None),
    ],
)
def test_each_status_has_its_meaning(status: str, peer: bool | None) -> None:
    found = parse(table("GPU0 GPU1", f"GPU0 X {status}", f"GPU1 {status} X"), "f")
    assert found.peer[0][1] is peer
    assert found.peer[1][0] is peer
    assert machine_from(found, "m").peer == (
        ((True, False), (False, True)) if peer is False else ()
    )


def asked(option: str, cell: str) -> tuple[str, ...]:
    return (f"$ nvidia-smi topo -p2p {option}", "GPU0 GPU1", f"GPU0 X {cell}", f"GPU1 {cell} X", "")


@pytest.mark.parametrize(
    ("prints", "peer", "told"),
    [
        ([asked("r", "OK")], True, ""),
        ([asked("r", "OK"), asked("w", "NS")], False, "no GPUs reach"),
        (
            [asked("r", "OK"), asked("w", "OK"), asked("n", "NS"), asked("a", "NS")],
            True,
            "only its OK",
        ),
        ([asked("n", "OK")], True, "`-p2p n`: only its OK"),
        ([asked("n", "NS")], None, "is not known"),
        ([asked("p", "NS"), asked("rw", "U")], None, "is not known"),
        ([asked("r", "OK")[1:]], True, "does not say what it was asked for"),
    ],
)
def test_reads_and_writes_count_and_other_capabilities_only_where_they_are_fine(
    prints: list[tuple[str, ...]], peer: bool | None, told: str
) -> None:
    found = parse(table(*(line for one in prints for line in one)), "f")
    assert found.peer[0][1] is peer
    notes = "\n".join((*found.inferred, *found.warnings))
    assert told in notes and bool(told) == bool(notes)


@pytest.mark.parametrize(
    ("rows", "peer", "told"),
    [
        (["GPU0 X OK OK"], [True, True, None], "no row for GPU1, GPU2"),
        (["GPU0 X OK O", "GPU1 NS X"], [False, None, None], "GPU0 and GPU1"),
        (
            ["GPU0 X OK O", "GPU1 OK X"],
            [True, None, None],
            "line 2: row GPU0 ends after 3 of 3 cells",
        ),
        (["GPU0 X OK OK", "GPU1 OK X", "GPU2 OK NS X"], [True, True, False], "told one way only"),
    ],
)
def test_what_was_cut_is_told_and_filled_only_from_the_other_way(
    rows: list[str], peer: list[bool | None], told: str
) -> None:
    found = parse(table("GPU0 GPU1 GPU2", *rows), "f")
    assert [found.peer[a][b] for a, b in combinations(range(3), 2)] == peer
    assert [found.peer[b][a] for a, b in combinations(range(3), 2)] == peer
    assert told in "\n".join((*found.inferred, *found.warnings))


def test_a_lone_gpu_is_its_own_peer() -> None:
    assert parse(table(" \tGPU0\t", " GPU0\tX\t", *LEGEND), "f").peer == ((True,),)


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["GPU0 GPU1", "GPU0 X OK", "GPU1 NV4 X"], "f:3: row GPU1, column GPU0: found 'NV4'; allowed: X, OK, CNS"),
        (["GPU0 GPU1", "GPU0 X WHAT", "GPU1 OK X"], "f:2: row GPU0, column GPU1: found 'WHAT'"),
        (["GPU0 GPU1", "GPU0 OK X", "GPU1 X OK"], "f:2: row GPU0, column GPU0: found 'OK'; allowed: X on the"),
        (["GPU0 GPU1", "GPU0 X OK", "GPU1 OK X", "GPU0 X OK"], "f:4: row GPU0: found a second one"),
        (["GPU0 GPU1", "GPU0 X OK", "GPU7 OK X"], "f:3: row GPU7: found a row without a column"),
        (["GPU0 GPU2", "GPU0 X OK", "GPU2 OK X"], "GPU0 to GPU1 in order"),
        (["GPU0 GPU1 NIC0", "GPU0 X OK OK", "GPU1 OK X OK"], "f:1: header: found NIC0; allowed: GPUs only"),
        (["GPU0 GPU1", "GPU0 X OK", "GPU1 OK X", "", "GPU0 GPU1 GPU2", "GPU0 X OK OK"],
         "f:5: a matrix of 3 GPUs after one of 2 in line 1"),
    ],
)  # fmt: skip
def test_contradictions_are_refused_with_their_lines(lines: list[str], told: str) -> None:
    with pytest.raises((BadFields, BadInput)) as caught:
        parse(table(*lines), "f")
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "the text is empty; give the print of `nvidia-smi topo -p2p r`"),
        (table(*LINKS), "no `nvidia-smi topo -p2p` matrix"),
        ("bash: nvidia-smi: command not found", "there is no nvidia-smi"),
        (table(*["GPU0 GPU1", "GPU0 X OK", ""] * 9), "more than 8 matrices"),
        (" " * (9 << 20), "a larger text than 8 MiB"),
        ("\n" * 200_001, "or 200000 lines"),
        (table(" ".join(f"GPU{i}" for i in range(600)), "GPU0 X OK"), "600 columns"),
    ],
)
def test_what_is_no_matrix_is_named(text: str, told: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse(text, "f")
    assert told in str(caught.value)


WORDS = st.sampled_from(
    [*"\n\n\n\t\t", "GPU0", "GPU1", "GPU2", "NIC0", "X", "OK", "NS", "CNS", "U", "DR", "N", "NV4", "PIX",
     "-p2p r", "-p2p n", "Legend:", "0-7", "...", "\x1b[4m", "CPU Affinity"]
)  # fmt: skip
EIGHT = table(
    "$ nvidia-smi topo -p2p r",
    " \t" + "\t".join(f"GPU{i}" for i in range(8)),
    *(f" GPU{a}\t" + "\t".join("X" if a == b else "OK" if a // 4 == b // 4 else "CNS" for b in range(8))
      for a in range(8)),
    *LEGEND,
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
@given(st.integers(0, len(EIGHT)))
def test_a_print_cut_at_its_end_never_contradicts_the_whole(length: int) -> None:
    assert_nothing_invented(EIGHT[:length])


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(10, 90))
def test_a_print_cut_or_wrapped_at_a_right_edge_invents_no_status(width: int) -> None:
    lines = [line.expandtabs(8) for line in EIGHT.split("\n")]
    assert_nothing_invented("\n".join(line[:width] for line in lines))
    wrapped = (line[at : at + width] for line in lines for at in range(0, max(1, len(line)), width))
    assert_nothing_invented("\n".join(wrapped))


def assert_nothing_invented(text: str) -> None:
    try:
        found = parse(text, "f")
    except GantreeError:
        return
    assert found.gpus <= 8
    for a, b in combinations(range(found.gpus), 2):
        assert found.peer[a][b] in (None, a // 4 == b // 4)
