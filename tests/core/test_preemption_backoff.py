"""A job that preempts others again and again, in vain, does so less and less often."""

from dataclasses import replace
from itertools import pairwise

import pytest

from gantree.core.explain.explain import why
from gantree.core.queue.preemption_backoff import AT_ANY_TIME
from gantree.core.scheduler import Scheduler
from gantree.core.snapshot.ledger_snapshot import snapshot_of
from gantree.core.snapshot.restore import restored
from gantree.journal.encoding.codec import FACT_CODEC, Encoded
from gantree.model.events import CordonRequested, HoldRequested, ReleaseRequested, SuspendRequested
from gantree.model.facts import JobRequeued, RoomClaimed
from gantree.model.jobs import Restarts
from gantree.model.phases import StopCause
from gantree.policy.rules import Backfill, Policy, Preemption, QueueRule
from gantree.testing.builders import cluster, job
from support.lives import Life
from support.same_ledger import differences

RESTART_S = 60.0
POLICY = Policy(restart_s=RESTART_S, backfill=Backfill("any"))
LOW, MID = job("low", gpus=4, priority="research"), job("mid", gpus=4, priority="production")


def lived(policy: Policy = POLICY, low: str = "default", mid: str = "default") -> Life:
    """One node, on which a job "low" runs; then comes "mid"."""
    life = Life(cluster(leaves=1, nodes=1, gpus=4), policy)
    life.submit(replace(LOW, queue=low))
    life.submit(replace(MID, queue=mid, restarts=Restarts(99, 5.0, 5.0)))
    life.quiet()
    return life


def yielded(life: Life) -> str:
    """A job of a higher class preempts "mid" and is suspended, so "low" runs, and "mid" wants its room; whom."""
    assert life.stage.phase("mid") == "running"
    high = f"high{life.stage.state('mid').preemptions}"
    life.submit(replace(job(high, gpus=4, priority="serving"), queue=life.jobs["mid"].spec.queue))
    life.quiet()
    assert life.stage.phase(high) == "running"
    life.stage.tell(HoldRequested, job="mid")
    life.stage.tell(SuspendRequested, job=high)
    life.stage.ended(high, 143)
    life.pause(0.0)
    assert life.stage.phase("low") == "running"
    life.stage.tell(ReleaseRequested, job="mid")
    life.quiet()
    return high


def preempted_at_any_time(life: Life) -> None:
    """ "mid" has preempted "low" as often as it may at any time, and wants to do so once more."""
    for _ in range(AT_ANY_TIME):
        yielded(life)


def test_three_times_a_job_preempts_at_any_time() -> None:
    life = lived()
    for _ in range(AT_ANY_TIME - 1):
        yielded(life)
        assert life.stage.phase("mid") == "running"
    assert life.now == 0.0


def test_from_the_fourth_time_on_it_backs_off_for_twice_as_long_each_time_and_is_told_so() -> None:
    life = lived()
    preempted_at_any_time(life)
    for doublings in range(10):  # 8.5 hours at the last: there is no longest
        assert life.stage.phases()["mid"] == "pending"
        assert life.stage.scheduler.wake_at() == life.now + RESTART_S * 2**doublings
        life.pause(RESTART_S * 2**doublings)
        life.quiet()
        yielded(life)
    told = why(life.stage.scheduler.ledger, "mid", life.now)
    assert told.in_the_way == (("low", "back-off"),)
    assert told.sentence.endswith(
        "It may not preempt low (back-off). It preempted others 13 times and may do so again in 61440 s."
    )


def test_a_job_that_backs_off_starts_on_free_room() -> None:
    life = lived()
    preempted_at_any_time(life)
    life.stage.ended("low")
    assert life.stage.phase("mid") == "starting"


def test_another_one_that_is_alike_need_not_back_off() -> None:
    """The first of both starts on what that frees."""
    life = lived()
    preempted_at_any_time(life)
    life.submit(replace(MID, name="other", held=True))
    life.stage.tell(ReleaseRequested, job="other")
    life.quiet()
    assert life.stage.state("low").preempted_by == "other"
    assert (life.stage.phase("mid"), life.stage.phase("other")) == ("running", "pending")


def test_all_that_one_claim_stops_counts_once() -> None:
    life = Life(cluster(leaves=1, nodes=1, gpus=4), POLICY)
    life.submit(*(job(f"low{number}", gpus=1, priority="research") for number in range(4)))
    life.submit(MID)
    assert life.quiet() == 4
    assert life.stage.state("mid").preempting_claims == 1


