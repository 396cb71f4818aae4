"""Packing by the members that usually come: as in the benchmark, kept up to date, and in small pictures."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.formats import read_policy
from gantree.model.cluster import Cluster, Machine, Node
from gantree.model.jobs import ISOLATIONS, Job, Role, Shape
from gantree.model.placements import MemberPlacement, MigPart, Placement, SharePart
from gantree.placement.choice.search import place
from gantree.placement.machine.shares import count, milli_left, share_on, sharing_of
from gantree.placement.request.placement_preferences import PlacementPreferences, TypicalMember
from gantree.placement.scoring import fragmentation_state
from gantree.placement.scoring.demand_classes import demand_of
from gantree.placement.scoring.fragmentation import DemandClass
from gantree.placement.scoring.packing import best_node, packing
from gantree.planning.policy_preferences import placement_preferences_of
from gantree.sim.openb.least_loss import LeastLossOfPods
from gantree.sim.openb.lists import Nodes, PodShape, Workload
from gantree.sim.openb.policies import Choice
from gantree.sim.openb.room import NO_GPU, Room
from gantree.testing.pictures import drawn, picture_of
from gantree.testing.placement_checker import problems_of
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy
from support.examples import examples

TURNS, MPS = ISOLATIONS
MODELS = ("A10-24GB", "T4-16GB")


def occupancy_of(
    *machines: Machine, fields: dict[str, object] | None = None, **cluster: object
) -> Occupancy:
    """One node of each machine, n0, n1, ..., without tiers above; fields are those of every Node."""
    nodes = tuple(
        Node(f"n{number}", machine.name, **(fields or {}))  # type: ignore[arg-type]  # by name
        for number, machine in enumerate(machines)
    )
    by_name = {machine.name: machine for machine in machines}
    return Occupancy(Fabric.build(Cluster("c", ("node",), by_name, nodes, **cluster)))  # type: ignore[arg-type]  # by name


def machine(name: str = "m", gpus: int = 4, gpu: str = "H100-80GB", cpus: float = 64) -> Machine:
    return Machine(name, gpus, gpu, cpus=cpus)


def room_for(occupancy: Occupancy, shape: Shape) -> np.ndarray:
    """Nodes with room for one member, by what the occupancy says alone."""
    return np.array(
        [node for node in range(len(occupancy.fabric.nodes)) if has_room(occupancy, node, shape)],
        dtype=np.int64,
    )


def has_room(occupancy: Occupancy, node: int, shape: Shape) -> bool:
    model = occupancy.fabric.machine_of_node(node).gpu
    labels = set(occupancy.fabric.nodes[node].labels)
    if not occupancy.usable_node[node] or (shape.models and model not in shape.models):
        return False
    if occupancy.free_microcpus_of_node[node] < shape.cpus * 1e6 or not labels.issuperset(
        shape.labels
    ):
        return False
    if shape.part:
        return count(occupancy.state_of_node(node), shape, apart=False) > 0
    return occupancy.free_mask_of_node[node].bit_count() >= shape.gpus


def take(occupancy: Occupancy, owner: str, shape: Shape, node: int, gpu: int | None) -> None:
    """Hold a member on a node: a share of the GPU named, whole GPUs from the lowest-numbered free ones."""
    state, name = occupancy.state_of_node(node), occupancy.fabric.nodes[node].name
    share, gpus = None, tuple(occupancy.free_gpus(name)[: shape.gpus])
    if gpu is not None:
        share = share_on(state, shape, gpu)
        assert share is not None, f"GPU {gpu} of {name} has no room for {shape}"
    member = MemberPlacement("worker", 0, name, gpus, cpus=shape.cpus, share=share)
    occupancy.take(owner, (member,))


def setting() -> tuple[
    list[PodShape], list[int], Nodes, Room, LeastLossOfPods, Occupancy, tuple[TypicalMember, ...]
]:
    """Two dozen nodes and some hundred arrivals, as the benchmark sees them and as a cluster."""
    random = np.random.default_rng(4)
    rows = [
        (int(random.integers(8, 64)), int(random.choice([0, 2, 4, 8])), int(random.integers(2)))
        for _ in range(24)
    ]
    shapes = sorted({random_pod(random) for _ in range(40)})
    counts = [int(random.integers(1, 30)) for _ in shapes]
    arrivals = random.choice(len(shapes), 400, p=np.array(counts) / sum(counts)).tolist()
    cpus, gpus, models = np.array(rows, dtype=np.int64).T
    names = tuple(f"n{number}" for number in range(len(rows)))
    nodes = Nodes(names, 1000 * cpus, 0 * cpus, gpus, models, MODELS)
    room = Room(nodes)
    replayed = LeastLossOfPods(
        room, Workload(tuple(shapes), tuple(counts), ()), np.arange(len(rows)), 1
    )
    occupancy = occupancy_of(
        *(
            Machine(f"m{n}", gpus, MODELS[model], cpus=cpus)
            for n, (cpus, gpus, model) in enumerate(rows)
        )
    )
    typical = tuple(
        TypicalMember(as_shape(pod), times) for pod, times in zip(shapes, counts, strict=True)
    )
    return shapes, arrivals, nodes, room, replayed, occupancy, typical


def test_random_pods_go_where_the_benchmark_puts_them() -> None:
    """Some hundred arrivals on two dozen nodes, through the replay's policy and through an occupancy."""
    shapes, arrivals, nodes, room, replayed, occupancy, typical = setting()
    placed = 0
    for number, arrival in enumerate(arrivals):
        pod, shape = shapes[arrival], as_shape(shapes[arrival])
        fitting = np.flatnonzero(room.fits(pod))
        assert fitting.tolist() == room_for(occupancy, shape).tolist()
        if not len(fitting):
            continue
        expected = replayed.choose(arrival, fitting)
        node, gpu = best_node(occupancy, typical, shape, fitting)
        assert Choice(node, NO_GPU if gpu is None else gpu) == expected, (number, pod)
        room.place(node, pod, expected.gpu)
        replayed.placed(node)
        take(occupancy, f"j{number}", shape, node, gpu)
        placed += 1
    assert 100 < placed < len(arrivals)
    assert room.gpu_milli.sum() < 0.1 * nodes.gpu_milli
    occupancy.check()


