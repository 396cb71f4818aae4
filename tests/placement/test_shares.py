"""Shares of GPUs against a plain twin in fractions, and against what an occupancy lets be held."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.cluster import Cluster, Machine, Node
from gantree.model.jobs import ISOLATIONS, Job, Role, Shape
from gantree.model.placements import MigPart, Placement, SharePart
from gantree.placement.choice.search import place
from gantree.placement.machine.shares import (
    MPS_CLIENTS,
    MPS_CLIENTS_BEFORE_VOLTA,
    MPS_CLIENTS_NEWEST,
    Share,
    choose,
    count,
    milli_asked,
    milli_left,
    sharing_of,
)
from gantree.testing.placement_checker import problems_of
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.gpus.gpu_state import PLAIN, rules_of
from gantree.topology.occupancy.gpus.node_state import NodeState
from gantree.topology.occupancy.occupancy import Occupancy
from support.examples import examples

TURNS, MPS = ISOLATIONS
HALF, QUARTER = Shape(gpu_share=0.5), Shape(gpu_share=0.25)


def node(gpus: int = 2, gpu: str | None = "H100-80GB", **fields: object) -> NodeState:
    """A node of which nothing is held; fields are those of a Node."""
    rules = rules_of(Machine("m", gpus, gpu), Node("n0", "m", **fields))  # type: ignore[arg-type]  # by name
    return NodeState(rules, (PLAIN,) * gpus, recut=True)


def holding(state: NodeState, *parts: SharePart) -> NodeState:
    for part in parts:
        state = state.take_share(part)
    return state


def tenant(gpu: int, compute: float, way: str = TURNS, *, alone: bool = False) -> SharePart:
    return SharePart(gpu, compute, 80 * compute, way, alone)


def drawn(state: NodeState) -> str:
    """Tenths of each GPU's compute that tenants hold: "5 0" is a half of the first."""
    return " ".join(str(round(10 * sum(t.compute for t in gpu.tenants))) for gpu in state.gpus)


@pytest.mark.parametrize(
    ("shape", "gpu", "compute", "memory_GiB"),
    [
        (Shape(gpu_share=0.5), "H100-80GB", 0.5, 40),
        (Shape(gpu_share=0.5), "A10-24GB", 0.5, 12),
        (Shape(gpu_share=0.5, gpu_memory_GiB=20), "H100-80GB", 0.5, 20),
        (Shape(gpu_memory_GiB=20), "H100-80GB", 0.25, 20),
        (Shape(gpu_memory_GiB=12), "A10-24GB", 0.5, 12),
        (Shape(gpu_share=0.5), "B100", 0.5, 0),
        (Shape(gpu_share=0.5), None, 0.5, 0),
    ],
)
def test_who_names_one_of_compute_and_memory_gets_as_large_a_part_of_the_other(
    shape: Shape, gpu: str | None, compute: float, memory_GiB: float
) -> None:
    parts = choose(node(gpu=gpu), shape, 1, apart=False)
    assert parts == (SharePart(0, compute, memory_GiB, TURNS),)


@pytest.mark.parametrize(
    ("shape", "gpu"),
    [
        (Shape(gpu_memory_GiB=20), "B100"),
        (Shape(gpu_memory_GiB=20), None),
        (Shape(gpu_memory_GiB=25), "A10-24GB"),
        (Shape(gpu_share=0.1, gpu_memory_GiB=25), "A10-24GB"),
        (Shape(gpu_share=0.5), "TPUV5E-16GB"),
        (Shape(gpu_share=0.5, isolation=MPS), "MI300X-192GB"),
    ],
)
def test_a_gpu_that_cannot_give_it_takes_nobody(shape: Shape, gpu: str | None) -> None:
    assert count(node(gpu=gpu), shape, apart=False) == 0
    assert choose(node(gpu=gpu), shape, 1, apart=False) is None


@pytest.mark.parametrize("parts", [3, 6, 7, 9, 11])
def test_a_gpu_holds_as_many_nth_parts_as_n(parts: int) -> None:
    """Of a third of 80 GiB no rounding makes more than 80."""
    state, nth = node(gpus=1), Shape(gpu_share=1 / parts)
    assert count(state, nth, apart=False) == parts
    chosen = choose(state, nth, parts, apart=False)
    assert chosen is not None
    assert count(holding(state, *chosen), Shape(gpu_share=0.01), apart=False) == 0


