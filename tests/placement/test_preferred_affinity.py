"""Preferred affinity: it decides between equally good places, delays no gang and spreads none wider."""

from collections.abc import Sequence
from dataclasses import replace
from math import log

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.jobs import (
    COUNTER_PREFIX,
    Job,
    PreferredMembers,
    PreferredNodes,
    Role,
    Shape,
    TopologySpec,
)
from gantree.model.node_restrictions import with_node_restrictions
from gantree.model.node_rules import TOLERATES_LABEL, Taint, satisfies
from gantree.model.placements import MemberPlacement, Placement
from gantree.placement.choice.search import find
from gantree.testing.pictures import drawn
from gantree.topology.fabric.fabric import Fabric, Labels
from gantree.topology.occupancy.occupancy import Occupancy
from support.examples import examples

LEAVES = "s0/l0: n0 aa.. n1 ....\ns0/l1: n2 .... n3 ....\n"


def named(*nodes: str) -> str:
    return f"metadata.name in ({','.join(nodes)})"


def preferred_30(*nodes: str) -> tuple[PreferredNodes, ...]:
    return (PreferredNodes(named(*nodes), 30),)


def gang(members: int, gpus: int, *likes: PreferredNodes) -> Job:
    return Job("x", (Role("w", members, Shape(gpus=gpus), topology=TopologySpec(likes=likes)),))


def nodes_of(occupancy: Occupancy, job: Job) -> list[str]:
    found = find(occupancy, job)
    assert found is not None
    return [member.node for member in found.members]


@pytest.mark.parametrize(
    ("job", "nodes"),
    [
        (gang(1, 2), ["n0"]),
        (gang(1, 2, PreferredNodes(named("n3"))), ["n3"]),
        (gang(1, 2, PreferredNodes(named("n1"), 10), PreferredNodes(named("n2"), 20)), ["n2"]),
        (
            gang(1, 2, PreferredNodes(named("n2"), 50), *preferred_30("n1"), *preferred_30("n0", "n1")),
            ["n1"],
        ),
        (gang(1, 3, PreferredNodes(named("n0"))), ["n1"]),
        (gang(1, 2, PreferredNodes("zone in (b)")), ["n0"]),
        (gang(2, 4), ["n2", "n3"]),
        (gang(2, 4, PreferredNodes(named("n1", "n2"))), ["n2", "n3"]),
        (gang(2, 2, PreferredNodes(named("n0", "n1"))), ["n1", "n1"]),
    ],
    ids=[
        "none", "one", "heavier", "more in sum", "too full", "no such label", "a gang", "not pulled apart",
        "on one node before liked ones",
    ],
)  # fmt: skip
def test_a_liked_node_is_taken_where_it_is_as_good(job: Job, nodes: list[str]) -> None:
    assert nodes_of(drawn(LEAVES), job) == nodes


def test_many_likes_are_let_go_from_the_lightest_on() -> None:
    """Of seven the two lightest: the one that can be had besides the others is, the other one is let go."""
    heavy = [PreferredNodes(named("n2", "n3"), 10 + number) for number in range(5)]
    light = [PreferredNodes(named("n3"), 2), PreferredNodes(named("n1"), 1)]
    assert nodes_of(drawn(LEAVES), gang(1, 2, *heavy)) == ["n2"]
    assert nodes_of(drawn(LEAVES), gang(1, 2, *light, *heavy)) == ["n3"]


def test_a_bar_comes_before_a_like() -> None:
    job = with_node_restrictions(
        gang(1, 2, PreferredNodes(named("n3"))), {"w": "metadata.name notin (n3)"}
    )
    assert nodes_of(drawn(LEAVES), job) == ["n0"]


def test_the_likes_of_a_gang_are_those_of_all_its_roles() -> None:
    like = TopologySpec(likes=(PreferredNodes(named("n2", "n3")),))
    roles = (Role("a", 1, Shape(gpus=4)), Role("b", 1, Shape(gpus=2)))
    assert set(nodes_of(drawn(LEAVES), Job("x", roles, topology=like))) == {"n2", "n3"}


