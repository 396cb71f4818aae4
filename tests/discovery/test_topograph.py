"""Reading topograph's models and graphs: all forms that models ever had, a table of traps, and fuzz."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.errors import BadFields, BadInput
from gantree.topology.discovery.fabrics import FabricReading
from gantree.topology.discovery.listings.topograph import parse
from support.damage import damaged_lines, told_fabric
from support.examples import examples

SHARED = Path(__file__).parents[3] / "shared" / "data" / "topology" / "topograph"

TODAY = """\
switches:
  core:
    labels: {topology.kubernetes.io/region: east}
    switches: [spine]
  spine:
    labels: {topology.kubernetes.io/zone: z1}
    switches: [leaf1, leaf2]
blocks:
- switch: leaf1
  nodes: ["n[01-02]"]
  annotations: {accelerator.topology.test/domain: nvl1}
- switch: leaf1
  nodes: [n03]
  labels: {topology.kubernetes.io/zone: z2}
  annotations: {accelerator.topology.test/domain: nvl2}
- switch: leaf2
  nodes: ["n[04-05]"]
  annotations: {accelerator.topology.test/domain: nvl3}
"""
DUAL = """\
switches:
  core: {switches: [leaf1, leaf2]}
  leaf1: {annotations: {accelerator.topology.test/domain: d1}}
blocks:
- switch: leaf1
  nodes: ["a[1-2]"]
  annotations: {accelerator.topology.test/sub-domain: r1}
- switch: leaf2
  nodes: ["a[3-4]"]
  annotations: {accelerator.topology.test/domain: d1, accelerator.topology.test/sub-domain: r2}
"""
OLD = """\
topology: topology/tree
switches:
- name: sw3
  metadata: {region: us}
  switches: [sw21,sw22]
- name: sw21
  capacity_blocks: [cb1]
- name: sw22
  capacity_blocks: [cb2]
capacity_blocks:
- name: cb0
  nvlink: nv1
  type: H100
  nodes: [n0-1]
- {name: cb1, nvlink: nv1, type: H100, nodes: [n1-1]}
- {name: cb2, type: H100, nodes: [n2-1,n2-2]}
physical_layers:
- {name: R1, type: region}
"""
BETWEEN = """\
switches:
  s1: {nodes: ["n[1-2]"]}
capacity_blocks:
  cb1: {nodes: ["n[1-2]"], attributes: {nvlink: nvl1}}
nodes:
  n1:
    attributes:
      gpus:
      - {index: 0, model: NVIDIA H100 80GB HBM3, memory_mib: 81559}
      - {index: 1, model: NVIDIA H100 80GB HBM3, memory_mib: 81559}
  n2: {attributes: {nvlink: other}}
