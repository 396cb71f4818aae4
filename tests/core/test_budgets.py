"""Budgets of queues through the whole scheduler: levels, closed queues, stops that save, and exact consumption."""

from dataclasses import replace
from typing import Any

import pytest

from gantree.core.explain.explain import why
from gantree.core.ledger.ledger_copy import copy_of
from gantree.core.scheduler import Decision, settled
from gantree.core.snapshot.ledger_snapshot import snapshot_of
from gantree.core.snapshot.restore import restored
from gantree.model.budget_facts import BudgetNoted
from gantree.model.events import CordonRequested, Event
from gantree.model.facts import (
    AttemptEnded,
    CheckpointRequested,
    Fact,
    GangMoving,
    GangPlaced,
    GangPreempted,
    GangResumed,
    GangSuspended,
    JobAccepted,
)
from gantree.model.jobs import Checkpoint, Elastic, Job, Role, Shape
from gantree.model.phases import Phase, StopCause
from gantree.model.verdicts import Gate
from gantree.policy.rules import AtLimit, Budget, Period, Policy, QueueRule, TimeSharing
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from support.examples import seeds
from support.random_lives import Lives
from support.same_ledger import differences

DAY_S, HOUR_S = 86_400.0, 3600.0
SITE = cluster(leaves=1, nodes=2, gpus=8)


def gpu_hours(
    amount: float, period: Period = "day", at_limit: AtLimit = "hold", **more: Any
) -> Budget:
    """A budget of GPU-hours."""
    return replace(Budget(period, amount, "GPU-hours", HOUR_S, {}, 1.0, at_limit=at_limit), **more)


def policy(*budgets: Budget, **more: Any) -> Policy:
    """Two queues below one with these budgets, and one beside it."""
    rules = (QueueRule("a", budgets=budgets), QueueRule("a/x"), QueueRule("a/y"), QueueRule("b"))
    return replace(Policy(queues=rules), **more)


def noted(stage: Stage) -> list[tuple[float, float, bool]]:
    """When which level was noted, in hours, and whether the queue is closed from then on."""
    return [
        (round(fact.at / HOUR_S, 4), fact.level, fact.closed)
        for fact in stage.facts
        if isinstance(fact, BudgetNoted)
    ]


def go_to(stage: Stage, at: float) -> None:
    """Let time pass until a moment, with each wake on the way."""
    while (wake_at := stage.scheduler.wake_at()) is not None and wake_at < at:
        stage.wait(wake_at - stage.now)
    stage.wait(at - stage.now)


def test_levels_are_noted_when_they_are_reached_and_the_queue_closes_until_the_next_period() -> (
    None
):
    stage = Stage(SITE, policy(gpu_hours(80.0)))
    stage.submit(replace(job("one", gpus=8), queue="a/x"))
    stage.started("one")
    go_to(stage, 12 * HOUR_S)
    stage.submit(replace(job("two", gpus=8), queue="a/y"), replace(job("three"), queue="b"))
    assert noted(stage) == [(5.0, 0.5, False), (8.0, 0.8, False), (10.0, 1.0, True)]
    assert stage.phases() == {"one": "running", "two": "pending", "three": "starting"}
    refused = why(stage.scheduler.ledger, "two", stage.now).refused
    assert refused is not None and refused.gate is Gate.LIMIT and not refused.never
    assert refused.wakes_on == ("budget",) and refused.short_by is None
    assert refused.sentence.startswith(
        "Waiting: queue a has used 80 of 80 GPU-hours of 1970-01-01; more on 1970-01-02"
    )
    stage.ended("three")
    go_to(stage, DAY_S)
    assert noted(stage)[3:] == [(24.0, 0.0, False)]
    assert stage.phase("two") is Phase.STARTING
    go_to(stage, DAY_S + 5 * HOUR_S + 1)  # both use it
    assert noted(stage)[4:] == [(26.5, 0.5, False), (28.0, 0.8, False), (29.0, 1.0, True)]


