"""Reservations against trying every moment."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.cluster import Cluster, Node
from gantree.model.jobs import Apart, Job, Role, Shape, TopologySpec
from gantree.model.placements import MemberPlacement
from gantree.placement.choice.search import find, fits
from gantree.planning.reservations.reserve import (
    Held,
    PlannedStart,
    Running,
    Timeline,
    may_backfill,
    passable,
    promise_and_estimate,
    reserve,
    slip_of,
    still_true,
)
from gantree.testing.builders import machine
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy
from support.examples import examples

NOW = 10.0

SHAPES = (
    Shape(gpus=1),
    Shape(gpus=2, cpus=1),
    Shape(gpus=4),
    Shape(gpus=1, cpus=3),
    Shape(gpu_share=0.5),
    Shape(cpus=2),
)


@dataclass
class Scene:
    """An occupancy and who leaves it when."""

    occupancy: Occupancy
    running: list[Running]


def gang(name: str, members: int, shape: Shape, required: str | None = None) -> Job:
    return Job(name, (Role("worker", members, shape),), topology=TopologySpec(required))


def empty_site() -> Occupancy:
    """Two leaves of two nodes, each with 4 GPUs and 6 CPUs."""
    model = machine(4, name="m4", cpus=6)
    nodes = tuple(Node(f"n{n}", "m4", (f"l{n // 2}",)) for n in range(4))
    return Occupancy(Fabric.build(Cluster("site", ("leaf", "node"), {"m4": model}, nodes)))


def filled(gangs: Sequence[tuple[int, Shape, float, bool]]) -> Scene:
    """As many of the (members, shape, end, enforced) as fit, in order."""
    scene = Scene(empty_site(), [])
    for number, (members, shape, ends_at, enforced) in enumerate(gangs):
        placement = find(scene.occupancy, gang(f"j{number}", members, shape))
        if placement is not None:
            scene.occupancy.take(f"j{number}", placement.members)
            scene.running.append(Running(f"j{number}", ends_at, enforced))
    return scene


ends = st.sampled_from([5.0, 10.0, 12.0, 15.0, 20.0, 30.0, 40.0, inf])
fills = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from(SHAPES), ends, st.booleans()), max_size=9
)
wants = st.builds(
    gang,
    st.just("wanted"),
    st.integers(1, 4),
    st.sampled_from(SHAPES),
    st.sampled_from([None, "leaf", "node"]),
)
uncut_fills = fills.filter(lambda gangs: not any(shape.part for _, shape, _, _ in gangs))
uncut_wants = wants.filter(lambda job: not job.roles[0].shape.part)
"""Without shares: of a GPU that is shared and that a place has whole, the rest cannot be held."""


def at(scene: Scene, moment: float) -> Occupancy:
    """The occupancy at a moment: who leaves by then is gone; places still awaited hold what is free of them."""
    later = scene.occupancy.copy()
    for one in scene.running:
        if one.ends_at <= moment or one.place:
            later.give_back(one.owner)
    for one in scene.running:
        if one.place and one.ends_at > moment:
            later.take_free(one.owner, one.place)
    return later


def earliest(scene: Scene, wanted: Job) -> float | None:
    """The first of all moments at which somebody leaves, or now, at which the gang fits."""
    moments = sorted({NOW, *(max(NOW, one.ends_at) for one in scene.running)} - {inf})
    return next((moment for moment in moments if fits(at(scene, moment), wanted)), None)


def state(occupancy: Occupancy) -> tuple[object, ...]:
    return (
        occupancy.version,
        dict(occupancy.owners),
        list(occupancy.free_mask_of_node),
        occupancy.free_microcpus_of_node.tolist(),
        dict(occupancy.parts_of_node),
        occupancy.usable_node.tolist(),
    )


def without(occupancy: Occupancy, owners: Iterable[str]) -> Occupancy:
    emptier = occupancy.copy()
    for owner in owners:
        emptier.give_back(owner)
    return emptier


@given(fills, wants)
@settings(max_examples=examples(80))
def test_a_start_is_the_earliest_of_all_moments_and_nothing_is_changed(
    gangs: list[tuple[int, Shape, float, bool]], wanted: Job
) -> None:
    scene = filled(gangs)
    before = state(scene.occupancy)
    found = reserve(scene.occupancy, wanted, scene.running, NOW)
    assert state(scene.occupancy) == before
    assert (found.starts_at if found else None) == earliest(scene, wanted)


@given(fills, wants)
@settings(max_examples=examples(80))
def test_the_place_is_free_once_those_are_gone_that_it_waits_for_and_not_before(
    gangs: list[tuple[int, Shape, float, bool]], wanted: Job
) -> None:
    scene = filled(gangs)
    found = reserve(scene.occupancy, wanted, scene.running, NOW)
    if found is None:
        return
    members = found.placement.members
    assert not without(scene.occupancy, found.waits_for).missing(members)
    for owner in found.waits_for:
        others = [other for other in found.waits_for if other != owner]
        assert without(scene.occupancy, others).missing(members), f"{owner} is not in the way"


@given(fills, wants)
@settings(max_examples=examples(60))
def test_a_start_is_promised_where_all_that_it_waits_for_have_an_enforced_end(
    gangs: list[tuple[int, Shape, float, bool]], wanted: Job
) -> None:
    scene = filled(gangs)
    limits = [one if one.enforced else replace(one, ends_at=inf) for one in scene.running]
    sooner = [replace(one, ends_at=one.ends_at - 7, enforced=False) for one in scene.running]
    promise, estimate = promise_and_estimate(scene.occupancy, wanted, limits, sooner, NOW)
    assert promise is None or promise.promised
    if estimate is not None and promise is not None:
        assert estimate.starts_at < promise.starts_at
        assert not estimate.promised
    alone = reserve(scene.occupancy, wanted, scene.running, NOW)
    if alone is not None:
        enforced = {one.owner: one.enforced for one in scene.running}
        assert alone.promised == all(enforced[owner] for owner in alone.waits_for)


@given(uncut_fills, st.lists(st.tuples(uncut_wants, st.sampled_from([3.0, 12.0, inf])), max_size=4))
@settings(max_examples=examples(80))
def test_several_deep_each_is_the_earliest_that_leaves_the_places_of_those_before_it(
    gangs: list[tuple[int, Shape, float, bool]], wanted: list[tuple[Job, float]]
) -> None:
    scene = filled(gangs)
    timeline = Timeline(scene.occupancy, scene.running, NOW)
    for number, (job, run_s) in enumerate(wanted):
        found = timeline.reserve(job)
        assert (found.starts_at if found else None) == earliest(scene, job)
        if found is None:
            continue
        assert not at(scene, found.starts_at).missing(found.placement.members)
        assert found == reserve(scene.occupancy, job, scene.running, NOW)
        places = [one.owner for one in scene.running if one.place]
        now = at(scene, -inf)
        assert not without(now, found.waits_for).missing(found.placement.members)
        for owner in found.waits_for:
            others = [other for other in found.waits_for if other != owner]
            if owner not in places:
                assert without(now, others).missing(found.placement.members), f"{owner} may stay"
        held = Running(f"reserve:{number}", found.starts_at + run_s, True, found.placement.members)
        timeline.add(held)
        scene.running.append(held)


@given(uncut_fills, uncut_wants, st.data())
@settings(max_examples=examples(80))
def test_what_passes_a_promise_never_delays_it(
    gangs: list[tuple[int, Shape, float, bool]], wanted: Job, data: st.DataObject
) -> None:
    """Small gangs are let in as the walk does it; when the moment comes, the reserved place is free."""
    scene = filled(gangs)
    found = reserve(scene.occupancy, wanted, scene.running, NOW)
    if found is None:
        return
    live = scene.occupancy
    live.take_free("reserve:wanted", found.placement.members)
    held = [Held("reserve:wanted", found)]
    running = list(scene.running)
    asked = data.draw(
        st.lists(st.tuples(uncut_wants, st.sampled_from([2.0, 5.0, 9.0, 25.0, inf])), max_size=6)
    )
    for number, (job, run_s) in enumerate(asked):
        ends_at = NOW + run_s
        room = without(live, passable(held, ends_at, enforced=run_s < inf))
        placement = find(room, job)
        if placement is not None:
            live.give_back("reserve:wanted")
            live.take(f"passer{number}", placement.members)
            live.take_free("reserve:wanted", found.placement.members)
            running.append(Running(f"passer{number}", ends_at, run_s < inf))
    assert still_true(live, "reserve:wanted", found, running, NOW)
    later = without(live, [one.owner for one in running if one.ends_at <= found.starts_at])
    later.give_back("reserve:wanted")
    assert not later.missing(found.placement.members)


@given(fills, wants, st.lists(ends, min_size=9, max_size=9))
@settings(max_examples=examples(80))
def test_a_reservation_stands_exactly_while_its_place_is_free_by_its_start(
    gangs: list[tuple[int, Shape, float, bool]], wanted: Job, known_later: list[float]
) -> None:
    scene = filled(gangs)
    found = reserve(scene.occupancy, wanted, scene.running, NOW)
    if found is None:
        return
    running = [
        replace(one, ends_at=ends_at)
        for one, ends_at in zip(scene.running, known_later, strict=False)
    ]
    gone = [one.owner for one in running if max(NOW, one.ends_at) <= found.starts_at]
    free = not without(scene.occupancy, gone).missing(found.placement.members)
    assert still_true(scene.occupancy, "reserve:wanted", found, running, NOW) == free


def two_nodes(*owners: str) -> Occupancy:
    """n0 and on, each held whole by its owner; "" for a free one."""
    occupancy = empty_site()
    for node, owner in enumerate(owners):
        if owner:
            occupancy.take(owner, (MemberPlacement("worker", 0, f"n{node}", (0, 1, 2, 3)),))
    return occupancy


WHOLE = Shape(gpus=4)


def reserved(occupancy: Occupancy, job: Job, *running: Running) -> PlannedStart:
    found = reserve(occupancy, job, running, NOW)
    assert found is not None
    return found


def test_a_gang_that_fits_now_starts_now_and_waits_for_nobody() -> None:
    found = reserved(two_nodes("a"), gang("wanted", 3, WHOLE))
    assert (found.starts_at, found.promised, found.waits_for) == (NOW, True, ())


def test_what_never_fits_has_no_reservation() -> None:
    ends_soon = [Running("a", 20, True)]
    assert reserve(two_nodes("a"), gang("wanted", 5, WHOLE), ends_soon, NOW) is None
    assert reserve(two_nodes("a", "b"), gang("wanted", 4, WHOLE), ends_soon, NOW) is None


def test_one_leaf_is_waited_for_and_not_scattered_nodes() -> None:
    """a and c end first, but only b frees the second node of a leaf."""
    occupancy = two_nodes("a", "b", "c", "d")
    running = [
        Running(owner, end, True) for owner, end in zip("acbd", (20, 30, 40, 50), strict=True)
    ]
    found = reserved(occupancy, gang("wanted", 2, WHOLE, "leaf"), *running)
    assert (found.starts_at, found.waits_for) == (40, ("a", "b"))


def test_an_end_that_has_passed_counts_as_now() -> None:
    found = reserved(
        two_nodes("a", "b", "c", "d"), gang("wanted", 1, WHOLE), Running("b", 3, False)
    )
    assert (found.starts_at, found.promised, found.waits_for) == (NOW, False, ("b",))


def test_the_promised_start_is_told_apart_from_the_earlier_estimate() -> None:
    occupancy = two_nodes("a", "b", "c", "d")
    limits = [Running("a", 500, True), *(Running(owner, inf, False) for owner in "bcd")]
    probably = [Running("a", 400, False), Running("b", 50, False), *limits[2:]]
    promise, estimate = promise_and_estimate(
        occupancy, gang("wanted", 1, WHOLE), limits, probably, NOW
    )
    assert promise is not None
    assert estimate is not None
    assert (promise.starts_at, promise.promised, promise.waits_for) == (500, True, ("a",))
    assert (estimate.starts_at, estimate.promised, estimate.waits_for) == (50, False, ("b",))


def test_an_estimate_that_is_no_earlier_than_the_promise_is_left_out() -> None:
    limits = [Running(owner, 500, True) for owner in "abcd"]
    both = promise_and_estimate(
        two_nodes("a", "b", "c", "d"), gang("wanted", 1, WHOLE), limits, limits, NOW
    )
    assert both[0] is not None
    assert both[1] is None


def test_its_own_reservation_is_free_for_the_gang_that_is_asked_for_anew() -> None:
    occupancy = two_nodes("a", "b", "c", "reserve:wanted")
    wanted = gang("wanted", 1, WHOLE)
    assert reserve(occupancy, wanted, (), NOW) is None
    found = reserve(occupancy, wanted, (), NOW, without=["reserve:wanted"])
    assert found is not None
    assert found.starts_at == NOW


def test_a_gang_that_must_be_apart_waits_for_those_it_must_be_apart_from() -> None:
    occupancy = empty_site()
    for node in range(4):
        occupancy.take(f"chat-{node}", (MemberPlacement("worker", 0, f"n{node}", (3,)),))
    running = [Running(f"chat-{node}", 20.0 + node, True) for node in range(4)]
    wanted = gang("wanted", 1, Shape(gpus=1))
    wanted = replace(wanted, topology=TopologySpec(apart=(Apart("node", ("chat-*",)),)))
    found = reserved(occupancy, wanted, *running)
    assert (found.starts_at, found.waits_for) == (20, ("chat-0",))


def test_who_may_use_reserved_room() -> None:
    by_limit, by_estimate = {"enforced": True}, {"enforced": False}
    assert may_backfill(100, 100, **by_limit)
    assert not may_backfill(100, 101, **by_limit)
    assert not may_backfill(100, 50, **by_estimate)
    assert may_backfill(100, 50, **by_estimate, promised=False)
    assert not may_backfill(100, 101, **by_estimate, promised=False)
    assert not may_backfill(100, 50, **by_estimate, promised=False, slips=1)
    assert may_backfill(100, 50, **by_limit, promised=False, slips=1)


def test_a_slip_names_its_cause() -> None:
    occupancy = two_nodes("a", "b", "c", "d")
    running = [Running("a", 20, True), *(Running(owner, 90, True) for owner in "bcd")]
    found = reserved(occupancy, gang("wanted", 1, WHOLE), *running)

    def sentence(where: Occupancy, a_ends_at: float = 20, now: float = NOW) -> str | None:
        later = [Running("a", a_ends_at, True), *running[1:]]
        slip = slip_of(where, "reserve:wanted", found, later, now)
        return slip.sentence if slip else None

    assert sentence(occupancy) is None
    assert sentence(without(occupancy, "a")) is None
    assert sentence(occupancy, a_ends_at=21) == "a runs longer than it was to"
    assert sentence(occupancy, now=20.5) == "a runs longer than it was to"
    lost = occupancy.copy()
    lost.mark("n0", usable=False)
    assert sentence(lost) == "node n0 was lost"
    taken = without(occupancy, "a")
    taken.take("boss", (MemberPlacement("worker", 0, "n0", (2,)),))
    assert sentence(taken) == "boss went first"


def test_a_nic_that_breaks_is_a_cause_where_the_place_has_it() -> None:
    model = machine(4, nics=2, name="m4")
    fabric = Fabric.build(Cluster("site", ("node",), {"m4": model}, (Node("n0", "m4"),)))
    occupancy = Occupancy(fabric)
    job = gang("wanted", 1, Shape(gpus=2, nics=1))
    found = reserved(occupancy, job)
    (nic,) = found.placement.members[0].nics
    for name, expected in ((nic, "node n0 was lost"), ("mlx5_1", None)):
        broken = occupancy.copy()
        broken.host.broken_nic_mask_of_node[0] = 1 << int(name[-1])
        slip = slip_of(broken, "reserve:wanted", found, (), NOW)
        assert (slip and slip.sentence) == expected


def test_of_sixteen_leaves_that_one_is_waited_for_of_which_enough_nodes_are_free_first() -> None:
    occupancy = Occupancy(
        Fabric.build(
            Cluster(
                "large",
                ("leaf", "node"),
                {"m": machine(8)},
                tuple(Node(f"n{n}", "m", (f"l{n // 32}",)) for n in range(512)),
            )
        )
    )
    ends_at = np.random.default_rng(5).permutation(512).astype(float) + NOW
    for node in range(512):
        occupancy.take(f"{node}", (MemberPlacement("worker", 0, f"n{node}", tuple(range(8))),))
    running = [Running(f"{node}", float(end), True) for node, end in enumerate(ends_at)]
    found = reserved(occupancy, gang("wanted", 24, Shape(gpus=8), "leaf"), *running)
    of_leaf = np.sort(ends_at.reshape(16, 32), axis=1)[:, 23]
    assert found.starts_at == of_leaf.min()
    assert len(found.waits_for) == 24
