"""Machines and clusters as YAML: what is written reads back the same, and many nodes are a short file."""

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gantree.formats import read_cluster, write_machines
from gantree.formats.cluster.writer import folded, write_cluster
from gantree.model.cluster import (
    NO_LINK,
    Allocation,
    Cluster,
    DataSet,
    DomainFacts,
    Link,
    Machine,
    Mig,
    Nic,
    NicFacts,
    Node,
    Torus,
)
from gantree.model.errors import BadFields, BadInput, GantreeError
from gantree.model.jobs import ISOLATIONS
from gantree.model.placements import MigPart, SharePart
from gantree.text.hostlists import expand
from gantree.topology.hardware.catalog import MACHINES, PATH_CLASSES
from gantree.topology.hardware.mig import mig_table
from support.examples import examples

names = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,20}", fullmatch=True)
texts = st.text(
    st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=20
)
amounts = st.none() | st.integers(0, 4096).map(float) | st.floats(0, 1e6, allow_subnormal=False)
rates = st.floats(1e-6, 1e6, allow_subnormal=False)
shares = st.sampled_from([0.0, 0.25, 1.0]) | st.floats(0, 1, allow_subnormal=False)
classes = st.sampled_from([NO_LINK, "NV1", "NV18", "XGMI2", "ICI1", *PATH_CLASSES])


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    gpus = draw(st.integers(0, 6))
    pairs = {(a, b): draw(classes) for a in range(gpus) for b in range(a)}
    links = tuple(
        tuple("X" if a == b else pairs[max(a, b), min(a, b)] for b in range(gpus))
        for a in range(gpus)
    )
    near = st.lists(st.integers(0, gpus - 1), unique=True) if gpus else st.just([])
    devices = draw(
        st.lists(st.from_regex(r"[a-z0-9_:]{1,8}", fullmatch=True), max_size=4, unique=True)
    )
    nics = tuple(
        Nic(
            name,
            tuple(draw(near)),
            draw(st.none() | st.integers(0, 9)),
            draw(st.none() | rates),
            draw(classes),
        )
        for name in devices
    )
    numa = draw(st.just(()) | st.tuples(*[st.none() | st.integers(0, 7)] * gpus))
    peer = tuple(tuple(a == b or draw(st.booleans()) for b in range(gpus)) for a in range(gpus))
    counts = draw(st.dictionaries(texts, st.integers(1, 9), max_size=2))
    return Machine(
        draw(names), gpus, draw(st.none() | texts), draw(st.sampled_from([links, ()])), numa, nics,
        draw(amounts), draw(amounts), bool(nics) or draw(st.booleans()),
        draw(st.sampled_from([peer, ()])), tuple(counts.items()), draw(st.none() | rates),
    )  # fmt: skip


@given(machines())
def test_a_written_machine_reads_back_as_the_same_machine(machine: Machine) -> None:
    text = (
        write_machines([machine]) + "name: c\ntiers: [node]\nnodes: [{names: n0, machine: t4-4}]\n"
    )
    assert read_cluster(text, "c.yaml").machines[machine.name] == machine


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_every_machine_of_the_catalogue_can_be_written_and_read(name: str) -> None:
    text = (
        write_machines([MACHINES[name]])
        + f"name: c\ntiers: [node]\nnodes: [{{names: n, machine: {name}}}]\n"
    )
    assert read_cluster(text, "c.yaml").machines == {name: MACHINES[name]}


values = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
node_names = st.lists(
    st.one_of(
        st.integers(0, 30).map(lambda n: f"n{n}"),
        st.integers(0, 12).map(lambda n: f"n{n:02}"),
        st.tuples(st.integers(0, 3), st.integers(0, 3)).map(lambda n: f"r{n[0]}-n{n[1]}"),
        names,
    ),
    min_size=1,
    max_size=12,
    unique=True,
)


