"""cluster.yaml: GPUs cut by MIG or shared, other devices, data, spare nodes, cubes; and where they are wrong."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.formats import read_cluster
from gantree.formats.cluster.writer import write_cluster
from gantree.model.cluster import Allocation, DataSet, Mig, Torus
from gantree.model.errors import BadFields, GantreeError
from gantree.model.placements import MigPart, SharePart
from support.examples import examples
from support.yaml_text import read_yaml

PARTS = """\
name: parts
tiers: [spine, leaf, node]
machines:
  m4: {gpus: 4, gpu: A100-80GB, numa: [0, 0, 1, 1], devices: {fpga: 2, dpu: 1}, numa_memory_GBps: 190.5}
  old: {gpus: 2, gpu: T4}
  free: {gpus: 2}
nodes:
  - {names: "p[0-1]", machine: m4, at: {spine: s0, leaf: l0}, share: none}
  - names: "c[0-1]"
    machine: m4
    at: {spine: s0, leaf: l1}
    mig:
      gpus: [1, 0]
      instances:
        - {gpu: 0, profile: 3g.40gb, start: 4}
        - {gpu: 0, profile: 2g.20gb, start: 0}
        - {gpu: 1, profile: 1g.10gb, start: 6}
      by: node
  - {names: "s[0-1]", machine: m4, at: {spine: s1, leaf: l0}, share: {modes: [mps], tenants: 2}}
  - {names: [t0, t1], machine: old, at: {spine: s1, leaf: l0}}
  - {names: f0, machine: free, at: {spine: s1, leaf: l0}}
allocations:
  - {job: a, node: c0, mig: [{gpu: 0, profile: 3g.40gb, start: 4}]}
  - {job: b, node: c0, mig: [{gpu: 0, profile: 2g.20gb, start: 0}], gpus: [3]}
  - {job: c, node: s0, shares: [{gpu: 0, compute: 0.5, memory_GiB: 40, isolation: mps}], devices: {fpga: 1}}
  - {job: d, node: s0, shares: [{gpu: 0, compute: 0.4, memory_GiB: 30, isolation: mps}], devices: {dpu: 1, fpga: 1}}
  - {job: e, node: s0, shares: [{gpu: 1, compute: 0, memory_GiB: 8, isolation: mps, alone: true}], gpus: [2]}
data:
  - {name: imagenet, at: {leaf: [s0/l0, s1/l0], node: "c[0-1]"}}
  - {name: ckpt, at: s1}
  - {name: shared fs, at: {spine: s0}}
spares: {leaf: 1, spine: 2}
tori:
  - {name: rings, dims: [2, 1], nodes: [t0, t1], cube: [1, 1], slices: [[2, 1], [1, 2]]}
