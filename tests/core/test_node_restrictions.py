"""Bars: a waiting job goes where whoever runs the cluster wants it for now, and nothing else of it changes."""

from gantree.core.explain.explain import why
from gantree.model.events import BarsRequested
from gantree.model.facts import JobBarred
from gantree.model.node_restrictions import node_restrictions_of, without_node_restrictions
from gantree.model.phases import Phase
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage

NOT_N0 = (("worker", "metadata.name notin (n0)"),)
NOWHERE = (("worker", "metadata.name in ()"),)


def full() -> Stage:
    """Two nodes, both taken by x, and a job b that waits for one."""
    stage = Stage(cluster(leaves=1, nodes=2))
    stage.submit(job("x", 2, 8))
    stage.started("x")
    stage.submit(job("b", 1, 8))
    return stage


def test_a_job_waits_where_it_may_not_be_and_starts_when_it_may() -> None:
    stage = full()
    stage.tell(BarsRequested, job="b", bars=NOWHERE, reason="its friends are elsewhere")
    stage.ended("x", 0)
    assert stage.phase("b") is Phase.PENDING
    told = why(stage.scheduler.ledger, "b", stage.now)
    assert told.sentence.startswith("Waiting: ")
    assert "Restricted to some nodes: its friends are elsewhere." in told.sentence
    assert told.refused is not None
    assert not told.refused.never
    stage.tell(BarsRequested, job="b", bars=NOT_N0, reason="n0 is taken")
    assert stage.nodes("b") == ["n1"]


def test_bars_replace_those_before_and_the_same_again_change_nothing() -> None:
    stage = full()
    before = stage.state("b").spec
    first, *_ = stage.tell(BarsRequested, job="b", bars=NOT_N0).facts
    assert isinstance(first, JobBarred)
    assert stage.tell(BarsRequested, job="b", bars=NOT_N0).facts == ()
    assert node_restrictions_of(stage.state("b").spec) == dict(NOT_N0)
    assert without_node_restrictions(stage.state("b").spec.roles[0].shape) == before.roles[0].shape
    stage.tell(BarsRequested, job="b", bars=())
    assert stage.state("b").spec == before


def test_a_job_that_has_its_place_keeps_it() -> None:
    stage = full()
    assert stage.tell(BarsRequested, job="x", bars=NOWHERE).facts == ()
    assert stage.phase("x") is Phase.RUNNING


def test_room_held_where_a_job_may_not_be_any_more_is_given_up() -> None:
    stage = full()
    stage.submit(job("high", 1, 8, priority="production"))
    (member,) = stage.scheduler.ledger.claims["high"].placement.members
    keeps = (("worker", f"metadata.name in ({member.node})"),)
    stage.tell(BarsRequested, job="high", bars=keeps)
    assert "high" in stage.scheduler.ledger.claims
    stage.tell(BarsRequested, job="high", bars=NOWHERE)
    assert "high" not in stage.scheduler.ledger.claims
