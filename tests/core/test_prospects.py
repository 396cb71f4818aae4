"""Whom a waiting gang may stop is looked up once for each moment and right, whoever asks."""

from dataclasses import replace

import pytest

from gantree.core.ledger.ledger import Ledger
from gantree.core.preemption import candidates as module
from gantree.core.preemption.candidates import Asked, Prospects, Wanted, whom_to_ask
from gantree.policy.admission import Admission
from gantree.policy.rules import Backfill, Policy, QueueRule
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage

GUARANTEED = QueueRule("owed", guarantee={"gpus": 8})
LENT, BORROWS = Admission("owed"), Admission("borrowed")


@pytest.fixture
def stage() -> Stage:
    """Two gangs of another queue fill a node; what waits is wider than the cluster."""
    policy = Policy(queues=(GUARANTEED, QueueRule("b")), min_run_s=60.0, backfill=Backfill("any"))
    stage = Stage(cluster(leaves=1, nodes=1), policy)
    stage.submit(*(replace(job(name, gpus=4, priority="research"), queue="b") for name in "xy"))
    stage.started("x", "y")
    stage.submit(replace(job("wide", gpus=4, members=4), queue="owed", priority="production"))
    return stage


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """For whom it was looked up."""
    names: list[str] = []

    def noted(ledger: Ledger, wanted: Wanted, now: float) -> Asked:
        names.append(wanted.state.job)
        return whom_to_ask(ledger, wanted, now)

    monkeypatch.setattr(module, "whom_to_ask", noted)
    return names


def victims(prospects: Prospects, stage: Stage, admission: Admission, now: float) -> set[str]:
    ledger, state = stage.scheduler.ledger, stage.state("wide")
    return set(prospects.victims(ledger, Wanted(state, state.spec, admission), now))


def test_it_is_looked_up_again_when_time_passes_or_more_is_decided(
    stage: Stage, looks: list[str]
) -> None:
    prospects = Prospects()
    assert victims(prospects, stage, BORROWS, 0.0) == set()
    assert victims(prospects, stage, BORROWS, 0.0) == set()
    assert looks == ["wide"]
    assert victims(prospects, stage, BORROWS, 60.0) == {"x", "y"}
    stage.ended("x")
    assert victims(prospects, stage, BORROWS, 60.0) == {"y"}
    assert victims(prospects, stage, BORROWS, 60.0) == {"y"}
    assert looks == ["wide"] * 3


def test_who_takes_back_what_his_queue_lends_has_another_right(stage: Stage) -> None:
    """The minimum run time protects nobody who runs on what another queue is guaranteed."""
    prospects = Prospects()
    assert victims(prospects, stage, BORROWS, 0.0) == set()
    assert victims(prospects, stage, LENT, 0.0) == {"x", "y"}
    assert victims(prospects, stage, BORROWS, 0.0) == set()
