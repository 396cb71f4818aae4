"""What users of other schedulers complained of, one test each: named after the symptom, the issue in the docstring."""

from dataclasses import replace

import pytest

from gantree.core.explain.explain import why
from gantree.model.events import GangStartFailed
from gantree.model.facts import GangMoving, GangPlaced, GangPreempted
from gantree.model.jobs import Checkpoint
from gantree.model.orders import SaveCheckpoint, StopGang
from gantree.model.phases import Phase
from gantree.model.verdicts import Gate
from gantree.policy.rules import Backfill, Policy, Preemption, QueueRule
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from support.lives import Life


def filled(nodes: int = 4, gpus: int = 4, policy: Policy | None = None) -> Stage:
    """Nodes full of single-GPU research jobs, s0, s1, ... in the order of the nodes."""
    stage = Stage(cluster(leaves=1, nodes=nodes, gpus=gpus), policy)
    names = [f"s{number}" for number in range(nodes * gpus)]
    stage.submit(*(job(name, priority="research") for name in names))
    stage.started(*names)
    return stage


def stopped(stage: Stage) -> list[str]:
    """Whoever was preempted so far."""
    return [fact.job for fact in stage.facts if isinstance(fact, GangPreempted)]


# ----- fragmentation


def test_single_gpus_all_over_the_place_are_evicted_and_nothing_starts() -> None:
    """Kueue 5243: victims are those of one node, and when they are gone the gang starts."""
    stage = filled()
    stage.submit(job("whole", gpus=4, priority="production"))
    victims = stopped(stage)
    assert len({node for name in victims for node in stage.nodes(name)}) == 1
    for name in victims:
        stage.ended(name, 143)
    assert len(victims) == 4
    assert stage.phase("whole") is Phase.STARTING


def test_the_quota_adds_up_and_the_gang_does_not_fit() -> None:
    """Kueue 4329, 3756, 4474: nobody is admitted on counts; the gate is CONTIGUITY, and nothing is held."""
    policy = Policy(queues=(QueueRule("a", guarantee={"gpus": 8}),))
    stage = Stage(cluster(leaves=1, nodes=2, gpus=4), policy)
    stage.submit(*(replace(job(f"s{n}", gpus=3), queue="a") for n in range(2)))
    stage.submit(replace(job("pair", gpus=2), queue="a"))
    refused = why(stage.scheduler.ledger, "pair", 0).refused
    assert refused is not None and refused.gate is Gate.CONTIGUITY
    assert not stage.scheduler.ledger.claims


