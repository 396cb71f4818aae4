"""Reading Slurm's topology.yaml: the manual's file, each kind of topology, a table of traps, and fuzz."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.errors import BadFields, BadInput
from gantree.topology.discovery.fabrics import FabricReading
from gantree.topology.discovery.listings.slurm_yaml import parse
from support.damage import damaged_lines, told_fabric
from support.examples import examples

SHARED = Path(__file__).parents[3] / "shared" / "data" / "topology" / "slurm"

TREE = """\
- topology: net
  cluster_default: true
  tree:
    switches:
      - switch: root
        children: s[1-2]
      - switch: s1
        nodes: n[01-02]
      - switch: s2
        nodes: n[03-04]
"""
BLOCKS = """\
- topology: racks
  cluster_default: false
  block:
    block_sizes: [2, 4]
    blocks:
      - block: b1
        nodes: n[01,03]
      - block: b2
        nodes: n[02,04]
"""
TORUS = """\
- topology: pods
  torus3d:
    toruses:
      - name: pod
        dims: {x: 2, y: 3, z: 2}
        nodes: t[0-11]
        placements:
          - dims: {x: 1, y: 3, z: 1}
          - dims: {x: 2, y: 3, z: 2}
            anchor_spacing: {x: 1, y: 1, z: 1}