def test_a_level_is_noted_in_each_period_also_where_nothing_was_decided_in_between() -> None:
    stage = Stage(SITE, policy(gpu_hours(80.0)))
    stage.submit(replace(job("one", gpus=8), queue="a/x"))
    go_to(stage, 6 * HOUR_S)
    stage.wait(DAY_S)
    assert noted(stage) == [(5.0, 0.5, False), (30.0, 0.5, False)]


def test_where_a_budget_only_warns_everything_goes_on() -> None:
    stage = Stage(SITE, policy(gpu_hours(8.0, at_limit="warn", alerts=(1.0, 1.5))))
    stage.submit(replace(job("one", gpus=8), queue="a/x"))
    go_to(stage, 2 * HOUR_S)
    stage.submit(replace(job("two", gpus=8), queue="a/x"))
    assert noted(stage) == [(1.0, 1.0, False), (1.5, 1.5, False)]
    assert stage.phase("two") is Phase.STARTING


def test_a_hard_stop_lets_running_work_save_and_it_goes_on_in_the_next_period() -> None:
    stage = Stage(SITE, policy(gpu_hours(16.0, at_limit="stop"), evictions_per_day=0))
    saves = replace(job("saves", gpus=4, checkpoint=Checkpoint(grace_s=600)), queue="a/x")
    never = replace(job("never", gpus=4, restarts=0), queue="a/y", preemptible=False)
    stage.submit(saves, never, replace(job("other", gpus=4), queue="b"))
    stage.started("saves", "never", "other")
    go_to(stage, 3 * HOUR_S)
    asked = [fact for fact in stage.facts if isinstance(fact, CheckpointRequested)]
    assert [(fact.job, fact.cause) for fact in asked] == [("saves", StopCause.BUDGET)]
    assert asked[0].at == pytest.approx(2 * HOUR_S, abs=0.01)
    stage.now = 2 * HOUR_S + 3650
    assert stage.phases() == {"saves": "stopping", "never": "stopping", "other": "running"}
    stage.ended("saves", 143)
    stage.ended("never", 143)
    assert stage.phases() == {"saves": "pending", "never": "pending", "other": "running"}
    assert not any(isinstance(fact, GangPreempted) for fact in stage.facts)
    assert stage.state("saves").failures == stage.state("saves").preemptions == 0
    go_to(stage, DAY_S)
    assert stage.phases() == {"saves": "starting", "never": "starting", "other": "running"}


def test_a_raised_budget_opens_the_queue_at_once() -> None:
    stage = Stage(SITE, policy(gpu_hours(8.0, "total")))
    stage.submit(replace(job("one", gpus=8), queue="a/x"))
    go_to(stage, 2 * HOUR_S)
    stage.submit(replace(job("two", gpus=8), queue="a/x"))
    assert stage.phase("two") is Phase.PENDING
    assert (
        "more once the budget is raised" in why(stage.scheduler.ledger, "two", stage.now).sentence
    )
    raised = policy(gpu_hours(20.0, "total"))
    other = restored(snapshot_of(stage.scheduler), raised)
    assert other.wake_at() == stage.now
    stage.scheduler, stage.policy = other, raised
    stage.wait(0.0)
    assert noted(stage)[-1] == (2.0, 0.8, False) and stage.phase("two") is Phase.STARTING


def test_gangs_of_a_closed_queue_move_and_do_not_grow() -> None:
    stage = Stage(SITE, policy(gpu_hours(4.0, alerts=())))
    elastic = replace(
        job("one", members=4, checkpoint=Checkpoint(grace_s=60)),
        queue="a/x",
        elastic=Elastic(1, 16),
    )
    stage.submit(
        elastic, replace(job("full", gpus=8), queue="b"), replace(job("rest", gpus=4), queue="b")
    )
    stage.started("one", "full", "rest")
    go_to(stage, HOUR_S)
    go_to(stage, HOUR_S + 1)
    stage.ended("full")
    stage.ended("rest")
    assert noted(stage) == [(1.0, 0.0, True)]
    assert stage.phase("one") is Phase.RUNNING and len(stage.nodes("one")) == 4
    (node,) = set(stage.nodes("one"))
    stage.tell(CordonRequested, node=node, drain=True)
    stage.saved("one", 1)
    stage.ended("one", 143)
    assert stage.phase("one") is Phase.STARTING and node not in stage.nodes("one")
    assert len(stage.nodes("one")) == 4


