"""Reading Slurm's topology.conf: the manual's and the test suite's files, a table of traps, and fuzz."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.errors import BadFields, BadInput, GantreeError
from gantree.topology.discovery.fabrics import FabricReading
from gantree.topology.discovery.listings.slurm_conf import parse
from gantree.topology.discovery.listings.slurm_names import MAX_NAMES, BadNames, expanded
from support.damage import damaged, told_fabric
from support.examples import examples

SHARED = Path(__file__).parents[3] / "shared" / "data" / "topology" / "slurm"

MAN_TREE = """\
SwitchName=s0 Nodes=dev[0-5]
SwitchName=s1 Nodes=dev[6-11]
SwitchName=s2 Nodes=dev[12-17]
SwitchName=s3 Switches=s[0-2]
"""
MAN_BLOCKS = """\
BlockName=block1 Nodes=node[1-32]
BlockName=block2 Nodes=node[33-64]
BlockName=block3 Nodes=node[65-96]
BlockName=block4 Nodes=node[97-128]
BlockSizes=30,120
"""
MAN_RINGS = "RingName=ring0 Nodes=node[01-08]\nRingName=ring1 Nodes=node[09-16]\n"
TOPOGRAPH = """\
# switch.2.1=core
SwitchName=switch.2.1 Switches=switch.1.[1-2]
# switch.1.1=leaf-1-1
SwitchName=switch.1.1 Nodes=srv[1101-1108]
# switch.1.2=leaf-1-2
SwitchName=switch.1.2 Nodes=srv[1201-1208]
"""
UNEVEN = """\
SwitchName=root Switches=mid,low3
SwitchName=mid Switches=low[1-2]
SwitchName=low1 Nodes=a1
SwitchName=low2 Nodes=a2
SwitchName=low3 Nodes=a3
"""
APART = "SwitchName=a Switches=a1\nSwitchName=a1 Nodes=n[1-2]\nSwitchName=b1 Nodes=n[3-4]\n"
SHOWN_TREE = """\
SwitchName=l0 Level=0 LinkSpeed=1 Nodes=n[0-1]
SwitchName=l1 Level=0 LinkSpeed=1 Nodes=n[2-3]
SwitchName=l2 Level=0 LinkSpeed=1 Nodes=n[4-5]
SwitchName=m0 Level=1 LinkSpeed=1 Nodes=n[0-3] Switches=l[0-1]
SwitchName=root Level=2 LinkSpeed=1 Nodes=n[0-6] Switches=m0,l2
"""
SHOWN_BLOCKS = """\
BlockName=b0 BlockIndex=0 Nodes=n[0-1] BlockSize=2
BlockName=b1 BlockIndex=1 Nodes=n[2-3] BlockSize=2
AggregatedBlock=b[0-1] BlockIndex=2 Nodes=n[0-3] BlockSize=4
"""
TEXTS = [MAN_TREE, MAN_BLOCKS, MAN_RINGS, TOPOGRAPH, UNEVEN, APART, SHOWN_TREE, SHOWN_BLOCKS]


def places(reading: FabricReading) -> dict[str, str]:
    return {node.name: "/".join(node.at) for node in reading.nodes}


def domains(reading: FabricReading, tier: int) -> int:
    return len({node.at[: tier + 1] for node in reading.nodes})


def test_the_tree_of_the_manual_has_three_leaves_under_one_spine() -> None:
    found = parse(MAN_TREE, "f")
    assert found.tiers == ("spine", "leaf")
    assert [domains(found, tier) for tier in range(2)] == [1, 3]
    assert places(found)["dev17"] == "s3/s2"
    assert [node.name for node in found.nodes] == [f"dev{i}" for i in range(18)]
    assert (found.inferred, found.warnings) == ((), ())


def test_blocks_are_taken_together_in_runs_of_powers_of_two_of_the_base_size() -> None:
    found = parse(MAN_BLOCKS, "f")
    assert found.tiers == ("block120", "block")
    assert places(found)["node33"] == "block1..block4/block2"
    assert "runs of 4" not in found.inferred[0]
    assert "each run of 4 consecutive blocks" in found.inferred[0]
    assert "no switch is told" in found.inferred[0]


def test_aggregates_stop_at_the_first_that_holds_all_blocks_and_a_rest_stays_smaller() -> None:
    blocks = "".join(f"BlockName=b{i} Nodes=n[{4 * i}-{4 * i + 3}]\n" for i in range(5))
    found = parse(blocks + "BlockSizes=4,8,16,32,64\n", "f")
    assert found.tiers == ("block32", "block16", "block8", "block")
    assert places(found)["n0"] == "b0..b4/b0..b3/b0..b1/b0"
    assert places(found)["n16"] == "b0..b4/b4/b4/b4"


def test_blocks_without_nodes_hold_the_places_that_they_are_written_for() -> None:
    blocks = ("a Nodes=n1", "free1", "b Nodes=n2", "c Nodes=n3", "d Nodes=n4", "free2")
    found = parse("".join(f"BlockName={b}\n" for b in blocks) + "BlockSizes=1,2,4\n", "f")
    assert places(found) == {
        "n1": "a..c/a/a",
        "n2": "a..c/b..c/b",
        "n3": "a..c/b..c/c",
        "n4": "d/d/d",
    }
    assert any(
        "2 blocks have no nodes and keep places free: free1, free2" in said
        for said in found.inferred
    )
    assert found.warnings == ()


def test_a_switch_that_scontrol_shows_holds_only_what_no_lower_one_holds() -> None:
    assert places(parse(SHOWN_TREE, "f")) == {
        "n0": "root/m0/l0", "n1": "root/m0/l0", "n2": "root/m0/l1", "n3": "root/m0/l1",
        "n4": "root/l2/l2", "n5": "root/l2/l2", "n6": "root/root/root",
    }  # fmt: skip


def test_blocks_that_scontrol_shows_tell_their_sizes_and_runs() -> None:
    written = "BlockName=b0 Nodes=n[0-1]\nBlockName=b1 Nodes=n[2-3]\nBlockSizes=2,4\n"
    assert parse(SHOWN_BLOCKS, "f") == parse(written, "f")


def test_a_ring_that_scontrol_shows_is_the_ring_that_is_written() -> None:
    assert parse("RingName=r Nodes=n[0-3] RingSize=4\n", "f") == parse(
        "RingName=r Nodes=n[0-3]", "f"
    )


def test_a_ring_is_a_closed_torus_of_one_axis_in_the_order_of_its_list() -> None:
    found = parse("RingName=r Nodes=n[3,1-2],m9\n", "f")
    assert found.tiers == ("ring",)
    (ring,) = found.tori
    assert (ring.nodes, ring.dims, ring.host, ring.wrap) == (
        ("n3", "n1", "n2", "m9"),
        (4,),
        (1,),
        (True,),
    )


def test_names_come_from_the_comments_of_topograph() -> None:
    found = parse(TOPOGRAPH, "f")
    assert places(found)["srv1201"] == "core/leaf-1-2"
    assert "3 domains have the names that comments give" in found.inferred[-1]


def test_comments_that_would_give_two_domains_one_name_give_none() -> None:
    text = "# a=x\nSwitchName=a Nodes=n1\n# b=x\nSwitchName=b Nodes=n2\n"
    assert places(parse(text, "f")) == {"n1": "a", "n2": "b"}


def test_leaves_right_below_the_root_are_leaves_with_domains_of_their_own_between() -> None:
    found = parse(UNEVEN, "f")
    assert found.tiers == ("core", "spine", "leaf")
    assert places(found) == {"a1": "root/mid/low1", "a2": "root/mid/low2", "a3": "root/low3/low3"}
    assert "uneven" in found.inferred[0]
    assert found.warnings == ()


def test_a_short_branch_in_the_middle_keeps_the_switches_that_it_shares() -> None:
    text = (
        UNEVEN.replace("root ", "mid2 ")
        + "SwitchName=root Switches=mid2,low4\nSwitchName=low4 Nodes=a4\n"
    )
    found = places(parse(text, "f"))
    assert found["a3"].split("/")[:2] == found["a1"].split("/")[:2] == ["root", "mid2"]


def test_trees_without_a_common_root_stay_apart_and_are_warned_of() -> None:
    found = parse(APART, "f")
    assert found.tiers == ("spine", "leaf")
    assert places(found) == {"n1": "a/a1", "n2": "a/a1", "n3": "b1/b1", "n4": "b1/b1"}
    assert "2 trees" in found.warnings[0]
    assert "`required: spine` keeps a gang inside one" in found.warnings[0]


def test_switches_over_the_same_children_are_planes_of_one_domain() -> None:
    text = "".join(f"SwitchName=l{i} Nodes=n{i}\n" for i in range(3))
    planes = "SwitchName=s0 Switches=l[0-2]\nSwitchName=s1 Switches=l[0-2]\n"
    rails = "SwitchName=r0 Nodes=n[0-3]\nSwitchName=r1 Nodes=n[0-3]\n"
    assert places(parse(text + planes, "f"))["n2"] == "s0/l2"
    assert "s0, s1 have the same below them" in parse(text + planes, "f").inferred[0]
    assert set(places(parse(rails, "f")).values()) == {"r0"}


def test_switches_and_blocks_in_one_file_make_a_tree_with_blocks_below_its_leaves() -> None:
    text = "SwitchName=l0 Nodes=n[0-3]\nBlockName=b0 Nodes=n[0-1]\nBlockName=b1 Nodes=n[2-3]\n"
    found = parse(text, "f")
    assert found.tiers == ("leaf", "block")
    assert places(found)["n3"] == "l0/b1"
    crossing = text.replace("l0 Nodes=n[0-3]", "l0 Nodes=n0").replace(
        "Nodes=n[0-1]", "Nodes=n[0-1]"
    )
    beside = parse("SwitchName=l1 Nodes=n[1-3]\n" + crossing, "f")
    assert beside.tiers == ("leaf",)
    assert dict(beside.nodes[0].partitions) == {"block": "b0"}


@pytest.mark.parametrize(
    "text",
    [
        MAN_TREE.replace("\n", "\r\n"),
        "\ufeff" + MAN_TREE,
        MAN_TREE.replace("SwitchName", "SWITCHNAME").replace("Nodes", "nodes"),
        MAN_TREE.replace("=", " = "),
        MAN_TREE.replace("s3 Switches=s[0-2]", 's3 Switches="s[0-2]" LinkSpeed=4 # the root'),
        MAN_TREE.replace("s3 Switches", "s3 \\\n  Switches"),
        MAN_TREE.replace("s[0-2]", "s0,s[1-2]"),
        "# a comment\n\n" + MAN_TREE,
    ],
)
def test_the_same_tree_is_read_however_it_was_written(text: str) -> None:
    assert places(parse(text, "f")) == places(parse(MAN_TREE, "f"))


def test_link_speed_is_passed_over_and_that_is_said() -> None:
    assert (
        "LinkSpeed is passed over" in parse("SwitchName=a Nodes=n1 LinkSpeed=9\n", "f").inferred[0]
    )


def test_a_switch_without_nodes_is_left_out_and_that_is_warned_of() -> None:
    found = parse(MAN_TREE + "SwitchName=empty\n", "f")
    assert domains(found, 1) == 3
    assert found.warnings == ("1 switch has no node below it and is left out: empty",)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2\n",
         "f:2: switch a: found a second definition (the first is in line 1)"),
        ("SwitchName=leaf1 Nodes=n1\nSwitchName=r Switches=leaf1,leaf2\n",
         "f:2: switch r: found the undefined switch `leaf2` below it; allowed: switches that are defined. Did"),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a\n", "f:1: switch a: found a cycle: a, b"),
        ("SwitchName=a Switches=a\n", "f:1: switch a: found a cycle: a are"),
        ("SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n[2-3]\n",
         "f:2: node n2: found it below `b` and below `a` (the first is in line 1)"),
        ("SwitchName=l1 Nodes=n1\nSwitchName=l2 Nodes=n2\nSwitchName=l3 Nodes=n3\nSwitchName=a Switches=l[1-2]\n"
         "SwitchName=b Switches=l[2-3]\n", "f:5: switch l2: found it below `b` and below `a`"),
        ("SwitchName=s[0-3] Nodes=n1\n", "f:1: switchname: found `s[0-3]`; allowed: one name"),
        ("SwitchName=a Nodes=n1 SwitchName=b Nodes=n2\n", "Each has a line of its own."),
        ("SwitchName=a Node=n1\n", "f:1: node: found it after switchname; allowed: Switches, Nodes, LinkSpeed, Level."),
        ("SwitchNam=a Nodes=n1\n", "Did you mean `SwitchName`?"),
        ("SwitchName=a Nodes=n1 Nodes=n2\n", "f:1: nodes: found it twice"),
        ("SwitchName=a Nodes=n[1-\n", "f:1: switch a: Nodes: found `n[1-`"),
        ("SwitchName=a Nodes=n[3-1]\n", "whose range runs backwards"),
        ("SwitchName=a Nodes=n[0-999999999]\n", "which makes too many"),
        ("SwitchName=a Nodes=ALL\n", "found `ALL`"),
        ("SwitchName=a Nodes=n1\nwhat is this\n", "f:2: line: found `what is this`"),
        ("Include other.conf\n", "Put the text of the included file in its place."),
        ("BlockName=a Nodes=n1\nBlockName=b Nodes=n1\n", "f:2: block b: found node `n1`, which is in `a` (line 1)"),
        ("BlockName=a Nodes=n1\nBlockSizes=2,6\n", "block sizes: found `6`"),
        ("BlockName=a Nodes=n1\nBlockSizes=0\n", "block sizes: found `0`"),
        ("BlockName=a Nodes=n1\nBlockSizes=x\n", "f:2: BlockSizes: found `x`"),
        ("BlockName=a Nodes=n1 BlockSize=-1\n", "f:1: blocksize: found `-1`; allowed: a whole number"),
        ("SwitchName=a Level=x Nodes=n1\n", "f:1: level: found `x`; allowed: a whole number"),
        ("RingName=a Nodes=n1,n1\n", "f:1: ring a: found a node twice"),
        ("RingName=a Nodes=n1\nSwitchName=b Nodes=n2\n", "rings beside switches or blocks"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_with_its_line(text: str, told: str) -> None:
    with pytest.raises(BadFields) as caught:
        parse(text, "f")
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [("", "the text is empty"), ("# only\n", "give Slurm's topology.conf"), ("BlockSizes=4\n", "found no SwitchName")],
)  # fmt: skip
def test_a_text_without_a_topology_is_refused(text: str, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        parse(text, "f")


def test_topology_yaml_is_told_apart() -> None:
    with pytest.raises(GantreeError, match=r"topology|line"):
        parse("- topology: t\n  flat: true\n", "f")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ["n1"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("n[3,1-2]", ["n3", "n1", "n2"]),
        ("a[1-2],b[3-4],c", ["a1", "a2", "b3", "b4", "c"]),
        ("r[0-1]n[0-1]x", ["r0n0x", "r0n1x", "r1n0x", "r1n1x"]),
        ("[1101-1102]", ["1101", "1102"]),
        ("n[9-10]", ["n9", "n10"]),
    ],
)
def test_hostlists_are_expanded_in_the_order_in_which_they_are_written(
    text: str, names: list[str]
) -> None:
    assert list(expanded(text)) == names


@pytest.mark.parametrize(
    "text", ["", ",", "a,,b", "a,", "[", "n[]", "n[1-]", "n[a]", "n]", "n[[1]]", "a b", "-a", "n/1", "n[0-199999],m"]
)  # fmt: skip
def test_what_is_no_hostlist_is_refused_before_it_is_expanded(text: str) -> None:
    with pytest.raises(BadNames):
        expanded(text)


@settings(max_examples=examples(150), deadline=None)
@given(st.text("n,[]-0123456789.ab ", max_size=30))
def test_a_hostlist_never_makes_more_names_than_allowed(text: str) -> None:
    try:
        names = expanded(text, 50)
    except BadNames:
        return
    assert 0 < len(names) <= 50
    assert MAX_NAMES >= 50


WORDS = st.sampled_from(
    ["", "\n", "=", "[", "]", "\\\n", "#", "s3", "n1", ",", "0", '"', "\x00", "é", "-"]
)


@settings(max_examples=examples(200), deadline=None)
@given(st.one_of(st.text(), damaged(TEXTS, WORDS)))
def test_no_text_makes_it_raise_anything_but_its_own_errors(text: str) -> None:
    told_fabric(parse, text)


@pytest.mark.parametrize(
    ("name", "tiers", "counts", "nodes"),
    [
        ("slurm-man-tree-topology.conf", ("spine", "leaf"), (1, 3), 18),
        ("slurm-man-block-topology.conf", ("block120", "block"), (1, 4), 128),
        ("slurm-man-ring-topology.conf", ("ring",), (2,), 16),
        ("slurm-test133-case1-topology.conf", ("tier4", "core", "spine", "leaf"), (1, 2, 26, 500), 10000),
        ("slurm-test133-case3-topology.conf", ("core", "spine", "leaf"), (1, 2, 20), 400),
        ("slurm-test133-case4-topology.conf", ("spine", "leaf"), (2, 20), 400),
        ("slurm-test133-case6-topology.conf", ("spine", "leaf"), (3, 5), 40),
        ("topograph-expected.slinky-dra-block.conf.txt", ("block32", "block16", "block"), (3, 6, 12), 96),
        ("topograph-expected.slinky-oci-sim-tree.conf.txt", ("core", "spine", "leaf"), (1, 6, 12), 96),
    ],
)  # fmt: skip
def test_each_collected_file_gets_its_verdict(
    name: str, tiers: tuple[str, ...], counts: tuple[int, ...], nodes: int
) -> None:
    path = SHARED / name
    if not path.exists():
        pytest.skip("needs ../shared/data/topology, whose files are others'")
    found = parse(path.read_text(), name)
    assert found.tiers == tiers
    assert tuple(domains(found, tier) for tier in range(len(tiers))) == counts
    assert len(found.nodes) == nodes
    apart = name.partition("case")[2][:1] in {"4", "5", "6"}
    assert any("not joined" in warning for warning in found.warnings) == apart