def test_single_gpu_jobs_are_scattered_over_every_rack() -> None:
    """Kueue 10406: they fill one node after the other, and whole leaves stay empty."""
    stage = Stage(cluster(leaves=4, nodes=2, gpus=4))
    for number in range(8):
        stage.submit(job(f"s{number}"))
    leaves = {int(node[1:]) // 2 for n in range(8) for node in stage.nodes(f"s{n}")}
    assert len(leaves) == 1


def scattered(defragment: str, *, preemptible: bool = True) -> Stage:
    """Two nodes of four GPUs with two long jobs of two GPUs, one on each."""
    policy = Policy(defragment=defragment)  # type: ignore[arg-type]  # one of the three
    stage = Stage(cluster(leaves=1, nodes=2, gpus=4), policy)
    for name in ("a", "gap", "b"):
        spec = replace(job(name, gpus=2), preemptible=preemptible)
        stage.submit(spec)
        stage.started(name)
    stage.ended("gap")
    stage.submit(job("whole", gpus=4))
    stage.wait(3_600)
    return stage


def test_running_jobs_could_be_moved_to_make_room_and_are_not() -> None:
    """Volcano 3948, 665: with `defragment: apply` one of them moves, and the gang gets a whole node."""
    stage = scattered("apply")
    moved = [fact.job for fact in stage.facts if isinstance(fact, GangMoving)]
    assert len(moved) == 1
    stage.ended(moved[0], 143)
    stage.started(moved[0])
    assert stage.phase("whole") is Phase.STARTING


@pytest.mark.parametrize(
    ("defragment", "preemptible"), [("plan", True), ("off", True), ("apply", False)]
)
def test_training_is_moved_about_though_nobody_asked_for_it(
    defragment: str, preemptible: bool
) -> None:
    """KAI 146: moving is off unless the policy says apply, and never of what is not preemptible."""
    stage = scattered(defragment, preemptible=preemptible)
    assert not [fact for fact in stage.facts if isinstance(fact, GangMoving)]
    assert Policy().defragment != "apply"


# ----- gangs, starvation, backfill


def test_a_large_gang_never_lands_while_small_jobs_keep_coming() -> None:
    """KAI 1969, 1987: it is promised a start, and starts then."""
    life = Life(cluster(leaves=1, nodes=2, gpus=4), Policy(grace_s=0))
    for number in range(4):
        life.submit(job(f"old{number}", gpus=2, time_limit_s=100))
    life.submit(job("large", members=2, gpus=4, time_limit_s=100))
    for number in range(10):
        life.submit(job(f"new{number}", gpus=2, time_limit_s=100))
        life.until(life.now + 10)
    assert life.jobs["large"].placed_at == 100


def test_a_job_that_never_starts_wins_every_cycle_and_starves_the_rest() -> None:
    """KAI 2075: it backs off, longer each time, and others start meanwhile."""
    stage = Stage(cluster(leaves=1, nodes=1, gpus=4))
    stage.submit(job("broken", gpus=4, priority="serving", restarts=5), job("fine", gpus=4))
    stage.tell(GangStartFailed, job="broken", attempt=1, reason="no such image")
    stage.ended("broken", 1)
    assert stage.phases() == {"broken": "pending", "fine": "starting"}
    assert stage.state("broken").not_before > stage.now


def test_half_assumed_gangs_hold_what_each_other_needs() -> None:
    """Kubernetes-sigs scheduler-plugins 713, 117, 682, 930: one of two runs whole, the other holds nothing."""
    stage = Stage(cluster(leaves=1, nodes=2, gpus=4))
    stage.submit(job("a", members=6), job("b", members=6))
    assert stage.phases() == {"a": "starting", "b": "pending"}
    assert stage.nodes("b") == []


def test_small_jobs_overtake_though_the_queue_is_to_be_strict() -> None:
    """Volcano 4690, 3950: with `overtake: none` nothing of the queue passes, not even a moment later."""
    stage = Stage(cluster(leaves=1, nodes=1, gpus=4), Policy(backfill=Backfill("none")))
    stage.submit(job("runs", gpus=2), job("first", gpus=4))
    stage.submit(job("second", gpus=1))
    stage.wait(10)
    assert stage.phases() == {"runs": "starting", "first": "pending", "second": "pending"}


def test_one_pathological_workload_preempts_for_ever() -> None:
    """Kueue 6947: who crashes as soon as it starts stops others as often as it may restart, and no more."""
    life = Life(cluster(leaves=1, nodes=1, gpus=4))
    life.submit(job("works", gpus=4, priority="research"))
    life.submit(job("crashes", gpus=4, priority="serving", restarts=2))
    for _ in range(20):
        life.quiet()
        if life.jobs["crashes"].phase is Phase.RUNNING:
            life.stage.ended("crashes", 1)
        life.pause(600)
    assert life.jobs["crashes"].phase is Phase.FAILED
    assert stopped(life.stage) == ["works"] * 3
    assert life.jobs["works"].phase is Phase.RUNNING


def test_two_groups_of_gangs_wait_for_each_others_second_half() -> None:
    """Koordinator 872: groups that come one after the other never hold half of what both need."""
    stage = Stage(cluster(leaves=1, nodes=2, gpus=4))
    stage.submit(*(job(name, members=2, gpus=3) for name in ("a1", "b1", "a2", "b2")))
    for name in ("a1", "b1", "a2", "b2"):
        assert stage.phase(name) is Phase.STARTING
        stage.started(name)
        stage.ended(name)


# ----- preemption


def test_reclaim_goes_on_when_victims_leave_at_different_times() -> None:
    """Kueue 13662: what the first victim leaves is held; nobody takes it, and nobody else is stopped."""
    policy = Policy(queues=(QueueRule("a", guarantee={"gpus": 4}), QueueRule("b")))
    stage = Stage(cluster(leaves=1, nodes=1, gpus=4), policy)
    stage.submit(*(replace(job(f"b{n}", gpus=2), queue="b") for n in range(2)))
    stage.started("b0", "b1")
    stage.submit(replace(job("owner", gpus=4), queue="a"))
    stage.ended("b0", 143)
    stage.wait(30)
    assert stage.phase("b0") is Phase.PENDING
    stage.ended("b1", 143)
    assert stage.phase("owner") is Phase.STARTING
    assert sorted(stopped(stage)) == ["b0", "b1"]


def test_fair_sharing_preempts_in_a_loop_and_the_hero_starves() -> None:
    """Kueue 3779, 13863: each is stopped at most once, and the gang for which it happens starts."""
    queues = (QueueRule("a", guarantee={"gpus": 8}), QueueRule("b", guarantee={"gpus": 8}))
    life = Life(cluster(leaves=1, nodes=4, gpus=4), Policy(queues=queues))
    life.submit(*(replace(job(f"b{n}", gpus=4), queue="b") for n in range(4)))
    life.submit(replace(job("hero", members=2, gpus=4), queue="a"))
    life.submit(*(replace(job(f"a{n}", gpus=4), queue="a") for n in range(2)))
    life.quiet()
    assert life.jobs["hero"].phase is Phase.RUNNING
    assert len(stopped(life.stage)) == len(set(stopped(life.stage))) == 2


def test_preemption_breaks_a_gang_and_leaves_it_half() -> None:
    """Volcano 4607, 2337, 3291, 2321, 3332: gangs stop whole, for a gang that then starts whole."""
    life = Life(cluster(leaves=1, nodes=2, gpus=4))
    life.submit(job("low", members=8, priority="research"))
    life.submit(job("high", members=5, priority="serving"))
    life.quiet()
    assert life.jobs["high"].phase is Phase.RUNNING
    assert life.jobs["low"].phase is Phase.PENDING


def test_a_gang_that_needs_one_domain_cannot_preempt_in_a_full_one() -> None:
    """KAI 1591: a domain without anything free is looked at too."""
    stage = filled()
    stage.submit(job("together", members=2, gpus=4, priority="serving", required="leaf"))
    assert len(stopped(stage)) == 8


def test_victims_are_those_that_lose_most() -> None:
    """Kueue 477, Volcano 5998, 5999: of two alike, the one that has just saved is stopped."""
    stage = Stage(cluster(leaves=1, nodes=2, gpus=4))
    stage.submit(*(job(name, gpus=4, checkpoint=Checkpoint()) for name in ("unsaved", "saved")))
    stage.started("unsaved", "saved")
    stage.now = 3_600
    stage.saved("saved", 900)
    stage.submit(job("urgent", gpus=4, priority="serving"))
    assert stopped(stage) == ["saved"]


def test_the_warning_before_an_eviction_is_wasted() -> None:
    """Ray 63968: who declared checkpoints is asked to save first, stopped when that is done, and loses nothing."""
    stage = Stage(cluster(leaves=1, nodes=1, gpus=4))
    stage.submit(job("train", gpus=4, checkpoint=Checkpoint(grace_s=60)))
    stage.started("train")
    stage.now = 999
    asked = stage.submit(job("urgent", gpus=4, priority="serving")).orders
    told = stage.saved("train", 999).orders
    assert [type(order) for order in (*asked, *told)] == [SaveCheckpoint, StopGang]
    stage.ended("train", 143)
    assert stage.state("train").gpu_s_lost == 0
    assert [fact.job for fact in stage.facts if isinstance(fact, GangPlaced)] == ["train", "urgent"]
    assert Preemption().by == "priority"
