"""Which MIG instance a member gets: against a plain enumeration of slices."""

from collections.abc import Iterator, Sequence
from itertools import combinations, permutations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.cluster import Cluster, Machine, Mig, Node
from gantree.model.jobs import Job, Role, Shape
from gantree.model.placements import GpuChange, MemberPlacement, MigPart, Placement
from gantree.model.verdicts import Refused
from gantree.placement.choice.search import place
from gantree.placement.machine import mig
from gantree.placement.members.members import placement_of
from gantree.placement.request.topology_request import topology_request_of
from gantree.placement.slots.parts import (
    choose_parts,
    is_apart,
)
from gantree.placement.slots.problem import Problem
from gantree.placement.slots.secondary_resources import (
    members_on_node,
    slots_by_secondary_resources,
)
from gantree.testing.placement_checker import problems_of
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.mig import TABLES, MigProfile, MigTable, mig_table
from gantree.topology.occupancy.gpus.gpu_state import PLAIN, GpuState, Instance, rules_of
from gantree.topology.occupancy.gpus.node_state import NodeState
from gantree.topology.occupancy.occupancy import Occupancy
from support.examples import examples

GPUS = (
    "A30-24GB",
    "A100-40GB",
    "A100-80GB",
    "H100-80GB",
    "H200-141GB",
    "B200-180GB",
    "RTXPRO6000-96GB",
)


def occupancy(gpus: int = 2, nodes: int = 1, gpu: str = "H100-80GB", **node: Any) -> Occupancy:
    machine = Machine("m", gpus, gpu, cpus=64.0)
    made = tuple(Node(f"n{i}", "m", ("l0",), **node) for i in range(nodes))
    return Occupancy(Fabric.build(Cluster("c", ("leaf", "node"), {"m": machine}, made)))


def job(*roles: tuple[int, str], communicates: bool = True, processes: int = 1) -> Job:
    made = tuple(
        Role(f"r{number}", members, Shape(mig=profile), processes)
        if profile
        else Role(f"r{number}", members, Shape(gpus=1))
        for number, (members, profile) in enumerate(roles)
    )
    return Job("j", made, communicates=communicates)


def placed(where: Occupancy, asked: Job, *counts: tuple[int, ...]) -> Placement:
    """The placement of so many members of each role on n0, n1, ..., taken and checked."""
    request = topology_request_of(where.fabric, asked)
    problem = Problem(where, request, tuple(role.members for role in asked.roles), ())
    found = placement_of(problem, list(enumerate(counts)))
    after = where.copy()
    after.take("j", found.members)
    after.check()
    for change in found.changes:
        _check_change(where, after, change)
    return found


def _check_change(before: Occupancy, after: Occupancy, change: GpuChange) -> None:
    node = before.fabric.index_of_node[change.node]
    old, new = (o.state_of_node(node).gpus[change.gpu] for o in (before, after))
    instances = {(one.profile, one.start) for one in old.instances}
    assert {(one.profile, one.start) for one in old.instances if one.held} <= {
        (one.profile, one.start) for one in new.instances
    }
    instances -= {(part.profile, part.start) for part in change.destroy}
    instances |= {(part.profile, part.start) for part in change.create}
    assert {(one.profile, one.start) for one in new.instances} == instances
    assert new.mig == (old.mig if change.mode is None else change.mode)


# ----- a plain twin


def plain_fits(
    table: MigTable, held: Sequence[tuple[str, int]], profile: MigProfile, start: int
) -> bool:
    """Count slices, engines and numbers, one by one."""
    there = [(table.profile(name), at) for name, at in held] + [(profile, start)]
    slices = [s for one, at in there for s in range(at, at + one.memory_slices)]
    names = [one.name for one, _ in there]
    return (
        len(slices) == len(set(slices))
        and sum(one.compute_slices for one, _ in there) <= table.compute_slices
        and sum(one.media for one, _ in there) <= table.media_engines
        and sum(one.extra for one, _ in there) <= 1
        and all(names.count(one.name) <= one.most for one, _ in there)
    )


def plain_worth(table: MigTable, held: Sequence[tuple[str, int]]) -> int:
    return sum(
        profile.memory_slices
        for profile in table.profiles
        for start in profile.starts
        if plain_fits(table, held, profile, start)
    )


