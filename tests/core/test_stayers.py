"""What is known of gangs beside those who stay holds beside more of them, or fewer, until one stays no more."""

from dataclasses import replace

from gantree.core.cycle.stayers import Stayers
from gantree.core.ledger.ledger import Ledger
from gantree.core.scheduler import Scheduler
from gantree.model.events import (
    ClusterObserved,
    GangEnded,
    JobSubmitted,
    NodeLost,
    NodeReturned,
    TimePassed,
)
from gantree.policy.rules import Backfill, Policy
from gantree.testing.builders import cluster, job

REFUSED, FITTING = 1001, 1002
"""Signatures of gangs of which it is known that they do not fit, and that they do."""


def running(*names: str) -> Scheduler:
    """Each of these has a node of four, and one more waits for the whole of them."""
    scheduler = Scheduler(Policy(backfill=Backfill("any", 0)))
    site = cluster(leaves=2, nodes=2, gpus=4)
    scheduler.handle([ClusterObserved(id="site", observed_at=0.0, cluster=site)])
    for gang in (
        *(job(name, members=1, gpus=4) for name in names),
        job("waits", members=4, gpus=4),
    ):
        spec = replace(gang, priority=100)
        scheduler.handle([JobSubmitted(id=spec.name, observed_at=1.0, job=spec.name, spec=spec)])
    return scheduler


def known(ledger: Ledger, stayers: Stayers, *leavers: str) -> tuple[bool, bool]:
    """Whether the one is known not to fit where these have left, and the other to fit."""
    stayers.look(ledger)
    beside = stayers.beside(ledger, ledger.jobs["waits"], leavers)
    return REFUSED in beside.refused, FITTING in beside.fitting


def learn(ledger: Ledger, stayers: Stayers, *leavers: str) -> None:
    """It is found out of both, where these have left."""
    stayers.look(ledger)
    beside = stayers.beside(ledger, ledger.jobs["waits"], leavers)
    beside.refused.add(REFUSED)
    beside.fitting.add(FITTING)


def test_a_no_holds_beside_more_who_stay_and_a_yes_beside_fewer() -> None:
    ledger, stayers = running("a", "b", "c").ledger, Stayers()
    learn(ledger, stayers, "a")
    assert known(ledger, stayers, "a") == (True, True)
    assert known(ledger, stayers) == (True, False)
    assert known(ledger, stayers, "a", "b") == (False, True)
    assert known(ledger, stayers, "b") == (False, False)


def test_a_no_stands_when_another_ends_who_might_have_left_and_not_when_one_who_stayed_does() -> (
    None
):
    scheduler, stayers = running("a", "b", "c"), Stayers()
    learn(scheduler.ledger, stayers, "a")
    for name, stands in (("a", True), ("b", False)):
        gone = GangEnded(id=f"x{name}", observed_at=2.0, job=name, attempt=1, exit_code=0)
        scheduler.handle([gone])
        assert known(scheduler.ledger, stayers)[0] is stands


def test_a_no_stands_when_a_node_is_lost_and_not_when_it_returns_and_a_yes_neither() -> None:
    scheduler, stayers = running("a", "b", "c"), Stayers()
    learn(scheduler.ledger, stayers)
    scheduler.handle([NodeLost(id="lost", observed_at=2.0, node="n3")])
    assert known(scheduler.ledger, stayers) == (True, False)
    scheduler.handle([NodeReturned(id="back", observed_at=3.0, node="n3")])
    assert known(scheduler.ledger, stayers) == (False, False)


def test_who_stands_somewhere_else_is_not_who_stayed() -> None:
    scheduler, stayers = running("a", "b", "c"), Stayers()
    learn(scheduler.ledger, stayers)
    before = scheduler.ledger.jobs["a"].placement
    assert before is not None
    (node,) = before.nodes
    scheduler.handle([NodeLost(id="lost", observed_at=2.0, node=node)])
    scheduler.handle([GangEnded(id="x", observed_at=3.0, job="a", attempt=1, exit_code=137)])
    scheduler.handle([TimePassed(id="rested", observed_at=60.0)])
    after = scheduler.ledger.jobs["a"].placement
    assert after is not None
    assert node not in after.nodes
    assert known(scheduler.ledger, stayers) == (False, False)
