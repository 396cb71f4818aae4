"""Idle gangs are warned, then reclaimed: when, by what action, and never without a warning or unmeasured."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.core.explain.explain import why
from gantree.core.lifecycle.idleness import reclaimed_at
from gantree.core.scheduler import settled
from gantree.core.snapshot.ledger_snapshot import snapshot_of
from gantree.core.snapshot.restore import restored
from gantree.model.cluster import Cluster, Node
from gantree.model.events import (
    ExtensionRequested,
    GangIdlenessObserved,
    MemberStarted,
    RankExited,
    ReleaseRequested,
)
from gantree.model.facts import Fact, GangPlaced, StopDecided
from gantree.model.idle_facts import GangIdlenessNoted, GangIdleWarned, GangReclaimed, JobExtended
from gantree.model.jobs import Checkpoint, Elastic, IdleLimits, Restarts, Role, Shape
from gantree.model.orders import WriteToLog
from gantree.model.phases import Phase, StopCause
from gantree.policy.idle import IdleAction, IdleExempt, IdleRule
from gantree.policy.rules import NEVER, Policy, QueueRule, TimeSharing
from gantree.testing.builders import cluster, job, machine
from gantree.testing.stage import Stage
from support.examples import examples
from support.random_lives import EVERY_KIND, WAYS, Lives

MIN = 60.0
RULE = IdleRule()


def idle_stage(rule: IdleRule = RULE, site: Cluster | None = None, **fields: Any) -> Stage:
    """Job j runs since 0, and its GPUs have not computed since minute 30, as is known at minute 35."""
    stage = Stage(site or cluster(leaves=1, nodes=2), Policy(idle=rule))
    stage.submit(replace(job("j", 1, 8), **fields))
    stage.started("j")
    stage.wait(35 * MIN)
    told(stage, 30 * MIN)
    return stage


def told(stage: Stage, since: float | None, reason: str = "") -> list[Fact]:
    """A sample of the gang of j: idle since then, or not any more."""
    attempt = stage.state("j").attempt
    decision = stage.tell(
        GangIdlenessObserved, job="j", attempt=attempt, since=since, reason=reason
    )
    return list(decision.facts)


def of_kind(stage: Stage, *kinds: type[Fact]) -> list[Any]:
    return [fact for fact in stage.facts if isinstance(fact, kinds)]


def sampled_until(stage: Stage, minute: float) -> None:
    """A sample each minute that finds it idle still."""
    while stage.now < minute * MIN:
        stage.wait(MIN)
        told(stage, 30 * MIN)


def test_warned_after_10_minutes_and_reclaimed_after_15() -> None:
    stage = idle_stage()
    assert stage.scheduler.wake_at() == 40 * MIN
    sampled_until(stage, 50)
    (warned,) = of_kind(stage, GangIdleWarned)
    assert (warned.at, warned.reclaim_at, warned.action) == (40 * MIN, 45 * MIN, "requeue")
    (line,) = [order for order in stage.orders if isinstance(order, WriteToLog)]
    assert line.id == "j/1/idle-warning-1"
    assert line.text == (
        "the 8 GPUs of this job have not computed for 10 min. In 5 min it is stopped, and queued again, unless it"
        " computes. To keep it: gantree extend j 2h"
    )
    (reclaimed,) = of_kind(stage, GangReclaimed)
    assert (reclaimed.at, reclaimed.since, reclaimed.action) == (45 * MIN, 30 * MIN, "requeue")
    assert stage.state("j").stop_cause is StopCause.IDLE


def test_the_clock_starts_no_sooner_than_the_grace_after_the_start_ends() -> None:
    stage = Stage(cluster(), Policy(idle=RULE))
    stage.submit(job("j", 1, 8))
    stage.now = 100.0
    stage.started("j")
    stage.wait(5 * MIN)
    told(stage, 0.0)
    assert of_kind(stage, GangIdlenessNoted)[0].since == 100.0
    assert stage.scheduler.wake_at() == 100.0 + RULE.grace_s + RULE.warn_s


def test_without_a_sample_after_its_moment_nothing_is_reclaimed() -> None:
    stage = idle_stage()
    for _ in range(10):
        stage.wait(10 * MIN)
    assert of_kind(stage, GangIdleWarned) and stage.phase("j") is Phase.RUNNING
    told(stage, None, "it is not measured")
    told(stage, 30 * MIN)
    stage.wait(1.0)
    assert [fact.reason for fact in of_kind(stage, GangIdlenessNoted)] == [
        "",
        "it is not measured",
        "",
    ]
    told(stage, 30 * MIN)
    assert stage.phase("j") is Phase.RUNNING, "it was warned anew only now"
    stage.wait(5 * MIN)
    told(stage, 30 * MIN)
    assert stage.phase("j") is Phase.STOPPING


def test_a_gang_that_computes_again_keeps_what_it_has() -> None:
    stage = idle_stage()
    sampled_until(stage, 44)
    told(stage, None, "it computes")
    stage.wait(30 * MIN)
    assert stage.phase("j") is Phase.RUNNING
    assert stage.scheduler.wake_at() is None
    assert "Idle" not in why(stage.scheduler.ledger, "j", stage.now).sentence


def test_it_saves_first_and_the_room_goes_to_others_while_it_backs_off_and_is_held_in_the_end() -> (
    None
):
    stage = idle_stage(
        replace(RULE, times=2), checkpoint=Checkpoint(grace_s=60.0), roles=job("j", 2, 8).roles
    )
    stage.submit(job("other", 1, 8))
    assert stage.phase("other") is Phase.PENDING
    sampled_until(stage, 45)
    assert stage.phase("j") is Phase.SAVING
    stage.saved("j", 7)
    stage.ended("j", 143)
    assert (stage.phase("j"), stage.phase("other")) == (Phase.PENDING, Phase.STARTING)
    state = stage.state("j")
    assert state.not_before == stage.now + RULE.reclaim_s
    assert "(requeued: idle)" in why(stage.scheduler.ledger, "j", stage.now).sentence
    stage.started("other")
    stage.ended("other")
    stage.wait(RULE.reclaim_s)
    stage.started("j")
    stage.wait(20 * MIN)
    told(stage, stage.now - 20 * MIN)
    stage.wait(5 * MIN)
    told(stage, 0.0)
    stage.saved("j", 8)
    stage.ended("j", 143)
    assert (
        state.held
        and "reclaimed as idle 2 times" in why(stage.scheduler.ledger, "j", stage.now).sentence
    )
    stage.tell(ReleaseRequested, job="j")
    assert not state.held and state.idle.reclaims == 0


@pytest.mark.parametrize(
    ("action", "fields", "phase", "cause"),
    [
        ("stop", {}, Phase.STOPPING, StopCause.IDLE_STOP),
        ("warn", {}, Phase.RUNNING, None),
        ("shrink", {}, Phase.STOPPING, StopCause.IDLE),
        ("shrink", {"elastic": Elastic(1, 2), "roles": job("j", 2, 8).roles}, Phase.STOPPING, StopCause.RESIZED),
        ("smaller", {}, Phase.STOPPING, StopCause.IDLE),
    ],
)  # fmt: skip
def test_actions(action: IdleAction, fields: Any, phase: Phase, cause: StopCause | None) -> None:
    stage = idle_stage(replace(RULE, action=action), **fields)
    sampled_until(stage, 46)
    assert (stage.phase("j"), stage.state("j").stop_cause) == (phase, cause)
    assert len([order for order in stage.orders if isinstance(order, WriteToLog)]) == 1


def test_a_job_that_is_stopped_for_good_ends() -> None:
    stage = idle_stage(replace(RULE, action="stop"))
    sampled_until(stage, 45)
    stage.ended("j", 143)
    assert stage.phase("j") is Phase.CANCELLED
    assert "did not compute" in why(stage.scheduler.ledger, "j", stage.now).sentence


def test_a_shrunk_gang_goes_on_with_its_fewest_members_and_does_not_grow_back() -> None:
    stage = idle_stage(
        replace(RULE, action="shrink"), elastic=Elastic(1, 2), roles=job("j", 2, 8).roles
    )
    sampled_until(stage, 45)
    stage.ended("j", 143)
    stage.started("j")
    stage.wait(30 * MIN)
    assert len(stage.nodes("j")) == 1 and stage.phase("j") is Phase.RUNNING


def test_a_gang_moves_to_the_slowest_model_that_its_job_lists() -> None:
    fast, slow = machine(8, name="fast"), replace(machine(8, name="slow"), gpu="A10-24GB")
    nodes = (Node("n0", "fast", ("l0",)), Node("n1", "slow", ("l0",)))
    site = Cluster("two", ("leaf", "node"), {"fast": fast, "slow": slow}, nodes)
    (role,) = job("j", 1, 8).roles
    listed = replace(role, shape=replace(role.shape, models=("H100-80GB", "A10-24GB")))
    stage = idle_stage(replace(RULE, action="smaller"), site, roles=(listed,))
    assert stage.nodes("j") == ["n0"]
    sampled_until(stage, 45)
    assert stage.state("j").moving is StopCause.MOVED
    stage.ended("j", 143)
    assert stage.nodes("j") == ["n1"]


def test_a_gang_on_the_slowest_model_that_its_job_lists_is_requeued() -> None:
    (role,) = job("j", 1, 8).roles
    listed = replace(role, shape=replace(role.shape, models=("B200-180GB", "H100-80GB")))
    stage = idle_stage(replace(RULE, action="smaller"), roles=(listed,))
    sampled_until(stage, 45)
    assert stage.state("j").stop_cause is StopCause.IDLE


def test_the_back_off_doubles_up_to_fourfold() -> None:
    stage = idle_stage(replace(RULE, times=9))
    backoffs = []
    for _ in range(4):
        told(stage, 0.0)
        stage.wait(10 * MIN)
        stage.wait(5 * MIN)
        told(stage, 0.0)
        stage.ended("j", 143)
        backoffs.append((stage.state("j").not_before - stage.now) / RULE.reclaim_s)
        stage.wait(stage.state("j").not_before - stage.now)
        stage.started("j")
        stage.wait(10 * MIN)
    assert backoffs == [1, 2, 4, 4]


def test_a_gang_that_missed_a_member_is_idle_only_by_what_is_measured_once_it_is_whole() -> None:
    stage = idle_stage(roles=job("j", 2, 8).roles, restarts=Restarts(3, 5.0, replace_s=10 * MIN))
    sampled_until(stage, 41)
    stage.tell(RankExited, job="j", attempt=1, rank=1, exit_code=1, life=0)
    assert stage.state("j").missing
    stage.wait(5 * MIN)
    stage.tell(MemberStarted, job="j", attempt=1, member=1, life=1)
    assert not stage.state("j").missing and stage.state("j").idle.since is None
    told(stage, 46 * MIN)
    assert stage.phase("j") is Phase.RUNNING
    stage.wait(10 * MIN)
    assert [fact.at / MIN for fact in of_kind(stage, GangIdleWarned)] == [40, 56]


def test_a_gang_that_was_suspended_in_turns_is_idle_only_by_what_is_measured_since() -> None:
    shape = Shape(gpu_share=0.5, isolation="time-slicing", neighbours=True)
    role = Role("worker", 1, shape, run=("true",))
    rules = Policy(idle=RULE, time_sharing=TimeSharing(("batch",), 5 * MIN))
    stage = Stage(cluster(leaves=1, nodes=1, gpus=1), rules)
    stage.submit(*(replace(job(name), roles=(role,)) for name in ("j", "k", "l")))
    stage.started("j", "k")
    told(stage, 0.0)
    while not stage.state("j").suspended:
        assert stage.state("j").idle.since == 0.0
        stage.wait(5 * MIN)
    assert stage.state("j").idle.since is None


def test_a_lease_keeps_a_gang_until_it_is_over_and_it_is_warned_before_that() -> None:
    stage = idle_stage()
    sampled_until(stage, 42)
    stage.tell(ExtensionRequested, job="j", until=120 * MIN)
    sampled_until(stage, 119)
    assert [fact.at / MIN for fact in of_kind(stage, GangIdleWarned)] == [40, 115]
    assert stage.phase("j") is Phase.RUNNING
    sampled_until(stage, 120)
    assert stage.phase("j") is Phase.STOPPING


def test_a_job_that_has_ended_is_not_extended() -> None:
    stage = idle_stage()
    stage.ended("j")
    assert not stage.tell(ExtensionRequested, job="j", until=120 * MIN).facts


def test_an_exempt_job_is_neither_warned_nor_reclaimed() -> None:
    stage = idle_stage()
    stage.tell(ExtensionRequested, job="j", until=None)
    sampled_until(stage, 100)
    assert not of_kind(stage, GangIdleWarned)
    assert "has exempted it" in why(stage.scheduler.ledger, "j", stage.now).sentence


@pytest.mark.parametrize(
    ("limits", "rule", "warned", "stopped", "cause"),
    [
        (IdleLimits(stop_s=30 * MIN), None, 55, 60, "idle-stop"),
        (IdleLimits(stop_s=30 * MIN), RULE, 40, 45, "idle"),
        (IdleLimits(stop_s=12 * MIN), RULE, 37, 42, "idle-stop"),
        (IdleLimits(lease_s=60 * MIN), RULE, 55, 60, "idle"),
        (IdleLimits(lease_s=60 * MIN), replace(RULE, longest_lease_s=50 * MIN), 45, 50, "idle"),
        (IdleLimits(stop_s=12 * MIN), replace(RULE, exempt=IdleExempt(jobs=("j*",))), 37, 42, "idle-stop"),
        (None, replace(RULE, exempt=IdleExempt(jobs=("j*",))), None, None, None),
        (None, replace(RULE, exempt=IdleExempt(priorities=("batch",))), None, None, None),
    ],
)  # fmt: skip
def test_what_a_job_says_of_itself(
    limits: IdleLimits | None, rule: IdleRule | None, warned: int, stopped: int, cause: str | None
) -> None:
    stage = Stage(cluster(leaves=1, nodes=1), Policy(idle=rule))
    stage.submit(replace(job("j", 1, 8), idle=limits))
    stage.started("j")
    stage.wait(35 * MIN)
    told(stage, 30 * MIN)
    sampled_until(stage, 70)
    assert [fact.at / MIN for fact in of_kind(stage, GangIdleWarned)] == (
        [warned] if warned else []
    )
    stops = [(fact.at / MIN, str(fact.cause)) for fact in of_kind(stage, StopDecided)]
    assert stops == ([(stopped, cause)] if stopped else [])


def test_a_queue_has_the_rule_of_the_nearest_one_above_that_says_something() -> None:
    own = IdleRule(warn_s=60.0)
    policy = Policy(
        queues=(
            QueueRule("a", idle=own),
            QueueRule("a/b"),
            QueueRule("a/c", idle=NEVER),
            QueueRule("d"),
        ),
        idle=RULE,
    )
    found = [policy.idle_of(queue) for queue in ("a/b", "a/c", "d", "elsewhere")]
    assert found == [own, None, RULE, RULE]


def test_why_says_what_comes_and_how_to_prevent_it() -> None:
    stage = idle_stage()
    ledger = stage.scheduler.ledger
    assert why(ledger, "j", stage.now).sentence.endswith(
        " Idle: its GPUs have not computed for 5 min; it is warned in 5 min. `gantree extend j 2h` keeps it."
    )
    sampled_until(stage, 41)
    assert why(ledger, "j", stage.now).sentence.endswith(
        " Idle: its GPUs have not computed for 11 min; warned 1 min ago, and it is stopped, and queued again in 4 min"
        " unless it computes. `gantree extend j 2h` keeps it."
    )


def test_who_goes_on_from_a_snapshot_keeps_the_clock_and_tells_the_cluster_again() -> None:
    stage = idle_stage()
    before = restored(snapshot_of(stage.scheduler), stage.policy)
    assert settled(before, [], stage.now).wake_at == 40 * MIN
    sampled_until(stage, 41)
    after = restored(snapshot_of(stage.scheduler), stage.policy)
    assert [type(order).__name__ for order in after.standing_orders()] == [
        "StartGang",
        "WriteToLog",
    ]
    state = after.ledger.jobs["j"]
    assert reclaimed_at(state, stage.policy) == 45 * MIN


# ----- random lives


class IdleLives(Lives):
    """Lives whose gangs are told to be idle, to compute and to be unmeasured, and whose jobs are extended."""

    def ways(self) -> Sequence[Callable[[Any], None]]:
        return [*WAYS.values(), *[IdleLives.sample] * 14, IdleLives.extend]

    def sample(self) -> None:
        lots = self.lots
        for state in list(self.scheduler.ledger.holding.values()):
            since = lots.choice([None, 0.0, self.now - 40.0, self.now, self.now + 100.0])
            attempt = state.attempt - lots.choice([0, 0, 0, 1])
            self.tell(GangIdlenessObserved, job=state.job, attempt=attempt, since=since)

    def extend(self) -> None:
        for state in list(self.scheduler.ledger.jobs.values())[-3:]:
            until = self.lots.choice([None, self.now + 30.0, self.now - 5.0])
            self.tell(ExtensionRequested, job=state.job, until=until)


def with_rule(policy: Policy, action: IdleAction) -> Policy:
    return replace(policy, idle=IdleRule(0.05, 10.0, 18.0, action, grace_s=5.0))


@settings(max_examples=examples(16), deadline=None)
@given(
    seed=st.integers(0, 10**6),
    name=st.sampled_from(sorted(EVERY_KIND)),
    action=st.sampled_from(["requeue", "stop", "shrink", "smaller"]),
)
def test_nothing_is_reclaimed_but_what_was_warned_and_is_idle(
    seed: int, name: str, action: IdleAction
) -> None:
    lives = IdleLives(seed, with_rule(EVERY_KIND[name], action))
    for step in range(70):
        lives.step()
        if step == 35:
            lives.twins = [("restored", lives.make_twin()), ("folded", lives.folded())]
    idle_since: dict[str, float | None] = {}
    warned: dict[str, float | None] = {}
    until: dict[str, float | None] = {}
    for fact in lives.facts:
        match fact:
            case GangPlaced():
                idle_since[fact.job] = warned[fact.job] = None
            case GangIdlenessNoted():
                idle_since[fact.job], warned[fact.job] = fact.since, None
            case GangIdleWarned():
                warned[fact.job] = fact.at
            case JobExtended():
                until[fact.job], warned[fact.job] = fact.until, None
            case GangReclaimed():
                since, at = idle_since[fact.job], warned[fact.job]
                assert since is not None and fact.at - since >= 18.0
                assert at is not None and fact.at - at >= 8.0
                lease = until.get(fact.job, 0.0)
                assert lease is not None and lease <= fact.at