"""
RINGS = "- topology: rings\n  ring:\n    rings:\n      - {ring: r0, nodes: 'n[04,01-03]'}\n"
FLAT = "- topology: all\n  flat: {alpha_step_rank: true}\n"
TEXTS = [TREE, BLOCKS, TORUS, RINGS, FLAT, TREE + BLOCKS + TORUS + RINGS + FLAT]


def places(reading: FabricReading) -> dict[str, str]:
    return {node.name: "/".join(node.at) for node in reading.nodes}


def test_the_cluster_default_makes_the_tree_and_the_others_divide_its_nodes() -> None:
    found = parse(BLOCKS + TREE, "f")
    assert found.tiers == ("spine", "leaf")
    assert places(found) == {"n01": "root/s1", "n02": "root/s1", "n03": "root/s2", "n04": "root/s2"}
    assert dict(found.nodes[1].partitions) == {"racks.block4": "b1..b2", "racks.block": "b2"}
    assert found.inferred[0] == "topology net makes the tree: it is the cluster's default"


def test_the_one_that_is_asked_for_makes_the_tree() -> None:
    found = parse(TREE + BLOCKS, "f", "racks")
    assert found.tiers == ("block4", "block")
    assert dict(found.nodes[0].partitions) == {"net.spine": "root", "net.leaf": "s1"}


def test_the_only_one_needs_no_default() -> None:
    assert parse(BLOCKS, "f").tiers == ("block4", "block")


def test_without_a_default_the_names_are_told() -> None:
    with pytest.raises(BadInput, match="none is cluster_default; name one of them: racks, rings"):
        parse(BLOCKS + RINGS, "f")
    with pytest.raises(
        BadInput, match=r"no topology 'rack'; there: racks, rings. Did you mean `racks`"
    ):
        parse(BLOCKS + RINGS, "f", "rack")


def test_nodes_of_a_torus_are_listed_with_x_fastest_and_kept_with_the_last_axis_fastest() -> None:
    (torus,) = parse(TORUS, "f").tori
    assert (torus.dims, torus.host, torus.wrap) == ((2, 3, 2), (1, 1, 1), (True, True, True))
    assert torus.slices == ((1, 3, 1), (2, 3, 2))
    at = {
        (x, y, z): torus.nodes[(x * 3 + y) * 2 + z]
        for x in range(2)
        for y in range(3)
        for z in range(2)
    }
    assert [at[0, 0, 0], at[1, 0, 0], at[0, 1, 0], at[0, 0, 1], at[1, 2, 1]] == [
        "t0",
        "t1",
        "t2",
        "t6",
        "t11",
    ]


def test_regions_put_nodes_where_they_say() -> None:
    regions = TORUS.replace(
        "nodes: t[0-11]",
        "regions: [{anchor: {x: 0, y: 0, z: 0}, dims: {x: 2, y: 3, z: 1}, nodes: 'a[0-5]'},"
        " {anchor: {x: 0, y: 0, z: 1}, dims: {x: 2, y: 3, z: 1}, nodes: 'b[0-5]'}]",
    )
    (torus,) = parse(regions, "f").tori
    assert torus.nodes[:4] == ("a0", "b0", "a2", "b2")


@pytest.mark.parametrize(
    ("regions", "told"),
    [
        ("{anchor: {x: 1, y: 0, z: 0}, dims: {x: 2, y: 1, z: 1}, nodes: 'a[0-1]'}", "reaches out of the torus"),
        ("{anchor: {x: 0, y: 0, z: 0}, dims: {x: 2, y: 1, z: 1}, nodes: a0}", "found 1 node; allowed: 2 nodes"),
        ("{anchor: {x: 0, y: 0, z: 0}, dims: {x: 1, y: 1, z: 1}, nodes: a0}, "
         "{anchor: {x: 0, y: 0, z: 0}, dims: {x: 1, y: 1, z: 1}, nodes: a1}", "found `a1` where `a0` is"),
    ],
)  # fmt: skip
def test_regions_that_do_not_fit_are_refused(regions: str, told: str) -> None:
    with pytest.raises(BadFields, match=told):
        parse(TORUS.replace("nodes: t[0-11]", f"regions: [{regions}]"), "f")


def test_a_torus_with_empty_places_is_a_domain_and_no_torus() -> None:
    regions = TORUS.replace(
        "nodes: t[0-11]",
        "regions: [{anchor: {x: 0, y: 0, z: 0}, dims: {x: 2, y: 1, z: 1}, nodes: 'a[0-1]'}]",
    )
    found = parse(regions, "f")
    assert (found.tiers, places(found), found.tori) == (("torus",), {"a0": "pod", "a1": "pod"}, ())
    assert "10 of its 12 places have no node" in found.warnings[0]


def test_a_flat_topology_takes_the_nodes_of_the_others_without_tiers() -> None:
    found = parse(TREE.replace("true", "false") + FLAT, "f", "all")
    assert found.tiers == ()
    assert dict(found.nodes[3].partitions) == {"net.spine": "root", "net.leaf": "s2"}
    with pytest.raises(BadInput, match="names no nodes"):
        parse(FLAT, "f")


def test_nodes_that_only_another_topology_names_are_left_out_and_warned_of() -> None:
    found = parse(TREE + RINGS.replace("[04,01-03]", "[04-06]"), "f")
    assert len(found.nodes) == 4
    assert "2 nodes of topology rings left out, for they are not in net: n05, n06" in found.warnings


def test_a_topology_that_is_switched_off_is_none() -> None:
    assert parse(TREE + "  flat: false\n", "f").tiers == ("spine", "leaf")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (TREE.replace("nodes: n[03-04]", "nodes: n[02-04]"), "node n02: found it below `s2` and below `s1` (the first"),
        (TREE.replace("s[1-2]", "s[1-3]"), "f:5: switch root: found the undefined switch `s3` below it"),
        (TREE.replace("tree:", "tre:"), "f:1: [0].topology: found none of them; allowed: one of tree, block"),
        (TREE + "  flat: true\n", "found `tree` and `flat`"),
        (TREE.replace("    switches:\n", "    - switches:\n"), "f:3: [0].tree: found a list; allowed: a mapping"),
        (TORUS.replace("t[0-11]", "t[0-10]"), "found 11 nodes; allowed: 12 nodes for 2 x 3 x 2"),
        (TORUS.replace("z: 2}\n        nodes", "z: 99999}\n        nodes").replace("y: 3", "y: 9999"), "places in all"),
        (TORUS.replace("{x: 1, y: 3, z: 1}", "{x: 3, y: 3, z: 1}"), "a placement larger than the torus"),
        (TORUS.replace("{x: 2, y: 3, z: 2}\n        nodes", "{x: 0, y: 3, z: 2}\n        nodes"), "1 or more"),
        (BLOCKS.replace("[2, 4]", "[2, 5]"), "block sizes: found `5`"),
        (BLOCKS.replace("[2, 4]", "[2, x]"), "f:4: [0].block.block_sizes: found `x`"),
        (BLOCKS.replace("nodes: n[02,04]", "nodes: n[03]"), "found node `n03`, which is in `b1` (line 6)"),
        ("- topology: a\n  tree: [", "f:3: document"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_with_its_line(text: str, told: str) -> None:
    with pytest.raises(BadFields) as caught:
        parse(text, "f")
    assert told in str(caught.value)


def test_two_topologies_of_one_name_are_refused() -> None:
    with pytest.raises(BadInput, match="topology net is there twice"):
        parse(TREE + TREE, "f")


WORDS = st.sampled_from(
    ["", "null", "-1", "99999999999", "[]", "{}", "n[01-03]", "true", "x:", "!", "n01"]
)


@settings(max_examples=examples(200), deadline=None)
@given(
    st.one_of(st.text(), damaged_lines(TEXTS, WORDS)),
    st.sampled_from([None, "net", "pods", "racks"]),
)
def test_no_text_makes_it_raise_anything_but_its_own_errors(
    text: str, topology: str | None
) -> None:
    found = told_fabric(lambda given, source: parse(given, source, topology), text)
    for torus in found.tori if found else ():
        x, y, z = (*torus.dims, 1, 1)[:3]
        assert len(torus.nodes) == x * y * z


def test_the_file_of_the_manual_gets_its_verdict() -> None:
    path = SHARED / "slurm-man-topology.yaml"
    if not path.exists():
        pytest.skip("needs ../shared/data/topology, whose files are others'")
    text = path.read_text()
    assert (parse(text, "f").tiers, len(parse(text, "f").nodes)) == (("spine", "leaf"), 4)
    tiers = {
        name: parse(text, "f", name).tiers
        for name in ("topo2", "topo3", "topo3a", "topo4", "topo5")
    }
    assert tiers == {
        "topo2": ("block16", "block"),
        "topo3": (),
        "topo3a": (),
        "topo4": ("ring",),
        "topo5": ("torus",),
    }
    (torus,) = parse(text, "f", "topo5").tori
    assert (torus.dims, torus.slices) == ((4, 4, 2), ((2, 2, 1), (2, 2, 2), (4, 4, 2)))
    assert torus.nodes[1] == "node17"
