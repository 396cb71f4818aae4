"""Sole devices: every node has one of each, from the moment at which somebody asks."""

from dataclasses import replace

import pytest

from gantree.model.jobs import Job, Role, Shape
from gantree.model.placements import MemberPlacement, Placement
from gantree.model.verdicts import Gate, Refused
from gantree.placement.choice.search import place
from gantree.testing import builders
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy

PORT = (("sole/port/80", 1),)
SHAPE = Shape(gpus=1, devices=PORT)


def gang(members: int) -> Job:
    return Job("x", (Role("w", members, SHAPE),))


def rooms() -> Occupancy:
    return Occupancy(Fabric.build(builders.cluster(leaves=1)))


def test_members_that_ask_for_the_same_one_are_on_different_nodes() -> None:
    occupancy = rooms()
    placement = place(occupancy, gang(2))
    assert isinstance(placement, Placement)
    assert {member.node for member in placement.members} == {"n0", "n1"}
    occupancy.take("x", placement.members)
    assert list(occupancy.devices.free(PORT[0][0])) == [0, 0]
    occupancy.check()
    occupancy.give_back("x")
    assert list(occupancy.devices.free(PORT[0][0])) == [1, 1]


def test_there_are_no_more_of_one_than_nodes() -> None:
    refused = place(rooms(), gang(3))
    assert isinstance(refused, Refused)
    assert (refused.never, refused.gate) == (True, Gate.CONTIGUITY)
    assert refused.short_by is not None
    assert refused.short_by.resource == PORT[0][0]


def test_what_somebody_holds_nobody_else_gets() -> None:
    occupancy = rooms()
    occupancy.take("other", (MemberPlacement("w", 0, "n0", (), devices=PORT),))
    occupancy.check()
    placement = place(occupancy.copy(), gang(1))
    assert isinstance(placement, Placement)
    assert placement.members[0].node == "n1"
    assert occupancy.missing((MemberPlacement("w", 0, "n0", (), devices=PORT),))


FPGA = (("fpga", 1),)


@pytest.mark.parametrize("devices", [PORT, FPGA, (("fpga", 2),), (("dpu", 1),)])
def test_who_asks_for_devices_beside_whole_gpus_gets_them_all_or_nothing(
    devices: tuple[tuple[str, int], ...],
) -> None:
    site = builders.cluster(leaves=1)
    machines = {name: replace(each, devices=FPGA) for name, each in site.machines.items()}
    occupancy = Occupancy(Fabric.build(replace(site, machines=machines)))
    member = MemberPlacement("w", 0, "n0", (0,), devices=devices)
    is_there = devices in (PORT, FPGA)
    if is_there:
        occupancy.take("first", (member,))
        occupancy.check()
    free = {name: list(occupancy.devices.free(name)) for name, _ in (*PORT, *FPGA)}
    second = replace(member, gpus=(1,))
    with pytest.raises(AssertionError, match=devices[0][0]):
        occupancy.take("second", (replace(second, node="n1", devices=()), second))
    assert {name: list(occupancy.devices.free(name)) for name in free} == free
    occupancy.check()
    if is_there:
        occupancy.give_back("first")
        occupancy.take("second", (second,))
        occupancy.check()
