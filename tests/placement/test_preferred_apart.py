"""Preferred anti-affinity: a gang goes to a domain with the fewest of the other jobs among those that have room."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.model.jobs import Apart, Job, TopologySpec
from gantree.model.placements import MemberPlacement, Placement
from gantree.placement.choice.search import fits, place
from gantree.placement.request.anti_affinity import MOST_LEVELS
from gantree.testing.builders import cluster, job
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy

NODES, GPUS = 6, 6
FABRIC = Fabric.build(cluster(leaves=3, nodes=2, gpus=GPUS))


def away(tier: str, members: int = 1, gpus: int = 1, **more: int) -> Job:
    """A job that prefers to be away from chat.*."""
    rule = Apart(tier, ("chat.[0-9]*",), preferred=True, **more)
    return replace(job("chat.9", members, gpus), topology=TopologySpec(apart=(rule,)))


def held(chats: list[int], others: list[int]) -> Occupancy:
    """One GPU of each of these nodes is held by a replica of chat, of others by other jobs."""
    occupancy, used = Occupancy(FABRIC), Counter[int]()
    for number, node in enumerate(chats + others):
        name = f"chat.{number}" if number < len(chats) else f"other-{number}"
        if used[node] < GPUS:
            occupancy.take(name, [MemberPlacement("worker", 0, f"n{node}", (used[node],))])
            used[node] += 1
    return occupancy


def chats_in(occupancy: Occupancy, tier: str) -> Counter[int]:
    """How many replicas of chat are in each domain."""
    width = {"node": 1, "leaf": 2}[tier]
    there = Counter[int]()
    for owner, members in occupancy.owners.items():
        if owner.startswith("chat."):
            there[int(members[0].node[1:]) // width] += 1
    return there


@given(
    st.lists(st.integers(0, NODES - 1), max_size=12),
    st.lists(st.integers(0, NODES - 1), max_size=12),
    st.sampled_from(["node", "leaf"]),
)
def test_one_member_goes_where_fewest_are(chats: list[int], others: list[int], tier: str) -> None:
    occupancy = held(chats, others)
    width = {"node": 1, "leaf": 2}[tier]
    free = {node for node in range(NODES) if occupancy.free_gpus(f"n{node}")}
    found = place(occupancy, away(tier))
    assert isinstance(found, Placement) == bool(free) == fits(occupancy, away(tier))
    if not isinstance(found, Placement):
        return
    there = chats_in(occupancy, tier)
    domain = int(found.members[0].node[1:]) // width
    possible = sorted({there[node // width] for node in free})
    tried = sorted({there[number] for number in range(NODES // width)})[:MOST_LEVELS]
    if possible[0] in tried:
        assert there[domain] == possible[0]


def test_a_gang_of_several_members_is_kept_away_as_a_whole_where_it_can_be() -> None:
    occupancy = held([0, 2], [])
    found = place(occupancy, away("leaf", members=2, gpus=6))
    assert isinstance(found, Placement) and set(found.nodes) == {"n4", "n5"}
    occupancy.take("big", found.members)
    found = place(occupancy, away("leaf", members=2, gpus=2))
    assert isinstance(found, Placement), "there is no empty leaf, and it stands beside one"


def test_the_rule_is_dropped_where_only_the_fullest_domain_has_room() -> None:
    chats = [node for node in range(NODES) for _ in range(node)]
    others = [node for node in range(NODES - 1) for _ in range(GPUS - node)]
    found = place(held(chats, others), away("node"))
    assert isinstance(found, Placement) and set(found.nodes) == {"n5"}
    assert MOST_LEVELS < NODES


@pytest.mark.parametrize(("at_most", "fits_there"), [(0, False), (1, False), (2, True)])
def test_at_most_so_many_may_be_in_a_domain(at_most: int, fits_there: bool) -> None:
    rule = Apart("leaf", ("chat.*",), at_most=at_most)
    occupancy = held([0, 1, 2, 3, 4, 4], [])
    assert fits(occupancy, replace(job("j"), topology=TopologySpec(apart=(rule,)))) == fits_there