@st.composite
def tori(draw: st.DrawFn, free: list[str]) -> tuple[Torus, ...]:
    """A torus of some of these nodes, each one point of it, or none."""
    members = tuple(draw(st.permutations(free)))
    if not members or not draw(st.booleans()):
        return ()
    dims = (1, len(members))
    boxes = tuple((1, draw(st.integers(1, len(members)))) for _ in range(draw(st.integers(0, 2))))
    cube = draw(st.sampled_from([(), (1, 1), dims]))
    return (Torus(draw(names), dims, (1, 1), members, (draw(st.booleans()), True), boxes, cube),)


@st.composite
def cut_and_shared(draw: st.DrawFn, node: Node, machine: Machine) -> Node:
    """The node with some GPUs in MIG mode, if it has any that can be, and its own rules of sharing."""
    cuts: list[Mig] = []
    if mig_table(machine.gpu) is not None:
        for gpu in draw(st.lists(st.integers(0, machine.gpus - 1), unique=True, max_size=3)):
            arranged = draw(st.sampled_from([(), ("3g.40gb",), ("2g.20gb", "4g.40gb", "1g.10gb")]))
            cuts.append(Mig(gpu, _arranged(machine, arranged)))
    modes = draw(st.sampled_from([(), ("mps",), ("mps", "time-slicing"), ISOLATIONS]))
    return replace(
        node,
        mig=tuple(cuts),
        mig_by=draw(st.sampled_from(["gpu", "node", "nobody"])),
        shares=modes,
        tenants=draw(st.none() | st.integers(1, 9)),
        time_slice=draw(st.sampled_from([None, "short", "long"])),
        spot=draw(st.none() | st.sampled_from([0.0, 0.5, 24.0])),
    )


def _arranged(machine: Machine, profiles: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    table = mig_table(machine.gpu)
    assert table is not None
    instances = table.arranged(profiles)
    assert instances is not None
    return tuple((instance.profile, instance.start) for instance in instances)


@st.composite
def held_parts(draw: st.DrawFn, node: Node, machine: Machine) -> tuple[Allocation, ...]:
    """What two jobs hold of the parts and devices of a node."""
    instances = [MigPart(cut.gpu, *each) for cut in node.mig for each in cut.instances]
    in_mig_mode = {cut.gpu for cut in node.mig}
    gpus = [gpu for gpu in range(machine.gpus) if gpu not in in_mig_mode and node.shares]
    compute, memory = draw(st.floats(0, 1)), draw(st.floats(0, 15))
    shares = [
        SharePart(gpu, compute, memory, draw(st.sampled_from(node.shares)), draw(st.booleans()))
        for gpu in gpus[: draw(st.integers(0, 2))]
    ]
    devices = tuple((name, 1) for name, _ in machine.devices)
    return (
        Allocation("cut", node.name, mig=tuple(draw(st.permutations(instances)))),
        Allocation("shared", node.name, shares=tuple(shares), devices=devices),
    )


@st.composite
def data_sets(draw: st.DrawFn, nodes: list[Node]) -> tuple[DataSet, ...]:
    """Where two data sets lie: at nodes and leaves in any order, none twice."""
    places = [("node", node.name) for node in nodes]
    places += [("leaf", "/".join(at)) for at in dict.fromkeys(node.at for node in nodes)]
    of_data = [
        (name, *place)
        for name in draw(st.lists(texts, max_size=2, unique=True))
        for place in places
    ]
    return (
        tuple(DataSet(*each) for each in draw(st.lists(st.sampled_from(of_data), unique=True)))
        if of_data
        else ()
    )


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    own = draw(st.lists(machines(), max_size=2, unique_by=lambda machine: machine.name))
    known = {machine.name: machine for machine in own}
    kinds = [*known, "t4-4", "dgx-h100", "cpu-only"]
    places = draw(st.lists(st.tuples(names, names), min_size=1, max_size=3))
    labels = st.dictionaries(texts, values, max_size=2).map(lambda pairs: tuple(pairs.items()))
    nodes = [
        Node(
            name,
            draw(st.sampled_from(kinds)),
            draw(st.sampled_from(places)),
            draw(st.sampled_from([(), (("pool", "a"),)]) | labels),
            draw(st.sampled_from([(), ("ip", "netns", "exec", name)])),
            draw(st.sampled_from(["127.0.0.1", f"{name}.lan", "10.0.0.1"])),
            draw(st.sampled_from([(), (("power", "feed-a"),)])),
        )
        for name in draw(node_names)
    ]
    for node in nodes:
        known.setdefault(node.machine, MACHINES.get(node.machine, MACHINES["t4-4"]))
    nodes = [draw(cut_and_shared(node, known[node.machine])) for node in nodes]
    first = nodes[0]
    facts = DomainFacts("spine", first.at[0], draw(st.none() | rates), draw(shares), draw(shares))
    cards = known[first.machine].nics
    return Cluster(
        draw(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)),
        ("spine", "leaf", "node"),
        known,
        tuple(nodes),
        draw(st.dictionaries(st.sampled_from(["spine", "leaf", "node"]),
                             st.builds(Link, rates, rates, st.none() | rates))),
        draw(st.just(()) | held_parts(first, known[first.machine])),
        draw(st.sampled_from([(), (facts, DomainFacts("node", first.name, health=0.0))])),
        tuple(NicFacts(first.name, card.name, draw(shares), draw(shares)) for card in cards[:2]),
        draw(tori([node.name for node in nodes])),
        draw(data_sets(nodes)),
        draw(st.dictionaries(st.sampled_from(["spine", "leaf"]), st.integers(1, 99))),
    )  # fmt: skip


