"""Where gangs go, as pictures: before, the job, after."""

from dataclasses import replace

import pytest

from gantree.model.cluster import Allocation, Cluster, Machine, Nic, NicFacts, Node
from gantree.model.errors import BadInput
from gantree.model.jobs import Job, Role, Shape, Slices, TopologySpec
from gantree.model.node_rules import TOLERATES_LABEL, Taint
from gantree.model.placements import Domain, Placement
from gantree.model.verdicts import Gate, Refused, Shortage
from gantree.placement.choice.search import fits, place, signature
from gantree.testing import builders
from gantree.testing.builders import job
from gantree.testing.pictures import drawn, picture_of
from gantree.testing.placement_checker import problems_of
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy


def two_roles(one: int, other: int) -> Job:
    """A gang of two roles whose members have one GPU each."""
    return Job("x", (Role("one", one, Shape(gpus=1)), Role("other", other, Shape(gpus=1))))


TABLE = {
    "a broken-up node is used before a whole one": (
        job("x", 1, 4),
        """s0/l0: n0 ........ n1 aaaa....""",
        """s0/l0: n0 ........ n1 aaaaxxxx""",
    ),
    "the tightest hole is used": (
        job("x", 1, 2),
        """s0/l0: n0 aa...... n1 aaaaaa.. n2 aaaa....""",
        """s0/l0: n0 aa...... n1 aaaaaaxx n2 aaaa....""",
    ),
    "a broken-up leaf is used before a whole one": (
        job("x", 1, 8),
        """s0/l0: n0 ........ n1 ........
           s0/l1: n2 aaaaaaaa n3 ........""",
        """s0/l0: n0 ........ n1 ........
           s0/l1: n2 aaaaaaaa n3 xxxxxxxx""",
    ),
    "two members stay in one leaf though each leaf has a free node": (
        job("x", 2, 8),
        """s0/l0: n0 aaaaaaaa n1 ........
           s0/l1: n2 ........ n3 ........""",
        """s0/l0: n0 aaaaaaaa n1 ........
           s0/l1: n2 xxxxxxxx n3 xxxxxxxx""",
    ),
    "one spine and more leaves come before two spines and fewer nodes": (
        job("x", 4, 2),
        """s0/l0: n0 aaaa.... n1 aaaaaaaa
           s0/l1: n2 aaaaaa.. n3 aaaaaa..
           s1/l2: n4 aaaa.... n5 aaaaaaaa""",
        """s0/l0: n0 aaaaxxxx n1 aaaaaaaa
           s0/l1: n2 aaaaaaxx n3 aaaaaaxx
           s1/l2: n4 aaaa.... n5 aaaaaaaa""",
    ),
    "slices of two share a node, so holes of one are passed over": (
        job("x", 4, 2, slices=(2, "node")),
        """s0/l0: n0 aaaaaa.. n1 aaaaaa.. n2 ........
           s0/l1: n3 aaaa.... n4 aaaa....""",
        """s0/l0: n0 aaaaaa.. n1 aaaaaa.. n2 xxxxxxxx
           s0/l1: n3 aaaa.... n4 aaaa....""",
    ),
    "a node that may not be used is passed over": (
        job("x", 1, 8),
        """s0/l0: n0! ........ n1 ........""",
        """s0/l0: n0! ........ n1 xxxxxxxx""",
    ),
    "equal nodes are taken in topology order": (
        job("x", 2, 8),
        """s0/l0: n0 ........ n1 ........ n2 ........""",
        """s0/l0: n0 xxxxxxxx n1 xxxxxxxx n2 ........""",
    ),
    "of as few nodes those that leave least free are taken": (
        job("x", 12, 1),
        """s0/l0: n0 ........ n1 ........ n2 aa...... n3 aa......""",
        """s0/l0: n0 ........ n1 ........ n2 aaxxxxxx n3 aaxxxxxx""",
    ),
    "slices of two keep to leaves even where other splits would take fewer nodes": (
        job("x", 6, 1, slices=(2, "leaf")),
        """s0/l0: n0 aaaaa... n1 aaaaaaa.
           s0/l1: n2 aaaaa... n3 aaaaaaa.""",
        """s0/l0: n0 aaaaaxxx n1 aaaaaaax
           s0/l1: n2 aaaaaxx. n3 aaaaaaa.""",
    ),
    "the leaf of fewest nodes is taken, not the fullest": (
        job("x", 4, 2),
        """s0/l0: n0 aaaaaa.. n1 aaaaaa.. n2 aaaaaa.. n3 aaaaaa..
           s0/l1: n4 aaaa.... n5 aaaa.... n6 aaaaaaa.""",
        """s0/l0: n0 aaaaaa.. n1 aaaaaa.. n2 aaaaaa.. n3 aaaaaa..
           s0/l1: n4 aaaaxxxx n5 aaaaxxxx n6 aaaaaaa.""",
    ),
    "of leaves of as few nodes the one that leaves least behind is taken, not the fullest": (
        job("x", 3, 4),
        """s0/l0: n0 ........ n1 a.......
           s0/l1: n2 ........ n3 aaaa.... n4 aa......""",
        """s0/l0: n0 ........ n1 a.......
           s0/l1: n2 xxxxxxxx n3 aaaaxxxx n4 aa......""",
    ),
    "the spine of fewest nodes is taken though another could have been as good": (
        job("x", 8, 1),
        """s0/l0: n0 aaa. n1 aaa. n2 aaa. n3 aaa.
           s0/l1: n4 aaa. n5 aaa. n6 aaa. n7 aaa.
           s0/l2: n8 a...
           s0/l3: n9 a...
           s1/l4: m0 aa.. m1 aa..
           s1/l5: m2 aa.. m3 aa..""",
        """s0/l0: n0 aaa. n1 aaa. n2 aaa. n3 aaa.
           s0/l1: n4 aaa. n5 aaa. n6 aaa. n7 aaa.
           s0/l2: n8 a...
           s0/l3: n9 a...
           s1/l4: m0 aaxx m1 aaxx
           s1/l5: m2 aaxx m3 aaxx""",
    ),
    "a spine whose nodes seen alone could be fewer, but not in as few leaves, is passed over": (
        job("x", 8, 1),
        """s0/l0: n0 aaa. n1 aaa. n2 aaa. n3 aaa.
           s0/l1: n4 aaa. n5 aaa. n6 aaa. n7 aaa.
           s0/l2: n8 a...
           s0/l3: n9 a...
           s0/l4: k0 a...
           s1/l5: m0 aa.. m1 aa..
           s1/l6: m2 aa.. m3 aa..""",
        """s0/l0: n0 aaa. n1 aaa. n2 aaa. n3 aaa.
           s0/l1: n4 aaa. n5 aaa. n6 aaa. n7 aaa.
           s0/l2: n8 a...
           s0/l3: n9 a...
           s0/l4: k0 a...
           s1/l5: m0 aaxx m1 aaxx
           s1/l6: m2 aaxx m3 aaxx""",
    ),
    "with two roles, too, fewer leaves come before fewer nodes": (
        two_roles(4, 2),
        """s0/l0: n0 aaa. n1 aaa. n2 aaa.
           s0/l1: n3 aaa. n4 aaa. n5 aaa.
           s0/l2: n6 aa..
           s0/l3: n7 aa..
           s0/l4: n8 aa..""",
        """s0/l0: n0 aaax n1 aaax n2 aaax
           s0/l1: n3 aaax n4 aaax n5 aaax
           s0/l2: n6 aa..
           s0/l3: n7 aa..
           s0/l4: n8 aa..""",
    ),
    "with two roles, too, equal nodes are taken in topology order": (
        two_roles(4, 4),
        """s0/l0: n0 .... n1 .... n2 ....""",
        """s0/l0: n0 xxxx n1 xxxx n2 ....""",
    ),
}


