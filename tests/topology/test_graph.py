"""The exported graph: which devices and switches stand in it, how they are joined, and what each link is worth."""

from collections import Counter
from dataclasses import replace
from typing import Any

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.model.cluster import (
    Cluster,
    DomainFacts,
    Link,
    Machine,
    Nic,
    NicFacts,
    Node,
    Torus,
)
from gantree.model.placements import MemberPlacement
from gantree.placement.machine.devices import inner_domains
from gantree.topology.fabric.conditions import Conditions
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.graph.graph import build_graph
from gantree.topology.hardware.catalog import MACHINES, machine
from gantree.topology.occupancy.occupancy import Occupancy

Graph = Any
LINKS = {"leaf": Link(50, 6, 1600), "spine": Link(25, 12)}


def cluster(model: Machine, nodes: int = 4, **more: Any) -> Cluster:
    """Nodes n0, n1... of one machine, two to a leaf, under spine s0."""
    placed = tuple(Node(f"n{i}", model.name, ("s0", f"l{i // 2}")) for i in range(nodes))
    given = {"links": LINKS} | more
    return Cluster("site", ("spine", "leaf", "node"), {model.name: model}, placed, **given)


def graph_of(described: Cluster, occupancy: Occupancy | None = None) -> Graph:
    fabric = Fabric.build(described)
    return build_graph(fabric, occupancy or Occupancy(fabric), Conditions(fabric), inner_domains)


def kinds(graph: Graph, node: str) -> dict[str, int]:
    """How many devices of each kind a node has."""
    return dict(
        Counter(told["kind"] for _, told in graph.nodes(data=True) if told.get("node") == node)
    )


def beside(graph: Graph, vertex: str) -> set[str]:
    return set(graph.neighbors(vertex))


@pytest.mark.parametrize(
    ("model", "devices"),
    [
        ("dgx-h100", {"gpu": 8, "nic": 8, "cpu": 2, "pcie": 8, "nvswitch": 1}),
        ("dgx-a100", {"gpu": 8, "nic": 10, "cpu": 4, "pcie": 4, "nvswitch": 1}),
        ("dgx-1-v100", {"gpu": 8, "nic": 4, "cpu": 2, "pcie": 4}),
        ("rtx4090-8", {"gpu": 8, "nic": 1, "cpu": 2, "pcie": 2}),
        ("t4-4", {"gpu": 4, "cpu": 2}),
        ("cpu-only", {"cpu": 1}),
    ],
)
def test_a_node_has_the_devices_of_its_machine(model: str, devices: dict[str, int]) -> None:
    graph = graph_of(cluster(machine(model)))
    expected = devices | {"nic": len(machine(model).nics)} if machine(model).nics else devices
    assert kinds(graph, "n0") == expected


def test_an_nvswitch_stands_where_gpus_have_more_nvlinks_to_peers_than_ports() -> None:
    switched = graph_of(cluster(machine("dgx-h100")))
    assert beside(switched, "nvswitch:n0/0") == {f"gpu:n0/{gpu}" for gpu in range(8)}
    assert switched.edges["gpu:n0/0", "nvswitch:n0/0"]["capacity_GBps"] == 450
    meshed = graph_of(cluster(machine("hgx-a100-4")))
    assert not meshed.has_node("nvswitch:n0/0")
    assert meshed.edges["gpu:n0/0", "gpu:n0/3"]["link"] == "NV4"


def test_bridged_pairs_are_joined_pair_by_pair() -> None:
    graph = graph_of(cluster(machine("a6000-pairs-8")))
    joined = {
        (a, b) for a, b, told in graph.edges(data=True) if told["kind"] == "nvlink" and "n0" in a
    }
    assert joined == {(f"gpu:n0/{gpu}", f"gpu:n0/{gpu + 1}") for gpu in (0, 2, 4, 6)}


def test_above_the_node_the_nvlink_domain_is_the_nvswitch() -> None:
    tray = machine("gb200-nvl72-tray")
    nodes = tuple(Node(f"t{i}", tray.name, ("l0", f"rack{i // 18}")) for i in range(36))
    graph = graph_of(Cluster("nvl", ("leaf", "nvlink", "node"), {tray.name: tray}, nodes))
    switch = "switch:nvlink/l0/rack0"
    assert graph.nodes[switch]["kind"] == "nvswitch"
    assert len(beside(graph, switch)) == 72
    assert kinds(graph, "t0") == {"gpu": 4, "nic": 4, "cpu": 2, "pcie": 4}
    assert graph.edges["gpu:t0/0", switch]["capacity_GBps"] == 900
    assert {graph.nodes[v]["kind"] for v in beside(graph, "switch:leaf/l0")} == {"nic", "fabric"}