@settings(max_examples=examples(60), deadline=None)
@given(clusters())
def test_a_written_cluster_reads_back_as_the_same_cluster(cluster: Cluster) -> None:
    assert read_cluster(write_cluster(cluster), "c.yaml") == cluster


def plain_site(*nodes: Node) -> Cluster:
    kinds = dict.fromkeys(node.machine for node in nodes)
    return Cluster("c", ("node",), {kind: MACHINES[kind] for kind in kinds}, nodes)


def test_what_is_particular_of_gpus_and_data_is_written_in_short() -> None:
    nodes = (
        Node("n0", "dgx-h100", mig=(Mig(0, (("3g.40gb", 4),)), Mig(1)), mig_by="nobody"),
        Node("n1", "dgx-h100", shares=()),
        Node("n2", "dgx-h100", shares=("mps",), tenants=4),
    )
    cluster = replace(
        plain_site(*nodes),
        allocations=(Allocation("old", "n0", mig=(MigPart(0, "3g.40gb", 4),)),),
        data=(DataSet("imagenet", "node", "n0"), DataSet("imagenet", "node", "n1")),
    )
    text = write_cluster(cluster)
    assert text.splitlines()[3:] == [
        '  - {names: n0, machine: dgx-h100, mig: {gpus: [0, 1], instances: [{gpu: 0, profile: "3g.40gb", start: 4}], '
        "by: nobody}}",
        "  - {names: n1, machine: dgx-h100, share: none}",
        "  - {names: n2, machine: dgx-h100, share: {modes: [mps], tenants: 4}}",
        "allocations:",
        '  - {job: old, node: n0, mig: [{gpu: 0, profile: "3g.40gb", start: 4}]}',
        "data:",
        '  - {name: imagenet, at: {node: "n[0-1]"}}',
    ]


def test_2000_nodes_in_63_leaves_are_a_short_file() -> None:
    nodes = tuple(
        Node(f"n{n:04}", "dgx-h100", (f"l{n // 32}",), launch=("on", f"n{n:04}"))
        for n in range(2000)
    )
    cluster = replace(plain_site(*nodes), tiers=("leaf", "node"))
    text = write_cluster(cluster)
    assert text.count("\n") == 3 + 63
    first = '{names: "n[0000-0031]", machine: dgx-h100, at: {leaf: l0}, launch: [on, "{node}"]}'
    assert text.splitlines()[3] == f"  - {first}"


