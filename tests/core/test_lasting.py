"""Gangs that would not stay where others make room for them: nobody is stopped, and no claim is made."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import pytest

from gantree.core.explain.explain import why
from gantree.core.preemption.coming_back import coming_back
from gantree.core.preemption.free_capacity import MOST_PLANS
from gantree.core.preemption.lasting import without_spoilt
from gantree.model.events import HoldRequested
from gantree.model.facts import GangPlaced, GangPreempted
from gantree.model.jobs import Job, Spread, TopologyWish
from gantree.model.phases import Phase
from gantree.planning.preempt import Victim
from gantree.policy.rules import Backfill, Policy, Preemption, QueueRule
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from support.lives import Life

By = Literal["priority", "order"]


def of(queue: str, name: str, members: int = 1, gpus: int = 4, priority: str = "batch") -> Job:
    """A gang of a queue."""
    return replace(job(name, members, gpus, priority=priority), queue=queue)


def life_of(nodes: int, gpus_of_a: int, gpus_of_b: int, by: By = "priority") -> Life:
    """Nodes of four GPUs, and two queues that are guaranteed so many of them."""
    queues = (
        QueueRule("a", guarantee={"gpus": gpus_of_a}),
        QueueRule("b", guarantee={"gpus": gpus_of_b}),
    )
    policy = Policy(queues=queues, backfill=Backfill("any"), preemption=Preemption(by=by))
    return Life(cluster(leaves=1, nodes=nodes, gpus=4), policy)


def stops(life: Life) -> list[tuple[str, str]]:
    """Who was stopped for whom."""
    return [(fact.job, fact.by) for fact in life.stage.facts if isinstance(fact, GangPreempted)]


def ends_where_b_is_owed_more(by: By) -> Life:
    """Queue b is owed what owed asks for as soon as b's ends is gone; big borrows, and may stop low of its queue."""
    life = life_of(4, 8, 8, by)
    life.submit(of("a", "high", priority="serving"), of("a", "low"))
    life.submit(of("b", "ends", gpus=2, priority="serving"), leaves_s=10.0)
    life.submit(of("b", "owed", 2))
    life.submit(of("a", "big", 3, priority="production"))
    assert not stops(life)
    life.stage.cancel("ends")
    return life


@pytest.mark.parametrize("by", ["priority", "order"])
def test_nobody_is_stopped_for_a_gang_that_borrows_what_another_queue_is_owed_and_others_leave(
    by: By,
) -> None:
    life = ends_where_b_is_owed_more(by)
    life.quiet()
    assert not stops(life)
    assert life.stage.phases()["owed"] == life.stage.phases()["low"] == "running"


def test_who_borrows_by_count_but_not_by_rank_stays() -> None:
    """Its queue uses more than its guarantee, but for a large gang: wide could have that stopped, and not urgent."""
    life = life_of(5, 8, 12)
    life.submit(of("a", "low1"), of("a", "low2"))
    life.submit(of("a", "large", 3, priority="serving"))
    wide = of("b", "wide", 4, gpus=1)
    spread = TopologyWish(spread=Spread("node", 1))
    life.submit(replace(wide, roles=(replace(wide.roles[0], topology=spread),)))
    life.submit(of("a", "urgent", priority="production"))
    life.quiet()
    assert [by for _, by in stops(life)] == ["urgent"]
    assert life.stage.phases()["urgent"] == life.stage.phases()["large"] == "running"


@pytest.mark.parametrize("by", ["priority", "order"])
@pytest.mark.parametrize("members", [1, 2])
def test_nobody_is_stopped_for_a_gang_that_is_stopped_in_turn_for_one_that_leaves_or_loses_its_claim(
    by: By, members: int
) -> None:
    """y of queue a leaves for x, and a is owed what either asks for (x, if it has one member). w would take the claim
    of x, as it is not owed while y is there, stop z of its queue, and borrow from a.
    """
    life = life_of(1 + members, 4, 4, by)
    life.submit(of("a", "y"), leaves_s=10.0)
    life.submit(of("b", "z"))
    life.submit(of("a", "x", members, priority="production"))
    assert stops(life) == [("y", "x")]
    life.submit(of("b", "w", 1 + members, priority="serving"))
    life.quiet()
    assert stops(life) == [("y", "x")]
    assert life.stage.phases() == {"y": "pending", "z": "running", "x": "running", "w": "pending"}


