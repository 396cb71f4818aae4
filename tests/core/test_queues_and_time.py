"""Queues as policies and priorities change: boosts that expire, queues that vanish, cells that do not fit."""

from dataclasses import replace

import pytest

from gantree.core.explain.explain import why
from gantree.core.scheduler import Scheduler
from gantree.model.errors import BadInput
from gantree.model.events import JobSubmitted, TimePassed
from gantree.model.facts import GangPreempted, PriorityChanged
from gantree.model.jobs import Job
from gantree.model.phases import Phase
from gantree.policy.rules import Boost, Policy, QueueRule
from gantree.sim.run import simulate
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage


def in_queue(name: str, queue: str, gpus: int = 8, priority: str = "batch") -> Job:
    return replace(job(name, gpus=gpus, priority=priority), queue=queue)


def small(policy: Policy) -> Stage:
    """One node of eight GPUs."""
    return Stage(cluster(leaves=1, nodes=1, gpus=8), policy)


def test_a_boost_ends_at_its_moment_for_those_that_wait_and_those_that_run() -> None:
    stage = small(Policy(boosts=(Boost(by=500, until_s=100.0, job="deadline-*"),)))
    stage.submit(job("deadline-1", gpus=8))
    stage.started("deadline-1")
    stage.submit(job("deadline-2", gpus=8), job("other", gpus=8, priority="production"))
    assert stage.state("deadline-2").priority == 700
    assert stage.scheduler.wake_at() == 100.0
    assert stage.wait(99.0).facts == ()
    decision = stage.wait(1.0)
    fallen = [
        (fact.job, fact.priority) for fact in decision.facts if isinstance(fact, PriorityChanged)
    ]
    assert fallen == [("deadline-1", 200), ("deadline-2", 200)]
    assert stage.phase("deadline-1") is Phase.STOPPING, "production may stop batch again"
    stage.ended("deadline-1", 143)
    assert stage.phase("other") is Phase.STARTING


def test_a_job_handed_in_after_a_boost_ended_has_none() -> None:
    stage = small(Policy(boosts=(Boost(by=500, until_s=100.0),)))
    stage.wait(100.0)
    stage.submit(job("late"))
    assert stage.state("late").priority == 200


def test_a_queue_that_is_full_says_so_and_the_rejected_job_leaves_no_trace() -> None:
    rule = QueueRule("a", most_waiting=1, most_running_per_user=1)
    stage = small(Policy(queues=(rule,)))
    stage.submit(in_queue("runs", "a"))
    stage.submit(in_queue("waits", "a"))
    nodes = len(stage.scheduler.ledger.accounts.tree)
    stage.submit(replace(in_queue("third", "a"), user="ann"))
    assert why(stage.scheduler.ledger, "third", 0.0).sentence == (
        "Rejected: queue a uses 1 of its limit of 1 waiting job."
    )
    assert len(stage.scheduler.ledger.accounts.tree) == nodes


@pytest.mark.parametrize(
    ("queue", "words"),
    [("a", "has queues of its own: b"), ("c", "there is no queue `c`; queues are a/b")],
)
def test_jobs_go_to_queues_that_are_there_and_have_none_below_them(queue: str, words: str) -> None:
    stage = small(Policy(queues=(QueueRule("a"), QueueRule("a/b"))))
    stage.submit(in_queue("j", queue))
    assert words in stage.scheduler.ledger.rejected["j"]


def test_a_job_whose_queue_was_taken_out_of_the_policy_runs_on_and_is_counted() -> None:
    before = Policy(
        queues=(QueueRule("a"), QueueRule("a/old"), QueueRule("b", guarantee={"gpus": 8.0}))
    )
    stage = small(before)
    stage.submit(in_queue("runs", "a/old"), in_queue("waits", "a/old"))
    stage.started("runs")
    after = Policy(
        queues=(QueueRule("a", limit={"gpus": 8.0}), QueueRule("b", guarantee={"gpus": 8.0}))
    )
    scheduler = Scheduler(after)
    scheduler.recover(stage.facts)
    accounts = scheduler.ledger.accounts
    node = accounts.tree.queue_node("a")
    assert node is not None and accounts.quota.usage.used(node)["gpus"] == 8
    assert scheduler.ledger.jobs["runs"].phase is Phase.RUNNING
    assert scheduler.handle([TimePassed(id="t", observed_at=0.0)]).facts == ()
    decision = scheduler.handle(
        [
            JobSubmitted(id="x", observed_at=1.0, job="new", spec=in_queue("new", "a/old")),
            JobSubmitted(id="y", observed_at=1.0, job="owed", spec=in_queue("owed", "b")),
        ]
    )
    assert "there is no queue `a/old`" in scheduler.ledger.rejected["new"]
    assert [fact.job for fact in decision.facts if isinstance(fact, GangPreempted)] == ["runs"]


def test_cells_that_do_not_fit_the_cluster_are_refused_before_anything_starts() -> None:
    policy = Policy(
        queues=(QueueRule("a", cells=(("node", 1),)), QueueRule("b", cells=(("node", 1),)))
    )
    site = cluster(leaves=1, nodes=1, gpus=8)
    with pytest.raises(BadInput, match="queue b: 1 cell of tier node does not fit cluster test"):
        simulate(site, (), policy)


def test_who_waits_is_asked_again_when_a_boost_has_expired() -> None:
    """The one that was boosted has claimed what the other leaves: now that one goes first, and is free to start."""
    policy = Policy(boosts=(Boost(300, 60.0, queue="b"),))
    stage = Stage(cluster(leaves=1, nodes=2), policy)
    stage.submit(job("low1", gpus=8), job("low2", gpus=8))
    stage.started("low1", "low2")
    stage.submit(replace(job("boosted", 2, 8, priority="research"), queue="b"))
    assert "boosted" in stage.scheduler.ledger.claims
    stage.ended("low1", 143)
    stage.wait(60.0)
    assert stage.phase("low1") is Phase.STARTING and not stage.scheduler.ledger.claims
