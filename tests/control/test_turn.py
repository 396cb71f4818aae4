"""Turns: decide, commit, tell, in that order; a poison event is set aside and the others go on."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.accounting.change import NO_CHANGE, HistoryChange
from gantree.control.engine.controller import Controller
from gantree.core.ledger.invariants import check
from gantree.core.scheduler import Scheduler
from gantree.journal.sqlite import SqliteJournal
from gantree.model.errors import JournalError
from gantree.model.events import Event, GangEnded, GangStarted, JobSubmitted, TimePassed
from gantree.model.facts import Fact
from gantree.model.orders import Order, StartGang
from gantree.model.phases import Phase
from gantree.policy.rules import Policy
from gantree.testing.builders import cluster, job
from support.examples import examples
from support.recording import RecordingCluster


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SqliteJournal]:
    journal = SqliteJournal(tmp_path)
    yield journal
    journal.close()


def controller_on(journal: SqliteJournal) -> Controller:
    """A controller on two nodes of 8 GPUs whose cluster writes down what it is told."""
    site = cluster(leaves=1, nodes=2)
    controller = Controller(journal, Policy(), RecordingCluster, site=site)
    controller.recover()
    return controller


def told(controller: Controller) -> list[Order]:
    assert isinstance(controller.cluster, RecordingCluster)
    return controller.cluster.told


def submitted(name: str, at: float, gpus: int = 1) -> JobSubmitted:
    return JobSubmitted(id=f"{name}/submitted", observed_at=at, job=name, spec=job(name, gpus=gpus))


def poison(name: str, at: float) -> TimePassed:
    """An event from before time began: the core asserts that time does not go back."""
    return TimePassed(id=name, observed_at=-1.0)


def phases(controller: Controller) -> dict[str, Phase]:
    return {name: state.phase for name, state in controller.ledger.jobs.items()}


def test_orders_go_out_after_the_commit_and_carry_the_epoch(journal: SqliteJournal) -> None:
    controller = controller_on(journal)
    seen_at_carry_out: list[list[str]] = []

    def watch(order: Order) -> None:
        seen_at_carry_out.append([each.id for _, each in journal.orders()])

    controller.cluster.carry_out = watch  # type: ignore[method-assign]  # a spy at the port
    controller.submit([job("a")], None, {})
    controller.step()
    assert seen_at_carry_out == [["a/1/start"]]
    assert [order.epoch for _, order in journal.orders()] == [controller.epoch]


def test_a_poison_event_is_set_aside_and_the_others_go_on(
    journal: SqliteJournal, caplog: pytest.LogCaptureFixture
) -> None:
    controller = controller_on(journal)
    now = controller.clock()
    events: list[Event] = [submitted(f"j{number}", now) for number in range(7)]
    events.insert(4, poison("p", now))
    journal.append_inbox(events, controller.epoch)
    with caplog.at_level(logging.CRITICAL):
        assert controller.step()
    assert list(phases(controller)) == [f"j{number}" for number in range(7)]
    assert set(phases(controller).values()) == {Phase.STARTING}
    (aside,) = journal.all_set_aside()
    assert aside.event.id == "p"
    assert "AssertionError" in aside.error
    assert "set aside" in caplog.text
    check(controller.ledger)
    assert not controller.step()


@settings(max_examples=examples(15), deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_exactly_the_poison_events_are_set_aside(
    tmp_path_factory: pytest.TempPathFactory, poisoned: list[bool]
) -> None:
    journal = SqliteJournal(tmp_path_factory.mktemp("journal"))
    controller = controller_on(journal)
    now = controller.clock()
    journal.append_inbox(
        [
            poison(f"e{number}", now) if bad else submitted(f"j{number}", now)
            for number, bad in enumerate(poisoned)
        ],
        controller.epoch,
    )
    while controller.step():
        pass
    aside = {each.event.id for each in journal.all_set_aside()}
    assert aside == {f"e{number}" for number, bad in enumerate(poisoned) if bad}
    good = {f"j{number}" for number, bad in enumerate(poisoned) if not bad}
    assert set(controller.ledger.jobs) == good
    folded = [recorded.fact for recorded in journal.facts()]
    assert len({order.id for order in told(controller)}) == len(good), "each is started"
    check(controller.ledger)
    again = Controller(journal, Policy(), RecordingCluster)
    assert again.ledger.jobs == controller.ledger.jobs
    assert [recorded.fact for recorded in journal.facts()] == folded, "recovery decides nothing"
    journal.close()


def test_memory_that_is_ahead_of_a_full_disk_is_thrown_away(journal: SqliteJournal) -> None:
    controller = controller_on(journal)
    journal.append_inbox([submitted("a", controller.clock())], controller.epoch)
    with journal.database.reading() as db:
        db.exec_driver_sql(
            "CREATE TRIGGER full BEFORE INSERT ON turns BEGIN SELECT RAISE(ABORT, 'full'); END"
        )
    with pytest.raises(JournalError, match="full"):
        controller.step()
    assert phases(controller) == {}
    assert told(controller) == []
    with journal.database.reading() as db:
        db.exec_driver_sql("DROP TRIGGER full")
    assert controller.step()
    assert phases(controller) == {"a": Phase.STARTING}
    assert [order.id for order in told(controller)] == ["a/1/start"]


def test_a_cluster_that_raises_does_not_keep_orders_from_the_others(
    journal: SqliteJournal, caplog: pytest.LogCaptureFixture
) -> None:
    controller = controller_on(journal)
    carry_out = controller.cluster.carry_out

    def fail_for_a(order: Order) -> None:
        if order.job == "a":
            raise RuntimeError("bug in the cluster")
        carry_out(order)

    controller.cluster.carry_out = fail_for_a  # type: ignore[method-assign]  # a broken cluster
    controller.submit([job("a"), job("b")], None, {})
    controller.step()
    assert [order.job for order in told(controller)] == ["b"]
    assert "a/1/start was not carried out" in caplog.text
    controller.cluster.carry_out = carry_out  # type: ignore[method-assign]  # the broken one is put back
    controller.reconcile()
    assert [order.job for order in told(controller)] == ["b", "a", "b"], "said again"


def test_more_events_than_a_batch_are_taken_in_one_step(journal: SqliteJournal) -> None:
    controller = controller_on(journal)
    now = controller.clock()
    journal.append_inbox([submitted(f"j{number}", now) for number in range(600)], controller.epoch)
    controller.step()
    assert len(controller.ledger.jobs) == 600
    starts = [order for order in told(controller) if isinstance(order, StartGang)]
    assert len(starts) == 16


def test_a_gang_that_ends_makes_room_for_the_next(journal: SqliteJournal) -> None:
    controller = controller_on(journal)
    controller.submit([job("a", members=2, gpus=8), job("b", members=2, gpus=8)], None, {})
    controller.step()
    now = controller.clock()
    controller.inbox.enqueue(GangStarted(id="a/1/started", observed_at=now, job="a", attempt=1))
    controller.inbox.enqueue(
        GangEnded(id="a/1/ended", observed_at=now, job="a", attempt=1, exit_code=0)
    )
    controller.step()
    assert phases(controller) == {"a": Phase.SUCCEEDED, "b": Phase.STARTING}


class ForgetfulLine(SqliteJournal):
    """A journal whose answer is lost once: the turn is committed, and who asked hears of an error."""

    loses = True

    def commit_turn(
        self,
        cursor: int,
        facts: Sequence[Fact],
        orders: Sequence[Order],
        epoch: int,
        history: HistoryChange = NO_CHANGE,
    ) -> None:
        super().commit_turn(cursor, facts, orders, epoch, history)
        if self.loses and facts:
            self.loses = False
            raise JournalError("the connection broke")


def test_a_turn_whose_commit_was_not_heard_of_is_not_decided_twice(tmp_path: Path) -> None:
    journal = ForgetfulLine(tmp_path)
    journal.loses = False
    controller = controller_on(journal)
    journal.loses = True
    controller.submit([job("a")], None, {})
    with pytest.raises(JournalError, match="broke"):
        controller.step()
    before = [recorded.fact for recorded in journal.facts()]
    controller.step()
    assert [recorded.fact for recorded in journal.facts()] == before
    assert phases(controller) == {"a": Phase.STARTING}
    assert [order.id for order in told(controller)] == ["a/1/start"], "said as a standing order"
    controller.step()
    assert len(told(controller)) == 1, "and not again before it is time"
    journal.close()


def test_a_bug_in_the_commit_leaves_no_memory_ahead_of_the_journal(journal: SqliteJournal) -> None:
    controller = controller_on(journal)
    controller.submit([job("a")], None, {})
    with pytest.MonkeyPatch.context() as patch, pytest.raises(RuntimeError):
        patch.setattr(journal, "commit_turn", broken_commit)
        controller.step()
    controller.step()  # as the next request would, where a route has answered the error with 500
    assert [type(order) for order in told(controller)] == [StartGang]
    folded = Scheduler(Policy())
    folded.recover(recorded.fact for recorded in journal.facts())
    assert list(folded.ledger.jobs) == list(controller.ledger.jobs) == ["a"]


def broken_commit(*_: object) -> None:
    raise RuntimeError("a bug")


def test_a_job_can_be_cancelled_again_where_its_first_cancel_was_set_aside(
    journal: SqliteJournal,
) -> None:
    controller = controller_on(journal)
    controller.submit([job("a")], None, {})
    controller.step()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(controller.turn_runner.scheduler, "handle", broken)
        controller.jobs.cancel("a")
        controller.step()
    assert len(journal.all_set_aside()) == 1
    controller.jobs.cancel("a")
    controller.step()
    assert phases(controller) == {"a": Phase.STOPPING}


def broken(*_: object) -> None:
    raise AssertionError("a bug")