"""


def test_what_is_cut_shared_and_held_of_gpus_is_read() -> None:
    cluster = read_cluster(PARTS, "parts.yaml")
    nodes = {node.name: node for node in cluster.nodes}
    cut = (Mig(1, (("1g.10gb", 6),)), Mig(0, (("3g.40gb", 4), ("2g.20gb", 0))))
    assert (nodes["c0"].mig, nodes["c1"].mig, nodes["c0"].mig_by) == (cut, cut, "node")
    assert (nodes["p0"].mig, nodes["p0"].mig_by) == ((), "gpu")
    assert [(nodes[name].shares, nodes[name].tenants) for name in ("p0", "s0", "c0")] == [
        ((), None),
        (("mps",), 2),
        (("time-slicing", "mps"), None),
    ]
    held = MigPart(0, "3g.40gb", 4)
    assert cluster.allocations[0] == Allocation("a", "c0", mig=(held,))
    assert cluster.allocations[2] == Allocation(
        "c", "s0", shares=(SharePart(0, 0.5, 40.0, "mps"),), devices=(("fpga", 1),)
    )
    assert cluster.allocations[4].shares == (SharePart(1, 0.0, 8.0, "mps", alone=True),)


def test_devices_memory_bandwidth_data_spares_and_cubes_are_read() -> None:
    cluster = read_cluster(PARTS, "parts.yaml")
    assert cluster.machines["m4"].devices == (("fpga", 2), ("dpu", 1))
    assert cluster.machines["m4"].numa_memory_GBps == 190.5
    assert (cluster.machines["old"].devices, cluster.machines["old"].numa_memory_GBps) == ((), None)
    assert cluster.data == (
        DataSet("imagenet", "leaf", "s0/l0"),
        DataSet("imagenet", "leaf", "s1/l0"),
        DataSet("imagenet", "node", "c0"),
        DataSet("imagenet", "node", "c1"),
        DataSet("ckpt", "node", "s1"),
        DataSet("shared fs", "spine", "s0"),
    )
    assert cluster.spares == {"leaf": 1, "spine": 2}
    boxes = ((2, 1), (1, 2))  # the second is longer than the torus: joined cubes may be
    assert cluster.tori == (
        Torus("rings", (2, 1), (1, 1), ("t0", "t1"), (True, True), boxes, (1, 1)),
    )


def test_gpus_with_instances_are_in_mig_mode_without_being_listed() -> None:
    cluster = read_cluster(PARTS.replace("      gpus: [1, 0]\n", ""), "parts.yaml")
    assert [cut.gpu for cut in cluster.nodes[2].mig] == [0, 1]


def test_what_is_written_of_parts_reads_back_the_same() -> None:
    cluster = read_cluster(PARTS, "parts.yaml")
    assert read_cluster(write_cluster(cluster), "again.yaml") == cluster


WRONG = [
    # what is replaced, by what, line, field, words of the message
    ("fpga: 2, dpu", "fpga: 0, dpu", 4, "machines.m4.devices.fpga", "1 or more"),
    ("numa_memory_GBps: 190.5", "numa_memory_GBps: 0", 4, "machines.m4.numa_memory_GBps", "above 0"),
    ("share: none", "share: nobody", 8, "nodes[0].share", "none, or a mapping"),
    ("share: none", "share: {modes: [vgpu]}", 8, "nodes[0].share.modes[0]", "one of time-slicing, mps"),
    ("modes: [mps]", "modes: [mpss]", 19, "nodes[2].share.modes[0]", "Did you mean `mps`?"),
    ("tenants: 2", "tenants: 0", 19, "nodes[2].share.tenants", "1 or more"),
    ("tenants: 2", "tenants: 1", 26, "allocations[3].shares[0].gpu", "at most 1, the tenants"),
    ("gpus: [1, 0]", "gpus: [1, 0, 4]", 13, "nodes[1].mig.gpus[2]", "GPUs 0 to 3 (m4)"),
    ("gpus: [1, 0]", "gpus: [1, 0, 1]", 13, "nodes[1].mig.gpus[2]", "each GPU once"),
    ("gpus: [1, 0]", "gpus: [1]", 15, "nodes[1].mig.instances[0].gpu", "puts into MIG mode (1)"),
    ("gpus: [1, 0]", "gpus: x", 13, "nodes[1].mig.gpus", "a list"),
    ("machine: m4\n    at", "machine: old\n    at", 12, "nodes[1].mig", "old (T4)"),
    ("machine: m4\n    at", "machine: free\n    at", 12, "nodes[1].mig", "a machine whose `gpu`"),
    ("3g.40gb, start: 4}\n ", "3g.44gb, start: 4}\n ", 15, "nodes[1].mig.instances[0].profile", "mean `3g.40gb`?"),
    ("3g.40gb, start: 4}\n ", "3g.40gb, start: 2}\n ", 15, "nodes[1].mig.instances[0].start", "on A100-80GB: 0, 4"),
    ("3g.40gb, start: 4}\n ", "big, start: 4}\n ", 15, "nodes[1].mig.instances[0].profile", "such as 3g.40gb"),
    ("2g.20gb, start: 0}\n ", "2g.20gb, start: 4}\n ", 16, "nodes[1].mig.instances[1].start", "beside 3g.40gb at 4"),
    ("gpu: 1, profile", "gpu: 9, profile", 17, "nodes[1].mig.instances[2].gpu", "GPUs 0 to 3"),
    ("by: node", "by: nodes", 18, "nodes[1].mig.by", "Did you mean `node`?"),
    ("3g.40gb, start: 4}]", "3g.40gb, start: 0}]", 23, "allocations[0].mig[0].profile", "3g.40gb at 4 of GPU 0"),
    ("[{gpu: 0, profile: 2g.20gb, start: 0}]", "[{gpu: 0, profile: 3g.40gb, start: 4}]", 24,
     "allocations[1].mig[0].start", "each instance once"),
    ("gpus: [3]", "gpus: [1]", 24, "allocations[1].gpus[0]", "in MIG mode"),
    ("node: c0, mig: [{gpu: 0, profile: 2", "node: p0, mig: [{gpu: 0, profile: 2", 24,
     "allocations[1].mig[0].profile", "names on p0 (none)"),
    ("job: c, node: s0", "job: c, node: p0", 25, "allocations[2].shares[0].isolation", "shared (none)"),
    ("job: c, node: s0", "job: c, node: c0", 25, "allocations[2].shares[0].gpu", "in MIG mode"),
    ("job: c, node: s0", "job: c, node: t0", 25, "allocations[2].devices.fpga", "devices of old (none)"),
    ("compute: 0.4", "compute: 0.6", 26, "allocations[3].shares[0].compute", "1.1 in all of GPU 0"),
    ("compute: 0.5", "compute: 1.5", 25, "allocations[2].shares[0].compute", "from 0 to 1"),
    ("memory_GiB: 30", "memory_GiB: 41", 26, "allocations[3].shares[0].memory_GiB", "at most 80 (A100-80GB)"),
    ("memory_GiB: 40, ", "", 25, "allocations[2].shares[0].memory_GiB", "required"),
    ("40, isolation: mps}", "40, isolation: mps, alone: true}", 26, "allocations[3].shares[0].gpu", "one of them"),
    ("dpu: 1, fpga: 1", "fpga: 2", 26, "allocations[3].devices.fpga", "at most 2 (m4)"),
    ("devices: {fpga: 1}", "devices: {fpgas: 1}", 25, "allocations[2].devices.fpgas", "Did you mean `fpga`?"),
    ("gpus: [2]", "gpus: [0]", 27, "allocations[4].gpus[0]", "of which shares are held"),
    ("alone: true}], gpus: [2]", "alone: true}], gpus: [1]", 27, "allocations[4].shares[0].gpu", "held as a whole"),
    ("alone: true", "alone: 1", 27, "allocations[4].shares[0].alone", "true or false"),
    ("leaf: [s0/l0, s1/l0]", "leaf: [s0/l0, s2/l0]", 29, "data[0].at.leaf", "unknown leaf `s2/l0`"),
    ("leaf: [s0/l0, s1/l0]", "leav: [s0/l0]", 29, "data[0].at.leav", "Did you mean `leaf`?"),
    ("leaf: [s0/l0, s1/l0]", "leaf: [s0/l0, s0/l0]", 29, "data[0].at.leaf", "each place once"),
    ("leaf: [s0/l0, s1/l0]", "leaf: [s0/l0, []]", 29, "data[0].at.leaf[1]", "such as s0/l0"),
    ("leaf: [s0/l0, s1/l0]", 'leaf: "l[0-1]"', 29, "data[0].at.leaf", "unknown leaf"),
    ('node: "c[0-1]"', 'node: "c[1-0]"', 29, "data[0].at.node", "a hostlist such as"),
    ('node: "c[0-1]"', "node: s0/c0", 29, "data[0].at.node", "`s0/c0`"),
    ("at: s1", "at: x1", 30, "data[1].at", "unknown node `x1`"),
    ("at: s1", "at: {}", 30, "data[1].at", "a tier, and domains"),
    ("at: s1", "from: s1", 30, "data[1].at", "required"),
    ("leaf: 1, ", "node: 1, ", 32, "spares.node", "a tier above node (spine, leaf)"),
    ("leaf: 1, ", "leav: 1, ", 32, "spares.leav", "Did you mean `leaf`?"),
    ("leaf: 1, ", "leaf: 0, ", 32, "spares.leaf", "1 or more"),
    ("cube: [1, 1]", "cube: [1]", 34, "tori[0].cube", "2 numbers"),
    ("cube: [1, 1]", "cube: [4, 1]", 34, "tori[0].cube[0]", "that divides dims, 2"),
    (", cube: [1, 1]", "", 34, "tori[0].slices[1][1]", "at most 1, as dims"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "line", "field", "words"), WRONG)
def test_a_wrong_part_is_named_with_its_line(
    old: str, new: str, line: int, field: str, words: str
) -> None:
    assert old in PARTS
    with pytest.raises(BadFields) as caught:
        read_cluster(PARTS.replace(old, new, 1), "p.yaml")
    told = [problem for problem in caught.value.problems if problem.field == field]
    assert told, str(caught.value)
    assert told[0].line == line
    assert words in str(told[0])


def test_a_gpu_is_shared_in_one_way() -> None:
    text = PARTS.replace("modes: [mps]", "modes: [mps, time-slicing]")
    text = text.replace("isolation: mps}", "isolation: time-slicing}", 1)
    with pytest.raises(BadFields, match=r"`mps` on GPU 0; allowed: `time-slicing`"):
        read_cluster(text, "p.yaml")


def test_what_could_not_be_read_makes_no_part_look_wrong() -> None:
    text = PARTS.replace("gpus: [1, 0]", "gpus: [1, x]").replace("modes: [mps]", "modes: [x]")
    text = text.replace("gpu: T4", "gpu: []").replace("spine: s0, leaf: l0", "spine: [], leaf: l0")
    with pytest.raises(BadFields) as caught:
        read_cluster(text, "p.yaml")
    assert [problem.field for problem in caught.value.problems] == [
        "machines.old.gpu",
        "nodes[0].at.spine",
        "nodes[1].mig.gpus[1]",
        "nodes[2].share.modes[0]",
    ]


def test_too_many_nodes_with_data_are_refused_without_building_them() -> None:
    lists = ", ".join(f'"x{n}-[0-99999]"' for n in range(40))
    with pytest.raises(BadFields, match="at most 200000 nodes in all data"):
        read_cluster(PARTS.replace("at: s1", f"at: [{lists}]"), "p.yaml")


def _read_or_told(text: str) -> None:
    """A text is refused in words, or is a cluster that can be written."""
    try:
        cluster = read_cluster(text, "f.yaml")
    except GantreeError as error:
        assert str(error)
    else:
        assert read_cluster(write_cluster(cluster), "g.yaml") == cluster


@settings(max_examples=examples(75), deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 10**6), st.integers(0, 12), st.sampled_from(
            ["", " ", "0", "9", "[", "]", "{", "}", ",", "-1", "x", ":", "c0", "mps", "none", "\n  - "]
        )),
        min_size=1, max_size=4,
    )
)  # fmt: skip
def test_a_mutated_file_of_parts_is_refused_in_words_or_can_be_written(
    cuts: list[tuple[int, int, str]],
) -> None:
    text = PARTS
    for place, length, instead in cuts:
        start = place % (len(text) + 1)
        text = text[:start] + instead + text[start + length :]
    _read_or_told(text)


_odd = st.none() | st.booleans() | st.integers(-1, 10**19) | st.floats() | st.text(max_size=5)
_odd |= st.sampled_from(["n[0-3]", "c0", "m4", "s0/l0", "none", "leaf", "mps", "3g.40gb", "gpu"])
_odder: st.SearchStrategy[Any] = st.one_of(
    _odd,
    st.lists(st.one_of(_odd, st.dictionaries(st.text(max_size=3), _odd, max_size=2)), max_size=3),
    st.dictionaries(
        st.sampled_from(["gpus", "instances", "by", "modes", "node", "leaf"]), _odd, max_size=3
    ),
)


@settings(max_examples=examples(75), deadline=None)
@given(st.data())
def test_a_part_of_another_kind_is_refused_in_words_or_can_be_written(data: st.DataObject) -> None:
    document: Any = read_yaml(PARTS)
    place = data.draw(st.sampled_from([
        ("nodes", 1, "mig"), ("nodes", 1, "mig", "gpus"), ("nodes", 1, "mig", "instances", 0, "start"),
        ("nodes", 1, "mig", "instances", 0, "profile"), ("nodes", 1, "mig", "by"), ("nodes", 2, "share"),
        ("nodes", 2, "share", "modes"), ("allocations", 0, "mig"), ("allocations", 2, "shares"),
        ("allocations", 2, "shares", 0, "compute"), ("allocations", 2, "devices"), ("data", 0, "at"),
        ("data", 0, "at", "node"), ("data", 1, "name"), ("spares",), ("machines", "m4", "devices"),
        ("tori", 0, "cube"),
    ]))  # fmt: skip
    inner = document
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = data.draw(_odder)
    _read_or_told(json.dumps(document, indent=1))