"""
GRAPH = json.dumps(
    {
        "instances": [
            {
                "id": "i1",
                "type": "p5",
                "network_layers": ["leaf-a", "spine-a"],
                "attributes": {"nvlink": "nv1"},
            },
            {
                "id": "i2",
                "network_layers": ["leaf-b", "spine-a"],
                "labels": {"network.topology.nvidia.com/accelerator": "nv2"},
            },
            {"id": "i3", "network_layers": [], "attributes": {}},
        ]
    }
)
TEXTS = [TODAY, DUAL, OLD, BETWEEN, GRAPH]


def places(reading: FabricReading) -> dict[str, str]:
    return {node.name: "/".join(node.at) for node in reading.nodes}


def test_accelerator_domains_inside_leaves_are_the_narrowest_tier() -> None:
    found = parse(TODAY, "f")
    assert found.tiers == ("core", "spine", "leaf", "nvlink")
    assert places(found) == {
        "n01": "core/spine/leaf1/nvl1",
        "n02": "core/spine/leaf1/nvl1",
        "n03": "core/spine/leaf1/nvl2",
        "n04": "core/spine/leaf2/nvl3",
        "n05": "core/spine/leaf2/nvl3",
    }
    assert "accelerator domains are tier `nvlink`" in found.inferred[0]
    assert found.warnings == ()


def test_labels_of_switches_hold_below_them_and_nearer_ones_win() -> None:
    labels = {node.name: dict(node.labels) for node in parse(TODAY, "f").nodes}
    assert labels["n01"] == {
        "topology.kubernetes.io/region": "east",
        "topology.kubernetes.io/zone": "z1",
    }
    assert labels["n03"]["topology.kubernetes.io/zone"] == "z2"


def test_accelerator_domains_across_leaves_stand_beside_the_tree_and_sub_domains_below_it() -> None:
    found = parse(DUAL, "f")
    assert found.tiers == ("spine", "leaf", "nvlink-sub")
    assert places(found)["a3"] == "core/leaf2/r2"
    assert {node.partitions for node in found.nodes} == {(("nvlink", "d1"),)}
    assert "accelerator domains are partition `nvlink`" in found.inferred[0]


def test_sub_domains_of_one_name_in_two_domains_are_two() -> None:
    text = "blocks:\n" + "".join(
        f"- {{nodes: [n{i}], annotations: {{accelerator.topology.test/domain: d{i},"
        f" accelerator.topology.test/sub-domain: r}}}}\n"
        for i in range(2)
    )
    assert places(parse(text, "f")) == {"n0": "d0/d0.r", "n1": "d1/d1.r"}


def test_models_of_capacity_blocks_are_read_too() -> None:
    found = parse(OLD, "f")
    assert found.tiers == ("spine", "leaf")
    assert places(found) == {
        "n1-1": "sw3/sw21",
        "n2-1": "sw3/sw22",
        "n2-2": "sw3/sw22",
        "n0-1": "n0-1/n0-1",
    }
    nodes = {node.name: node for node in found.nodes}
    assert nodes["n0-1"].partitions == nodes["n1-1"].partitions == (("nvlink", "nv1"),)
    assert dict(nodes["n2-1"].labels) == {"region": "us", "type": "H100"}
    assert found.warnings == (
        "1 node hangs on no switch and is joined to none: n0-1",
        "physical_layers are passed over: they are no part of today's models",
    )


def test_nodes_may_tell_their_gpus() -> None:
    first, second = parse(BETWEEN, "f").nodes
    assert (first.gpus, first.gpu, first.at) == (2, "H100-80GB", ("s1", "nvl1"))
    assert (second.gpus, second.at) == (None, ("s1", "nvl1"))


def test_a_model_without_switches_has_accelerator_domains_only() -> None:
    found = parse(
        'blocks:\n- nodes: ["n[1-2]"]\n  annotations: {accelerator.topology.test/domain: d}\n- nodes: [m]\n',
        "f",
    )
    assert found.tiers == ("nvlink",)
    assert places(found) == {"n1": "d", "n2": "d", "m": "m"}
    assert "1 node in none has one of its own: m" in found.inferred[0]


def test_the_lone_domain_of_a_node_is_never_one_that_is_there() -> None:
    text = "blocks:\n- nodes: [x]\n- nodes: [y]\n  annotations: {accelerator.topology.test/domain: x}\n"
    assert places(parse(text, "f")) == {"x": "x-alone", "y": "x"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("accelerated.topology.nvidia.com/level-0", "nvl"),
        ("accelerator.topograph.run/domain", "nvl"),
        ("network.topology.nvidia.com/accelerator", "nvl"),
        ("nvidia.com/gpu.clique", "nvl"),
    ],
)
def test_accelerator_labels_of_all_times_are_known(key: str, value: str) -> None:
    text = TODAY.replace(
        "annotations: {accelerator.topology.test/domain: nvl1}", f"labels: {{{key}: {value}}}"
    )
    assert places(parse(text, "f"))["n01"] == "core/spine/leaf1/nvl"


def test_the_graph_of_the_engine_lists_layers_from_the_closest() -> None:
    found = parse(GRAPH, "f")
    assert found.tiers == ("spine", "leaf", "nvlink")
    assert places(found) == {
        "i1": "spine-a/leaf-a/nv1",
        "i2": "spine-a/leaf-b/nv2",
        "i3": "i3/i3/i3",
    }
    assert found.warnings == ("1 instance has no network layers and is joined to none: i3",)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (TODAY.replace("switch: leaf2", "switch: leaf3"),
         "f:16: blocks[2].switch: found the unknown switch `leaf3`; allowed: a switch of the model. Did you mean"),
        (TODAY.replace("n[04-05]", "n[02-03]"), "found `n02`, which another block has (line 9)"),
        (TODAY.replace("[leaf1, leaf2]", "[leaf1, leaf2, core]"), "a cycle: core, spine are below each other"),
        (TODAY.replace("switches: [spine]", "switches: [spine, leaf1]"), "switch leaf1: found it below `core`"),
        (TODAY.replace('["n[04-05]"]', "[]"), "blocks[2].nodes: found none"),
        (TODAY.replace("domain: nvl1", "domain: a/b"), "accelerator domain of n01: found `a/b`"),
        (TODAY.replace("n[01-02]", "n[1-9999999]"), "which makes too many"),
        (TODAY.replace("  spine:\n", "  other:\n  spine:\n"), "switches.other: found nothing; allowed: a mapping"),
        (OLD.replace("[cb2]", "[cb9]"), "found the undefined capacity block `cb9`"),
        (OLD.replace("name: sw22", "name: sw21"), "found `sw21` again"),
        (BETWEEN.replace('s1: {nodes: ["n[1-2]"]}', 's1: {nodes: ["n[1-3]"]}'), "found undefined nodes n3"),
        (GRAPH.replace('"i2"', '"i1"'), "found `i1` again"),
        (GRAPH.replace("leaf-b", "leaf b"), "a layer that is no name"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused(text: str, told: str) -> None:
    with pytest.raises(BadFields) as caught:
        parse(text, "f")
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no topograph model"),
        ("SwitchName=a Nodes=b", "found `SwitchName=a Nodes=b`|import it as slurm"),
        ("- topology: t\n  cluster_default: true\n", "slurm-yaml"),
        ("provider: {name: test}\n", "no topograph model"),
        ("switches: {}\n", "no block of the model has nodes"),
        ('{"instances": []}', "lists no instances"),
    ],
)
def test_what_is_no_model_is_named(text: str, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        parse(text, "f")


WORDS = st.sampled_from(
    ["", "null", "[leaf1]", "core", "[]", "{}", "n[01-03]", "true", "x:", "[n01]", "1e9"]
)


@settings(max_examples=examples(250), deadline=None)
@given(st.one_of(st.text(), damaged_lines(TEXTS, WORDS)))
def test_no_text_makes_it_raise_anything_but_its_own_errors(text: str) -> None:
    found = told_fabric(parse, text)
    assert found is None or found.nodes


@pytest.mark.parametrize(
    ("name", "tiers", "counts", "nodes"),
    [
        ("model-small-tree.yaml", ("spine", "leaf", "nvlink"), (1, 2, 2), 6),
        ("model-medium.yaml", ("core", "spine", "leaf", "nvlink"), (1, 2, 4, 4), 8),
        ("model-large.yaml", ("core", "spine", "leaf", "nvlink"), (1, 6, 12, 12), 96),
        (
            "model-dual-xclr-regular.yaml",
            ("core", "spine", "leaf", "nvlink-sub"),
            (1, 6, 12, 12),
            96,
        ),
    ],
)
def test_each_collected_model_gets_its_verdict(
    name: str, tiers: tuple[str, ...], counts: tuple[int, ...], nodes: int
) -> None:
    path = SHARED / name
    if not path.exists():
        pytest.skip("needs ../shared/data/topology, whose files are others'")
    found = parse(path.read_text(), name)
    assert (found.tiers, len(found.nodes), found.warnings) == (tiers, nodes, ())
    assert (
        tuple(len({node.at[: i + 1] for node in found.nodes}) for i in range(len(tiers))) == counts
    )
    parents = {
        domain for node in found.nodes for name, domain in node.partitions if name == "nvlink"
    }
    assert parents == ({"nvl-1", "nvl-2"} if "dual" in name else set())
