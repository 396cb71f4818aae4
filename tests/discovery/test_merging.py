"""Several sources of the same nodes: what becomes a tier, what stands beside the tree, what is refused."""

from collections.abc import Iterator, Sequence
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.model.cluster import DomainFacts, Link
from gantree.model.errors import BadInput
from gantree.topology.discovery.fabrics import FabricReading, SeenNic, SeenNode, ragged
from gantree.topology.discovery.merging import Source, merged


def reading(tiers: str, rows: str, **more: object) -> FabricReading:
    """Rows are "node: domain domain", widest tier first."""
    nodes = []
    for row in rows.strip().splitlines():
        name, _, at = row.strip().partition(":")
        nodes.append(SeenNode(name, tuple(at.split())))
    return FabricReading(tuple(tiers.split()), tuple(nodes), **more)  # type: ignore[arg-type] # fields by name


def put_together(*readings: FabricReading) -> FabricReading:
    kinds = ("first", "second", "third")
    return merged(
        [Source(f"{kind}.txt", kind, r) for kind, r in zip(kinds, readings, strict=False)]
    )


LEAVES = reading("spine leaf", "n0: s0 l0\nn1: s0 l0\nn2: s0 l1\nn3: s1 l2\n")


def places(found: FabricReading) -> dict[str, str]:
    return {node.name: " ".join(node.at) for node in found.nodes}


def test_a_narrower_division_becomes_a_tier_below() -> None:
    found = put_together(LEAVES, reading("nvlink", "n0: a\nn1: b\nn2: c\nn3: c2\n"))
    assert found.tiers == ("spine", "leaf", "nvlink")
    assert places(found) == {"n0": "s0 l0 a", "n1": "s0 l0 b", "n2": "s0 l1 c", "n3": "s1 l2 c2"}


def test_a_wider_division_becomes_a_tier_above() -> None:
    found = put_together(LEAVES, reading("zone", "n0: z\nn1: z\nn2: z\nn3: y\n"))
    assert found.tiers == ("spine", "leaf")  # it is the same division as the spines
    found = put_together(LEAVES, reading("zone", "n0: z\nn1: z\nn2: z\nn3: z\n"))
    assert (found.tiers, places(found)["n3"]) == (("zone", "spine", "leaf"), "z s1 l2")


def test_a_division_between_two_tiers_goes_between_them() -> None:
    rows = "n0: r0\nn1: r0\nn2: r0\nn3: r1\n"
    base = reading("zone leaf", "n0: z l0\nn1: z l0\nn2: z l1\nn3: z l2\n")
    found = put_together(base, reading("row", rows))
    assert found.tiers == ("zone", "row", "leaf")
    assert places(found)["n2"] == "z r0 l1"


def test_a_division_that_cuts_across_is_a_partition_and_that_is_said() -> None:
    found = put_together(LEAVES, reading("power", "n0: a\nn1: b\nn2: a\nn3: b\n"))
    assert found.tiers == LEAVES.tiers
    assert found.nodes[2].partitions == (("power", "a"),)
    assert (
        "second: its power does not fit into the tree; it is kept as a partition" in found.inferred
    )


def test_domains_of_one_name_in_two_pods_stay_two() -> None:
    flat = reading("fabric0", "n0: x\nn1: x\nn2: x\nn3: x\n")
    pods = reading("pod rack", "n0: p0 r0\nn1: p0 r1\nn2: p1 r0\nn3: p1 r1\n")
    found = put_together(flat, pods)
    assert len(set(places(found).values())) == 4
    across = reading("x y", "n0: a b\nn1: c b\nn2: a b\nn3: c b\n")
    found = put_together(LEAVES, across)
    assert found.nodes[0].partitions == (("x", "a"), ("y", "a-b"))


def test_a_node_that_the_second_source_does_not_tell_of_goes_with_its_neighbours() -> None:
    found = put_together(LEAVES, reading("zone", "n0: z\nn2: z\nn3: z\n"))
    assert places(found)["n1"] == "z s0 l0"
    assert "second.txt: it says nothing of 1 node: n1" in found.warnings


def test_a_node_of_which_nothing_is_told_joins_no_domain_that_is_called_alike() -> None:
    base = reading("leaf", "n0: l0\nn1: l0\n")
    found = put_together(base, reading("nvlink", "n0: n1\n"))
    assert found.tiers == ("leaf",)  # one domain of one node says nothing against being the leaf
    found = put_together(
        reading("leaf", "n0: l0\nn2: l0\nn1: l0\n"), reading("nvlink", "n0: n1\nn2: x\n")
    )
    assert places(found) == {"n0": "l0 n1", "n2": "l0 x", "n1": "l0 n1-"}


def test_nodes_that_only_the_second_source_knows_are_left_out_with_a_warning() -> None:
    found = put_together(LEAVES, reading("zone", "n0: z\nx9: z\n"))
    assert [node.name for node in found.nodes] == ["n0", "n1", "n2", "n3"]
    assert any("1 node is in no tree and left out: x9" in warning for warning in found.warnings)


def test_nodes_are_matched_without_their_dns_domain_where_that_is_unambiguous() -> None:
    found = put_together(
        LEAVES, reading("zone", "n0.site.org: z\nn1.site.org: z\nn2.a: y\nn2.b: y\nn3: z\n")
    )
    assert places(found)["n0"] == "z s0 l0"
    assert "second.txt: 2 nodes are matched by name without DNS domain" in found.inferred


