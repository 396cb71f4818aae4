"""Baselines that are blind to the topology: they place what gantree places, keep what is required, and nothing else."""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.cluster import Allocation, Cluster, Machine, Nic, Node
from gantree.model.errors import BadInput, Unsupported
from gantree.model.jobs import Apart, Job, PreferredNodes, Role, Shape, Slices, Spread, TopologySpec
from gantree.model.placements import Placement
from gantree.placement.choice.search import find, fits
from gantree.placement.request.placement_preferences import (
    DEFAULT_PREFERENCES,
    PlacementPreferences,
)
from gantree.placement.resize.elastic import grown
from gantree.placement.resize.replaced import replaced
from gantree.testing.builders import job
from gantree.testing.pictures import drawn, picture_of
from gantree.testing.placement_checker import problems_of
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.catalog import machine as from_catalog
from gantree.topology.occupancy.occupancy import Occupancy
from support.examples import examples

FIRST = PlacementPreferences(placement="first-fit")
BEST = PlacementPreferences(placement="best-fit")
RANDOM = PlacementPreferences(placement="random")
RULES = {"first-fit": FIRST, "best-fit": BEST, "random": RANDOM}
SEEDS = st.integers(0, 2**32 - 1)
OUTER = ("zone", "block", "rack")
INNER = ("socket", "pcie", "gpu")


