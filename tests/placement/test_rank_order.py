"""Which rank runs where: tables of what people expect, twins that try everything, and prices that never get worse."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gantree.model.cluster import Cluster, DomainFacts, Link, Machine, Node
from gantree.model.jobs import AXES, AxisTraffic, Job, Role, Shape, Traffic, Transformer
from gantree.model.placements import MemberPlacement, Placement
from gantree.placement.ranks.layouts import GridLayout, axis_orders
from gantree.placement.ranks.rank_order import RankMap, rank_map
from gantree.testing.pictures import drawn
from gantree.testing.placement_checker import problems_of
from gantree.topology.cost.prediction import predict
from gantree.topology.cost.pricing import pricer_of, ranks_of
from gantree.topology.cost.step import step_time
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.catalog import machine
from gantree.topology.occupancy.occupancy import Occupancy
from gantree.topology.traffic.traffic import degrees_of, groups_of
from support.examples import examples

LINKS = {"spine": Link(20.0, 12.0, 400.0), "leaf": Link(25.0, 6.0, 300.0)}
MODEL = Transformer(parameters=13e9, layers=40, hidden=5120, sequence=4096, batch=1 << 10)
HGX = machine("dgx-h100")

EIGHT = """
    s0/l0: n0 ........ n1 ........ n2 ........ n3 ........
    s0/l1: n4 ........ n5 ........ n6 ........ n7 ........
