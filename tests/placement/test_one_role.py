"""Gangs of one role, and gangs whose roles ask for the same, against the general search on wider trees."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.cluster import Allocation, Cluster, Machine, Node
from gantree.model.jobs import Job, Role, Shape, Slices, TopologySpec
from gantree.model.placements import MemberPlacement, Placement
from gantree.placement.choice.search import fits, place
from gantree.placement.counting import tables
from gantree.placement.counting.equal_roles import EqualRoles
from gantree.placement.counting.exact import exact_spread
from gantree.placement.counting.one_node import tightest_node, tightest_of
from gantree.placement.counting.room import Room
from gantree.placement.counting.solve import problems, solve
from gantree.placement.members.members import placement_of
from gantree.placement.request.topology_request import topology_request_of
from gantree.placement.slots.problem import Problem, Spread
from gantree.testing.placement_checker import problems_of
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy
from support.examples import examples

OUTER = ("hall", "zone", "block", "rack")


def wide_cluster(rng: Random, outer: int) -> Cluster:
    """Up to 60 nodes of 0, 4 or 8 GPUs under uneven domains, in part held."""
    tiers = OUTER[:outer]
    machines = {f"m{gpus}": Machine(f"m{gpus}", gpus, "H100-80GB", cpus=16.0) for gpus in (0, 4, 8)}
    crowded = rng.random() < 0.5
    nodes, allocations = [], []
    for number in range(rng.randint(20, 60)):
        machine = machines[rng.choices(["m0", "m4", "m8"], [1, 3, 6])[0]]
        fewest = 3 if crowded else 0
        held = tuple(range(rng.randint(min(fewest, machine.gpus), machine.gpus)))
        at = tuple(f"{tier[0]}{rng.choice([0, 0, 1, 2, 3])}" for tier in tiers)
        nodes.append(Node(f"n{number}", machine.name, at))
        allocations.append(Allocation(f"old{number}", f"n{number}", held))
    return Cluster("wide", (*tiers, "node"), machines, tuple(nodes), {}, tuple(allocations))


def random_wish(rng: Random, tiers: tuple[str, ...], role: str | None = None) -> TopologySpec:
    """Perhaps slices in one tier or two; the members are multiples of 6."""
    slices = tuple(
        Slices(rng.choice([2, 3, 6]), rng.choice(tiers), role) for _ in range(rng.randint(0, 2))
    )
    required = rng.choice(tiers) if rng.random() < 0.2 else None
    return TopologySpec(required, None, slices if rng.random() < 0.5 else ())


def nodes_of(spread: Spread) -> set[int]:
    return {node for node, _ in spread}


def domains_used(fabric: Fabric, nodes: set[int]) -> list[int]:
    """Domains per tier, the whole fabric first."""
    return [
        len({int(fabric.domain_of_node[tier][node]) for node in nodes})
        for tier in range(fabric.node_tier + 1)
    ]


@settings(max_examples=examples(125), deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 40, tables.MOST_SUMS]))
def test_wide_gangs_of_one_role_use_as_few_domains_as_the_general_search_finds(
    seed: int, most_sums: int
) -> None:
    rng = Random(seed)
    site = wide_cluster(rng, outer=rng.randint(2, 4))
    request = random_wish(rng, site.tiers)
    members = rng.randint(9, 64)
    if request.slices:
        members = max(12, members // 6 * 6)
    job = Job(
        "j",
        (Role("w", members, Shape(gpus=rng.choice([0, 1, 1, 1, 2, 3]), cpus=1.0)),),
        topology=request,
    )
    occupancy = Occupancy(Fabric.build(site))
    problem = problem_of(occupancy, job)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "MOST_SUMS", most_sums)
        found = solve(occupancy, topology_request_of(occupancy.fabric, job))
    general = exact_spread(problem)
    assert (found is None) == (general is None)
    if found is not None and general is not None:
        assert problems_of(occupancy, job, placement_of(*found)) == []
        used = domains_used(occupancy.fabric, nodes_of(found[1]))
        assert used == domains_used(occupancy.fabric, nodes_of(general))


def problem_of(occupancy: Occupancy, job: Job) -> Problem:
    return Problem.of(occupancy, topology_request_of(occupancy.fabric, job), ((),) * len(job.roles))


def twins(rng: Random, tiers: tuple[str, ...]) -> Job:
    """Two roles that are mostly alike, and sometimes a third that is not."""
    shape = Shape(gpus=rng.choice([0, 1, 1, 2]), cpus=1.0)
    bound = rng.choice([None, None, "a"])
    of_role = random_wish(rng, tiers) if rng.random() < 0.3 else TopologySpec()
    size = 6 if of_role.slices else 1
    roles = [Role(name, rng.choice([6, 12]), shape, topology=of_role) for name in ("a", "b")]
    if size == 1 and rng.random() < 0.4:
        roles = [replace(role, members=rng.randint(1, 9)) for role in roles]
        return Job("j", tuple(roles))
    if rng.random() < 0.3:
        roles.insert(rng.randint(0, 2), Role("odd", 6, Shape(gpus=rng.choice([1, 3]), cpus=2.0)))
    return Job("j", tuple(roles), topology=random_wish(rng, tiers, bound))


@settings(max_examples=examples(125), deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_roles_that_ask_for_the_same_use_as_few_domains_as_if_searched_apart(seed: int) -> None:
    rng = Random(seed)
    site = wide_cluster(rng, outer=rng.randint(1, 2))
    site = replace(site, nodes=site.nodes[:12], allocations=site.allocations[:12])
    job = twins(rng, site.tiers)
    occupancy = Occupancy(Fabric.build(site))
    problem = problem_of(occupancy, job)
    answer, apart = place(occupancy, job), exact_spread(problem)
    assert fits(occupancy, job) == isinstance(answer, Placement) == (apart is not None)
    if isinstance(answer, Placement) and apart is not None:
        assert problems_of(occupancy, job, answer) == []
        nodes = {occupancy.fabric.index_of_node[member.node] for member in answer.members}
        assert domains_used(occupancy.fabric, nodes) == domains_used(
            occupancy.fabric, nodes_of(apart)
        )
        for role in job.roles:
            places = [
                occupancy.fabric.index_of_node[m.node]
                for m in answer.members
                if m.role == role.name
            ]
            assert places == sorted(places)


FIRST = Role("a", 2, Shape(gpus=1))
SECOND = replace(FIRST, name="b")
ANYWHERE, IN_ONE_RACK = TopologySpec(), TopologySpec(required="rack")


def with_second(second: Role = SECOND, topology: TopologySpec = ANYWHERE) -> Job:
    return Job("j", (FIRST, second), topology=topology)


def each_in_one_rack(topology: TopologySpec) -> Job:
    roles = tuple(replace(role, topology=IN_ONE_RACK) for role in (FIRST, SECOND))
    return Job("j", roles, topology=topology)


ALIKE = {
    "but for the name": (with_second(), 1),
    "but for the number of members": (with_second(replace(SECOND, members=4)), 1),
    "but for what they run": (with_second(replace(SECOND, run=("true",), processes=2)), 1),
    "not in shape": (with_second(replace(SECOND, shape=Shape(gpus=2))), 2),
    "not in slices": (with_second(topology=TopologySpec(slices=(Slices(2, "rack", "a"),))), 2),
    "not where each must be in a rack of its own choice": (each_in_one_rack(ANYWHERE), 2),
    "where the gang must be in the rack, too": (each_in_one_rack(IN_ONE_RACK), 1),
    "not with requests inside the node": (
        with_second(topology=TopologySpec(slices=(Slices(2, "socket"),))), 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ALIKE)
def test_roles_are_joined_where_they_are_alike(name: str) -> None:
    job, roles = ALIKE[name]
    nodes = tuple(Node(f"n{i}", "m", (f"r{i // 2}",)) for i in range(4))
    site = Cluster("c", ("rack", "node"), {"m": Machine("m", 8)}, nodes)
    problem = problem_of(Occupancy(Fabric.build(site)), job)
    assert len(EqualRoles.of(problem).joined.members) == roles


def test_equal_roles_too_large_for_tables_use_the_fewest_domains() -> None:
    nodes = tuple(Node(f"n{i}", "m", (f"r{i // 8}",)) for i in range(32))
    held = tuple(Allocation(f"o{i}", f"n{i}", tuple(range(i % 8))) for i in range(32))
    site = Cluster("c", ("rack", "node"), {"m": Machine("m", 8)}, nodes, {}, held)
    occupancy = Occupancy(Fabric.build(site))
    job = Job("j", tuple(Role(name, 33, Shape(gpus=1)) for name in "abc"))
    answer = place(occupancy, job)
    assert isinstance(answer, Placement)
    assert problems_of(occupancy, job, answer) == []
    used = {occupancy.fabric.index_of_node[member.node] for member in answer.members}
    three_racks, but_for_those_of_three_times_one_and_two = 3, 3 * 8 - 6
    assert domains_used(occupancy.fabric, used) == [
        1,
        three_racks,
        but_for_those_of_three_times_one_and_two,
    ]


PORT = "sole/port/80"
BESIDE = ((), (("fpga", 1),), (("fpga", 2), (PORT, 1)), ((PORT, 1),), (("dpu", 1),))


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_what_fits_one_node_goes_where_counting_slots_says_devices_and_all(seed: int) -> None:
    rng = Random(seed)
    site = wide_cluster(rng, outer=2)
    machines = {name: replace(each, devices=(("fpga", 3),)) for name, each in site.machines.items()}
    occupancy = Occupancy(Fabric.build(replace(site, machines=machines)))
    for number, node in enumerate(rng.sample(site.nodes, len(site.nodes) // 2)):
        devices = rng.choice([(("fpga", rng.randint(1, 3)),), ((PORT, 1),)])
        held = MemberPlacement("w", 0, node.name, (), devices=devices)
        occupancy.take(f"beside{number}", (held,))
    shape = Shape(gpus=rng.randint(0, 3), cpus=1.0, devices=rng.choice(BESIDE))
    job = Job("j", (Role("w", rng.choice([1, 1, 2]), shape),))
    (problem,) = problems(occupancy, topology_request_of(occupancy.fabric, job))
    room = Room.of(problem)
    holding = room.capacity[-1] >= room.need
    expected = tightest_of(problem, holding) if holding.any() else None
    assert tightest_node(problem) == expected