def rows(picture: str) -> list[str]:
    return [line.strip() for line in picture.strip().splitlines()]


@pytest.mark.parametrize("name", TABLE)
def test_gangs_go_where_the_table_says(name: str) -> None:
    wanted, before, after = TABLE[name]
    occupancy = drawn(before)
    answer = place(occupancy, wanted)
    assert isinstance(answer, Placement)
    assert problems_of(occupancy, wanted, answer) == []
    occupancy.take("x", answer.members)
    assert rows(picture_of(occupancy)) == rows(after)
    occupancy.check()


def test_ranks_follow_the_topology_and_the_domain_is_the_narrowest_that_holds_all() -> None:
    occupancy = drawn("s0/l0: n0 aaaaaaaa n1 ........\ns0/l1: n2 ........ n3 aaaaaaaa")
    answer = place(occupancy, job("x", 2, 8))
    assert isinstance(answer, Placement)
    assert [(m.rank, m.node) for m in answer.members] == [(0, "n1"), (1, "n2")]
    assert answer.domain == Domain("spine", "s0")
    assert dict(answer.predicted.crossings) == {"spine": 0, "leaf": 2, "node": 2}


def pairs4() -> Machine:
    """Four GPUs, bridged in pairs across the sockets' own numbering."""
    links = (
        ("X", "NODE", "NV4", "SYS"),
        ("NODE", "X", "SYS", "NV4"),
        ("NV4", "SYS", "X", "NODE"),
        ("SYS", "NV4", "NODE", "X"),
    )
    nics = (Nic("mlx5_0", (0, 1), 0), Nic("mlx5_1", (2, 3), 1))
    return Machine("m4", 4, "A6000-48GB", links, (0, 0, 1, 1), nics, 64.0)


