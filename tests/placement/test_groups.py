"""Groups of ranks in few domains: what people expect of weights, and twins that try everything."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, pairwise, permutations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gantree.model.errors import BadInput
from gantree.model.jobs import Job, Near, Role, Shape, Slices, TopologySpec
from gantree.model.placements import Placement
from gantree.placement.choice.search import place
from gantree.placement.ranks.near_groups import few_pieces, whole_groups
from gantree.placement.ranks.rank_order import RankMap, rank_map
from gantree.testing.pictures import drawn
from gantree.testing.placement_checker import problems_of
from gantree.topology.occupancy.occupancy import Occupancy
from gantree.topology.traffic.traffic import degrees_of
from support.examples import examples

Weights = tuple[tuple[str, float], ...]


def leaves_of(*sizes: int, gpus: int = 1) -> Occupancy:
    """Leaves of so many nodes each, all free, below one spine."""
    names = (f"n{number}" for number in range(sum(sizes)))
    rows = (
        f"s0/l{leaf}: " + " ".join(f"{next(names)} {'.' * gpus}" for _ in range(size))
        for leaf, size in enumerate(sizes)
    )
    return drawn("\n".join(rows))


def job_of(members: int, gpus: int, weights: Weights | None, *axes: tuple[str, int]) -> Job:
    """A gang whose processes have a GPU each."""
    near = None if weights is None else Near("leaf", weights)
    role = Role("worker", members, Shape(gpus=gpus), processes=gpus)
    return Job("j", (role,), topology=TopologySpec(near=near), parallelism=axes)


def mapped(occupancy: Occupancy, job: Job) -> RankMap:
    """Its ranks where the search puts it, judged and held."""
    placement = place(occupancy, job)
    assert isinstance(placement, Placement), placement
    assert problems_of(occupancy, job, placement) == []
    occupancy.take(job.name, placement.members)
    occupancy.check()
    return rank_map(occupancy.fabric, job, placement)


def reach(occupancy: Occupancy, job: Job, found: RankMap) -> dict[str, int]:
    """Leaves that the widest group of each axis reaches."""
    leaf = {node.name: node.at for node in occupancy.fabric.nodes}
    at = [leaf[placed.node] for placed in found.ranks]
    groups = whole_groups(degrees_of(job, len(at)))
    return {
        axis: max(len({at[rank] for rank in group}) for group in of_axis.tolist())
        for axis, of_axis in groups.items()
    }


def cost(reached: dict[str, int], weights: Weights) -> float:
    return sum(weight * reached[axis] for axis, weight in weights if axis in reached)


# ----- what people expect


@pytest.mark.parametrize(
    ("sizes", "weights", "data", "pipeline", "why"),
    [
        ((8, 8, 8, 8), (("data", 0.0), ("pipeline", 1.0)), 4, 1, "pipelines whole"),
        ((8, 8, 8, 8), (("data", 0.2), ("pipeline", 0.8)), 4, 1, "1.6 is less than 2.0"),
        ((8, 8, 8, 8), (("data", 0.4), ("pipeline", 0.6)), 2, 2, "2.0 is less than 2.2"),
        ((8, 8, 8, 8), (("data", 1.0), ("pipeline", 0.0)), 1, 4, "stages whole"),
        ((8, 8, 8, 8), (("data", 3.0), ("pipeline", 1.0)), 1, 4, "weights need not sum to 1"),
        ((12, 4, 8, 8), (("data", 0.5), ("pipeline", 0.5)), 2, 2, "parts of unequal leaves"),
    ],
)
def test_weights_trade_pipelines_for_replicas(
    sizes: tuple[int, ...], weights: Weights, data: int, pipeline: int, why: str
) -> None:
    occupancy = leaves_of(*sizes)
    job = job_of(32, 1, weights, ("data", 8), ("pipeline", 4))
    reached = reach(occupancy, job, mapped(occupancy, job))
    assert (reached["data"], reached["pipeline"]) == (data, pipeline), why


def test_tensor_groups_are_not_torn_for_the_sake_of_others() -> None:
    """Laid across leaves they would let both other axes reach less than is possible with whole ones."""
    weights = (("data", 0.5), ("pipeline", 0.5))
    occupancy = leaves_of(4, 4, 4, gpus=8)
    job = job_of(12, 8, weights, ("tensor", 4), ("data", 12), ("pipeline", 2))
    reached = reach(occupancy, job, mapped(occupancy, job))
    assert reached["tensor"] == 1
    assert cost(reached, weights) == 2


def test_an_axis_that_is_not_there_weighs_nothing_and_without_weights_prices_decide() -> None:
    occupancy = leaves_of(4, 4)
    job = job_of(8, 1, (("expert", 5.0),), ("data", 4), ("pipeline", 2))
    plain = replace(job, topology=TopologySpec())
    assert [placed.node for placed in mapped(occupancy.copy(), job).ranks] == [
        placed.node for placed in mapped(occupancy, plain).ranks
    ]


def test_pipelines_that_do_not_fit_whole_are_broken_last() -> None:
    """Nodes for two pipelines of four in each leaf, and one more pipeline over what is left of both."""
    occupancy = leaves_of(10, 10)
    weights = (("data", 0.0), ("pipeline", 1.0))
    job = job_of(20, 1, weights, ("data", 5), ("pipeline", 4))
    found = mapped(occupancy, job)
    leaf = {node.name: node.at for node in occupancy.fabric.nodes}
    ranks = np.arange(20).reshape(4, 5)
    of_pipeline = [len({leaf[found.ranks[rank].node] for rank in ranks[:, p]}) for p in range(5)]
    assert sorted(of_pipeline) == [1, 1, 1, 1, 2]


def test_preferred_slices_and_weights_go_together() -> None:
    """Leaves are chosen for whole pipelines, ranks for what the weights say."""
    occupancy = leaves_of(9, 9, 9, 9, 3)
    weights = (("data", 0.5), ("pipeline", 0.5))
    job = job_of(32, 1, weights, ("data", 8), ("pipeline", 4))
    slices = (Slices(4, "leaf", preferred=True),)
    job = replace(job, topology=replace(job.topology, slices=slices))
    reached = reach(occupancy, job, mapped(occupancy, job))
    assert (reached["data"], reached["pipeline"]) == (2, 2)


@pytest.mark.parametrize(
    ("near", "told"),
    [
        (Near("rack", (("data", 1.0),)), "no tier 'rack'; allowed: spine, leaf, node"),
        (Near("leaf", (("dta", 1.0),)), "no axis 'dta'; allowed: tensor, context, expert, data"),
    ],
)
def test_an_unknown_tier_or_axis_is_refused_by_name(near: Near, told: str) -> None:
    occupancy = leaves_of(2, 2)
    job = job_of(4, 1, None, ("data", 4))
    placement = place(occupancy, job)
    assert isinstance(placement, Placement)
    with pytest.raises(BadInput, match=told):
        rank_map(occupancy.fabric, replace(job, topology=TopologySpec(near=near)), placement)


def test_by_a_tier_inside_nodes_nodes_are_counted() -> None:
    weights = (("data", 0.0), ("pipeline", 1.0))
    job = job_of(4, 2, weights, ("data", 4), ("pipeline", 2))
    job = replace(job, topology=TopologySpec(near=Near("socket", weights)))
    found = mapped(leaves_of(2, 2, gpus=2), job)
    nodes = [placed.node for placed in found.ranks]
    assert all(nodes[rank] == nodes[rank + 4] for rank in range(4))


# ----- twins


@settings(deadline=None, max_examples=examples(20))
@given(
    st.sampled_from([(2, 2), (3, 2), (2, 3), (5, 1), (1, 5)]),
    st.lists(st.integers(1, 4), min_size=2, max_size=4),
    st.sampled_from([0.0, 0.25, 0.4, 0.5, 0.75, 1.0]),
)
def test_a_small_gang_reaches_as_little_as_any_order_of_its_members(
    cut: tuple[int, int], sizes: list[int], alpha: float
) -> None:
    data, pipeline = cut
    assume(sum(sizes) >= data * pipeline)
    weights = (("data", alpha), ("pipeline", 1 - alpha))
    occupancy = leaves_of(*sizes)
    job = job_of(data * pipeline, 1, weights, ("data", data), ("pipeline", pipeline))
    found = mapped(occupancy, job)
    least = min(
        cost(reach(occupancy, job, replace(found, ranks=order)), weights)
        for order in permutations(found.ranks)
    )
    assert cost(reach(occupancy, job, found), weights) == pytest.approx(least)


@settings(deadline=None, max_examples=examples(30))
@given(
    st.sampled_from([(8, 2, 1), (6, 4, 1), (5, 3, 1), (4, 4, 2), (12, 2, 4)]),
    st.lists(st.integers(1, 9), min_size=2, max_size=6),
    st.sampled_from([0.0, 0.3, 0.5, 1.0]),
)
def test_weighed_ranks_cost_no_more_than_ranks_by_price_or_in_topology_order(
    cut: tuple[int, int, int], sizes: list[int], alpha: float
) -> None:
    data, pipeline, tensor = cut
    members = data * pipeline * tensor // 4
    assume(sum(sizes) >= members and data * pipeline * tensor % 4 == 0)
    weights = (("data", alpha), ("pipeline", 1 - alpha))
    axes = (("tensor", tensor), ("data", data), ("pipeline", pipeline))
    occupancy = leaves_of(*sizes, gpus=4)
    job = job_of(members, 4, weights, *axes)
    by_price = mapped(occupancy.copy(), replace(job, topology=TopologySpec()))
    weighed = reach(occupancy, job, mapped(occupancy, job))
    priced = reach(occupancy, job, by_price)
    if priced.get("tensor", 1) == 1:
        assert cost(weighed, weights) <= cost(priced, weights) + 1e-9
    assert weighed.get("tensor", 1) <= priced.get("tensor", 1)


@given(st.integers(1, 4), st.integers(1, 6), st.data())
def test_rooms_are_shared_out_completely_in_at_most_one_piece_more_than_could_be(
    parts: int, need: int, data: st.DataObject
) -> None:
    cuts = data.draw(st.sets(st.integers(1, max(1, parts * need - 1)), max_size=4))
    bounds = [0, *sorted(cuts), parts * need]
    rooms = [end - begin for begin, end in pairwise(bounds)]
    shares = few_pieces(rooms, need, parts)
    assert [sum(runs for _, runs in pieces) for pieces in shares] == [need] * parts
    taken = Counter[int]()
    for pieces in shares:
        for room, runs in pieces:
            taken[room] += runs
    assert [taken[room] for room in range(len(rooms))] == rooms
    assert max(map(len, shares)) <= fewest_pieces(rooms, need, parts) + 1


def fewest_pieces(rooms: Sequence[int], need: int, parts: int) -> int:
    """The least that the part with most pieces can have, by trying everything."""
    sizes = tuple(sorted(rooms))
    return next(most for most in range(1, len(rooms) + 1) if _can(sizes, need, parts, most))


def _can(rooms: tuple[int, ...], need: int, parts: int, most: int) -> bool:
    if not parts:
        return True
    return any(
        _can(left, need, parts - 1, most)
        for size in range(1, most + 1)
        for chosen in combinations(range(len(rooms)), size)
        for left in {*_emptied(rooms, chosen, need)}
    )


def _emptied(
    rooms: tuple[int, ...], chosen: tuple[int, ...], need: int
) -> Iterator[tuple[int, ...]]:
    """Rooms once the chosen ones have given so much, each something."""
    if not chosen:
        if not need:
            yield tuple(sorted(room for room in rooms if room))
        return
    first, *others = chosen
    for given_up in range(1, min(rooms[first], need) + 1):
        left = (*rooms[:first], rooms[first] - given_up, *rooms[first + 1 :])
        yield from _emptied(left, tuple(others), need - given_up)