def test_a_closed_queue_gives_up_what_is_held_for_it() -> None:
    stage = Stage(SITE, policy(gpu_hours(8.0), evictions_per_day=None))
    stage.submit(replace(job("one", gpus=8, time_limit_s=2 * HOUR_S), queue="a/x"))
    stage.submit(replace(job("other", gpus=8, time_limit_s=2 * HOUR_S), queue="b"))
    stage.started("one", "other")
    stage.submit(replace(job("two", members=2, gpus=8, time_limit_s=HOUR_S), queue="a/y"))
    assert not stage.scheduler.ledger.reservations["two"].promised  # the queue may close before
    go_to(stage, HOUR_S + 1)
    assert not stage.scheduler.ledger.reservations


def test_a_gang_that_moves_as_its_queue_closes_keeps_the_room_that_it_moves_to() -> None:
    stage = Stage(SITE, policy(gpu_hours(8.0, alerts=())))
    saves = job("one", gpus=8, checkpoint=Checkpoint(grace_s=600.0))
    stage.submit(replace(saves, queue="a/x"))
    stage.started("one")
    go_to(stage, HOUR_S - 60.0)
    (node,) = stage.nodes("one")
    stage.tell(CordonRequested, node=node, drain=True)
    assert stage.phase("one") is Phase.SAVING
    go_to(stage, HOUR_S + 60.0)
    assert noted(stage) == [(1.0, 0.0, True)]
    stage.saved("one", 1)
    stage.ended("one", 143)
    assert stage.phase("one") is Phase.STARTING and stage.nodes("one") != [node]


# ----- random lives


class Audit:
    """An account of the facts that knows nothing of the core: consumption by second, and starts in closed queues."""

    def __init__(self) -> None:
        self.queue_of: dict[str, str] = {}
        self.gpus: dict[str, int] = {}
        self.since: dict[str, float] = {}
        self.spans: list[tuple[str, float, float, int]] = []
        self.closed: set[tuple[str, str]] = set()
        self.moving: set[str] = set()

    def see(self, fact: object) -> None:
        match fact:
            case JobAccepted():
                self.queue_of[fact.job] = fact.spec.queue
            case BudgetNoted():
                (self.closed.add if fact.closed else self.closed.discard)((fact.queue, fact.period))
            case GangMoving():
                self.moving.add(fact.job)
            case GangPlaced():
                self._place(fact)
            case GangResumed() if fact.job not in self.since:
                self.since[fact.job] = fact.at
            case AttemptEnded() | GangSuspended() if fact.job in self.since:
                span = self.queue_of[fact.job], self.since.pop(fact.job), fact.at
                self.spans.append((*span, self.gpus[fact.job]))

    def _place(self, fact: GangPlaced) -> None:
        queue = self.queue_of[fact.job]
        closed = [name for name, _ in self.closed if f"{queue}/".startswith(f"{name}/")]
        assert not closed or fact.job in self.moving, f"{fact.job} started in {closed}"
        self.moving.discard(fact.job)
        self.gpus[fact.job] = sum(len(member.gpus) for member in fact.placement.members)
        self.since[fact.job] = fact.at

    def used(self, queue: str, since: float, now: float) -> float:
        """GPU-seconds of a queue and those below it."""
        running = [(self.queue_of[job], at, now, self.gpus[job]) for job, at in self.since.items()]
        return sum(
            gpus * max(0.0, end - max(start, since))
            for name, start, end, gpus in (*self.spans, *running)
            if f"{name}/".startswith(f"{queue}/")
        )


def of_budgets(decision: Decision) -> list[Fact]:
    return [fact for fact in decision.facts if isinstance(fact, BudgetNoted)]


