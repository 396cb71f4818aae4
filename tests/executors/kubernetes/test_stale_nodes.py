"""A node that is no longer as it was keeps its machine, under a name that no other machine has."""

from dataclasses import replace

from gantree.executors.kubernetes.nodes.stale_nodes import _kept
from gantree.model.cluster import Cluster, Machine, Node


def test_a_machine_that_was_another_gets_a_name_of_its_own() -> None:
    was = Machine("m", 8)
    node = Node("n0", "m", ())
    old = Cluster("site", ("node",), {"m": was}, (node,))
    machines = {"m": Machine("m", 4), "m'": Machine("m'", 2)}
    kept = _kept(node, old, replace(old, machines=machines), machines)
    assert kept.machine == "m''"
    assert machines["m''"] == replace(was, name="m''")