def test_an_attempt_that_fails_ends_the_count() -> None:
    """A large gang that loses a node again and again may take another one's place each time."""
    life = lived()
    for _ in range(3 * AT_ANY_TIME):
        life.stage.rank_failed("mid")
        life.stage.ended("mid", 1)
        life.pause(0.0)
        assert life.stage.phase("low") == "running"
        life.pause(5.0)
        life.quiet()
        assert life.stage.phase("mid") == "running"


def test_who_outlives_the_job_that_preempted_it_begins_to_count_anew() -> None:
    """So a job that yields to one urgent job a day, and takes another one's place, may do so for months."""
    life = lived()
    for _ in range(3 * AT_ANY_TIME):
        high = yielded(life)
        assert life.stage.phase("mid") == "running"
        life.stage.cancel(high)


def test_a_job_within_the_guarantee_of_its_queue_never_backs_off() -> None:
    """Half of the cluster is lost, so what its queue is guaranteed beside "low" is nowhere to be reclaimed."""
    queues = (QueueRule("a", guarantee={"gpus": 8}),)
    life = lived(replace(POLICY, queues=queues), "a", "a")
    for _ in range(2 * AT_ANY_TIME):
        yielded(life)
        assert life.stage.phase("mid") == "running"
    assert life.stage.state("mid").preempting_claims == 0


def test_a_job_that_comes_to_be_within_the_guarantee_of_its_queue_backs_off_no_more() -> None:
    policy = replace(POLICY, queues=(QueueRule("a", guarantee={"gpus": 8}),))
    life = Life(cluster(leaves=1, nodes=2, gpus=4), policy)
    life.submit(replace(job("urgent", gpus=4, priority="serving"), queue="a"))
    life.submit(replace(LOW, queue="a"))
    life.submit(replace(MID, queue="a"))
    life.quiet()
    preempted_at_any_time(life)
    assert life.stage.phase("mid") == "pending"
    life.stage.tell(CordonRequested, node=life.stage.nodes("urgent")[0])
    life.stage.ended("urgent")
    life.quiet()
    assert life.stage.phases()["mid"] == "running"
    assert life.stage.phase("low") == "pending"


def test_jobs_that_take_turns_by_what_they_were_served_never_back_off() -> None:
    policy = Policy(
        order=("attained", "arrival"), preemption=Preemption(by="order"), restart_s=RESTART_S
    )
    life = Life(cluster(leaves=1, nodes=1, gpus=4), policy)
    life.submit(job("a", gpus=4), job("b", gpus=4))
    life.until(3600.0)
    claims = [fact for fact in life.stage.facts if isinstance(fact, RoomClaimed) and fact.preempts]
    assert len(claims) > 2 * AT_ANY_TIME
    gaps_s = [later.at - claim.at for claim, later in pairwise(claims)]
    assert max(gaps_s) < 3 * RESTART_S


def test_a_scheduler_that_was_recovered_or_restored_knows_who_backs_off() -> None:
    life = lived()
    preempted_at_any_time(life)
    fold = Scheduler(POLICY)
    fold.recover(life.stage.facts)
    for twin in (fold, restored(snapshot_of(life.stage.scheduler), POLICY)):
        assert differences(twin.ledger, life.stage.scheduler.ledger, any_order=True) == []
        assert twin.ledger.jobs["mid"].preempting_claims == AT_ANY_TIME


def test_what_older_versions_counted_of_preempted_jobs_is_passed_over() -> None:
    text = (
        '{"at": 1.0, "job": "a", "cause": "preempted", "not_before": 61.0, "failures": 0, '
        '"cut_short": 3, "cut_short_for": ["b", "c", "b"]}'
    )
    fact = JobRequeued(at=1.0, job="a", cause=StopCause.PREEMPTED, not_before=61.0, failures=0)
    assert FACT_CODEC.decode(Encoded("JobRequeued", 1, text)) == fact


@pytest.mark.parametrize("restart_s", [0.0, 0.5])
def test_a_back_off_is_never_nothing(restart_s: float) -> None:
    life = lived(replace(POLICY, restart_s=restart_s))
    preempted_at_any_time(life)
    assert life.stage.scheduler.wake_at() == 1.0