class BudgetLives(Lives):
    """Lives of whole days; who was recovered before an event notes the same of budgets."""

    def __init__(self, seed: int, rules: Policy) -> None:
        self.audit = Audit()
        super().__init__(seed, rules)

    def handle(self, events: list[Event]) -> None:
        self.twin = self.folded()
        super().handle(events)

    def decided(self, events: list[Event], decision: Decision) -> None:
        for fact in decision.facts:
            self.audit.see(fact)
        again = settled(self.twin, events, self.now)
        assert of_budgets(again) == of_budgets(decision)

    def step(self) -> None:
        if self.lots.random() < 0.1:
            self.now += self.lots.choice([HOUR_S, DAY_S / 2, 2 * DAY_S])
        super().step()

    def a_job(self, name: str, jobs: list[str]) -> Job:
        """Whole GPUs only: the audit counts them."""
        while True:
            made = super().a_job(name, jobs)
            if all(role.shape.gpus for role in made.roles):
                return made


RULES = (
    QueueRule("a", budgets=(gpu_hours(9.0, "day", "stop"), gpu_hours(200.0, "total", "warn"))),
    QueueRule("a/c", budgets=(gpu_hours(4.0, "day"), gpu_hours(30.0, "week"))),
    QueueRule("a/d", guarantee={"gpus": 3}),
    QueueRule("b", budgets=(gpu_hours(6.0, "month", "hold", alerts=()),)),
    QueueRule("e"),
)


@pytest.mark.parametrize("seed", seeds(40))
def test_in_random_lives_consumption_is_exact_and_nothing_starts_in_a_closed_queue(
    seed: int,
) -> None:
    lives = BudgetLives(seed, Policy(queues=RULES, evictions_per_day=3))
    for _ in range(40):
        lives.step()
        ledger = lives.scheduler.ledger
        budgets, used = ledger.accounts.budgets, dict[str, float]()
        for key in budgets.of_key:
            use = budgets.use(key, lives.now)
            counted = lives.audit.used(key.queue, use.started_at, lives.now)
            assert use.used * HOUR_S == pytest.approx(counted, abs=1e-3)
            used[f"{key.queue} {key.period}"] = use.used
            then = budgets.use(key, lives.scheduler.now)
            if then.is_used_up and then.budget.at_limit == "stop":
                there = [s for s in ledger.holding.values() if s.spec.queue.startswith(key.queue)]
                assert all(state.leaving for state in there)
        assert used["a/c day"] <= used["a day"] + 1e-9
    for twin in (lives.folded().ledger, lives.make_twin().ledger, copy_of(ledger)):
        assert differences(ledger, twin, any_order=True) == []


def test_a_gang_that_is_suspended_in_turns_consumes_nothing() -> None:
    rules = policy(gpu_hours(100.0), time_sharing=TimeSharing(("batch",), 60.0))
    stage = Stage(cluster(leaves=1, nodes=1, gpus=1), rules)
    shape = Shape(gpu_share=0.25, gpu_memory_GiB=10.0, isolation="time-slicing", neighbours=True)
    role = Role("worker", 1, shape, run=("true",))
    stage.submit(*(replace(job(name), roles=(role,), queue="a/x") for name in "pqr"))
    stage.started("p", "q", "r")
    go_to(stage, 2 * HOUR_S)
    (key,) = stage.scheduler.ledger.accounts.budgets.of_key
    used = stage.scheduler.ledger.accounts.budgets.use(key, stage.now).used
    assert used == pytest.approx(2 * 0.25, abs=0.01)
    other = restored(snapshot_of(stage.scheduler), rules)
    assert differences(stage.scheduler.ledger, other.ledger) == []


def test_a_level_is_noted_in_time_although_its_gang_was_suspended_in_turns() -> None:
    """p runs in every other hour, and uses half of a GPU then: 1.4 GPU-hours in the third of these hours."""
    rules = policy(gpu_hours(1.4, alerts=()), time_sharing=TimeSharing(("batch",), HOUR_S))
    stage = Stage(cluster(leaves=1, nodes=1, gpus=1), rules)
    shape = Shape(gpu_share=0.5, gpu_memory_GiB=10.0, isolation="time-slicing", neighbours=True)
    role = Role("worker", 1, shape, run=("true",))
    stage.submit(replace(job("p"), roles=(role,), queue="a/x"))
    stage.submit(*(replace(job(name), roles=(role,), queue="b") for name in ("q", "r")))
    stage.started("p", "q", "r")
    go_to(stage, 12 * HOUR_S)
    assert noted(stage) == [(4.8, 0.0, True)]
