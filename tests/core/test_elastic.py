"""Elastic gangs: smaller where the full size does not fit, larger into idle room, members given back on demand."""

from dataclasses import replace

import pytest

from gantree.core.cycle.growth import SETTLED_S
from gantree.core.explain.explain import why
from gantree.model.events import NodeLost, RankExited
from gantree.model.facts import ClaimDropped, GangMoving, GangPreempted
from gantree.model.jobs import Checkpoint, Elastic, Job
from gantree.model.orders import SaveCheckpoint, StartGang, StopGang
from gantree.model.phases import Phase, StopCause
from gantree.policy.rules import Policy, QueueRule
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage

SAVES = Checkpoint(every_s=60, grace_s=60)


def elastic(name: str, members: int, least: int, most: int, gpus: int = 8, **fields: object) -> Job:
    """A gang of one role, `gpus` a member with a process each, that saves on request."""
    spec = job(name, members, gpus, processes=gpus, checkpoint=SAVES)
    return replace(spec, elastic=Elastic(least, most), **fields)  # type: ignore[arg-type]  # as the test writes them


@pytest.fixture
def stage() -> Stage:
    """Two leaves of two 8-GPU nodes: 32 GPUs."""
    return Stage(cluster(leaves=2, nodes=2, gpus=8))


def size(stage: Stage, name: str) -> int:
    return len(stage.nodes(name))


def start_order(stage: Stage, name: str) -> StartGang:
    """The last order that started the job."""
    return [o for o in stage.orders if isinstance(o, StartGang) and o.job == name][-1]


def settle(stage: Stage, *names: str) -> None:
    """Let these run until they may grow."""
    stage.started(*names)
    stage.wait(SETTLED_S)


def move_on(stage: Stage, name: str, step: int = 1) -> None:
    """A gang that was asked to save does so, stops, and starts again wherever it is to."""
    stage.saved(name, step)
    stage.ended(name, exit_code=143)


# ----- smaller


def test_a_gang_starts_smaller_where_its_full_size_does_not_fit(stage: Stage) -> None:
    stage.submit(job("half", 2, 8), elastic("e", 4, 1, 4))
    order = start_order(stage, "e")
    assert (size(stage, "e"), order.world_size) == (2, 16)
    assert [launch.first_rank for launch in order.members] == [0, 8]


def test_a_gang_starts_smaller_where_its_queue_admits_no_more() -> None:
    rules = (QueueRule("default", limit={"gpus": 16}),)
    stage = Stage(cluster(leaves=2, nodes=2, gpus=8), Policy(queues=rules))
    stage.submit(elastic("e", 4, 1, 4))
    assert (size(stage, "e"), stage.phase("e")) == (2, Phase.STARTING)


@pytest.mark.parametrize(
    "rule",
    [
        QueueRule("default", limit={"gpus/H100-80GB": 16}),
        QueueRule("default", limit={"cpus": 20}),
        QueueRule("default", user_limit={"gpus": 16}),
        QueueRule("default", user_limit={"gpus/H100-80GB": 23}),
        QueueRule("default", guarantee={"gpus": 8}, borrow={"gpus": 8}),
    ],
    ids=[
        "GPUs of the model",
        "cores",
        "GPUs of a user",
        "GPUs of the model of a user",
        "what it borrows",
    ],
)
@pytest.mark.parametrize("models", [(), ("H100-80GB",)], ids=["any model", "its model"])
def test_whatever_limit_refuses_the_full_size_a_smaller_one_that_fits_starts(
    rule: QueueRule, models: tuple[str, ...]
) -> None:
    stage = Stage(cluster(leaves=2, nodes=2, gpus=8), Policy(queues=(rule,)))
    spec = elastic("e", 4, 1, 4)
    (role,) = spec.roles
    shape = replace(role.shape, cpus=10.0, models=models)
    stage.submit(replace(spec, roles=(replace(role, shape=shape),)))
    assert (size(stage, "e"), stage.phase("e")) == (2, Phase.STARTING)


def test_a_gang_that_its_queue_admits_at_no_size_waits_and_says_so() -> None:
    rules = (QueueRule("default", limit={"gpus": 16}),)
    stage = Stage(cluster(leaves=2, nodes=2, gpus=8), Policy(queues=rules))
    stage.submit(elastic("e", 4, 3, 4))
    refused = why(stage.scheduler.ledger, "e", stage.now).refused
    assert refused is not None and refused.gate == "LIMIT"


def test_others_leave_for_the_least_size_of_a_gang_that_is_too_large_for_its_queue_at_its_full_one() -> (
    None
):
    rules = (QueueRule("default", limit={"gpus": 16}),)
    stage = Stage(cluster(leaves=2, nodes=2, gpus=8), Policy(queues=rules))
    stage.submit(job("low", 1, 8, priority="research"), job("equal", 1, 8, priority="serving"))
    stage.started("low", "equal")
    stage.submit(elastic("e", 4, 1, 4, priority="serving"))
    assert list(stage.scheduler.ledger.leaving) == ["low"]
    stage.ended("low", exit_code=143)
    assert (size(stage, "e"), stage.phase("e")) == (1, Phase.STARTING)


