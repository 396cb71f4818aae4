"""Other divisions of the same nodes."""

from hypothesis import given
from hypothesis import strategies as st

from gantree.model.cluster import Cluster, Machine, Node
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.fabric.partitions import NO_DOMAIN, partitions_of


def fabric(*nodes: Node) -> Fabric:
    return Fabric.build(Cluster("c", ("leaf", "node"), {"m": Machine("m", 1)}, nodes))


def test_a_partition_crosses_the_tree_and_may_leave_nodes_out() -> None:
    found = partitions_of(
        fabric(
            Node("n0", "m", ("l0",), partitions=(("power", "b"), ("maintenance", "w1"))),
            Node("n1", "m", ("l1",), partitions=(("power", "a"),)),
            Node("n2", "m", ("l0",), partitions=(("power", "a"),)),
        )
    )
    assert list(found) == ["power", "maintenance"]
    power, maintenance = found["power"], found["maintenance"]
    # In the order of the fabric: n0 and n2 of l0, then n1.
    assert power.names_of_domain == ("b", "a")
    assert power.domain_of_node.tolist() == [0, 1, 1]
    assert power.nodes_of_domain(1).tolist() == [1, 2]
    assert maintenance.domain_of_node.tolist() == [0, NO_DOMAIN, NO_DOMAIN]
    assert maintenance.nodes_per_domain().tolist() == [1]


def test_a_fabric_without_partitions_has_none() -> None:
    assert partitions_of(fabric(Node("n0", "m", ("l0",)))) == {}


@given(st.lists(st.sampled_from(["", "a", "b", "c"]), min_size=1, max_size=12))
def test_nodes_of_the_domains_are_those_that_name_them(feeds: list[str]) -> None:
    nodes = [
        Node(f"n{i}", "m", (f"l{i % 3}",), partitions=(("power", feed),) if feed else ())
        for i, feed in enumerate(feeds)
    ]
    built = fabric(*nodes)
    power = partitions_of(built).get("power")
    assert (power is None) == (not any(feeds))
    if power is not None:
        for number, name in enumerate(power.names_of_domain):
            members = power.nodes_of_domain(number).tolist()
            named = {f"n{i}" for i, feed in enumerate(feeds) if feed == name}
            assert {built.nodes[member].name for member in members} == named
            assert power.nodes_per_domain()[number] == len(named)
