"""Small gangs do not pass for ever one that only others keep from its quota, or that waits behind hopeless ones."""

from dataclasses import replace

import pytest

from gantree.core.explain.explain import when, why
from gantree.model.events import CordonRequested
from gantree.model.facts import GangPlaced, GangPreempted
from gantree.model.jobs import Job, TopologySpec
from gantree.model.verdicts import Gate
from gantree.policy.rules import Policy, QueueRule
from gantree.testing.builders import cluster, job
from support.lives import Life

QUEUES = (QueueRule("product", guarantee={"gpus": 2}), QueueRule("research"))


def of(queue: str, name: str, gpus: int, **fields: object) -> Job:
    return replace(job(name, gpus=gpus), queue=queue, **fields)  # type: ignore[arg-type]  # as the test writes them


def test_a_gang_that_waits_for_quota_alone_is_not_passed_by_small_ones_for_ever() -> None:
    """Eight GPUs: four run, one more comes whenever one has ended; so eight are never free by themselves."""
    policy = Policy(queues=QUEUES, order=("priority", "share", "arrival"))
    life = Life(cluster(leaves=1, nodes=1), policy)
    for number in range(4):
        life.submit(of("research", f"small{number}", 1), runs_s=100 + number)
    life.submit(of("research", "whole", 8), runs_s=100)
    assert refusal(life, "whole") is Gate.QUOTA
    for number in range(4, 40):
        life.until(life.now + 20)
        life.submit(of("research", f"small{number}", 1, expected_s=200.0), runs_s=200)
    assert "whole" in placed(life)


def refusal(life: Life, name: str) -> Gate | None:
    refused = why(life.stage.scheduler.ledger, name, life.now).refused
    return None if refused is None else refused.gate


def placed(life: Life) -> list[str]:
    return [fact.job for fact in life.stage.facts if isinstance(fact, GangPlaced)]


def test_it_is_told_an_estimate_and_never_a_promise() -> None:
    """What others are guaranteed comes first whenever they ask for it."""
    life = Life(cluster(leaves=1, nodes=1), Policy(queues=QUEUES, grace_s=10))
    for name in ("a", "b"):
        life.submit(of("research", name, 2, time_limit_s=100.0))
    life.submit(of("research", "whole", 8, time_limit_s=50.0))
    start = when(life.stage.scheduler.ledger, "whole", 0)
    assert start is not None and start.reserved
    assert (start.starts_at, start.promised) == (110, False)


def test_who_is_within_a_guarantee_does_not_wait_for_room_that_a_borrower_was_told() -> None:
    life = Life(cluster(leaves=1, nodes=1), Policy(queues=QUEUES))
    life.submit(of("research", "long", 4, time_limit_s=1_000.0), runs_s=1_000)
    life.submit(of("research", "whole", 8), runs_s=100)
    assert "whole" in life.stage.scheduler.ledger.reservations
    life.submit(of("product", "owed", 2), runs_s=100)
    assert "owed" in placed(life)
    assert not [fact for fact in life.stage.facts if isinstance(fact, GangPreempted)]
    life.until(2_000)
    assert placed(life) == ["long", "owed", "whole"]


def test_a_start_is_told_from_when_on_the_quota_admits_it_not_only_the_room() -> None:
    """Half of the room is free and never lent, so the gang waits for those that run elsewhere."""
    queues = (QueueRule("product", guarantee={"gpus": 8}, lend={"gpus": 0}), QueueRule("research"))
    life = Life(cluster(leaves=1, nodes=2), Policy(queues=queues))
    life.submit(of("research", "half", 8, time_limit_s=500.0))
    life.submit(of("research", "next", 8))
    start = when(life.stage.scheduler.ledger, "next", 0)
    assert start is not None and (start.starts_at, start.reserved) == (530, True)


# ----- who waits behind those to whom no start can be told

MANY_OF_THEM = 6


@pytest.mark.parametrize(
    "hopeless",
    [
        pytest.param(job("", 1, 16), id="fits no node"),
        pytest.param(replace(job("", 2, 8), topology=TopologySpec(required="node")), id="no node"),
        pytest.param(job("", 4, 8), id="a node is out of use"),
    ],
)
def test_a_gang_is_promised_a_start_behind_many_that_do_not_fit_whoever_leaves(
    hopeless: Job,
) -> None:
    life = Life(cluster(leaves=1, nodes=4), Policy())
    life.submit(job("limited", 3, 8, time_limit_s=1_000.0), runs_s=1_000)
    life.stage.tell(CordonRequested, node="n3")
    for number in range(MANY_OF_THEM):
        life.submit(replace(hopeless, name=f"hopeless{number}"), runs_s=100)
    life.submit(job("big", 2, 8), runs_s=100)
    life.submit(job("small", 1, 8, time_limit_s=5_000.0), runs_s=5_000)
    told = life.stage.scheduler.ledger.reservations["big"]
    assert (told.starts_at, told.promised) == (1_030, True)
