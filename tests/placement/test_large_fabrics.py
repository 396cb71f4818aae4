"""What is quick on large fabrics against what is exact on small ones: one node, descent, fewest children."""

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.cluster import Allocation, Cluster, Machine, Node
from gantree.model.jobs import Job, Role, Shape, TopologySpec
from gantree.model.placements import Placement
from gantree.placement.choice.search import place
from gantree.placement.counting import tables
from gantree.placement.counting.descent import descend
from gantree.placement.counting.one_node import is_plain_inside, tightest_node
from gantree.placement.counting.room import Room
from gantree.placement.request.topology_request import topology_request_of
from gantree.placement.slots.problem import Problem
from gantree.placement.slots.slots import SlotShape, slots
from gantree.sim.bench.mix import gang, half_full
from gantree.testing.placement_checker import domains_used, problems_of
from gantree.topology.fabric.fabric import Fabric, IntArray
from gantree.topology.occupancy.occupancy import Occupancy
from support.examples import examples

SEEDS = st.integers(0, 2**32 - 1)


def uneven(rng: Random) -> Occupancy:
    """About 60 nodes in an uneven tree of four tiers, in part held."""
    machines = {f"m{gpus}": Machine(f"m{gpus}", gpus, "H100-80GB", cpus=32.0) for gpus in (4, 8)}
    nodes, allocations = [], []
    for number in range(rng.randint(30, 60)):
        machine = machines[rng.choice(["m4", "m8", "m8"])]
        at = tuple(f"{tier}{rng.choice([0, 0, 1, 2])}" for tier in "psl")
        nodes.append(Node(f"n{number}", machine.name, at))
        held = tuple(range(rng.randint(0, machine.gpus)))
        cpus = float(rng.randint(0, 32))
        allocations.append(Allocation(f"old{number}", f"n{number}", held, cpus))
    tiers = ("pod", "spine", "leaf", "node")
    site = Cluster("uneven", tiers, machines, tuple(nodes), {}, tuple(allocations))
    return Occupancy(Fabric.build(site))


def problem_of(occupancy: Occupancy, members: int, shape: Shape) -> Problem:
    job = Job("g", (Role("worker", members, shape),))
    return Problem.of(occupancy, topology_request_of(occupancy.fabric, job), ((),))


@settings(deadline=None)
@given(SEEDS, st.integers(1, 4), st.sampled_from([1, 2, 4, 8]), st.sampled_from([0.0, 3.0]))
def test_the_tightest_node_is_that_of_a_plain_search(
    seed: int, members: int, gpus: int, cpus: float
) -> None:
    occupancy = uneven(Random(seed))
    problem = problem_of(occupancy, members, Shape(gpus=gpus, cpus=cpus))
    free, around = occupancy.free_gpus_of_node, occupancy.free_gpus_in_domain(3)
    leaf_of_node = occupancy.fabric.domain_of_node[3]
    fitting = [
        (int(free[node]), int(around[leaf_of_node[node]]), node)
        for node in range(len(free))
        if free[node] >= members * gpus
        and occupancy.free_microcpus_of_node[node] >= members * cpus * 1_000_000
    ]
    found = tightest_node(problem) if is_plain_inside(problem) else None
    assert found == (min(fitting)[2] if fitting else None)


@settings(deadline=None)
@given(SEEDS, st.integers(5, 40), st.sampled_from([1, 2, 4]))
def test_a_descent_uses_as_few_domains_of_the_widest_tier_as_tables_do(
    seed: int, members: int, gpus: int
) -> None:
    occupancy = uneven(Random(seed))
    room = Room.of(problem_of(occupancy, members, Shape(gpus=gpus)))
    tier = room.tier()
    if tier is None or tier >= occupancy.fabric.node_tier - 1:
        return
    quick = descend(room, tier)
    exact = tables.in_one_wide_domain(room.capped(), tier)
    assert sum(units for _, units in quick) == members
    capacity = room.capacity[-1]
    assert all(0 < units <= capacity[node] for node, units in quick)
    below = occupancy.fabric.domain_of_node[tier + 1]
    assert len({below[n] for n, _ in quick}) == len({below[n] for n, _ in exact})


