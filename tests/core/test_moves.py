"""Moving gangs for one that waits: the plan that is told, what is carried out when somebody says so, what breaks."""

from dataclasses import replace

import pytest

from gantree.core.cycle.moves import Defragmentation, are_under_way, defragmentation_plan
from gantree.model.errors import NotFound
from gantree.model.events import CancelRequested, DefragmentRequested, HoldRequested, NodeLost
from gantree.model.facts import GangMoving, GangPreempted
from gantree.model.jobs import Checkpoint
from gantree.model.phases import Phase, StopCause
from gantree.policy.rules import Policy, Preemption
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage

SAVES = Checkpoint(every_s=60, grace_s=60)
NOBODY_STOPS = Preemption(by="none")


def two_leaves_half_taken(defragment: str = "plan", **fields: object) -> Stage:
    """One gang of four GPUs in each leaf; a gang that needs one whole leaf has waited for 1000 s."""
    policy = Policy(preemption=NOBODY_STOPS, defragment=defragment)  # type: ignore[arg-type]  # as the test writes it
    stage = Stage(cluster(leaves=2, nodes=2, gpus=8), replace(policy, **fields))  # type: ignore[arg-type]  # as told
    stage.submit(job("a", 1, 4, checkpoint=SAVES), job("x", 1, 4), job("y", 1, 8))
    stage.submit(job("b", 1, 4, checkpoint=SAVES))
    stage.started("a", "x", "y", "b")
    stage.ended("x")
    stage.ended("y")
    assert (stage.nodes("a"), stage.nodes("b")) == (["n0"], ["n2"])
    stage.submit(job("wide", 2, 8, required="leaf"))
    assert stage.phase("wide") is Phase.PENDING
    stage.wait(1000)
    stage.saved("a", 1)
    stage.saved("b", 2)
    return stage


def ask(stage: Stage, name: str = "wide") -> None:
    stage.tell(DefragmentRequested, job=name)


def movers(stage: Stage) -> list[str]:
    return [fact.job for fact in stage.facts if isinstance(fact, GangMoving)]


def test_a_plan_says_who_moves_from_where_to_where_and_what_it_costs_and_gains() -> None:
    stage = two_leaves_half_taken()
    plan = defragmentation_plan(stage.scheduler.ledger, "wide", stage.now)
    assert plan is not None
    (move,) = plan.moves
    other = {"a": "b", "b": "a"}[move.job]
    source = [member.node for member in move.source.members]
    assert (source, move.gpus) == (stage.nodes(move.job), 4)
    assert {member.node for member in move.target.members} <= {
        "n0": {"n0", "n1"},
        "n2": {"n2", "n3"},
    }[stage.nodes(other)[0]]
    assert move.cost_gpu_s == plan.cost_gpu_s == 4 * 60.0
    assert plan.gain_gpu_s == 16 * 1000.0
    assert movers(stage) == []


def test_nothing_moves_before_somebody_says_so() -> None:
    stage = two_leaves_half_taken()
    assert (movers(stage), stage.phase("wide")) == ([], Phase.PENDING)


def carried_out(stage: Stage) -> str:
    """Let the one gang that was asked to move do so; returns its name."""
    (mover,) = movers(stage)
    stage.saved(mover, 3)
    stage.ended(mover, exit_code=143)
    return mover


def test_when_an_operator_says_so_the_gang_saves_moves_and_the_waiting_one_starts() -> None:
    stage = two_leaves_half_taken()
    ask(stage)
    mover = carried_out(stage)
    state = stage.state(mover)
    assert (state.phase, stage.phase("wide")) == (Phase.STARTING, Phase.STARTING)
    assert (state.attempt, state.checkpoint_step, state.preemptions) == (2, 3, 0)
    assert not any(isinstance(fact, GangPreempted) for fact in stage.facts)


def test_a_policy_may_apply_plans_by_itself() -> None:
    stage = two_leaves_half_taken("apply")
    if not movers(stage):
        wake_at = stage.scheduler.wake_at()
        assert wake_at is not None
        stage.wait(wake_at - stage.now)
    carried_out(stage)
    assert stage.phase("wide") is Phase.STARTING


def test_a_policy_may_forbid_plans() -> None:
    stage = two_leaves_half_taken("off")
    assert defragmentation_plan(stage.scheduler.ledger, "wide", stage.now) is None
    ask(stage)
    assert movers(stage) == []


def test_a_plan_that_costs_more_than_it_gains_is_none() -> None:
    stage = two_leaves_half_taken(restart_s=10_000.0)
    assert defragmentation_plan(stage.scheduler.ledger, "wide", stage.now) is None
    ask(stage)
    assert movers(stage) == []


def test_a_request_for_a_job_that_is_gone_moves_nobody() -> None:
    stage = two_leaves_half_taken()
    batch = [
        stage.event(DefragmentRequested, job="wide"),
        stage.event(CancelRequested, job="wide"),
        stage.event(DefragmentRequested, job="nobody"),
    ]
    stage.handle(batch)
    assert movers(stage) == []
    with pytest.raises(NotFound):
        defragmentation_plan(stage.scheduler.ledger, "nobody", stage.now)


def test_gangs_that_are_never_stopped_do_not_move() -> None:
    stage = Stage(cluster(leaves=1, nodes=2, gpus=8), Policy(preemption=NOBODY_STOPS))
    stage.submit(replace(job("a", 1, 6), preemptible=False))
    stage.submit(replace(job("b", 1, 6), preemptible=False))
    stage.started("a", "b")
    stage.submit(job("c", 1, 4))
    stage.wait(1000)
    ask(stage, "c")
    assert movers(stage) == []


