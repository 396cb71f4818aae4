"""The tree as arrays."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.model.cluster import Cluster, Machine, Node
from gantree.model.errors import BadInput
from gantree.model.placements import Domain
from gantree.testing.builders import cluster
from gantree.topology.fabric import Fabric

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
