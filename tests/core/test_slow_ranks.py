"""A rank that slows its gang is on record, and the gang leaves its node by the rule of degraded links."""

from dataclasses import replace

import pytest

from gantree.core.explain.explain import why
from gantree.core.snapshot.ledger_snapshot import snapshot_of
from gantree.core.snapshot.restore import restored
from gantree.journal.encoding.codec import FACT_CODEC
from gantree.journal.encoding.snapshots import SnapshotCodec
from gantree.model.cluster import LinkId
from gantree.model.events import ClusterObserved, LinkHealthObserved, RankSlownessObserved
from gantree.model.facts import GangMoving, RankSlownessNoted
from gantree.model.jobs import AxisTraffic, Checkpoint, Job, Traffic
from gantree.model.phases import Phase
from gantree.policy.rules import Policy
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from support.same_ledger import differences

GRACE_S, RESTART_S = 60.0, 60.0
NEEDED_S = (GRACE_S + RESTART_S) / (1 - 1 / 1.5)
"""How long a factor of 1.5 must last until moving pays."""


def trained(name: str, traffic: Traffic | None = None) -> Job:
    """A gang of two whole nodes that saves."""
    saves = Checkpoint(every_s=900, grace_s=GRACE_S)
    return replace(job(name, 2, 8, checkpoint=saves, processes=8), traffic=traffic)


def stage_of(*jobs: Job, nodes: int = 2, policy: Policy | None = None) -> Stage:
    stage = Stage(cluster(leaves=2, nodes=nodes, nics=2), policy)
    for each in jobs or (trained("a"),):
        stage.submit(each)
        stage.started(each.name)
    stage.wait(1000)
    return stage


def slow(
    stage: Stage, slowdown: float = 1.5, rank: int = 9, node: str = "n1", attempt: int = 0
) -> None:
    attempt = attempt or stage.state("a").attempt
    told = {"rank": rank, "node": node, "slowdown": slowdown}
    stage.tell(RankSlownessObserved, job="a", attempt=attempt, **told)


def movers(stage: Stage) -> list[GangMoving]:
    return [fact for fact in stage.facts if isinstance(fact, GangMoving)]


def moved(stage: Stage) -> None:
    """The move that is under way comes to its end."""
    stage.saved("a", 1)
    stage.ended("a", 143)
    stage.started("a")


@pytest.mark.parametrize("traffic", [None, Traffic((AxisTraffic("data", 100e9),), compute_s=1.0)])
def test_a_gang_leaves_the_node_of_a_slow_rank_once_that_pays(traffic: Traffic | None) -> None:
    stage = stage_of(trained("a", traffic))
    slow(stage)
    assert stage.scheduler.wake_at() == pytest.approx(1000 + NEEDED_S)
    stage.wait(NEEDED_S - 0.01)
    assert movers(stage) == []
    stage.wait(0.01)
    (moving,) = movers(stage)
    assert moving.flees == "rank 9 on n1 slows each step 1.50 times"
    assert "n1" not in moving.placement.nodes
    moved(stage)
    assert stage.phase("a") is Phase.RUNNING
    assert stage.state("a").slow == ()
    assert stage.scheduler.wake_at() is None


def test_a_rank_that_is_fast_again_in_time_moves_nobody() -> None:
    stage = stage_of()
    for _ in range(20):
        slow(stage)
        stage.wait(120)
        slow(stage, 1.0)
        stage.wait(1000)
    assert movers(stage) == []
    assert stage.scheduler.ledger.slowed == {}


def test_a_rank_that_is_slow_again_elsewhere_has_more_to_do_and_moves_nobody() -> None:
    stage = stage_of()
    slow(stage)
    stage.wait(NEEDED_S)
    moved(stage)
    slow(stage, node=stage.nodes("a")[1])
    stage.wait(100_000)
    assert len(movers(stage)) == 1
    assert "Its steps take" not in why(stage.scheduler.ledger, "a", stage.now).sentence
    slow(stage, rank=3, node=stage.nodes("a")[0])
    stage.wait(NEEDED_S)
    assert len(movers(stage)) == 2