@pytest.mark.parametrize(
    ("gpu", "tenants", "way", "most"),
    [
        ("H100-80GB", None, MPS, MPS_CLIENTS),
        ("P100-16GB", None, MPS, MPS_CLIENTS_BEFORE_VOLTA),
        ("H100-80GB", 4, MPS, 4),
        ("H100-80GB", 100, MPS, MPS_CLIENTS_NEWEST),
        ("P100-16GB", 100, MPS, MPS_CLIENTS_BEFORE_VOLTA),
        ("H100-80GB", 4, TURNS, 4),
        ("H100-80GB", 80, TURNS, 80),
        ("H100-80GB", None, TURNS, 100),
        ("MI300X-192GB", None, TURNS, 100),
        (None, None, MPS, MPS_CLIENTS),
    ],
)
def test_tenants_are_as_many_as_the_node_says_and_mps_serves(
    gpu: str | None, tenants: int | None, way: str, most: int
) -> None:
    state, small = node(1, gpu, tenants=tenants), Shape(gpu_share=0.01, isolation=way)
    assert count(state, small, apart=False) == most
    parts = choose(state, small, most, apart=False)
    assert parts is not None
    full = holding(state, *parts)
    assert count(full, small, apart=False) == 0
    assert milli_left(sharing_of(full.rules), full.gpus[0]) == 0


@pytest.mark.parametrize(
    ("shares", "asked", "held", "gpus"),
    [
        (ISOLATIONS, None, (), [(0, TURNS), (0, TURNS), (1, TURNS), (1, TURNS)]),
        ((MPS, TURNS), None, (), [(0, MPS), (0, MPS), (1, MPS), (1, MPS)]),
        (ISOLATIONS, MPS, (tenant(0, 0.1),), [(1, MPS), (1, MPS)]),
        (ISOLATIONS, None, (tenant(1, 0.1, MPS),), [(1, MPS), (1, MPS), (0, TURNS), (0, TURNS)]),
        ((TURNS,), MPS, (), []),
        ((), None, (), []),
    ],
)
def test_all_tenants_of_a_gpu_share_it_the_same_way(
    shares: tuple[str, ...],
    asked: str | None,
    held: tuple[SharePart, ...],
    gpus: list[tuple[int, str]],
) -> None:
    state = holding(node(shares=shares), *held)
    shape = Shape(gpu_share=0.4, isolation=asked)
    members = count(state, shape, apart=False)
    assert members == len(gpus)
    parts = choose(state, shape, members, apart=False)
    if members:
        assert parts is not None
        assert [(part.gpu, part.isolation) for part in parts] == gpus


@pytest.mark.parametrize(
    ("held", "share", "gpu"),
    [
        ([0.0, 0.0, 0.0], 0.3, 0),
        ([0.2, 0.5, 0.0], 0.3, 1),
        ([0.2, 0.8, 0.0], 0.3, 0),
        ([0.8, 0.8, 0.0], 0.3, 2),
        ([0.0, 0.7, 0.7], 0.3, 1),
    ],
)
def test_a_share_goes_where_least_is_left(held: list[float], share: float, gpu: int) -> None:
    tenants = [tenant(number, compute) for number, compute in enumerate(held) if compute]
    state = holding(node(gpus=3), *tenants)
    parts = choose(state, Shape(gpu_share=share), 1, apart=False)
    assert parts is not None
    assert parts[0].gpu == gpu


def test_memory_decides_as_compute_does() -> None:
    """The first GPU has more compute left, the second more memory."""
    state = holding(node(), SharePart(0, 0.1, 70, TURNS), SharePart(1, 0.6, 10, TURNS))
    assert count(state, Shape(gpu_share=0.2, gpu_memory_GiB=20), apart=False) == 2
    assert count(state, Shape(gpu_share=0.2, gpu_memory_GiB=5), apart=False) == 4
    parts = choose(state, Shape(gpu_share=0.2, gpu_memory_GiB=20), 1, apart=False)
    assert parts == (SharePart(1, 0.2, 20, TURNS),)


