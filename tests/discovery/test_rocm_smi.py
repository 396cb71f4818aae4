"""Reading `rocm-smi --showtopo` and `amd-smi topology`: collected prints, a table of traps, and fuzz."""

import json
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.errors import BadFields, BadInput, GantreeError
from gantree.topology.discovery.gpus import GpuTopology, machine_from
from gantree.topology.discovery.machines.rocm.rocm_smi import (
    DIRECT,
    NO_TYPES,
    OVER_CPUS,
    OVER_GPUS,
    PARTITIONS,
    parse,
)
from support.damage import damaged, told_machine
from support.examples import examples

SHARED = Path(__file__).parents[3] / "shared" / "data" / "topology" / "rocm"


def classes(found: GpuTopology) -> set[str | None]:
    return {found.links[a][b] for a, b in combinations(range(found.gpus), 2)}


@pytest.mark.parametrize(
    ("name", "gpus", "link", "numa"),
    [
        ("mi308x-8gpu-showtopo", 8, "XGMI1", (0, 0, 0, 0, 1, 1, 1, 1)),
        ("archer2-mi210-4gpu-xgmi", 4, "XGMI1", (None,) * 4),
        ("4gpu-pcie-weight52-hops3", 4, "SYS", (None,) * 4),
    ],
)
def test_each_collected_print_gets_its_verdict(
    name: str, gpus: int, link: str, numa: tuple[int | None, ...]
) -> None:
    path = SHARED / f"{name}.txt"
    if not path.exists():
        pytest.skip("needs ../shared/data/topology, whose prints carry no licence")
    found = parse(path.read_text(), path.name)
    assert (found.gpus, classes(found), found.numa) == (gpus, {link}, numa)
    assert bool(found.warnings) == (None in numa)


def table(title: str, cells: dict[tuple[int, int], str], names: list[str], own: str = "0") -> str:
    """A table as rocm-smi prints it, of the cells of pairs a < b."""
    width = max(map(len, names)) + 3
    lines = [f"{title:=^80}", " " * width + "".join(f"{name:<13}" for name in names)]
    for a, name in enumerate(names):
        row = [own if a == b else cells[min(a, b), max(a, b)] for b in range(len(names))]
        lines.append(f"{name:<{width}}" + "".join(f"{word:<13}" for word in row))
    return "\n".join(lines) + "\n\n"


def pair(weight: str | None, hops: str | None, kind: str | None) -> str:
    """The print of two GPUs, without the tables for which None is given."""
    told = {"Weight": weight, "Hops": hops, "Link Type": kind}
    return "".join(
        table(f" {title} between two GPUs ", {(0, 1): word}, ["GPU0", "GPU1"])
        for title, word in told.items()
        if word is not None
    )


@pytest.mark.parametrize(
    ("weight", "hops", "kind", "expected", "said"),
    [
        ("15", "1", "XGMI", "XGMI1", []),
        ("30", "1", "XGMI", "NVB", [OVER_GPUS]),
        ("45", "1", "XGMI", "NVB", [OVER_GPUS]),
        ("13", "1", "XGMI", "XGMI1", []),
        ("0", "1", "XGMI", "XGMI1", [DIRECT]),
        (None, "1", "XGMI", "XGMI1", [DIRECT]),
        (None, None, "XGMI", "XGMI1", [DIRECT]),
        ("30", "2", "XGMI", "NODE", [OVER_CPUS]),
        ("62", "3", "XGMI", "SYS", [OVER_CPUS]),
        ("40", "2", "PCIE", "NODE", []),
        ("52", "3", "PCIE", "SYS", []),
        ("72", "3", "PCIE", "SYS", []),
        ("50", "4", "PCIE", "SYS", []),
        ("40", None, "PCIE", "NODE", []),
        ("52", None, "PCIE", "SYS", []),
        (None, None, "PCIE", None, []),
        ("15", "1", None, "XGMI1", [NO_TYPES]),
        ("30", "1", None, "NVB", [NO_TYPES, OVER_GPUS]),
        ("40", "2", None, "NODE", [NO_TYPES]),
        ("72", "3", None, "SYS", [NO_TYPES]),
        ("15", None, None, "XGMI1", [NO_TYPES]),
        ("40", None, None, "NODE", [NO_TYPES]),
        ("60", None, None, None, []),
        ("40", "2", "XXXX", "NODE", [NO_TYPES]),
        ("N/A", "N/A", "N/A", None, []),
    ],
)
def test_a_class_is_told_by_type_then_hops_then_weight(
    weight: str | None, hops: str | None, kind: str | None, expected: str | None, said: list[str]
) -> None:
    found = parse(pair(weight, hops, kind), "f")
    assert found.links == (("X", expected), (expected, "X"))
    assert list(found.inferred) == said
    assert ("the paths of 1 pairs" in " ".join(found.warnings)) == (expected is None)