def held_of(gpu: GpuState) -> list[tuple[str, int]]:
    return [(one.profile, one.start) for one in gpu.instances if one.held]


def plain_count(table: MigTable, gpu: GpuState, name: str, recut: bool) -> int:
    """The largest set of starts that all fit beside what is held."""
    profile = table.profile(name)
    if gpu.whole or gpu.tenants:
        return 0
    idle = {(one.profile, one.start) for one in gpu.instances if not one.held}
    for size in range(len(profile.starts), 0, -1):
        for starts in combinations(profile.starts, size):
            held = held_of(gpu)
            if not recut and not {(name, start) for start in starts} <= idle:
                continue
            if all(
                plain_fits(table, held + [(name, s) for s in starts[:at]], profile, start)
                for at, start in enumerate(starts)
            ):
                return size
    return 0


def plain_best(table: MigTable, state: NodeState, name: str) -> int | None:
    """Least loss of worth among places of the best kind, in plain words of the module; None without a place."""
    profile, found = table.profile(name), list[tuple[int, int]]()
    for gpu in state.gpus:
        if gpu.whole or gpu.tenants:
            continue
        held = held_of(gpu)
        idle = [(one.profile, one.start) for one in gpu.instances if not one.held]
        for start in profile.starts:
            if not plain_fits(table, held, profile, start):
                continue
            loss = plain_worth(table, held) - plain_worth(table, [*held, (name, start)])
            if (name, start) in idle:
                found.append((0, loss))
            elif state.recut:
                beside = plain_fits(table, [*held, *idle], profile, start)
                found.append((1 if gpu.mig and beside else 2 if gpu.mig else 3, loss))
    return min(found)[0] * 1000 + min(found)[1] if found else None


@st.composite
def states(draw: st.DrawFn) -> tuple[MigTable, NodeState]:
    """A node of up to three GPUs, each whole, plain or cut after some coming and going."""
    gpu = draw(st.sampled_from(GPUS))
    table = mig_table(gpu)
    assert table is not None
    machine = Machine("m", draw(st.integers(1, 3)), gpu)
    state = NodeState(rules_of(machine, Node("n0", "m")), (PLAIN,) * machine.gpus, True)
    names = [profile.name for profile in table.profiles]
    for number in range(machine.gpus):
        if draw(st.integers(0, 4)) == 0:
            state = state.take_whole((number,))
            continue
        for _ in range(draw(st.integers(0, 5))):
            part = mig.best_part(state, draw(st.sampled_from(names)), ~(1 << number))
            if part is not None:
                state = state.take_instance(part)
        idle = draw(st.integers(0, 7))
        cut = state.gpus[number]
        instances = tuple(
            Instance(one.start, one.profile, held=not idle >> at % 3 & 1)
            for at, one in enumerate(cut.instances)
        )
        state = state.with_gpu(number, GpuState(mig=cut.mig, instances=instances))
    recut = draw(st.booleans())
    node = Node("n0", "m", mig_by="gpu" if recut else "nobody")
    return table, NodeState(rules_of(machine, node), state.gpus, recut)


