"""What of a member is free: the short way says what the long one does."""

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gantree.model.cluster import Cluster, Node
from gantree.model.placements import MemberPlacement, NumaPart
from gantree.testing.builders import machine
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.member_parts import grown, is_nothing, part_of, without
from gantree.topology.occupancy.occupancy import Occupancy
from support.examples import examples

MACHINE = replace(
    machine(4, nics=2, cpus=8.0),
    memory_GiB=16.0,
    numa_memory_GBps=400.0,
    devices=(("card", 4), ("nvidia.com/gpu", 4)),
)
SITE = Cluster("one", ("node",), {"m": MACHINE}, (Node("n0", "m", ()),))

members = st.builds(
    lambda gpus, nics, cpus, memory_GiB, bandwidth, devices: MemberPlacement(
        "w",
        0,
        "n0",
        tuple(sorted(gpus)),
        tuple(f"mlx5_{nic}" for nic in sorted(nics)),
        cpus,
        memory_GiB,
        devices=devices,
        numa=(NumaPart(0, memory_GBps=bandwidth),) if bandwidth else (),
    ),
    st.sets(st.integers(0, 3)),
    st.sets(st.integers(0, 1)),
    st.sampled_from((0.0, 0.5, 4.0, 8.0)),
    st.sampled_from((0.0, 1.5, 16.0)),
    st.sampled_from((0.0, 0.0, 150.0, 300.0)),
    st.sampled_from(((), (), (("sole/port", 1),), (("kin/web", 1),))),
)


@settings(max_examples=examples(200), deadline=None)
@given(members, members, members)
def test_of_a_member_of_whole_gpus_the_short_way_finds_what_the_long_one_does(
    stays: MemberPlacement, leaves: MemberPlacement, wanted: MemberPlacement
) -> None:
    occupancy = Occupancy(Fabric.build(SITE))
    occupancy.take_free("stays", [stays])
    occupancy.take_free("leaves", [leaves])
    long = occupancy.room_of_node(0).part_of(wanted)
    assert part_of(occupancy, 0, wanted) == long
    assert is_nothing(long) == (long == MemberPlacement("w", 0, "n0"))
    occupancy.take_free("C", [wanted])
    assert occupancy.owners["C"] == (long,)
    occupancy.give_back("leaves")
    lacking = without(wanted, long)
    assert (*lacking.gpus, *lacking.nics) == tuple(
        each for each in (*wanted.gpus, *wanted.nics) if each not in (*long.gpus, *long.nics)
    )
    assert (lacking.cpus, lacking.memory_GiB) == (
        wanted.cpus - long.cpus,
        wanted.memory_GiB - long.memory_GiB,
    )
    assert lacking.numa == (() if long.numa else wanted.numa)
    more = occupancy.room_of_node(0).part_of(lacking)
    occupancy.take_free("C", [wanted])
    assert occupancy.owners["C"] == (grown(long, more),)


NOTHING = MemberPlacement("w", 0, "n0")
ALL = MemberPlacement(
    "w", 0, "n0", (0,), ("mlx5_0",), 8.0, 16.0, devices=(("sole/port", 1),), numa=(NumaPart(0, memory_GBps=300.0),)
)  # fmt: skip


@pytest.mark.parametrize("field", ["gpus", "nics", "cpus", "memory_GiB", "devices", "numa"])
@settings(max_examples=examples(100), deadline=None)
@example(NOTHING, ALL, ALL)
@given(members, members, members)
def test_where_no_more_is_free_than_before_nobody_finds_room_who_found_none(
    field: str, stays: MemberPlacement, leaves: MemberPlacement, other: MemberPlacement
) -> None:
    """All but one thing of what one leaves is held for another; that one thing is free."""
    occupancy = Occupancy(Fabric.build(SITE))
    occupancy.take_free("stays", [stays])
    occupancy.take_free("leaves", [leaves])
    before = occupancy.room_of_node(0)
    occupancy.give_back("leaves")
    occupancy.take_free("claim", [replace(leaves, **{field: getattr(NOTHING, field)})])
    after = occupancy.room_of_node(0)
    wanted = replace(NOTHING, **{field: getattr(other, field)})
    found, finds = before.part_of(wanted) == wanted, after.part_of(wanted) == wanted
    assert found or not finds or after.has_more_than(before)
    assert not before.has_more_than(after)


def test_of_devices_that_are_gpus_no_more_are_free_than_gpus() -> None:
    """The others come free with their GPUs: what others may use meanwhile is not held."""
    occupancy = Occupancy(Fabric.build(SITE))
    three = (("card", 3), ("nvidia.com/gpu", 3))
    occupancy.take(
        "stays", [MemberPlacement("w", 0, "n0", (0, 1), devices=(("nvidia.com/gpu", 2),))]
    )
    wanted = MemberPlacement("w", 0, "n0", (1, 2), devices=three[1:])
    assert part_of(occupancy, 0, wanted) == replace(
        wanted, gpus=(2,), devices=(("nvidia.com/gpu", 1),)
    )
    wanted = MemberPlacement("w", 0, "n0", (0, 1, 2), devices=three)
    free = (("card", 3), ("nvidia.com/gpu", 1))
    assert part_of(occupancy, 0, wanted) == replace(wanted, gpus=(2,), devices=free)


def test_parts_stand_in_the_order_of_their_members_whenever_they_were_taken() -> None:
    """A scheduler that folds the facts takes at once what the live one took node by node."""
    nodes = tuple(Node(f"n{number}", "m", ()) for number in range(3))
    occupancy = Occupancy(Fabric.build(replace(SITE, nodes=nodes)))
    wanted = [MemberPlacement("w", rank, f"n{rank}", (0, 1)) for rank in range(3)]
    occupancy.take_free("reserve:j", wanted)
    occupancy.give_back("reserve:j")
    occupancy.take_free("reserve:j", wanted[1:])
    occupancy.take_free("reserve:j", wanted)
    assert occupancy.owners["reserve:j"] == tuple(wanted)
