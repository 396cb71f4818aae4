"""Fair shares by what GPUs did: idle time and work lost to others count by the weights of the policy."""

from dataclasses import replace

import pytest

from gantree.model.events import CordonRequested, Event, GpuUseObserved, NodeLost
from gantree.model.gpu_activity import MeasuredUse
from gantree.model.phases import Phase
from gantree.policy.rules import BY_HELD, BY_USEFUL, Policy, QueueRule, UseWeights
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage

HALF_LIFE_S = 1000.0


def stage(share_by: UseWeights) -> Stage:
    """Queues a and b each hold one node of 8 GPUs for 500 seconds."""
    policy = Policy(
        half_life_s=HALF_LIFE_S,
        share_by=share_by,
        queues=(QueueRule("a"), QueueRule("b")),
    )
    there = Stage(cluster(spines=1, leaves=1, nodes=2), policy)
    there.submit(*(replace(job(queue, 1, 8), queue=queue) for queue in "ab"))
    there.started("a", "b")
    there.wait(500.0)
    return there


def report(there: Stage, job_id: str, useful: float, idle: float) -> None:
    attempt = there.state(job_id).attempt
    used = MeasuredUse(job_id, attempt, useful, idle)
    there.tell(GpuUseObserved, since=there.now - 500.0, until=there.now, gangs=(used,))


def shares(there: Stage) -> tuple[float, float]:
    found = there.scheduler.ledger.accounts.shares
    a, b = (found.share(found.tree.leaf(queue), there.now) for queue in "ab")
    return a, b


@pytest.mark.parametrize(
    ("share_by", "first"),
    [(BY_HELD, None), (BY_USEFUL, "a"), (UseWeights(idle=2.0), "b"), (UseWeights(1.0, 0.0), None)],
)
def test_the_queue_that_idles_goes_before_or_after_the_other_as_idle_time_weighs(
    share_by: UseWeights, first: str | None
) -> None:
    there = stage(share_by)
    report(there, "a", 0.0, 4000.0)
    report(there, "b", 4000.0, 0.0)
    a, b = shares(there)
    smaller = None if a == pytest.approx(b) else "a" if a < b else "b"
    assert smaller == first
    present = 8 / 16 / 2
    assert a - present == pytest.approx((b - present) * share_by.idle, abs=0.01)
    there.check_recovery()


@pytest.mark.parametrize(
    "share_by", [BY_HELD, BY_USEFUL, UseWeights(1.0, 0.0), UseWeights(2.0, 0.5)]
)
@pytest.mark.parametrize("idle", [0.0, 1000.0])
def test_work_that_others_cost_a_queue_counts_by_its_weight_once(
    share_by: UseWeights, idle: float
) -> None:
    there = stage(share_by)
    report(there, "a", 4000.0 - idle, idle)
    there.submit(replace(job("urgent", 2, 8, priority="serving"), queue="b"))
    there.ended("a")
    there.ended("b")
    assert there.phase("a") is Phase.PENDING and there.phase("urgent") is Phase.STARTING
    a, _ = shares(there)
    at_held = (
        2 ** (-250 / HALF_LIFE_S) * 0.5 * 0.34657 / 2
    )  # 8 GPUs of 16 held for half a half-life
    assert a == pytest.approx(at_held * share_by.lost_to_others, abs=0.005)
    there.check_recovery()


@pytest.mark.parametrize("cause", [CordonRequested, NodeLost])
def test_work_that_a_drain_or_a_lost_node_costs_counts_by_its_weight(cause: type[Event]) -> None:
    there = stage(UseWeights(1.0, 0.0))
    (node,) = there.nodes("a")
    if cause is CordonRequested:
        there.tell(CordonRequested, node=node, drain=True)
    else:
        there.tell(NodeLost, node=node, reason="gone")
    there.ended("a", 143)
    assert there.phase("a") is Phase.PENDING
    a, _ = shares(there)
    assert a == pytest.approx(0.0, abs=0.005)


def test_work_that_a_job_lost_by_itself_counts_as_held() -> None:
    there = stage(BY_USEFUL)
    there.ended("a", 1)
    there.ended("b")
    assert there.phase("a") is Phase.FAILED
    a, b = shares(there)
    assert a == pytest.approx(b) and a > 0.05
