"""AMD's compute partitions: a mode is of a whole GPU, so all that jobs hold of a GPU is of one mode."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.cluster import Cluster, Machine, Mig, Node
from gantree.model.jobs import Job, Role, Shape
from gantree.model.placements import Placement
from gantree.model.verdicts import Refused
from gantree.placement.choice.search import place
from gantree.placement.machine.mig import MODE_OF_GPU_S
from gantree.testing.placement_checker import problems_of
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.mig import MigInstance, mig_table
from gantree.topology.occupancy.occupancy import Occupancy
from support.examples import examples

PARTITIONS = {"dpx": 2, "qpx": 4, "cpx": 8}


def of_mi300x(gpus: int = 2, gpu: str = "MI300X-192GB", **node: Any) -> Occupancy:
    nodes = (Node("n0", "m", **node),)
    return Occupancy(Fabric.build(Cluster("c", ("node",), {"m": Machine("m", gpus, gpu)}, nodes)))


def job(name: str, mode: str | None, members: int = 1) -> Job:
    shape = Shape(mig=mode) if mode else Shape(gpus=1)
    return Job(name, roles=(Role("r", members, shape),), communicates=False)


def start(where: Occupancy, asked: Job) -> Placement | Refused:
    """Place a job and take its place; every place is judged."""
    found = place(where, asked)
    if isinstance(found, Placement):
        assert problems_of(where, asked, found) == []
        where.take(asked.name, found.members)
    where.check()
    return found


def gpus_of(found: Placement | Refused) -> list[int]:
    assert isinstance(found, Placement), found.sentence
    return [part.gpu for member in found.members for part in member.mig]


@pytest.mark.parametrize(
    ("gpu", "mode", "starts"),
    [
        ("MI300X-192GB", "cpx", [0, 1, 2, 3, 4, 5, 6, 7]),
        ("MI325X-256GB", "qpx", [0, 2, 4, 6]),
        ("MI355X-288GB", "dpx", [0, 4]),
        ("MI300A-128GB", "tpx", [0, 2, 4]),
        ("MI300A-128GB", "cpx", [0, 1, 2, 3, 4, 5]),
    ],
)
def test_a_mode_makes_all_partitions_of_a_gpu_at_once(
    gpu: str, mode: str, starts: list[int]
) -> None:
    found = start(of_mi300x(1, gpu), job("j", mode))
    assert isinstance(found, Placement)
    (change,) = found.changes
    assert change.mode is True and change.seconds == MODE_OF_GPU_S
    assert [(part.profile, part.start) for part in change.create] == [(mode, at) for at in starts]


def test_partitions_of_two_modes_never_fit_on_one_gpu() -> None:
    table = mig_table("MI300X-192GB")
    assert table is not None
    assert table.fits([MigInstance("qpx", 0)], "cpx") == ()
    assert table.fits([MigInstance("qpx", 0)], "qpx") == (2, 4, 6)


def test_a_gpu_that_is_in_the_mode_comes_first_and_one_that_is_held_keeps_its_mode() -> None:
    where = of_mi300x(2)
    first, second = start(where, job("a", "qpx")), start(where, job("b", "qpx", 3))
    assert gpus_of(second) == gpus_of(first) * 3
    assert isinstance(second, Placement) and second.changes == ()
    assert gpus_of(start(where, job("c", "cpx", 8))) == [1 - gpus_of(first)[0]] * 8
    refused = start(where, job("d", "cpx"))
    assert isinstance(refused, Refused)
    assert "needs 1 partition in cpx; 0 are free" in refused.sentence
    where.give_back("b")
    assert isinstance(start(where, job("e", "cpx")), Refused)
    where.give_back("a")
    found = start(where, job("f", "cpx"))
    assert isinstance(found, Placement)
    (change,) = found.changes
    assert (change.mode, len(change.destroy), len(change.create)) == (None, 4, 8)


def test_an_idle_gpu_in_a_mode_is_had_whole_unless_nobody_changes_modes() -> None:
    cut = Mig(0, (("cpx", 3),))
    found = start(of_mi300x(1, mig=(cut,)), job("j", None))
    assert isinstance(found, Placement)
    (change,) = found.changes
    assert (change.mode, len(change.destroy)) == (False, 8)
    fixed = of_mi300x(1, mig=(cut,), mig_by="nobody")
    assert isinstance(start(fixed, job("whole", None)), Refused)
    assert isinstance(start(fixed, job("other", "qpx")), Refused)
    assert gpus_of(start(fixed, job("all", "cpx", 8))) == [0] * 8


@pytest.mark.parametrize(
    ("gpus", "fits"), [(1, False), (2, False), (3, True)], ids=["one", "two", "three"]
)
def test_roles_of_one_gang_in_two_modes_and_whole_gpus_need_gpus_of_their_own(
    gpus: int, fits: bool
) -> None:
    shapes = (Shape(mig="cpx"), Shape(mig="dpx"), Shape(gpus=1))
    roles = tuple(Role(f"r{number}", 1, shape) for number, shape in enumerate(shapes))
    found = start(of_mi300x(gpus), Job("j", roles=roles, communicates=False))
    assert isinstance(found, Placement) == fits


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([None, *PARTITIONS]), st.integers(1, 9), st.booleans()),
        max_size=12,
    )
)
def test_jobs_fit_exactly_where_a_plain_count_of_gpus_by_mode_has_room(
    asked: list[tuple[str | None, int, bool]],
) -> None:
    """Each job of a list starts or is refused; some then end at once. What is left of GPUs is counted by hand."""
    gpus, where = 3, of_mi300x(3)
    for number, (mode, members, ends) in enumerate(asked):
        name = f"j{number}"
        held: dict[int, Counter[str]] = {gpu: Counter() for gpu in range(gpus)}
        for placed in where.owners.values():
            for member in placed:
                for gpu in member.gpus:
                    held[gpu]["whole"] += 1
                for part in member.mig:
                    held[part.gpu][part.profile] += 1
        assert all(len(modes) <= 1 for modes in held.values())
        most = PARTITIONS.get(mode or "", 1)
        room = sum(most - on[mode or "whole"] for on in held.values() if set(on) <= {mode})
        found = start(where, job(name, mode, members))
        assert isinstance(found, Placement) == (members <= room)
        if ends and isinstance(found, Placement):
            where.give_back(name)


def test_a_mode_that_was_not_set_for_one_gang_stays_where_another_one_has_a_partition() -> None:
    """The first gang's start failed after the second one was placed on the same GPU."""
    where = of_mi300x(1)
    first, second = start(where, job("a", "cpx")), start(where, job("b", "cpx"))
    assert isinstance(first, Placement) and isinstance(second, Placement)
    where.give_back("a")
    where.undo(first.changes)
    where.check()
    rest = start(where, job("c", "cpx", 7))
    assert isinstance(rest, Placement) and rest.changes == ()
    where.give_back("b")
    where.give_back("c")
    where.undo(first.changes)
    assert where.free_gpus("n0") == (0,) and 0 not in where.parts_of_node