WHOLE = pair("15", "1", "XGMI")
NUMA = (
    "GPU[0]\t\t: (Topology) Numa Node: 2\nGPU[0]\t\t: (Topology) Numa Affinity: 2\n"
    "GPU[1]\t\t: (Topology) Numa Node: 3\nGPU[1]\t\t: (Topology) Numa Affinity: 3\n"
)


@pytest.mark.parametrize(
    "text",
    [
        WHOLE + NUMA,
        NUMA + "\n".join(reversed(WHOLE.split("\n\n"))),
        "\ufeff" + (WHOLE + NUMA).replace("\n", "\r\n"),
        "$ rocm-smi --showtopo\nWARNING: AMD GPU device(s) in a low-power state.\n" + WHOLE + NUMA + "=== End",
        (WHOLE + NUMA).replace("\n\n", "\n"),
        (WHOLE + NUMA).replace("GPU0         GPU1", "GPU0\n       GPU1").replace("0            15 ", "0\n15"),
    ],
    ids=["plain", "other-order", "bom-crlf", "with-warnings", "without-blank-lines", "wrapped"],
)  # fmt: skip
def test_the_same_tables_are_read_however_they_were_pasted(text: str) -> None:
    found = parse(text, "f")
    assert found.links == (("X", "XGMI1"), ("XGMI1", "X"))
    assert found.numa == (2, 3)
    assert not found.warnings


@pytest.mark.parametrize(
    ("lines", "numa", "told"),
    [
        (["Numa Node: 1", "Numa Affinity: 1"], 1, None),
        (["Numa Node: 1"], 1, None),
        (["Numa Node: 0", "Numa Affinity: 4294967295"], 0, None),
        (["Numa Node: 0", "Numa Affinity: -1"], 0, None),
        (["Numa Node: -1", "Numa Affinity: -1"], None, None),
        (["Numa Node: 0", "Numa Affinity: 3"], 3, "GPU0: Numa Node 0, Numa Affinity 3; the affinity is taken"),
        ([], None, "no NUMA nodes are told"),
    ],
)  # fmt: skip
def test_the_numa_node_is_linuxs_where_there_are_two(
    lines: list[str], numa: int | None, told: str | None
) -> None:
    found = parse(WHOLE + "\n".join(f"GPU[0]\t\t: (Topology) {line}" for line in lines), "f")
    assert found.numa == (numa, None)
    assert (told or "") in "\n".join(found.warnings)
    assert bool(found.warnings) == bool(told)


def test_gpus_that_do_not_begin_at_0_keep_their_order_and_it_is_said() -> None:
    names = ["GPU10", "GPU9", "GPU11"]
    cells = {(0, 1): "15", (0, 2): "30", (1, 2): "15"}
    text = table(" Weight between two GPUs ", cells, names) + table(
        " Link Type between two GPUs ", dict.fromkeys(cells, "XGMI"), names
    )
    found = parse(text + "GPU[9] : (Topology) Numa Node: 7", "f")
    assert [found.links[a][b] for a, b in cells] == ["XGMI1", "XGMI1", "NVB"]
    assert found.numa == (7, None, None)
    assert "the print has GPU9, GPU10, GPU11 alone; here they count from 0" in found.warnings