@settings(deadline=None, max_examples=examples(15))
@given(SEEDS)
def test_gangs_of_the_mix_are_placed_rightly_on_a_large_fabric_and_seldom_in_more_domains(
    seed: int,
) -> None:
    rng = Random(seed)
    occupancy = Occupancy(Fabric.build(half_full(4096, rng)))
    for number in range(20):
        job = gang(f"g{number}", rng)
        answer = place(occupancy, job)
        if isinstance(answer, Placement):
            assert problems_of(occupancy, job, answer) == []
            occupancy.take(job.name, answer.members)
        if len(occupancy.owners) > 800 and number % 3 == 0:
            occupancy.give_back(next(owner for owner in occupancy.owners if owner[0] == "g"))
    occupancy.check()


@settings(deadline=None)
@given(SEEDS)
def test_the_index_of_fewest_children_follows_what_is_taken_and_given_back(seed: int) -> None:
    rng = Random(seed)
    occupancy = uneven(rng)
    table = slots(occupancy, SlotShape.of(Shape(gpus=rng.choice([1, 2, 4])), ()))
    fabric = occupancy.fabric
    for step in range(8):
        for tier in range(fabric.node_tier):
            table.fewest_children(tier, fabric)
        job = Job(f"g{step}", (Role("w", rng.randint(1, 9), Shape(gpus=rng.choice([1, 2, 4]))),))
        answer = place(occupancy, job)
        if isinstance(answer, Placement):
            occupancy.take(job.name, answer.members)
        if rng.random() < 0.4:
            occupancy.give_back(rng.choice(list(occupancy.owners)))
        table.follow(occupancy)
        for tier in range(fabric.node_tier):
            index = table.fewest_children(tier, fabric)
            if index is not None:
                _check_slots_of_largest(
                    fabric, tier, table.in_domain[tier + 1], index.slots_of_largest
                )
    occupancy.check()


def _check_slots_of_largest(
    fabric: Fabric, tier: int, slots_of_child: IntArray, reached: IntArray
) -> None:
    first = fabric.first_child_of_domain[tier]
    for domain in range(fabric.domains(tier)):
        children = slots_of_child[first[domain] : first[domain + 1]]
        plain = np.cumsum(np.sort(children)[::-1])
        assert (reached[: len(plain), domain] == plain).all()
        assert (reached[len(plain) :, domain] == plain[-1]).all()


@pytest.mark.parametrize("even", [True, False])
def test_sixteen_over_two_leaves_are_eight_and_eight(even: bool) -> None:
    free_of_leaf = (15, 8, 8, 1) if even else (15, 1, 1)
    nodes, allocations, machine = [], [], Machine("m", 1, "H100-80GB")
    for leaf, free in enumerate(free_of_leaf):
        for number in range(16):
            nodes.append(Node(f"l{leaf}n{number}", "m", ("s", f"l{leaf}")))
            if number >= free:
                allocations.append(Allocation("old", f"l{leaf}n{number}", (0,)))
    site = Cluster("c", ("spine", "leaf", "node"), {"m": machine}, tuple(nodes), {}, tuple(allocations))  # fmt: skip
    occupancy = Occupancy(Fabric.build(site))
    job = Job("g", (Role("w", 16, Shape(gpus=1)),), topology=TopologySpec(preferred="leaf"))
    answer = place(occupancy, job)
    assert isinstance(answer, Placement)
    assert domains_used(occupancy, answer)["leaf"] == 2
    leaves = [member.node[:2] for member in answer.members]
    parts = sorted(leaves.count(leaf) for leaf in set(leaves))
    assert parts == ([8, 8] if even else [1, 15])
