"""Trials on a copy of an occupancy, and what refusals offer: every patch, applied, is placed."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.cluster import Allocation, Cluster, Mig, Node, Torus
from gantree.model.errors import NotFound
from gantree.model.jobs import Apart, Elastic, Job, Role, Shape, Slices, Spread, TopologySpec
from gantree.model.placements import MemberPlacement, MigPart, Placement, SharePart
from gantree.model.verdicts import Refused
from gantree.placement.choice.search import place
from gantree.placement.request.relaxations import relaxed
from gantree.placement.resize.what_if import WhatIf
from gantree.testing import builders
from gantree.testing.pictures import drawn, picture_of
from gantree.testing.placement_checker import problems_of
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.catalog import machine
from gantree.topology.occupancy.occupancy import Occupancy
from support.examples import examples

PICTURE = """s0/l0: n0 aaaa.... n1 ........
             s0/l1: n2 aaaaaaaa n3 bbbbbb.."""
STATE = (
    "free_mask_of_node",
    "parts_of_node",
)
HOST_STATE = ("nic_mask_of_node", "broken_nic_mask_of_node")
ARRAYS = (
    "free_gpus_of_node",
    "free_nics_of_node",
    "free_microcpus_of_node",
    "free_memory_KiB_of_node",
    "usable_node",
    "held_back_node",
)


def state(occupancy: Occupancy) -> tuple[object, ...]:
    """All that can be taken or given back, as values."""
    numa = {
        node: use
        for node, use in occupancy.host.numa_of_node.items()
        if use != unused(occupancy, node)
    }
    return (
        dict(occupancy.owners),
        numa,
        *(_copied(getattr(occupancy, name)) for name in STATE),
        *(_copied(getattr(occupancy.host, name)) for name in HOST_STATE),
        *(getattr(occupancy, name).tolist() for name in ARRAYS),
        *(occupancy.devices.free(name).tolist() for name in ("fpga",)),
    )


def unused(occupancy: Occupancy, node: int) -> object:
    return occupancy.emptied().numa_use(node)


def _copied(value: object) -> object:
    return dict(value) if isinstance(value, dict) else list(value)  # type: ignore[call-overload]  # a list of masks


# ----- questions of every kind

MACHINES = {
    "mig": machine("dgx-a100"),
    "plain": replace(builders.machine(4, nics=2, name="plain", cpus=32), devices=(("fpga", 1),)),
}


def site(rng: Random) -> Occupancy:
    """A small cluster of two kinds of machine, in part held in every way; or tori of small hosts."""
    if rng.random() < 0.25:
        return tori(rng)
    nodes = tuple(
        Node(
            f"n{number}",
            rng.choice(list(MACHINES)),
            (f"l{rng.randrange(2)}",),
            mig_by=rng.choice(["gpu", "node"]),
        )
        for number in range(rng.randint(2, 5))
    )
    held = tuple(
        allocation for node in nodes for allocation in held_on(rng, node) if rng.random() < 0.7
    )
    spares = {"leaf": 1} if rng.random() < 0.2 else {}
    cluster = Cluster("c", ("leaf", "node"), MACHINES, nodes, allocations=held, spares=spares)
    return Occupancy(Fabric.build(cluster))


def held_on(rng: Random, node: Node) -> Iterator[Allocation]:
    gpus = MACHINES[node.machine].gpus
    yield Allocation(f"chat-{node.name}", node.name, tuple(range(rng.randrange(gpus))))
    if node.machine == "mig" and rng.random() < 0.5:
        yield Allocation("cut", node.name, mig=(MigPart(gpus - 1, "3g.40gb", rng.choice([0, 4])),))
    elif rng.random() < 0.5:
        yield Allocation("half", node.name, shares=(SharePart(gpus - 1, 0.5, 8, "mps"),))


def tori(rng: Random) -> Occupancy:
    """A torus of 4 x 4 GPUs on hosts of 2 x 2 or 1 x 1."""
    side = rng.choice([1, 2])
    hosts = (4 // side) ** 2
    nodes = tuple(Node(f"t{number}", "host", ("l0",)) for number in range(hosts))
    torus = Torus("t", (4, 4), (side, side), tuple(node.name for node in nodes), (True, True))
    host = replace(builders.machine(side * side, name="host"))
    held = tuple(Allocation("x", node.name, (0,)) for node in nodes if rng.random() < 0.3)
    cluster = Cluster("c", ("leaf", "node"), {"host": host}, nodes, allocations=held, tori=(torus,))
    return Occupancy(Fabric.build(cluster))


def asked(rng: Random, occupancy: Occupancy) -> Job:
    members = rng.choice([1, 2, 2, 3, 4, 6, 8, 12])
    if occupancy.fabric.cluster.tori:
        box = rng.choice([(), (2, 2), (4, 2), (4, 4), (2, 4)])
        role = Role("w", box[0] * box[1] if box else members, Shape(gpus=1))
        return Job("j", (role,), topology=TopologySpec(box=box))
    tiers = ("leaf", "node")
    run = rng.choice([1, 1, 2, 3])
    topology = TopologySpec(
        required=rng.choice([None, None, *tiers]),
        slices=(Slices(run, rng.choice(tiers)),) if run > 1 else (),
        spread=rng.choice([None, None, Spread(rng.choice(tiers), rng.choice([None, 1, 2]))]),
        apart=(Apart(rng.choice(tiers), ("chat-*",)),) if rng.random() < 0.15 else (),
    )
    roles = [Role("w", members, shape(rng))]
    if rng.random() < 0.2:
        roles.append(Role("v", rng.randint(1, 3), Shape(gpus=rng.choice([0, 1]), cpus=2)))
    return Job("j", tuple(roles), topology=topology, communicates=rng.random() < 0.7)


def shape(rng: Random) -> Shape:
    kind = rng.choice(["gpus", "gpus", "mig", "share"])
    if kind == "mig":
        return Shape(mig=rng.choice(["1g.10gb", "3g.40gb", "7g.80gb"]))
    if kind == "share":
        return Shape(gpu_share=rng.choice([0.25, 0.5]), neighbours=rng.random() < 0.5)
    return Shape(
        gpus=rng.choice([1, 2, 4]),
        nics=rng.choice([0, 0, 1]),
        devices=rng.choice([(), (("fpga", 1),)]),
    )


@settings(max_examples=examples(200))
@given(st.integers(0, 2**32 - 1))
def test_every_patch_that_a_refusal_offers_is_placed_when_applied(seed: int) -> None:
    rng = Random(seed)
    occupancy = site(rng)
    job = asked(rng, occupancy)
    trial = WhatIf(occupancy)
    verdict = place(occupancy, job)
    for relaxation in verdict.would_fit_if if isinstance(verdict, Refused) else ():
        looser = relaxed(job, relaxation.patch)
        with trial.branch():
            found = trial.place(looser)
            assert isinstance(found, Placement), relaxation
            assert problems_of(occupancy, looser, found) == []
            trial.occupancy.check()


@settings(max_examples=examples(75))
@given(st.integers(0, 2**32 - 1))
def test_trials_leave_the_occupancy_and_a_branch_leaves_the_trial_as_they_were(seed: int) -> None:
    rng = Random(seed)
    occupancy = site(rng)
    untouched, trial = state(occupancy), WhatIf(occupancy)
    assert state(trial.occupancy) == untouched
    some_steps(rng, trial)
    so_far = state(trial.occupancy)
    for _ in range(2):
        with trial.branch():
            some_steps(rng, trial)
            with trial.branch():
                some_steps(rng, trial)
            trial.occupancy.check()
        assert state(trial.occupancy) == so_far
    assert state(occupancy) == untouched
    occupancy.check()


def some_steps(rng: Random, trial: WhatIf) -> None:
    for _ in range(rng.randint(1, 3)):
        owners = list(trial.occupancy.owners)
        step = rng.randrange(4)
        if step == 0 and owners:
            trial.give_back(rng.choice(owners))
        elif step == 1:
            trial.without(rng.choice(trial.occupancy.fabric.nodes).name)
        else:
            trial.place(asked(rng, trial.occupancy))


# ----- what each question means


def gpus_held(verdicts: list[Placement | Refused]) -> list[int | None]:
    return [
        sum(len(member.gpus) for member in verdict.members)
        if isinstance(verdict, Placement)
        else None
        for verdict in verdicts
    ]


def test_jobs_hold_their_place_for_those_after_them() -> None:
    trial = WhatIf(drawn(PICTURE))
    jobs = [builders.job("a", 1, 8), builders.job("a", 1, 8), builders.job("b", 1, 4)]
    assert gpus_held(trial.place_all(jobs)) == [8, None, 4]
    assert list(trial.occupancy.owners) == ["a", "b", "0:a", "1:b"]


def test_without_a_node_says_who_is_on_it_and_places_nothing_there() -> None:
    trial = WhatIf(drawn(PICTURE))
    assert trial.without("n1") == ()
    assert trial.without("n3") == ("b",)
    assert gpus_held([trial.place(builders.job("j", 1, 2))]) == [2]
    assert isinstance(trial.place(builders.job("j", 1, 6)), Refused)
    assert picture_of(trial.occupancy).count("!") == 2


def test_what_is_given_back_is_free_for_others() -> None:
    trial = WhatIf(drawn(PICTURE))
    trial.give_back("a")
    assert gpus_held([trial.place(builders.job("j", 3, 8))]) == [24]


def test_a_branch_is_undone_also_when_it_fails() -> None:
    trial = WhatIf(drawn(PICTURE))
    before = picture_of(trial.occupancy)
    with pytest.raises(ZeroDivisionError), trial.branch():
        trial.place(builders.job("j", 1, 8))
        trial.give_back("a")
        raise ZeroDivisionError
    assert picture_of(trial.occupancy) == before


def test_idle_mig_instances_are_there_again_after_a_branch_that_took_their_gpus_whole() -> None:
    node = Node("n0", "mig", (), mig=(Mig(0, (("3g.40gb", 0),)),))
    trial = WhatIf(Occupancy(Fabric.build(Cluster("c", ("node",), MACHINES, (node,)))))
    before = state(trial.occupancy)
    with trial.branch():
        assert gpus_held([trial.place(builders.job("j", 1, 8))]) == [8]
    assert state(trial.occupancy) == before


def test_an_elastic_gang_is_tried_smaller_where_it_must_be() -> None:
    trial = WhatIf(drawn(PICTURE))
    job = replace(builders.job("j", 4, 4), elastic=Elastic(2, 4))
    assert gpus_held(trial.place_all([job, job])) == [12, None]


def test_a_change_of_the_original_is_not_seen() -> None:
    occupancy = drawn(PICTURE)
    trial = WhatIf(occupancy)
    occupancy.take("c", [MemberPlacement("x", 0, "n1", tuple(range(8)))])
    with trial.branch():
        trial.give_back("a")
    assert gpus_held([trial.place(builders.job("j", 1, 8))]) == [8]


def test_who_and_what_is_not_there_is_told_with_the_likely_word() -> None:
    trial = WhatIf(drawn("s0/l0: n0 aaaa...."))
    with pytest.raises(NotFound, match="no node 'n00'; did you mean 'n0'"):
        trial.without("n00")
    with pytest.raises(NotFound, match="no owner 'x'"):
        trial.give_back("x")