@pytest.mark.parametrize(
    ("cut", "link", "told"),
    [
        (WHOLE.replace("15           \n", "1\n", 1).replace("GPU0   0            1\n", "GPU0   0\n"), "XGMI1",
         "line 3: weight, row GPU0 ends after 1 of 2 cells; the last is left out"),
        (WHOLE.replace("GPU1   15           0            \n", "", 1), "XGMI1", "weight table: no row for GPU1"),
        (pair("30", "1", "XGMI") + "\n== Weight ==", "NVB", "no NUMA nodes are told"),
        (pair(None, "1", "XGMI") + "Weight between two GPUs\nGPU0 GPU1\nGPU0 0 3", "XGMI1", "no row for GPU1"),
        ("Weight between two GPUs\nGPU0 GPU1\nGPU0 0 30\nGPU1", "NVB", "row GPU1 ends after 0 of 2 cells"),
        ("Weight between two GPUs\nGPU0 GPU1 GPU2\nGPU0 0 15\n", None, "row GPU0 ends after 2 of 3 cells"),
        ("Weight between two GPUs\nGPU0 GPU1\nGPU0 0 15", None, "no row for GPU1"),
    ],
    ids=["row", "rows", "after", "fragment", "name-alone", "short-row", "last-word"],
)  # fmt: skip
def test_what_was_cut_is_reported_and_filled_only_from_the_mirror(
    cut: str, link: str | None, told: str
) -> None:
    if link and "Type" not in cut:
        cut = pair(None, "1", "XGMI") + cut
    found = parse(cut, "f")
    assert found.links[0][1] == link
    assert told in "\n".join(found.warnings)


AMD_SMI = """ACCESS TABLE:
             0000:03:00.0 0000:0c:00.0
0000:03:00.0 ENABLED      DISABLED
0000:0c:00.0 DISABLED     ENABLED

WEIGHT TABLE:
             0000:03:00.0 0000:0c:00.0
0000:03:00.0 0            40
0000:0c:00.0 40           0
HOPS TABLE:
             0000:03:00.0 0000:0c:00.0
0000:03:00.0 0            2
0000:0c:00.0 2            0
LINK TYPE TABLE:
             0000:03:00.0 0000:0c:00.0
0000:03:00.0 SELF         PCIE
0000:0c:00.0 PCIE         SELF
NUMA BW TABLE:
             0000:03:00.0 0000:0c:00.0
0000:03:00.0 N/A          N/A
0000:0c:00.0 N/A          N/A

Legend:
  SELF = Current GPU
"""
"""The form that `amd-smi topology` prints, as published in bug reports about two consumer cards."""


def test_amd_smi_tells_bus_ids_and_access() -> None:
    found = parse(AMD_SMI, "f")
    assert found.links == (("X", "NODE"), ("NODE", "X"))
    assert found.bus_id_of_gpu == ("0000:03:00.0", "0000:0c:00.0")
    assert found.peer == ((True, False), (False, True))
    assert machine_from(found, "m").peer == found.peer


def rocm_json(*pairs: tuple[int, int, str, str, str]) -> dict[str, dict[str, str]]:
    system = {}
    for a, b, weight, hops, kind in pairs:
        for word, value in (("Weight", weight), ("Hops", hops), ("Link type", kind)):
            system[f"(Topology) {word} between DRM devices {a} and {b}"] = value
    return {"system": system}


def test_rocm_smi_json_gives_the_upper_triangle_alone() -> None:
    document = rocm_json(
        (4, 5, "15", "1", "XGMI"), (4, 6, "30", "1", "XGMI"), (5, 6, "72", "3", "PCIE")
    )
    document["card4"] = {"(Topology) Numa Node": "0", "(Topology) Numa Affinity": "1"}
    found = parse(json.dumps(document), "f")
    assert found.links == (("X", "XGMI1", "NVB"), ("XGMI1", "X", "SYS"), ("NVB", "SYS", "X"))
    assert found.numa == (1, None, None)
    assert "the print has GPU4, GPU5, GPU6 alone; here they count from 0" in found.warnings