NODES = ("n0", "n1", "n2", "n3")
likes = st.lists(
    st.builds(
        lambda names, weight: PreferredNodes(named(*sorted(names)), weight),
        st.sets(st.sampled_from(NODES), min_size=1),
        st.integers(1, 9),
    ),
    max_size=5,
)
pictures = st.lists(st.integers(0, 4), min_size=4, max_size=4)


def picture(free: list[int]) -> str:
    cells = [
        f"{name} {'a' * (4 - count)}{'.' * count}" for name, count in zip(NODES, free, strict=True)
    ]
    return f"s0/l0: {cells[0]} {cells[1]}\ns0/l1: {cells[2]} {cells[3]}\n"


def liking(node: str, job: Job) -> int:
    told = job.roles[0].topology.likes
    return sum(like.weight for like in dict.fromkeys(told) if satisfies(node, {}, like.rule))


def domains(place: Placement) -> tuple[int, int]:
    leaves = {name in ("n0", "n1") for name in place.nodes}
    return len(leaves), len(place.nodes)


@settings(max_examples=examples(120), deadline=None)
@given(pictures, likes, st.integers(1, 3), st.integers(1, 4))
def test_likes_change_which_of_equals_and_nothing_else(
    free: list[int], told: list[PreferredNodes], members: int, gpus: int
) -> None:
    """One member goes to a node that is liked most among those that have room: the plain twin looks at each."""
    occupancy = drawn(picture(free))
    job = gang(members, gpus, *told)
    found, plain = find(occupancy, job), find(occupancy, gang(members, gpus))
    assert (found is None) == (plain is None)
    if found is None or plain is None:
        return
    assert domains(found) == domains(plain)
    if members == 1:
        fitting = [name for name, count in zip(NODES, free, strict=True) if count >= gpus]
        (node,) = found.nodes
        assert liking(node, job) == max(liking(name, job) for name in fitting)


# ----- company, and taints that only ask to be kept away from

WEB = COUNTER_PREFIX + "web"
ZONES = {"n0": "a", "n1": "a", "n2": "b"}
"""n3 has no zone."""


def site(free: Sequence[int], kin: Sequence[int] = (), tainted: Sequence[str] = ()) -> Occupancy:
    """Four nodes with so many free GPUs and so many members of a kind, some with a taint that is soft."""
    plain = drawn(picture(list(free))).fabric.cluster
    soft = (Taint("busy", effect="PreferNoSchedule"),)
    nodes = tuple(
        replace(
            node,
            labels=(("host", node.name), *((("zone", z),) if (z := ZONES.get(node.name)) else ())),
            taints=soft if node.name in tainted else (),
        )
        for node in plain.nodes
    )
    found = Occupancy(Fabric.build(replace(plain, nodes=nodes)))
    for node, left in zip(NODES, free, strict=True):
        if left < 4:
            found.take(f"on-{node}", [MemberPlacement("w", 0, node, tuple(range(4 - left)))])
    for node, count in zip(NODES, kin, strict=False):
        for number in range(count):
            member = MemberPlacement("w", 0, node, devices=((WEB, 1),))
            found.take(f"kin-{node}-{number}", [member])
    return found


def among(*company: PreferredMembers, members: int = 1, gpus: int = 1, labels: Labels = ()) -> Job:
    shape = Shape(gpus=gpus, devices=((WEB, 1),), labels=labels)
    return Job("x", (Role("w", members, shape, topology=TopologySpec(company=company)),))


