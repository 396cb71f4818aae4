"""The search against its plain twin: enumeration of every spread of a gang over small random clusters."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.cluster import Allocation, Cluster, Machine, Node
from gantree.model.jobs import Job, Role, Shape, Slices, TopologySpec
from gantree.model.placements import Placement
from gantree.placement.choice.search import fits, place
from gantree.placement.counting.exact import exact_spread
from gantree.placement.counting.greedy import greedy_spread
from gantree.placement.counting.solve import solve
from gantree.placement.members.members import placement_of
from gantree.placement.request.relaxations import relaxed
from gantree.placement.request.topology_request import topology_request_of
from gantree.placement.slots.problem import Problem
from gantree.testing.placement_checker import problems_of
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy
from support.examples import examples

OUTER = ("zone", "block", "rack")


@dataclass(frozen=True)
class Room:
    """What one node has left, and where it is: its paths from tier 1 to the node."""

    paths: tuple[tuple[str, ...], ...]
    gpus: int
    cpus: float
    labels: frozenset[tuple[str, str]]


def fewest_domains(cluster: Cluster, job: Job) -> tuple[int, ...] | None:
    """Least (domains of the widest tier, ..., nodes) over all spreads that keep the request, or None."""
    rooms = [_room(cluster, node) for node in cluster.nodes]
    best: tuple[int, ...] | None = None
    for spread in _spreads(rooms, job, tuple(role.members for role in job.roles)):
        if _keeps_wish(cluster, rooms, job, spread):
            used = [room for room, counts in zip(rooms, spread, strict=True) if any(counts)]
            domains = tuple(
                len({room.paths[tier] for room in used}) for tier in range(len(cluster.tiers))
            )
            best = domains if best is None else min(best, domains)
    return best


def _room(cluster: Cluster, node: Node) -> Room:
    machine = cluster.machines[node.machine]
    held = [a for a in cluster.allocations if a.node == node.name]
    path = (*node.at, node.name)
    return Room(
        paths=tuple(path[: tier + 1] for tier in range(len(path))),
        gpus=machine.gpus - sum(len(a.gpus) for a in held),
        cpus=(machine.cpus or 0) - sum(a.cpus for a in held),
        labels=frozenset(node.labels),
    )


def _spreads(
    rooms: list[Room], job: Job, left: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], ...]]:
    if not rooms:
        if not any(left):
            yield ()
        return
    for counts in product(*(range(n + 1) for n in left)):
        if _fits_node(rooms[0], job, counts):
            rest = tuple(n - c for n, c in zip(left, counts, strict=True))
            for others in _spreads(rooms[1:], job, rest):
                yield (counts, *others)


def _fits_node(room: Room, job: Job, counts: tuple[int, ...]) -> bool:
    here = [(role.shape, n) for role, n in zip(job.roles, counts, strict=True) if n]
    return (
        sum(shape.gpus * n for shape, n in here) <= room.gpus
        and sum(shape.cpus * n for shape, n in here) <= room.cpus
        and all(set(shape.labels) <= room.labels for shape, _ in here)
    )


def _keeps_wish(
    cluster: Cluster, rooms: list[Room], job: Job, spread: tuple[tuple[int, ...], ...]
) -> bool:
    for axis, role in enumerate(job.roles):
        for run in (*job.topology.slices, *role.topology.slices):
            per_domain = _per_domain(cluster, rooms, [s[axis] for s in spread], run.required)
            if run.role in (None, role.name) and any(n % run.members for n in per_domain):
                return False
        required = role.topology.required
        if required and len(_per_domain(cluster, rooms, [s[axis] for s in spread], required)) > 1:
            return False
    required = job.topology.required
    everything = [sum(counts) for counts in spread]
    return not required or len(_per_domain(cluster, rooms, everything, required)) == 1


def _per_domain(cluster: Cluster, rooms: list[Room], counts: list[int], tier: str) -> list[int]:
    number = cluster.tiers.index(tier)
    of_domain: dict[tuple[str, ...], int] = {}
    for room, count in zip(rooms, counts, strict=True):
        if count:
            path = room.paths[number]
            of_domain[path] = of_domain.get(path, 0) + count
    return list(of_domain.values())


@dataclass(frozen=True)
class Question:
    """A cluster and a job, drawn so that the gang often fits, and often only across domains."""

    cluster: Cluster
    job: Job


@st.composite
def questions(draw: st.DrawFn, roles: tuple[int, ...] = (1, 1, 2)) -> Question:
    """Evenly spread over what there is: Hypothesis chooses the seed only."""
    rng = Random(draw(st.integers(0, 2**32 - 1)))
    count = rng.choice(roles)
    cluster = random_cluster(rng, most_nodes=7 if count == 1 else 5)
    return Question(cluster, random_job(rng, cluster.tiers, count))


def random_cluster(rng: Random, most_nodes: int) -> Cluster:
    """Nodes under one to three outer tiers, some GPUs and CPUs held, some nodes labelled."""
    outer = OUTER[: rng.randint(1, 3)]
    machines = {f"m{gpus}": Machine(f"m{gpus}", gpus, "H100-80GB", cpus=8.0) for gpus in (0, 4, 8)}
    nodes, allocations = [], []
    for number in range(rng.randint(2, most_nodes)):
        machine = machines[rng.choices(["m0", "m4", "m8"], [1, 4, 4])[0]]
        at = tuple(f"{tier[0]}{rng.choice([0, 0, 1])}" for tier in outer)
        labels = (("pool", "a"),) if rng.random() < 0.7 else ()
        nodes.append(Node(f"n{number}", machine.name, at, labels))
        held = tuple(range(rng.randint(0, machine.gpus)))
        cpus = rng.choice([0.0, 0.0, 0.0, 5.5])
        allocations.append(Allocation(f"old{number}", f"n{number}", held, cpus))
    return Cluster("small", (*outer, "node"), machines, tuple(nodes), {}, tuple(allocations))


def random_job(rng: Random, tiers: tuple[str, ...], count: int) -> Job:
    """So many roles, with any request for these tiers."""
    roles: list[Role] = []
    for number in range(count):
        shape = Shape(
            gpus=rng.choice([0, 1, 1, 2, 2, 3]),
            cpus=rng.choice([0.5, 0.5, 1.0, 3.0]),
            labels=(("pool", "a"),) if rng.random() < 0.2 else (),
        )
        if number and rng.random() < 0.4:
            shape = roles[0].shape
        members = (
            rng.randint(2, 10) if count == 1 else rng.choice([(2, 4, 5, 6), (1, 2, 2, 4)][number])
        )
        required = rng.choice(tiers) if rng.random() < 0.2 else None
        roles.append(Role(f"r{number}", members, shape, topology=TopologySpec(required)))
    cut = random_slices(rng, roles, tiers) if rng.random() < 0.5 else ()
    required = rng.choice(tiers) if rng.random() < 0.25 else None
    return Job("j", tuple(roles), topology=TopologySpec(required, None, cut))


def random_slices(rng: Random, roles: list[Role], tiers: tuple[str, ...]) -> tuple[Slices, ...]:
    """One or two layers whose sizes divide the roles, nested or not; the tiers may stand in any order."""
    role = rng.choice([None, roles[0].name])
    bound = [r for r in roles if role in (None, r.name)]
    sizes = [size for size in range(1, 7) if not any(r.members % size for r in bound)]
    inner, outer = rng.choice(sizes), rng.choice(sizes)
    layers = (Slices(inner, rng.choice(tiers), role), Slices(outer, rng.choice(tiers), role))
    return layers[: rng.randint(1, 2)]


def counts_of(fabric: Fabric, placement: Placement) -> tuple[int, ...]:
    nodes = [fabric.index_of_node[member.node] for member in placement.members]
    return tuple(
        len(set(fabric.domain_of_node[tier][nodes].tolist()))
        for tier in range(1, fabric.node_tier + 1)
    )


@settings(max_examples=examples(600), deadline=None)
@given(questions())
def test_the_search_uses_exactly_as_few_domains_as_enumeration_finds(asked: Question) -> None:
    cluster, job = asked.cluster, asked.job
    fabric = Fabric.build(cluster)
    occupancy = Occupancy(fabric)

    answer = place(occupancy, job)

    best = fewest_domains(cluster, job)
    assert fits(occupancy, job) == (best is not None)
    if isinstance(answer, Placement):
        assert counts_of(fabric, answer) == best
        assert problems_of(occupancy, job, answer) == []
        occupancy.take("j", answer.members)
    else:
        assert best is None
        for relaxation in answer.would_fit_if:
            assert isinstance(place(occupancy, relaxed(job, relaxation.patch)), Placement)
    occupancy.check()


@settings(max_examples=examples(150), deadline=None)
@given(questions())
def test_a_gang_is_never_placeable_only_where_the_emptied_cluster_holds_it_neither(
    asked: Question,
) -> None:
    cluster, job = asked.cluster, asked.job
    answer = place(Occupancy(Fabric.build(cluster)), job)
    if not isinstance(answer, Placement):
        assert answer.never == (fewest_domains(replace(cluster, allocations=()), job) is None)


@settings(max_examples=examples(200), deadline=None)
@given(questions())
def test_the_greedy_search_for_large_gangs_finds_only_what_keeps_the_wish(
    asked: Question,
) -> None:
    cluster, job = asked.cluster, asked.job
    occupancy = Occupancy(Fabric.build(cluster))
    problem = Problem.of(
        occupancy, topology_request_of(occupancy.fabric, job), ((),) * len(job.roles)
    )
    spread = greedy_spread(problem)
    if spread is not None:
        assert problems_of(occupancy, job, placement_of(problem, spread)) == []


def test_a_gang_too_large_for_tables_is_placed_whole() -> None:
    nodes = tuple(Node(f"n{i}", "m", (f"b{i // 20}",)) for i in range(60))
    site = Cluster("wide", ("block", "node"), {"m": Machine("m", 8)}, nodes)
    roles = (Role("small", 120, Shape(gpus=1)), Role("large", 100, Shape(gpus=3)))
    job = Job("j", roles)
    occupancy = Occupancy(Fabric.build(site))
    answer = place(occupancy, job)
    assert isinstance(answer, Placement)
    assert problems_of(occupancy, job, answer) == []


@settings(max_examples=examples(300), deadline=None)
@given(questions(roles=(1,)))
def test_the_fast_path_for_one_role_counts_as_the_general_search_does(asked: Question) -> None:
    cluster, job = asked.cluster, asked.job
    fabric = Fabric.build(cluster)
    occupancy = Occupancy(fabric)
    found = solve(occupancy, topology_request_of(fabric, job))
    if found is not None:
        general = exact_spread(found[0])
        assert general is not None
        used = [[node for node, _ in spread] for spread in (found[1], general)]
        for tier in range(fabric.node_tier + 1):
            fast, plain = ({int(fabric.domain_of_node[tier][n]) for n in nodes} for nodes in used)
            assert len(fast) == len(plain)


@pytest.mark.parametrize(
    ("first", "second", "gpus_of_second", "domains"),
    [(150, 100, 1, (1, 4)), (130, 190, 1, (1, 5)), (300, 100, 2, (2, 8))],
)
def test_unlike_roles_of_a_large_gang_share_as_few_domains_as_their_gpus_need(
    first: int, second: int, gpus_of_second: int, domains: tuple[int, ...]
) -> None:
    nodes = tuple(
        Node(f"n{i}", "m", (f"s{i // 32}" if gpus_of_second > 1 else "s0", f"l{i // 8}"))
        for i in range(128)
    )
    machines = {"m": Machine("m", 8, cpus=1000.0)}
    occupancy = Occupancy(Fabric.build(Cluster("wide", ("spine", "leaf", "node"), machines, nodes)))
    roles = (
        Role("a", first, Shape(gpus=1)),
        Role("b", second, Shape(gpus=gpus_of_second, cpus=1)),
    )
    job = Job("j", roles)
    answer = place(occupancy, job)
    assert isinstance(answer, Placement)
    assert problems_of(occupancy, job, answer) == []
    assert counts_of(occupancy.fabric, answer)[:2] == domains
    occupancy.take("j", answer.members)
    occupancy.check()