@given(states(), st.data())
@settings(max_examples=examples(75), deadline=None)
def test_count_and_best_part_are_those_of_a_plain_enumeration(
    drawn: tuple[MigTable, NodeState], data: st.DataObject
) -> None:
    table, state = drawn
    name = data.draw(st.sampled_from([profile.name for profile in table.profiles]))
    on_each = [plain_count(table, gpu, name, state.recut) for gpu in state.gpus]
    assert mig.count(state, name, apart=False) == sum(on_each)
    assert mig.count(state, name, apart=True) == sum(map(bool, on_each))
    part = mig.best_part(state, name)
    best = plain_best(table, state, name)
    assert (part is None) == (best is None)
    if part is not None and best is not None:
        assert not state.why_not_instance(part)
        alone = NodeState(state.rules, (state.gpus[part.gpu],), state.recut)
        held = held_of(state.gpus[part.gpu])
        loss = plain_worth(table, held) - plain_worth(table, [*held, (name, part.start)])
        assert loss == best % 1000
        kinds = {k for k, _, _, _, s in mig._orders(alone, 0, name) if s == part.start}
        assert kinds == {best // 1000}


@given(states(), st.data())
@settings(max_examples=examples(50), deadline=None)
def test_as_many_members_are_chosen_as_were_counted(
    drawn: tuple[MigTable, NodeState], data: st.DataObject
) -> None:
    table, state = drawn
    name = data.draw(st.sampled_from([profile.name for profile in table.profiles]))
    for apart in (False, True):
        count = mig.count(state, name, apart)
        found = choose_parts(state, [(Shape(mig=name), count)], apart)
        assert found is not None
        assert len({part.gpu for part in found[0][0]}) == count or not apart
        assert choose_parts(state, [(Shape(mig=name), count + 1)], apart) is None


@given(states(), st.data())
@settings(max_examples=examples(30), deadline=None)
def test_two_profiles_on_gpus_of_their_own_are_matched_where_that_can_be(
    drawn: tuple[MigTable, NodeState], data: st.DataObject
) -> None:
    table, state = drawn
    names = data.draw(
        st.lists(st.sampled_from([p.name for p in table.profiles]), min_size=2, max_size=3)
    )
    possible = any(
        all(mig.members_on(state, gpu, name) for gpu, name in zip(gpus, names, strict=True))
        for gpus in permutations(range(len(state.gpus)), len(names))
    )
    found = choose_parts(state, [(Shape(mig=name), 1) for name in names], True)
    assert (found is not None) == possible


@given(states(), st.data())
@settings(max_examples=examples(30), deadline=None)
def test_several_profiles_that_may_share_a_gpu_are_placed_where_that_can_be(
    drawn: tuple[MigTable, NodeState], data: st.DataObject
) -> None:
    table, state = drawn
    names = data.draw(
        st.lists(st.sampled_from([p.name for p in table.profiles]), min_size=2, max_size=3)
    )
    found = choose_parts(state, [(Shape(mig=name), 1) for name in names], False)
    assert (found is not None) == any(_arrangements(state, names))


def _arrangements(state: NodeState, names: Sequence[str]) -> Iterator[bool]:
    if not names:
        yield True
        return
    table = state.rules.table
    assert table is not None
    for gpu, start in product(range(len(state.gpus)), table.placements(names[0])):
        part = MigPart(gpu, names[0], start)
        if not state.why_not_instance(part):
            yield from _arrangements(state.take_instance(part), names[1:])


@pytest.mark.parametrize(
    ("gpu", "profile"),
    [(gpu, profile.name) for gpu in TABLES if mig_table(gpu) for profile in TABLES[gpu].profiles],
)
def test_an_empty_gpu_takes_as_many_instances_as_its_table_says(gpu: str, profile: str) -> None:
    table = TABLES[gpu]
    where = occupancy(1, gpu=gpu)
    most = table.profile(profile).most
    found = placed(where, job((most, profile), communicates=False), (most,))
    starts = [part.start for member in found.members for part in member.mig]
    assert len(set(starts)) == most and set(starts) <= set(table.placements(profile))
    assert members_on_node(where, 0, Shape(mig=profile), apart=False) == most
    (change,) = found.changes
    assert change.mode is True and len(change.create) == most and not change.destroy
    in_parts = mig.MODE_S + most * mig.MAKE_S
    assert change.seconds == (mig.MODE_OF_GPU_S if table.uniform else in_parts)


@pytest.mark.parametrize(
    ("gpu", "profile", "starts"),
    [
        ("H100-80GB", "1g.10gb", [6, 4, 5, 0, 1, 2, 3]),
        ("H100-80GB", "2g.20gb", [4, 0, 2]),
        ("H100-80GB", "3g.40gb", [4, 0]),
        ("H100-80GB", "1g.20gb", [6, 4, 0, 2]),
        ("A30-24GB", "1g.6gb", [0, 1, 2, 3]),
    ],
)
def test_instances_stand_where_they_leave_large_ones_their_places(
    gpu: str, profile: str, starts: list[int]
) -> None:
    asked = job((len(starts), profile), communicates=False)
    found = placed(occupancy(1, gpu=gpu), asked, (len(starts),))
    assert [part.start for member in found.members for part in member.mig] == starts


# ----- kinds of places, and prices


def test_idle_first_then_beside_then_in_the_way_then_a_gpu_that_must_be_switched() -> None:
    three = (("3g.40gb", 4),)
    where = occupancy(3, mig=(Mig(1, three), Mig(2, (("1g.10gb", 0), ("3g.40gb", 4)))))
    asked = job((5, "3g.40gb"), communicates=False)
    found = placed(where, asked, (5,))
    assert [(m.mig[0].gpu, m.mig[0].start) for m in found.members] == [
        (1, 4), (2, 4), (1, 0), (2, 0), (0, 4),
    ]  # fmt: skip
    assert [(c.gpu, c.mode, len(c.destroy), len(c.create), c.seconds) for c in found.changes] == [
        (0, True, 0, 1, mig.MODE_S + mig.MAKE_S),
        (1, None, 0, 1, mig.MAKE_S),
        (2, None, 1, 1, mig.DESTROY_S + mig.MAKE_S),
    ]


def test_a_manager_of_whole_nodes_cuts_only_while_nobody_holds_anything_there() -> None:
    where = occupancy(2, mig_by="node", mig=(Mig(0, (("1g.10gb", 0),)),))
    shape = Shape(mig="3g.40gb")
    assert members_on_node(where, 0, shape, apart=False) == 4
    found = placed(where, job((2, "3g.40gb")), (2,))
    assert [change.seconds for change in found.changes] == [mig.NODE_S] * 2
    where.take("other", placed(where, job((1, "1g.10gb")), (1,)).members)
    assert members_on_node(where, 0, shape, apart=False) == 0
    assert where.free_gpus("n0") == (1,)
    where.give_back("other")
    assert where.free_gpus("n0") == (0, 1)
    where.check()


def test_where_nobody_cuts_only_what_is_there_is_given_and_a_cut_gpu_is_not_whole() -> None:
    where = occupancy(2, mig_by="nobody", mig=(Mig(0, (("1g.10gb", 0), ("1g.10gb", 3))),))
    assert members_on_node(where, 0, Shape(mig="1g.10gb"), apart=False) == 2
    assert members_on_node(where, 0, Shape(mig="2g.20gb"), apart=False) == 0
    assert where.free_gpus("n0") == (1,)
    assert placed(where, job((2, "1g.10gb"), communicates=False), (2,)).changes == ()


def test_a_whole_gpu_is_taken_from_mig_mode_only_where_no_other_will_do() -> None:
    where = occupancy(2, mig=(Mig(0, (("1g.10gb", 0),)),))
    one = placed(where, job((1, "")), (1,))
    assert one.members[0].gpus == (1,) and one.changes == ()
    both = placed(where, job((2, "")), (2,))
    (change,) = both.changes
    assert change == GpuChange(
        "n0", 0, False, (MigPart(0, "1g.10gb", 0),), (), mig.MODE_S + mig.DESTROY_S
    )


def test_parts_leave_the_free_gpus_to_whole_members_of_the_gang() -> None:
    """The idle 1g on GPU 0 costs nothing, but then GPU 0 is no longer whole; GPU 1 is broken into already."""
    where = occupancy(2, mig=(Mig(0, (("1g.10gb", 0),)),))
    where.take("other", [MemberPlacement("w", 0, "n0", mig=(MigPart(1, "3g.40gb", 4),))])
    assert placed(where, job((1, "1g.10gb")), (1,)).members[0].mig[0].gpu == 0
    found = placed(where, job((1, "1g.10gb"), (1, "")), (1, 1))
    assert found.members[1].gpus == (0,)
    assert found.members[0].mig == (MigPart(1, "1g.10gb", 0),)


@pytest.mark.parametrize("communicates", [True, False])
def test_the_best_place_of_one_role_is_given_up_where_another_has_no_other(
    communicates: bool,
) -> None:
    """The idle 3g on GPU 0 is free of cost, but GPU 1 has its media engine out, so the +me must be on GPU 0."""
    where = occupancy(2, mig=(Mig(0, (("3g.40gb", 4),)),))
    where.take("a", [MemberPlacement("w", 0, "n0", mig=(MigPart(0, "4g.40gb", 0),))])
    where.take("b", [MemberPlacement("w", 0, "n0", mig=(MigPart(1, "1g.10gb+me", 0),))])
    asked = job((1, "3g.40gb"), (1, "1g.10gb+me"), communicates=communicates)
    found = placed(where, asked, (1, 1))
    assert [member.mig[0].gpu for member in found.members] == [1, 0]


# ----- ranks that talk to each other


def test_two_ranks_never_share_a_gpu_unless_they_never_talk() -> None:
    where, two = occupancy(1), job((2, "3g.40gb"))
    assert is_apart(topology_request_of(where.fabric, two))
    assert members_on_node(where, 0, Shape(mig="3g.40gb"), apart=True) == 1
    refused = place(where, two)
    assert isinstance(refused, Refused) and refused.never
    assert "2 instances of 3g.40gb on different GPUs" in refused.sentence
    assert "NCCL refuses two ranks on one GPU" in refused.sentence
    free = job((2, "3g.40gb"), communicates=False)
    assert not is_apart(topology_request_of(where.fabric, free))
    found = place(where, free)
    assert isinstance(found, Placement)
    assert {part.start for member in found.members for part in member.mig} == {0, 4}


def test_a_member_alone_needs_no_gpu_of_its_own_but_two_ranks_of_it_cannot_be() -> None:
    where = occupancy(1)
    assert not is_apart(topology_request_of(where.fabric, job((1, "3g.40gb"))))
    assert is_apart(topology_request_of(where.fabric, job((1, "3g.40gb"), (1, ""))))
    refused = place(where, job((1, "3g.40gb"), processes=2))
    assert isinstance(refused, Refused) and "NCCL refuses two ranks" in refused.sentence
    assert isinstance(place(where, job((1, "3g.40gb"), communicates=False, processes=2)), Placement)


def test_nodes_in_like_states_are_counted_alike() -> None:
    where = occupancy(2, nodes=6)
    where.take("a", placed(where, job((1, "3g.40gb")), (0,), (1,)).members)
    shape = Shape(mig="3g.40gb")
    every = where.fabric.index_of_node.values()
    counted = slots_by_secondary_resources(
        where, np.array(list(every)), shape, apart=False
    ).tolist()
    assert counted == [4, 3, 4, 4, 4, 4]
    assert counted == [members_on_node(where, node, shape, apart=False) for node in every]


# ----- through the search


SHAPES = (
    Shape(mig="1g.10gb"),
    Shape(mig="3g.40gb", cpus=4.0),
    Shape(mig="1g.10gb+me", memory_GBps=60.0),
    Shape(gpu_share=0.4, neighbours=True),
    Shape(gpus=1),
    Shape(gpus=2, cpus=2.0),
)


@given(st.data())
@settings(max_examples=examples(20), deadline=None)
def test_gangs_that_come_and_go_get_what_is_free_and_are_refused_only_what_is_not(
    data: st.DataObject,
) -> None:
    machine = Machine("m", 2, "H100-80GB", numa=(0, 1), cpus=16.0, numa_memory_GBps=100.0)
    by = data.draw(st.tuples(*[st.sampled_from(["gpu", "node", "nobody"])] * 3))
    there = (Mig(0, (("3g.40gb", 4), ("1g.10gb", 0))),)
    nodes = tuple(Node(f"n{i}", "m", ("l0",), mig=there, mig_by=who) for i, who in enumerate(by))
    where = Occupancy(Fabric.build(Cluster("c", ("leaf", "node"), {"m": machine}, nodes)))
    for number in range(data.draw(st.integers(1, 8))):
        owners = list(where.owners)
        if owners and data.draw(st.integers(0, 3)) == 0:
            where.give_back(data.draw(st.sampled_from(owners)))
        shape, members = data.draw(st.sampled_from(SHAPES)), data.draw(st.integers(1, 4))
        asked = Job(
            f"j{number}", (Role("w", members, shape),), communicates=data.draw(st.booleans())
        )
        found = place(where, asked)
        if isinstance(found, Placement):
            assert problems_of(where, asked, found) == []
            apart = is_apart(topology_request_of(where.fabric, asked))
            used = [(one.node, gpu) for one in found.members for gpu in one.parts]
            assert len(set(used)) == len(used) or not apart
            before = where.copy()
            where.take(asked.name, found.members)
            for change in found.changes:
                _check_change(before, where, change)
        elif shape.part and not shape.cpus:
            apart = is_apart(topology_request_of(where.fabric, asked))
            assert sum(members_on_node(where, n, shape, apart) for n in range(3)) < members
        where.check()