def test_a_gpu_in_mig_mode_is_not_shared() -> None:
    state = node().take_instance(MigPart(0, "1g.10gb", 0))
    assert count(state, HALF, apart=False) == 2
    parts = choose(state, HALF, 2, apart=False)
    assert parts is not None
    assert [part.gpu for part in parts] == [1, 1]


def test_ranks_that_talk_have_a_gpu_each_and_to_themselves() -> None:
    state = holding(node(gpus=4), tenant(0, 0.25))
    assert count(state, QUARTER, apart=True) == 3
    parts = choose(state, QUARTER, 3, apart=True)
    assert parts is not None
    assert [(part.gpu, part.alone) for part in parts] == [(1, True), (2, True), (3, True)]
    after = holding(state, *parts)
    assert drawn(after) == "2 2 2 2"
    assert count(after, QUARTER, apart=False) == 3
    assert count(after, replace(QUARTER, neighbours=True), apart=True) == 1
    assert [milli_left(sharing_of(after.rules), gpu) for gpu in after.gpus] == [750, 0, 0, 0]


def test_ranks_that_allow_neighbours_share_gpus_with_strangers_but_not_with_each_other() -> None:
    state, shape = holding(node(gpus=3), tenant(1, 0.5)), replace(QUARTER, neighbours=True)
    assert count(state, shape, apart=True) == 3
    parts = choose(state, shape, 2, apart=True)
    assert parts is not None
    assert [(part.gpu, part.alone) for part in parts] == [(1, False), (0, False)]
    assert choose(state, shape, 3, apart=True, without=(2,)) is None


def test_members_that_do_not_talk_share_gpus_with_each_other() -> None:
    parts = choose(node(), HALF, 4, apart=False)
    assert parts is not None
    assert [(part.gpu, part.alone) for part in parts] == [
        (0, False),
        (0, False),
        (1, False),
        (1, False),
    ]
    assert choose(node(), HALF, 5, apart=False) is None


tenths = st.integers(1, 10).map(lambda tenth: tenth / 10)
ways = st.sampled_from(ISOLATIONS)
shapes = st.builds(
    Shape,
    gpu_share=st.one_of(tenths, st.sampled_from((1 / 3, 0.07, 0.015))),
    gpu_memory_GiB=st.one_of(st.none(), st.sampled_from((1.0, 8.0, 20.0, 79.5))),
    isolation=st.one_of(st.none(), ways),
    neighbours=st.booleans(),
)


@st.composite
def states(draw: st.DrawFn) -> NodeState:
    """Up to four GPUs with what tenants could take of them."""
    shares = draw(st.sampled_from((ISOLATIONS, (MPS, TURNS), (MPS,), (TURNS,))))
    state = node(
        draw(st.integers(1, 4)), tenants=draw(st.sampled_from((None, 1, 3))), shares=shares
    )
    for gpu in range(len(state.gpus)):
        for _ in range(draw(st.integers(0, 3))):
            memory = draw(st.sampled_from((1.0, 20.0, 40.0)))
            part = SharePart(gpu, draw(tenths), memory, draw(ways), draw(st.booleans()))
            if not state.why_not_share(part):
                state = state.take_share(part)
    return state


def members_twin(state: NodeState, shape: Shape, gpu: int, *, apart: bool) -> int:
    """Members put on one GPU one after the other, in exact fractions, until a rule says no."""
    assert shape.gpu_share is not None
    compute = Fraction(int(Fraction(str(shape.gpu_share)) * 10**6), 10**6)
    memory = Fraction(shape.gpu_memory_GiB or 0)
    if shape.gpu_memory_GiB is None:
        memory = Fraction(int(80 * 1024 * compute), 1024)
    tenants = [
        (Fraction(round(t.compute * 10**6), 10**6), Fraction(t.memory_GiB), t.isolation, t.alone)
        for t in state.gpus[gpu].tenants
    ]
    alone, members = apart and not shape.neighbours, 0
    while True:
        admitted = [w for w in state.rules.shares if shape.isolation in (None, w)]
        way = tenants[0][2] if tenants else next(iter(admitted), None)
        tenants.append((compute, memory, way or "none", alone))
        limit = min(state.rules.tenants or 10**9, 48 if way == MPS else 10**9)
        if (
            way not in admitted
            or any(other[2] != way for other in tenants)
            or (len(tenants) > 1 and any(other[3] for other in tenants))
            or sum(other[0] for other in tenants) > 1
            or sum(other[1] for other in tenants) > 80
            or len(tenants) > limit
        ):
            return members
        members += 1
        if apart:
            return members


