"""Graphs of switches made tiers, domains and rails: drawn fabrics, generated fat trees, and properties of any graph."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.topology.discovery.fabrics import FabricReading
from gantree.topology.discovery.networks.switch_graph import (
    Cable,
    GraphNic,
    GraphSwitch,
    SwitchGraph,
    read_graph,
)
from support.examples import examples


def drawn(*lines: str, GBps: float = 50.0) -> SwitchGraph:
    """A graph of lines "switch: far far*2 !far"; a far end that heads no line is a host, "n0" or a NIC, "n0/mlx5_1".

    far*2 is two parallel cables, !far one that is down.
    """
    switches = [line.partition(":")[0] for line in lines]
    nics: dict[str, GraphNic] = {}
    cables = []
    for line in lines:
        head, _, fars = line.partition(":")
        for word in fars.split():
            far, _, times = word.lstrip("!").partition("*")
            if far not in switches:
                host, _, name = far.partition("/")
                far = f"{head} {far}"
                nics[far] = GraphNic(far, host, name)
            cables += [Cable((head, far), GBps, not word.startswith("!"))] * int(times or 1)
    return SwitchGraph(
        tuple(GraphSwitch(s, s) for s in switches), tuple(nics.values()), tuple(cables)
    )


def places(reading: FabricReading) -> dict[str, str]:
    return {node.name: "/".join(node.at) for node in reading.nodes}


def uplinks(reading: FabricReading) -> dict[str, float | None]:
    return {f"{facts.tier} {facts.name}": facts.uplink_GBps for facts in reading.domains}


def fat_tree(k: int) -> SwitchGraph:
    """The k-ary fat tree: k pods of k/2 leaves and k/2 spines, (k/2)^2 core switches, k/2 hosts on a leaf."""
    half = k // 2
    lines = []
    for pod in range(k):
        for leaf in range(half):
            hosts = " ".join(f"h{pod}-{leaf}-{host}/mlx5_0" for host in range(half))
            spines = " ".join(f"p{pod}-s{spine}" for spine in range(half))
            lines.append(f"p{pod}-l{leaf}: {hosts} {spines}")
        cores = [" ".join(f"c{spine}-{core}" for core in range(half)) for spine in range(half)]
        lines += [f"p{pod}-s{spine}: {joined}" for spine, joined in enumerate(cores)]
    lines += [f"c{spine}-{core}:" for spine in range(half) for core in range(half)]
    return drawn(*lines)


def test_a_leaf_and_its_spines_are_two_tiers() -> None:
    reading = read_graph(drawn("l0: n0 n1 s0 s1", "l1: n2 s0 s1", "s0:", "s1:"))
    assert reading.tiers == ("spine", "leaf")
    assert places(reading) == {"n0": "s0..s1/l0", "n1": "s0..s1/l0", "n2": "s0..s1/l1"}
    assert uplinks(reading) == {"leaf s0..s1/l0": 100.0, "leaf s0..s1/l1": 100.0}
    assert reading.warnings == ()
    assert not reading.links


@pytest.mark.parametrize("k", [4, 6, 8])
def test_a_fat_tree_of_three_tiers_gives_pods_and_leaves(k: int) -> None:
    reading = read_graph(fat_tree(k))
    half = k // 2
    assert reading.tiers == ("core", "spine", "leaf")
    assert len(reading.nodes) == k**3 // 4
    for node in reading.nodes:
        pod, leaf, _ = node.name[1:].split("-")
        assert node.at[1:] == (f"p{pod}-sx" if k > 2 else "", f"p{pod}-l{leaf}"), node
    assert len({node.at[0] for node in reading.nodes}) == 1
    told = Counter((facts.tier, facts.uplink_GBps) for facts in reading.domains)
    assert told == {("spine", 50.0 * half * half): k, ("leaf", 50.0 * half): k * half}
    assert reading.warnings == ()


RAILS = (
    *(f"leaf-{rail}-{unit}: " + " ".join(f"u{unit}n{i}/mlx5_{rail}" for i in range(3)) + " s0*2 s1"
      for unit in range(2) for rail in range(4)),
    "s0:", "s1:",
)  # fmt: skip


def test_leaves_of_the_same_hosts_are_one_domain_and_its_rails() -> None:
    reading = read_graph(drawn(*RAILS))
    assert {node.at[1] for node in reading.nodes} == {"leaf-x-0", "leaf-x-1"}
    for node in reading.nodes:
        assert [(nic.name, nic.rail) for nic in node.nics] == [(f"mlx5_{r}", r) for r in range(4)]
        assert [nic.switch for nic in node.nics] == [f"leaf-{r}-{node.name[1]}" for r in range(4)]
    assert uplinks(reading) == {"leaf s0..s1/leaf-x-0": 600.0, "leaf s0..s1/leaf-x-1": 600.0}
    assert reading.warnings == ()
    assert "4 rails, numbered by NIC names" in reading.inferred


def test_a_unit_that_lacks_a_leaf_keeps_the_rail_numbers_of_the_others() -> None:
    reading = read_graph(drawn(*(line for line in RAILS if not line.startswith("leaf-1-0"))))
    rails = {node.name: [nic.rail for nic in node.nics] for node in reading.nodes}
    assert rails["u0n0"] == [0, 2, 3]
    assert rails["u1n0"] == [0, 1, 2, 3]


def test_hca_numbers_and_device_numbers_name_the_same_rails() -> None:
    lines = [line if "-1:" not in line else line.replace("mlx5_3", "HCA-4").replace("mlx5_2", "HCA-3")
             .replace("mlx5_1", "HCA-2").replace("mlx5_0", "HCA-1") for line in RAILS]  # fmt: skip
    reading = read_graph(drawn(*lines))
    assert [nic.name for nic in reading.nodes[-1].nics] == ["HCA-1", "HCA-2", "HCA-3", "HCA-4"]
    assert all([nic.rail for nic in node.nics] == [0, 1, 2, 3] for node in reading.nodes)


def test_units_whose_machines_name_their_nics_otherwise_have_as_many_rails_as_leaves() -> None:
    reading = read_graph(
        drawn("a1: n0/mlx5_0", "a2: n0/mlx5_1", "b1: n1/mlx5_4", "b2: n1/mlx5_7", "s: a1 a2 b1 b2")
    )
    assert [[nic.rail for nic in node.nics] for node in reading.nodes] == [[0, 1], [0, 1]]


def test_without_nic_names_rails_are_in_the_order_of_leaf_names() -> None:
    reading = read_graph(drawn("l10: n0/a n1/b", "l2: n0/b n1/a"))
    assert [[(nic.switch, nic.rail) for nic in node.nics] for node in reading.nodes] == [
        [("l10", 1), ("l2", 0)],
        [("l2", 0), ("l10", 1)],
    ]
    assert any("order of leaf names" in told for told in reading.inferred)


def test_a_swapped_pair_of_cables_is_told() -> None:
    lines = [line.replace("u0n0/mlx5_0", "X").replace("u0n0/mlx5_1", "u0n0/mlx5_0").replace("X", "u0n0/mlx5_1")
             for line in RAILS]  # fmt: skip
    reading = read_graph(drawn(*lines))
    assert reading.warnings == (
        "2 NICs hang on the rail of others, a swapped cable perhaps: u0n0 mlx5_1, u0n0 mlx5_0",
    )
    assert [nic.rail for nic in reading.nodes[0].nics] == [1, 0, 2, 3]


def test_two_nics_of_a_host_on_one_rail_are_told() -> None:
    reading = read_graph(drawn("l0: n0/mlx5_0 n0/mlx5_2 n1/mlx5_0", "l1: n0/mlx5_1 n1/mlx5_1"))
    assert any("1 host has two or more NICs on one rail: n0" in told for told in reading.warnings)


def test_hosts_with_all_nics_on_one_leaf_have_no_rails() -> None:
    reading = read_graph(drawn("l0: n0/mlx5_0 n0/mlx5_1 n1/mlx5_0 s", "l1: n2/mlx5_0 s", "s:"))
    assert {nic.rail for node in reading.nodes for nic in node.nics} == {None}
    assert reading.warnings == ()


def test_a_manager_on_a_spine_makes_it_no_leaf() -> None:
    hosts = ["l0: a0 a1 a2 a3 s0 s1", "l1: b0 b1 b2 b3 s0 s1"]
    reading = read_graph(drawn(*hosts, "s0: ufm", "s1:"))
    assert places(reading)["ufm"] == "s0..s1/s0"
    assert places(reading)["a0"] == "s0..s1/l0"
    assert any(told.startswith("s0 stand above the leaves") for told in reading.inferred)
    assert any("1 host on a switch above the leaves" in told for told in reading.warnings)


def test_a_manager_on_a_core_switch_joins_no_pods() -> None:
    graph = fat_tree(6)
    manager = GraphNic("ufm", "ufm")
    graph = replace(
        graph, nics=(*graph.nics, manager), cables=(*graph.cables, Cable(("c0-0", "ufm"), 50.0))
    )
    reading, plain = read_graph(graph), read_graph(fat_tree(6))
    told = places(reading)
    at = told.pop("ufm")
    assert told == places(plain)
    assert at.endswith("/c0-0/c0-0")


def test_a_server_with_legs_in_two_units_joins_them_not() -> None:
    lines = [
        line.replace("s0*2", "store/" + line[:8] + " s0*2") if line.startswith("leaf-0") else line
        for line in RAILS
    ]
    reading = read_graph(drawn(*lines))
    assert {node.at[1] for node in reading.nodes} == {"leaf-x-0", "leaf-x-1"}
    assert any(told.startswith("1 host on several leaf domains") for told in reading.warnings)


def test_a_host_is_where_most_of_its_nics_are_and_at_a_tie_where_the_fewest_hosts_are() -> None:
    reading = read_graph(
        drawn("l0: a0 a1 a2 x/1 y/1 s", "l1: b0 b1 b2 b3 x/2 x/3 s", "l2: c0 c1 y/2 s", "s:")
    )
    assert {name: path for name, path in places(reading).items() if name in "xy"} == {
        "x": "s/l1",
        "y": "s/l2",
    }


def test_a_storage_leaf_that_units_share_joins_them_not() -> None:
    storage = "st: " + " ".join(f"u{unit}n{i}/ib0" for unit in range(2) for i in range(3)) + " s0"
    reading = read_graph(drawn(*RAILS, storage))
    assert {node.at[1] for node in reading.nodes} == {"leaf-x-0", "leaf-x-1"}


def test_planes_that_only_hosts_join_are_one_tree() -> None:
    lines = [f"{plane}l{leaf}: " + " ".join(f"n{leaf}-{i}/mlx5_{number}" for i in range(2)) + f" {plane}s"
             for number, plane in enumerate("ab") for leaf in range(2)]  # fmt: skip
    reading = read_graph(drawn(*lines, "as:", "bs:"))
    assert {node.at for node in reading.nodes} == {("as..bs", "al0..bl0"), ("as..bs", "al1..bl1")}
    assert all([nic.rail for nic in node.nics] == [0, 1] for node in reading.nodes)


def test_islands_share_no_domain() -> None:
    reading = read_graph(drawn("l0: n0 n1 s0", "l1: n2 s0", "s0:", "l2: n3 n4"))
    assert places(reading)["n3"] == "l2/l2"
    assert places(reading)["n0"] == "s0/l0"
    assert "leaf l2/l2" not in uplinks(reading)


def test_routers_of_a_mesh_stay_leaves_and_are_one_domain_above() -> None:
    reading = read_graph(drawn("r0: n0 n1 r1 r2", "r1: n2 n3 r2", "r2: n4"))
    assert {node.at for node in reading.nodes} == {("r0..r2", f"r{i}") for i in range(3)}
    assert any(
        told.startswith("no tree: 3 cables join switches of one level") for told in reading.warnings
    )
    assert uplinks(reading) == {f"leaf r0..r2/r{i}": 100.0 for i in range(3)}


def test_an_uneven_tree_keeps_its_pods() -> None:
    reading = read_graph(
        drawn("l0: a0 a1 s0", "l1: b0 b1 s0", "l2: c0 c1 s1", "l3: d0 d1 s1", "s0: core", "s1: core",
              "core:", "m: x0 x1 core")
    )  # fmt: skip
    at = {node.name: node.at for node in reading.nodes}
    assert at["a0"][:-1] == at["b0"][:-1]
    assert at["a0"][1] != at["c0"][1]
    assert at["a0"][0] == at["c0"][0] == at["x0"][0]


def test_cables_that_lead_nowhere_join_nothing_and_are_counted() -> None:
    graph = drawn("l0: n0 !s0 l0 s0", "l1: n1 !s0", "s0:", "idle: other", "other:")
    nics = (*graph.nics, GraphNic("x", "n2"), GraphNic("y", "n3"))
    reading = read_graph(replace(graph, nics=nics, cables=(*graph.cables, Cable(("x", "y")))))
    assert places(reading) == {"n0": "s0/l0", "n1": "l1/l1", "n2": "n2/n2", "n3": "n3/n3"}
    for told in ("2 cables are down", "1 cables join a switch with itself", "1 cables join two hosts",
                 "2 switches lead to no host: idle, other", "2 hosts on no switch"):  # fmt: skip
        assert any(told in warning for warning in reading.warnings), told
    assert uplinks(reading) == {"leaf s0/l0": 50.0}


def test_a_cable_without_a_rate_makes_no_capacity_up() -> None:
    graph = drawn("l0: n0 s0*2", "l1: n1 s0", "s0:")
    cables = tuple(replace(c, GBps=None) if n == 1 else c for n, c in enumerate(graph.cables))
    reading = read_graph(replace(graph, cables=cables))
    assert uplinks(reading) == {"leaf s0/l1": 50.0}
    assert any("capacity of 1 domain is not known" in told for told in reading.warnings)


def test_switches_without_a_name_of_their_own_are_known_by_their_ids() -> None:
    graph = SwitchGraph(
        (
            GraphSwitch("a1", "leaf"),
            GraphSwitch("a2", "leaf"),
            GraphSwitch("a3", "LEAF"),
            GraphSwitch("a4"),
        ),
        tuple(GraphNic(f"n{i}", f"n{i}") for i in range(4)),
        tuple(Cable((f"a{i + 1}", f"n{i}")) for i in range(4)),
    )
    reading = read_graph(graph)
    assert list(places(reading).values()) == ["leaf-a1", "leaf-a2", "LEAF", "switch-a4"]


def test_names_that_differ_in_case_only_are_others_and_are_told() -> None:
    reading = read_graph(drawn("l0: node1 Node1"))
    assert len(reading.nodes) == 2
    assert "names of hosts that differ only in case: node1, Node1" in reading.warnings


def test_levels_that_the_source_tells_are_taken() -> None:
    graph = drawn("l0: n0 s0", "l1: n1 s0", "s0:", "l2: s0")
    told = {"l0": 1, "l1": 1, "l2": 1, "s0": 3}
    switches = tuple(replace(switch, level=told[switch.name]) for switch in graph.switches)
    reading = read_graph(replace(graph, switches=switches))
    assert reading.tiers == ("spine", "leaf")
    assert places(reading) == {"n0": "s0/l0", "n1": "s0/l1"}


def test_a_long_chain_is_cut_at_the_sixth_level() -> None:
    chain = [f"c{i}: c{i + 1}" for i in range(200)]
    reading = read_graph(drawn("l0: n0 n1 c0", *chain, "c200:"))
    assert len(reading.tiers) <= 7
    assert any("more than 6 levels up" in told for told in reading.warnings)


@pytest.mark.parametrize(
    ("names", "domain"),
    [
        (("A-LEAF-01-04", "A-LEAF-02-04"), "A-LEAF-x-04"),
        (("leaf1", "leaf2", "leaf10"), "leafx"),
        (("one", "two"), "one..two"),
        (("ab-1", "ab-1-2"), "ab-1..ab-1-2"),
    ],
)
def test_a_domain_of_several_switches_is_called_after_what_their_names_share(
    names: Sequence[str], domain: str
) -> None:
    assert read_graph(drawn(*(f"{name}: n0 n1" for name in names))).nodes[0].at == (domain,)


def test_two_domains_with_the_same_pattern_are_called_after_their_first_and_last_switch() -> None:
    lines = [f"leaf{i}: n{i // 2}a n{i // 2}b" for i in range(4)]
    assert {node.at[0] for node in read_graph(drawn(*lines)).nodes} == {
        "leaf0..leaf1",
        "leaf2..leaf3",
    }


@st.composite
def graphs(draw: st.DrawFn) -> SwitchGraph:
    switches = draw(st.integers(1, 9))
    nics = draw(st.lists(st.tuples(st.integers(0, 7) | st.none(), st.integers(0, 3)), max_size=16))
    ids = [f"s{i}" for i in range(switches)] + [f"nic{i}" for i in range(len(nics))]
    end = st.sampled_from(ids)
    cables = draw(
        st.lists(
            st.builds(Cable, st.tuples(end, end), st.sampled_from([None, 50.0]), st.booleans()),
            max_size=40,
        )
    )
    names = [draw(st.sampled_from(["", "same", f"sw{i}"])) for i in range(switches)]
    hosts = [None if host is None else f"h{host}" for host, _ in nics]
    return SwitchGraph(
        tuple(GraphSwitch(f"s{i}", name) for i, name in enumerate(names)),
        tuple(GraphNic(f"nic{i}", hosts[i], f"mlx5_{n}") for i, (_, n) in enumerate(nics)),
        tuple(cables),
    )


@settings(max_examples=examples(100), deadline=None)
@given(graphs())
def test_any_graph_gives_a_tree_with_every_host_once(graph: SwitchGraph) -> None:
    reading = read_graph(graph)
    assert [node.name for node in reading.nodes] == list(
        dict.fromkeys(n.host for n in graph.nics if n.host)
    )
    assert all(len(node.at) == len(reading.tiers) for node in reading.nodes)
    paths = {
        "/".join(node.at[: i + 1]) for node in reading.nodes for i in range(len(reading.tiers))
    }
    assert all(facts.name in paths and (facts.uplink_GBps or 0) > 0 for facts in reading.domains)
    reading.as_json()


@settings(max_examples=examples(50), deadline=None)
@given(graphs(), st.randoms(use_true_random=False))
def test_the_order_of_the_source_changes_no_place(graph: SwitchGraph, random: st.DrawFn) -> None:
    nics, cables, switches = list(graph.nics), list(graph.cables), list(graph.switches)
    on_two = Counter(
        end for cable in cables for end in cable.ends if cable.up and end.startswith("nic")
    )
    once = [c for c in cables if not any(on_two[end] > 1 for end in c.ends)]
    before = read_graph(SwitchGraph(tuple(switches), tuple(nics), tuple(once)))
    for part in (nics, once, switches):
        random.shuffle(part)  # type: ignore[attr-defined] # Hypothesis hands out a random.Random
    assert places(read_graph(SwitchGraph(tuple(switches), tuple(nics), tuple(once)))) == places(
        before
    )


@settings(max_examples=examples(50), deadline=None)
@given(graphs())
def test_no_domain_joins_hosts_that_no_cables_join(graph: SwitchGraph) -> None:
    """Hosts with all cables in one component of the graph never share a domain with those of another."""
    joined: dict[str, str] = {end: end for cable in graph.cables for end in cable.ends}

    def root(end: str) -> str:
        while joined[end] != end:
            end = joined[end]
        return end

    for cable in graph.cables:
        joined[root(cable.ends[0])] = root(cable.ends[1])
    of_host: dict[str, set[str]] = defaultdict(set)
    for nic in graph.nics:
        if nic.host:
            of_host[nic.host].add(root(nic.id) if nic.id in joined else nic.id)
    hosts = {h: next(iter(roots)) for h, roots in of_host.items() if len(roots) == 1}
    straddling = {root for roots in of_host.values() if len(roots) > 1 for root in roots}
    at = {node.name: node.at[:1] for node in read_graph(graph).nodes}
    for a, b in combinations(hosts, 2):
        if hosts[a] != hosts[b] and not {hosts[a], hosts[b]} & straddling and at[a]:
            assert at[a] != at[b]