def test_sources_without_a_common_node_are_refused() -> None:
    with pytest.raises(BadInput, match=r"second\.txt: none of its 1 node \(x\) is in first\.txt"):
        put_together(LEAVES, reading("zone", "x: z\n"))


def test_sources_that_contradict_each_other_on_hardware_are_refused() -> None:
    a = FabricReading(("leaf",), (SeenNode("n0", ("l0",), gpus=8),))
    b = FabricReading(("zone",), (SeenNode("n0", ("z",), gpus=4),))
    with pytest.raises(
        BadInput, match=r"second\.txt: node n0: gpus is 4, but another source says 8"
    ):
        put_together(a, b)


def test_facts_of_nodes_are_put_together() -> None:
    a = FabricReading(("leaf",), (SeenNode("n0", ("l0",), nics=(SeenNic("mlx5_0"),)),))
    b = FabricReading(
        (), (SeenNode("n0", (), (("pool", "a"),), gpus=8, gpu="H100-80GB", address="10.0.0.1"),)
    )
    (node,) = put_together(a, b).nodes
    assert (node.gpus, node.gpu, node.address, node.labels) == (
        8,
        "H100-80GB",
        "10.0.0.1",
        (("pool", "a"),),
    )
    assert node.nics == (SeenNic("mlx5_0"),)


def test_what_is_particular_of_domains_and_links_follows_them_into_the_new_tree() -> None:
    base = reading(
        "leaf", "n0: l0\nn1: l1\n", domains=(DomainFacts("leaf", "l1", uplink_GBps=400),)
    )
    zones = reading(
        "zone", "n0: z\nn1: z\n",
        links={"zone": Link(10, 5)},
        domains=(DomainFacts("zone", "z", health=0.5), DomainFacts("node", "n1", health=0.0)),
    )  # fmt: skip
    found = put_together(base, zones)
    assert found.domains == (
        DomainFacts("leaf", "z/l1", uplink_GBps=400),
        DomainFacts("zone", "z", health=0.5),
        DomainFacts("node", "n1", health=0.0),
    )
    assert found.links == {"zone": Link(10, 5)}


def test_paths_of_unlike_length_become_one_even_tree() -> None:
    tiers, paths = ragged(
        {"n0": ("root", "mid", "l0"), "n1": ("root", "l1"), "n2": ("root",), "n3": ("alone",), "n4": (),
         "n5": ("s1", "l2"), "n6": ("s1", "l3")},
        ("leaf", "spine"),
    )  # fmt: skip
    assert tiers == ("tier3", "spine", "leaf")
    assert paths == {
        "n0": ("root", "mid", "l0"),
        "n1": ("root", "l1", "l1"),
        "n2": ("root", "root", "root"),
        "n3": ("alone", "alone", "alone"),
        "n4": ("n4", "n4", "n4"),
        "n5": ("s1", "s1", "l2"),
        "n6": ("s1", "s1", "l3"),
    }


switches = st.lists(st.sampled_from("abc"), max_size=4).map(
    lambda letters: [f"{letter}{level}" for level, letter in enumerate(letters)]
)


@given(st.dictionaries(st.sampled_from("nmopq"), switches, min_size=1))
def test_an_even_tree_joins_two_nodes_exactly_where_a_domain_of_the_source_does(
    paths: dict[str, list[str]],
) -> None:
    tiers, even = ragged(paths, ())
    for one, other in combinations(paths, 2):
        shared = sum(a == b for a, b in accumulated(paths[one], paths[other]))
        joined = sum(a == b for a, b in accumulated(even[one], even[other]))
        assert (joined > 0) == (shared > 0)
        on_one_switch = shared > 0 and len(paths[one]) == shared == len(paths[other])
        assert (joined == len(tiers) > 0) == on_one_switch


def accumulated(
    one: Sequence[str], other: Sequence[str]
) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """The two paths down to each tier that both have."""
    for length in range(1, min(len(one), len(other)) + 1):
        yield one[:length], other[:length]


names = st.sampled_from("abcd")


@given(st.lists(st.tuples(names, names, names, names), min_size=1, max_size=8))
def test_no_merge_loses_a_node_or_joins_what_a_source_divides(rows: list[tuple[str, ...]]) -> None:
    first = FabricReading(
        ("x", "y"), tuple(SeenNode(f"n{i}", (a, b)) for i, (a, b, _, _) in enumerate(rows))
    )
    second = FabricReading(
        ("v", "w"), tuple(SeenNode(f"n{i}", (c, d)) for i, (_, _, c, d) in enumerate(rows))
    )
    found = put_together(first, second)
    assert [node.name for node in found.nodes] == [f"n{i}" for i in range(len(rows))]
    for i, one in enumerate(found.nodes):
        for j, other in enumerate(found.nodes):
            same_place = one.at == other.at and one.partitions == other.partitions
            assert same_place == (rows[i] == rows[j])


def test_that_a_source_has_no_tree_is_warned_of_only_where_no_other_has_one() -> None:
    tree = FabricReading(("leaf",), (SeenNode("a", ("l0",)), SeenNode("b", ("l1",))))
    flat = FabricReading((), (SeenNode("a"), SeenNode("b")), warnings_if_alone=("no tree",))
    first, second = Source("tree.txt", "slurm", tree), Source("flat.txt", "csv", flat)
    assert merged([second]).warnings == ("no tree",)
    assert merged([second, second]).warnings == ("no tree", "no tree")
    assert merged([first, second]).warnings == ()
    found = merged([second, first])
    assert (found.tiers, found.warnings, found.warnings_if_alone) == (("leaf",), (), ())
