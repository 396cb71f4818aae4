"""How ranks count along the axes: as frameworks do it, and what many orders of one gang cost at once."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.cluster import Link
from gantree.model.jobs import AXES, AxisTraffic, Job, Traffic
from gantree.model.placements import MemberPlacement
from gantree.testing.builders import cluster, job
from gantree.topology.cost.prediction import predict
from gantree.topology.cost.pricing import pricer_of
from gantree.topology.cost.step import step_time
from gantree.topology.cost.step_orders import StepOfOrders
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.traffic.traffic import EXPERT_DATA, degrees_of, groups_of
from support.examples import examples

WIDE = Fabric.build(cluster(spines=2, leaves=2, nodes=2, gpus=2))


def counted(*axes: tuple[str, int], as_written: bool = True) -> Job:
    return replace(job("j", 8, 2), parallelism=axes, ranks_as_written=as_written)


def groups(asked: Job, ranks: int) -> dict[str, list[list[int]]]:
    return {axis: each.tolist() for axis, each in groups_of(degrees_of(asked, ranks)).items()}


def test_megatron_counts_tensor_then_data_then_pipeline() -> None:
    """The example of Megatron-LM's initialize_model_parallel: 16 GPUs, tensor 2, pipeline 4, order tp-dp-pp."""
    found = groups(counted(("tensor", 2), ("data", 2), ("pipeline", 4)), 16)
    assert found["tensor"] == [[2 * n, 2 * n + 1] for n in range(8)]
    assert sorted(found["data"]) == [
        [0, 2],
        [1, 3],
        [4, 6],
        [5, 7],
        [8, 10],
        [9, 11],
        [12, 14],
        [13, 15],
    ]
    assert [[a, b] for a, b in found["pipeline"] if a in {0, 4}] == [[0, 4], [4, 8]]


def test_megatrons_order_tp_pp_dp_puts_replicas_farthest_apart() -> None:
    found = groups(counted(("tensor", 2), ("pipeline", 4), ("data", 2)), 16)
    assert sorted(found["data"]) == [[rank, rank + 8] for rank in range(8)]
    assert sorted(found["pipeline"])[:2] == [[0, 2], [1, 3]]


def test_deepspeed_and_device_meshes_name_the_slowest_axis_first() -> None:
    """PipeModelDataParallelTopology(num_pp=2, num_mp=2, num_dp=2) has axes pipe, data, model, row-major."""
    mesh = np.arange(8).reshape(2, 2, 2)
    found = groups(counted(("tensor", 2), ("data", 2), ("pipeline", 2)), 8)
    assert sorted(found["tensor"]) == sorted(mesh.reshape(-1, 2).tolist())
    assert sorted(found["data"]) == sorted(np.moveaxis(mesh, 1, 2).reshape(-1, 2).tolist())
    assert sorted(found["pipeline"]) == sorted(np.moveaxis(mesh, 0, 2).reshape(-1, 2).tolist())


def test_without_the_word_the_order_of_writing_means_nothing() -> None:
    written = (("pipeline", 2), ("data", 4), ("tensor", 2))
    usual = tuple(sorted(written, key=lambda axis: AXES.index(axis[0])))
    assert groups(counted(*written, as_written=False), 16) == groups(counted(*usual), 16)
    assert groups(counted(*written), 16) != groups(counted(*usual), 16)


def test_ways_that_are_not_written_count_slowest() -> None:
    found = groups(counted(("pipeline", 2), ("tensor", 2)), 16)
    assert sorted(found["data"])[0] == [0, 4, 8, 12]


@st.composite
def written_axes(draw: st.DrawFn) -> tuple[tuple[str, int], ...]:
    ways = {axis: draw(st.integers(1, 3)) for axis in AXES}
    ways["data"] *= ways["expert"]
    return tuple((axis, ways[axis]) for axis in draw(st.permutations(AXES)))