def test_random_pods_are_placed_as_the_benchmark_places_them() -> None:
    shapes, arrivals, nodes, room, replayed, occupancy, typical = setting()
    for number, arrival in enumerate(arrivals):
        pod, shape = shapes[arrival], as_shape(shapes[arrival])
        fitting = np.flatnonzero(room.fits(pod))
        job = Job(f"j{number}", (Role("worker", 1, shape),))
        placed = place(occupancy, job, PlacementPreferences(demand=typical))
        assert isinstance(placed, Placement) == bool(len(fitting))
        if not isinstance(placed, Placement):
            continue
        assert problems_of(occupancy, job, placed) == []
        expected = replayed.choose(arrival, fitting)
        (member,) = placed.members
        node = occupancy.fabric.index_of_node[member.node]
        assert node == expected.node, (number, pod)
        room.place(node, pod, expected.gpu)
        replayed.placed(node)
        occupancy.take(job.name, placed.members)
        state = occupancy.state_of_node(node)
        left = sorted(milli_left(sharing_of(state.rules), gpu) for gpu in state.gpus)
        gpus = int(nodes.gpus[node])
        assert left == sorted(room.gpu_milli[node][:gpus].tolist())
    occupancy.check()


def random_pod(random: np.random.Generator) -> PodShape:
    cpu_milli = 1000 * int(random.integers(1, 9))
    models = ((), (), MODELS[:1], MODELS[1:])[random.integers(4)]
    kind = random.random()
    if kind < 0.6:
        return PodShape(cpu_milli, 0, 1, int(random.choice([100, 320, 470, 650, 810])), models)
    if kind < 0.9:
        return PodShape(cpu_milli, 0, int(random.choice([1, 1, 2, 4, 8])), 1000, models)
    return PodShape(cpu_milli, 0, 0, 0)


def as_shape(pod: PodShape) -> Shape:
    share = pod.gpu_milli / 1000 if pod.is_share else None
    gpus = 0 if pod.is_share else pod.gpus
    return Shape(gpus=gpus, cpus=pod.cpu_milli / 1000, models=pod.models, gpu_share=share)


WALKED = (
    Shape(gpus=1, cpus=4),
    Shape(gpus=4, cpus=8),
    Shape(cpus=8, gpu_share=0.5),
    Shape(cpus=1, gpu_share=0.3, isolation=MPS),
    Shape(cpus=1, gpu_memory_GiB=10),
    Shape(cpus=2, gpu_share=0.2, gpu_memory_GiB=12),
    Shape(gpus=2, models=("A10-24GB",)),
    Shape(gpus=1, labels=(("pool", "a"),)),
    Shape(cpus=16),
)
EVERY_SHAPE = tuple(TypicalMember(shape, 1 + number) for number, shape in enumerate(WALKED))

