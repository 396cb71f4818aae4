"""The tree as arrays."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.model.cluster import Cluster, DomainFacts, Link, Machine, Nic, Node
from gantree.model.errors import BadInput
from gantree.model.placements import Domain
from gantree.testing.builders import cluster
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.fabric.rails import NO_RAIL, rail_of_nic, rails_of
from gantree.topology.hardware.catalog import machine

M8 = Machine("m", 8)


def of_places(*places: tuple[str, ...]) -> Cluster:
    nodes = tuple(Node(f"n{i}", "m", at) for i, at in enumerate(places))
    return Cluster("c", ("spine", "leaf", "node"), {"m": M8}, nodes)


def test_nodes_of_a_domain_are_beside_each_other_whatever_the_order_of_the_file() -> None:
    fabric = Fabric.build(of_places(("s0", "l0"), ("s1", "l0"), ("s0", "l1"), ("s0", "l0")))
    assert [node.name for node in fabric.nodes] == ["n0", "n3", "n2", "n1"]
    assert fabric.names_of_domain[1] == ("s0", "s1")
    assert fabric.names_of_domain[2] == ("s0/l0", "s0/l1", "s1/l0")
    assert fabric.names_of_domain[3] == ("s0/l0/n0", "s0/l0/n3", "s0/l1/n2", "s1/l0/n1")
    assert [first.tolist() for first in fabric.first_node_of_domain] == [
        [0, 4], [0, 3, 4], [0, 2, 3, 4], [0, 1, 2, 3, 4],
    ]  # fmt: skip
    assert [first.tolist() for first in fabric.first_child_of_domain] == [
        [0, 2], [0, 2, 3], [0, 2, 3, 4],
    ]  # fmt: skip


def test_leaves_of_one_name_under_two_spines_are_two() -> None:
    fabric = Fabric.build(of_places(("s0", "l0"), ("s1", "l0")))
    assert fabric.domains(2) == 2


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz")), min_size=1, max_size=12))
def test_arrays_are_inverse_to_each_other_and_name_what_the_file_says(
    places: list[tuple[str, str]],
) -> None:
    fabric = Fabric.build(of_places(*places))
    assert {node.name for node in fabric.nodes} == {f"n{i}" for i in range(len(places))}
    for tier in range(fabric.node_tier + 1):
        first = fabric.first_node_of_domain[tier].tolist()
        assert first[-1] == len(places)
        for domain in range(fabric.domains(tier)):
            for node in range(first[domain], first[domain + 1]):
                assert fabric.domain_of_node[tier][node] == domain
                path = (*fabric.nodes[node].at, fabric.nodes[node].name)[:tier]
                assert fabric.names_of_domain[tier][domain] == "/".join(path)
        assert len(set(fabric.names_of_domain[tier])) == fabric.domains(tier)


def test_the_narrowest_domain_of_nodes_is_found() -> None:
    fabric = Fabric.build(cluster(spines=2, leaves=2, nodes=2))
    narrowest = [
        fabric.domain(*fabric.narrowest_domain(nodes)) for nodes in ([5], [4, 5], [4, 7], [0, 7])
    ]
    assert narrowest == [
        Domain("node", "s1/l2/n5"), Domain("leaf", "s1/l2"), Domain("spine", "s1"), Domain("fabric", ""),
    ]  # fmt: skip


def linked(**more: object) -> Fabric:
    """Two spines of a leaf each; n0, n1 with two NICs of 50 GB/s, n2 with one that is not told."""
    told = Machine(
        "told", 2, nics=(Nic("a", (0,), 0, 50.0), Nic("b", (1,), 1, 25.0), Nic("c", (), None, 9.0))
    )
    silent = Machine("silent", 2, nics=(Nic("a", (0,), 0, 50.0), Nic("b", (1,), 1)))
    nodes = (
        Node("n0", "told", ("s0", "l0")),
        Node("n1", "told", ("s0", "l0")),
        Node("n2", "silent", ("s1", "l0")),
    )
    links = {"leaf": Link(50, 6, 400.0), "spine": Link(25, 12)}
    site = Cluster("c", ("spine", "leaf", "node"), {"told": told, "silent": silent}, nodes, links)
    return Fabric.build(replace(site, **more))  # type: ignore[arg-type] # fields of a cluster


def test_up_links_are_those_of_the_domain_or_of_its_tier_or_of_the_node_s_nics() -> None:
    fabric = linked(
        domains=(DomainFacts("leaf", "s1/l0", 300.0), DomainFacts("leaf", "s0/l0", health=0.5))
    )
    nan = float("nan")
    expected: list[list[float]] = [[float("inf")], [nan, nan], [400, 300], [75, 75, nan]]
    for tier, capacities in enumerate(expected):
        np.testing.assert_array_equal(fabric.uplink_GBps_of_domain[tier], capacities)


def test_what_is_said_of_a_node_or_of_the_node_tier_goes_before_its_nics() -> None:
    links = {"node": Link(50, 6, 100.0)}
    fabric = linked(links=links, domains=(DomainFacts("node", "n1", 40.0),))
    assert fabric.uplink_GBps_of_domain[3].tolist() == [100, 40, 100]


def test_nics_that_are_near_no_gpu_count_where_none_is() -> None:
    kinds = {name: machine(name) for name in ("tpu-v5e-host", "dgx-2", "cpu-only")}
    nodes = tuple(Node(f"n{i}", name) for i, name in enumerate(kinds))
    fabric = Fabric.build(Cluster("c", ("node",), kinds, nodes))
    np.testing.assert_array_equal(fabric.uplink_GBps_of_domain[1], [25, 100, float("nan")])


def test_domains_are_found_by_their_path_and_nodes_by_their_name() -> None:
    fabric = linked()
    for tier in range(fabric.node_tier):
        for domain, name in enumerate(fabric.names_of_domain[tier]):
            assert fabric.find(fabric.tiers[tier], name) == (tier, domain)
    assert [fabric.find("node", f"n{i}") for i in range(3)] == [(3, 0), (3, 1), (3, 2)]


@pytest.mark.parametrize(
    ("tier", "name", "words"),
    [
        ("leav", "s0/l0", "no tier 'leav', only fabric, spine"),
        ("leaf", "s0/l1", "did you mean 's0/l0'"),
        ("node", "s0/l0/n0", "no node 's0/l0/n0'"),
        ("leaf", "?", "no leaf"),
    ],
)
def test_a_domain_that_is_not_there_is_bad_input(tier: str, name: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        linked().find(tier, name)
    with pytest.raises(BadInput, match=words):
        linked(domains=(DomainFacts(tier, name),))


def test_rails_are_the_machine_s_and_who_shares_them_the_fabric_s() -> None:
    fabric = linked()
    rails = rails_of(fabric)
    assert rail_of_nic(fabric.machines[0]) == (0, 1, NO_RAIL)
    assert rails.rails == (0, 1)
    assert rails.nics_of_rail == ({0: (0,), 1: (1,)}, {0: (0,), 1: (1,)})
    assert rails.nodes_sharing(1, 0).tolist() == [0, 1]
    assert rails.nodes_sharing(1, 2).tolist() == [2]


def test_a_node_without_a_nic_on_a_rail_does_not_share_it_and_four_nics_of_a_gpu_are_four_rails() -> (
    None
):
    kinds = {name: machine(name) for name in ("aws-p5", "aws-p4d")}
    nodes = (Node("big", "aws-p5"), Node("small", "aws-p4d"))
    rails = rails_of(Fabric.build(Cluster("c", ("node",), kinds, nodes)))
    assert rails.rails == tuple(range(32))
    assert rails.nodes_sharing(3, 0).tolist() == [0, 1]
    assert rails.nodes_sharing(4, 0).tolist() == [0]
    assert [kinds["aws-p5"].nics[nic].near for nic in range(5)] == [(0,)] * 4 + [(1,)]


WRONG = {
    "has no nodes": replace(of_places(("s0", "l0")), nodes=()),
    "tiers must end with node": replace(of_places(("s0", "l0")), tiers=("spine", "leaf")),
    "named twice": replace(of_places(("s0", "l0")), tiers=("leaf", "leaf", "node")),
    "unknown machine": replace(of_places(("s0", "l0")), machines={}),
    "does not name": of_places(("s0",)),
    "is there twice": replace(of_places(), nodes=(Node("n", "m", ("s", "l")),) * 2),
}


@pytest.mark.parametrize("words", WRONG)
def test_clusters_that_contradict_themselves_are_bad_input(words: str) -> None:
    with pytest.raises(BadInput, match=words):
        Fabric.build(WRONG[words])
