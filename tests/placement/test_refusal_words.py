"""What a refusal says of parts of GPUs, other devices, memory bandwidth, spares, spreading and neighbours."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.cluster import Allocation, Cluster, Node
from gantree.model.jobs import Apart, Elastic, Job, Role, Shape, Slices, Spread, TopologySpec
from gantree.model.placements import MemberPlacement, Placement
from gantree.model.verdicts import Gate, Refused
from gantree.placement.choice.search import fits, place
from gantree.placement.refusal.on_empty import OnEmpty
from gantree.placement.request.relaxations import relaxed
from gantree.testing import builders
from gantree.testing.pictures import drawn
from gantree.testing.placement_checker import problems_of
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy
from support.examples import examples

FPGA = (("fpga", 1),)


def site(nodes: int = 2, *allocations: Allocation, spares: int = 0, gpus: int = 2) -> Occupancy:
    """Nodes of two H100 and one FPGA, whose NUMA nodes have 100 GB/s each, two to a leaf."""
    machine = replace(
        builders.machine(gpus), devices=(("fpga", 1),), numa_memory_GBps=100.0, cpus=16.0
    )
    there = tuple(Node(f"n{i}", "m", (f"l{i // 2}",)) for i in range(nodes))
    held_back = {"leaf": spares} if spares else {}
    return Occupancy(
        Fabric.build(
            Cluster(
                "c",
                ("leaf", "node"),
                {"m": machine},
                there,
                allocations=allocations,
                spares=held_back,
            )
        )
    )


def gang(members: int, shape: Shape, **fields: object) -> Job:
    job = Job("x", (Role("w", members, shape),))
    return replace(job, **fields)  # type: ignore[arg-type]  # fields by name, as the table has them


def refused(occupancy: Occupancy, job: Job) -> Refused:
    answer = place(occupancy, job)
    assert isinstance(answer, Refused)
    assert not fits(occupancy, job)
    for relaxation in answer.would_fit_if:
        assert isinstance(place(occupancy, relaxed(job, relaxation.patch)), Placement)
    return answer


TOLD = {
    "more instances than GPUs, of ranks that talk": (
        site(1), gang(3, Shape(mig="1g.10gb")), Gate.CONTIGUITY, True, ("1g.10gb", 1.0),
        "Never fits: needs 3 instances of 1g.10gb on different GPUs, because NCCL refuses two ranks on one GPU; "
        "the empty cluster has 2. Fits now with 2 members.",
    ),
    "more instances than are free": (
        site(1, Allocation("old", "n0", (0,))), gang(2, Shape(mig="3g.40gb")), Gate.ROOM, False, ("3g.40gb", 1.0),
        "Waiting: needs 2 instances of 3g.40gb on different GPUs, because NCCL refuses two ranks on one GPU; "
        "1 is free. Fits now with 1 member.",
    ),
    "more instances than fit, of members that do not talk": (
        site(1), gang(5, Shape(mig="3g.40gb"), communicates=False), Gate.CONTIGUITY, True, ("3g.40gb", 1.0),
        "Never fits: needs 5 instances of 3g.40gb; the empty cluster has 4. Fits now with 4 members.",
    ),
    "a profile that no GPU has": (
        site(1), gang(1, Shape(mig="1g.5gb")), Gate.SHAPE, True, None,
        "Never fits: no machine has a GPU that is cut, or may be cut, into 1g.5gb as a member of role w asks.",
    ),
    "more shares than fit": (
        site(1), gang(5, Shape(gpu_share=0.5), communicates=False), Gate.CONTIGUITY, True, ("gpu_share", 1.0),
        "Never fits: needs 5 shares; the empty cluster has 4. Fits now with 4 members.",
    ),
    "a device that no machine has": (
        site(1), gang(1, Shape(devices=(("dpu", 1),))), Gate.SHAPE, True, ("dpu", 1.0),
        "Never fits: a member of role w needs 1 dpu; the largest machine has 0.",
    ),
    "fewer devices than asked": (
        site(2), gang(3, Shape(devices=FPGA)), Gate.CONTIGUITY, True, ("fpga", 1.0),
        "Never fits: needs 3 fpga; the empty cluster has 2. Fits now with 2 members.",
    ),
    "more memory bandwidth than a machine has": (
        site(1), gang(1, Shape(memory_GBps=300)), Gate.SHAPE, True, ("memory_GBps", 100.0),
        "Never fits: a member of role w needs 300 GB/s of memory bandwidth; the largest machine has 200.",
    ),
    "spares": (
        site(4, spares=1), gang(3, Shape(gpus=2)), Gate.CONTIGUITY, True, None,
        "2 nodes are held back as spares",
    ),
    "too few leaves to spread over": (
        site(4), gang(3, Shape(gpus=1), topology=TopologySpec(spread=Spread("leaf", 1))),
        Gate.CONTIGUITY, True, ("members", 1.0),
        "Never fits: needs room for 3 members of role w, at most 1 in one leaf; so spread there is room for 2. "
        "Fits now with up to 2 members in one leaf.",
    ),
    "everything near others": (
        site(2, Allocation("chat-1", "n0", (0,))),
        gang(1, Shape(gpus=1), topology=TopologySpec(apart=(Apart("leaf", ("chat-*",)),))),
        Gate.ROOM, False, ("gpus", 1.0),
        "2 nodes are too near jobs to be apart from",
    ),
}  # fmt: skip


BUSY_CPUS = tuple(Allocation(f"old-{i}", f"n{i}", (0,), cpus=9) for i in range(2))


def worn(*broken: str, nodes: int = 2) -> Occupancy:
    """A site of which some nodes may not be used."""
    occupancy = site(nodes)
    for name in broken:
        occupancy.mark(name, usable=False)
    return occupancy


def models(*of_node: str, held: tuple[Allocation, ...] = ()) -> Occupancy:
    """Nodes of two GPUs each, of these models, one to a leaf."""
    machines = {model: replace(builders.machine(2), gpu=model) for model in of_node}
    nodes = tuple(Node(f"n{i}", model, (f"l{i}",)) for i, model in enumerate(of_node))
    return Occupancy(
        Fabric.build(Cluster("c", ("leaf", "node"), machines, nodes, allocations=held))
    )


def shared(*ways: str) -> Occupancy:
    """One node whose GPUs are shared in these ways."""
    node = Node("n0", "m", ("l0",), shares=ways)
    cluster = Cluster("c", ("leaf", "node"), {"m": builders.machine(2)}, (node,))
    return Occupancy(Fabric.build(cluster))


def cut_by_node() -> Occupancy:
    """One node whose manager cuts both GPUs at once; somebody has one of them."""
    node = Node("n0", "m", ("l0",), mig_by="node")
    held = (Allocation("old", "n0", (0,)),)
    cluster = Cluster("c", ("leaf", "node"), {"m": builders.machine(2)}, (node,), allocations=held)
    return Occupancy(Fabric.build(cluster))


Case = tuple[Occupancy, Job, str, tuple[str, float] | None, tuple[str, int] | None]
AWAY = TopologySpec(apart=(Apart("leaf", ("old*",)),))
CAUSES: dict[str, Case] = {
    "every node is a spare": (
        site(2, spares=2), gang(1, Shape(gpus=1)), "Never fits: every node (2) is held back as a spare.", None, None,
    ),
    "no node may be used": (
        worn("n0", "n1"), gang(1, Shape(gpus=1)), "Waiting: no node may be used.", ("gpus", 1), ("l0/n0", 0),
    ),
    "CPUs are short on every node with a GPU": (
        site(2, *BUSY_CPUS), gang(1, Shape(gpus=1, cpus=10)),
        "Waiting: a member of role w needs 10 CPUs; no node with room for the rest of it has more than 7 free.",
        ("cpus", 3), ("l0/n0", 0),
    ),
    "CPUs are short on every node and nothing else is asked": (
        site(2, *BUSY_CPUS), gang(1, Shape(cpus=10)),
        "Waiting: a member of role w needs 10 CPUs; no node has more than 7 free.", ("cpus", 3), ("l0/n0", 0),
    ),
    "members without GPUs that do not find room one by one": (
        site(2, *BUSY_CPUS), gang(3, Shape(cpus=4)),
        "Waiting: needs room for 3 members, each on one node; there is room for 2 of them.",
        ("members", 1), ("l0/n0", 1),
    ),
    "more memory than a GPU has": (
        site(1), gang(1, Shape(gpu_share=0.5, gpu_memory_GiB=90)),
        "Never fits: a member of role w needs a share of 90 GiB of GPU memory; "
        "the largest GPU that is shared so has 80.", ("gpu_memory_GiB", 10), None,
    ),
    "a way of sharing that the site does not have": (
        shared("mps"), gang(1, Shape(gpu_share=0.5, isolation="time-slicing")),
        "Never fits: a member of role w needs a share by time-slicing; GPUs are shared by mps only.", None, None,
    ),
    "no sharing at all": (
        shared(), gang(1, Shape(gpu_share=0.5)),
        "Never fits: a member of role w needs a share of a GPU; no GPU there is shared.", None, None,
    ),
    "a node that is cut as a whole and is in use": (
        cut_by_node(), gang(1, Shape(mig="3g.40gb")),
        "Waiting: needs 1 instance of 3g.40gb; 0 are free; a cut needs an empty node, and 1 node is in use.",
        ("3g.40gb", 1), ("l0/n0", 0),
    ),
    "the acceptable model is near others": (
        models("A100-80GB", "H100-80GB", held=(Allocation("old", "n1", (0,)),)),
        gang(1, Shape(gpus=1, models=("H100-80GB",)), topology=AWAY),
        "Waiting: needs 1 GPU; 0 of the 2 free GPUs far enough away are of an acceptable model; "
        "1 node is too near jobs to be apart from. Fits now if apart from nobody.", ("gpus", 1), ("l1/n1", 0),
    ),
    "nothing free on nodes of the acceptable model": (
        models("A100-80GB", "H100-80GB", held=(Allocation("old", "n1", (0, 1)),)),
        gang(1, Shape(gpus=1, models=("H100-80GB",))),
        "Waiting: needs 1 GPU; 0 of the 2 free GPUs are of an acceptable model.", ("gpus", 1), ("l1/n1", 0),
    ),
    "instances where whole GPUs are free": (
        site(1), gang(5, Shape(mig="3g.40gb"), communicates=False),
        "Never fits: needs 5 instances of 3g.40gb; the empty cluster has 4.", ("3g.40gb", 1), ("l0/n0", 4),
    ),
    "a spread gang": (
        site(4), gang(3, Shape(gpus=1), topology=TopologySpec(spread=Spread("node", 1), required="leaf")),
        "Never fits: needs 3 GPUs in one leaf; the empty cluster has 8, the roomiest, leaf l0, has 4, "
        "in pieces for 2 members.",
        ("members", 1), ("l0", 2),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CAUSES)
def test_refusals_name_the_cause_and_how_near_the_nearest_domain_came(name: str) -> None:
    occupancy, job, sentence, short, nearest = CAUSES[name]
    answer = refused(occupancy, job)
    assert answer.sentence.startswith(sentence)
    assert (answer.short_by and (answer.short_by.resource, answer.short_by.amount)) == short
    assert answer.nearest == nearest
    occupancy.check()


@pytest.mark.parametrize("name", TOLD)
def test_refusals_name_what_is_short_and_why_it_counts(name: str) -> None:
    occupancy, job, gate, never, short, sentence = TOLD[name]
    answer = refused(occupancy, job)
    found = answer.short_by and (answer.short_by.resource, answer.short_by.amount)
    assert sentence in answer.sentence
    assert (answer.gate, answer.never) == (gate, never)
    assert short is None or found == short
    occupancy.check()


def test_being_apart_is_let_go_where_nothing_else_helps() -> None:
    occupancy = site(2, Allocation("chat-1", "n0", (0,)))
    away = TopologySpec(apart=(Apart("leaf", ("chat-*",)), Apart("node", ("train",))))
    answer = refused(occupancy, gang(1, Shape(gpus=1), topology=away))
    assert [dict(r.patch) for r in answer.would_fit_if] == [
        {"topology.apart": (Apart("node", ("train",)),)}
    ]
    assert answer.sentence.endswith("Fits now if apart from train only.")


def test_what_waits_for_parts_and_devices_wakes_on_them() -> None:
    occupancy = site(1, Allocation("old", "n0", (0, 1), devices=FPGA))
    assert refused(occupancy, gang(1, Shape(mig="1g.10gb"))).wakes_on == ("1g.10gb",)
    assert refused(occupancy, gang(1, Shape(gpus=1, devices=FPGA))).wakes_on == ("gpus", "fpga")


def test_roles_that_share_a_device_of_a_node_are_counted_together() -> None:
    roles = (Role("a", 1, Shape(gpus=1, devices=FPGA)), Role("b", 1, Shape(cpus=4, devices=FPGA)))
    both = Job("x", roles)
    answer = place(site(2), both)
    assert isinstance(answer, Placement)
    assert [member.node for member in answer.members] == ["n0", "n1"]
    on_one = refused(site(2), replace(both, topology=TopologySpec(required="node")))
    assert [dict(r.patch) for r in on_one.would_fit_if] == [{"topology.required": "leaf"}]


def test_what_the_empty_fabric_holds_is_remembered_and_stays_true() -> None:
    occupancy = drawn("l0: n0 aa.. n1 aaaa")
    assert not refused(occupancy, gang(4, Shape(gpus=2))).never
    assert refused(occupancy, gang(5, Shape(gpus=2))).never
    occupancy.take("b", (MemberPlacement("w", 0, "n0", (2, 3)),))
    assert not refused(occupancy, gang(4, Shape(gpus=2))).never
    kept = OnEmpty.of(occupancy)
    kept.check(occupancy.emptied())
    assert OnEmpty.of(occupancy.copy()) is kept


# ----- whatever is asked


def any_shape(rng: Random) -> Shape:
    return rng.choice(
        [
            Shape(gpus=1), Shape(gpus=2), Shape(gpus=1, devices=FPGA), Shape(devices=FPGA, cpus=4),
            Shape(mig="1g.10gb"), Shape(mig="3g.40gb"), Shape(mig="1g.10gb", cpus=6), Shape(gpu_share=0.4),
            Shape(gpu_share=0.4, neighbours=True), Shape(gpu_memory_GiB=30), Shape(gpus=1, memory_GBps=60),
        ]
    )  # fmt: skip


def any_job(rng: Random) -> Job:
    topology = TopologySpec(
        required=rng.choice([None, None, "leaf", "node"]),
        slices=(Slices(2, rng.choice(["leaf", "node"]), preferred=rng.random() < 0.5),) * rng.randint(0, 1),
        spread=rng.choice([None, None, Spread("leaf", 2), Spread("node", 1), Spread("node"), Spread("gpu")]),
        apart=rng.choice([(), (), (Apart(rng.choice(["leaf", "node"]), ("old*",)),)]),
    )  # fmt: skip
    roles = tuple(
        Role(name, rng.randint(1, 6), any_shape(rng)) for name in ("a", "b")[: rng.randint(1, 2)]
    )
    elastic = Elastic(2, 8) if rng.random() < 0.2 else None
    return Job("x", roles, topology=topology, communicates=rng.random() < 0.6, elastic=elastic)


@settings(max_examples=examples(75), deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_whatever_is_asked_is_placed_rightly_or_refused_with_advice_that_holds(seed: int) -> None:
    rng = Random(seed)
    held = [
        Allocation(f"old-{node}", f"n{node}", tuple(range(rng.randint(1, 2))), devices=FPGA)
        for node in range(4)
        if rng.random() < 0.4
    ]
    occupancy = site(4, *held, spares=rng.randint(0, 1))
    for number in range(3):
        job = any_job(rng)
        answer = place(occupancy, job)
        assert fits(occupancy, job) == isinstance(answer, Placement)
        if isinstance(answer, Placement):
            assert problems_of(occupancy, job, answer) == []
            occupancy.take(f"{number}:old-{number}", answer.members)
            continue
        assert answer.never == (not fits(occupancy.emptied(), job))
        for relaxation in answer.would_fit_if:
            looser = relaxed(job, relaxation.patch)
            found = place(occupancy, looser)
            assert isinstance(found, Placement), relaxation
            assert problems_of(occupancy, looser, found) == []
    occupancy.check()


def test_a_member_too_large_for_every_machine_is_told_before_a_wish_that_contradicts_itself() -> (
    None
):
    job = gang(3, Shape(gpus=4), topology=TopologySpec(slices=(Slices(2, "leaf"),)))
    answer = refused(site(), job)
    assert (answer.gate, answer.never) == (Gate.SHAPE, True)
    assert answer.short_by is not None
    assert (answer.short_by.resource, answer.short_by.amount) == ("gpus", 2)