steps = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.integers(0, len(WALKED) - 1)),
        st.tuples(st.just("give back"), st.integers(0, 30)),
        st.tuples(st.just("mark"), st.integers(0, 3)),
        st.tuples(st.just("cut"), st.integers(0, 3)),
    ),
    min_size=1,
    max_size=25,
)


@settings(max_examples=examples(40), deadline=None)
@given(steps)
def test_an_index_that_follows_a_walk_chooses_as_one_made_anew(
    walk: Sequence[tuple[str, int]],
) -> None:
    machines = (machine("a"), machine("b", gpu="A10-24GB"), machine("c", 2), machine("d", cpus=4))
    occupancy = occupancy_of(*machines, fields={"labels": (("pool", "a"),)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fragmentation_state, "REWEIGH_EVERY", 1)
        for number, (what, which) in enumerate(walk):
            name = f"n{which % 4}"
            if what == "mark":
                occupancy.mark(name, usable=not occupancy.usable(name))
            elif what == "give back":
                occupancy.give_back(f"j{which}")
            elif what == "cut":
                cut = MemberPlacement("w", 0, name, mig=(MigPart(0, "1g.10gb", 0),))
                if not occupancy.missing((cut,)):
                    occupancy.take(f"j{number}", (cut,))
            else:
                fitting = room_for(occupancy, WALKED[which])
                if len(fitting):
                    chosen = best_node(occupancy, EVERY_SHAPE, WALKED[which], fitting)
                    anew = best_node(occupancy.copy(), EVERY_SHAPE, WALKED[which], fitting)
                    assert chosen == anew
                    take(occupancy, f"j{number}", WALKED[which], *chosen)
        packing(occupancy, EVERY_SHAPE)
        occupancy.check()


@pytest.mark.parametrize(
    ("typical", "classes"),
    [
        ([TypicalMember(Shape(gpus=2, cpus=4.0004), 3)], [(4001, 2, 1000, 1.0, ())]),
        ([TypicalMember(Shape(gpu_share=0.5))], [(0, 1, 500, 1.0, ())]),
        (
            [TypicalMember(Shape(gpu_share=0.1, gpu_memory_GiB=12))],
            [(0, 1, 150, 2 / 3, (0,)), (0, 1, 500, 1 / 3, (1,))],
        ),
        ([TypicalMember(Shape(gpu_memory_GiB=48))], [(0, 1, 600, 1.0, (0,))]),
        ([TypicalMember(Shape(gpus=1, models=("A10-24GB",)))], [(0, 1, 1000, 1.0, (1,))]),
        ([TypicalMember(Shape(gpus=1)), TypicalMember(Shape(cpus=1), 3)], [(0, 1, 1000, 0.25, ())]),
        ([TypicalMember(Shape(gpus=1)), TypicalMember(Shape(mig="1g.10gb"), 3)], [(0, 1, 1000, 0.25, ())]),
        ([TypicalMember(Shape(gpus=1)), TypicalMember(Shape(gpus=1, models=("B200-180GB",)))], [(0, 1, 1000, 0.5, ())]),
        ([], []),
    ],
)  # fmt: skip
def test_usual_members_become_classes_of_the_fabric(
    typical: list[TypicalMember], classes: list[tuple[int, int, int, float, tuple[int, ...]]]
) -> None:
    """Eight GPUs of 80 GiB, which are kind 0, and four of 24 GiB, which are kind 1."""
    fabric = occupancy_of(machine("a", 8), machine("b", 4, "A10-24GB")).fabric
    assert demand_of(typical, fabric).classes == tuple(
        DemandClass(cpu, gpus, milli, frequency, 0, models)
        for cpu, gpus, milli, frequency, models in classes
    )


def test_nodes_are_told_apart_by_the_labels_that_are_asked_for_and_no_others() -> None:
    nodes = (
        Node("n0", "m", labels=(("pool", "a"), ("row", "1"))),
        Node("n1", "m", labels=(("row", "2"),)),
        Node("n2", "m"),
    )
    fabric = Fabric.build(Cluster("c", ("node",), {"m": machine()}, nodes))
    in_pool = TypicalMember(Shape(gpus=1, labels=(("pool", "a"),)))
    assert [
        each.models for each in demand_of([in_pool, TypicalMember(Shape(gpus=2))], fabric).classes
    ] == [
        (0,),
        (),
    ]
    assert packing(Occupancy(fabric), (in_pool,))._kinds.of_node.tolist() == [0, 1, 1]


WHOLE_AND_EIGHT = (TypicalMember(Shape(gpus=8)), TypicalMember(Shape(gpus=1), 99))


@pytest.mark.parametrize(
    ("typical", "picture", "node"),
    [
        (WHOLE_AND_EIGHT, "l0: n0 ........ n1 aaaaaaa.", "n1"),
        (WHOLE_AND_EIGHT, "l0: n0 ........ n1 ........ n2 aaaa....", "n2"),
        ((TypicalMember(Shape(gpus=1)),), "l0: n0 ........ n1 aaaaaaa.", "n0"),
        (WHOLE_AND_EIGHT, "l0: n0 aaaa.... n1 ........\nl1: n2 bbbb.... n3 bbbbbbbb", "n2"),
        (WHOLE_AND_EIGHT, "s0/l0: n0 aaaa.... n1 ........\ns1/l1: n2 bbbb.... n3 ........\ns1/l2: n4 bbbbbbbb", "n0"),
        (WHOLE_AND_EIGHT, "s0/l0: n0 aaaa....\ns0/l1: n1 ........\ns1/l2: n2 bbbb....\ns1/l3: n3 bbbbbbbb", "n2"),
        (WHOLE_AND_EIGHT, "s0/l0: n0 aaaa....\ns0/l1: n1 ........\ns1/l2: n2 bbbb.... n3 bbbb....", "n0"),
        ((), "l0: n0 aaaa.... n1 ........\nl1: n2 bbbb.... n3 bbbbbbbb", "n2"),
    ],
)  # fmt: skip
def test_one_gpu_is_taken_where_it_takes_least_and_of_equals_in_the_fullest_domain(
    typical: tuple[TypicalMember, ...], picture: str, node: str
) -> None:
    occupancy = drawn(picture)
    index, gpu = best_node(occupancy, typical, Shape(gpus=1), room_for(occupancy, Shape(gpus=1)))
    assert (occupancy.fabric.nodes[index].name, gpu) == (node, None), picture_of(occupancy)
    occupancy.check()


FULL, FULL_TOO = SharePart(1, 1.0, 80, TURNS), SharePart(2, 1.0, 80, TURNS)
HALF_IN_TURNS = Shape(gpu_share=0.5, isolation=TURNS)
HALVES = (TypicalMember(Shape(gpu_share=0.5)), TypicalMember(Shape(gpus=1)))


def shared(occupancy: Occupancy, *parts: tuple[str, SharePart]) -> Occupancy:
    for number, (node, part) in enumerate(parts):
        occupancy.take(f"t{number}", (MemberPlacement("t", 0, node, share=part),))
    return occupancy


@pytest.mark.parametrize(
    ("held", "shape", "expected"),
    [
        ([("n1", SharePart(2, 0.5, 40, TURNS))], Shape(gpu_share=0.5), ("n1", 2)),
        ([("n1", SharePart(2, 0.7, 40, TURNS))], Shape(gpu_share=0.5), ("n0", 0)),
        ([("n1", SharePart(2, 0.5, 40, TURNS))], Shape(gpu_share=0.5, isolation=MPS), ("n0", 0)),
        ([("n1", SharePart(2, 0.5, 40, TURNS, alone=True))], Shape(gpu_share=0.5), ("n0", 0)),
        ([("n0", SharePart(0, 0.5, 70, TURNS)), ("n1", SharePart(3, 0.5, 40, TURNS))], Shape(gpu_share=0.5), ("n1", 3)),
        ([("n1", SharePart(1, 0.5, 40, MPS)), ("n1", SharePart(2, 0.5, 40, TURNS))], HALF_IN_TURNS, ("n1", 2)),
        ([("n1", SharePart(1, 0.4, 32, TURNS))], Shape(gpu_share=1.0), ("n0", 0)),
        ([("n0", SharePart(3, 0.5, 40, MPS)), ("n1", SharePart(2, 0.5, 40, TURNS))], HALF_IN_TURNS, ("n1", 2)),
        ([("n0", SharePart(0, 0.5, 40, MPS)), ("n0", FULL), ("n0", FULL_TOO)], HALF_IN_TURNS, ("n1", 0)),
    ],
)  # fmt: skip
def test_a_share_goes_onto_a_gpu_that_takes_it_where_it_takes_least(
    held: list[tuple[str, SharePart]], shape: Shape, expected: tuple[str, int]
) -> None:
    occupancy = shared(occupancy_of(machine("a"), machine("b")), *held)
    node, gpu = best_node(occupancy, HALVES, shape, room_for(occupancy, shape))
    assert (occupancy.fabric.nodes[node].name, gpu) == expected
    take(occupancy, "new", shape, node, gpu)
    occupancy.check()


def test_a_lopsided_share_is_placed_although_the_score_sees_no_room() -> None:
    """Half of the compute is left with a tenth of the memory: thousandths say 100, the member asks 500."""
    occupancy = shared(occupancy_of(machine(gpus=1)), ("n0", SharePart(0, 0.5, 72, TURNS)))
    shape = Shape(gpu_share=0.5, gpu_memory_GiB=4)
    assert best_node(occupancy, HALVES, shape, room_for(occupancy, shape)) == (0, 0)


def test_a_share_by_memory_is_a_larger_part_of_a_smaller_gpu() -> None:
    """12 GiB are half of an A10 and 15 % of an H100; GPUs count alike, so that is where they take less."""
    shape = Shape(gpu_memory_GiB=12)
    typical = (TypicalMember(shape), TypicalMember(Shape(gpus=1)))
    occupancy = occupancy_of(machine("a"), machine("b", gpu="A10-24GB"))
    shared(occupancy, ("n1", SharePart(3, 0.5, 12, TURNS)), ("n0", SharePart(2, 0.85, 68, TURNS)))
    assert best_node(occupancy, typical, shape, np.array([0, 1])) == (0, 2)
    assert best_node(occupancy, typical, shape, np.array([1])) == (1, 3)
    occupancy.check()


def slots(occupancy: Occupancy, typical: tuple[TypicalMember, ...]) -> list[list[int]]:
    """slots[node][class] as the index has them."""
    kept = packing(occupancy, typical)._least.state
    found: list[list[int]] = kept.states.slots[kept.state_of_node].tolist()
    return found


def test_nodes_that_may_not_be_used_are_room_for_nobody() -> None:
    occupancy = drawn("l0: n0 ........ n1 ........ n2 a.......")
    assert slots(occupancy, WHOLE_AND_EIGHT) == [[8, 1], [8, 1], [7, 0]]
    occupancy.mark("n1", usable=False)
    assert slots(occupancy, WHOLE_AND_EIGHT) == [[8, 1], [0, 0], [7, 0]]
    occupancy.check()


def test_nodes_that_are_held_back_are_room_for_nobody() -> None:
    """The spare is the last whole node; as soon as that is broken up, another one."""
    occupancy = occupancy_of(machine("a"), machine("b"), machine("c"), spares={"fabric": 1})
    typical = (TypicalMember(Shape(gpus=2)),)
    assert slots(occupancy, typical) == [[2], [2], [0]]
    take(occupancy, "j", Shape(gpus=1), 2, None)
    assert slots(occupancy, typical) == [[2], [0], [1]]
    occupancy.check()


def test_cpus_that_the_site_does_not_count_are_always_enough() -> None:
    occupancy = occupancy_of(Machine("a", 2, "T4-16GB"), Machine("b", 2, "T4-16GB"))
    typical = (TypicalMember(Shape(gpus=1, cpus=64)),)
    take(occupancy, "j", Shape(gpus=1, cpus=1000), 1, None)
    assert slots(occupancy, typical) == [[2], [1]]
    assert best_node(occupancy, typical, Shape(gpus=1, cpus=64), np.array([0, 1])) == (0, None)


def test_the_demand_in_the_page_about_packing_is_one() -> None:
    page = Path(__file__).parents[2] / "docs" / "packing.md"
    written = page.read_text().partition("```yaml\n")[2].partition("```")[0]
    typical = placement_preferences_of(read_policy(written, "docs/packing.md")).demand
    fabric = occupancy_of(machine("a", 8), machine("b", 4, "A10-24GB")).fabric
    classes = demand_of(typical, fabric).classes
    assert [(each.gpus, each.gpu_milli, each.models) for each in classes] == [
        (1, 150, (0,)),
        (1, 500, (1,)),
        (1, 500, ()),
        (1, 1000, ()),
        (8, 1000, (0,)),
    ]


def test_another_demand_makes_another_index() -> None:
    occupancy = drawn("l0: n0 ........ n1 aaaaaaa.")
    first = packing(occupancy, WHOLE_AND_EIGHT)
    assert packing(occupancy, tuple(WHOLE_AND_EIGHT)) is first
    assert packing(occupancy, WHOLE_AND_EIGHT[:1]) is not first