def test_a_gang_that_may_start_smaller_when_others_end_is_not_told_never() -> None:
    rules = (QueueRule("default", limit={"gpus": 16}),)
    stage = Stage(cluster(leaves=2, nodes=2, gpus=8), Policy(queues=rules))
    stage.submit(job("equal", 2, 8), elastic("e", 4, 1, 4))
    stage.started("equal")
    answer = why(stage.scheduler.ledger, "e", stage.now)
    assert answer.refused is not None and not answer.refused.never
    assert answer.sentence == "Waiting: queue default uses 16 of its limit of 16 GPUs."
    stage.ended("equal")
    assert size(stage, "e") == 2


def test_a_policy_that_is_not_elastic_starts_full_sizes_only() -> None:
    stage = Stage(cluster(leaves=2, nodes=2, gpus=8), Policy(elastic=False))
    stage.submit(job("half", 2, 8), elastic("e", 4, 1, 4))
    assert stage.phase("e") is Phase.PENDING


# ----- larger


def test_a_gang_grows_into_idle_room_when_it_has_settled(stage: Stage) -> None:
    stage.submit(elastic("e", 2, 1, 4))
    stage.started("e")
    assert stage.scheduler.wake_at() == SETTLED_S
    stage.wait(SETTLED_S - 1)
    assert stage.phase("e") is Phase.RUNNING
    decision = stage.wait(1)
    assert [type(order) for order in decision.orders] == [SaveCheckpoint]
    move_on(stage, "e", step=7)
    order = start_order(stage, "e")
    assert (size(stage, "e"), order.world_size, stage.state("e").attempt) == (4, 32, 2)
    assert stage.state("e").checkpoint_step == 7
    assert stage.state("e").preemptions == 0


def test_what_held_its_members_back_ends_and_a_small_gang_grows(stage: Stage) -> None:
    stage.submit(job("half", 2, 8), elastic("e", 4, 1, 4))
    settle(stage, "e", "half")
    assert stage.phase("e") is Phase.RUNNING
    stage.ended("half")
    move_on(stage, "e")
    assert size(stage, "e") == 4


def test_a_gang_never_grows_past_its_most(stage: Stage) -> None:
    stage.submit(elastic("e", 2, 1, 3))
    settle(stage, "e")
    move_on(stage, "e")
    settle(stage, "e")
    assert (size(stage, "e"), stage.phase("e")) == (3, Phase.RUNNING)


def test_a_gang_grows_as_far_as_its_queue_admits_and_no_further() -> None:
    rules = (QueueRule("default", limit={"gpus": 24}),)
    stage = Stage(cluster(leaves=2, nodes=2, gpus=8), Policy(queues=rules))
    stage.submit(elastic("e", 2, 1, 4))
    settle(stage, "e")
    move_on(stage, "e")
    assert size(stage, "e") == 3


def test_a_gang_whose_user_says_that_it_ends_soon_does_not_grow(stage: Stage) -> None:
    stage.submit(elastic("e", 2, 1, 4, expected_s=SETTLED_S + 30))
    settle(stage, "e")
    assert stage.phase("e") is Phase.RUNNING


def test_a_gang_that_a_promised_start_waits_for_does_not_grow() -> None:
    """Its next attempt would have its whole time limit before it."""
    stage = Stage(cluster(leaves=2, nodes=2, gpus=8))
    stage.submit(replace(elastic("e", 2, 1, 4), time_limit_s=4_000))
    stage.submit(job("endless", 1, 8))
    stage.started("e", "endless")
    stage.submit(job("wide", 2, 8, required="leaf", time_limit_s=100))
    told = stage.scheduler.ledger.reservations["wide"]
    assert told.promised and told.waits_for == ("e",)
    stage.wait(SETTLED_S)
    assert stage.phase("e") is Phase.RUNNING
    assert stage.scheduler.ledger.reservations["wide"].starts_at == told.starts_at


def test_sizes_between_the_legal_ones_are_passed_over(stage: Stage) -> None:
    spec = elastic("e", 2, 1, 4, parallelism=(("tensor", 16), ("data", 1)))
    stage.submit(spec)
    settle(stage, "e")
    move_on(stage, "e")
    assert size(stage, "e") == 4
    stage.started("e")
    stage.submit(job("other", 1, 8))
    move_on(stage, "e")
    assert size(stage, "e") == 2


# ----- giving back


def grown_over_everything(stage: Stage) -> None:
    """A gang written with two members holds all four nodes."""
    stage.submit(elastic("e", 2, 1, 4))
    settle(stage, "e")
    move_on(stage, "e")
    stage.started("e")
    assert size(stage, "e") == 4


