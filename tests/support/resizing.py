"""Gangs that hold a placement on a small cluster, to be grown and shrunk, and plain twins over members per node."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from random import Random

from gantree.model.cluster import Allocation, Cluster, Node
from gantree.model.jobs import (
    Job,
    Role,
    Shape,
    Slices,
    Spread,
    TopologySpec,
)
from gantree.model.placements import MemberPlacement, Placement
from gantree.placement.choice.search import find
from gantree.testing import builders
from gantree.testing.pictures import drawn
from gantree.testing.placement_checker import problems_of
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy

TIERS = ("row", "rack", "node")
Counts = tuple[int, ...]
"""counts[node]."""


@dataclass(frozen=True)
class PlacedGang:
    """A gang with its placement on a small cluster, beside others."""

    occupancy: Occupancy
    job: Job
    placement: Placement


def random_placed_gang(seed: int) -> PlacedGang | None:
    """A gang that was placed, and around which others have come and gone since; None where it found no place."""
    rng = Random(seed)
    rows = rng.randint(1, 2)
    nodes = tuple(
        Node(f"n{number}", "m", (f"row{rng.randrange(rows)}", f"rack{rng.randrange(2)}"))
        for number in range(rng.randint(2, 5))
    )
    held = tuple(
        Allocation(f"old-{node.name}", node.name, tuple(range(taken)))
        for node in nodes
        if (taken := rng.choice([0, 1, 2, 3, 4]))
    )
    site = Cluster("c", TIERS, {"m": builders.machine(4)}, nodes, allocations=held)
    occupancy, job = Occupancy(Fabric.build(site)), gang(rng)
    placement = find(occupancy, job)
    if placement is None:
        return None
    occupancy.take("j", placement.members)
    for owner in list(occupancy.owners):
        if owner != "j" and rng.random() < 0.6:
            occupancy.give_back(owner)
    for node in nodes:
        free = occupancy.free_gpus(node.name)
        if free and rng.random() < 0.3:
            occupancy.take(f"new-{node.name}", [MemberPlacement("x", 0, node.name, free[:1])])
    return PlacedGang(occupancy, job, placement)


def gang(rng: Random) -> Job:
    """One role of up to six members, with requests."""
    run = rng.choice([1, 1, 2, 2, 3])
    runs = rng.randint(1, 6 // run)
    slices = (Slices(run, rng.choice(TIERS)),) if run > 1 else ()
    spread = Spread(rng.choice(TIERS), rng.choice([None, run, run * 2]))
    topology = TopologySpec(
        required=rng.choice([None, None, *TIERS]),
        slices=slices,
        spread=spread if rng.random() < 0.4 else None,
    )
    gpus = rng.choice([1, 1, 2])
    return Job("j", (Role("w", run * runs, Shape(gpus=gpus)),), topology=topology)


def domain(occupancy: Occupancy, node: int, tier: str) -> tuple[str, ...]:
    there = occupancy.fabric.nodes[node]
    return (*there.at, there.name)[: TIERS.index(tier) + 1]


def held_in(occupancy: Occupancy, counts: Counts, tier: str) -> Counter[tuple[str, ...]]:
    held = Counter[tuple[str, ...]]()
    for node, here in enumerate(counts):
        if here:
            held[domain(occupancy, node, tier)] += here
    return held


def keeps(occupancy: Occupancy, topology: TopologySpec, counts: Counts) -> Iterator[bool]:
    """Whether each request that must hold does."""
    if topology.required:
        yield len(held_in(occupancy, counts, topology.required)) <= 1
    for run in topology.slices:
        held = held_in(occupancy, counts, run.required)
        yield all(count % run.members == 0 for count in held.values())
    if topology.spread and topology.spread.at_most:
        most = topology.spread.at_most
        yield max(held_in(occupancy, counts, topology.spread.tier).values(), default=0) <= most


def unevenness(occupancy: Occupancy, job: Job, counts: Counts) -> int:
    """Sum of the squares of the members in each domain, where the gang is to be spread evenly; else 0."""
    spread = job.topology.spread
    if spread is None or spread.at_most is not None:
        return 0
    return sum(count**2 for count in held_in(occupancy, counts, spread.tier).values())


def used(occupancy: Occupancy, counts: Counts) -> Counts:
    return tuple(len(held_in(occupancy, counts, tier)) for tier in TIERS)


def counts_of(occupancy: Occupancy, placement: Placement) -> Counts:
    held = Counter(member.node for member in placement.members)
    return tuple(held[node.name] for node in occupancy.fabric.nodes)


def every_way(occupancy: Occupancy, job: Job, most: Counts, members: int) -> Iterator[Counts]:
    for counts in product(*(range(count + 1) for count in most)):
        if sum(counts) == members and all(keeps(occupancy, job.topology, counts)):
            yield counts


def assert_valid_at_size(placed: PlacedGang, job: Job, after: Placement) -> None:
    """The gang at its new size is a valid place of its job, on an occupancy without the gang, and can be taken."""
    occupancy = placed.occupancy.copy()
    occupancy.give_back("j")
    assert problems_of(occupancy, job, after) == []
    occupancy.take("j", after.members)
    occupancy.check()


def without_rank(member: MemberPlacement) -> MemberPlacement:
    return replace(member, rank=0)


PICTURE = """s0/l0: n0 jj..xxxx n1 jj......
            s0/l1: n2 ........ n3 xxxx....
            s1/l2: n4 ........ n5 ........"""


def placed_as_drawn(picture: str, members: int, **request: object) -> PlacedGang:
    """A gang of one GPU a member that is placed where the picture has a j."""
    occupancy = drawn(picture)
    topology = TopologySpec(**request)  # type: ignore[arg-type]  # fields of TopologySpec, named by the tests
    job = Job("j", (Role("w", members, Shape(gpus=1)),), topology=topology)
    held = occupancy.owners["j"]
    in_order = sorted(held, key=lambda member: occupancy.fabric.index_of_node[member.node])
    one_by_one = [(member.node, gpu) for member in in_order for gpu in member.gpus]
    occupancy.give_back("j")
    gang = tuple(
        MemberPlacement("w", rank, node, (gpu,)) for rank, (node, gpu) in enumerate(one_by_one)
    )
    occupancy.take("j", gang)
    placement = find(drawn("s0/l0: n0 ........"), builders.job("any"))
    assert placement is not None
    return PlacedGang(occupancy, job, replace(placement, members=gang))
