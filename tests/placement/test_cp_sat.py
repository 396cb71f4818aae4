"""The oracle against its plain twin: every spread of a gang over small random clusters, made and priced one by one."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.cluster import Allocation, Cluster, DomainFacts, Link, Node
from gantree.model.jobs import SHARDED, Job, Role, Shape, Slices, TopologySpec, Transformer
from gantree.model.placements import Placement
from gantree.placement.members.members import placement_of
from gantree.placement.optimum.all_reduce_search import PROVEN_WITHIN
from gantree.placement.optimum.optimum import fewest_domains, optimum
from gantree.placement.optimum.step_search import seconds_of
from gantree.placement.request.topology_request import topology_request_of
from gantree.placement.slots.problem import Problem, Spread
from gantree.testing.builders import job
from gantree.testing.placement_checker import problems_of
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.catalog import machine
from gantree.topology.occupancy.occupancy import Occupancy
from support.examples import examples

pytest.importorskip("ortools", reason="OR-Tools is an extra")

MACHINES = ("dgx-h100", "hgx-a100-4", "dgx-1-v100")
OUTER = ("zone", "rack")


@dataclass(frozen=True)
class Asked:
    """A small cluster and a gang that may fit it in some hundreds of ways."""

    cluster: Cluster
    job: Job


@st.composite
def questions(draw: st.DrawFn) -> Asked:
    """Hypothesis chooses the seed only."""
    rng = Random(draw(st.integers(0, 2**32 - 1)))
    cluster = random_cluster(rng)
    return Asked(cluster, random_job(rng, cluster.tiers))


def random_cluster(rng: Random) -> Cluster:
    """Two to five nodes under one or two tiers, half full, with links that are slow, sick or narrow here and there."""
    outer = rng.choice([OUTER, ("rack",), ("zone", "nvlink"), ("nvlink",)])
    names = ["gb200-nvl72-tray"] if "nvlink" in outer else rng.sample(MACHINES, rng.randint(1, 2))
    nodes, allocations = [], []
    for number in range(rng.randint(2, 5)):
        at = tuple(f"{tier[0]}{rng.choice([0, 0, 1, 2])}" for tier in outer)
        model = machine(rng.choice(names))
        nodes.append(Node(f"n{number}", model.name, at))
        held = rng.sample(range(model.gpus), rng.choice([0, 0, 1, 2, model.gpus - 1]))
        allocations.append(Allocation(f"old{number}", f"n{number}", tuple(sorted(held))))
    tiers = (*outer, "node")
    links = {
        tier: Link(rng.choice([12, 25, 50]), rng.choice([3, 8]), rng.choice([None, 40, 100, 400]))
        for tier in tiers
        if rng.random() < 0.5
    }
    cluster = Cluster(
        "small",
        tiers,
        {name: machine(name) for name in names},
        tuple(nodes),
        links,
        tuple(allocations),
    )
    return replace(cluster, domains=tuple(_sick(rng, cluster)))


def _sick(rng: Random, cluster: Cluster) -> Iterator[DomainFacts]:
    fabric = Fabric.build(cluster)
    for tier in range(1, fabric.node_tier + 1):
        for name in fabric.names_of_domain[tier]:
            if rng.random() < 0.3:
                path = name.rpartition("/")[2] if tier == fabric.node_tier else name
                yield DomainFacts(fabric.tiers[tier], path, health=rng.choice([0.25, 0.5]))


def random_job(rng: Random, tiers: tuple[str, ...]) -> Job:
    """One or two roles, sometimes with slices or a required tier."""
    members = rng.randint(1, 6)
    shape = Shape(gpus=rng.choice([1, 1, 2, 4]))
    roles = [Role("worker", members, shape)]
    if rng.random() < 0.3:
        roles.append(Role("other", rng.randint(1, 2), Shape(gpus=rng.choice([0, 1, 2]))))
    slices: tuple[Slices, ...] = ()
    if members % 2 == 0 and rng.random() < 0.3:
        slices = (Slices(2, rng.choice(tiers), "worker"),)
    required = rng.choice(tiers[:-1]) if rng.random() < 0.2 else None
    return Job("j", tuple(roles), topology=TopologySpec(required, None, slices))


def training(rng: Random, job: Job) -> Job:
    """The same gang with a model to train, cut in some way that fits its GPUs."""
    divisors = [ways for ways in range(1, job.gpus + 1) if job.gpus % ways == 0]
    tensor = rng.choice(divisors)
    pipeline = rng.choice([ways for ways in divisors if job.gpus // tensor % ways == 0])
    data = job.gpus // tensor // pipeline
    experts = rng.choice([0, 0, 8])
    trains = Transformer(
        parameters=1e9,
        layers=16,
        hidden=2048,
        sequence=2048,
        batch=data * pipeline * 2,
        experts=experts,
        expert_parameters=5e8 if experts else 0.0,
        sharded=rng.choice(SHARDED),
        mfu=0.4,
        peak_TFLOPS=200.0,
    )
    expert = data if experts else 1
    ways = (("tensor", tensor), ("expert", expert), ("data", data), ("pipeline", pipeline))
    return replace(job, parallelism=ways, trains=trains)


def stated(asked: Asked) -> Problem:
    """The question as the search gets it."""
    occupancy = Occupancy(Fabric.build(asked.cluster))
    request = topology_request_of(occupancy.fabric, asked.job)
    return Problem.of(occupancy, request, ((),) * len(asked.job.roles))


def every_placement(problem: Problem, job: Job) -> Iterator[Placement]:
    """All placements that keep the request: each way to hand out members to nodes, judged afterwards."""
    for spread in _spreads(problem, 0, problem.members):
        placement = placement_of(problem, spread, job)
        if not problems_of(problem.occupancy, job, placement):
            yield placement


def _spreads(problem: Problem, node: int, left: tuple[int, ...]) -> Iterator[Spread]:
    if node == len(problem.fabric.nodes):
        if not any(left):
            yield []
        return
    free = int(problem.occupancy.free_gpus_of_node[node])
    shapes = [table.shape for table in problem.tables]
    for counts in product(*(range(count + 1) for count in left)):
        if sum(shape.gpus * count for shape, count in zip(shapes, counts, strict=True)) <= free:
            rest = tuple(all_ - here for all_, here in zip(left, counts, strict=True))
            for others in _spreads(problem, node + 1, rest):
                yield [(node, counts), *others] if any(counts) else others


@settings(max_examples=examples(20))
@given(questions())
def test_no_placement_is_faster_than_the_optimum_by_more_than_a_thousandth(asked: Asked) -> None:
    problem = stated(asked)
    placements = sorted(every_placement(problem, asked.job), key=seconds_of)
    fastest = seconds_of(placements[0]) if placements else None
    slowest = spread_of(problem, placements[-1]) if placements else None

    found = optimum(problem, asked.job, known=slowest)

    assert found.proven
    if found.placement is None:
        assert fastest is None
        return
    assert problems_of(problem.occupancy, asked.job, found.placement) == []
    assert fastest is not None
    assert found.bound <= fastest * (1 + 1e-9)
    assert fastest <= found.objective * (1 + 1e-9)
    assert found.objective * (1 - PROVEN_WITHIN) <= fastest
    assert seconds_of(found.placement) == found.objective
    problem.occupancy.take("j", found.placement.members)
    problem.occupancy.check()


@settings(max_examples=examples(15))
@given(questions(), st.integers(0, 2**32 - 1))
def test_no_step_is_shorter_than_the_bound_of_a_training_job(asked: Asked, seed: int) -> None:
    job = training(Random(seed), asked.job)
    problem = stated(replace(asked, job=job))
    shortest = min(map(seconds_of, every_placement(problem, job)), default=None)

    found = optimum(problem, job)

    if found.placement is None:
        assert shortest is None
        return
    assert problems_of(problem.occupancy, job, found.placement) == []
    assert shortest is not None
    assert found.bound <= shortest * (1 + 1e-9)
    assert shortest <= found.objective * (1 + 1e-9)
    if found.proven:
        assert found.objective * (1 - PROVEN_WITHIN) <= shortest


@settings(max_examples=examples(20))
@given(questions())
def test_no_placement_spans_fewer_domains_than_the_oracle_counts(asked: Asked) -> None:
    problem = stated(asked)
    placements = every_placement(problem, asked.job)
    fewest = min((spanned(problem, placement) for placement in placements), default=None)

    found = fewest_domains(problem, asked.job)

    assert found.proven
    assert (found.placement is None) == (fewest is None)
    if found.placement is not None:
        assert problems_of(problem.occupancy, asked.job, found.placement) == []
        assert spanned(problem, found.placement) == fewest
        assert found.objective == found.bound


def spanned(problem: Problem, placement: Placement) -> tuple[int, ...]:
    """Domains of the widest tier, then of the next, down to nodes."""
    fabric = problem.fabric
    nodes = [fabric.nodes[fabric.index_of_node[member.node]] for member in placement.members]
    paths = [(*node.at, node.name) for node in nodes]
    return tuple(len({path[: tier + 1] for path in paths}) for tier in range(fabric.node_tier))


@pytest.mark.parametrize(
    ("server", "worker"),
    [
        (Shape(nics=2), Shape(gpus=4, nics=4)),
        (Shape(cpus=40), Shape(gpus=4, cpus=64)),
        (Shape(memory_GiB=700), Shape(gpus=4, memory_GiB=1000)),
        (Shape(gpus=3), Shape(gpus=4)),
        (Shape(devices=(("fpga", 2),)), Shape(gpus=4, devices=(("fpga", 4),))),
    ],
    ids=["NICs", "CPUs", "memory", "GPUs", "devices"],
)
def test_roles_that_fit_a_node_each_alone_but_not_together_are_never_put_there(
    server: Shape, worker: Shape
) -> None:
    model = replace(machine("dgx-h100"), devices=(("fpga", 8),))
    nodes = tuple(Node(f"n{number}", "dgx-h100", ("r0",)) for number in range(3))
    site = Cluster("s", ("rack", "node"), {"dgx-h100": model}, nodes)
    gang = Job("j", (Role("server", 3, server), Role("worker", 2, worker)))
    problem = stated(Asked(site, gang))

    found = optimum(problem, gang)

    assert found.placement is not None
    assert problems_of(problem.occupancy, gang, found.placement) == []
    problem.occupancy.take("j", found.placement.members)
    problem.occupancy.check()


def test_the_healthiest_pair_of_nodes_is_found_by_rate_after_rate() -> None:
    health = (0.25, 0.45, 0.15, 0.4, 0.1, 0.475, 0.35, 0.2, 0.3)
    nodes = tuple(Node(f"n{number}", "dgx-h100", ("r0",)) for number in range(len(health)))
    sick = tuple(DomainFacts("node", f"n{n}", health=h) for n, h in enumerate(health))
    site = Cluster("s", ("rack", "node"), {"dgx-h100": machine("dgx-h100")}, nodes)
    gang = job("j", 2, 8)

    found = optimum(stated(Asked(replace(site, domains=sick), gang)), gang)

    assert found.proven
    assert on_nodes(found.placement) == {"n1": 1, "n5": 1}


def test_a_small_node_stands_between_larger_ones_where_it_crosses_no_wide_tier() -> None:
    """The ring leaves r0 by n0 and n2 alone; with n4 instead of n1 it would leave r1 by fewer GPUs."""
    free = {"n0": 4, "n1": 1, "n2": 4, "n3": 4, "n4": 2}
    racks = {"n0": "r0", "n1": "r0", "n2": "r0", "n3": "r1", "n4": "r1"}
    site = Cluster(
        "s",
        ("rack", "node"),
        {"dgx-h100": machine("dgx-h100")},
        tuple(Node(name, "dgx-h100", (rack,)) for name, rack in racks.items()),
        {"rack": Link(12, 5)},
        tuple(Allocation("old", name, tuple(range(gpus, 8))) for name, gpus in free.items()),
    )
    gang = job("j", 13, 1)

    found = optimum(
        stated(Asked(site, gang)), gang, known=[(0, (3,)), (2, (4,)), (3, (4,)), (4, (2,))]
    )

    assert found.proven
    assert on_nodes(found.placement) == {"n0": 4, "n1": 1, "n2": 4, "n3": 4}


def test_a_step_whose_tensor_groups_fill_nodes_is_proven_and_its_bound_met() -> None:
    nodes = tuple(Node(f"n{number}", "dgx-h100", ("r0",)) for number in range(4))
    site = Cluster("s", ("rack", "node"), {"dgx-h100": machine("dgx-h100")}, nodes)
    trains = Transformer(7e9, 32, 4096, 4096, batch=8)
    gang = replace(
        job("j", 4, 8), parallelism=(("tensor", 8), ("data", 2), ("pipeline", 2)), trains=trains
    )

    found = optimum(stated(Asked(site, gang)), gang)

    assert found.proven
    assert found.bound <= found.objective * (1 + 1e-9)


def spread_of(problem: Problem, placement: Placement) -> Spread:
    """Members of each role by node."""
    roles = [role.name for role in problem.request.roles]
    counts: dict[int, list[int]] = {}
    for member in placement.members:
        node = problem.fabric.index_of_node[member.node]
        counts.setdefault(node, [0] * len(roles))[roles.index(member.role)] += 1
    return [(node, tuple(counts[node])) for node in sorted(counts)]


def on_nodes(placement: Placement | None) -> dict[str, int]:
    """Members by node."""
    return dict(Counter(member.node for member in placement.members)) if placement else {}