def machine(gpus: int) -> Machine:
    """GPUs on two sockets in turn, with a NIC for each two."""
    nics = tuple(Nic(f"mlx{n}", (2 * n, 2 * n + 1)) for n in range(gpus // 2))
    numa = tuple(gpu % 2 for gpu in range(gpus))
    return Machine(f"m{gpus}", gpus, "H100-80GB", (), numa, nics, cpus=16.0, memory_GiB=64.0)


def site(rng: Random) -> Occupancy:
    """Up to twelve nodes of 0, 4 or 8 GPUs under uneven domains, in part held, some labelled, some not usable."""
    outer = OUTER[: rng.randint(1, 3)]
    nodes, held = [], []
    for number in range(rng.randint(2, 12)):
        gpus = rng.choice([0, 4, 8, 8])
        at = tuple(f"{tier[0]}{rng.choice([0, 0, 1, 2])}" for tier in outer)
        labels = (("pool", "a"),) if rng.random() < 0.6 else ()
        nodes.append(Node(f"n{number}", f"m{gpus}", at, labels))
        taken = tuple(sorted(rng.sample(range(gpus), rng.randint(0, gpus))))
        held.append(Allocation(f"old{number}", f"n{number}", taken, rng.choice([0.0, 0.0, 9.5])))
    machines = {f"m{gpus}": machine(gpus) for gpus in (0, 4, 8)}
    cluster = Cluster("s", (*outer, "node"), machines, tuple(nodes), {}, tuple(held))
    occupancy = Occupancy(Fabric.build(cluster))
    for node in nodes:
        if rng.random() < 0.1:
            occupancy.mark(node.name, usable=False)
    return occupancy


def shape(rng: Random) -> Shape:
    if rng.random() < 0.15:
        return rng.choice([Shape(gpu_share=0.5), Shape(mig="1g.10gb"), Shape(mig="3g.40gb")])
    gpus = rng.choice([0, 1, 1, 2, 2, 4])
    labels = (("pool", "a"),) if rng.random() < 0.2 else ()
    return Shape(gpus=gpus, cpus=rng.choice([0.5, 1.0, 3.0]), nics=gpus // 2, labels=labels)


def topology(rng: Random, tiers: tuple[str, ...]) -> TopologySpec:
    """Any requirement, or none; and what is only preferred, which must not matter."""
    every = (*tiers, *INNER)
    slices = (Slices(rng.choice([2, 3]), rng.choice(every), preferred=rng.random() < 0.3),)
    at_most = rng.choice([None, 1, 2])
    return TopologySpec(
        rng.choice(every) if rng.random() < 0.3 else None,
        rng.choice(every) if rng.random() < 0.3 else None,
        slices if rng.random() < 0.3 else (),
        Spread(rng.choice(tiers), at_most) if rng.random() < 0.2 else None,
        apart=(Apart(rng.choice(tiers), ("old0",)),) if rng.random() < 0.1 else (),
        likes=(PreferredNodes("pool in (a)"),) if rng.random() < 0.2 else (),
    )


def gang(rng: Random, tiers: tuple[str, ...]) -> Job:
    roles = tuple(
        Role(f"r{n}", rng.choice([1, 2, 3, 4, 6, 6]), shape(rng))
        for n in range(rng.choice([1, 1, 2]))
    )
    return Job("g", roles, topology=topology(rng, tiers), communicates=rng.random() < 0.8)


@pytest.mark.parametrize("rule", RULES)
@settings(deadline=None, max_examples=examples(150))
@given(SEEDS)
def test_a_gang_is_placed_exactly_if_gantree_places_it_and_as_it_requires(
    rule: str, seed: int
) -> None:
    rng = Random(seed)
    occupancy = site(rng)
    asked = gang(rng, occupancy.fabric.tiers[1:])
    try:
        gantree = find(occupancy.copy(), asked)
    except (BadInput, Unsupported):
        return
    found = find(occupancy, asked, RULES[rule])
    assert (found is None) == (gantree is None) == (not fits(occupancy, asked))
    if found is not None:
        assert problems_of(occupancy, asked, found) == []
        assert find(occupancy.copy(), asked, RULES[rule]) == found
        occupancy.take("g", found.members)
        occupancy.check()


Fullness = Callable[[int, int, int], float]
"""What the rule takes the least of, by a node's number, the GPUs that stay free with the member, and all of them."""
TWINS: dict[str, Fullness] = {
    "first-fit": lambda number, free, gpus: number,
    "best-fit": lambda number, free, gpus: free / gpus,
}


def twin(occupancy: Occupancy, asked: Job, least: Fullness) -> list[tuple[str, tuple[int, ...]]]:
    """Member after member on the node of the least measure, in a domain of the required tier that holds all of them."""
    fabric, (role,) = occupancy.fabric, asked.roles
    free = {
        number: [gpu for gpu in range(8) if occupancy.free_mask_of_node[number] >> gpu & 1]
        for number in range(len(fabric.nodes))
    }
    tier = fabric.tiers.index(asked.topology.required) if asked.topology.required else 0
    domain = fabric.domain_of_node[tier].tolist()
    each = role.shape.gpus
    room = [
        sum(len(free[n]) // each for n in free if domain[n] == domain[number]) for number in free
    ]
    open_nodes = [n for n in free if room[n] >= role.members]
    placed = []
    for _ in range(role.members):
        holding = [n for n in open_nodes if len(free[n]) >= each]
        if not holding:
            return []
        left = {n: least(n, len(free[n]) - each, int(fabric.gpus_of_node[n])) for n in holding}
        best = min(holding, key=lambda n: (left[n], n))
        open_nodes = [n for n in open_nodes if domain[n] == domain[best]]
        placed.append((fabric.nodes[best].name, tuple(free[best][:each])))
        del free[best][:each]
    return placed


@pytest.mark.parametrize("rule", TWINS)
@settings(deadline=None, max_examples=examples(150))
@given(SEEDS)
def test_first_fit_and_best_fit_are_those_of_a_plain_loop(rule: str, seed: int) -> None:
    rng = Random(seed)
    occupancy = site(rng)
    for node in occupancy.fabric.nodes:
        occupancy.mark(node.name, usable=True)
    required = rng.choice([None, None, *occupancy.fabric.tiers[1:]])
    asked = job("g", rng.randint(1, 8), rng.choice([1, 2, 3, 4]), required=required)
    found = find(occupancy, asked, RULES[rule])
    members = [] if found is None else [(member.node, member.gpus) for member in found.members]
    assert members == twin(occupancy, asked, TWINS[rule])


LEAVES = """s0/l0: n0 aaaa.... n1 ........
            s0/l1: n2 aaaaaa.. n3 ........"""

APART = """s0/l0: n0 ........ n1 aaaaaaaa
           s0/l1: n2 ........ n3 ........"""


@pytest.mark.parametrize(
    ("rule", "asked", "after"),
    [
        (
            FIRST,
            job("x", 2, 4),
            """s0/l0: n0 aaaaxxxx n1 xxxx....
               s0/l1: n2 aaaaaa.. n3 ........""",
        ),
        (
            FIRST,
            job("x", 2, 8),
            """s0/l0: n0 aaaa.... n1 xxxxxxxx
               s0/l1: n2 aaaaaa.. n3 xxxxxxxx""",
        ),
        (
            BEST,
            job("x", 3, 2),
            """s0/l0: n0 aaaaxxxx n1 ........
               s0/l1: n2 aaaaaaxx n3 ........""",
        ),
        (
            BEST,
            job("x", 4, 2, slices=(2, "node")),
            """s0/l0: n0 aaaaxxxx n1 xxxx....
               s0/l1: n2 aaaaaa.. n3 ........""",
        ),
        (
            FIRST,
            job("x", 3, 4, required="leaf"),
            """s0/l0: n0 aaaaxxxx n1 xxxxxxxx
               s0/l1: n2 aaaaaa.. n3 ........""",
        ),
        (
            FIRST,
            job("x", 14, 1, slices=(7, "leaf")),
            """s0/l0: n0 aaaaxxxx n1 xxx.....
               s0/l1: n2 aaaaaaxx n3 xxxxx...""",
        ),
    ],
)
def test_where_members_go(rule: PlacementPreferences, asked: Job, after: str) -> None:
    occupancy = drawn(LEAVES)
    found = find(occupancy, asked, rule)
    assert found is not None
    occupancy.take("x", found.members)
    assert picture_of(occupancy) == picture_of(drawn(after))


def test_best_fit_numbers_ranks_as_it_fills_and_links_do_not_matter() -> None:
    found = find(drawn(LEAVES), job("x", 3, 2), BEST)
    assert found is not None
    assert [(m.rank, m.node, m.gpus) for m in found.members] == [
        (0, "n2", (6, 7)), (1, "n0", (4, 5)), (2, "n0", (6, 7)),
    ]  # fmt: skip


def test_what_is_preferred_does_not_matter() -> None:
    plain, prefers = job("x", 2, 8), job("x", 2, 8, preferred="leaf")
    found = find(drawn(APART), prefers, FIRST)
    assert found is not None and found == find(drawn(APART), plain, FIRST)
    assert [member.node for member in found.members] == ["n0", "n2"]


def two_sockets() -> Occupancy:
    """One node of which a GPU on each socket is held, and a free one."""
    nodes = (Node("n0", "dgx-h100"), Node("n1", "dgx-h100"))
    held = (Allocation("old", "n0", (0, 4)),)
    machines = {"dgx-h100": from_catalog("dgx-h100")}
    return Occupancy(Fabric.build(Cluster("c", ("node",), machines, nodes, {}, allocations=held)))


def test_gpus_and_nics_are_the_first_and_a_required_socket_is_kept() -> None:
    asked = Job("x", (Role("w", 1, Shape(gpus=4, nics=2)),))
    found = find(two_sockets(), asked, FIRST)
    assert found is not None
    (member,) = found.members
    names = [nic.name for nic in from_catalog("dgx-h100").nics]
    assert (member.node, member.gpus, list(member.nics)) == ("n0", (1, 2, 3, 5), names[:2])
    kept = find(
        two_sockets(), Job("x", asked.roles, topology=TopologySpec(required="socket")), FIRST
    )
    assert kept is not None and (kept.members[0].node, kept.members[0].gpus) == ("n1", (0, 1, 2, 3))


def placed_by(seed: int, name: str = "x") -> list[tuple[str, tuple[int, ...]]]:
    preferences = PlacementPreferences(placement="random", seed=seed)
    found = find(Occupancy(Fabric.build(wide())), job(name, 4, 2), preferences)
    assert found is not None
    return [(member.node, member.gpus) for member in found.members]


def wide() -> Cluster:
    nodes = tuple(Node(f"n{n}", "m8", (f"l{n // 8}",)) for n in range(64))
    return Cluster("wide", ("leaf", "node"), {"m8": machine(8)}, nodes)


def test_a_draw_is_of_the_seed_and_the_name_and_of_nothing_else() -> None:
    assert placed_by(0) == placed_by(0)
    assert placed_by(0) != placed_by(1)
    assert placed_by(0) != placed_by(0, "y")


def test_a_draw_takes_each_node_and_each_gpu_about_as_often() -> None:
    drawn_nodes = [node for seed in range(64) for node, _ in placed_by(seed)]
    drawn_gpus = [gpu for seed in range(64) for _, gpus in placed_by(seed) for gpu in gpus]
    assert len(set(drawn_nodes)) > 56  # 63 are expected of 64
    assert all(38 <= drawn_gpus.count(gpu) <= 90 for gpu in range(8))  # 64 are expected


@pytest.mark.parametrize("rule", RULES)
def test_a_gang_grows_into_any_room_that_keeps_what_it_requires(rule: str) -> None:
    for required in (None, "leaf"):
        occupancy = drawn(LEAVES)
        small = job("x", 1, 4, required=required)
        found = find(occupancy, small, RULES[rule])
        assert found is not None
        occupancy.take("x", found.members)
        larger = grown(occupancy, small, found, 3, RULES[rule])
        plain = grown(occupancy, small, found, 3)
        assert (larger is None) == (plain is None)
        if larger is not None:
            assert set(_places(found)) <= set(_places(larger))
            occupancy.give_back("x")
            assert problems_of(occupancy, job("x", 3, 4, required=required), larger) == []


def _places(found: Placement) -> list[tuple[str, tuple[int, ...]]]:
    return [(member.node, member.gpus) for member in found.members]


GROWN = """s0/l0: n0 ........ n1 aaaaaaaa
           s0/l1: n2 aaaa.... n3 ........
           s0/l2: n4 aaaa...."""


@pytest.mark.parametrize(
    ("rule", "node"), [(DEFAULT_PREFERENCES, "n3"), (FIRST, "n0"), (BEST, "n4")]
)
def test_new_members_go_where_the_rule_says(rule: PlacementPreferences, node: str) -> None:
    occupancy, small = drawn(GROWN), job("x", 1, 4)
    for other in ("n0", "n3", "n4"):
        occupancy.mark(other, usable=False)
    held = find(occupancy, small)
    assert held is not None and list(held.nodes) == ["n2"]
    occupancy.take("x", held.members)
    for other in ("n0", "n3", "n4"):
        occupancy.mark(other, usable=True)
    larger = grown(occupancy, small, held, 2, rule)
    assert larger is not None and set(larger.nodes) == {"n2", node}


@pytest.mark.parametrize(("rule", "node"), [(DEFAULT_PREFERENCES, "n3"), (FIRST, "n0")])
def test_a_lost_member_is_replaced_where_the_rule_says(
    rule: PlacementPreferences, node: str
) -> None:
    occupancy = drawn("""s0/l0: n0 ........ n1 aaaaaaaa
                         s0/l1: n2 ........ n3 ........ n4 ........""")
    for other in ("n0", "n3"):
        occupancy.mark(other, usable=False)
    pair = job("x", 2, 8)
    held = find(occupancy, pair)
    assert held is not None and list(held.nodes) == ["n2", "n4"]
    occupancy.take("x", held.members)
    for other in ("n0", "n3"):
        occupancy.mark(other, usable=True)
    occupancy.mark("n4", usable=False)
    instead = replaced(occupancy, "x", pair, held.members[1], rule)
    assert instead is not None and instead.node == node
