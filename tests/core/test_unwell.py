"""Nodes that are told to be unwell: nothing new starts there, and who loses nothing by it leaves."""

from dataclasses import replace

import pytest

from gantree.core.explain.explain import why
from gantree.core.snapshot.ledger_snapshot import snapshot_of
from gantree.core.snapshot.restore import restored
from gantree.model.events import (
    ClusterObserved,
    CordonRequested,
    HealthObserved,
    UncordonRequested,
)
from gantree.model.facts import GangMoving
from gantree.model.jobs import Checkpoint, Job
from gantree.model.phases import Phase, StopCause
from gantree.model.site_facts import NodeHealthNoted
from gantree.policy.rules import Policy
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage

SAVES = Checkpoint(grace_s=20)


def stage_of(*jobs: Job, nodes: int = 3, policy: Policy | None = None) -> Stage:
    stage = Stage(cluster(leaves=1, nodes=nodes), policy)
    for each in jobs:
        stage.submit(each)
        stage.started(each.name)
    stage.wait(1)
    return stage


def sick(stage: Stage, node: str, reason: str = "GPU 3: XID 79", source: str = "dcgm") -> None:
    stage.tell(HealthObserved, node=node, source=source, reason=reason)


def sentence(stage: Stage, name: str) -> str:
    return why(stage.scheduler.ledger, name, stage.now).sentence


def test_nothing_new_starts_on_a_node_that_is_unwell_until_it_is_well() -> None:
    stage = stage_of(nodes=2)
    sick(stage, "n0")
    stage.submit(job("a", 1, 8), job("b", 1, 8))
    assert stage.nodes("a") == ["n1"]
    assert "cordoned: n0 (GPU 3: XID 79)" in sentence(stage, "b")
    sick(stage, "n0", reason="")
    assert stage.nodes("b") == ["n0"]


def test_who_can_save_and_has_a_place_saves_and_goes_there() -> None:
    stage = stage_of(job("a", 1, 8, checkpoint=SAVES))
    (node,) = stage.nodes("a")
    sick(stage, node)
    (moved,) = [fact for fact in stage.facts if isinstance(fact, GangMoving)]
    assert (moved.cause, moved.flees) == (StopCause.MOVED, f"node {node}: GPU 3: XID 79")
    assert stage.phase("a") is Phase.SAVING
    stage.saved("a", 3)
    stage.ended("a", 143)
    assert stage.phase("a") is Phase.STARTING
    assert stage.nodes("a") != [node]
    assert stage.state("a").preemptions == 0


def test_a_gang_whose_node_becomes_unwell_while_it_starts_leaves_once_it_runs() -> None:
    stage = stage_of()
    stage.submit(job("a", 1, 8, checkpoint=SAVES))
    sick(stage, stage.nodes("a")[0])
    assert stage.phase("a") is Phase.STARTING
    stage.started("a")
    assert stage.phase("a") is Phase.SAVING


def test_who_has_no_place_runs_on_until_one_comes_free() -> None:
    stage = stage_of(job("a", 1, 8, checkpoint=SAVES), job("b", 1, 8), nodes=2)
    sick(stage, stage.nodes("a")[0])
    stage.wait(100_000)
    assert stage.phase("a") is Phase.RUNNING
    assert "It may fail" in sentence(stage, "a")
    assert "leaves when it has a place elsewhere" in sentence(stage, "a")
    stage.ended("b")
    assert stage.phase("a") is Phase.SAVING


@pytest.mark.parametrize(
    ("spec", "policy", "because"),
    [
        (job("a", 1, 8), Policy(), "it does not say how it saves"),
        (
            replace(job("a", 1, 8, checkpoint=SAVES), preemptible=False),
            Policy(),
            "it is never stopped",
        ),
        (
            job("a", 1, 8, checkpoint=SAVES),
            Policy(leave_unwell=False),
            "the policy lets nobody leave for that",
        ),
        (
            job("a", 1, 8, checkpoint=SAVES),
            Policy(evictions_per_day=0),
            "its eviction budget is used up",
        ),
    ],
)
def test_others_stay_and_it_is_said_why(spec: Job, policy: Policy, because: str) -> None:
    stage = stage_of(spec, policy=policy)
    sick(stage, stage.nodes("a")[0])
    stage.wait(1000)
    assert stage.phase("a") is Phase.RUNNING
    assert f"it stays, for {because}." in sentence(stage, "a")


def test_a_budget_counts_what_was_left_for_that_and_is_there_again_after_a_day() -> None:
    stage = stage_of(job("a", 1, 8, checkpoint=SAVES), policy=Policy(evictions_per_day=1))
    sick(stage, stage.nodes("a")[0])
    stage.saved("a", 3)
    stage.ended("a", 143)
    stage.started("a")
    stage.wait(1)
    sick(stage, stage.nodes("a")[0])
    assert stage.phase("a") is Phase.RUNNING
    assert stage.state("a").fled_at == (1.0,)
    assert stage.scheduler.wake_at() == 1.0 + 86_400
    stage.wait(86_400)
    assert stage.phase("a") is Phase.SAVING


