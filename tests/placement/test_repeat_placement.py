"""Gangs that are alike, one after the other: each goes where a search would send it that knows of none before it."""

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.cluster import Allocation, Cluster, Machine, Nic, Node
from gantree.model.jobs import (
    ONE_PER_NODE_PREFIX,
    DataNeed,
    Job,
    PreferredNodes,
    Role,
    Shape,
    TopologySpec,
)
from gantree.model.placements import MemberPlacement
from gantree.placement.choice.search import find
from gantree.placement.request.placement_preferences import (
    DEFAULT_PREFERENCES,
    PlacementPreferences,
)
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy
from support.examples import examples

SEEDS = st.integers(0, 2**32 - 1)
PORT = ONE_PER_NODE_PREFIX + "port-80"
SHAPES = (
    Shape(gpus=1, cpus=2.0, memory_GiB=8.0, devices=(("pods", 1),)),
    Shape(gpus=2, cpus=2.0, memory_GiB=8.0, nics=1),
    Shape(gpus=2, cpus=6.0, models=("H100-80GB",)),
    Shape(gpus=1, models=("A100-80GB", "H100-80GB")),
    Shape(cpus=3.0, devices=((PORT, 1),)),
    Shape(gpu_share=0.5),
    Shape(gpus=1, labels=(("pool", "a"),)),
)
TOPOLOGIES = (
    TopologySpec(),
    TopologySpec(preferred="socket"),
    TopologySpec(required="socket"),
    TopologySpec(likes=(PreferredNodes("pool in (a)"),)),
)
PREFERENCES = (DEFAULT_PREFERENCES, PlacementPreferences(fragmentation_weight=1.0))


def machine(name: str, gpu: str, numa: tuple[int, ...]) -> Machine:
    """Eight GPUs on two sockets, a NIC for each two."""
    nics = tuple(Nic(f"mlx{n}", (2 * n, 2 * n + 1)) for n in range(4))
    pods = (("pods", 6),)
    return Machine(name, 8, gpu, (), numa, nics, cpus=16.0, memory_GiB=64.0, devices=pods)


MACHINES = {
    "h": machine("h", "H100-80GB", (0, 0, 0, 0, 1, 1, 1, 1)),
    "a": machine("a", "A100-80GB", (0, 1, 0, 1, 0, 1, 0, 1)),
}


def of_nodes(*machines: str) -> Occupancy:
    """A leaf of empty nodes of these machines."""
    nodes = tuple(
        Node(f"n{number}", name, ("l0",), labels=(("pool", "ab"[number]),))
        for number, name in enumerate(machines)
    )
    return Occupancy(Fabric.build(Cluster("s", ("leaf", "node"), MACHINES, nodes)))


def one(shape: Shape, **told: Any) -> Job:
    """A job of one member."""
    return Job("g", (Role("worker", 1, shape),), **told)


def site(rng: Random) -> Occupancy:
    """A few nodes of two machines in uneven leaves, in part held, at times with a spare in each leaf."""
    nodes = [
        Node(
            f"n{number}",
            rng.choice("ha"),
            (f"l{rng.choice([0, 0, 1, 2])}",),
            labels=(("pool", rng.choice("ab")),),
        )
        for number in range(rng.randint(3, 10))
    ]
    held = [
        Allocation(f"old{node.name}", node.name, tuple(range(rng.randint(0, 4))), rng.randint(0, 6))
        for node in nodes
    ]
    spares = {"leaf": 1} if rng.random() < 0.2 else {}
    tiers = ("leaf", "node")
    return Occupancy(
        Fabric.build(Cluster("s", tiers, MACHINES, tuple(nodes), {}, tuple(held), spares=spares))
    )


def of_some_kinds(rng: Random) -> list[Job]:
    """Jobs of few kinds, in runs of one kind as makers of pods make them."""
    kinds = [
        Job(
            "kind",
            (Role("worker", rng.choice([1, 1, 1, 2]), rng.choice(SHAPES)),),
            topology=rng.choice(TOPOLOGIES),
            data=rng.choice([(), (), (DataNeed("set", 10.0),)]),
        )
        for _ in range(3)
    ]
    runs = ((rng.choice(kinds), rng.randint(1, 10)) for _ in range(8))
    return [kind for kind, length in runs for _ in range(length)]


@settings(deadline=None, max_examples=examples(60))
@given(SEEDS)
def test_who_comes_after_one_alike_goes_where_a_search_that_knows_of_nobody_sends_it(
    seed: int,
) -> None:
    rng = Random(seed)
    occupancy = site(rng)
    names = [node.name for node in occupancy.fabric.nodes]
    for number, job in enumerate(of_some_kinds(rng)):
        preferences = rng.choice([PREFERENCES[0], *PREFERENCES])
        found, plain = find(occupancy, job, preferences), find(occupancy.copy(), job, preferences)
        assert found == plain
        if found is not None and rng.random() < 0.9:  # else it was not admitted
            occupancy.take(f"j{number}", found.members)
        if rng.random() < 0.3 and occupancy.owners:
            occupancy.give_back(rng.choice(list(occupancy.owners)))
        if rng.random() < 0.1:
            occupancy.mark(rng.choice(names), usable=rng.random() < 0.5)
    occupancy.check()


@pytest.mark.parametrize("beside", [Shape(cpus=8.0), Shape(nics=1)])
def test_what_a_member_gets_of_a_node_hangs_on_all_that_is_held_there(beside: Shape) -> None:
    occupancy, job = of_nodes("h"), one(Shape(gpus=1, cpus=6.0, nics=1))
    other = find(occupancy, one(beside))
    before = [find(occupancy, job) for _ in range(3)]
    assert before[0] == before[1] == before[2]
    assert other is not None
    occupancy.take("beside", other.members)
    found = find(occupancy, job)
    assert found == find(occupancy.copy(), job)
    assert found != before[0]


def test_what_a_member_gets_of_a_node_hangs_on_its_machine() -> None:
    occupancy, job = of_nodes("h", "a"), one(Shape(gpus=4))
    gpus = []
    assert find(occupancy, job) == find(occupancy, job)
    for number in range(4):
        found = find(occupancy, job)
        assert found is not None
        assert found == find(occupancy.copy(), job)
        occupancy.take(f"j{number}", found.members)
        gpus.append(found.members[0].gpus)
    assert sorted(gpus) == [(0, 1, 2, 3), (0, 2, 4, 6), (1, 3, 5, 7), (4, 5, 6, 7)]


@pytest.mark.parametrize(
    "topology",
    [TopologySpec(preferred="socket"), TopologySpec(likes=(PreferredNodes("pool in (b)"),))],
)
def test_what_could_not_be_had_is_tried_for_again(topology: TopologySpec) -> None:
    occupancy, job = of_nodes("h", "h"), one(Shape(gpus=3), topology=topology)
    occupancy.take("old", [MemberPlacement("worker", 0, "n0", (0, 1, 4, 5))])
    occupancy.mark("n1", usable=False)
    nodes: list[str] = []
    for _ in range(3):
        found = find(occupancy, job)
        assert found is not None
        nodes += found.nodes
        occupancy.mark("n1", usable=True)
    assert nodes == ["n0", "n1", "n1"]
