"""cluster.yaml: what a good file means, and where a bad one is wrong."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.formats import read_cluster
from gantree.formats.cluster.writer import write_cluster
from gantree.model.cluster import (
    NO_LINK,
    Allocation,
    DomainFacts,
    Link,
    Machine,
    Nic,
    NicFacts,
    Torus,
)
from gantree.model.errors import BadFields, GantreeError
from gantree.topology.hardware.catalog import MACHINES
from support.examples import examples
from support.yaml_text import read_yaml

DATA = Path(__file__).parents[2] / "data" / "clusters"
GOOD = (DATA / "two-leaves.yaml").read_text(encoding="utf-8")

SMALL = """\
name: small
tiers: [leaf, node]
machines:
  m2: {gpus: 2, gpu: T4, cpus: 8, nics: 2}
  p2:
    gpus: 2
    links: [[X, NV1], [NV1, X]]
    numa: [0, 1]
    nics: [{name: a, near: [0]}, {name: b, near: [1]}]
nodes:
  - {names: "n[0-3]", machine: m2, at: {leaf: l0}}
  - {names: p0, machine: p2, at: {leaf: l1}}
links:
  leaf: {bandwidth_GBps: 50, latency_us: 6}
allocations:
  - {job: old, node: n0, gpus: [0]}
"""


def test_a_good_file_is_read_in_full() -> None:
    cluster = read_cluster(GOOD, "two-leaves.yaml")
    assert (cluster.name, cluster.tiers) == ("two-leaves", ("spine", "leaf", "node"))
    assert cluster.links == {"spine": Link(25, 12, 800), "leaf": Link(50, 6)}
    names = [node.name for node in cluster.nodes]
    assert names[:4] == ["n0", "n1", "n2", "n3"]
    assert names[4:7] == ["r0-n08", "r0-n09", "r0-n10"]
    assert names[7:] == ["r1-n08", "r1-n09", "r1-n10", "w0", "007", "c0"]
    assert cluster.nodes[0].at == ("s0", "00")
    assert cluster.nodes[0].labels == (("pool", "a"), ("rank", "1"))
    assert cluster.nodes[4].at == ("s0", "l1")
    assert cluster.nodes[11].launch == ("ip", "netns", "exec", "007")
    assert (cluster.nodes[11].address, cluster.nodes[0].address) == ("007.local", "127.0.0.1")
    assert cluster.allocations == (
        Allocation("old-1", "n0", (0, 1, 2, 3), 0.5, 0.0, 2),
        Allocation("old-2", "n0", (4,)),
    )


def test_machines_of_the_file_and_of_the_catalogue_come_along() -> None:
    machines = read_cluster(GOOD, "two-leaves.yaml").machines
    assert sorted(machines) == ["cpu-only", "dgx-h100", "m8", "pairs4"]
    assert machines["dgx-h100"] == MACHINES["dgx-h100"]
    assert machines["m8"].nics[1] == Nic("mlx5_1", (1,), 1)
    assert machines["cpu-only"] == Machine("cpu-only", 0, cpus=32.0, nics_counted=False)
    assert machines["pairs4"] == Machine(
        "pairs4",
        4,
        "A6000-48GB",
        (
            ("X", "NV4", "NODE", "NODE"),
            ("NV4", "X", "NODE", "NODE"),
            ("NODE", "NODE", "X", NO_LINK),
            ("NODE", "NODE", NO_LINK, "X"),
        ),
        (0, 0, 1, None),
        (Nic("mlx5_0", (0, 1), 0), Nic("mlx5_1", (2, 3))),
        64.5,
        512.0,
    )


FACTS = """\
name: facts
tiers: [leaf, node]
machines:
  m2:
    gpus: 2
    peer: [[true, false], [false, true]]
    nics: [{name: a, near: [0], bandwidth_GBps: 50, path: PIX}, {name: b}]
nodes:
  - {names: "n[0-3]", machine: m2, at: {leaf: l0}, partitions: {power: feed-a}}
  - {names: "t[0-3]", machine: tpu-v4-host, at: {leaf: l1}}
domains:
  - {tier: leaf, name: l0, uplink_GBps: 800, health: 0.5, load: 0.25}
  - {tier: node, name: n1, health: 0}
nics:
  - {node: n0, nic: a, health: 0.5, load: 1}
tori:
  - {name: pod, dims: [4, 4, 1], host: [2, 2, 1], nodes: "t[0-3]", wrap: [true, true, false], slices: [[2, 2, 1]]}
  - {name: ring, dims: [4], nodes: [n3, "n[0-2]"]}
