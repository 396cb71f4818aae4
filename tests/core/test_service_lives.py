"""Services live at random among jobs, under all kinds of policies: updates, scaling, readiness, drains, crashes, ends.

After every decision the invariants hold, the rule of updates has nothing left to say, and no drain that an update began
has left fewer ready replicas than it may. Twins that were folded from the facts, or restored from a snapshot, decide
the same from then on; so does one that is folded anew before each event.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from gantree.core.explain.explain import why
from gantree.core.ledger.invariants import check
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.service_state import ServiceState
from gantree.core.scheduler import Decision, settled
from gantree.core.services.reconcile import next_plan
from gantree.core.services.replicas import live_replicas, takes_requests
from gantree.model.events import (
    CancelRequested,
    Event,
    GangEnded,
    GangStartFailed,
    ReplicaDrained,
    ReplicaReadinessChanged,
    ServiceScaleRequested,
    ServiceSubmitted,
)
from gantree.model.facts import JobRequeued
from gantree.model.jobs import Role, Shape
from gantree.model.phases import HOLDING, Phase
from gantree.model.replicas import Readiness
from gantree.model.service_facts import ReplicaDraining
from gantree.model.services import ReplicaCount, ServiceSpec, Update
from gantree.policy.rules import Policy
from gantree.services.rollout import RolloutPlan
from support.examples import sampled, seeds
from support.random_lives import EVERY_KIND, QUEUES, WAYS, Lives
from support.same_ledger import differences

STEPS = 50
NAMES = ("chat", "rank")


class ServiceLives(Lives):
    """Two services among the jobs of a random life."""

    drains = 0
    updates = 0

    def __init__(self, seed: int, policy: Policy) -> None:
        super().__init__(seed, policy)
        for _ in NAMES:
            self.submit_service()

    def ways(self) -> Sequence[Callable[[Any], None]]:
        jobs = [way for name, way in WAYS.items() if name not in ("submit more", "return again")]
        often = [ServiceLives.readiness, ServiceLives.stopped] * 15 + [ServiceLives.drained] * 4
        return [*jobs, *often, *SERVICE_WAYS * 2]

    def live(self) -> list[ServiceState]:
        return [each for each in self.scheduler.ledger.services.values() if each.is_live]

    def decided(self, events: list[Event], decision: Decision) -> None:
        ledger = self.scheduler.ledger
        check(ledger)
        for service in self.live():
            if self.told % 8 == 0:
                why(ledger, service.service, self.now)
            if not service.is_ending:
                assert next_plan(ledger, service) == RolloutPlan(), service.service
        self.drains += sum(isinstance(fact, ReplicaDraining) for fact in decision.facts)

    def handle(self, events: list[Event]) -> None:
        before = {each.service: ready_of(self.scheduler.ledger, each) for each in self.live()}
        super().handle(events)
        self.check_ready(before, events)

    def check_ready(self, before: dict[str, int], events: list[Event]) -> None:
        """A replica that became ready lets old ones drain, and never more of them than may be missing."""
        (event, *_) = events
        if not isinstance(event, ReplicaReadinessChanged) or not event.ready:
            return
        for service in self.live():
            if not service.is_ending:
                update = service.spec.update
                least = service.wanted - (update.unavailable or not update.surge)
                ready = ready_of(self.scheduler.ledger, service)
                assert ready >= min(before[service.service], least), (
                    service.service,
                    before,
                    least,
                )

    def a_service(self) -> ServiceSpec:
        lots = self.lots
        least = lots.choice([0, 1, 2, 2])
        shape = Shape(gpus=lots.choice([1, 1, 1, 2]))
        template = replace(
            self.a_job("service", []),
            roles=(Role("worker", lots.choice([1, 1, 2]), shape, run=("serve", str(lots.randint(1, 2)))),),
            queue=lots.choice(QUEUES),
            priority=lots.choice(["serving", "serving", "batch"]),
            elastic=None,
            time_limit_s=None,
            after=(),
            held=False,
        )  # fmt: skip
        return ServiceSpec(
            lots.choice(NAMES),
            template,
            ReplicaCount(least, least + lots.randint(1, 3), floor=lots.choice([0, 0, 1])),
            ready=Readiness(within_s=lots.choice([20.0, 500.0])),
            update=Update(lots.randint(0, 2), lots.randint(0, 1)),
            drain_s=lots.choice([0.0, 10.0, 60.0]),
            spread=lots.choice([None, "node", "leaf"]),
            spread_required=lots.random() < 0.3,
        )

    def submit_service(self) -> None:
        """Another service, or another description of one."""
        spec = self.a_service()
        self.tell(ServiceSubmitted, service=spec.name, spec=spec)

    def update_service(self) -> None:
        """The same service with another program."""
        if self.live():
            self.updates += 1
            spec = self.lots.choice(self.live()).spec
            (role,) = spec.replica.roles
            roles = (replace(role, run=("serve", str(self.told))),)
            spec = replace(spec, replica=replace(spec.replica, roles=roles))
            self.tell(ServiceSubmitted, service=spec.name, spec=spec)

    def scale_service(self) -> None:
        told = {"replicas": self.lots.randint(0, 5), "automatic": self.lots.random() < 0.5}
        self.tell(ServiceScaleRequested, service=self.lots.choice(NAMES), **told)

    def replica(self, *phases: Phase) -> Any:
        jobs = self.scheduler.ledger.jobs.values()
        there = [s for s in jobs if s.spec.service is not None and s.phase in phases]
        return self.lots.choice(there) if there else None

    def readiness(self) -> None:
        one = self.replica(Phase.RUNNING)
        if one is not None:
            ready = not one.replica.ready or self.lots.random() < 0.7
            self.tell(ReplicaReadinessChanged, job=one.job, attempt=one.attempt, ready=ready)

    def drained(self) -> None:
        one = self.replica(*HOLDING)
        if one is not None:
            self.tell(ReplicaDrained, job=one.job, attempt=one.attempt)

    def stopped(self) -> None:
        """A replica that was told to stop has stopped."""
        one = self.replica(Phase.STOPPING)
        if one is not None:
            self.tell(GangEnded, job=one.job, attempt=one.attempt, exit_code=143)

    def cannot_start(self) -> None:
        one = self.replica(Phase.STARTING)
        if one is not None:
            told = {"reason": "no such file", "final": True}
            self.tell(GangStartFailed, job=one.job, attempt=one.attempt, **told)

    def end_service(self) -> None:
        if self.lots.random() < 0.1:
            self.tell(CancelRequested, job=self.lots.choice(NAMES))


SERVICE_WAYS: list[Callable[[ServiceLives], None]] = [
    ServiceLives.submit_service,
    ServiceLives.update_service,
    ServiceLives.scale_service,
    ServiceLives.cannot_start,
    ServiceLives.end_service,
]


def ready_of(ledger: Ledger, service: ServiceState) -> int:
    return sum(map(takes_requests, live_replicas(ledger, service)))


@pytest.mark.parametrize("policy", sampled(list(EVERY_KIND), 2))
@pytest.mark.parametrize("seed", seeds(10, fewest=1))
def test_twins_that_were_folded_or_restored_decide_the_same(policy: str, seed: int) -> None:
    lives = ServiceLives(77_000 + seed, EVERY_KIND[policy])
    for number in range(STEPS):
        if number in (STEPS // 3, 2 * STEPS // 3):
            fold, restored = lives.folded(), lives.make_twin()
            assert differences(fold.ledger, lives.scheduler.ledger, any_order=True) == []
            assert differences(restored.ledger, lives.scheduler.ledger) == []
            lives.twins = [("fold", fold), ("restored", restored)]
            quiet = [settled(each, [], lives.scheduler.now) for each in (fold, restored)]
            assert all(each.facts == () for each in quiet), "it had decided all there was"
        lives.step()


@pytest.mark.parametrize("policy", ["as it comes", "quotas", "cells", "turns"])
def test_one_that_is_folded_before_each_event_decides_the_same(policy: str) -> None:
    lives = ServiceLives(78_000, EVERY_KIND[policy])
    for _ in range(30):
        fold = lives.folded()
        lives.twins = [("folded just now", fold)]
        lives.step()
    assert lives.scheduler.ledger.services


def test_such_lives_have_updates_drains_and_crashes() -> None:
    lives = ServiceLives(77_000, EVERY_KIND["as it comes"])
    for _ in range(3 * STEPS):
        lives.step()
    assert lives.drains and lives.updates
    assert any(isinstance(fact, JobRequeued) for fact in lives.facts)