def test_a_cluster_file_is_in_the_order_of_the_reference_and_says_only_what_is_particular() -> None:
    cluster = Cluster(
        "two", ("leaf", "node"), {"m": Machine("m", 1), "t4-4": MACHINES["t4-4"]},
        (Node("n0", "t4-4", ("l0",)), Node("n1", "t4-4", ("l0",)), Node("x", "m", ("l1",))),
        {"leaf": Link(50, 6.5)}, (Allocation("old", "n0", (0, 2)),),
        (DomainFacts("leaf", "l0", health=0.5),), (), (Torus("t", (2,), (1,), ("n1", "n0"), (True,)),),
    )  # fmt: skip
    assert write_cluster(cluster).splitlines() == [
        "name: two",
        "tiers: [leaf, node]",
        "links:",
        "  leaf: {bandwidth_GBps: 50, latency_us: 6.5}",
        "machines:",
        "  m:",
        "    gpus: 1",
        "    nics: 0",
        "nodes:",
        '  - {names: "n[0-1]", machine: t4-4, at: {leaf: l0}}',
        "  - {names: x, machine: m, at: {leaf: l1}}",
        "allocations:",
        "  - {job: old, node: n0, gpus: [0, 2]}",
        "domains:",
        "  - {tier: leaf, name: l0, health: 0.5}",
        "tori:",
        "  - {name: t, dims: [2], nodes: [n1, n0]}",
    ]


def test_a_machine_that_only_shares_a_name_with_the_catalogue_is_written_in_full() -> None:
    other = replace(MACHINES["t4-4"], cpus=8.0)
    cluster = replace(plain_site(Node("n0", "t4-4")), machines={"t4-4": other})
    assert "cpus: 8" in write_cluster(cluster)


def test_a_label_longer_than_yaml_takes_without_a_mark_is_written_with_one() -> None:
    cluster = plain_site(Node("n0", "t4-4", labels=(("k" * 3000, "v"),)))
    assert read_cluster(write_cluster(cluster), "c.yaml") == cluster


@given(node_names)
@example(["n1", "n2", "n4"])
@example(["n9", "n10", "n11"])
@example(["n09", "n10", "n100"])
@example(["n2", "n1"])
@example(["007", "7", "a1b2", "a1b3", "a2b2", "a2b3"])
def test_folded_names_stand_for_the_same_names_in_the_same_order(names: list[str]) -> None:
    assert [name for text in folded(names) for name in expand(text)] == names


@pytest.mark.parametrize(
    ("names", "texts"),
    [
        (["n1", "n2", "n4"], ["n[1-2,4]"]),
        ([f"n{n}" for n in range(8, 12)], ["n[8-11]"]),
        ([f"n{n:02}" for n in range(8, 12)], ["n[08-11]"]),
        ([f"r{r}-n{n}" for r in range(2) for n in range(3)], ["r[0-1]-n[0-2]"]),
        (["n2", "n1"], ["n2", "n1"]),
        (["n1", "m1"], ["n1", "m1"]),
    ],
)
def test_names_are_folded_as_far_as_their_order_allows(names: list[str], texts: list[str]) -> None:
    assert folded(names) == texts


UNWRITABLE = {
    "cannot hold it": plain_site(Node("n0", "t4-4", launch=("{node}",))),
    "a node name or a hostlist": plain_site(Node("a b", "t4-4")),
    "calls itself": replace(plain_site(Node("n0", "t4-4")), machines={"m": MACHINES["t4-4"]}),
    "does not name": plain_site(Node("n0", "t4-4", ("l0",))),
    "from 0 to 1": replace(
        plain_site(Node("n0", "t4-4")), domains=(DomainFacts("node", "n0", health=2.0),)
    ),
}


def test_a_field_that_the_format_cannot_hold_is_named_without_a_file_that_nobody_wrote() -> None:
    with pytest.raises(BadInput, match=r"^cluster a b: name cannot be .*; allowed: ") as caught:
        write_cluster(Cluster("a b", ("node",), {}, (Node("n", "dgx-h100"),)))
    assert "as written" not in str(caught.value)


@pytest.mark.parametrize("words", UNWRITABLE)
def test_a_cluster_that_the_format_cannot_hold_is_refused_not_damaged(words: str) -> None:
    with pytest.raises((BadInput, BadFields), match=words) as caught:
        write_cluster(UNWRITABLE[words])
    assert isinstance(caught.value, GantreeError)