@given(states(), shapes, st.booleans())
def test_as_many_fit_as_the_plain_twin_puts_there_and_all_of_them_can_be_held(
    state: NodeState, shape: Shape, apart: bool
) -> None:
    expected = [members_twin(state, shape, gpu, apart=apart) for gpu in range(len(state.gpus))]
    members = count(state, shape, apart)
    assert members == sum(expected)
    assert choose(state, shape, members + 1, apart) is None
    parts = choose(state, shape, members, apart)
    assert parts is not None or not members
    after = holding(state, *(parts or ()))
    assert count(after, shape, apart) == 0 or (apart and shape.neighbours)
    gpus = [part.gpu for part in parts or ()]
    assert [gpus.count(gpu) for gpu in range(len(state.gpus))] == (
        expected if gpus else [0] * len(expected)
    )


@given(states(), shapes)
def test_the_one_number_of_a_gpu_falls_by_what_a_share_asks_at_least(
    state: NodeState, shape: Shape
) -> None:
    """Up to the rounding of each of the three to thousandths."""
    sharing = sharing_of(state.rules)
    share = Share.of(sharing, shape, apart=False)
    parts = choose(state, shape, 1, apart=False)
    if share is None or parts is None:
        return
    before = milli_left(sharing, state.gpus[parts[0].gpu])
    after = milli_left(sharing, state.take_share(parts[0]).gpus[parts[0].gpu])
    assert 0 <= after <= before
    assert 1 <= milli_asked(sharing, share) <= 1000
    if not state.gpus[parts[0].gpu].tenants:
        full = len(state.gpus) and sharing.most(parts[0].isolation) == 1
        assert after == 0 if full else abs(before - after - milli_asked(sharing, share)) <= 1


gangs = st.tuples(st.integers(1, 5), shapes, st.booleans())


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(gangs, min_size=1, max_size=10))
def test_gangs_that_ask_for_shares_are_placed_so_that_ranks_that_talk_are_apart_and_alone(
    asked: list[tuple[int, Shape, bool]],
) -> None:
    machine = Machine("m", 3, "H100-80GB")
    nodes = tuple(Node(f"n{number}", "m") for number in range(2))
    occupancy = Occupancy(Fabric.build(Cluster("c", ("node",), {"m": machine}, nodes)))
    for number, (members, shape, communicates) in enumerate(asked):
        roles = (Role("worker", members, shape),)
        job = Job(f"j{number}", roles, communicates=communicates)
        apart = communicates and members > 1
        room = sum(count(occupancy.state_of_node(index), shape, apart) for index in range(2))
        placed = place(occupancy, job)
        assert isinstance(placed, Placement) == (members <= room)
        if isinstance(placed, Placement):
            assert problems_of(occupancy, job, placed) == []
            shares = [(member.node, member.share) for member in placed.members if member.share]
            assert len(shares) == members
            assert {share.alone for _, share in shares} == {apart and not shape.neighbours}
            assert not apart or len({(node, share.gpu) for node, share in shares}) == members
            occupancy.take(job.name, placed.members)
    occupancy.check()


def test_who_admits_any_way_of_sharing_joins_those_who_do_not() -> None:
    machine = Machine("m", 1, "H100-80GB")
    where = Occupancy(Fabric.build(Cluster("c", ("node",), {"m": machine}, (Node("n0", "m"),))))
    any_way, one_way = Shape(gpu_share=0.6), Shape(gpu_share=0.4, isolation=MPS)
    roles = (Role("a", 1, any_way), Role("b", 1, one_way))
    found = place(where, Job("j", roles, communicates=False))
    assert isinstance(found, Placement)
    assert [m.share.isolation for m in found.members if m.share] == [MPS, MPS]
