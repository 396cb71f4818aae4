"""One member of a running gang is lost: the others stay, it starts anew beside them, or after a while all do."""

from dataclasses import replace

import pytest

from gantree.core.explain.explain import why
from gantree.core.scheduler import settled
from gantree.core.snapshot.ledger_snapshot import snapshot_of
from gantree.core.snapshot.restore import restored
from gantree.model.events import CordonRequested, MemberLost, MemberStarted, NodeLost, RankExited
from gantree.model.facts import MemberBack, MemberMissed, MemberReplaced
from gantree.model.jobs import Checkpoint, Job, Restarts
from gantree.model.orders import ReplaceMember, StopGang
from gantree.model.phases import Phase, StopCause
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage


def lasting(members: int = 3, gpus: int = 8, limit: int = 3, **told: object) -> Job:
    """A gang that lives without one of its members for a minute."""
    spec = job("a", members, gpus, **told)  # type: ignore[arg-type]  # as the builder's
    return replace(spec, restarts=Restarts(limit, 5.0, replace_s=60.0))


def stage_of(spec: Job, nodes: int = 4, leaves: int = 1) -> Stage:
    stage = Stage(cluster(leaves=leaves, nodes=nodes))
    stage.submit(spec)
    stage.started("a")
    stage.wait(1)
    return stage


def fails(stage: Stage, rank: int, life: int = 0) -> None:
    stage.tell(RankExited, job="a", attempt=1, rank=rank, exit_code=1, life=life)


def vanishes(stage: Stage, rank: int, life: int = 0) -> None:
    told = {"role": "worker", "member": rank, "reason": "evicted", "rank": rank, "life": life}
    stage.tell(MemberLost, job="a", attempt=1, **told)


def test_a_member_whose_node_is_lost_starts_anew_elsewhere_and_the_others_stay() -> None:
    stage = stage_of(lasting())
    before = stage.nodes("a")
    stage.tell(NodeLost, node=before[2], reason="gone")
    assert stage.phase("a") is Phase.RUNNING
    after = stage.nodes("a")
    assert after[:2] == before[:2]
    assert after[2] not in before
    order = stage.orders[-1]
    assert isinstance(order, ReplaceMember)
    assert (order.member, order.life, order.gang.members[2].node) == (2, 1, after[2])
    assert "Being replaced: member 2 (node n2 was lost) starts anew" in sentence(stage)
    stage.tell(MemberStarted, job="a", attempt=1, member=2, life=1)
    assert sentence(stage).endswith("running.")
    stage.wait(1000)
    assert stage.phase("a") is Phase.RUNNING
    assert stage.state("a").failures == 0
    stage.ended("a", 0)
    assert stage.phase("a") is Phase.SUCCEEDED


def sentence(stage: Stage) -> str:
    return why(stage.scheduler.ledger, "a", stage.now).sentence


def test_one_that_fails_starts_anew_in_its_place_and_counts() -> None:
    stage = stage_of(lasting())
    before = stage.nodes("a")
    fails(stage, 1)
    assert stage.nodes("a") == before
    assert stage.state("a").failures == 1
    assert [each.life for each in stage.facts if isinstance(each, MemberReplaced)] == [1]


def test_what_does_not_fit_where_the_others_are_waits_for_room_there_until_the_deadline() -> None:
    """Two leaves of three nodes: the gang has one, and nothing of the other is of use to it."""
    stage = stage_of(lasting(3, required="leaf"), nodes=3, leaves=2)
    lost = stage.nodes("a")[2]
    stage.tell(NodeLost, node=lost)
    assert "has no place yet" in sentence(stage)
    assert stage.phase("a") is Phase.RUNNING
    assert stage.scheduler.wake_at() == 61.0
    stage.wait(60)
    assert stage.phase("a") is Phase.STOPPING
    assert stage.state("a").stop_cause is StopCause.MEMBER_LOST
    assert "not replaced in time: member 2" in stage.state("a").reason
    stage.ended("a", 143)
    stage.wait(10)
    assert stage.phase("a") is Phase.STARTING  # all of it, in the other leaf
    assert lost not in stage.nodes("a")
    assert (stage.state("a").missing, stage.state("a").lives) == ((), ())


def test_it_goes_to_the_domain_of_the_others_though_there_is_more_room_elsewhere() -> None:
    stage = stage_of(lasting(3, required="leaf"), nodes=4, leaves=2)
    leaf = {node for node in ("n0", "n1", "n2", "n3") if node in stage.nodes("a")}
    home = {"n0", "n1", "n2", "n3"} if leaf else {"n4", "n5", "n6", "n7"}
    stage.tell(NodeLost, node=stage.nodes("a")[1])
    assert set(stage.nodes("a")) < home
    assert stage.state("a").lives == ((1, 1),)


