"""Spare nodes: the last free nodes of each domain are held back."""

from dataclasses import replace

import pytest

from gantree.model.errors import BadInput
from gantree.testing.pictures import drawn
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy
from support.members import member


def test_the_last_free_nodes_of_each_domain_are_held_back() -> None:
    picture = "l0: n0 .. n1 .. n2 ..\nl1: n3 .. n4 .. n5 .."
    like = drawn(picture).fabric.cluster
    occupancy = Occupancy(Fabric.build(replace(like, spares={"leaf": 2})))
    seen = occupancy.version

    def held_back() -> list[int]:
        occupancy.check()
        return occupancy.held_back_node.nonzero()[0].tolist()

    assert held_back() == [1, 2, 4, 5]
    occupancy.take("a", [member("n1", (0,))])
    assert held_back() == [0, 2, 4, 5]
    assert occupancy.log.since(seen) == [0, 1]
    occupancy.mark("n2", usable=False)
    assert held_back() == [0, 4, 5]
    occupancy.take("b", [member("n0", (0,))])
    assert held_back() == [4, 5]
    twin = occupancy.copy()
    assert twin.held_back_node.nonzero()[0].tolist() == [4, 5]
    occupancy.give_back("a")
    occupancy.mark("n2", usable=True)
    assert held_back() == [1, 2, 4, 5]
    assert occupancy.emptied().held_back_node.nonzero()[0].tolist() == [1, 2, 4, 5]
    assert twin.held_back_node.nonzero()[0].tolist() == [4, 5]


@pytest.mark.parametrize("spares", [{"node": 1}, {"rack": 1}, {"leaf": -1}])
def test_spares_that_cannot_be_are_bad_input(spares: dict[str, int]) -> None:
    with pytest.raises(BadInput, match="spares: "):
        Occupancy(Fabric.build(replace(drawn("l0: n0 ..").fabric.cluster, spares=spares)))