def test_what_a_gang_leaves_is_not_claimed_for_one_that_it_goes_before_when_it_is_back() -> None:
    """v leaves for what b is owed, and has the rest back, with the room of low; small would be stopped at once."""
    life = life_of(3, 4, 4)
    life.submit(of("a", "low", gpus=3))
    life.submit(of("a", "v", 2, priority="serving"), leaves_s=10.0)
    life.submit(of("a", "small"))
    life.submit(of("b", "owed"))
    assert stops(life) == [("v", "owed")]
    told = why(life.stage.scheduler.ledger, "small", life.stage.now)
    assert told.sentence.endswith(
        "To claim what others leave would be in vain: v, which waits again when it has left, goes first and would take "
        "that room."
    )
    life.quiet()
    assert stops(life) == [("v", "owed"), ("low", "v")]
    assert "small" not in [f.job for f in life.stage.facts if isinstance(f, GangPlaced)]
    assert life.stage.phases()["v"] == "running"


def test_where_others_leave_what_another_is_owed_not_every_victim_is_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whomever of its queue big has stopped, owed would have the room that ends leaves; twenty plans came of it."""
    tried: list[Sequence[Victim]] = []

    def told(*asked: Any) -> list[Victim]:
        tried.append(asked[1])
        return without_spoilt(*asked)

    monkeypatch.setattr("gantree.core.preemption.free_capacity.without_spoilt", told)
    life = life_of(41, 84, 80)
    life.submit(of("a", "high", priority="serving"), *(of("a", f"low{n}") for n in range(20)))
    life.submit(of("b", "ends", 20, priority="serving"), leaves_s=10.0)
    life.submit(of("b", "owed", 20))
    life.submit(of("a", "big", 21, priority="production"))
    tried.clear()
    life.stage.cancel("ends")
    assert len(tried) == 2 * MOST_PLANS  # in two walks
    life.quiet()
    assert not stops(life)
    assert life.stage.phases()["owed"] == "running"


def those_back(stage: Stage) -> list[str]:
    """Which of those who leave wait again when they have left."""
    ledger = stage.scheduler.ledger
    back = coming_back(ledger, list(ledger.leaving), "", stage.now, lambda state: True)
    return [state.job for state in back]


def test_who_is_held_while_it_leaves_does_not_come_back() -> None:
    stage = Stage(cluster(leaves=1, nodes=1))
    stage.submit(job("low", gpus=8))
    stage.started("low")
    stage.submit(job("high", gpus=8, priority="serving"))
    assert those_back(stage) == ["low"]
    stage.tell(HoldRequested, job="low")
    assert those_back(stage) == []


def test_who_will_rest_from_being_cut_short_does_not_come_back_at_once() -> None:
    """It is stopped at once wherever it begins: after the third time it rests."""
    stage = Stage(cluster(leaves=1, nodes=3))
    stage.submit(job("low", gpus=8))
    stage.started("low")
    for name in ("fills1", "fills2"):
        stage.submit(job(name, gpus=8, priority="serving"))
        stage.started(name)
    rests = []
    for number in range(3):
        stage.submit(job(f"high{number}", gpus=8, priority="serving"))
        assert stage.phase("low") is Phase.STOPPING
        rests.append(those_back(stage) == [])
        stage.ended("low", 143)
        stage.started(f"high{number}")
        if number < 2:
            stage.ended(f"fills{number + 1}")
            stage.started("low")
    assert rests == [False, False, True]
    assert stage.state("low").not_before > stage.now