def test_a_nic_hangs_where_its_path_says() -> None:
    told = machine("dgx-h100")
    paths = ("PIX", "NODE", "", "SYS")
    nics = tuple(Nic(f"m{n}", (n,), n, 50.0, path) for n, path in enumerate(paths))
    nics += (Nic("storage"), Nic("shared", (4, 5), path="PXB"))
    graph = graph_of(cluster(replace(told, nics=nics)))
    leaf = {"switch:leaf/s0/l0"}
    up = {nic.name: beside(graph, f"nic:n0/{nic.name}") - leaf for nic in nics}
    assert {name: next(iter(found)).partition(":")[0] for name, found in up.items()} == {
        "m0": "pcie",
        "m1": "cpu",
        "m2": "pcie",
        "m3": "cpu",
        "storage": "cpu",
        "shared": "pcie",
    }
    assert beside(graph, next(iter(up["shared"]))) >= {"gpu:n0/4", "gpu:n0/5"}
    inferred = {
        name: graph.edges[f"nic:n0/{name}", next(iter(found))]["inferred"]
        for name, found in up.items()
    }
    assert [name for name, yes in inferred.items() if yes] == ["m2", "storage"]


def test_edges_above_the_node_carry_what_the_site_tells() -> None:
    bare = replace(machine("dgx-h100"), nics=tuple(Nic(f"m{n}", (n,), n) for n in range(8)))
    facts = (DomainFacts("leaf", "s0/l1", uplink_GBps=400, health=0.5, load=0.25),)
    graph = graph_of(cluster(bare, domains=facts))
    whole = graph.edges["switch:leaf/s0/l0", "switch:spine/s0"]
    assert (whole["bandwidth_GBps"], whole["told"]) == (1600, "site")
    worn = graph.edges["switch:leaf/s0/l1", "switch:spine/s0"]
    assert (worn["bandwidth_GBps"], worn["capacity_GBps"]) == (400 * 0.5 * 0.75, 400)
    spine = graph.edges["switch:spine/s0", "fabric"]
    assert spine["bandwidth_GBps"] == 25 * 32


def test_what_nobody_told_is_assumed_and_says_so() -> None:
    bare = replace(machine("dgx-h100"), nics=(), nics_counted=False)
    graph = graph_of(cluster(bare, links={}))
    out = graph.edges["cpu:n0/0", "switch:leaf/s0/l0"]
    assert (out["told"], out["inferred"], out["capacity_GBps"]) == ("assumed", True, 4 * 50)
    assert graph.edges["switch:leaf/s0/l0", "switch:spine/s0"]["told"] == "assumed"


def test_the_nics_of_a_node_share_what_the_site_tells_of_it() -> None:
    model = replace(machine("dgx-h100"), nics=tuple(Nic(f"m{n}", (n,), n, 50.0) for n in range(8)))
    graph = graph_of(cluster(model, domains=(DomainFacts("node", "n0", uplink_GBps=200),)))
    halved, own = (graph.edges[f"nic:{n}/m0", "switch:leaf/s0/l0"] for n in ("n0", "n1"))
    assert (halved["capacity_GBps"], halved["told"]) == (25, "site")
    assert (own["capacity_GBps"], own["told"]) == (50, "machine")


def test_of_a_nic_and_its_node_the_worse_condition_counts() -> None:
    name = machine("dgx-h100").nics[0].name
    graph = graph_of(
        cluster(
            machine("dgx-h100"),
            domains=(DomainFacts("node", "n0", health=0.5, load=0.25),),
            nics=(NicFacts("n0", name, health=0.75, load=0.5),),
        )
    )
    edge = graph.edges[f"nic:n0/{name}", "switch:leaf/s0/l0"]
    assert (edge["health"], edge["load"]) == (0.5, 0.5)
    assert edge["bandwidth_GBps"] == edge["capacity_GBps"] * 0.25
    assert graph.nodes[f"nic:n0/{name}"]["health"] == 0.5


def test_a_broken_nic_is_not_usable_and_carries_nothing() -> None:
    name, whole = (nic.name for nic in machine("dgx-h100").nics[:2])
    facts = (NicFacts("n0", name, health=0.0),)
    graph = graph_of(cluster(machine("dgx-h100"), nics=facts))
    usable = [graph.nodes[f"nic:n0/{nic}"]["usable"] for nic in (name, whole)]
    assert usable == [False, True]
    assert graph.edges[f"nic:n0/{name}", "switch:leaf/s0/l0"]["bandwidth_GBps"] == 0


