"""Nodes by an operator's word: cordoned, drained, labelled; over a cluster file that is read anew, too."""

from dataclasses import replace

from gantree.core.explain.explain import why
from gantree.model.cluster import Cluster
from gantree.model.events import (
    ClusterObserved,
    CordonRequested,
    LabelRequested,
    NodeLost,
    NodeReturned,
    UncordonRequested,
)
from gantree.model.facts import CheckpointRequested, GangMoving
from gantree.model.jobs import Checkpoint, Elastic, Job
from gantree.model.phases import Phase, StopCause
from gantree.model.site_facts import NodeCordoned
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage

SAVES = Checkpoint(grace_s=20)


def stage_of(*jobs: Job, nodes: int = 2) -> Stage:
    stage = Stage(cluster(leaves=1, nodes=nodes))
    for each in jobs:
        stage.submit(each)
        stage.started(each.name)
    return stage


def asking_for(spec: Job, **labels: str) -> Job:
    asked = tuple(labels.items())
    roles = tuple(replace(r, shape=replace(r.shape, labels=asked)) for r in spec.roles)
    return replace(spec, roles=roles)


def labels_of(stage: Stage, node: str) -> dict[str, str]:
    fabric = stage.scheduler.ledger.fabric
    assert fabric is not None
    return dict(fabric.nodes[fabric.index_of_node[node]].labels)


# ----- cordon


def test_what_runs_on_a_cordoned_node_stays_and_nothing_new_starts_there() -> None:
    stage = stage_of(job("a", 1, 8))
    (node,) = stage.nodes("a")
    stage.wait(1)
    stage.tell(CordonRequested, node=node, reason="fan")
    stage.submit(job("b", 1, 8), job("c", 1, 8))
    assert stage.phases() == {"a": "running", "b": "starting", "c": "pending"}
    stage.ended("a")
    assert stage.phase("c") is Phase.PENDING
    said = why(stage.scheduler.ledger, "c", stage.now)
    assert f"cordoned: {node} (fan)" in said.sentence
    assert said.refused is not None
    assert not said.refused.never
    assert said.refused.short_by is not None
    assert said.refused.short_by.amount == 8
    stage.tell(UncordonRequested, node=node)
    assert stage.nodes("c") == [node]


def test_a_gang_that_is_requeued_does_not_come_back_to_a_cordoned_node() -> None:
    stage = stage_of(job("a", 1, 8, restarts=3, backoff_s=0.0))
    (node,) = stage.nodes("a")
    stage.wait(1)
    stage.tell(CordonRequested, node=node)
    stage.rank_failed("a")
    stage.ended("a", 1)
    stage.wait(1)
    assert stage.phase("a") is Phase.STARTING
    assert stage.nodes("a") != [node]


def test_a_node_that_was_lost_and_is_back_stays_cordoned() -> None:
    stage = stage_of()
    stage.tell(CordonRequested, node="n0")
    stage.tell(NodeLost, node="n0")
    stage.tell(NodeReturned, node="n0")
    stage.submit(job("a", 2, 8))
    assert stage.phase("a") is Phase.PENDING
    stage.tell(UncordonRequested, node="n0")
    assert stage.phase("a") is Phase.STARTING


def test_saying_the_same_twice_and_of_unknown_nodes_changes_nothing() -> None:
    stage = stage_of()
    first = stage.tell(CordonRequested, node="n0", reason="fan")
    assert first.facts == (NodeCordoned(at=0.0, node="n0", reason="fan"),)
    assert stage.tell(CordonRequested, node="n0", reason="fan").facts == ()
    assert stage.tell(CordonRequested, node="n9").facts == ()
    assert stage.tell(UncordonRequested, node="n1").facts == ()


def test_room_that_was_claimed_on_the_node_is_claimed_elsewhere_or_not_at_all() -> None:
    stage = stage_of(job("a", 2, 8, priority="research"))
    stage.wait(1)
    stage.submit(job("b", 2, 8, priority="production"))
    assert "b" in stage.scheduler.ledger.claims
    stage.tell(CordonRequested, node="n1")
    assert "b" not in stage.scheduler.ledger.claims
    stage.ended("a", 143)
    assert stage.phases() == {"a": "pending", "b": "pending"}


def test_an_elastic_gang_on_a_cordoned_node_does_not_grow_there() -> None:
    def after_a_while(*, cordoned: bool) -> Stage:
        stage = stage_of(replace(job("a", 1, 8), elastic=Elastic(1, 2)))
        stage.wait(1)
        if cordoned:
            stage.tell(CordonRequested, node=stage.nodes("a")[0])
        stage.wait(700)
        return stage

    assert after_a_while(cordoned=False).state("a").moving is StopCause.RESIZED
    assert after_a_while(cordoned=True).phase("a") is Phase.RUNNING


# ----- drain


def test_a_gang_with_a_place_elsewhere_saves_and_moves_there() -> None:
    stage = stage_of(job("a", 1, 8, checkpoint=SAVES), nodes=3)
    (node,) = stage.nodes("a")
    stage.wait(1)
    facts = stage.tell(CordonRequested, node=node, drain=True).facts
    assert any(isinstance(f, GangMoving) and f.cause is StopCause.MOVED for f in facts)
    assert any(isinstance(f, CheckpointRequested) for f in facts)
    assert stage.phase("a") is Phase.SAVING
    stage.saved("a", 3)
    stage.ended("a", 143)
    assert stage.phase("a") is Phase.STARTING
    assert stage.nodes("a") != [node]
    assert stage.state("a").preemptions == 0


