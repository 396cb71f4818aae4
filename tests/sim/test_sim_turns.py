"""Gangs that are suspended, that have other members than expected, and that pay at every event."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.model.events import Event
from gantree.model.orders import MemberLaunch, ResumeGang, StartGang, StopGang, SuspendGang
from gantree.sim.cluster import Overheads, SimCluster
from gantree.sim.heap import EventHeap
from gantree.sim.work import Doing


class World:
    """A cluster with one job "j" of 100 s of work with 4 members, and the time at which things happen."""

    def __init__(
        self, overheads: Overheads | None = None, checkpoint_s: float | None = None
    ) -> None:
        self.now = 0.0
        self.told: list[Event] = []
        self.heap = EventHeap()
        self.cluster = SimCluster(
            self.heap, self.told.append, lambda: self.now, overheads or Overheads()
        )
        self.cluster.expect("j", 100.0, checkpoint_s, members=4)

    def start(self, members: int = 4, attempt: int = 1) -> None:
        launches = tuple(
            MemberLaunch("worker", rank, "n0", rank, rank, 1, (rank,), (), ())
            for rank in range(members)
        )
        self.cluster.carry_out(
            StartGang(id="o", job="j", attempt=attempt, world_size=members, members=launches)
        )

    def stop(self, attempt: int = 1) -> None:
        self.cluster.carry_out(StopGang(id="o", job="j", attempt=attempt, grace_s=30.0))

    def turn(self, kind: type[SuspendGang | ResumeGang], turn: int) -> None:
        self.cluster.carry_out(kind(id="o", job="j", attempt=1, turn=turn))

    def until(self, moment: float) -> list[str]:
        """Let everything happen up to a moment; say what was told meanwhile."""
        known = len(self.told)
        while (foretold_at := self.heap.next_moment()) is not None and foretold_at <= moment:
            self.now = foretold_at
            self.cluster.happen(self.heap.pop())
        self.now = moment
        return [f"{type(e).__name__} {e.observed_at:g}" for e in self.told[known:]]

    def event_at(self, moment: float) -> list[str]:
        """Something else happens on the cluster."""
        told = self.until(moment)
        self.cluster.charge()
        return told

    @property
    def doing(self) -> Doing:
        return self.cluster.inventory()["j", 1]


def test_a_suspended_gang_does_no_work_and_goes_on_where_it_was() -> None:
    world = World()
    world.start()
    world.until(40)
    world.turn(SuspendGang, 1)
    assert world.doing is Doing.SUSPENDED
    assert world.until(1000) == []
    world.turn(ResumeGang, 2)
    assert world.until(2000) == ["GangEnded 1060"]


def test_suspending_and_resuming_twice_is_the_same_as_once_and_an_older_turn_changes_nothing() -> (
    None
):
    world = World()
    world.start()
    world.until(40)
    world.turn(SuspendGang, 1)
    world.until(50)
    world.turn(SuspendGang, 1)
    world.until(60)
    world.turn(ResumeGang, 2)
    world.turn(ResumeGang, 2)
    world.turn(SuspendGang, 1)
    assert world.until(1000) == ["GangEnded 120"]


def test_a_gang_that_is_suspended_while_it_starts_works_from_its_turn_on() -> None:
    world = World(Overheads(start_s=5))
    world.start()
    world.turn(SuspendGang, 1)
    assert world.until(20) == ["GangStarted 5"]
    assert world.doing is Doing.SUSPENDED
    world.turn(ResumeGang, 2)
    assert world.until(1000) == ["GangEnded 120"]


def test_the_next_checkpoint_is_due_after_as_much_work_whatever_the_pauses() -> None:
    world = World(checkpoint_s=30)
    world.start()
    world.until(20)
    world.turn(SuspendGang, 1)
    world.until(50)
    world.turn(ResumeGang, 2)
    told = world.until(1000)
    assert told == [
        "CheckpointSaved 60",
        "CheckpointSaved 90",
        "CheckpointSaved 120",
        "GangEnded 130",
    ]


def test_time_that_a_gang_was_suspended_is_not_lost_but_its_work_is() -> None:
    world = World()
    world.start()
    world.until(40)
    world.turn(SuspendGang, 1)
    world.until(70)
    world.turn(SuspendGang, 1)
    world.until(90)
    world.stop()
    world.until(90)
    world.start(attempt=2)
    assert world.cluster.work_of_job["j"].lost_s == 40


@pytest.mark.parametrize(("members", "end"), [(1, 400), (2, 200), (4, 100), (8, 50)])
def test_a_gang_works_as_fast_as_it_has_members(members: int, end: float) -> None:
    world = World()
    world.start(members)
    assert world.until(1000) == ["GangStarted 0", f"GangEnded {end:g}"]


def test_a_gang_that_grows_goes_on_from_the_work_that_was_kept() -> None:
    world = World(checkpoint_s=30)
    world.start(2)
    assert world.until(70) == ["GangStarted 0", "CheckpointSaved 60"]
    world.stop()
    world.until(70)
    world.start(8, attempt=2)
    assert world.cluster.work_of_job["j"].lost_s == 5  # 10 s of 2 members of 4
    assert world.until(1000)[-1] == "GangEnded 105"  # 70 s of work by twice the members


def test_every_event_costs_a_gang_that_works_its_start_and_the_end_costs_nothing() -> None:
    world = World(Overheads(start_s_of_job={"j": 10}, at_every_event=True))
    world.start()
    assert world.event_at(0) == ["GangStarted 0"]
    world.event_at(50)  # 40 s done
    world.event_at(55)  # nothing done, not less
    assert world.until(1000) == ["GangEnded 115"]


@given(st.lists(st.integers(1, 40), max_size=8), st.integers(0, 12))
def test_work_at_every_event_is_what_the_rule_says(gaps_s: list[int], overhead_s: int) -> None:
    world = World(Overheads(start_s=overhead_s, at_every_event=True))
    world.start()
    world.event_at(0)
    now, left_s = 0, Fraction(100)
    for gap_s in gaps_s:
        if gap_s >= left_s:
            break
        now += gap_s
        left_s -= max(gap_s - overhead_s, 0)
        world.event_at(now)
    assert world.until(10_000) == [f"GangEnded {float(now + left_s):g}"]
