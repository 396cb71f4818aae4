"""GPUs that are lost: who holds one is stopped without saving, and starts again elsewhere from its last checkpoint."""

from dataclasses import replace

import pytest

from gantree.core.snapshot.ledger_snapshot import snapshot_of
from gantree.core.snapshot.restore import restored
from gantree.model.events import HealthObserved, RankExited, UncordonRequested
from gantree.model.facts import CheckpointRequested
from gantree.model.jobs import Checkpoint, Job, Restarts
from gantree.model.orders import ReplaceMember, StopGang
from gantree.model.phases import Phase, StopCause
from gantree.policy.rules import Policy
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage

SAVES = Checkpoint(grace_s=20)
REASON = "GPU 3: XID 79 (GPU has fallen off the bus)"


def stage_of(*jobs: Job, nodes: int = 3) -> Stage:
    stage = Stage(cluster(leaves=1, nodes=nodes))
    for each in jobs:
        stage.submit(each)
        stage.started(each.name)
    stage.wait(1)
    return stage


def loses(stage: Stage, node: str, *gpus: int, kept: str = "", reason: str = REASON) -> None:
    stage.tell(HealthObserved, node=node, source="kernel", reason=reason, kept=kept, lost_gpus=gpus)


def gpus_of(stage: Stage, name: str) -> tuple[int, ...]:
    """The GPUs of the first member of a job."""
    place = stage.state(name).placement
    assert place is not None
    return place.members[0].gpus


def test_who_holds_a_lost_gpu_is_stopped_without_saving_and_starts_at_once_elsewhere() -> None:
    stage = stage_of(job("a", 1, 8, checkpoint=SAVES))
    (node,) = stage.nodes("a")
    loses(stage, node, 3)
    assert stage.phase("a") is Phase.STOPPING
    assert not any(isinstance(fact, CheckpointRequested) for fact in stage.facts)
    order = stage.orders[-1]
    assert isinstance(order, StopGang)
    assert order.grace_s == 5.0
    assert stage.state("a").reason == f"node {node}: {REASON}"
    stage.ended("a", 143)
    assert stage.phase("a") is Phase.STARTING  # without a backoff
    assert stage.nodes("a") != [node]
    assert stage.state("a").failures == 0


def test_one_that_cannot_save_or_has_no_restarts_left_starts_again_too() -> None:
    stage = stage_of(replace(job("a", 1, 8), restarts=Restarts(0, 5.0)))
    loses(stage, stage.nodes("a")[0], 3)
    stage.ended("a", 137)
    assert stage.phase("a") is Phase.STARTING


def test_a_save_that_was_requested_is_not_waited_for() -> None:
    stage = stage_of(job("a", 1, 8, checkpoint=SAVES))
    (node,) = stage.nodes("a")
    stage.tell(HealthObserved, node=node, source="dcgm", reason="GPU 3: XID 48")
    assert stage.phase("a") is Phase.SAVING
    loses(stage, node, 3)
    assert stage.phase("a") is Phase.STOPPING
    assert stage.state("a").stop_cause is StopCause.MEMBER_LOST


def test_who_holds_other_gpus_of_the_node_saves_and_leaves() -> None:
    stage = stage_of(job("a", 1, 4, checkpoint=SAVES), job("b", 1, 4, checkpoint=SAVES))
    assert stage.nodes("a") == stage.nodes("b")
    loses(stage, stage.nodes("a")[0], 5)
    held = {name: gpus_of(stage, name) for name in ("a", "b")}
    (hit,) = [name for name in held if 5 in held[name]]
    (other,) = {"a", "b"} - {hit}
    assert stage.phase(hit) is Phase.STOPPING
    assert stage.phase(other) is Phase.SAVING


def test_where_no_one_knows_which_gpu_is_lost_only_who_holds_all_of_them_is_stopped() -> None:
    stage = stage_of(job("a", 1, 8, checkpoint=SAVES), job("b", 1, 4, checkpoint=SAVES))
    for name in ("a", "b"):
        loses(stage, stage.nodes(name)[0])
    assert stage.phase("a") is Phase.STOPPING
    assert stage.phase("b") is Phase.SAVING


def test_a_process_that_failed_by_the_lost_gpu_is_no_failure_of_the_job() -> None:
    stage = stage_of(replace(job("a", 2, 8), restarts=Restarts(0, 5.0)))
    stage.tell(RankExited, job="a", attempt=1, rank=0, exit_code=1)
    assert stage.phase("a") is Phase.STOPPING
    loses(stage, stage.nodes("a")[0], 3)
    stage.ended("a", 1)
    assert stage.phase("a") is Phase.STARTING
    assert stage.state("a").failures == 0


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_node_that_stays_in_use_or_was_uncordoned_stops_nobody(is_kept: bool) -> None:
    stage = stage_of(job("a", 1, 8))
    (node,) = stage.nodes("a")
    if is_kept:
        loses(stage, node, 3, kept="2 nodes are out already")
    else:
        stage.tell(HealthObserved, node=node, source="kernel", reason=REASON)
        stage.tell(UncordonRequested, node=node)
        loses(stage, node, 3)
    assert stage.phase("a") is Phase.RUNNING


def test_a_second_gpu_of_the_node_counts_as_the_first() -> None:
    stage = stage_of(job("a", 1, 4), job("b", 1, 4))
    (node,) = stage.nodes("a")
    first, second = (gpus_of(stage, name)[0] for name in ("a", "b"))
    loses(stage, node, first)
    assert (stage.phase("a"), stage.phase("b")) == (Phase.STOPPING, Phase.RUNNING)
    loses(stage, node, first, second, reason=f"{REASON}; GPU {second}: XID 79")
    assert stage.phase("b") is Phase.STOPPING


def test_a_gang_that_lives_without_a_member_goes_on_while_that_is_replaced() -> None:
    spec = replace(job("a", 2, 8, checkpoint=SAVES), restarts=Restarts(3, 5.0, replace_s=60.0))
    stage = stage_of(spec)
    before = stage.nodes("a")
    loses(stage, before[1], 0)
    assert stage.phase("a") is Phase.RUNNING
    after = stage.nodes("a")
    assert (after[0], after[1] != before[1]) == (before[0], True)
    assert isinstance(stage.orders[-1], ReplaceMember)


def test_one_whose_member_has_no_spare_is_not_asked_to_save_meanwhile() -> None:
    spec = replace(job("a", 2, 8, checkpoint=SAVES), restarts=Restarts(3, 5.0, replace_s=60.0))
    stage = stage_of(spec, job("b", 1, 8))
    loses(stage, stage.nodes("a")[1], 0)
    assert stage.phase("a") is Phase.RUNNING
    stage.wait(60)
    assert stage.phase("a") is Phase.STOPPING


def test_a_snapshot_has_lost_gpus() -> None:
    stage = stage_of(job("a", 1, 8))
    loses(stage, "n2", 1)
    again = restored(snapshot_of(stage.scheduler), Policy())
    assert again.ledger.site.unwell["n2"]["kernel"].lost_gpus == (1,)