def on_pairs(wanted: Job, picture: str = "l0: n0 .... n1 ....") -> Placement | Refused:
    return place(drawn(picture, like=pairs4()), wanted)


def test_two_gpus_on_bridged_pairs_are_a_bridged_pair() -> None:
    answer = on_pairs(job("x", 1, 2))
    assert isinstance(answer, Placement)
    assert sorted(answer.members[0].gpus) in ([0, 2], [1, 3])


def test_members_of_one_gpu_share_a_bridge_too() -> None:
    answer = on_pairs(job("x", 2, 1))
    assert isinstance(answer, Placement)
    assert sorted(gpu for member in answer.members for gpu in member.gpus) in ([0, 2], [1, 3])


INSIDE = {
    "a pair fits one NVLink domain": (job("x", 2, 1, required="nvlink"), True),
    "three do not": (job("x", 3, 1, required="nvlink"), False),
    "two fit one socket": (job("x", 2, 1, required="socket"), True),
    "slices of two in NVLink domains fit a node twice": (
        job("x", 4, 1, required="node", slices=(2, "nvlink")), True,
    ),
    "one GPU each is always within one": (job("x", 8, 1, slices=(1, "gpu")), True),
    "a member of two GPUs fits no domain of one": (job("x", 1, 2, required="gpu"), False),
}  # fmt: skip


@pytest.mark.parametrize("name", INSIDE)
def test_tiers_inside_the_node_bind(name: str) -> None:
    wanted, placed = INSIDE[name]
    assert isinstance(on_pairs(wanted), Placement) == placed


def test_slices_inside_the_node_are_consecutive_ranks_of_one_domain() -> None:
    answer = on_pairs(job("x", 4, 1, required="node", slices=(2, "nvlink")))
    assert isinstance(answer, Placement)
    gpus = [member.gpus[0] for member in answer.members]
    assert {frozenset(gpus[:2]), frozenset(gpus[2:])} == {frozenset({0, 2}), frozenset({1, 3})}


def test_roles_with_different_wishes_inside_one_node_are_packed_together() -> None:
    bound = Role("bound", 1, Shape(gpus=2), topology=TopologySpec(required="nvlink"))
    free = Role("free", 2, Shape(gpus=1))
    wanted = Job("x", (free, bound), topology=TopologySpec(required="node"))
    answer = on_pairs(wanted)
    assert isinstance(answer, Placement)
    assert set(answer.members[2].gpus) in ({0, 2}, {1, 3})
    assert isinstance(on_pairs(wanted, "l0: n0 aa.. n1 aaa."), Refused)


def test_nics_are_the_nearest_and_none_is_given_twice() -> None:
    answer = on_pairs(Job("x", (Role("w", 2, Shape(gpus=1, nics=1)),)))
    assert isinstance(answer, Placement)
    assert sorted(nic for member in answer.members for nic in member.nics) == ["mlx5_0", "mlx5_1"]
    third = on_pairs(
        Job("x", (Role("w", 3, Shape(gpus=1, nics=1)),), topology=TopologySpec("node"))
    )
    assert isinstance(third, Refused)


def two_models() -> Occupancy:
    machines = {"a": Machine("a", 8, "A100-80GB"), "h": Machine("h", 8, "H100-80GB")}
    names = "aaah"
    nodes = tuple(Node(f"n{i}", name, (f"l{i // 2}",)) for i, name in enumerate(names))
    return Occupancy(Fabric.build(Cluster("two", ("leaf", "node"), machines, nodes)))


