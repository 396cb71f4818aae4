"""Members served one after the other on a node: bandwidth and parts of GPUs under requests for the inside of it."""

from collections import Counter
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.cluster import Allocation, Cluster, Machine, Nic, Node
from gantree.model.jobs import Job, Role, Shape, Slices, TopologySpec
from gantree.model.placements import MemberPlacement, Placement
from gantree.model.verdicts import Refused
from gantree.placement.choice.search import place
from gantree.placement.machine.devices import inner_domains
from gantree.placement.machine.intra_node import ALL
from gantree.placement.request.relaxations import relaxed
from gantree.placement.slots.secondary_resources import members_on_node
from gantree.testing.placement_checker import problems_of
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy
from support.examples import examples

PAIRS = tuple(
    tuple("X" if a == b else "NV4" if a // 2 == b // 2 else "SYS" for b in range(4))
    for a in range(4)
)
NICS = (Nic("mlx5_0", (0, 1)), Nic("mlx5_1", (2, 3)))
MACHINE = Machine(
    "m", 4, "A100-80GB", PAIRS, (0, 0, 1, 1), NICS, cpus=16.0, memory_GiB=64.0, numa_memory_GBps=100.0
)  # fmt: skip
"""Two pairs of GPUs, each on a NUMA node of 100 GB/s."""


def occupancy(*held: int, nodes: int = 1) -> Occupancy:
    """Nodes n0, n1... of that machine; these GPUs of n0 are held by somebody else."""
    taken = (Allocation("old", "n0", held),) if held else ()
    made = tuple(Node(f"n{number}", "m") for number in range(nodes))
    return Occupancy(Fabric.build(Cluster("c", ("node",), {"m": MACHINE}, made, allocations=taken)))


def role(
    name: str, members: int, shape: Shape, required: str | None = None, *slices: Slices
) -> Role:
    return Role(name, members, shape, topology=TopologySpec(required, slices=slices))


def placed(
    where: Occupancy, *roles: Role, talk: bool = True, required: str | None = None
) -> Placement | None:
    """The placement, judged and taken; None for a refusal, whose every patch is tried."""
    job = Job("j", roles, topology=TopologySpec(required), communicates=talk)
    found = place(where, job)
    if isinstance(found, Refused):
        for help_ in found.would_fit_if:
            assert isinstance(place(where, relaxed(job, help_.patch)), Placement)
        return None
    assert not problems_of(where, job, found)
    assert not bound_problems(job, found)
    after = where.copy()
    after.take("j", found.members)
    after.check()
    where.check()
    return found


def bound_problems(job: Job, found: Placement) -> list[str]:
    """What is wrong with where members are inside their node, and with their bandwidth."""
    problems = []
    for asks in job.roles:
        members = [member for member in found.members if member.role == asks.name]
        if not in_one(members, asks.topology.required):
            problems.append(f"{asks.name} is not in one {asks.topology.required}")
        for run in asks.topology.slices:
            starts = range(0, len(members), run.members)
            if not all(in_one(members[at : at + run.members], run.required) for at in starts):
                problems.append(f"a slice of {asks.name} is not in one {run.required}")
        rates = [sum(part.memory_GBps for part in member.numa) for member in members]
        if any(abs(rate - asks.shape.memory_GBps) > 1e-3 for rate in rates):
            problems.append(f"{asks.name} has not the bandwidth that it asks: {rates}")
    if not in_one(list(found.members), job.topology.required):
        problems.append(f"the gang is not in one {job.topology.required}")
    return problems


def gpus_of(member: MemberPlacement) -> set[int]:
    return {*member.gpus, *member.parts}


def in_one(members: list[MemberPlacement], tier: str | None) -> bool:
    used = set().union(*map(gpus_of, members))
    if tier is None or tier == "node" or not used:
        return True
    masks = inner_domains(MACHINE, tier)
    return len({m.node for m in members}) == 1 and any(
        all(mask >> gpu & 1 for gpu in used) for mask in masks
    )


def where_of(found: Placement | None) -> list[str]:
    """One word a member: role, its GPUs, NUMA nodes of its bandwidth."""
    assert found is not None
    return [
        f"{m.role}:{''.join(map(str, sorted(gpus_of(m)))) or '-'}"
        f"@{''.join(str(part.numa) for part in m.numa if part.memory_GBps)}"
        for m in found.members
    ]


# ----- memory bandwidth under requests for the inside of a node


def test_bandwidth_is_reserved_inside_the_domain_that_must_hold_the_members() -> None:
    half, full = Shape(gpus=1, memory_GBps=50), Shape(gpus=1, memory_GBps=100)
    assert where_of(placed(occupancy(), role("w", 2, half), required="nvlink")) == [
        "w:0@0",
        "w:1@0",
    ]
    assert placed(occupancy(), role("w", 2, full), required="nvlink") is None
    assert where_of(placed(occupancy(), role("w", 2, full))) == ["w:0@0", "w:2@1"]
    assert (
        placed(occupancy(), role("w", 1, Shape(gpus=2, memory_GBps=150)), required="nvlink") is None
    )


def test_slices_are_served_domain_by_domain_as_long_as_bandwidth_lasts() -> None:
    pairs = Slices(2, "socket")
    shape = Shape(gpus=1, memory_GBps=50)
    assert placed(occupancy(), role("w", 4, shape, None, pairs)) is not None
    assert placed(occupancy(1), role("w", 2, shape, None, pairs)) is not None
    assert placed(occupancy(1), role("w", 4, shape, None, pairs)) is None
    assert placed(occupancy(), role("w", 4, Shape(gpus=1, memory_GBps=60), None, pairs)) is None


@pytest.mark.parametrize("server_first", [True, False])
def test_a_server_leaves_the_bandwidth_beside_the_only_free_gpus_to_the_worker(
    server_first: bool,
) -> None:
    server = role("ps", 1, Shape(cpus=4, nics=1, memory_GBps=100))
    worker = role("w", 1, Shape(gpus=2, memory_GBps=100), "nvlink")
    roles = (server, worker) if server_first else (worker, server)
    found = placed(occupancy(3), *roles)
    assert sorted(where_of(found)) == ["ps:-@1", "w:01@0"]


def test_members_with_gpus_share_a_numa_node_where_others_need_the_other_one() -> None:
    server = role("ps", 1, Shape(memory_GBps=60))
    for shape in (Shape(gpus=1, memory_GBps=50), Shape(mig="3g.40gb", memory_GBps=50)):
        assert placed(occupancy(1), role("w", 2, shape), server) is not None


def test_of_members_without_gpus_those_with_most_bandwidth_come_first() -> None:
    small, large = (role("a", 2, Shape(memory_GBps=50)), role("b", 1, Shape(memory_GBps=100)))
    assert placed(occupancy(), small, large) is not None


# ----- parts of GPUs under requests for the inside of a node


@pytest.mark.parametrize("shape", [Shape(mig="1g.10gb"), Shape(gpu_share=0.25)])
def test_parts_of_gpus_are_inside_the_domain_that_is_required(shape: Shape) -> None:
    for tier, most in (("socket", 2), ("nvlink", 2), ("pcie", 2), ("gpu", 1)):
        assert placed(occupancy(), role("w", most, shape), required=tier) is not None
        assert placed(occupancy(), role("w", most + 1, shape), required=tier) is None
        assert placed(occupancy(), role("w", most + 1, shape, tier)) is None
    replicas = placed(occupancy(), role("w", 4, shape), required="gpu", talk=False)
    assert replicas is not None and len({m.parts for m in replicas.members}) == 1


def test_slices_of_parts_and_parts_together_with_whole_gpus() -> None:
    part = Shape(mig="3g.40gb")
    pairs = placed(occupancy(), role("w", 4, part, None, Slices(2, "nvlink")))
    assert pairs is not None
    assert placed(occupancy(1), role("w", 4, part, None, Slices(2, "nvlink"))) is None
    bandwidth = role("w", 2, Shape(gpus=1, memory_GBps=100))
    assert placed(occupancy(1), role("x", 1, part), bandwidth) is not None, "bandwidth first"
    both = (role("a", 1, Shape(gpus=1)), role("b", 1, part))
    assert where_of(placed(occupancy(0), *both, required="socket")) == ["a:3@", "b:2@"]
    assert placed(occupancy(0, 2), *both, required="socket") is None


def test_parts_keep_out_of_the_domain_that_whole_gpus_beside_them_need() -> None:
    pair, part = role("w", 1, Shape(gpus=2), "nvlink"), role("x", 1, Shape(gpu_share=0.5))
    assert where_of(placed(occupancy(3), part, pair)) == ["x:2@", "w:01@"]
    instance = role("x", 1, Shape(mig="1g.10gb"))
    assert where_of(placed(occupancy(0), pair, instance)) == ["w:23@", "x:1@"]


# ----- words


@pytest.mark.parametrize(
    ("held", "roles", "gate", "words"),
    [
        ((), [(1, Shape(gpus=1, memory_GBps=101))], "SHAPE", "101 GB/s of memory bandwidth; the largest"),
        ((), [(1, Shape(gpus=3, memory_GBps=160))], "SHAPE", "bandwidth; the largest machine has 150"),
        ((), [(1, Shape(mig="1g.10gb", memory_GBps=200))], "SHAPE", "bandwidth; the largest machine has 100"),
        ((), [(3, Shape(memory_GBps=100))], "CONTIGUITY", "300 GB/s of memory bandwidth; the empty cluster has 200"),
        ((), [(1, Shape(memory_GBps=201))], "SHAPE", "bandwidth; the largest machine has 200"),
    ],
)  # fmt: skip
def test_a_refusal_for_want_of_bandwidth_says_so(
    held: tuple[int, ...], roles: list[tuple[int, Shape]], gate: str, words: str
) -> None:
    made = tuple(Role(f"r{n}", members, shape) for n, (members, shape) in enumerate(roles))
    found = place(occupancy(*held), Job("j", made))
    assert isinstance(found, Refused)
    assert found.gate.name == gate and words in found.sentence, found.sentence
    assert found.short_by is not None and found.short_by.resource == "memory_GBps"


# ----- against trying everything


SHAPES = st.sampled_from([Shape(gpus=1), Shape(gpus=2), Shape(mig="3g.40gb"), Shape()])


@st.composite
def roles(draw: st.DrawFn) -> tuple[Role, ...]:
    made = []
    for number in range(draw(st.integers(1, 2))):
        shape = draw(SHAPES)
        rate = draw(st.sampled_from([0.0, 30.0, 50.0, 60.0, 100.0]))
        asked = Shape(gpus=shape.gpus, mig=shape.mig, memory_GBps=rate)
        tier = draw(st.sampled_from([None, None, "socket", "nvlink", "gpu"]))
        made.append(role(f"r{number}", draw(st.integers(1, 3)), asked, tier))
    return tuple(made)


def fits(held: tuple[int, ...], asked: tuple[Role, ...]) -> bool:
    """Whether some way to hand out GPUs, and NUMA nodes to those without, keeps everything on one node."""
    members = [each for each in asked for _ in range(each.members)]
    free = [gpu for gpu in range(4) if gpu not in held]
    ways = []
    for each in members:
        count = each.shape.gpus or (1 if each.shape.mig else 0)
        ways.append([*combinations(free, count)] if count else [(-1,), (-2,)])
    return any(_holds(members, chosen) for chosen in product(*ways))


def _holds(members: list[Role], chosen: tuple[tuple[int, ...], ...]) -> bool:
    rate: Counter[int] = Counter()
    used = [gpu for gpus in chosen for gpu in gpus if gpu >= 0]
    if len(used) > len(set(used)):
        return False
    of_role: dict[str, set[int]] = {}
    for each, gpus in zip(members, chosen, strict=True):
        for gpu in gpus:
            numa = MACHINE.numa[gpu] if gpu >= 0 else -gpu - 1
            assert numa is not None
            rate[numa] += round(each.shape.memory_GBps * 1_000_000 / len(gpus))
            of_role.setdefault(each.name, set()).update(gpu for gpu in gpus if gpu >= 0)
    for each in members:
        tier, own = each.topology.required, of_role[each.name]
        masks = inner_domains(MACHINE, tier) if tier else (0b1111,)
        if not any(all(mask >> gpu & 1 for gpu in own) for mask in masks):
            return False
    return max(rate.values()) <= 100_000_000


@settings(max_examples=examples(150), deadline=None)
@given(st.sets(st.integers(0, 3), max_size=2), roles())
def test_nothing_is_placed_but_what_fits_and_all_of_that_where_one_role_asks_for_bandwidth(
    held: set[int], asked: tuple[Role, ...]
) -> None:
    """Several roles with bandwidth are packed in turn: an arrangement may be missed, as
    `placement.slots.sequential_members` says.
    """
    found, possible = placed(occupancy(*sorted(held)), *asked), fits(tuple(held), asked)
    with_bandwidth = sum(1 for each in asked if each.shape.memory_GBps)
    assert possible or found is None
    assert found is not None or not possible or with_bandwidth > 1


@pytest.mark.parametrize(
    ("shape", "layers", "members"),
    [
        (Shape(gpus=1, memory_GBps=50), ((ALL, "nvlink"),), 2),
        (Shape(gpus=1, memory_GBps=60), ((ALL, "nvlink"),), 1),
        (Shape(gpus=1, memory_GBps=60), ((2, "nvlink"),), 0),
        (Shape(gpus=1, memory_GBps=50), ((2, "nvlink"), (1, "gpu")), 4),
        (Shape(gpus=2, memory_GBps=100), ((ALL, "gpu"),), 0),
        (Shape(mig="1g.10gb"), ((2, "socket"),), 4),
        (Shape(mig="1g.10gb", memory_GBps=60), ((ALL, "socket"),), 1),
        (Shape(gpu_share=0.5), ((3, "socket"),), 0),
    ],
)
def test_members_of_a_node_under_layers(
    shape: Shape, layers: tuple[tuple[int, str], ...], members: int
) -> None:
    assert members_on_node(occupancy(), 0, shape, apart=True, layers=layers) == members