def test_the_slowest_rank_counts_and_all_their_nodes_are_left() -> None:
    stage = stage_of()
    slow(stage, 1.1, rank=0, node="n0")
    stage.wait(100)
    slow(stage, 1.5)
    assert stage.scheduler.wake_at() == pytest.approx(1100 + NEEDED_S)
    stage.wait(NEEDED_S)
    (moving,) = movers(stage)
    assert sorted(moving.placement.nodes) == ["n2", "n3"]


def test_a_slow_rank_and_a_worn_link_are_one_sum() -> None:
    stage = stage_of(trained("a", Traffic((AxisTraffic("data", 400e9),), compute_s=0.0)))
    link = LinkId("nic", "n0/mlx5_0")
    stage.tell(LinkHealthObserved, link=link, source="ufm", health=0.5)
    slow(stage, 1.1)
    sentence = why(stage.scheduler.ledger, "a", stage.now).sentence
    assert "rank 9 on n1 slows each step 1.10 times; nic n0/mlx5_0 carries 50 %" in sentence
    stage.wait(2000)
    (moving,) = movers(stage)
    assert sorted(moving.placement.nodes) == ["n2", "n3"]


def test_it_stays_where_no_place_is_without_that_node() -> None:
    stage = stage_of(nodes=1)
    slow(stage)
    stage.wait(100_000)
    assert movers(stage) == []
    assert (
        "moves as soon as a faster place is free"
        in why(stage.scheduler.ledger, "a", stage.now).sentence
    )


@pytest.mark.parametrize(
    "told",
    [
        {"slowdown": 1.0},
        {"slowdown": 0.5},
        {"slowdown": float("inf")},
        {"slowdown": float("nan")},
        {"rank": -1},
        {"node": "n3"},
        {"attempt": 7},
    ],
)
def test_what_is_no_slow_rank_of_the_attempt_is_passed_over(told: dict[str, float | str]) -> None:
    stage = stage_of()
    slow(stage, **told)  # type: ignore[arg-type]  # as the case has it
    assert not any(isinstance(fact, RankSlownessNoted) for fact in stage.facts)


def test_to_say_the_same_again_changes_nothing_and_a_clearly_slower_rank_is_a_new_fault() -> None:
    stage = stage_of()
    for slowdown, since in [
        (1.5, 1000.0),
        (1.5, 1000.0),
        (1.53, 1000.0),
        (1.6, 1030.0),
        (1.2, 1030.0),
    ]:
        slow(stage, slowdown)
        assert [(each.slowdown, each.since) for each in stage.state("a").slow] == [
            (slowdown, since)
        ]
        stage.wait(10)
    assert sum(isinstance(fact, RankSlownessNoted) for fact in stage.facts) == 4


def test_a_snapshot_and_a_fold_know_slow_ranks() -> None:
    stage = stage_of()
    slow(stage)
    codec = SnapshotCodec()
    again = restored(codec.decode(codec.encode(snapshot_of(stage.scheduler))), stage.policy)
    assert differences(again.ledger, stage.scheduler.ledger, any_order=True) == []
    assert list(again.ledger.slowed) == ["a"]
    (fact,) = [fact for fact in stage.facts if isinstance(fact, RankSlownessNoted)]
    assert FACT_CODEC.decode(FACT_CODEC.encode(fact)) == fact


def test_a_gang_does_not_return_to_a_slow_node_that_it_left() -> None:
    stage = stage_of(nodes=2)
    slow(stage, rank=0, node="n0")
    stage.wait(NEEDED_S)
    moved(stage)
    assert sorted(stage.nodes("a")) == ["n2", "n3"]
    slow(stage, rank=9, node="n3")
    stage.wait(NEEDED_S)
    (_, again) = movers(stage)
    assert sorted(again.placement.nodes) == ["n1", "n2"]


def test_a_slow_node_that_is_gone_from_the_cluster_hinders_no_later_move() -> None:
    stage = stage_of(nodes=3)
    slow(stage, rank=0, node="n0")
    stage.wait(NEEDED_S)
    moved(stage)
    assert "n0" not in stage.nodes("a")
    site = cluster(leaves=2, nodes=3, nics=2)
    stage.tell(ClusterObserved, cluster=replace(site, nodes=site.nodes[1:]))
    slow(stage, rank=9, node=stage.nodes("a")[1])
    stage.wait(NEEDED_S)
    assert len(movers(stage)) == 2