@pytest.mark.parametrize(
    ("company", "kin", "nodes"),
    [
        (PreferredMembers("host", WEB, -1), (2, 1, 1, 0), ["n3"]),
        (PreferredMembers("host", WEB, 1), (2, 1, 1, 0), ["n0"]),
        (PreferredMembers("zone", WEB, 1), (0, 0, 1, 5), ["n2"]),
        (PreferredMembers("zone", WEB, -1, (("b", 3),)), (1, 1, 0, 0), ["n3"]),
        (PreferredMembers("zone", WEB, -1, (("b", 3),)), (0, 2, 0, 0), ["n3"]),
        (PreferredMembers("zone", WEB, spread=True), (1, 1, 1, 0), ["n2"]),
        (PreferredMembers("zone", WEB, spread=True), (0, 0, 1, 0), ["n0"]),
        (PreferredMembers("host", COUNTER_PREFIX + "nobody", 1), (2, 1, 1, 0), ["n0"]),
    ],
    ids=[
        "away", "near", "near in a domain", "away from others of the kind", "no domain has nobody in it",
        "a spread", "a spread needs the label", "nobody is there",
    ],
)  # fmt: skip
def test_company_is_looked_for_or_kept_away_from(
    company: PreferredMembers, kin: tuple[int, ...], nodes: list[str]
) -> None:
    assert nodes_of(site((4, 4, 4, 4), kin), among(company)) == nodes


def test_company_does_not_count_for_a_gang_against_its_being_together() -> None:
    crowded = site((4, 4, 4, 4), (0, 3, 3, 3))
    assert nodes_of(crowded, among(PreferredMembers("host", WEB, -1), members=2, gpus=2)) == [
        "n0",
        "n0",
    ]
    assert nodes_of(crowded, among(PreferredMembers("host", WEB, -1), members=2, gpus=4)) == [
        "n0",
        "n1",
    ]


def test_a_soft_taint_keeps_off_who_does_not_tolerate_it_while_there_is_room_elsewhere() -> None:
    job, tolerant = among(), among(labels=((TOLERATES_LABEL, "busy"),))
    assert nodes_of(site((4, 4, 4, 4), tainted=("n0", "n1")), job) == ["n2"]
    assert nodes_of(site((4, 4, 4, 4), tainted=("n0", "n1")), tolerant) == ["n0"]
    assert nodes_of(site((4, 0, 0, 0), tainted=("n0", "n1")), job) == ["n0"]


def plain_scores(
    free: Sequence[int], kin: Sequence[int], near: int, weight: int, liked: PreferredNodes
) -> dict[str, float]:
    """Scores as the default scheduler reckons them, node by node: company, a spread over zones, one like."""
    fits = [name for name, count in zip(NODES, free, strict=True) if count]
    count_of = dict(zip(NODES, kin, strict=True))
    zone = {z: sum(count_of[n] for n in NODES if ZONES.get(n) == z) for z in ("a", "b")}
    company = {n: near * count_of[n] for n in fits}
    zones = len({ZONES[n] for n in fits if n in ZONES})
    crowd = {n: weight * zone[ZONES[n]] * log(zones + 2) for n in fits if n in ZONES}
    worst = max(*crowd.values(), 1.0) if crowd else 1.0
    crowd |= {n: worst for n in fits if n not in ZONES}
    low, high, most = min(company.values()), max(company.values()), max(crowd.values())
    return {
        n: 2 * (100 * (company[n] - low) / (high - low) if high > low else 0)
        - 2 * (100 * crowd[n] / most if most else 0)
        + 2
        * (
            100
            if satisfies(n, {}, liked.rule) and any(satisfies(m, {}, liked.rule) for m in fits)
            else 0
        )
        for n in fits
    }


@settings(max_examples=examples(90), deadline=None)
@given(
    st.lists(st.integers(0, 4), min_size=4, max_size=4).filter(any),
    st.lists(st.integers(0, 3), min_size=4, max_size=4),
    st.integers(-5, 5).filter(bool),
    st.sampled_from(NODES),
)
def test_one_member_goes_where_the_plain_sum_is_highest(
    free: list[int], kin: list[int], near: int, liked: str
) -> None:
    like = PreferredNodes(named(liked))
    told = TopologySpec(
        likes=(like,),
        company=(PreferredMembers("host", WEB, near), PreferredMembers("zone", WEB, spread=True)),
    )
    job = Job("x", (Role("w", 1, Shape(gpus=1), topology=told),))
    (node,) = nodes_of(site(free, kin), job)
    scores = plain_scores(free, kin, near, 1, like)
    assert scores[node] == pytest.approx(max(scores.values()), abs=0.01)
