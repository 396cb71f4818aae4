"""Reading a CSV of nodes and their domains: its columns, its dialects, a table of traps, and fuzz."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.errors import BadFields, BadInput, GantreeError
from gantree.topology.discovery.fabrics import FabricReading
from gantree.topology.discovery.listings.domains_csv import parse
from support.examples import examples

TEXT = "node,pod,rack\nn[0-1],p0,r0\nn2,p0,r1\nn3,p1,r0\n"
FULL = (
    "node,rack,machine,gpus,gpu,cpus,memory_GiB,address,label:pool,partition:power\n"
    "n0,r0,dgx-h100,8,H100-80GB,224,2048,10.0.0.1,train,feed-a\n"
    "n1,r0,,,,,,,,\n"
)


def places(reading: FabricReading) -> dict[str, str]:
    return {node.name: "/".join(node.at) for node in reading.nodes}


def test_columns_after_the_first_are_tiers_from_wide_to_narrow() -> None:
    found = parse(TEXT, "f")
    assert found.tiers == ("pod", "rack")
    assert places(found) == {"n0": "p0/r0", "n1": "p0/r0", "n2": "p0/r1", "n3": "p1/r0"}
    assert found.inferred == (
        "1 names of tier rack are in several domains of pod (r0): each is a domain of its own",
    )
    assert found.warnings == ()


def test_further_columns_tell_of_the_node_itself_where_they_are_filled() -> None:
    first, second = parse(FULL, "f").nodes
    assert (first.machine, first.gpus, first.gpu, first.cpus, first.memory_GiB) == (
        "dgx-h100", 8, "H100-80GB", 224.0, 2048.0,
    )  # fmt: skip
    assert (first.address, first.labels, first.partitions) == (
        "10.0.0.1", (("pool", "train"),), (("power", "feed-a"),),
    )  # fmt: skip
    assert (second.machine, second.gpus, second.address, second.labels, second.partitions) == (
        None,
        None,
        None,
        (),
        (),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TEXT.replace(",", ";"), "semicolons"),
        (TEXT.replace(",", "\t"), "tabs"),
        (TEXT.replace(",", " | "), "bars"),
        ("\ufeff" + TEXT, None),
        (TEXT.replace("\n", "\r\n"), None),
        ("# who wrote this\n\n" + TEXT.replace("n2", '"n2"') + "\n# end\n", None),
        (TEXT.replace("node", "Hostname"), None),
    ],
)
def test_the_same_list_is_read_in_every_dialect_and_others_than_commas_are_said(
    text: str, said: str | None
) -> None:
    found = parse(text, "f")
    assert places(found) == places(parse(TEXT, "f"))
    assert any(f"separated by {said}" in line for line in found.inferred) == (said is not None)


def test_an_empty_cell_is_a_domain_of_its_own_that_is_never_one_that_is_there() -> None:
    found = parse("node,pod,rack\nn0,p0,\nn1,p0,n0\nn2,,r2\nn3,,r2\nn4,r2,r3\n", "f")
    assert places(found) == {
        "n0": "p0/n0-alone", "n1": "p0/n0", "n2": "r2-alone/r2", "n3": "r2-alone/r2", "n4": "r2/r3",
    }  # fmt: skip
    assert "pod is empty in 2 rows (lines 4, 5)" in found.warnings[0]
    assert "rack is empty in 1 row (lines 2)" in found.warnings[1]


def test_a_list_without_tiers_says_so() -> None:
    found = parse("node,gpus\nn0,8\n", "f")
    assert (found.tiers, found.warnings_if_alone) == (
        (),
        ("no column tells a domain: all nodes are alike far from each other",),
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (TEXT + "n1,p0,r0\n", "f:5: node: found `n1`, which is in line 2"),
        (TEXT + "n9,p0\n", "f:5: row: found 2 cells; allowed: 3, as in the header (line 1)"),
        (TEXT + "n9,p 0,r\n", "f:5: pod: found `p 0`"),
        (TEXT + "n[3-1],p0,r\n", "f:5: node: found `n[3-1]`, whose range runs backwards"),
        (TEXT + '"n9,p0,r\n', "f:5: row: found unexpected end of data"),
        (TEXT.replace("node", "rack0"), "f:1: column 1: found `rack0`; allowed: `node`"),
        (TEXT.replace("pod", "rack"), "f:1: column rack: found it again"),
        (TEXT.replace("pod", ""), "f:1: column 2: found no title"),
        (TEXT.replace("pod", "gpu "), "f:1: column rack: found an unknown column"),
        (
            TEXT.replace("pod", "socket"),
            "f:1: column socket: found `socket`; allowed: a tier's name",
        ),
        (FULL.replace("cpus", "cpu"), "f:1: column cpu: found an unknown column"),
        (FULL.replace("cpus", "cpu"), "Did you mean `cpus`?"),
        (FULL.replace("label:pool", "label:"), "f:1: column label:: found no key"),
        (FULL.replace(",8,", ",8.5,"), "f:2: gpus: found `8.5`; allowed: a whole number"),
        (FULL.replace(",8,", ",1e9,"), "f:2: gpus: found `1e9`"),
        (FULL.replace(",2048,", ",nan,"), "f:2: memory_GiB: found `nan`"),
        (FULL.replace(",224,", ",-1,"), "f:2: cpus: found `-1`"),
    ],
)
def test_what_is_wrong_is_refused_with_its_line(text: str, told: str) -> None:
    with pytest.raises(BadFields) as caught:
        parse(text, "f")
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"), [("", "is empty"), ("# x\n", "is empty"), ("node,rack\n", "no row below")]
)
def test_a_text_without_rows_is_refused(text: str, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        parse(text, "f")


@settings(max_examples=examples(200), deadline=None)
@given(
    st.one_of(
        st.text(),
        st.text('n0pr1,;"\n\r\t #[]-|é\x00', max_size=80).map(lambda more: TEXT + more),
        st.tuples(st.sampled_from([TEXT, FULL]), st.integers(0, 150), st.integers(0, 150)).map(
            lambda cut: cut[0][: cut[1]] + cut[0][cut[2] :]
        ),
    )
)
def test_no_text_makes_it_raise_anything_but_its_own_errors(text: str) -> None:
    try:
        found = parse(text, "fuzz")
    except GantreeError as error:
        assert "fuzz" in str(error)
        return
    assert len({node.name for node in found.nodes}) == len(found.nodes)
    assert all(len(node.at) == len(found.tiers) for node in found.nodes)
    found.as_json()


CELLS = st.sampled_from(["", "a", "b", "n0", "n1", "a-alone", "n0-alone"])


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=6))
def test_domains_that_were_filled_in_join_no_nodes_that_share_none(
    rows: list[tuple[str, str, str]],
) -> None:
    text = "node,x,y,z\n" + "".join(f"n{i},{','.join(row)}\n" for i, row in enumerate(rows))
    at = [node.at for node in parse(text, "f").nodes]
    for tier in range(3):
        for one, row in zip(at, rows, strict=True):
            for other, cells in zip(at, rows, strict=True):
                if one[: tier + 1] == other[: tier + 1] and one is not other:
                    below = next((cell for cell in row[tier:] if cell), None)
                    assert below is not None
                    assert next((cell for cell in cells[tier:] if cell), None) == below
                    assert row[tier] == cells[tier]


@pytest.mark.parametrize(
    ("cell", "gpu"),
    [
        ("NVIDIA H100 80GB HBM3", "H100-80GB"),
        ("NVIDIA-H100-80GB-HBM3", "H100-80GB"),
        ("Tesla V100-SXM2-32GB", "V100-32GB"),
        ("h100-80gb", "H100-80GB"),
        ("MI999-1GB", "MI999-1GB"),
        ("", None),
    ],
)
def test_a_gpu_may_be_written_as_its_product_is_called(cell: str, gpu: str | None) -> None:
    assert parse(f"node,rack,gpus,gpu\nn0,r0,8,{cell}\n", "f").nodes[0].gpu == gpu


@pytest.mark.parametrize("cell", ["NVIDIA H100", "eight GPUs", "-", "x" * 300])
def test_a_gpu_that_is_no_model_is_refused_with_its_line(cell: str) -> None:
    with pytest.raises(
        BadFields, match=r"f:3: gpu: found .*; allowed: a GPU model such as H100-80GB"
    ):
        parse(f"node,rack,gpus,gpu\nn0,r0,8,T4-16GB\nn1,r0,8,{cell}\n", "f")