def test_latencies_of_the_network_add_up_to_what_the_site_tells() -> None:
    links = {"leaf": Link(50, 6), "spine": Link(25, 12), "node": Link(50, 4)}
    graph = graph_of(cluster(machine("dgx-h100"), links=links))
    nics = {name: f"nic:{name}/{machine('dgx-h100').nics[0].name}" for name in ("n0", "n1", "n2")}
    for other, expected_us in (("n1", 4), ("n2", 6)):
        found = nx.shortest_path_length(graph, nics["n0"], nics[other], weight="latency_us")
        assert found == pytest.approx(expected_us)


def test_holders_rails_partitions_and_use_are_attributes() -> None:
    described = cluster(machine("dgx-h100"))
    first = replace(described.nodes[0], partitions=(("power", "feed-a"),))
    fabric = Fabric.build(replace(described, nodes=(first, *described.nodes[1:])))
    occupancy = Occupancy(fabric)
    nic = fabric.machines[0].nics[2]
    occupancy.take("train", [MemberPlacement("w", 0, "n0", (1,), (nic.name,))])
    occupancy.mark("n1", usable=False)
    graph = build_graph(fabric, occupancy, Conditions(fabric), inner_domains)
    assert (
        graph.nodes["gpu:n0/1"]["holder"] == graph.nodes[f"nic:n0/{nic.name}"]["holder"] == "train"
    )
    assert "holder" not in graph.nodes["gpu:n0/0"]
    assert graph.nodes[f"nic:n0/{nic.name}"]["rail"] == nic.rail
    assert graph.nodes["gpu:n0/0"]["partition_power"] == "feed-a"
    assert (graph.nodes["gpu:n0/0"]["usable"], graph.nodes["gpu:n1/0"]["usable"]) == (True, False)


def torus_cluster(wrap: bool, gpus: int = 4, host: tuple[int, ...] = (2, 2)) -> Cluster:
    model = Machine("tpu", gpus)
    nodes = tuple(Node(f"h{i}", "tpu") for i in range(4))
    torus = Torus(
        "pod", tuple(2 * side for side in host), host, tuple(n.name for n in nodes), (wrap,) * 2
    )
    return Cluster("pods", ("node",), {"tpu": model}, nodes, tori=(torus,))


def test_a_torus_joins_neighbours_and_closes_where_it_wraps() -> None:
    open_, closed = (graph_of(torus_cluster(wrap)) for wrap in (False, True))
    on_axis = [
        sum(told["kind"] == "torus" for _, _, told in graph.edges(data=True))
        for graph in (open_, closed)
    ]
    assert on_axis == [2 * 3 * 4, 2 * 4 * 4]
    assert closed.nodes["gpu:h1/2"]["coordinates"] == "1,2"
    assert closed.edges["gpu:h0/0", "gpu:h2/2"]["wraps"] is True
    assert all(closed.degree(f"gpu:h0/{gpu}") == 4 + 1 for gpu in range(4))


def test_nodes_that_are_one_point_of_a_torus_are_joined_as_nodes() -> None:
    graph = graph_of(torus_cluster(wrap=True, gpus=8, host=(1, 1)))
    assert {told["kind"] for _, _, told in graph.edges(data=True)} >= {"torus"}
    assert graph.has_edge("cpu:h0/0", "cpu:h1/0")
    assert graph.nodes["gpu:h3/7"]["coordinates"] == "1,1"


@given(
    st.sampled_from(sorted(MACHINES)),
    st.sampled_from(
        [("node",), ("leaf", "node"), ("nvlink", "node"), ("spine", "nvlink", "leaf", "node")]
    ),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_every_graph_is_whole_and_its_numbers_are_finite(
    name: str, tiers: tuple[str, ...], health: float, load: float
) -> None:
    model = machine(name)
    nodes = tuple(
        Node(f"n{i}", name, tuple(f"{tier}{i // 2}" for tier in tiers[:-1])) for i in range(4)
    )
    facts = (DomainFacts("node", "n0", health=health, load=load),)
    graph = graph_of(Cluster("c", tiers, {name: model}, nodes, domains=facts))
    devices = [v for v, told in graph.nodes(data=True) if told["kind"] != "nvswitch"]
    assert nx.is_connected(graph.subgraph(devices))
    for _, _, told in graph.edges(data=True):
        expected = told["capacity_GBps"] * told["health"] * (1 - told["load"])
        assert told["bandwidth_GBps"] == pytest.approx(expected)
        assert 0 <= told["bandwidth_GBps"] < 1e6
        assert told["latency_us"] >= 0
    assert all(
        set(told) >= {"kind", "name", "tier", "health", "load"}
        for _, told in graph.nodes(data=True)
    )
