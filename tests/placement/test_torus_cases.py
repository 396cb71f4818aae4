"""Slices of tori, case by case: pictures, pods as they are sold, joined cubes, refusals word by word."""

from dataclasses import replace
from math import prod

import pytest

from gantree.model.cluster import Cluster, Machine, Mig, Nic, Node
from gantree.model.errors import BadInput, Unsupported
from gantree.model.jobs import Apart, Job, Role, Shape, Slices, TopologySpec
from gantree.model.placements import MemberPlacement, Placement
from gantree.model.verdicts import Gate, Refused
from gantree.placement.torus.torus import find_on_torus, fits_on_torus, place_on_torus
from gantree.testing.placement_checker import problems_of
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.fabric.tori import tori_of
from gantree.topology.occupancy.occupancy import Occupancy
from support.tori import drawn_torus, job_on_box, patched, pods, site_of, torus

Sides = tuple[int, ...]


def picture_after(occupancy: Occupancy, asked: Job) -> str:
    """The torus of a picture with a job placed on it, which is judged first."""
    placement = place_on_torus(occupancy, asked)
    assert isinstance(placement, Placement), placement
    assert problems_of(occupancy, asked, placement) == []
    occupancy.take(asked.name, placement.members)
    occupancy.check()
    (index,) = tori_of(occupancy.fabric)
    holders = [occupancy.holder_of_gpu(name, 0) or "." for name in index.torus.nodes]
    usable = [occupancy.usable(name) for name in index.torus.nodes]
    letters = ["!" if not ok else who[0] for who, ok in zip(holders, usable, strict=True)]
    side = index.torus.dims[1]
    return "\n".join("".join(letters[at : at + side]) for at in range(0, len(letters), side))


def lines(picture: str) -> str:
    return "\n".join(picture.split())


# ----- cases


def test_a_box_goes_where_the_largest_boxes_stay_whole() -> None:
    before = drawn_torus(
        """aa....
           aa....
           ......
           ......""",
        wrap=(False, False),
    )
    assert picture_after(before, job_on_box((2, 2), 4)) == lines(
        """aa....
           aa....
           gg....
           gg...."""
    )


def test_a_box_reaches_over_the_seam_of_an_axis_that_closes_and_only_there() -> None:
    picture = """.aa.
                 .aa.
                 aaaa"""
    assert picture_after(drawn_torus(picture), job_on_box((2, 2), 4)) == lines(
        """gaag
           gaag
           aaaa"""
    )
    open_ = drawn_torus(picture, wrap=(True, False))
    answer = place_on_torus(open_, job_on_box((2, 2), 4))
    assert isinstance(answer, Refused) and answer.gate is Gate.CONTIGUITY
    assert answer.sentence == (
        "Waiting: needs a box of 2x2 that is free on one torus; 4 GPUs are free on tori; the largest smaller box that "
        "is free is 2x1. Fits now as a box of 2x1 and with 2 members."
    )
    assert answer.nearest == ("t", 4) and answer.wakes_on == ("gpus",)


def test_nodes_that_may_not_be_used_are_gone_around_and_counted_out() -> None:
    before = drawn_torus("!..!..\n......")
    assert picture_after(before, job_on_box((2, 2), 4)).count("g") == 4
    room = place_on_torus(drawn_torus("!!a.\n!!a."), job_on_box((2, 2), 4))
    assert isinstance(room, Refused) and room.gate is Gate.ROOM
    assert room.short_by is not None and (room.short_by.resource, room.short_by.amount) == (
        "gpus",
        2,
    )
    assert room.wakes_on == ("gpus", "nodes")


def test_any_box_is_the_most_compact_that_is_free() -> None:
    assert picture_after(
        drawn_torus("....\n....\n....\n....", (False, False)), job_on_box((), 4)
    ) == lines("gg.. gg.. .... ....")
    assert picture_after(
        drawn_torus("a.a.\n.a.a\na.a.\n....", (False, False)), job_on_box((), 4)
    ) == lines("a.a. .a.a a.a. gggg")


V5E = "tpu-v5e-host"
V5P = "tpu-v5p-host"


def held_by(found: Placement | Refused) -> dict[str, tuple[int, ...]]:
    assert isinstance(found, Placement), found
    return found.gpus_of_node()


def take(occupancy: Occupancy, name: str, box: Sides, members: int, gpus: int) -> Placement:
    found = find_on_torus(occupancy, job_on_box(box, members, gpus, name))
    assert found is not None
    occupancy.take(name, found.members)
    return found