def test_what_an_operator_forgives_counts_again_once_something_else_is_wrong() -> None:
    stage = stage_of(nodes=2)
    sick(stage, "n0")
    stage.tell(UncordonRequested, node="n0")
    sick(stage, "n0")
    stage.submit(job("a", 2, 8))
    assert stage.phase("a") is Phase.STARTING
    stage.wait(1)
    sick(stage, "n0", reason="GPU 3: XID 79; GPU 4: XID 48")
    assert stage.scheduler.ledger.site.cordoned["n0"].unwell == "GPU 3: XID 79; GPU 4: XID 48"
    told = [fact for fact in stage.facts if isinstance(fact, NodeHealthNoted)]
    assert [fact.forgiven for fact in told] == [False, True, False]


def test_a_node_is_used_again_when_nobody_says_no_any_more() -> None:
    stage = stage_of()
    cordoned = stage.scheduler.ledger.site.cordoned
    stage.tell(CordonRequested, node="n0", reason="fan")
    sick(stage, "n0")
    sick(stage, "n0", reason="GpuXid", source="conditions")
    assert cordoned["n0"].reason == "fan; GPU 3: XID 79; GpuXid"
    sick(stage, "n0", reason="")
    assert cordoned["n0"].reason == "fan; GpuXid"
    stage.tell(UncordonRequested, node="n0", forgives=False)
    assert cordoned["n0"].reason == "GpuXid"
    sick(stage, "n0", reason="", source="conditions")
    assert "n0" not in cordoned


def test_a_snapshot_keeps_who_says_what() -> None:
    stage = stage_of(nodes=3)
    stage.tell(CordonRequested, node="n0", reason="fan")
    sick(stage, "n0")
    sick(stage, "n1")
    stage.tell(UncordonRequested, node="n1")
    site = stage.scheduler.ledger.site
    again = restored(snapshot_of(stage.scheduler), stage.policy).ledger.site
    assert (again.asked, again.unwell, again.cordoned) == (site.asked, site.unwell, site.cordoned)
    older = snapshot_of(stage.scheduler)
    books = replace(older.books, asked=None, unwell={})
    site = restored(replace(older, books=books), stage.policy).ledger.site
    assert site.asked == site.cordoned


def test_what_is_wrong_with_a_node_goes_with_it_and_what_was_asked_for_stays() -> None:
    stage = stage_of(nodes=3)
    for node in ("n1", "n2"):
        sick(stage, node)
    stage.tell(CordonRequested, node="n2", reason="fan")
    stage.tell(ClusterObserved, cluster=cluster(leaves=1, nodes=1))
    stage.tell(ClusterObserved, cluster=cluster(leaves=1, nodes=3))
    cordoned = stage.scheduler.ledger.site.cordoned
    assert {node: each.reason for node, each in cordoned.items()} == {"n2": "fan"}
    stage.submit(job("a", 2, 8))
    assert sorted(stage.nodes("a")) == ["n0", "n1"]


def test_of_nodes_that_are_not_there_nothing_is_kept() -> None:
    stage = stage_of()
    sick(stage, "elsewhere")
    assert stage.scheduler.ledger.site.unwell == {}


LIMIT = "1 node is out already, the limit is a fifth of 3 nodes"


def kept_sick(stage: Stage, node: str, kept: str = LIMIT) -> None:
    stage.tell(HealthObserved, node=node, source="dcgm", reason="GPU 3: XID 79", kept=kept)


def test_a_node_that_is_kept_in_use_takes_jobs_and_why_says_its_fault_and_the_way_out() -> None:
    stage = stage_of(job("a", 1, 8, checkpoint=SAVES), nodes=1)
    kept_sick(stage, "n0")
    assert stage.phase("a") is Phase.RUNNING
    assert (
        f"It may fail (node n0: GPU 3: XID 79); the node is kept in use: {LIMIT}; `gantree cordon n0` takes it out."
        in sentence(stage, "a")
    )
    stage.ended("a")
    stage.submit(job("b", 1, 8))
    assert stage.nodes("b") == ["n0"]
    sick(stage, "n0", reason="")
    assert "It may fail" not in sentence(stage, "b")


def test_a_node_that_was_kept_in_use_is_taken_out_by_the_same_fault_later() -> None:
    stage = stage_of(job("a", 1, 8, checkpoint=SAVES), nodes=2)
    (node,) = stage.nodes("a")
    kept_sick(stage, node)
    stage.wait(10)
    sick(stage, node)
    cordon = stage.scheduler.ledger.site.cordoned[node]
    assert (cordon.unwell, cordon.since) == ("GPU 3: XID 79", 1.0)
    assert stage.phase("a") is Phase.SAVING


def test_an_overruled_fault_is_not_told_again_as_one_that_is_kept() -> None:
    stage = stage_of(nodes=2)
    sick(stage, "n0")
    stage.tell(UncordonRequested, node="n0")
    kept_sick(stage, "n0")
    (illness,) = stage.scheduler.ledger.site.unwell["n0"].values()
    assert (illness.forgiven, illness.kept) == (True, "")


def test_a_node_that_is_cordoned_anyway_is_not_called_kept_in_use() -> None:
    stage = stage_of(nodes=2)
    kept_sick(stage, "n0")
    stage.tell(CordonRequested, node="n0", reason="fan")
    assert stage.scheduler.ledger.site.kept_in_use("n0") == []
    assert stage.scheduler.ledger.site.cordoned["n0"].reason == "fan"