def test_the_place_of_a_moving_gang_is_not_given_to_anybody_else() -> None:
    stage = two_leaves_half_taken()
    ask(stage)
    stage.submit(job("sneaky", 1, 8))
    mover = carried_out(stage)
    assert stage.phase(mover) is stage.phase("wide") is Phase.STARTING


@pytest.mark.parametrize("lost", ["under it", "its new place", "the wanted place"])
def test_nobody_is_lost_where_a_node_is_lost_in_between(lost: str) -> None:
    stage = two_leaves_half_taken()
    ask(stage)
    (mover,) = movers(stage)
    claims = stage.scheduler.ledger.claims
    old, wanted = stage.nodes(mover)[0], [m.node for m in claims["wide"].placement.members]
    new = claims[mover].placement.members[0].node
    other = next(node for node in wanted if node != old)
    stage.tell(
        NodeLost, node={"under it": old, "its new place": new, "the wanted place": other}[lost]
    )
    if stage.phase(mover) is Phase.SAVING:
        stage.saved(mover, 3)
    for name in [name for name in ("a", "b") if stage.phase(name) is Phase.STOPPING]:
        stage.ended(name, exit_code=143)
    stage.wait(400)
    assert stage.phase(mover) is Phase.STARTING
    assert claims == {}
    assert stage.state(mover).stop_cause is None


def test_a_gang_cancelled_while_it_moves_leaves_the_rest_of_the_plan_as_it_is() -> None:
    stage = two_leaves_half_taken()
    ask(stage)
    (mover,) = movers(stage)
    stage.cancel(mover)
    stage.ended(mover, exit_code=143)
    assert (stage.phase(mover), stage.phase("wide")) == (Phase.CANCELLED, Phase.STARTING)
    assert stage.scheduler.ledger.claims == {}


def test_moving_is_told_as_moving() -> None:
    stage = two_leaves_half_taken()
    ask(stage)
    (mover,) = movers(stage)
    state = stage.state(mover)
    assert (state.stop_cause, state.preempted_by) == (StopCause.MOVED, "wide")


def planned(stage: Stage) -> Defragmentation:
    plan = defragmentation_plan(stage.scheduler.ledger, "wide", stage.now)
    assert plan is not None
    return plan


def request(stage: Stage, plan: Defragmentation) -> None:
    stage.tell(DefragmentRequested, job="wide", placement=plan.placement, moves=plan.planned)


def test_the_plan_that_was_shown_is_carried_out_though_another_is_cheaper_by_now() -> None:
    stage = two_leaves_half_taken()
    shown = planned(stage)
    (shown_move,) = shown.moves
    other = {"a": "b", "b": "a"}[shown_move.job]
    stage.wait(100)
    stage.saved(other, 5)
    assert [move.job for move in planned(stage).moves] == [other]
    assert planned(stage).digest != shown.digest
    request(stage, shown)
    assert are_under_way(stage.scheduler.ledger, shown)
    assert carried_out(stage) == shown_move.job
    state = stage.state("wide")
    assert state.placement is not None and state.placement.members == shown.placement.members
    assert are_under_way(stage.scheduler.ledger, shown), "who looks late finds them made"


def test_a_plan_has_the_same_digest_as_long_as_it_is_the_same_whatever_it_costs() -> None:
    stage = two_leaves_half_taken()
    before = planned(stage)
    stage.wait(10)
    assert planned(stage).cost_gpu_s > before.cost_gpu_s
    assert planned(stage).digest == before.digest


@pytest.mark.parametrize("change", ["target is lost", "mover has ended", "room is taken", "held"])
def test_a_plan_that_does_not_hold_any_more_moves_nobody(change: str) -> None:
    stage = two_leaves_half_taken()
    plan = planned(stage)
    (move,) = plan.moves
    target = move.target.members[0].node
    if change == "target is lost":
        stage.tell(NodeLost, node=target)
    elif change == "mover has ended":
        stage.ended(move.job)
    elif change == "room is taken":
        stage.submit(job("small", 1, 4), job("more", 1, 8), job("most", 1, 4))
    else:
        stage.tell(HoldRequested, job="wide")
    request(stage, plan)
    assert movers(stage) == []
    assert not are_under_way(stage.scheduler.ledger, plan)


def test_a_plan_is_shown_only_if_it_would_be_carried_out() -> None:
    """The moves would end after the promised start of the job that waits."""
    policy = Policy(preemption=NOBODY_STOPS, defragment="plan", grace_s=60)
    stage = Stage(cluster(leaves=2, nodes=2, gpus=8), policy)
    ends = replace(job("a", 1, 4, checkpoint=SAVES), time_limit_s=1100.0)
    stage.submit(ends, job("x", 1, 4), job("y", 1, 8), replace(ends, name="b"))
    stage.started("a", "x", "y", "b")
    stage.ended("x")
    stage.ended("y")
    stage.submit(replace(job("wide", 2, 8, required="leaf"), time_limit_s=500.0))
    stage.wait(1050)
    stage.saved("a", 1)
    stage.saved("b", 2)
    reservation = stage.scheduler.ledger.reservations["wide"]
    assert reservation.promised and reservation.starts_at < stage.now + 120
    assert defragmentation_plan(stage.scheduler.ledger, "wide", stage.now) is None
    ask(stage)
    assert movers(stage) == []
