"""The rest of GPUs of which others hold parts: kept for who is to have them, whoever comes, until those have left."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.cluster import Cluster
from gantree.model.jobs import Job, Role, Shape
from gantree.model.placements import MemberPlacement, MigPart, SharePart
from gantree.placement.choice.search import find, fits
from gantree.testing.builders import cluster
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.mig import MigInstance
from gantree.topology.occupancy.gpus.gpu_state import MILLIONTHS, REMAINDER
from gantree.topology.occupancy.occupancy import Occupancy
from support.examples import examples

TURNS, MPS = "time-slicing", "mps"
SMALL = cluster(leaves=1, nodes=2, gpus=2)
BY_MANAGER = replace(SMALL, nodes=tuple(replace(node, mig_by="node") for node in SMALL.nodes))
SHARES = (
    Shape(gpu_share=0.5, isolation=TURNS),
    Shape(gpu_share=0.25, isolation=MPS),
    Shape(gpu_share=0.2, gpu_memory_GiB=50.0),
    Shape(gpu_share=0.75),
)
INSTANCES = tuple(
    Shape(mig=profile) for profile in ("1g.10gb", "1g.20gb", "3g.40gb", "4g.40gb", "1g.10gb+me")
)
WHOLE = (Shape(gpus=1), Shape(gpus=2))
MODES = tuple(Shape(mig=mode) for mode in ("dpx", "qpx", "cpx"))
MI300X = replace(
    SMALL, machines={name: replace(m, gpu="MI300X-192GB") for name, m in SMALL.machines.items()}
)


def gang(shape: Shape, members: int = 1) -> Job:
    return Job("j", (Role("w", members, shape),))


def share(compute: float, isolation: str = TURNS, gpu: int = 0) -> MemberPlacement:
    return MemberPlacement("w", 0, "n0", share=SharePart(gpu, compute, 8.0, isolation))


def instance(profile: str, start: int) -> MemberPlacement:
    return MemberPlacement("w", 0, "n0", mig=(MigPart(0, profile, start),))


def occupied(*members: MemberPlacement, site: Cluster = SMALL) -> Occupancy:
    """A member each for owners a, b, c, ..."""
    occupancy = Occupancy(Fabric.build(site))
    for owner, member in zip("abcdefg", members, strict=False):
        occupancy.take(owner, [member])
    return occupancy


GPU, GPU_1 = (MemberPlacement("w", 0, "n0", (gpu,)) for gpu in (0, 1))


@pytest.mark.parametrize(
    ("tenants", "wanted"),
    [
        ((share(0.5), share(0.25)), GPU),
        ((share(0.5), share(0.25)), share(0.75)),
        ((share(0.5), share(0.25)), share(0.25, MPS)),
        ((share(0.5), share(0.25)), instance("1g.10gb", 0)),
        ((instance("1g.10gb", 0), instance("3g.40gb", 4)), GPU),
        ((instance("1g.10gb", 0), instance("1g.10gb", 2)), instance("3g.40gb", 0)),
    ],
)
def test_nobody_new_finds_room_where_somebody_is_to_have_more(
    tenants: tuple[MemberPlacement, ...], wanted: MemberPlacement
) -> None:
    occupancy = occupied(*tenants)
    before = occupancy.copy()
    for gone in ("nobody", "a", "b"):
        occupancy.give_back(gone)
        before.give_back(gone)
        occupancy.take_free("claim", [wanted])
        occupancy.check()
        assert (gone == "nobody") <= _keeps(occupancy)
        for shape in (*SHARES, *INSTANCES, *WHOLE) if _keeps(occupancy) else ():
            place = find(occupancy, gang(shape))
            assert place is None or not _overlap(place.members[0], wanted)
    assert occupancy.owners["claim"] == (wanted,)
    occupancy.give_back("claim")
    assert occupancy.free_mask_of_node == before.free_mask_of_node


def _keeps(occupancy: Occupancy) -> bool:
    return any(member.role == REMAINDER for member in occupancy.owners["claim"])


def _overlap(one: MemberPlacement, other: MemberPlacement) -> bool:
    """Whether they are on one GPU, or, where both are instances, have a memory slice in common."""
    if one.node != other.node or not {*one.gpus, *one.parts} & {*other.gpus, *other.parts}:
        return False
    if not (one.mig and other.mig):
        return True
    runs = [_slices(member.mig[0]) for member in (one, other)]
    return runs[0].start < runs[1].stop and runs[1].start < runs[0].stop


def _slices(part: MigPart) -> range:
    table = Occupancy(Fabric.build(SMALL)).state_of_node(0).rules.table
    assert table is not None
    return table.slices(MigInstance(part.profile, part.start))


def test_what_is_kept_is_free_again_without_its_holder_and_leaves_no_instances() -> None:
    occupancy = occupied(instance("1g.10gb", 5))
    before = occupancy.state_of_node(0)
    occupancy.take_free("claim", [instance("3g.40gb", 4)])
    assert len(occupancy.state_of_node(0).gpus[0].held_instances) == 3
    occupancy.give_back("claim")
    assert occupancy.state_of_node(0) == before
    occupancy.check()


def test_idle_instances_that_are_kept_stay_idle() -> None:
    occupancy = occupied(instance("1g.10gb", 5), instance("1g.10gb", 4))
    occupancy.give_back("b")
    before = occupancy.state_of_node(0)
    occupancy.take_free("claim", [instance("3g.40gb", 4)])
    assert occupancy.missing([instance("1g.10gb", 4)])
    occupancy.give_back("claim")
    assert occupancy.state_of_node(0) == before


def test_where_a_manager_cuts_whole_nodes_a_gpu_is_kept_until_the_node_is_empty() -> None:
    occupancy = occupied(MemberPlacement("w", 0, "n0", (1,)), site=BY_MANAGER)
    occupancy.take_free("claim", [instance("3g.40gb", 4)])
    assert occupancy.free_gpus("n0") == ()
    assert not fits(occupancy, gang(Shape(gpus=2), 2))
    occupancy.check()
    occupancy.give_back("a")
    occupancy.give_back("claim")
    assert occupancy.missing([instance("3g.40gb", 4)]) == ""


def test_one_keeps_what_the_one_before_it_does_not() -> None:
    occupancy = occupied(share(0.5), share(0.25))
    occupancy.take_free("first", [GPU])
    occupancy.take_free("second", [share(0.25)])
    assert [member.share for member in occupancy.owners["second"]] == [None]
    occupancy.give_back("first")
    occupancy.take_free("second", [share(0.25)])
    assert occupancy.owners["second"] == (share(0.25),)


def test_a_tenant_may_come_back_to_where_the_rest_is_kept() -> None:
    occupancy = occupied(share(0.5), share(0.25))
    occupancy.take_free("claim", [GPU])
    held = occupancy.owners["claim"]
    occupancy.give_back("a")
    occupancy.take("a", [share(0.5)])
    occupancy.give_back("claim")
    occupancy.take("claim", held)
    occupancy.check()


def in_full(occupancy: Occupancy) -> None:
    """What is held and kept of each GPU is no more than there is of it; the rest is counted again from the owners."""
    occupancy.check()
    for states in occupancy.parts_of_node.values():
        for gpu in states:
            held = sum(round(tenant.compute * MILLIONTHS) for tenant in gpu.tenants)
            assert held + gpu.kept <= MILLIONTHS


@pytest.mark.parametrize(
    ("site", "shapes"),
    [(SMALL, (*SHARES, *WHOLE)), (SMALL, (*INSTANCES, *WHOLE)), (MI300X, (*MODES, *WHOLE))],
)
@given(data=st.data())
@settings(max_examples=examples(30), deadline=None)
def test_held_room_is_given_to_nobody_else_while_those_who_are_in_the_way_leave(
    site: Cluster, shapes: tuple[Shape, ...], data: st.DataObject
) -> None:
    """Two find their places beside those who stay, then all others come and go: both have theirs in the end."""
    shape = st.sampled_from(shapes)
    occupancy = Occupancy(Fabric.build(site))
    for number, one in enumerate(data.draw(st.lists(shape, min_size=2, max_size=10))):
        _come(occupancy, f"old{number}", one)
    leaving = [owner for owner in occupancy.owners if data.draw(st.booleans())]
    places: dict[str, tuple[MemberPlacement, ...]] = {}
    later = occupancy.copy()
    for owner in leaving:
        later.give_back(owner)
    for claim in ("claim0", "claim1"):
        if _come(later, claim, data.draw(shape)):
            places[claim] = later.owners[claim]
    _hold(occupancy, places)
    for owner in leaving:
        for number in range(data.draw(st.integers(0, 2))):
            _come(occupancy, f"new{number} before {owner}", data.draw(shape))
        before = [occupancy.room_of_node(node) for node in range(2)]
        refused = [one for one in shapes if not fits(occupancy, gang(one))]
        occupancy.give_back(owner)
        _hold(occupancy, places)
        after = [occupancy.room_of_node(node) for node in range(2)]
        if not any(now.has_more_than(then) for now, then in zip(after, before, strict=True)):
            assert not [one for one in refused if fits(occupancy, gang(one))]
    for claim, members in places.items():
        occupancy.give_back(claim)
        occupancy.take(claim, members)
        in_full(occupancy)


def _come(occupancy: Occupancy, owner: str, shape: Shape) -> bool:
    place = find(occupancy, gang(shape))
    if place is not None:
        occupancy.take(owner, place.members)
        in_full(occupancy)
    return place is not None


def _hold(occupancy: Occupancy, places: dict[str, tuple[MemberPlacement, ...]]) -> None:
    for claim, members in places.items():
        occupancy.take_free(claim, members)
        in_full(occupancy)


@pytest.mark.parametrize("held", [GPU, share(0.5), instance("1g.10gb", 0), instance("3g.40gb", 4)])
@pytest.mark.parametrize("idle", [(), (instance("1g.10gb", 5),), (instance("7g.80gb", 0),)])
def test_nothing_is_cut_for_room_that_is_only_held(
    held: MemberPlacement, idle: tuple[MemberPlacement, ...]
) -> None:
    """It stayed in MIG mode, or out of it, when the room was let go: who shares a GPU could not come back."""
    occupancy = occupied(*idle)
    occupancy.give_back("a")
    before = occupancy.state_of_node(0)
    for _ in range(2):
        occupancy.take_free("claim", [held])
        occupancy.take_free("other", [instance("1g.10gb", 1), instance("1g.10gb", 2)])
        occupancy.check()
        occupancy.give_back("claim")
        occupancy.give_back("other")
        assert occupancy.state_of_node(0) == before


def test_what_is_cut_beside_held_room_stays_cut_when_that_is_let_go() -> None:
    occupancy = occupied(instance("3g.40gb", 0), instance("1g.10gb", 4))
    for owner in "ab":
        occupancy.give_back(owner)
    occupancy.take_free("claim", [instance("2g.20gb", 0)])
    occupancy.take("c", [instance("2g.20gb", 4)])
    occupancy.give_back("claim")
    occupancy.check()
    idle = [(one.profile, one.start) for one in occupancy.state_of_node(0).gpus[0].instances]
    assert idle == [("3g.40gb", 0), ("2g.20gb", 4)]


def test_a_gpu_that_is_to_change_its_mode_takes_nobody_in_the_old_one() -> None:
    """Of the partition that comes first in the new mode the old holder may still be there, and others be idle."""
    site = replace(MI300X, nodes=MI300X.nodes[:1])
    occupancy = occupied(instance("dpx", 0), GPU_1, site=site)
    assert fits(occupancy, gang(Shape(mig="dpx")))
    occupancy.take_free("claim", [instance("cpx", 0)])
    assert not fits(occupancy, gang(Shape(mig="dpx")))
    occupancy.give_back("a")
    occupancy.give_back("claim")
    occupancy.take("claim", [instance("cpx", 0)])
    in_full(occupancy)