def test_room_that_comes_free_in_time_is_taken_before_who_waits() -> None:
    stage = Stage(cluster(leaves=1, nodes=3))
    stage.submit(lasting(2), job("b", 1, 8), job("c", 1, 8))
    stage.started("a", "b")
    stage.tell(NodeLost, node=stage.nodes("a")[1])
    assert stage.phase("c") is Phase.PENDING
    stage.ended("b", 0)
    assert stage.phase("c") is Phase.PENDING
    assert stage.state("a").lives == ((1, 1),)


def test_a_second_loss_does_not_move_the_deadline() -> None:
    stage = stage_of(lasting(4), nodes=4)
    stage.tell(CordonRequested, node=stage.nodes("a")[1])
    stage.tell(CordonRequested, node=stage.nodes("a")[2])
    vanishes(stage, 1)
    stage.wait(50)
    vanishes(stage, 2)
    missed = [each.deadline_at for each in stage.facts if isinstance(each, MemberMissed)]
    assert missed == [61.0, 61.0]
    stage.wait(10)
    assert stage.phase("a") is Phase.STOPPING


def test_a_replacement_that_is_lost_too_is_replaced_within_the_same_time() -> None:
    stage = stage_of(lasting())
    vanishes(stage, 2)
    stage.wait(30)
    vanishes(stage, 2, life=1)
    assert stage.state("a").lives == ((2, 2),)
    stage.tell(MemberStarted, job="a", attempt=1, member=2, life=1)
    assert not any(isinstance(each, MemberBack) for each in stage.facts)
    stage.wait(30)
    assert stage.phase("a") is Phase.STOPPING


def test_what_is_told_of_an_earlier_life_is_passed_over() -> None:
    stage = stage_of(lasting())
    fails(stage, 2)
    stage.tell(MemberStarted, job="a", attempt=1, member=2, life=1)
    vanishes(stage, 2)
    fails(stage, 2)
    assert stage.state("a").missing == ()
    assert stage.state("a").failures == 1


@pytest.mark.parametrize(
    ("spec", "rank"),
    [
        (lasting(), 0),  # where the others meet
        (job("a", 3, 8, restarts=3), 1),  # its others cannot live without
        (lasting(limit=0), 1),  # no failure is left
    ],
)
def test_else_all_are_stopped(spec: Job, rank: int) -> None:
    stage = stage_of(spec)
    fails(stage, rank)
    assert isinstance(stage.orders[-1], StopGang)
    assert stage.phase("a") is Phase.STOPPING


def test_one_that_is_asked_to_save_is_stopped_as_a_whole() -> None:
    stage = stage_of(replace(lasting(1 + 1), checkpoint=Checkpoint(grace_s=20)), nodes=4)
    stage.tell(CordonRequested, node=stage.nodes("a")[0], drain=True)
    assert stage.phase("a") is Phase.SAVING
    vanishes(stage, 1)
    assert stage.phase("a") is Phase.STOPPING


def test_slices_stay_together_and_a_member_of_two_that_share_a_leaf_goes_nowhere_else() -> None:
    stage = stage_of(lasting(4, slices=(2, "leaf")), nodes=2, leaves=3)
    before = stage.nodes("a")
    stage.tell(NodeLost, node=before[3])
    assert stage.nodes("a") == before
    assert "has no place yet" in sentence(stage)


def test_a_spare_node_is_for_those_that_fail() -> None:
    site = replace(cluster(leaves=1, nodes=3), spares={"leaf": 1})
    stage = Stage(site)
    stage.submit(lasting(2), job("b", 1, 8))
    stage.started("a")
    assert stage.phase("b") is Phase.PENDING
    stage.tell(NodeLost, node=stage.nodes("a")[1])
    assert stage.state("a").lives == ((1, 1),)


def test_a_snapshot_goes_on_with_who_is_missing() -> None:
    stage = stage_of(lasting(3, required="leaf"), nodes=3, leaves=2)
    stage.tell(NodeLost, node=stage.nodes("a")[2])
    again = restored(snapshot_of(stage.scheduler), stage.policy)
    assert again.ledger.gapped == stage.scheduler.ledger.gapped
    assert settled(again, [], stage.now).wake_at == stage.scheduler.wake_at() == 61.0


def test_one_whose_gang_shares_devices_goes_back_to_its_own_or_nowhere() -> None:
    stage = stage_of(lasting(2, 4, required="nvlink"))
    before = stage.state("a").placement
    fails(stage, 1)
    assert stage.state("a").placement == before
    assert stage.state("a").lives == ((1, 1),)
    stage.tell(CordonRequested, node=stage.nodes("a")[0])
    fails(stage, 1, life=1)
    assert "has no place yet" in sentence(stage)