"""


def test_what_is_particular_of_domains_nics_and_tori_is_read() -> None:
    cluster = read_cluster(FACTS, "facts.yaml")
    assert cluster.machines["m2"].peer == ((True, False), (False, True))
    assert cluster.machines["m2"].nics == (Nic("a", (0,), None, 50.0, "PIX"), Nic("b"))
    assert cluster.nodes[0].partitions == (("power", "feed-a"),)
    assert cluster.nodes[4].partitions == ()
    assert cluster.domains == (
        DomainFacts("leaf", "l0", 800.0, 0.5, 0.25),
        DomainFacts("node", "n1", None, 0.0, 0.0),
    )
    assert cluster.nics == (NicFacts("n0", "a", 0.5, 1.0),)
    assert cluster.tori == (
        Torus(
            "pod", (4, 4, 1), (2, 2, 1), ("t0", "t1", "t2", "t3"), (True, True, False), ((2, 2, 1),)
        ),
        Torus("ring", (4,), (1,), ("n3", "n0", "n1", "n2"), (True,)),
    )


@pytest.mark.parametrize("link", ["NVB", "NV4", "XGMI1", "XGMI7", "ICI1"])
def test_link_classes_of_all_vendors_are_read(link: str) -> None:
    text = SMALL.replace("[[X, NV1], [NV1, X]]", f"[[X, {link}], [{link}, X]]")
    assert read_cluster(text, "c.yaml").machines["p2"].links[0][1] == link


WRONG_FACTS = [
    # what is replaced, by what, line, field, words of the message
    ("path: PIX", "path: PXI", 7, "machines.m2.nics[0].path", "Did you mean `P"),
    ("path: PIX", "path: X", 7, "machines.m2.nics[0].path", "PXB"),
    ("bandwidth_GBps: 50", "bandwidth_GBps: 0", 7, "machines.m2.nics[0].bandwidth_GBps", "above 0"),
    ("[[true, false], [false, true]]", "[[true, false]]", 6, "machines.m2.peer", "2 rows"),
    ("[[true, false], [false, true]]", "[[true], [false, true]]", 6, "machines.m2.peer[0]", "2 columns"),
    ("[[true, false], [false, true]]", "[[false, false], [false, true]]", 6, "machines.m2.peer[0][0]", "itself"),
    ("[[true, false], [false, true]]", "[[1, 0], [0, 1]]", 6, "machines.m2.peer[0][0]", "true or false"),
    ("{power: feed-a}", "{leaf: feed-a}", 9, "nodes[0].partitions.leaf", "no tier"),
    ("{power: feed-a}", "{power: [feed-a]}", 9, "nodes[0].partitions.power", "a name"),
    ("tier: leaf, name: l0", "tier: leav, name: l0", 12, "domains[0].tier", "Did you mean `leaf`?"),
    ("name: l0, up", "name: l00, up", 12, "domains[0].name", "Did you mean `l0`?"),
    ("name: l0, up", "name: l0/n0, up", 12, "domains[0].name", "a leaf of this cluster"),
    ("name: l0, up", "name: /, up", 12, "domains[0].name", "s0/l0"),
    ("health: 0.5, load: 0.25", "health: 1.5", 12, "domains[0].health", "from 0 to 1"),
    ("health: 0.5, load: 0.25", "load: -1", 12, "domains[0].load", "from 0 to 1"),
    ("health: 0.5, load: 0.25", "health: .nan", 12, "domains[0].health", "from 0 to 1"),
    ("uplink_GBps: 800", "uplink_GBps: 0", 12, "domains[0].uplink_GBps", "above 0"),
    ("name: n1, health", "name: l0/n1, health", 13, "domains[1].name", "unknown node"),
    ("{tier: node, name: n1, health: 0}", "{tier: leaf, name: l0}", 13, "domains[1].name", "once"),
    ("node: n0, nic: a", "node: n9, nic: a", 15, "nics[0].node", "unknown node `n9`"),
    ("node: n0, nic: a", "node: n0, nic: c", 15, "nics[0].nic", "a NIC of m2 (a, b)"),
    ("node: n0, nic: a", "node: t0, nic: a", 15, "nics[0].nic", "no NIC"),
    ("load: 1}", "load: 1}\n  - {node: n0, nic: a}", 16, "nics[1].nic", "each NIC once"),
    ("host: [2, 2, 1]", "host: [2, 2]", 17, "tori[0].host", "3 numbers"),
    ("host: [2, 2, 1]", "host: [3, 2, 1]", 17, "tori[0].dims[0]", "a multiple of host, 3"),
    ("host: [2, 2, 1]", "host: [4, 2, 1]", 17, "tori[0].host", "t0 has 4"),
    ("host: [2, 2, 1]", "host: [0, 2, 1]", 17, "tori[0].host[0]", "1 or more"),
    ("dims: [4, 4, 1]", "dims: [8, 4, 1]", 17, "tori[0].nodes", "8, as many as dims / host"),
    ("dims: [4, 4, 1]", "dims: []", 17, "tori[0].dims", "at least 1"),
    ('nodes: "t[0-3]"', 'nodes: "t[0-4]"', 17, "tori[0].nodes", "`t4`"),
    ('nodes: "t[0-3]"', "nodes: [t0, t1, t0, t3]", 17, "tori[0].nodes", "`t0`, which is in pod"),
    ('nodes: "t[0-3]"', "nodes: [t0, t1, t2, n0]", 18, "tori[1].nodes", "`n0`, which is in pod"),
    ("wrap: [true, true, false]", "wrap: [true]", 17, "tori[0].wrap", "3 of true or false"),
    ("wrap: [true, true, false]", "wrap: true", 17, "tori[0].wrap", "a list"),
    ("slices: [[2, 2, 1]]", "slices: [[2, 2]]", 17, "tori[0].slices[0]", "3 numbers"),
    ("slices: [[2, 2, 1]]", "slices: [[2, 8, 1]]", 17, "tori[0].slices[0][1]", "at most 4"),
    ("name: ring", "name: pod", 18, "tori[1].name", "each torus once"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "line", "field", "words"), WRONG_FACTS)
def test_a_wrong_fact_is_named_with_its_line(
    old: str, new: str, line: int, field: str, words: str
) -> None:
    assert old in FACTS
    with pytest.raises(BadFields) as caught:
        read_cluster(FACTS.replace(old, new, 1), "f.yaml")
    told = [problem for problem in caught.value.problems if problem.field == field]
    assert told, str(caught.value)
    assert told[0].line == line
    assert words in str(told[0])


def test_a_lost_node_makes_no_fact_look_wrong() -> None:
    text = FACTS.replace('names: "n[0-3]"', "names: []")
    with pytest.raises(BadFields) as caught:
        read_cluster(text, "f.yaml")
    assert [problem.field for problem in caught.value.problems] == ["nodes[0].names"]


def test_a_lost_tier_makes_no_fact_look_wrong() -> None:
    text = FACTS.replace("tiers: [leaf, node]", "tiers: [{}, node]")
    with pytest.raises(BadFields) as caught:
        read_cluster(text, "f.yaml")
    assert [problem.field for problem in caught.value.problems] == ["tiers[0]"]


def _read_or_told(text: str) -> None:
    """A text is refused in words, or is a cluster that can be written."""
    try:
        cluster = read_cluster(text, "f.yaml")
    except GantreeError as error:
        assert str(error)
    else:
        assert read_cluster(write_cluster(cluster), "g.yaml") == cluster


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 10**6), st.integers(0, 12), st.sampled_from(
            ["", " ", "0", "9", "[", "]", "{", "}", ",", "-1", "x", ":", "n0", "t[0-3]", "\n  - "]
        )),
        min_size=1, max_size=4,
    )
)  # fmt: skip
def test_a_mutated_file_of_facts_is_refused_in_words_or_can_be_written(
    cuts: list[tuple[int, int, str]],
) -> None:
    text = FACTS
    for place, length, instead in cuts:
        start = place % (len(text) + 1)
        text = text[:start] + instead + text[start + length :]
    _read_or_told(text)


_odd = st.none() | st.booleans() | st.integers(-1, 10**19) | st.floats() | st.text(max_size=5)
_odd |= st.sampled_from(["n[0-3]", "t0", "m2", "s0/l0", "a/" * 40, "leaf", "node", "1" * 5000])
_odder = _odd | st.lists(_odd | st.lists(_odd, max_size=3), max_size=4)


@settings(max_examples=examples(100), deadline=None)
@given(st.data())
def test_a_fact_of_another_kind_is_refused_in_words_or_can_be_written(data: st.DataObject) -> None:
    document: Any = read_yaml(FACTS)
    at = data.draw(st.sampled_from(["machines", "nodes", "domains", "nics", "tori"]))
    inner = document[at]["m2"] if at == "machines" else data.draw(st.sampled_from(document[at]))
    for field in data.draw(st.lists(st.sampled_from(sorted(inner)), min_size=1, max_size=2)):
        inner[field] = data.draw(_odder)
    _read_or_told(json.dumps(document, indent=1))


def test_too_many_nodes_of_a_torus_are_refused_without_building_them() -> None:
    lists = ", ".join(f'"x{n}-[0-99999]"' for n in range(40))
    text = FACTS.replace('nodes: [n3, "n[0-2]"]', f"nodes: [{lists}]")
    with pytest.raises(BadFields, match="at most 200000 nodes"):
        read_cluster(text, "f.yaml")


WRONG = [
    # what is replaced, by what, line, field, words of the message
    ("name: small", "nam: small", 1, "nam", "Did you mean `name`?"),
    ("name: small", "nam: small", 1, "name", "required"),
    ("name: small", "name: ../../etc", 1, "name", "`../../etc`"),
    ("name: small", "name: [a]", 1, "name", "a list"),
    ("name: small", "name: true", 1, "name", "`true`"),
    ("name: small", "name: small\nname: x", 2, "name", "first in line 1"),
    ("[leaf, node]", "[leaf, node, leaf]", 2, "tiers[2]", "each tier once"),
    ("[leaf, node]", "[node, leaf]", 2, "tiers", "ending with `node`"),
    ("[leaf, node]", "[leaf, gpu, node]", 2, "tiers[1]", "other than"),
    ("[leaf, node]", "[]", 2, "tiers", "at least 1"),
    ("[leaf, node]", "leaf", 2, "tiers", "a list"),
    ("gpus: 2, gpu: T4", "gpus: 2, gpuz: T4", 4, "machines.m2.gpuz", "Did you mean `gpu"),
    ("gpus: 2, gpu: T4", "gpus: -2, gpu: T4", 4, "machines.m2.gpus", "0 or more"),
    ("gpus: 2, gpu: T4", "gpus: true, gpu: T4", 4, "machines.m2.gpus", "`true`"),
    ("gpus: 2, gpu: T4", "gpus: 2.5, gpu: T4", 4, "machines.m2.gpus", "`2.5`"),
    ("gpus: 2, gpu: T4", "gpus: '2', gpu: T4", 4, "machines.m2.gpus", "whole number"),
    ("gpus: 2, gpu: T4", "gpus: 5000, gpu: T4", 4, "machines.m2.gpus", "at most 1024"),
    ("cpus: 8", "cpus: .nan", 4, "machines.m2.cpus", "`.nan`"),
    ("nics: 2}", "nics: x}", 4, "machines.m2.nics", "whole number"),
    ("nics: 2}", "nics: 9000}", 4, "machines.m2.nics", "at most 1024"),
    ("  m2: {", "  m 2: {", 4, "machines.m 2", "a name of"),
    ("[[X, NV1], [NV1, X]]", "[[X, NV1], [NV2, X]]", 7, "machines.p2.links[0][1]", "NV2"),
    ("[[X, NV1], [NV1, X]]", "[[NV1, NV1], [NV1, X]]", 7, "machines.p2.links[0][0]", "X, from"),
    ("[[X, NV1], [NV1, X]]", "[[X, X], [X, X]]", 7, "machines.p2.links[1][0]", "diagonal only"),
    ("[[X, NV1], [NV1, X]]", "[[X, PXI], [PIX, X]]", 7, "machines.p2.links[0][1]", "Did you mean `P"),
    ("[[X, NV1], [NV1, X]]", "[[X, NV1]]", 7, "machines.p2.links", "2 rows"),
    ("[[X, NV1], [NV1, X]]", "[[X, NV1], [NV1]]", 7, "machines.p2.links[1]", "2 columns"),
    ("numa: [0, 1]", "numa: [0]", 8, "machines.p2.numa", "2 numbers"),
    ("numa: [0, 1]", "numa: [0, -1]", 8, "machines.p2.numa[1]", "NUMA"),
    ("{name: b,", "{name: a,", 9, "machines.p2.nics[1].name", "each NIC once"),
    ("near: [1]", "near: [2]", 9, "machines.p2.nics[1].near[0]", "GPUs 0 to 1"),
    ("{name: b,", "{nam: b,", 9, "machines.p2.nics[1].nam", "Did you mean `name`?"),
    ("machine: m2", "machine: mm2", 11, "nodes[0].machine", "Did you mean `m2`?"),
    ("machine: m2", "machine: dgx-h10", 11, "nodes[0].machine", "Did you mean `dgx-h100`?"),
    ("n[0-3]", "n[0-3", 11, "nodes[0].names", "hostlist"),
    ("n[0-3]", "n[3-0]", 11, "nodes[0].names", "backwards"),
    ("n[0-3]", "n[0-[1-2]]", 11, "nodes[0].names", "hostlist"),
    ("n[0-3]", "n[0-999999999]", 11, "nodes[0].names", "at most 100000"),
    ("n[0-3]", "n[0-999][0-999][0-999]", 11, "nodes[0].names", "at most 100000"),
    ("n[0-3]", "../n", 11, "nodes[0].names", "hostlist"),
    ("n[0-3]", "n[0-3,2]", 11, "nodes[0].names", "has 2 twice"),
    ("n[0-3]", "n[001-3]", 11, "nodes[0].names", "leading zeros"),
    ("n[0-3]", "n[0-1][0-1]", 11, "nodes[0].names", "between its brackets"),
    ("names: p0", "names: n3", 12, "nodes[1].names", "first in line 11"),
    ("names: p0", "names: []", 12, "nodes[1].names", "at least one"),
    ("at: {leaf: l1}", "at: {}", 12, "nodes[1].at", "no `leaf`"),
    ("at: {leaf: l1}", "labels: {a: b}", 12, "nodes[1].at", "no `leaf`"),
    ("at: {leaf: l1}", "at: {leav: l1}", 12, "nodes[1].at.leav", "Did you mean `leaf`?"),
    ("at: {leaf: l1}", "at: {leaf: l1, node: p}", 12, "nodes[1].at.node", "unknown tier"),
    ("at: {leaf: l1}", "at: {leaf: a/b}", 12, "nodes[1].at.leaf", "`a/b`"),
    ("at: {leaf: l1}", "at: l1", 12, "nodes[1].at", "a mapping"),
    ("at: {leaf: l1}", "at: {leaf: l1}, launch: ip x", 12, "nodes[1].launch", "[ip, x]"),
    ("leaf: {band", "leav: {band", 14, "links.leav", "Did you mean `leaf`?"),
    ("bandwidth_GBps: 50", "bandwidth_Gbps: 50", 14, "links.leaf.bandwidth_Gbps", "GBps`?"),
    ("bandwidth_GBps: 50", "bandwidth_GBps: 0", 14, "links.leaf.bandwidth_GBps", "above 0"),
    ("node: n0", "node: n9", 16, "allocations[0].node", "unknown node"),
    ("gpus: [0]}", "gpus: [2]}", 16, "allocations[0].gpus[0]", "GPUs 0 to 1"),
    ("gpus: [0]}", "gpus: [1, 1]}", 16, "allocations[0].gpus[1]", "old holds"),
    ("gpus: [0]}", "gpus: 0}", 16, "allocations[0].gpus", "a list"),
    ("gpus: [0]}", "gpus: [0], cpus: 9}", 16, "allocations[0].cpus", "at most 8"),
    ("gpus: [0]}", "gpus: [0], nics: 3}", 16, "allocations[0].nics", "at most 2"),
    ("gpus: [0]}", "gpus: [0]}\n  - {job: b, node: n0, gpus: [0]}", 17, "allocations[1].gpus[0]", "old"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "line", "field", "words"), WRONG)
def test_a_wrong_field_is_named_with_its_line(
    old: str, new: str, line: int, field: str, words: str
) -> None:
    assert old in SMALL
    with pytest.raises(BadFields) as caught:
        read_cluster(SMALL.replace(old, new, 1), "c.yaml")
    told = [problem for problem in caught.value.problems if problem.field == field]
    assert told, str(caught.value)
    assert told[0].line == line
    assert words in str(told[0])
    assert str(told[0]).startswith(f"c.yaml:{line}: {field}: found ")


def test_a_wrong_field_makes_no_other_field_look_wrong() -> None:
    """What could not be read must not be missed elsewhere: a node without machine is no unknown node."""
    text = SMALL.replace("machine: m2", "machine: [m2]").replace("gpus: 2,", "gpus: x,")
    text = text.replace("[leaf, node]", "[leaf, {}, node]")
    with pytest.raises(BadFields) as caught:
        read_cluster(text, "c.yaml")
    fields = [problem.field for problem in caught.value.problems]
    assert fields == ["tiers[1]", "machines.m2.gpus", "nodes[0].machine"]


@pytest.mark.parametrize(
    ("good", "bad"), [("numa: [0, 1]", "numa: [0, 9999]"), ("NV1], [NV1", "NVx], [NV1")]
)
def test_a_wrong_entry_of_a_list_does_not_make_the_list_look_too_short(good: str, bad: str) -> None:
    assert good in SMALL
    with pytest.raises(BadFields) as caught:
        read_cluster(SMALL.replace(good, bad), "f.yaml")
    assert len(caught.value.problems) == 1


def test_all_problems_of_a_file_are_told_at_once_in_the_order_of_lines() -> None:
    text = SMALL.replace("name: small", "nam: small").replace("machine: m2", "machine: m3")
    text = text.replace("gpus: [0]}", "gpus: [7], node: n1}").replace("numa: [0, 1]", "numa: [0]")
    with pytest.raises(BadFields) as caught:
        read_cluster(text, "c.yaml")
    found = [(problem.line, problem.field) for problem in caught.value.problems]
    assert found == [
        (1, "name"),
        (1, "nam"),
        (8, "machines.p2.numa"),
        (11, "nodes[0].machine"),
        (16, "allocations[0].node"),
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "an empty file"),
        ("# nothing\n", "an empty file"),
        ("---\n...\n", "an empty file"),
        ("- a\n", "a list"),
        ("just text\n", "`just text`"),
        (SMALL + "---\n" + SMALL, "a second document"),
    ],
)
def test_a_file_of_another_shape_is_refused_as_a_whole(text: str, found: str) -> None:
    with pytest.raises(BadFields) as caught:
        read_cluster(text, "c.yaml")
    (problem,) = caught.value.problems
    assert (problem.field, problem.found) == ("document", found)
    assert problem.line


def test_too_many_nodes_in_all_are_refused_without_building_them() -> None:
    nodes = "".join(f'  - {{names: "a{n}-[0-99999]", machine: t4-4}}\n' for n in range(500))
    with pytest.raises(BadFields) as caught:
        read_cluster("name: c\ntiers: [node]\nnodes:\n" + nodes, "c.yaml")
    assert "at most 200000 nodes" in str(caught.value)


def test_thousands_of_errors_are_cut_to_a_hundred() -> None:
    nodes = "".join(f"  - {{names: n{n}, machine: nope}}\n" for n in range(3000))
    with pytest.raises(BadFields) as caught:
        read_cluster("name: c\ntiers: [node]\nnodes:\n" + nodes, "c.yaml")
    assert len(caught.value.problems) == 100


def test_131072_gpus_in_512_leaves_are_read() -> None:
    leaves = "".join(
        f'  - {{names: "n[{32 * leaf}-{32 * leaf + 31}]", machine: dgx-h100, '
        f"at: {{spine: s{leaf // 16}, leaf: l{leaf}}}}}\n"
        for leaf in range(512)
    )
    text = "name: big\ntiers: [spine, leaf, node]\nnodes:\n" + leaves
    cluster = read_cluster(text, "big.yaml")
    assert sum(cluster.machines[node.machine].gpus for node in cluster.nodes) == 131_072


def test_a_field_with_nothing_behind_it_is_as_if_it_were_left_out() -> None:
    full = "name: c\ntiers: [node]\nmachines: {m: {gpus: 4}}\nnodes:\n  - {names: n0, machine: m}\n"
    empty = full + "allocations:\nlinks:\n"
    assert read_cluster(empty, "c.yaml") == read_cluster(full, "c.yaml")


def test_a_required_field_with_nothing_behind_it_is_named() -> None:
    with pytest.raises(BadFields, match=r"c.yaml:2: tiers"):
        read_cluster("name: c\ntiers:\nnodes: []\n", "c.yaml")


def test_a_link_of_an_unknown_tier_that_lacks_a_field_is_told_of_both() -> None:
    wrong = GOOD.replace("  leaf: {bandwidth", "  rack: {bandwidth_GBps: 50}\n  leaf: {bandwidth")
    with pytest.raises(BadFields) as caught:
        read_cluster(wrong, "c.yaml")
    told = [(problem.field, problem.found) for problem in caught.value.problems]
    assert sorted(told) == [("links.rack", "an unknown tier"), ("links.rack.latency_us", "nothing")]
    first, second = caught.value.problems
    assert first.line == second.line