"""


def with_links(picture: str, like: Machine = HGX) -> Occupancy:
    """What a picture shows, on a fabric whose leaves and spines have little to give."""
    return Occupancy(Fabric.build(replace(drawn(picture, like).fabric.cluster, links=LINKS)))


def row_of_leaves(*sizes: int, gpus: int = 1, like: Machine = HGX) -> Occupancy:
    """Leaves of so many nodes each, all below one spine."""
    count = iter(range(sum(sizes)))
    lines = (
        f"s0/l{leaf}: " + " ".join(f"n{next(count)} {'.' * gpus}" for _ in range(size))
        for leaf, size in enumerate(sizes)
    )
    return with_links("\n".join(lines), like)


def job_of(
    members: int,
    gpus: int,
    *axes: tuple[str, int],
    traffic: Traffic | None = None,
    trains: Transformer | None = None,
    processes: int | None = None,
    as_written: bool = True,
) -> Job:
    role = Role("worker", members, Shape(gpus=gpus), gpus if processes is None else processes)
    return Job(
        "j", (role,), parallelism=axes, ranks_as_written=as_written, traffic=traffic, trains=trains
    )


def on(fabric: Fabric, job: Job, nodes: Sequence[str], gpus: Sequence[int]) -> Placement:
    """Members in topology order on these nodes, one after the other, each with these GPUs."""
    numbered = zip([role for role in job.roles for _ in range(role.members)], nodes, strict=True)
    rank: Counter[str] = Counter()
    members = []
    for role, node in numbered:
        held = tuple(gpus[: role.shape.gpus])
        members.append(MemberPlacement(role.name, rank[role.name], node, held))
        rank[role.name] += 1
    predicted = predict(fabric, members, job)
    domain = fabric.narrowest_domain([fabric.index_of_node[node] for node in nodes])
    return Placement(tuple(members), fabric.domain(*domain), predicted)


def filled(occupancy: Occupancy, job: Job) -> Placement:
    """The job on the first nodes, judged and held."""
    names = [node.name for node in occupancy.fabric.nodes][: job.members]
    placement = on(occupancy.fabric, job, names, range(8))
    assert problems_of(occupancy, job, placement) == []
    occupancy.take(job.name, placement.members)
    occupancy.check()
    return placement


def mapped(occupancy: Occupancy, job: Job) -> RankMap:
    return rank_map(occupancy.fabric, job, filled(occupancy, job))


def hops(found: RankMap, axis: str, tier: str) -> int:
    return next(dict(each.hops)[tier] for each in found.crossings if each.axis == axis)


def seconds(fabric: Fabric, job: Job, places: Sequence[tuple[int, int]]) -> float:
    step = step_time(pricer_of(fabric), job, places)
    assert step is not None
    return step.step_s


# ----- what people expect


def test_ranks_that_count_as_the_traffic_wants_it_stay_in_topology_order() -> None:
    few = replace(MODEL, batch=8)  # so that replicas send more than stages
    job = job_of(8, 8, ("tensor", 8), ("data", 4), ("pipeline", 2), trains=few)
    found = mapped(with_links(EIGHT), job)
    assert not found.moved and found.whole_members
    assert [placed.rank for placed in found.ranks] == list(range(64))
    assert found.step_s == found.plain_step_s
    assert found.crossings == found.plain_crossings
    assert found.assumed == ()


@pytest.mark.parametrize("order", list(permutations([("tensor", 8), ("data", 4), ("pipeline", 2)])))
def test_however_ranks_count_tensor_groups_are_put_inside_a_node(
    order: tuple[tuple[str, int], ...],
) -> None:
    found = mapped(with_links(EIGHT), job_of(8, 8, *order, trains=MODEL))
    assert hops(found, "tensor", "node") == 0
    assert found.whole_members == (order[0][0] == "tensor")
    assert found.step_s is not None and found.plain_step_s is not None
    assert (found.step_s < found.plain_step_s) == found.moved


def test_a_pipeline_that_sends_more_stays_in_a_leaf_and_so_do_replicas_that_send_more() -> None:
    def told(axis: str) -> Traffic:
        return Traffic((AxisTraffic(axis, 40e9, 4),), compute_s=1.0)

    axes = (("data", 4), ("pipeline", 2))
    chatty_stages = mapped(row_of_leaves(4, 4), job_of(8, 1, *axes, traffic=told("pipeline")))
    assert hops(chatty_stages, "pipeline", "leaf") == 0
    assert chatty_stages.moved
    chatty_replicas = mapped(row_of_leaves(4, 4), job_of(8, 1, *axes, traffic=told("data")))
    assert hops(chatty_replicas, "data", "leaf") == 0
    assert not chatty_replicas.moved


def test_of_fifteen_and_seventeen_nodes_one_pipeline_alone_is_broken() -> None:
    traffic = Traffic((AxisTraffic("pipeline", 40e9, 4),), compute_s=1.0)
    job = job_of(32, 1, ("data", 8), ("pipeline", 4), traffic=traffic)
    occupancy = row_of_leaves(15, 17)
    found = mapped(occupancy, job)
    leaves_of_pipeline = [
        {int(placed.node[1:]) >= 15 for placed in found.ranks[replica::8]} for replica in range(8)
    ]
    assert [len(leaves) for leaves in leaves_of_pipeline].count(2) == 1
    assert hops(found, "pipeline", "leaf") == 1
    plain = next(each for each in found.plain_crossings if each.axis == "pipeline")
    assert dict(plain.hops)["leaf"] == 8


def test_bridged_pairs_hold_tensor_groups_of_two() -> None:
    pairs = machine("a100-pcie-pairs-4")
    job = job_of(2, 4, ("data", 4), ("tensor", 2), trains=MODEL)
    found = mapped(row_of_leaves(2, gpus=4, like=pairs), job)
    assert hops(found, "tensor", "nvlink") == 0
    assert [
        dict(each.hops)["nvlink"] for each in found.plain_crossings if each.axis == "tensor"
    ] == [4]


def test_hops_of_a_pair_count_once_and_of_larger_rings_all_round() -> None:
    job = job_of(4, 1, ("data", 4), traffic=Traffic((AxisTraffic("data", 1e9),)))
    rings = mapped(row_of_leaves(2, 2), job)
    assert (hops(rings, "data", "leaf"), hops(rings, "data", "node")) == (2, 4)
    job = job_of(2, 1, ("data", 2), traffic=Traffic((AxisTraffic("data", 1e9),)))
    pair = mapped(row_of_leaves(1, 1), job)
    assert (hops(pair, "data", "leaf"), hops(pair, "data", "spine")) == (1, 0)


def test_one_launcher_for_eight_gpus_moves_as_a_whole() -> None:
    traffic = Traffic((AxisTraffic("pipeline", 40e9, 4), AxisTraffic("tensor", 1e12, 4)))
    job = job_of(8, 8, ("tensor", 8), ("data", 4), ("pipeline", 2), traffic=traffic, processes=1)
    found = mapped(with_links(EIGHT), job)
    assert found.moved and found.whole_members
    assert [placed.gpus for placed in found.ranks] == [tuple(range(8))] * 8
    assert hops(found, "pipeline", "leaf") == 0
    assert sorted(found.of_member("worker", member)[0] for member in range(8)) == list(range(8))


def test_two_processes_a_gpu_keep_their_ranks_beside_each_other() -> None:
    job = job_of(8, 1, ("data", 4), ("pipeline", 2), processes=2,
                 traffic=Traffic((AxisTraffic("pipeline", 40e9, 4),)))  # fmt: skip
    found = mapped(row_of_leaves(4, 4), job)
    assert found.moved and found.whole_members
    ranks = [found.of_member("worker", member) for member in range(8)]
    assert all(second == first + 1 and first % 2 == 0 for first, second in ranks)


def test_roles_keep_their_ranks_and_members_without_gpus_too() -> None:
    roles = (
        Role("launcher", 1, Shape(cpus=1), 1),
        Role("first", 2, Shape(gpus=1), 1),
        Role("rest", 6, Shape(gpus=1), 1),
    )
    traffic = Traffic((AxisTraffic("pipeline", 40e9, 4),))
    axes = (("data", 4), ("pipeline", 2))
    job = Job("j", roles, parallelism=axes, ranks_as_written=True, traffic=traffic)
    fabric = row_of_leaves(4, 4).fabric
    placement = on(fabric, job, ["n0", *(f"n{n}" for n in range(8))], [0])
    found = rank_map(fabric, job, placement)
    assert found.moved
    assert [placed.role for placed in found.ranks] == ["launcher"] + ["first"] * 2 + ["rest"] * 6
    assert found.ranks[0].gpus == ()


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (job_of(4, 1, ("tensor", 3)), "topology order: job j: parallelism of tensor 3"),
        (job_of(4, 1, ("data", 4)), "the job tells neither model nor traffic"),
        (job_of(4, 1, ("data", 4), trains=replace(MODEL, batch=3)), "no multiple of data 4"),
    ],
)
def test_what_has_no_price_of_its_own_is_said(job: Job, said: str) -> None:
    found = mapped(row_of_leaves(2, 2), job)
    assert said in " ".join(found.assumed)
    assert (found.step_s, found.plain_step_s, found.moved) == (None, None, False)


def test_members_that_never_talk_stay_where_they_are() -> None:
    job = replace(job_of(8, 1, ("data", 4), ("pipeline", 2)), communicates=False)
    found = mapped(row_of_leaves(4, 4), job)
    assert not found.moved
    assert found.crossings == ()


def test_places_that_look_alike_share_a_map() -> None:
    traffic = Traffic((AxisTraffic("pipeline", 40e9, 4),), compute_s=1.0)
    job = job_of(8, 1, ("data", 4), ("pipeline", 2), traffic=traffic)
    fabric = row_of_leaves(4, 4, 4, 4).fabric
    first, second = (
        rank_map(fabric, job, on(fabric, job, [f"n{n}" for n in range(start, start + 8)], [0]))
        for start in (0, 8)
    )
    assert [int(placed.node[1:]) + 8 for placed in first.ranks] == [
        int(s.node[1:]) for s in second.ranks
    ]
    assert first.step_s == second.step_s


# ----- whatever the gang


@st.composite
def grids(draw: st.DrawFn, ranks: int) -> tuple[tuple[str, int], ...]:
    """Axes in any order whose ways multiply to the ranks; experts within data."""
    ways = {}
    left = ranks
    for axis in ("tensor", "context", "pipeline"):
        ways[axis] = draw(st.sampled_from([n for n in (1, 2, 3, 4, 8) if left % n == 0]))
        left //= ways[axis]
    ways["data"] = left
    ways["expert"] = draw(st.sampled_from([n for n in (1, 2, 4) if left % n == 0]))
    return tuple((axis, ways[axis]) for axis in draw(st.permutations(AXES)))


@st.composite
def traffics(draw: st.DrawFn) -> Traffic:
    size = st.sampled_from([0.0, 1e6, 1e9, 40e9])
    return Traffic(tuple(AxisTraffic(axis, draw(size), 4) for axis in AXES), compute_s=0.1)


@st.composite
def fabrics(draw: st.DrawFn, most_nodes: int, gpus: int) -> Fabric:
    """Up to three leaves of one or two spines, unequal, some of them worn."""
    sizes = draw(st.lists(st.integers(1, most_nodes), min_size=1, max_size=3))
    spines = draw(st.lists(st.integers(0, 1), min_size=len(sizes), max_size=len(sizes)))
    nodes = [
        Node(f"n{leaf}-{n}", "m", (f"s{spine}", f"l{leaf}"))
        for leaf, (size, spine) in enumerate(zip(sizes, spines, strict=True))
        for n in range(size)
    ]
    worn = tuple(
        DomainFacts("leaf", f"s{spine}/l{leaf}", health=draw(st.sampled_from([1.0, 1.0, 0.3])))
        for leaf, spine in enumerate(spines)
    )
    model = draw(st.sampled_from(["dgx-h100", "dgx-1-v100", "a6000-pairs-8"]))
    cut = machine(model)
    whole = replace(cut, name="m") if gpus == 8 else replace(
        cut, name="m", gpus=gpus, links=tuple(row[:gpus] for row in cut.links[:gpus]),
        numa=cut.numa[:gpus], nics=tuple(nic for nic in cut.nics if set(nic.near) <= set(range(gpus))),
    )  # fmt: skip
    site = Cluster("t", ("spine", "leaf", "node"), {"m": whole}, tuple(nodes), LINKS, domains=worn)
    return Fabric.build(site)


@st.composite
def gangs(draw: st.DrawFn, most_members: int = 8) -> tuple[Fabric, Job, Placement]:
    gpus = draw(st.sampled_from([1, 2, 4, 8]))
    fabric = draw(fabrics(max(1, most_members // 2), gpus))
    members = draw(st.integers(1, min(most_members, len(fabric.nodes))))
    job = job_of(
        members, gpus, *draw(grids(members * gpus)), traffic=draw(traffics()),
        processes=draw(st.sampled_from([gpus, gpus, 1])), as_written=draw(st.booleans()),
    )  # fmt: skip
    chosen = sorted(draw(st.permutations(range(len(fabric.nodes))))[:members])
    names = [fabric.nodes[number].name for number in chosen]
    placement = on(fabric, job, names, range(gpus))
    occupancy = Occupancy(fabric)
    assert problems_of(occupancy, job, placement) == []
    occupancy.take(job.name, placement.members)
    occupancy.check()
    return fabric, job, placement


@settings(max_examples=examples(60))
@given(gangs())
def test_every_rank_has_one_process_and_every_gpu_one_rank(
    gang: tuple[Fabric, Job, Placement],
) -> None:
    fabric, job, placement = gang
    found = rank_map(fabric, job, placement)
    assert [placed.rank for placed in found.ranks] == list(range(job.processes))
    there = {(m.role, m.rank): m for m in placement.members}
    assert {(s.role, s.member, s.process) for s in found.ranks} == {
        (role, rank, process) for role, rank in there for process in range(job.roles[0].processes)
    }
    for placed in found.ranks:
        member = there[placed.role, placed.member]
        each = len(member.gpus) // job.roles[0].processes
        assert placed.node == member.node
        assert placed.gpus == member.gpus[placed.process * each : (placed.process + 1) * each]


def gpus_by_rank(fabric: Fabric, found: RankMap) -> list[tuple[int, int]]:
    return [
        (fabric.index_of_node[placed.node], gpu) for placed in found.ranks for gpu in placed.gpus
    ]


@settings(max_examples=examples(60))
@given(gangs())
def test_a_map_costs_what_it_says_and_never_more_than_topology_order(
    gang: tuple[Fabric, Job, Placement],
) -> None:
    fabric, job, placement = gang
    found = rank_map(fabric, job, placement)
    assume(found.step_s is not None)
    assert found.step_s == pytest.approx(seconds(fabric, job, gpus_by_rank(fabric, found)))
    plain = seconds(fabric, job, ranks_of(fabric, placement.members))
    assert found.plain_step_s == pytest.approx(plain)
    assert found.step_s is not None and found.step_s <= plain * (1 + 1e-9)


@settings(max_examples=examples(25))
@given(gangs(most_members=5))
def test_up_to_six_members_stand_as_well_as_in_any_order(
    gang: tuple[Fabric, Job, Placement],
) -> None:
    fabric, job, placement = gang
    found = rank_map(fabric, job, placement)
    assume(found.step_s is not None)
    best = min(
        seconds(fabric, job, ranks_of(fabric, order)) for order in permutations(placement.members)
    )
    assert found.step_s is not None and found.step_s <= best * (1 + 1e-9)
    if len(placement.members[0].gpus) == 1:
        assert found.step_s == pytest.approx(best, rel=1e-8)


def test_six_members_that_all_differ_stand_as_well_as_in_any_of_720_orders() -> None:
    site = row_of_leaves(3, 2, 1).fabric.cluster
    worn = tuple(DomainFacts("node", f"n{node}", health=0.5) for node in (0, 2, 4))
    fabric = Fabric.build(replace(site, domains=(DomainFacts("leaf", "s0/l0", health=0.6), *worn)))
    traffic = Traffic((AxisTraffic("data", 20e9, 4), AxisTraffic("pipeline", 20e9, 4)), 0.1)
    job = job_of(6, 1, ("data", 2), ("pipeline", 3), traffic=traffic)
    placement = on(fabric, job, [f"n{n}" for n in range(6)], [0])
    orders = permutations(placement.members)
    best = min(seconds(fabric, job, ranks_of(fabric, order)) for order in orders)
    assert rank_map(fabric, job, placement).step_s == pytest.approx(best, rel=1e-8)


@settings(max_examples=examples(40))
@given(st.data(), st.integers(1, 3), st.integers(1, 3), st.sampled_from([2, 4, 8]))
def test_tensor_groups_are_inside_nvlink_wherever_the_counts_allow(
    data: st.DataObject, left: int, right: int, tensor: int
) -> None:
    occupancy = row_of_leaves(left, right, gpus=8)
    ranks = 8 * (left + right)
    pipeline = data.draw(st.sampled_from([n for n in (1, 2, 3) if (ranks // tensor) % n == 0]))
    axes = [("tensor", tensor), ("pipeline", pipeline), ("data", ranks // tensor // pipeline)]
    order = data.draw(st.permutations(axes))
    told = data.draw(st.sampled_from([None, MODEL]))
    found = mapped(
        occupancy, job_of(left + right, 8, *order, trains=told and replace(told, batch=1440))
    )
    assert hops(found, "tensor", "nvlink") == 0


def crossings_anew(
    fabric: Fabric, job: Job, places: Sequence[tuple[int, int]]
) -> dict[str, list[int]]:
    """A plain twin: hops that leave the spine, the leaf and the node, by axis."""
    found = {}
    for axis, groups in groups_of(degrees_of(job, len(places))).items():
        counts = []
        for tier in range(1, fabric.node_tier + 1):
            domain = [int(fabric.domain_of_node[tier][node]) for node, _ in places]
            rings = ([domain[rank] for rank in group] for group in groups.tolist())
            counts.append(sum(map(left_in, rings)))
        found[axis] = counts
    return found


def left_in(ring: list[int]) -> int:
    following = ring[1:] + (ring[:1] if len(ring) > 2 else [])
    return sum(a != b for a, b in zip(ring, following, strict=False))


@settings(max_examples=examples(30))
@given(gangs())
def test_crossings_are_counted_as_a_plain_count_does(gang: tuple[Fabric, Job, Placement]) -> None:
    fabric, job, placement = gang
    found = rank_map(fabric, job, placement)
    assume(found.crossings)
    twin = crossings_anew(fabric, job, gpus_by_rank(fabric, found))
    for each in found.crossings:
        assert [count for tier, count in each.hops if tier != "nvlink"] == twin[each.axis]


# ----- layouts


@given(st.permutations(["a", "b", "c"]), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3))
def test_a_layout_in_a_row_counts_the_grid_with_its_first_axis_fastest(
    order: list[str], a: int, b: int, c: int
) -> None:
    grid = {"c": c, "b": b, "a": a}
    cells = list(product(range(c), range(b), range(a)))  # ranks: a fastest
    layout = GridLayout.of(grid, order, np.arange(len(cells)))
    place = {"c": 0, "b": 1, "a": 2}
    wanted = sorted(
        range(len(cells)), key=lambda rank: [cells[rank][place[axis]] for axis in reversed(order)]
    )
    laid = layout.in_a_row()
    assert sorted(range(len(cells)), key=lambda rank: int(laid[rank])) == wanted


@given(st.lists(st.integers(1, 7), min_size=1, max_size=5), st.sampled_from([2, 3, 4]))
def test_packing_leaves_as_many_blocks_whole_as_domains_can_hold(
    sizes: list[int], block: int
) -> None:
    assume(sum(sizes) % block == 0)
    grid = {"outer": sum(sizes) // block, "inner": block}
    domain = np.repeat(np.arange(len(sizes)), sizes)[None, :]
    place = GridLayout.of(grid, ["inner", "outer"], np.arange(sum(sizes))).packed(domain)
    assert sorted(place.tolist()) == list(range(sum(sizes)))
    leaf = domain[0][place].reshape(-1, block)
    whole = sum(len(set(row)) == 1 for row in leaf.tolist())
    assert whole == sum(size // block for size in sizes)


def test_orders_of_axes_begin_with_the_wanted_one_and_leave_out_axes_of_one_way() -> None:
    grid = {"pipeline": 2, "data": 4, "expert": 1, "context": 1, "tensor": 8}
    orders = axis_orders(grid, ["tensor", "expert", "data", "pipeline", "context"], 4)
    assert orders[0] == ("tensor", "data", "pipeline")
    assert len(orders) == len(set(orders)) == 4
    assert all(sorted(order) == ["data", "pipeline", "tensor"] for order in orders)