MODELS = {
    "the best model alone": ((1, ("H100-80GB", "A100-80GB")), ["n3"]),
    "a worse one alone where the best does not fit": (
        (3, ("H100-80GB", "A100-80GB")),
        ["n0", "n1", "n2"],
    ),
    "a mix as the last resort": ((4, ("H100-80GB", "A100-80GB")), ["n0", "n1", "n2", "n3"]),
    "any mix where none is named": ((2, ()), ["n0", "n1"]),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_are_tried_alone_best_first(name: str) -> None:
    (members, models), nodes = MODELS[name]
    answer = place(two_models(), Job("x", (Role("w", members, Shape(gpus=8, models=models)),)))
    assert isinstance(answer, Placement)
    assert [member.node for member in answer.members] == nodes


def test_cpus_bind_members_that_share_a_node() -> None:
    wanted = Job("x", (Role("w", 3, Shape(gpus=1, cpus=30)),), topology=TopologySpec("node"))
    answer = on_pairs(wanted)
    assert isinstance(answer, Refused)
    assert isinstance(on_pairs(replace(wanted, topology=TopologySpec())), Placement)


@pytest.mark.parametrize(
    "topology",
    [
        TopologySpec(required="rack"),
        TopologySpec(preferred="rack"),
        TopologySpec(slices=(Slices(1, "rack"),)),
        TopologySpec(slices=(Slices(1, "leaf", "nobody"),)),
    ],
)
def test_tiers_and_roles_that_are_not_there_are_bad_input(topology: TopologySpec) -> None:
    with pytest.raises(BadInput, match="allowed"):
        fits(drawn("l0: n0 ...."), replace(job("x"), topology=topology))


def test_the_signature_leaves_out_what_no_verdict_depends_on() -> None:
    one = job("one", 2, 4, required="leaf", preferred="node", priority=3)
    same = job("two", 2, 4, required="leaf", priority=9)
    assert signature(one) == signature(same)
    assert signature(one) != signature(job("one", 2, 4))
    assert signature(one) != signature(job("one", 2, 3, required="leaf"))


REFUSALS = {
    "a member larger than every machine": (job("x", 1, 16), "l0: n0 ........", Gate.SHAPE, True, ("gpus", 8)),
    "fewer are free than asked": (job("x", 1, 8), "l0: n0 aa......", Gate.ROOM, False, ("gpus", 2)),
    "enough are free, in two leaves": (
        job("x", 2, 8, required="leaf"), "l0: n0 ........ n1 aaaaaaaa\nl1: n2 ........ n3 aaaaaaaa",
        Gate.CONTIGUITY, False, ("gpus", 8),
    ),
    "enough are free, on two nodes": (
        job("x", 1, 8), "l0: n0 aa...... n1 aaaa....", Gate.CONTIGUITY, False, ("gpus", 2),
    ),
    "the gang is larger than the empty cluster": (
        job("x", 3, 8), "l0: n0 ........ n1 ........", Gate.CONTIGUITY, True, ("gpus", 8),
    ),
    "the gang is larger than every leaf": (
        job("x", 2, 8, required="leaf"), "l0: n0 ........\nl1: n1 ........", Gate.CONTIGUITY, True, ("gpus", 8),
    ),
    "members that do not divide into slices": (
        job("x", 3, 1, slices=(2, "node")), "l0: n0 ........", Gate.CONTIGUITY, True, None,
    ),
    "all that is free may not be used": (job("x", 1, 8), "l0: n0! ........", Gate.ROOM, False, ("gpus", 8)),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_name_the_first_gate_and_what_is_short(name: str) -> None:
    wanted, picture, gate, never, short = REFUSALS[name]
    answer = place(drawn(picture), wanted)
    assert isinstance(answer, Refused)
    found = answer.short_by and (answer.short_by.resource, answer.short_by.amount)
    assert (answer.gate, answer.never, found) == (gate, never, short)


def test_a_refusal_says_in_one_sentence_what_is_missing_and_what_helps() -> None:
    picture = "s0/l0: n0 ........ n1 aaaaaa..\ns0/l1: n2 ........ n3 aaaaaaaa"
    answer = place(drawn(picture), job("x", 2, 8, required="leaf"))
    assert isinstance(answer, Refused)
    assert answer.sentence.startswith(
        "Waiting: needs 16 GPUs in one leaf; 18 are free, the roomiest, leaf s0/l0, has 10. "
        "Fits now if relaxed to spine, at +"
    )
    assert [dict(r.patch) for r in answer.would_fit_if] == [
        {"topology.required": "spine"},
        {"members": 1},
    ]
    assert answer.nearest == ("s0/l0", 10)
    assert answer.wakes_on == ("gpus",)


def with_nic_health(health: float) -> Occupancy:
    """Two nodes of 4 GPUs and 2 NICs; mlx5_0 of n0 has this health."""
    site = builders.cluster(leaves=1, nodes=2, gpus=4, nics=2)
    facts = (NicFacts("n0", "mlx5_0", health=health),)
    return Occupancy(Fabric.build(replace(site, nics=facts)))


def test_a_broken_nic_is_handed_to_nobody() -> None:
    occupancy = with_nic_health(0)
    answer = place(occupancy, Job("x", (Role("w", 3, Shape(gpus=1, nics=1)),)))
    assert isinstance(answer, Placement)
    held = sorted((member.node, *member.nics) for member in answer.members)
    assert held == [("n0", "mlx5_1"), ("n1", "mlx5_0"), ("n1", "mlx5_1")]


def test_refusals_count_without_broken_nics_and_wait_for_their_repair() -> None:
    four = Job("x", (Role("w", 4, Shape(gpus=1, nics=1)),))
    assert isinstance(place(with_nic_health(0.1), four), Placement)
    answer = place(with_nic_health(0), four)
    assert isinstance(answer, Refused)
    assert (answer.gate, answer.never) == (Gate.ROOM, False)
    assert answer.sentence == "Waiting: needs 4 NICs; 3 are free. Fits now with 3 members."


A100 = ("A100-80GB",)
POOL_A = (("pool", "a"),)


def test_a_member_that_finds_too_few_whole_nics_on_every_node_is_told_so() -> None:
    site = builders.cluster(leaves=1, nodes=2, gpus=4, nics=2)
    facts = tuple(NicFacts(node, "mlx5_0", health=0) for node in ("n0", "n1"))
    occupancy = Occupancy(Fabric.build(replace(site, nics=facts)))
    answer = place(occupancy, Job("x", (Role("w", 1, Shape(gpus=1, nics=2)),)))
    assert isinstance(answer, Refused)
    assert (answer.gate, answer.never) == (Gate.CONTIGUITY, False)
    assert answer.sentence == (
        "Waiting: a member of role w needs 2 NICs; no node with room for the rest of it has more than 1 free."
    )
    assert answer.short_by == Shortage("nics", 1)


def three_kinds(*allocations: Allocation) -> Occupancy:
    """Three nodes of 8 GPUs: two H100 (one of pool a), one A100 of pool a; and one H100 of 2 GPUs."""
    machines = {
        name: replace(builders.machine(gpus), name=name, gpu=gpu)
        for name, gpus, gpu in (("h", 8, "H100-80GB"), ("a", 8, "A100-80GB"), ("s", 2, "H100-80GB"))
    }
    nodes = (
        Node("n0", "h"), Node("n1", "h", labels=POOL_A), Node("n2", "a", labels=POOL_A), Node("n3", "s"),
    )  # fmt: skip
    return Occupancy(
        Fabric.build(Cluster("c", ("node",), machines, nodes, allocations=allocations))
    )


@pytest.mark.parametrize(
    ("members", "shape", "told"),
    [
        (5, Shape(gpus=4, models=A100),
         "Never fits: needs 20 GPUs; 8 of the empty cluster's 26 GPUs are of an acceptable model."),
        (2, Shape(gpus=4, models=A100), "Waiting: needs 8 GPUs; 7 of the 24 free GPUs are of an acceptable model."),
        (2, Shape(gpus=8, labels=POOL_A), "Waiting: needs 16 GPUs; 15 of the 24 free GPUs are of an acceptable label."),
        (1, Shape(gpus=8, models=A100, labels=POOL_A),
         "Waiting: needs 8 GPUs; 7 of the 24 free GPUs are of an acceptable model and label."),
        (3, Shape(gpus=8), "Waiting: needs 24 GPUs; 22 of the 24 free GPUs are in machines large enough for a member."),
        (2, Shape(gpus=8, models=("H100-80GB",)),
         "Waiting: needs 16 GPUs; 15 of the 24 free GPUs are of an acceptable model, "
         "in machines large enough for a member."),
        (25, Shape(gpus=1), "Waiting: needs 25 GPUs; 24 are free."),
    ],
)  # fmt: skip
def test_a_refusal_tells_which_of_the_free_gpus_count(
    members: int, shape: Shape, told: str
) -> None:
    occupancy = three_kinds(Allocation("old", "n2", (0,)), Allocation("old", "n0", (0,)))
    answer = place(occupancy, Job("x", (Role("w", members, shape),)))
    assert isinstance(answer, Refused)
    assert answer.sentence.partition(" Fits now")[0] == told


@pytest.mark.parametrize(
    ("gpus", "tainted", "told"),
    [
        (8, ("n1",), "Never fits: a member of role w needs 8 GPUs; the largest machine has 4."),
        (8, ("n0", "n1"), "Never fits: every node has a taint that role w does not tolerate."),
        (
            3,
            ("n1",),
            "Never fits: needs 6 GPUs; 4 of the empty cluster's 8 GPUs are of an acceptable taint.",
        ),
    ],
)
def test_what_a_job_tolerates_is_not_told_as_a_label_that_it_asks_for(
    gpus: int, tainted: tuple[str, ...], told: str
) -> None:
    taint = (Taint("busy", "", "NoSchedule"),)
    nodes = tuple(Node(n, "m", taints=taint if n in tainted else ()) for n in ("n0", "n1"))
    fabric = Fabric.build(Cluster("c", ("node",), {"m": builders.machine(4)}, nodes))
    shape = Shape(gpus=gpus, labels=((TOLERATES_LABEL, "other:NoExecute"),))
    answer = place(Occupancy(fabric), Job("x", (Role("w", 2, shape),)))
    assert isinstance(answer, Refused)
    assert answer.sentence.partition(" Fits now")[0] == told


def test_a_refusal_names_the_device_that_machines_with_free_gpus_lack() -> None:
    h100 = builders.machine(4)
    card = replace(h100, name="card", devices=(("card", 1),))
    machines = {"plain": replace(h100, name="plain"), "card": card}
    nodes = (Node("n0", "plain"), Node("n1", "card"))
    taken = (Allocation("old", "n1", (0, 1, 2, 3)),)
    fabric = Fabric.build(Cluster("c", ("node",), machines, nodes, allocations=taken))
    shape = Shape(gpus=1, devices=(("card", 1),))
    answer = place(Occupancy(fabric), Job("x", (Role("w", 1, shape),)))
    assert isinstance(answer, Refused)
    told = "Waiting: needs 1 GPU; 0 of the 4 free GPUs are in machines with enough card."
    assert answer.sentence.partition(" Fits now")[0] == told


def test_nics_that_the_site_did_not_state_are_not_counted_and_not_named() -> None:
    unstated = replace(builders.machine(4), nics_counted=False)
    site = replace(
        builders.cluster(leaves=1, nodes=1, gpus=4),
        machines={"m": unstated},
        allocations=(Allocation("old", "n0", (0,), nics=2),),
    )
    occupancy = Occupancy(Fabric.build(site))
    request = Job("x", (Role("w", 3, Shape(gpus=1, nics=8)),))
    answer = place(occupancy, request)
    assert isinstance(answer, Placement)
    assert {member.nics for member in answer.members} == {()}
    occupancy.take("x", answer.members)
    occupancy.check()


def test_a_preferred_gpu_model_does_not_scatter_members_without_gpus() -> None:
    machines = {name: replace(builders.machine(2, name=name), gpu=name) for name in ("A", "B")}
    nodes = (Node("n0", "A", ("s0", "l0")), Node("n1", "B", ("s0", "l0")))
    site = replace(builders.cluster(), machines=machines, nodes=nodes)
    launcher = Role("launcher", 1, Shape(models=("B", "A")))
    worker = Role("worker", 1, Shape(gpus=2, models=("A",)))
    answer = place(Occupancy(Fabric.build(site)), Job("x", (launcher, worker)))
    assert isinstance(answer, Placement)
    assert [member.node for member in answer.members] == ["n0", "n0"]