def coordinates(axes: Sequence[tuple[str, int]]) -> list[dict[str, int]]:
    """A plain twin: where each rank stands on each axis, the first axis counting fastest."""
    expert = dict(axes)["expert"]
    sizes = [(axis, size // expert if axis == "data" else size) for axis, size in axes]
    ranks: list[dict[str, int]] = [{}]
    for axis, size in reversed(sizes):
        ranks = [{**rank, axis: at} for rank in ranks for at in range(size)]
    return ranks


def grouped(axes: Sequence[tuple[str, int]], along: set[str]) -> list[list[int]]:
    """Ranks that agree on all other axes."""
    found: dict[tuple[tuple[str, int], ...], list[int]] = {}
    for rank, at in enumerate(coordinates(axes)):
        rest = tuple(sorted((axis, place) for axis, place in at.items() if axis not in along))
        found.setdefault(rest, []).append(rank)
    return sorted(found.values())


@given(written_axes())
def test_groups_are_those_of_a_plain_count(axes: tuple[tuple[str, int], ...]) -> None:
    ranks = len(coordinates(axes))
    found = groups(counted(*axes), ranks)
    along = {"tensor": {"tensor"}, "context": {"context"}, "expert": {"expert"},
             EXPERT_DATA: {"data", "context"}, "data": {"data", "expert", "context"}}  # fmt: skip
    for axis, free in along.items():
        wanted = [group for group in grouped(axes, free) if len(group) > 1]
        assert sorted(found.get(axis, [])) == wanted
    stages = grouped(axes, {"pipeline"})
    assert sorted(found.get("pipeline", [])) == sorted(
        [a, b] for group in stages for a, b in pairwise(group)
    )


def test_a_price_kept_for_one_order_is_not_told_for_another() -> None:
    told = Traffic((AxisTraffic("tensor", 1e9), AxisTraffic("data", 1e6)))
    members = [MemberPlacement("worker", n, f"n{n}", (0, 1)) for n in range(8)]
    fast, slow = (
        replace(counted(*axes), traffic=told)
        for axes in ((("tensor", 2), ("data", 8)), (("data", 8), ("tensor", 2)))
    )
    assert predict(WIDE, members, fast).step_s != predict(WIDE, members, slow).step_s
    as_usual = replace(slow, ranks_as_written=False)
    assert predict(WIDE, members, as_usual).step_s == predict(WIDE, members, fast).step_s


@settings(max_examples=examples(50))
@given(
    st.data(),
    written_axes(),
    st.sampled_from([None, 0.05]),
    st.sampled_from([(), (("data", 0.5), ("tensor", 0.3))]),
)
def test_many_orders_at_once_cost_what_each_costs_alone(
    data: st.DataObject,
    axes: tuple[tuple[str, int], ...],
    compute_s: float | None,
    overlap: tuple[tuple[str, float], ...],
) -> None:
    size = st.sampled_from([0.0, 1e5, 1e9])
    traffic = Traffic(tuple(AxisTraffic(axis, data.draw(size), 2) for axis in AXES), compute_s)
    ranks = len(coordinates(axes))
    most = [(node, gpu) for node in range(16) for gpu in range(2)]
    places = [most[number % len(most)] for number in range(ranks)]
    asked = replace(counted(*axes), traffic=traffic, overlap=overlap)
    orders = np.array(data.draw(st.lists(st.permutations(range(ranks)), min_size=1, max_size=3)))
    site = cluster(spines=2, leaves=2, nodes=4, gpus=2, nics=1)  # a NIC and up-links to share
    fabric = Fabric.build(replace(site, links={"leaf": Link(25, 6, uplink_GBps=60)}))
    priced = StepOfOrders(pricer_of(fabric), asked, places).price(orders)
    for order, step_s in zip(orders.tolist(), priced.step_s.tolist(), strict=True):
        step = step_time(pricer_of(fabric), asked, [places[position] for position in order])
        assert step is not None and step_s == pytest.approx(step.step_s, rel=1e-12)
    assert (priced.spread_s >= 0).all()