@pytest.mark.parametrize("form", ["new", "old"])
def test_amd_smi_json_is_read_in_both_forms(form: str) -> None:
    def gpu(number: int) -> dict[str, object]:
        other = 1 - number
        if form == "new":
            own = {
                "gpu": number,
                "weight": 0,
                "link_status": "ENABLED",
                "link_type": "SELF",
                "num_hops": 0,
            }
            link = {
                "gpu": other,
                "weight": 15,
                "link_status": "ENABLED",
                "link_type": "XGMI",
                "num_hops": 1,
            }
            told: dict[str, object] = {"links": [link, own]}
        else:
            told = {
                "link_accessibility": {f"gpu_{number}": "ENABLED", f"gpu_{other}": "ENABLED"},
                "weight": {f"gpu_{number}": 0, f"gpu_{other}": 15},
                "hops": {f"gpu_{number}": 0, f"gpu_{other}": 1},
                "link_type": {f"gpu_{number}": "SELF", f"gpu_{other}": "XGMI"},
            }
        return {"gpu": number, "bdf": f"0000:{number + 1:02x}:00.0"} | told

    found = parse(json.dumps([gpu(1), gpu(0)]), "f")
    assert found.links == (("X", "XGMI1"), ("XGMI1", "X"))
    assert found.bus_id_of_gpu == ("0000:01:00.0", "0000:02:00.0")
    assert found.peer == ((True, True), (True, True))
    assert PARTITIONS not in found.warnings


def test_partitions_of_a_gpu_are_warned_of() -> None:
    link = {"link_status": "ENABLED", "weight": 15, "link_type": "XGMI", "num_hops": 1}
    gpus = [
        {"gpu": number, "bdf": f"0000:0c:00.{number}", "links": [link | {"gpu": 1 - number}]}
        for number in (0, 1)
    ]
    assert PARTITIONS in parse(json.dumps(gpus), "f").warnings


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (WHOLE.replace("GPU1   15", "GPU1   30"), "f:4: weight, row GPU1, column GPU0: found `30`; allowed: 15, as"),
        (WHOLE.replace("GPU0   0 ", "GPU0   7 ", 1), "f:3: weight, row GPU0, column GPU0: found `7`; allowed: 0, X"),
        (WHOLE.replace("15", "many"), "f:3: weight, row GPU0, column GPU1: found `MANY`; allowed: a whole number"),
        (WHOLE.replace("15", "9" * 30), "found `999999999999999999999999999999`; allowed: a whole number"),
        (WHOLE.replace("15", "\u0661\u0665"), "allowed: a whole number or N/A"),
        (WHOLE.replace("XGMI", "ROPE"), "row GPU0, column GPU1: found `ROPE`; allowed: XGMI, PCIE or N/A"),
        (AMD_SMI.replace("DISABLED", "SOMETIMES"), "found `SOMETIMES`; allowed: ENABLED, DISABLED"),
        (WHOLE + WHOLE, "f:16: weight table: found a second one (the first: line 1); allowed: one"),
        (WHOLE + table(" Hops between two GPUs ", {(0, 1): "1"}, ["GPU0", "GPU2"]), "hops table: found a second one"),
        (pair("15", None, None) + table(" Hops between two GPUs ", {(0, 1): "1"}, ["GPU0", "GPU2"]),
         "f:6: hops table: found GPU0, GPU2; allowed: the same GPUs as above: GPU0, GPU1"),
        (WHOLE.replace("GPU1   15", "GPU0   15", 1), "f:4: weight, row GPU0: found a second one (the first: line 3)"),
        (WHOLE.replace("GPU1   15", "GPU7   15", 1), "f:4: weight, row GPU7: found a row without a column"),
        (WHOLE.replace("15           \n", "15   15\n", 1), "f:3: weight, row GPU0: found 3 cells; allowed: 2"),
        (WHOLE + "GPU[0] : (Topology) Numa Node: 1\nGPU[0] : (Topology) Numa Node: 2",
         "GPU0, Numa Node: found 2; allowed: 1, as before"),
        (json.dumps([{"gpu": 0, "links": []}, {"gpu": 0, "links": []}]), "gpu: found `0` twice"),
        (json.dumps([{"gpu": 0, "links": [{"gpu": 0, "weight": "heavy"}]}]), "weight, row GPU0, column GPU0: found"),
    ],
)  # fmt: skip
def test_contradictions_are_refused_with_their_lines(text: str, told: str) -> None:
    with pytest.raises(BadFields) as caught:
        parse(text, "f")
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "the text is empty"),
        ("\tGPU0\tGPU1\nGPU0\tX\tNV4\nGPU1\tNV4\tX\n", "no topology of AMD GPUs"),
        ("Weight between two GPUs\nGPU0 GPU1\n", "a header without rows"),
        ("{}", "no topology of AMD GPUs"),
        ('{"gpus": 8}', "JSON"),
        ("<system version='1'>", "NCCL"),
        ("Weight between two GPUs\n" + " ".join(f"GPU{i}" for i in range(600)) + "\nGPU0 0\n", "600 GPUs; at most 512"),
    ],
)  # fmt: skip
def test_what_is_no_such_print_is_named(text: str, told: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse(text, "f")
    assert told in str(caught.value)


def test_large_hostile_texts_end_in_a_refusal() -> None:
    for text in (
        "Weight between two GPUs\nGPU0 GPU1\n" + "GPU0 0 15\n" * 30_000,
        "Weight between two GPUs\n" + "GPU0 GPU1\n" * 30_000,
        "Weight between two GPUs\nGPU0\nGPU0 0\n" * 10_000,
        "=" * 1_000_000,
        "GPU[0] " + " " * 1_000_000 + ": Numa Node: 0",
        "[" * 100_000,
        '[{"gpu": ' + "9" * 100_000 + "}]",
    ):
        with pytest.raises(BadInput):
            parse(text, "f")


WORDS = st.sampled_from(
    [*"\n\n\n\t\t  ", "GPU0", "GPU1", "GPU2", "0", "15", "30", "1", "2", "XGMI", "PCIE", "SELF", "N/A", "XXXX",
     "ENABLED",
     "Weight between two GPUs\n", "Hops between two GPUs\n", "Link Type between two GPUs\n", "ACCESS TABLE:\n", "====",
     "GPU[0] : (Topology) Numa Node: 1\n", "GPU[1] : (Topology) Numa Affinity: -1\n", "9" * 30, "\x00", "²", "{", "["]
)  # fmt: skip


PRINTS = [WHOLE + NUMA, AMD_SMI, json.dumps(rocm_json((0, 1, "15", "1", "XGMI")))]
JSON_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-2, 40), st.text(max_size=5), st.sampled_from(["XGMI", "15"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["gpu", "bdf", "links", "weight", "hops", "num_hops", "link_type", "link_status", "gpu_0",
                             "gpu_1", "system", "card0", "(Topology) Numa Node",
                             "(Topology) Weight between DRM devices 0 and 1"]),
            inner, max_size=4,
        ),
    ),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=examples(125), deadline=None)
