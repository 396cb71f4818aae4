"""Reading Lingjun's topo.csv: the published columns, a table of traps, and fuzz."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.errors import BadFields, BadInput, GantreeError
from gantree.topology.discovery.listings.lingjun import parse
from support.examples import examples

SHARED = Path(__file__).parents[3] / "shared" / "data" / "traces" / "lingjun2023_topo"
TEXT = "ip,DSW,PSW,ASW\naa01,G6,P10,S14\naa02,G6,P12,S14\naa03,G6,P10,S14\naa04,G6,P10,S2\n"


def test_layers_are_tiers_and_a_leaf_is_known_by_its_whole_path() -> None:
    found = parse(TEXT, "f")
    assert found.tiers == ("core", "spine", "leaf")
    assert [node.at for node in found.nodes][:3] == [
        ("G6", "P10", "S14"),
        ("G6", "P12", "S14"),
        ("G6", "P10", "S14"),
    ]
    assert len({node.at for node in found.nodes}) == 3
    assert "1 names of tier leaf are in several domains of spine (S14)" in found.inferred[1]


def test_hosts_are_called_by_name_where_there_is_one_and_reached_by_an_address_where_it_is_one() -> (
    None
):
    (node,) = parse("host,ip,ASW,PSW,DSW\nh1,10.1.2.3,S1,P1,G1\n", "f").nodes
    assert (node.name, node.address, node.at) == ("h1", "10.1.2.3", ("G1", "P1", "S1"))
    hashed = parse(TEXT, "f")
    assert {node.address for node in hashed.nodes} == {None}
    assert hashed.inferred[-1] == "ip is a hash, not an address: nodes get none"


def test_a_missing_layer_is_warned_of() -> None:
    found = parse("ip,PSW,ASW\nh,P,S\n", "f")
    assert (found.tiers, found.warnings) == (("spine", "leaf"), ("there is no column DSW",))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (TEXT + "aa01,G6,P10,S3\n", "f:6: ip: found `aa01`, which is in line 2"),
        (TEXT + "aa05,G6,,S3\n", "f:6: psw: found nothing"),
        (TEXT + "aa05,G6,P1\n", "f:6: row: found 3 cells; allowed: 4"),
        (TEXT.replace("ASW", "TOR"), "found no column ASW"),
        (TEXT.replace("ip", "id"), "f:1: header: found no column host or ip"),
        (TEXT.replace("S2", "S 2"), "f:5: asw: found `S 2`"),
    ],
)
def test_what_is_wrong_is_refused_with_its_line(text: str, told: str) -> None:
    with pytest.raises(BadFields) as caught:
        parse(text, "f")
    assert told in str(caught.value)


def test_a_header_alone_is_refused() -> None:
    with pytest.raises(BadInput, match="no row below it"):
        parse("ip,DSW,PSW,ASW\n", "f")


@settings(max_examples=examples(150), deadline=None)
@given(
    st.one_of(
        st.text(), st.text('aipDSWPG01,;"\n\r\t #', max_size=80).map(lambda more: TEXT + more)
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


def test_the_published_cluster_has_847_hosts_on_119_leaves_of_3_spines() -> None:
    path = SHARED / "topo.csv.gz"
    if not path.exists():
        pytest.skip("needs ../shared/data/traces")
    found = parse(gzip.decompress(path.read_bytes()).decode(), "topo.csv")
    assert len(found.nodes) == 847
    assert [len({node.at[: i + 1] for node in found.nodes}) for i in range(3)] == [1, 3, 119]
    of_spine = sorted(
        sum(node.at[1] == spine for node in found.nodes) for spine in ("P8", "P10", "P12")
    )
    assert of_spine == [179, 306, 362]