def test_parts_of_a_host_fill_broken_hosts_before_whole_ones_and_broken_pods_before_whole() -> None:
    occupancy = Occupancy(pods(V5E, (16, 16), (2, 4), 2))
    first = take(occupancy, "one", (1, 1), 1, 1)
    assert held_by(first) == {"pod0-0": (0,)}
    assert held_by(take(occupancy, "four", (2, 2), 1, 4)) == {"pod0-0": (2, 3, 6, 7)}
    assert held_by(take(occupancy, "two more", (1, 1), 1, 1)) == {"pod0-0": (1,)}
    half = take(occupancy, "half", (8, 16), 16, 8)
    assert {member.node.partition("-")[0] for member in half.members} == {"pod0"}
    assert half.domain.name == "pod0-"
    whole = take(occupancy, "whole", (16, 16), 32, 8)
    assert {member.node.partition("-")[0] for member in whole.members} == {"pod1"}
    occupancy.check()


def test_members_of_half_a_host_have_square_parts_of_it() -> None:
    occupancy = Occupancy(pods(V5E, (16, 16), (2, 4), 1))
    found = take(occupancy, "halves", (4, 4), 4, 4)
    assert [(member.node, member.gpus) for member in found.members] == [
        ("pod0-0", (0, 1, 4, 5)),
        ("pod0-0", (2, 3, 6, 7)),
        ("pod0-4", (0, 1, 4, 5)),
        ("pod0-4", (2, 3, 6, 7)),
    ]


def test_members_on_one_host_have_nics_of_their_own_and_numa_nodes_near_them() -> None:
    occupancy = Occupancy(pods(V5E, (16, 16), (2, 4), 1))
    asked = job_on_box((2, 4), 2, 4, nics=1, memory_GiB=100)
    found = place_on_torus(occupancy, asked)
    assert isinstance(found, Placement) and problems_of(occupancy, asked, found) == []
    assert {member.node for member in found.members} == {"pod0-0"}
    assert len({member.nics for member in found.members}) == 2
    occupancy.take("g", found.members)
    occupancy.check()


def test_members_on_one_host_share_out_its_numa_nodes() -> None:
    model = Machine("m", 2, "X", numa=(0, 1), cpus=16, memory_GiB=64)
    made = torus("t", (2,), (2,))
    both_on_0 = replace(model, numa=(0, 0), nics=(Nic("a", (0,)), Nic("b", (1,))))
    for machine_, expected in ((model, [(0,), (1,)]), (both_on_0, [(0,), (0,)])):
        occupancy = Occupancy(site_of(made, model=machine_))
        found = find_on_torus(occupancy, job_on_box((2,), 2, 1, cpus=4))
        assert found is not None
        homes = [tuple(part.numa or 0 for part in member.numa) for member in found.members]
        assert [home or (0,) for home in homes] == expected
    uneven = Machine("m", 4, "X", numa=(0, 0, 0, 1), cpus=16, memory_GiB=64)
    occupancy = Occupancy(site_of(torus("t", (4,), (4,)), model=uneven))
    crowded = find_on_torus(occupancy, job_on_box((4,), 4, 1, memory_GiB=12))
    assert crowded is not None
    on_0 = [p.memory_GiB for m in crowded.members for p in m.numa if p.numa == 0]
    assert sum(on_0) <= 32, "what NUMA node 0 has"
    occupancy.take("g", crowded.members)
    occupancy.check()


def test_hosts_with_a_gpu_that_is_cut_are_left_out() -> None:
    made = torus("t", (8,), (2,), (False,))
    a100 = Machine("m", 2, "A100-40GB")
    nodes = [Node(name, "m", ("t",)) for name in made.nodes]
    nodes[1] = replace(nodes[1], mig=(Mig(0, (("1g.5gb", 0),)),))
    cluster = Cluster("c", ("pod", "node"), {"m": a100}, tuple(nodes), tori=(made,))
    occupancy = Occupancy(Fabric.build(cluster))
    found = find_on_torus(occupancy, job_on_box((4,), 2, 2))
    assert found is not None and [m.node for m in found.members] == ["t2", "t3"]