def test_one_without_waits_in_its_place_and_starts_when_the_node_is_back() -> None:
    stage = stage_of(job("a", 2, 8, checkpoint=SAVES))
    stage.wait(1)
    stage.tell(CordonRequested, node="n0", drain=True)
    assert stage.state("a").stop_cause is StopCause.DRAINED
    stage.saved("a", 3)
    stage.ended("a", 143)
    stage.wait(100)
    assert stage.phase("a") is Phase.PENDING
    stage.tell(UncordonRequested, node="n0")
    assert stage.phase("a") is Phase.STARTING


def test_with_a_deadline_it_runs_on_until_there_is_a_place_or_the_deadline() -> None:
    def one() -> Stage:
        stage = stage_of(job("a", 1, 8), job("b", 1, 8))
        stage.wait(1)
        stage.tell(CordonRequested, node=stage.nodes("a")[0], drain=True, deadline_at=100.0)
        assert stage.phases() == {"a": "running", "b": "running"}
        return stage

    stage = one()
    assert "Being drained" in why(stage.scheduler.ledger, "a", stage.now).sentence
    stage.ended("b")
    assert stage.state("a").moving is StopCause.MOVED
    stage = one()
    assert stage.scheduler.wake_at() == 100.0
    stage.now = 100.0
    stage.wait(0)
    assert stage.state("a").stop_cause is StopCause.DRAINED


def test_who_can_never_be_told_to_leave_is_waited_for() -> None:
    stage = stage_of(replace(job("a", 1, 8), preemptible=False), nodes=3)
    stage.wait(1)
    stage.tell(CordonRequested, node=stage.nodes("a")[0], drain=True, deadline_at=5.0)
    stage.wait(1000)
    assert stage.phase("a") is Phase.RUNNING
    assert "the drain waits for it" in why(stage.scheduler.ledger, "a", stage.now).sentence


def test_an_elastic_gang_goes_on_with_fewer_members() -> None:
    stage = stage_of(replace(job("a", 3, 8), elastic=Elastic(1, 3)), nodes=3)
    stage.wait(1)
    stage.tell(CordonRequested, node="n1", drain=True)
    assert stage.state("a").moving is StopCause.RESIZED
    stage.ended("a", 143)
    assert sorted(stage.nodes("a")) == ["n0", "n2"]


def test_uncordoning_lets_those_stay_who_were_not_told_to_leave_yet() -> None:
    stage = stage_of(job("a", 2, 8))
    stage.wait(1)
    stage.tell(CordonRequested, node="n0", drain=True, deadline_at=100.0)
    stage.tell(UncordonRequested, node="n0")
    stage.wait(1000)
    assert stage.phase("a") is Phase.RUNNING


# ----- labels


def test_a_label_opens_a_node_to_who_asks_for_it_and_closes_it_without_stopping_anybody() -> None:
    stage = stage_of()
    stage.submit(asking_for(job("a", 1, 4), pool="x"))
    assert stage.phase("a") is Phase.PENDING
    stage.tell(LabelRequested, node="n1", labels=(("pool", "x"), ("rack", "7")))
    assert stage.nodes("a") == ["n1"]
    stage.started("a")
    stage.tell(LabelRequested, node="n1", labels=(("pool", None),))
    assert stage.phase("a") is Phase.RUNNING
    assert labels_of(stage, "n1") == {"rack": "7"}
    stage.submit(asking_for(job("b", 1, 4), pool="x"))
    assert stage.phase("b") is Phase.PENDING


def with_labels(site: Cluster, **labels: str) -> Cluster:
    nodes = tuple(replace(node, labels=tuple(labels.items())) for node in site.nodes)
    return replace(site, nodes=nodes)


def test_an_operators_word_stands_over_the_file_until_the_file_says_the_same() -> None:
    site = cluster(leaves=1)
    stage = Stage(site)
    stage.tell(LabelRequested, node="n0", labels=(("pool", "x"),))
    stage.tell(CordonRequested, node="n1")
    stage.tell(ClusterObserved, cluster=with_labels(site, pool="y", rack="7"))
    assert labels_of(stage, "n0") == {"pool": "x", "rack": "7"}
    assert labels_of(stage, "n1") == {"pool": "y", "rack": "7"}
    assert list(stage.scheduler.ledger.site.cordoned) == ["n1"]
    stage.tell(ClusterObserved, cluster=with_labels(site, pool="x"))
    stage.tell(ClusterObserved, cluster=with_labels(site, pool="z"))
    assert labels_of(stage, "n0") == {"pool": "z"}


def test_a_label_that_was_taken_away_stays_away_until_it_is_given_back() -> None:
    site = with_labels(cluster(leaves=1), pool="y")
    stage = Stage(site)
    stage.tell(LabelRequested, node="n0", labels=(("pool", None),))
    stage.tell(ClusterObserved, cluster=replace(site, name="other"))
    assert labels_of(stage, "n0") == {}
    stage.tell(LabelRequested, node="n0", labels=(("pool", "y"),))
    assert stage.scheduler.ledger.site.labels == {}
