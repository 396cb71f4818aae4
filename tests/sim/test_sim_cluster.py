"""The simulated cluster by itself: orders in, events out, the same however often and however late it is told."""

from typing import Any

import pytest

from gantree.model.events import Event
from gantree.model.orders import Order, SaveCheckpoint, StartGang, StopGang
from gantree.sim.cluster import Overheads, SimCluster
from gantree.sim.heap import EventHeap
from gantree.sim.work import Doing


class World:
    """A cluster with one job "j" of 100 s of work, saved every 30 s, and the time at which things happen."""

    def __init__(self, overheads: Overheads, checkpoint_s: float | None = 30.0) -> None:
        self.now = 0.0
        self.told: list[Event] = []
        self.heap = EventHeap()
        self.cluster = SimCluster(self.heap, self.told.append, lambda: self.now, overheads)
        self.cluster.expect("j", 100.0, checkpoint_s)

    def order(self, kind: type[Order], attempt: int = 1, epoch: int = 0) -> None:
        """Give an order now."""
        words: dict[type[Order], dict[str, Any]] = {
            StartGang: {"world_size": 1, "members": ()},
            StopGang: {"grace_s": 30.0},
            SaveCheckpoint: {"request": "r", "deadline_at": self.now + 60},
        }
        fields = words[kind]
        order: Order = kind(id="o", job="j", attempt=attempt, epoch=epoch, **fields)
        self.cluster.carry_out(order)

    def until(self, moment: float) -> list[str]:
        """Let everything happen up to a moment; say what was told meanwhile."""
        known = len(self.told)
        while (foretold_at := self.heap.next_moment()) is not None and foretold_at <= moment:
            self.now = foretold_at
            self.cluster.happen(self.heap.pop())
        self.now = moment
        return [f"{type(e).__name__} {e.observed_at:g}" for e in self.told[known:]]

    def doing(self) -> dict[tuple[str, int], Doing]:
        return self.cluster.inventory()


@pytest.fixture
def world() -> World:
    return World(Overheads(start_s=5, stop_s=2, save_s=3))


def test_a_gang_starts_saves_by_itself_and_ends_when_its_work_is_done(world: World) -> None:
    world.order(StartGang)
    assert world.doing() == {("j", 1): Doing.STARTING}
    assert world.until(1000) == [
        "GangStarted 5", "CheckpointSaved 35", "CheckpointSaved 65", "CheckpointSaved 95",
        "GangEnded 105",
    ]  # fmt: skip
    assert world.doing() == {("j", 1): Doing.ENDED}


def test_every_order_carried_out_twice_is_as_once(world: World) -> None:
    for kind, moment in ((StartGang, 50.0), (SaveCheckpoint, 51.0), (StopGang, 51.5)):
        world.order(kind)
        world.order(kind)
        world.until(moment)
        world.order(kind)
    assert world.until(1000) == ["GangEnded 53"]
    for kind in (StartGang, StopGang, SaveCheckpoint):
        world.order(kind)
    assert world.until(1000) == []
    assert len({event.id for event in world.told}) == len(world.told)


def test_an_order_of_an_older_epoch_is_refused(world: World) -> None:
    world.order(StartGang, epoch=2)
    world.until(10)
    world.order(StopGang, epoch=1)
    assert world.doing() == {("j", 1): Doing.WORKING}
    world.order(StopGang, epoch=2)
    assert world.doing() == {("j", 1): Doing.STOPPING}


def test_an_order_for_an_attempt_that_is_over_does_not_touch_the_one_after_it(world: World) -> None:
    world.order(StartGang)
    world.order(StopGang)
    world.until(10)
    world.order(StartGang, attempt=2)
    world.until(20)
    for kind in (StartGang, StopGang, SaveCheckpoint):
        world.order(kind, attempt=1)
    assert world.doing() == {("j", 2): Doing.WORKING}


def test_an_attempt_that_is_stopped_before_it_was_started_never_starts(world: World) -> None:
    world.order(StopGang)
    world.order(StartGang)
    assert world.until(1000) == ["GangEnded 0"]


def test_a_save_that_is_not_followed_by_a_stop_lets_the_gang_work_on(world: World) -> None:
    """Works from 5, saves from 20 to 23 with 15 s done, and has 85 s left."""
    world.order(StartGang)
    world.until(20)
    world.order(SaveCheckpoint)
    assert world.until(25) == ["CheckpointSaved 23"]
    assert world.doing() == {("j", 1): Doing.WORKING}
    assert world.until(1000)[-1] == "GangEnded 108"


def test_a_job_that_cannot_save_does_not_answer() -> None:
    world = World(Overheads(), checkpoint_s=None)
    world.order(StartGang)
    world.until(20)
    world.order(SaveCheckpoint)
    assert world.until(1000) == ["GangEnded 100"]


def test_a_gang_that_starts_or_stops_does_not_answer_either(world: World) -> None:
    world.order(StartGang)
    world.order(SaveCheckpoint)
    assert world.until(6) == ["GangStarted 5"]
    world.order(StopGang)
    world.order(SaveCheckpoint)
    assert world.until(1000) == ["GangEnded 8"]


def test_an_order_for_a_job_nobody_has_heard_of_is_passed_over(world: World) -> None:
    world.cluster.carry_out(StopGang(id="o", job="other", attempt=1, grace_s=1))
    assert world.until(1000) == []


def test_kept_work_is_what_the_last_checkpoint_saved(world: World) -> None:
    """Stopped at 80 with 75 s done, of which 60 s were saved at 65: 40 s are left, and 22 s were in vain."""
    world.order(StartGang)
    world.until(80)
    world.order(StopGang)
    assert world.until(82) == ["GangEnded 82"]
    world.order(StartGang, attempt=2)
    assert world.cluster.work_of_job["j"].lost_s == 22
    assert world.until(1000) == ["GangStarted 87", "CheckpointSaved 117", "GangEnded 127"]
