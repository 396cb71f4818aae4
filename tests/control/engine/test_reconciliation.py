"""Recovery: facts are folded, the cluster is asked, what differs becomes events, orders are said again."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gantree.control.engine.controller import Controller
from gantree.control.engine.reconciliation import EXIT_CODE_UNKNOWN
from gantree.core.ledger.invariants import check
from gantree.executors.inventory import Status
from gantree.journal.sqlite import SqliteJournal
from gantree.model.cluster import Cluster
from gantree.model.errors import BadInput, Conflict
from gantree.model.events import ClusterObserved, Event, GangEnded, GangStarted
from gantree.model.orders import Order
from gantree.model.phases import Phase
from gantree.policy.rules import Policy
from gantree.testing.builders import cluster, job
from gantree.testing.journal_contract import led
from support.recording import RecordingCluster

SITE = cluster(leaves=1, nodes=2)


class World:
    """A state directory and what is in the world beside it; `start` is a start of the daemon."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.runs: dict[tuple[str, int], Status] = {}
        self.news: list[Event] = []

    def start(self, site: Cluster | None = None) -> Controller:
        def build(
            cluster: Cluster, emit: Callable[[Event], None], clock: Callable[[], float]
        ) -> RecordingCluster:
            built = RecordingCluster(cluster, emit, clock)
            built.attempts, built.to_adopt, built.logs = self.runs, self.news, self.place / "runs"
            return built

        journal = SqliteJournal(self.place)
        try:
            controller = Controller(journal, Policy(), build, site=site)
            controller.recover()
        except BaseException:
            journal.close()
            raise
        return controller


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def told(controller: Controller) -> list[Order]:
    assert isinstance(controller.cluster, RecordingCluster)
    return controller.cluster.told


def run(controller: Controller, world: World, name: str) -> None:
    """Submit a job and let it be started."""
    controller.submit([job(name, gpus=8)], None, {})
    controller.step()
    world.runs[name, 1] = "running"
    now = controller.clock()
    controller.inbox.enqueue(GangStarted(id=f"{name}/1/on", observed_at=now, job=name, attempt=1))
    controller.step()
    assert controller.ledger.jobs[name].phase is Phase.RUNNING


def test_the_first_start_needs_a_cluster_and_later_ones_do_not(world: World) -> None:
    with pytest.raises(BadInput, match="needs a cluster"):
        world.start()
    world.start(SITE).close()
    again = world.start()
    assert again.ledger.fabric is not None
    assert again.ledger.fabric.cluster == SITE
    again.close()


def test_a_cluster_that_was_observed_but_not_yet_decided_about_is_known(world: World) -> None:
    journal = SqliteJournal(world.place)
    observed = ClusterObserved(id="c", observed_at=1, cluster=SITE)
    journal.append_inbox([observed], led(journal))
    journal.close()
    controller = world.start()
    assert controller.ledger.fabric is not None
    controller.close()


def test_an_unchanged_cluster_is_not_observed_twice(world: World) -> None:
    for _ in range(3):
        controller = world.start(SITE)
        controller.close()
    journal = SqliteJournal(world.place)
    assert len(journal.read_inbox(0, 10)) == 1
    journal.close()


def test_a_changed_cluster_is_observed_and_what_runs_is_carried_over(world: World) -> None:
    controller = world.start(SITE)
    run(controller, world, "a")
    controller.close()
    again = world.start(cluster(leaves=1, nodes=3))
    assert again.ledger.fabric is not None
    assert len(again.ledger.fabric.nodes) == 3
    assert again.ledger.jobs["a"].phase is Phase.RUNNING
    check(again.ledger)
    again.close()


def test_a_changed_cluster_that_contradicts_what_runs_is_refused(world: World) -> None:
    controller = world.start(SITE)
    run(controller, world, "a")
    controller.close()
    with pytest.raises(
        Conflict, match=r"a runs, and on n0 GPUs .*; start on the cluster as it was"
    ):
        world.start(cluster(leaves=1, nodes=2, gpus=4))
    world.start(SITE).close()


def test_what_was_acknowledged_and_never_decided_is_decided(world: World) -> None:
    controller = world.start(SITE)
    controller.submit([job("a"), job("b")], None, {})
    controller.close()
    again = world.start()
    assert [order.id for order in told(again)] == ["a/1/start", "b/1/start"] * 2, "and said again"
    facts = list(again.journal.facts())
    again.close()
    third = world.start()
    assert list(third.journal.facts()) == facts, "recovery decides nothing again"
    third.close()


def test_orders_that_were_committed_and_never_sent_are_sent(world: World) -> None:
    controller = world.start(SITE)
    controller.cluster.carry_out = lambda order: None  # type: ignore[method-assign]  # killed right after the commit
    controller.submit([job("a")], None, {})
    controller.step()
    controller.close()
    again = world.start()
    assert [(order.id, order.epoch) for order in told(again)] == [("a/1/start", again.epoch)]
    assert again.epoch == 2
    again.close()


def test_what_ended_meanwhile_is_learnt_once(world: World) -> None:
    controller = world.start(SITE)
    run(controller, world, "a")
    controller.close()
    world.runs["a", 1] = "ended"
    world.news.append(GangEnded(id="a/1/end", observed_at=1.0, job="a", attempt=1, exit_code=0))
    for _ in range(2):
        again = world.start()
        assert again.ledger.jobs["a"].phase is Phase.SUCCEEDED
        again.close()
    assert world.runs == {}, "it is settled"
    journal = SqliteJournal(world.place)
    assert sum(isinstance(entry.event, GangEnded) for entry in journal.read_inbox(0, 99)) == 1
    journal.close()


def test_a_running_gang_of_which_nothing_is_left_has_ended_and_is_not_started_twice(
    world: World,
) -> None:
    controller = world.start(SITE)
    run(controller, world, "a")
    controller.close()
    world.runs.clear()
    again = world.start()
    state = again.ledger.jobs["a"]
    assert (state.phase, state.exit_code) == (Phase.FAILED, EXIT_CODE_UNKNOWN)
    assert told(again) == []
    again.close()


def test_ids_of_runs_that_another_journal_left_behind_are_not_given_again(world: World) -> None:
    (world.place / "runs" / "a" / "1").mkdir(parents=True)
    controller = world.start(SITE)
    receipt = controller.submit([job("a")], None, {})
    assert [submitted.job for submitted in receipt.jobs] == ["a-2"]
    controller.close()


def test_time_goes_on_from_the_newest_event_when_the_wall_clock_has_gone_back(world: World) -> None:
    journal = SqliteJournal(world.place)
    future = 4e9
    observed = ClusterObserved(id="c", observed_at=future, cluster=SITE)
    journal.append_inbox([observed], led(journal))
    journal.close()
    controller = world.start()
    controller.submit([job("a")], None, {})
    controller.step()
    assert controller.ledger.jobs["a"].submitted_at >= future
    controller.close()