@pytest.mark.parametrize(
    ("model", "dims", "host", "cube", "box", "members", "all_reduce_ms"),
    [
        (V5E, (16, 16), (2, 4), (), (16, 16), 32, 10.71),  # 4 ways of 50 GB/s
        (V5E, (16, 16), (2, 4), (), (4, 4), 2, 20.14),  # 2 ways: no ring
        (V5P, (8, 8, 8), (2, 2, 1), (4, 4, 4), (4, 4, 4), 16, 3.53),  # 6 ways of 100 GB/s
        (V5P, (8, 8, 8), (2, 2, 1), (4, 4, 4), (2, 2, 4), 4, 6.72),  # 3 ways
        (V5P, (8, 8, 8), (2, 2, 1), (), (4, 4, 8), 32, 5.34),  # 2 lines and a ring
    ],
)
def test_a_slice_is_priced_by_the_rings_and_lines_along_its_axes(
    model: str,
    dims: Sides,
    host: Sides,
    cube: Sides,
    box: Sides,
    members: int,
    all_reduce_ms: float,
) -> None:
    occupancy = Occupancy(pods(model, dims, host, 1, cube))
    found = find_on_torus(occupancy, job_on_box(box, members, prod(box) // members))
    assert found is not None
    assert found.predicted.comm_s * 1e3 == pytest.approx(all_reduce_ms, rel=0.002)


def test_cubes_are_joined_wherever_they_stand() -> None:
    fabric = pods(V5P, (8, 8, 8), (2, 2, 1), 1, cube=(4, 4, 4))
    occupancy = Occupancy(fabric)
    for name in "abcdefgh":
        take(occupancy, name, (4, 4, 4), 16, 4)
    for name in "afh":
        occupancy.give_back(name)
    apart = Occupancy(pods(V5P, (8, 8, 8), (2, 2, 1), 1))
    for node in fabric.nodes:
        holder = occupancy.holder_of_gpu(node.name, 0)
        if holder:
            apart.take(holder, [m for m in occupancy.owners[holder] if m.node == node.name])
    asked = job_on_box((4, 4, 12), 48, 4)
    found = place_on_torus(occupancy, asked)
    assert isinstance(found, Placement) and problems_of(occupancy, asked, found) == []
    assert len(held_by(found)) == 48
    fixed = place_on_torus(apart, asked)
    assert isinstance(fixed, Refused) and fixed.gate is Gate.SHAPE, "longer than the torus"
    pair = place_on_torus(apart, job_on_box((4, 4, 8), 32, 4))
    assert isinstance(pair, Refused) and pair.gate is Gate.CONTIGUITY
    assert [dict(each.patch) for each in pair.would_fit_if] == [
        {"topology.box": (4, 4, 4), "members": 16}
    ]


def test_ranks_of_joined_cubes_run_along_the_slice_not_cube_by_cube() -> None:
    occupancy = Occupancy(pods(V5P, (4, 4, 8), (2, 2, 1), 1, cube=(4, 4, 4)))
    found = take(occupancy, "long", (4, 4, 8), 32, 4)
    (index,) = tori_of(occupancy.fabric)
    depths = [
        index.node_point(occupancy.fabric.index_of_node[member.node])[2] for member in found.members
    ]
    assert depths == [*range(8)] * 4


def test_small_slices_break_a_cube_that_is_broken_already_and_joined_ones_the_fuller_pod() -> None:
    occupancy = Occupancy(pods(V5P, (4, 4, 8), (2, 2, 1), 2, cube=(4, 4, 4)))
    take(occupancy, "tray", (2, 2, 1), 1, 4)
    take(occupancy, "half", (2, 4, 4), 8, 4)
    cube = take(occupancy, "cube", (4, 4, 4), 16, 4)
    assert {member.node.partition("-")[0] for member in cube.members} == {"pod0"}
    pair = take(occupancy, "pair", (4, 4, 8), 32, 4)
    assert {member.node.partition("-")[0] for member in pair.members} == {"pod1"}
    occupancy.check()


def test_nodes_that_are_points_hold_as_many_members_as_the_box_leaves_to_each() -> None:
    made = torus("t", (2, 3))
    nics = tuple(Nic(f"mlx5_{at}", (2 * at, 2 * at + 1)) for at in range(4))
    occupancy = Occupancy(site_of(made, model=Machine("m", 8, "X", nics=nics)))
    found = place_on_torus(occupancy, job_on_box((2, 2), 8, 4, nics=2))
    assert isinstance(found, Placement)
    assert problems_of(occupancy, job_on_box((2, 2), 8, 4, nics=2), found) == []
    assert [member.node for member in found.members] == [
        "t0", "t0", "t1", "t1", "t3", "t3", "t4", "t4",
    ]  # fmt: skip
    assert {member.nics for member in found.members} == {("mlx5_0", "mlx5_1"), ("mlx5_2", "mlx5_3")}
    any_box = find_on_torus(occupancy, job_on_box((), 8, 4))
    assert any_box is not None and len(any_box.gpus_of_node()) == 4
    one_each = find_on_torus(occupancy, job_on_box((), 6, 5))
    assert one_each is not None and len(one_each.gpus_of_node()) == 6


def labelled() -> Occupancy:
    made = torus("t", (2, 4))
    nodes = tuple(
        Node(name, "m", ("left" if at % 4 < 2 else "right",), (("pool", "a"),) if at != 5 else ())
        for at, name in enumerate(made.nodes)
    )
    model = Machine("m", 1, "X", cpus=8, memory_GiB=16)
    return Occupancy(Fabric.build(Cluster("c", ("row", "node"), {"m": model}, nodes, tori=(made,))))


def test_members_need_labels_cpus_memory_and_the_required_tier_on_every_node() -> None:
    occupancy = labelled()
    pool = job_on_box((2, 2), 4, labels=(("pool", "a"),))
    found = find_on_torus(occupancy, pool)
    assert found is not None and {m.node for m in found.members} == {"t2", "t3", "t6", "t7"}
    row = replace(job_on_box((2, 2), 4), topology=TopologySpec("row", box=(2, 2)))
    inside = find_on_torus(occupancy, row)
    assert inside is not None and inside.domain.tier == "row"
    occupancy.take("cpus", [MemberPlacement("w", 0, "t2", cpus=5)])
    assert held_by(place_on_torus(occupancy, replace(row, name="r"))).keys() == {
        "t0",
        "t1",
        "t4",
        "t5",
    }
    hungry = replace(row, roles=(Role("w", 4, Shape(gpus=1, cpus=4, labels=(("pool", "a"),))),))
    refused = place_on_torus(occupancy, hungry)
    assert isinstance(refused, Refused) and refused.gate is Gate.CONTIGUITY and not refused.never
    short = place_on_torus(occupancy, job_on_box((2, 4), 8, cpus=8))
    assert isinstance(short, Refused) and short.gate is Gate.ROOM
    assert short.short_by is not None and (short.short_by.resource, short.short_by.amount) == (
        "cpus",
        5,
    )
    assert "needs 64 CPUs for a box of 2x4; 59 are free" in short.sentence


def test_a_gang_stays_away_from_the_jobs_it_wants_to_be_apart_from() -> None:
    occupancy = labelled()
    occupancy.take("chat-1", [MemberPlacement("w", 0, "t0", cpus=1)])
    request = TopologySpec(box=(2, 2), apart=(Apart("row", ("chat-*",)),))
    found = find_on_torus(occupancy, replace(job_on_box((2, 2), 4), topology=request))
    assert found is not None and {m.node for m in found.members} == {"t2", "t3", "t6", "t7"}


NEVER: dict[str, tuple[Job, str]] = {
    "a shape that is not sold": (
        job_on_box((8, 4), 4, 8),
        "Never fits: no torus is cut into boxes of 8x4; boxes of 32 GPUs: 4x8; the largest smaller box that is free "
        "is 4x4. Fits now as a box of 4x8.",
    ),
    "a shape larger than the torus": (
        job_on_box((16, 32), 64, 8),
        "Never fits: a box of 16x32 is larger than every torus (pod0- is 16x16); the largest smaller box that is free "
        "is 16x16. Fits now as a box of 16x16 and with 32 members.",
    ),
    "a gang of another size": (
        job_on_box((4, 8), 3, 8),
        "Never fits: a box of 4x8 is not made of 3 members of 8 GPUs; the largest smaller box that is free is 4x4. "
        "Fits now as a box of 4x4 and with 2 members.",
    ),
    "a number of GPUs that no box has": (
        job_on_box((), 3, 8),
        "Never fits: no torus is cut into boxes for 3 members of 8 GPUs (24 GPUs); the nearest sizes are 16 and 32; "
        "the largest smaller box that is free is 4x4. Fits now with 2 members.",
    ),
    "a shape beside those that are sold": (
        job_on_box((4, 12), 6, 8),
        "Never fits: no torus is cut into boxes of 4x12; to allow it, write `slices: [[4, 12]]`, with all other shapes "
        "to be cut, to torus pod0- in the cluster file; the largest smaller box that is free is 4x8. Fits now as a box "
        "of 4x8 and with 4 members.",
    ),
    "members larger than a host": (
        job_on_box((4, 4), 1, 16),
        "Never fits: a box of 4x4 is not made of 1 member of 16 GPUs; no smaller box of such members is free.",
    ),
    "a label that no node has": (
        job_on_box((4, 4), 2, 8, labels=(("pool", "gold"),)),
        "Never fits: no node of a torus could hold 2 members of 8 GPUs with label pool=gold.",
    ),
}


@pytest.mark.parametrize("why", NEVER)
def test_what_never_fits_says_so_and_names_what_would(why: str) -> None:
    asked, sentence = NEVER[why]
    occupancy = Occupancy(pods(V5E, (16, 16), (2, 4), 1))
    answer = place_on_torus(occupancy, asked)
    assert isinstance(answer, Refused)
    assert (answer.sentence, answer.gate, answer.never) == (sentence, Gate.SHAPE, True)
    assert answer.wakes_on == ()
    assert all(fits_on_torus(occupancy, patched(asked, r.patch)) for r in answer.would_fit_if)


def test_another_shape_of_the_same_size_is_offered_with_its_price() -> None:
    occupancy = drawn_torus("a.\na.\na.\na.", wrap=(False, False))
    answer = place_on_torus(occupancy, job_on_box((2, 2), 4))
    assert isinstance(answer, Refused)
    assert [dict(each.patch) for each in answer.would_fit_if] == [
        {"topology.box": (4, 1)},
        {"topology.box": (3, 1), "members": 3},
    ]
    assert answer.would_fit_if[0].comm_ratio is not None


def test_a_site_without_tori_never_has_a_box() -> None:
    made = Cluster("c", ("node",), {"m": Machine("m", 8, "X")}, (Node("n0", "m"),))
    answer = place_on_torus(Occupancy(Fabric.build(made)), job_on_box((2, 2), 4))
    assert isinstance(answer, Refused) and (answer.gate, answer.never) == (Gate.SHAPE, True)


def test_the_model_that_is_named_first_comes_first() -> None:
    tori = (torus("old", (2, 2)), torus("new", (2, 3)))
    nodes = tuple(Node(name, t.name) for t in tori for name in t.nodes)
    machines = {"old": Machine("old", 1, "X1"), "new": Machine("new", 1, "X2")}
    occupancy = Occupancy(Fabric.build(Cluster("c", ("node",), machines, nodes, tori=tori)))
    for models, first in ((("X2", "X1"), "new0"), (("X1", "X2"), "old0"), ((), "old0")):
        found = find_on_torus(occupancy, job_on_box((2, 2), 4, models=models))
        assert found is not None and found.members[0].node == first


WRONG: dict[str, tuple[type[Exception], Job]] = {
    "gang of one role": (
        Unsupported,
        replace(job_on_box((2, 2), 4), roles=(Role("a", 2, Shape(1)), Role("b", 2, Shape(1)))),
    ),
    "slices or spread": (
        Unsupported,
        replace(
            job_on_box((2, 2), 4), topology=TopologySpec(box=(2, 2), slices=(Slices(2, "row"),))
        ),
    ),
    "whole GPUs, not of parts": (Unsupported, job_on_box((2, 2), 4, gpus=0, gpu_share=0.5)),
    "inside the node": (
        Unsupported,
        replace(job_on_box((2, 2), 4), topology=TopologySpec("socket", box=(2, 2))),
    ),
    "no tier here": (
        BadInput,
        replace(job_on_box((2, 2), 4), topology=TopologySpec("hall", box=(2, 2))),
    ),
}


@pytest.mark.parametrize("words", WRONG)
def test_a_wish_that_a_box_cannot_carry_is_told_with_the_way_out(words: str) -> None:
    error, asked = WRONG[words]
    with pytest.raises(error, match=words):
        place_on_torus(labelled(), asked)


@pytest.mark.parametrize("box", [(16, 20, 28), ()])
def test_a_pod_is_given_whole_if_the_cluster_file_says_so_and_the_refusal_does(
    box: tuple[int, ...],
) -> None:
    """The 8,960 chips of a TPU v5p pod; the largest slice that is sold has 6,144."""
    fabric = pods("tpu-v5p-host", (16, 20, 28), (2, 2, 1), 1, cube=(4, 4, 4))
    asked = job_on_box(box, 2240, 4)
    refused = place_on_torus(Occupancy(fabric), asked)
    assert isinstance(refused, Refused) and refused.never
    told = (
        "; to allow it, write `slices: [[16, 20, 28]]`, with all other shapes to be cut, to torus"
    )
    assert f"{told} pod0- in the cluster file" in refused.sentence
    (pod,) = fabric.cluster.tori
    for listed in ((), ((4, 4, 4),)):
        allowed = replace(pod, slices=(*listed, (16, 20, 28)))
        found = place_on_torus(
            Occupancy(Fabric.build(replace(fabric.cluster, tori=(allowed,)))), asked
        )
        assert isinstance(found, Placement) and len(found.members) == 2240
    few = Fabric.build(replace(fabric.cluster, tori=(replace(pod, slices=((4, 4, 4),)),)))
    again = place_on_torus(Occupancy(few), asked)
    assert isinstance(again, Refused)
    assert "; to allow it, add `slices: [[16, 20, 28]]` to torus pod0- in the" in again.sentence