@given(
    st.one_of(
        damaged(PRINTS, st.one_of(WORDS, st.text(max_size=3))),
        st.text(max_size=60),
        st.lists(WORDS, max_size=60).map(" ".join),
        JSON_VALUES.map(json.dumps),
    )
)
def test_no_text_makes_it_raise_anything_but_its_own_errors(text: str) -> None:
    told_machine(parse, text)


def test_a_print_cut_anywhere_never_contradicts_the_whole() -> None:
    names = ["GPU0", "GPU1", "GPU2"]
    kinds = {(0, 1): "XGMI", (0, 2): "XGMI", (1, 2): "PCIE"}
    weights = {(0, 1): "15", (0, 2): "30", (1, 2): "72"}
    hops = {(0, 1): "1", (0, 2): "1", (1, 2): "3"}
    text = (
        table(" Link Type between two GPUs ", kinds, names)
        + table(" Hops between two GPUs ", hops, names)
        + table(" Weight between two GPUs ", weights, names)
    )
    whole = parse(text, "f")
    assert [whole.links[a][b] for a, b in kinds] == ["XGMI1", "NVB", "SYS"]
    read = 0
    for end in range(len(text)):
        try:
            found = parse(text[:end], "f")
        except GantreeError:
            continue
        read += 1
        for a, b in kinds:
            assert found.links[a][b] in (None, whole.links[a][b]) or DIRECT in found.inferred
    assert read > len(text) / 2
