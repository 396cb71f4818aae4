"""What GPUs are cut into: states against a plain count of slices and shares."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.model.cluster import Machine, Mig, Node
from gantree.model.errors import BadInput
from gantree.model.placements import MigPart, SharePart
from gantree.topology.hardware.mig import TABLES, MigInstance, mig_table
from gantree.topology.occupancy.gpus.gpu_state import PLAIN, WHOLE, GpuState, Instance, rules_of
from gantree.topology.occupancy.gpus.node_state import NodeState
from gantree.topology.occupancy.gpus.release import (
    given_back_instance,
    given_back_share,
    given_back_whole,
)
from gantree.topology.occupancy.site import states_of_site

H100 = Machine("m", 2, "H100-80GB")


def state(*gpus: GpuState, recut: bool = True, gpu: str = "H100-80GB", **rules: Any) -> NodeState:
    machine = Machine("m", len(gpus), gpu)
    return NodeState(rules_of(machine, Node("n0", "m", **rules)), gpus, recut)


def cut(*instances: str) -> GpuState:
    """A GPU in MIG mode: "3g.40gb@4" is idle, "3g.40gb@4!" is held."""
    read = [re.fullmatch(r"(.+)@(\d)(!?)", text) for text in instances]
    return GpuState(
        mig=True,
        instances=tuple(sorted(Instance(int(m[2]), m[1], bool(m[3])) for m in read if m)),
    )


def share(compute: float, memory: float = 1.0, **more: Any) -> SharePart:
    isolation = str(more.pop("isolation", "mps"))
    return SharePart(0, compute, memory, isolation, **more)


@pytest.mark.parametrize(
    ("before", "part", "after"),
    [
        (PLAIN, "3g.40gb@4", cut("3g.40gb@4!")),
        (cut("3g.40gb@4"), "3g.40gb@4", cut("3g.40gb@4!")),
        (cut("1g.10gb@0", "1g.10gb@6"), "3g.40gb@0", cut("3g.40gb@0!", "1g.10gb@6")),
        (cut("7g.80gb@0"), "1g.10gb@6", cut("1g.10gb@6!")),
        (cut("4g.40gb@0!", "2g.20gb@4"), "1g.10gb@6", cut("4g.40gb@0!", "2g.20gb@4", "1g.10gb@6!")),
        (cut("4g.40gb@0!", "2g.20gb@4"), "3g.40gb@4", cut("4g.40gb@0!", "3g.40gb@4!")),
        # Only one instance may have the media extensions: the idle one goes though no slice is needed.
        (cut("1g.10gb+me@0"), "1g.10gb+me@6", cut("1g.10gb+me@6!")),
    ],
)
def test_holding_an_instance_makes_it_and_destroys_idle_ones_in_its_way(
    before: GpuState, part: str, after: GpuState
) -> None:
    profile, _, start = part.partition("@")
    held = state(before).take_instance(MigPart(0, profile, int(start)))
    assert held.gpus == (after,)
    idle = given_back_instance(held.gpus, MigPart(0, profile, int(start)))
    assert [one.held for one in idle[0].instances if one.start == int(start)] == [False]


@pytest.mark.parametrize(
    ("gpu", "part", "words"),
    [
        (WHOLE, MigPart(0, "1g.10gb", 0), "GPU 0 is held whole"),
        (PLAIN, MigPart(1, "1g.10gb", 0), "there is no GPU 1"),
        (PLAIN, MigPart(0, "1g.10gb", 7), "cannot start there"),
        (PLAIN, MigPart(0, "1g.5gb", 0), "has no MIG profile 1g.5gb"),
        (GpuState(tenants=(share(0.5),)), MigPart(0, "1g.10gb", 0), "GPU 0 is shared"),
        (cut("1g.10gb@5!"), MigPart(0, "3g.40gb", 4), "instance 3g.40gb at 4 of GPU 0 is not free"),
        (cut("1g.10gb+me@0!"), MigPart(0, "1g.10gb+me", 6), "not free"),
        (cut("1g.10gb@5!"), MigPart(0, "1g.10gb", 5), "not free"),
    ],
)
def test_an_instance_that_cannot_be_is_told_in_words(
    gpu: GpuState, part: MigPart, words: str
) -> None:
    assert words in state(gpu).why_not_instance(part)
    with pytest.raises(AssertionError, match=re.escape(words)):
        state(gpu).take_instance(part)


def test_where_nobody_cuts_only_idle_instances_can_be_held() -> None:
    fixed = state(cut("3g.40gb@4"), PLAIN, recut=False, mig_by="nobody")
    assert fixed.why_not_instance(MigPart(0, "3g.40gb", 4)) == ""
    assert "nobody cuts" in fixed.why_not_instance(MigPart(0, "3g.40gb", 0))
    assert "nobody cuts" in fixed.why_not_instance(MigPart(1, "3g.40gb", 0))
    assert fixed.free_mask() == 0b10
    assert state(cut("3g.40gb@4"), PLAIN).free_mask() == 0b11


def test_a_gpu_without_mig_says_so() -> None:
    assert "V100-32GB) has no MIG" in state(PLAIN, gpu="V100-32GB").why_not_instance(
        MigPart(0, "1g.10gb", 0)
    )


@pytest.mark.parametrize(
    ("tenants", "part", "words"),
    [
        ((), share(1.0, 80.0), ""),
        ((), share(0.5, 80.5), "80.5 GiB of the memory of GPU 0 are not free"),
        ((share(0.6),), share(0.5), "0.5 of the compute of GPU 0 are not free"),
        ((share(0.1, 60.0),), share(0.1, 20.0), ""),
        ((share(0.1, 60.0),), share(0.1, 20.5), "20.5 GiB"),
        ((share(0.1),), share(0.1, isolation="time-slicing"), "is shared by mps"),
        ((share(0.1, alone=True),), share(0.1), "held alone"),
        ((share(0.1),), share(0.1, alone=True), "held alone"),
        ((share(0.1), share(0.1)), share(0.1), "has 2 tenants"),
    ],
)
def test_a_share_fits_beside_the_other_tenants_or_says_why_not(
    tenants: tuple[SharePart, ...], part: SharePart, words: str
) -> None:
    node = state(GpuState(tenants=tenants), tenants=2)
    assert (words in node.why_not_share(part)) if words else not node.why_not_share(part)
    if not words:
        assert given_back_share(node.take_share(part).gpus, part) == node.gpus


def test_shares_are_not_had_where_a_node_gives_none_or_a_gpu_is_in_mig_mode() -> None:
    assert "not to be shared by mps" in state(PLAIN, shares=("time-slicing",)).why_not_share(
        share(1)
    )
    for held in (state(cut("1g.10gb@0!")), state(cut(), recut=False, mig_by="nobody")):
        assert "in MIG mode" in held.why_not_share(share(0.1))
    assert "held whole" in state(WHOLE).why_not_share(share(0.1))


def test_a_whole_gpu_leaves_mig_mode_and_comes_back_plain() -> None:
    node = state(cut("1g.10gb@0"), PLAIN).take_whole((0,))
    assert node.gpus == (WHOLE, PLAIN)
    assert given_back_whole(node.gpus, (0,)) == (PLAIN, PLAIN)


def test_a_gpu_of_which_nothing_is_held_leaves_mig_mode_for_a_share() -> None:
    node = state(cut("1g.10gb@0")).take_share(share(0.5))
    assert node.gpus == (GpuState(tenants=(share(0.5),)),)
    assert given_back_share(node.gpus, share(0.5)) == (PLAIN,)


@pytest.mark.parametrize(
    ("machine", "mig", "words"),
    [
        (H100, Mig(2), "has 2 GPUs"),
        (Machine("m", 1, "V100-32GB"), Mig(0), "V100-32GB has no MIG"),
        (H100, Mig(0, (("3g.40gb", 1),)), "only at 0, 4"),
        (H100, Mig(0, (("3g.40g", 0),)), "Did you mean"),
        (H100, Mig(0, (("4g.40gb", 0), ("1g.10gb", 3))), "1g.10gb at 3 does not fit beside 4g"),
    ],
)
def test_a_site_that_cuts_gpus_impossibly_is_bad_input(
    machine: Machine, mig: Mig, words: str
) -> None:
    with pytest.raises(BadInput, match=re.escape(words)) as error:
        states_of_site(machine, Node("n0", "m", mig=(mig,)))
    assert "node n0: mig: GPU" in str(error.value)


def test_a_site_s_instances_are_idle_at_first() -> None:
    node = Node("n0", "m", mig=(Mig(1, (("2g.20gb", 4), ("4g.40gb", 0))),))
    assert states_of_site(H100, node) == (PLAIN, cut("4g.40gb@0", "2g.20gb@4"))
    assert states_of_site(H100, Node("n0", "m")) is None


# ----- any order of coming and going


@given(st.sampled_from(sorted(TABLES)), st.data())
def test_no_step_destroys_a_held_instance_and_what_fits_is_what_slices_allow(
    name: str, data: st.DataObject
) -> None:
    table = mig_table(name) or TABLES[name]
    gpu = name if mig_table(name) is table else None
    if gpu is None:
        return
    node = state(PLAIN, gpu=gpu)
    held: list[MigPart] = []
    for _ in range(data.draw(st.integers(1, 10))):
        going = data.draw(st.integers(0, 2 * len(held)))
        if going < len(held):
            leaving = held.pop(going)
            node = node.with_gpu(0, given_back_instance(node.gpus, leaving)[0])
        else:
            profile = data.draw(st.sampled_from([profile.name for profile in table.profiles]))
            part = MigPart(0, profile, data.draw(st.sampled_from(table.placements(profile))))
            beside = [MigInstance(one.profile, one.start) for one in held]
            possible = part.start in table.fits(beside, profile)
            assert (node.why_not_instance(part) == "") == possible
            if possible:
                node = node.take_instance(part)
                held.append(part)
        now = node.gpus[0]
        assert {(i.profile, i.start) for i in now.instances if i.held} == {
            (part.profile, part.start) for part in held
        }
        there: list[MigInstance] = []
        for one in now.instances:
            assert one.start in table.fits(there, one.profile)
            there.append(MigInstance(one.profile, one.start))


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), max_size=8))
def test_shares_of_a_gpu_never_add_up_to_more_than_it_has(asked: list[tuple[int, int]]) -> None:
    node, compute, memory = state(PLAIN), 0, 0
    for percent, GiB in asked:
        part = share(percent / 100, float(GiB))
        possible = compute + percent <= 100 and memory + GiB <= 80
        assert (node.why_not_share(part) == "") == possible
        if possible:
            node = node.take_share(part)
            compute, memory = compute + percent, memory + GiB
