"""The loop: it steps when something comes, waits when nothing does, and survives the world but no bug."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from starlette.requests import HTTPConnection

from gantree.api.access.access import EVERYTHING, Caller
from gantree.api.backend import Backend
from gantree.api.streams import event_feed
from gantree.api.streams.streaming import StreamAuthorization
from gantree.control.engine import group_commit
from gantree.control.engine.controller import Controller
from gantree.control.engine.group_commit import GroupCommit
from gantree.control.engine.loop import Changes, Loop, wait_until_set
from gantree.control.requests.submission_checks import Receipt
from gantree.control.requests.submissions import JobSubmission
from gantree.core.ledger.state import JobState
from gantree.journal.sqlite import SqliteJournal
from gantree.model.errors import GantreeError, JournalError
from gantree.model.events import GangEnded, GangStarted
from gantree.model.phases import Phase
from gantree.policy.rules import Policy
from gantree.testing.builders import cluster, job
from support.recording import RecordingCluster

Scene = Callable[[Loop, Controller], Awaitable[None]]
STEPPING = "stepping"
"""The name of the task of the loop."""


async def until_ended() -> None:
    """Wait until the loop has ended by itself."""
    for task in asyncio.all_tasks():
        if task.get_name() == STEPPING:
            await asyncio.wait({task})


def play(place: Path, scene: Scene) -> None:
    """Run a loop on a recording cluster while the scene plays."""

    async def live() -> None:
        loop = Loop()
        journal = SqliteJournal(place)

        def build() -> Controller:
            controller = Controller(
                journal, Policy(), RecordingCluster, site=cluster(leaves=1), wake=loop.wake
            )
            controller.recover()
            return controller

        controller = await loop.call(build)
        stepping = asyncio.create_task(loop.run(controller), name=STEPPING)
        try:
            await scene(loop, controller)
        finally:
            loop.stop()
            try:
                await stepping
            finally:
                await loop.call(controller.close)
                loop.close()

    asyncio.run(live())


async def phase(loop: Loop, controller: Controller, name: str, wanted: Phase) -> JobState:
    """Wait until a job is in a phase, by tickets alone."""
    async with asyncio.timeout(60):
        while True:
            ticket = loop.changes.ticket()
            state = await loop.call(lambda: controller.ledger.jobs.get(name))
            if state is not None and state.phase is wanted:
                return state
            await ticket.wait()


def test_a_submission_is_acted_on_without_waiting_for_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(loop: Loop, controller: Controller) -> None:
        await loop.call(lambda: controller.submit([job("a")], None, {}))
        loop.wake()
        async with asyncio.timeout(60):
            await phase(loop, controller, "a", Phase.STARTING)

    monkeypatch.setattr("gantree.control.engine.loop.POLL_S", 30.0)
    play(tmp_path, scene)


def test_what_a_cluster_tells_from_another_thread_wakes_the_loop(tmp_path: Path) -> None:
    async def scene(loop: Loop, controller: Controller) -> None:
        await loop.call(lambda: controller.submit([job("a")], None, {}))
        await phase(loop, controller, "a", Phase.STARTING)
        now = controller.clock()
        tell = controller.inbox.enqueue
        started = GangStarted(id="s", observed_at=now, job="a", attempt=1)
        ended = GangEnded(id="e", observed_at=now, job="a", attempt=1, exit_code=0)
        await asyncio.to_thread(tell, started)
        await phase(loop, controller, "a", Phase.RUNNING)
        await asyncio.to_thread(tell, ended)
        await phase(loop, controller, "a", Phase.SUCCEEDED)

    play(tmp_path, scene)


def test_time_alone_ends_a_job_at_its_limit(tmp_path: Path) -> None:
    async def scene(loop: Loop, controller: Controller) -> None:
        await loop.call(lambda: controller.submit([job("a", time_limit_s=0.2)], None, {}))
        await phase(loop, controller, "a", Phase.STARTING)
        started = GangStarted(id="s", observed_at=controller.clock(), job="a", attempt=1)
        controller.inbox.enqueue(started)
        state = await phase(loop, controller, "a", Phase.STOPPING)
        assert state.running_at is not None
        assert state.stop_decided_at is not None
        assert 0.2 <= state.stop_decided_at - state.running_at < 0.2 + 1.0

    play(tmp_path, scene)


@pytest.mark.parametrize("fault", [OSError(24, "Too many open files")])
def test_a_fault_of_the_world_is_tried_again(
    tmp_path: Path, fault: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(loop: Loop, controller: Controller) -> None:
        looks = []

        def poll() -> None:
            looks.append(1)
            if len(looks) == 1:
                raise fault

        controller.cluster.poll = poll  # type: ignore[method-assign]  # a cluster that fails once
        await loop.call(lambda: controller.submit([job("a")], None, {}))
        await phase(loop, controller, "a", Phase.STARTING)
        assert "Too many open files" in caplog.text

    play(tmp_path, scene)


def test_a_bug_ends_the_loop(tmp_path: Path) -> None:
    async def scene(loop: Loop, controller: Controller) -> None:
        def poll() -> None:
            raise AssertionError("a bug")

        controller.cluster.poll = poll  # type: ignore[method-assign]  # a cluster with a bug
        await until_ended()

    with pytest.raises(AssertionError, match="a bug"):
        play(tmp_path, scene)


def test_a_bug_in_the_step_of_a_submission_ends_the_loop_and_the_jobs_are_durable(
    tmp_path: Path,
) -> None:
    receipts: list[Receipt] = []

    async def scene(loop: Loop, controller: Controller) -> None:
        controller.turn_runner.run = one_bug(controller)  # type: ignore[method-assign]  # see there
        receipts.append(await GroupCommit(loop, controller).submit(JobSubmission([job("a")])))
        await until_ended()

    with pytest.raises(AssertionError, match="a bug"):
        play(tmp_path, scene)
    assert [each.job for each in receipts[0].jobs] == ["a"]
    journal = SqliteJournal(tmp_path)
    assert journal.seen(["a/submitted"])
    journal.close()


def test_a_bug_in_the_step_of_a_wish_is_told_to_its_caller_and_ends_the_loop(
    tmp_path: Path,
) -> None:
    async def scene(loop: Loop, controller: Controller) -> None:
        controller.turn_runner.run = one_bug(controller)  # type: ignore[method-assign]  # see there
        with pytest.raises(AssertionError, match="a bug"):
            await loop.advance(controller, lambda: handed_in(controller))
        await until_ended()

    with pytest.raises(AssertionError, match="a bug"):
        play(tmp_path, scene)


def handed_in(controller: Controller) -> None:
    controller.submit([job("a")], None, {})


def one_bug(controller: Controller) -> Callable[[], bool]:
    """What fails the first turn after job a was handed in, and no other."""
    run = controller.turn_runner.run
    failed: list[int] = []

    def turn() -> bool:
        if controller.journal.seen(["a/submitted"]) and not failed:
            failed.append(1)
            raise AssertionError("a bug")
        return run()

    return turn


def test_a_bug_in_what_is_checked_of_a_submission_is_told_to_its_callers_alone(
    tmp_path: Path,
) -> None:
    async def scene(loop: Loop, controller: Controller) -> None:
        way_in = GroupCommit(loop, controller)
        with pytest.MonkeyPatch.context() as patch, pytest.raises(AssertionError, match="a bug"):
            patch.setattr(controller, "submit_batch", no_receipt)
            await way_in.submit(JobSubmission([job("a")]))
        await way_in.submit(JobSubmission([job("b")]))
        await phase(loop, controller, "b", Phase.STARTING)

    play(tmp_path, scene)


def no_receipt(_: object) -> None:
    raise AssertionError("a bug")


def test_who_hands_in_is_told_before_the_turn_and_who_asks_then_is_answered_after_it(
    tmp_path: Path,
) -> None:
    async def scene(loop: Loop, controller: Controller) -> None:
        told, run = threading.Event(), controller.turn_runner.run

        def run_once_told() -> bool:
            if controller.journal.seen(["a/submitted"]):
                assert told.wait(90), "the answer waits for the turn"
            return run()

        controller.turn_runner.run = run_once_told  # type: ignore[method-assign]  # waits
        receipt = await GroupCommit(loop, controller).submit(JobSubmission([job("a")]))
        asked = asyncio.create_task(loop.call(lambda: controller.ledger.jobs["a"].phase))
        told.set()
        assert receipt.jobs[0].job == "a"
        assert await asked is Phase.STARTING

    play(tmp_path, scene)


@pytest.mark.parametrize(
    ("longest_s", "in_order"),
    [
        (300.0, [["a"], ["b1", "b2"], ["step"], ["c1", "c2"]]),
        (0.0, [["a"], ["step"], ["b1", "b2", "c1", "c2"], ["step"]]),
    ],
)
def test_who_comes_while_others_are_written_down_goes_before_the_step_up_to_so_many_jobs_and_so_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, longest_s: float, in_order: list[list[str]]
) -> None:
    monkeypatch.setattr(group_commit, "MOST_JOBS", 4)
    monkeypatch.setattr(group_commit, "LONGEST_S", longest_s)
    order: list[list[str]] = []

    async def scene(loop: Loop, controller: Controller) -> None:
        take, step, have_come = controller.submit_batch, controller.step, threading.Event()

        def noted_take(together: Sequence[JobSubmission]) -> list[Receipt | GantreeError]:
            order.append([each.name for handed in together for each in handed.jobs])
            assert have_come.wait(90)
            return take(together)

        def noted_step() -> bool:
            if order and order[-1] != ["step"]:
                order.append(["step"])
            return step()

        monkeypatch.setattr(controller, "submit_batch", noted_take)
        monkeypatch.setattr(controller, "step", noted_step)
        way_in = GroupCommit(loop, controller)
        handed_in = [asyncio.create_task(way_in.submit(JobSubmission([job("a")])))]
        while not order:
            await asyncio.sleep(0.001)
        for name in "bc":
            two = JobSubmission([job(f"{name}1"), job(f"{name}2")])
            handed_in.append(asyncio.create_task(way_in.submit(two)))
        await asyncio.sleep(0)
        have_come.set()
        await asyncio.gather(*handed_in)

    play(tmp_path, scene)
    assert order[:4] == in_order


def test_after_a_step_that_decided_something_the_next_follows_at_once(tmp_path: Path) -> None:
    pauses_s: list[float] = []

    async def scene(loop: Loop, controller: Controller) -> None:
        loop.stop()
        await until_ended()
        await loop.call(lambda: controller.submit([job("a")], None, {}, ""))
        pauses_s.extend([await loop.advance(controller) for _ in range(2)])

    play(tmp_path, scene)
    assert pauses_s[0] == 0.0 < pauses_s[1]


def test_a_ticket_taken_before_a_look_misses_no_change() -> None:
    async def scene() -> None:
        changes = Changes()
        ticket = changes.ticket()
        changes.tick()
        assert await wait_until_set(ticket, 0.01)
        assert not await wait_until_set(changes.ticket(), 0.01)

    asyncio.run(scene())


def test_listeners_go_on_hearing_where_the_journal_failed_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(loop: Loop, controller: Controller) -> None:
        monkeypatch.setattr(event_feed, "HEARTBEAT_S", 0.1)
        feed = event_feed.EventFeed(Backend(loop, controller, 0.0))
        root = Caller("root", EVERYTHING, "socket")
        held_by = StreamAuthorization(HTTPConnection({"type": "http", "headers": []}), root)
        heard: list[bytes] = []

        async def listen() -> None:
            async for text in feed.frames(controller.journal.last_fact(), None, held_by):
                heard.append(text)  # noqa: PERF401 - it never ends, and what has come counts

        listening = asyncio.create_task(listen())
        await asyncio.sleep(0.05)
        with monkeypatch.context() as patch:
            patch.setattr(controller.journal, "compacted_to", no_answer)
            await loop.call(lambda: controller.submit([job("a")], None, {}))
            loop.wake()
            await asyncio.sleep(0.3)
        async with asyncio.timeout(300):
            while b"GangPlaced" not in b"".join(heard):
                await asyncio.sleep(0.02)
        listening.cancel()

    play(tmp_path, scene)


def no_answer() -> int:
    raise JournalError("the database does not answer")
