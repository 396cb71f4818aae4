"""Nodes that a gang likes: taken among places that are as good, never waited for, and no gang is pulled apart."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.bars import barred
from gantree.model.jobs import Job, Like, Role, Shape, TopologyWish
from gantree.model.node_rules import satisfies
from gantree.model.placements import Placement
from gantree.placement.search import find
from gantree.testing.examples import examples
from gantree.testing.pictures import drawn
from gantree.topology.occupancy import Occupancy

LEAVES = "s0/l0: n0 aa.. n1 ....\ns0/l1: n2 .... n3 ....\n"


def named(*nodes: str) -> str:
    return f"metadata.name in ({','.join(nodes)})"


def gang(members: int, gpus: int, *likes: Like) -> Job:
    return Job("x", (Role("w", members, Shape(gpus=gpus), topology=TopologyWish(likes=likes)),))


def nodes_of(occupancy: Occupancy, job: Job) -> list[str]:
    found = find(occupancy, job)
    assert found is not None
    return [member.node for member in found.members]


@pytest.mark.parametrize(
    ("job", "nodes"),
    [
        (gang(1, 2), ["n0"]),
        (gang(1, 2, Like(named("n3"))), ["n3"]),
        (gang(1, 2, Like(named("n1"), 10), Like(named("n2"), 20)), ["n2"]),
        (gang(1, 2, Like(named("n2"), 50), Like(named("n1"), 30), Like(named("n0", "n1"), 30)), ["n1"]),
        (gang(1, 3, Like(named("n0"))), ["n1"]),
        (gang(1, 2, Like("zone in (b)")), ["n0"]),
        (gang(2, 4), ["n2", "n3"]),
        (gang(2, 4, Like(named("n1", "n2"))), ["n2", "n3"]),
        (gang(2, 2, Like(named("n0", "n1"))), ["n1", "n1"]),
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
    heavy = [Like(named("n2", "n3"), 10 + number) for number in range(5)]
    light = [Like(named("n3"), 2), Like(named("n1"), 1)]
    assert nodes_of(drawn(LEAVES), gang(1, 2, *heavy)) == ["n2"]
    assert nodes_of(drawn(LEAVES), gang(1, 2, *light, *heavy)) == ["n3"]


def test_a_bar_comes_before_a_like() -> None:
    job = barred(gang(1, 2, Like(named("n3"))), {"w": "metadata.name notin (n3)"})
    assert nodes_of(drawn(LEAVES), job) == ["n0"]


def test_the_likes_of_a_gang_are_those_of_all_its_roles() -> None:
    like = TopologyWish(likes=(Like(named("n2", "n3")),))
    roles = (Role("a", 1, Shape(gpus=4)), Role("b", 1, Shape(gpus=2)))
    assert set(nodes_of(drawn(LEAVES), Job("x", roles, topology=like))) == {"n2", "n3"}


NODES = ("n0", "n1", "n2", "n3")
likes = st.lists(
    st.builds(
        lambda names, weight: Like(named(*sorted(names)), weight),
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
    free: list[int], told: list[Like], members: int, gpus: int
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