def test_members_are_given_back_to_whoever_needs_them_after_a_checkpoint(stage: Stage) -> None:
    grown_over_everything(stage)
    decision = stage.submit(job("other", 1, 8))
    assert [type(order) for order in decision.orders] == [SaveCheckpoint]
    assert not any(isinstance(fact, GangPreempted) for fact in stage.facts)
    decision = stage.saved("e", 9)
    assert [type(order) for order in decision.orders] == [StopGang]
    stage.ended("e", exit_code=143)
    assert stage.phases() == {"e": "starting", "other": "starting"}
    assert (size(stage, "e"), start_order(stage, "e").world_size) == (3, 24)
    assert stage.state("e").preemptions == 0


def test_below_the_size_as_written_only_a_superior_gets_members(stage: Stage) -> None:
    grown_over_everything(stage)
    stage.submit(job("equal", 3, 8))
    assert stage.phases() == {"e": "running", "equal": "pending"}
    stage.submit(job("urgent", 3, 8, priority="serving"))
    move_on(stage, "e")
    assert (size(stage, "e"), size(stage, "urgent")) == (1, 3)


def test_a_gang_that_is_never_preempted_gives_no_members_back(stage: Stage) -> None:
    """Giving them back is a new start."""
    stage.submit(elastic("e", 4, 1, 4, preemptible=False))
    settle(stage, "e")
    stage.submit(job("urgent", 1, 8, priority="serving"))
    assert stage.phases() == {"e": "running", "urgent": "pending"}


def test_a_gang_that_could_give_nothing_back_does_not_grow(stage: Stage) -> None:
    stage.submit(elastic("e", 2, 1, 4, preemptible=False))
    settle(stage, "e")
    assert (size(stage, "e"), stage.phase("e")) == (2, Phase.RUNNING)
    assert stage.scheduler.wake_at() is None


def test_nobody_preempts_where_members_given_back_are_enough(stage: Stage) -> None:
    grown_over_everything(stage)
    stage.submit(job("urgent", 2, 8, priority="serving"))
    assert stage.state("e").stop_cause is StopCause.RESIZED


def test_a_gang_does_not_grow_back_at_once(stage: Stage) -> None:
    grown_over_everything(stage)
    stage.submit(job("other", 1, 8))
    move_on(stage, "e")
    stage.started("e", "other")
    stage.ended("other")
    assert stage.phase("e") is Phase.RUNNING
    stage.wait(SETTLED_S)
    assert stage.phase("e") is Phase.SAVING


# ----- in the middle of it


def growing(stage: Stage) -> None:
    """A gang of two nodes saves in order to hold four."""
    stage.submit(elastic("e", 2, 1, 4, restarts=job("x", restarts=2).restarts))
    settle(stage, "e")
    assert stage.phase("e") is Phase.SAVING
    assert "e" in stage.scheduler.ledger.claims


def test_a_gang_cancelled_while_it_grows_holds_nothing_afterwards(stage: Stage) -> None:
    growing(stage)
    stage.cancel("e")
    stage.ended("e", exit_code=143)
    assert (stage.phase("e"), stage.scheduler.ledger.claims) == (Phase.CANCELLED, {})


def test_a_gang_that_ends_well_while_it_grows_has_succeeded(stage: Stage) -> None:
    growing(stage)
    stage.ended("e", exit_code=0)
    assert (stage.phase("e"), stage.scheduler.ledger.claims) == (Phase.SUCCEEDED, {})


def test_a_gang_that_fails_while_it_grows_backs_off_and_starts_at_its_own_size(
    stage: Stage,
) -> None:
    growing(stage)
    state = stage.state("e")
    stage.tell(RankExited, job="e", attempt=state.attempt, rank=0, exit_code=1)
    stage.ended("e", exit_code=1)
    assert (stage.phase("e"), stage.scheduler.ledger.claims) == (Phase.PENDING, {})
    stage.wait(300)
    assert (stage.phase("e"), size(stage, "e"), state.moving) == (Phase.STARTING, 2, None)


@pytest.mark.parametrize("node", ["n0", "n3"])
def test_a_node_lost_while_a_gang_grows_leaves_it_a_place_of_its_own(
    stage: Stage, node: str
) -> None:
    """n0 is under it, n3 is where it grows to."""
    growing(stage)
    stage.tell(NodeLost, node=node)
    if stage.phase("e") is Phase.SAVING:
        stage.saved("e", 3)
    stage.ended("e", exit_code=143)
    stage.wait(300)
    assert stage.phase("e") is Phase.STARTING
    assert (size(stage, "e"), node in stage.nodes("e")) == (2, False)
    assert stage.scheduler.ledger.claims == {}
    assert stage.state("e").moving is None
    dropped = [fact for fact in stage.facts if isinstance(fact, ClaimDropped)]
    assert len(dropped) == 1


def test_the_present_members_are_what_people_are_told(stage: Stage) -> None:
    grown_over_everything(stage)
    assert "32 GPUs on 4 nodes" in why(stage.scheduler.ledger, "e", stage.now).sentence
    (moved,) = [fact for fact in stage.facts if isinstance(fact, GangMoving)]
    assert (moved.cause, moved.by) == (StopCause.RESIZED, "")
