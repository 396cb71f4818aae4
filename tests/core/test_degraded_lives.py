"""Random lives with worn links and slow ranks: a scheduler recovered before each event moves the same gangs."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from gantree.core.scheduler import settled
from gantree.model.cluster import LinkId
from gantree.model.events import (
    Event,
    LinkHealthObserved,
    LinkRestoreRequested,
    RankSlownessObserved,
)
from gantree.model.facts import Fact, GangMoving
from gantree.model.jobs import AxisTraffic, Checkpoint, Job, Role, Shape, Traffic
from gantree.model.phases import Phase
from gantree.policy.rules import Policy
from support.examples import seeds
from support.random_lives import EVERY_KIND, NODES, WAYS, Lives

LINKS = (
    *(LinkId("nic", f"{node}/mlx5_{number}") for node in NODES[:4] for number in range(2)),
    *(LinkId("node", node) for node in NODES[4:]),
    *(LinkId("leaf", f"l{number}") for number in range(3)),
)
SELDOM = ("submit more", "end", "break", "fail", "cancel", "suspend", "lose", "cordon", "hold")
POLICIES = ("as it comes", "quotas", "cells", "moves", "by order", "turns")
STEPS = 60


class WornLives(Lives):
    """Gangs that send much and save, on links that wear; `moves` counts those that left one."""

    def __init__(self, seed: int, policy: Policy) -> None:
        self.moves = 0
        super().__init__(seed, policy)

    def handle(self, events: list[Event]) -> None:
        twin = self.folded()
        first = len(self.facts)
        super().handle(events)
        ours, theirs = (
            moves_off(self.facts[first:]),
            moves_off(settled(twin, events, self.now).facts),
        )
        assert ours == theirs, f"recovered before {events[0].id}"
        self.moves += len(ours)

    def a_job(self, name: str, jobs: list[str]) -> Job:
        traffic = Traffic((AxisTraffic("data", 40e9),), compute_s=0.1)
        sends = replace(super().a_job(name, jobs), traffic=traffic, priority="batch")
        if self.lots.random() < 0.3:
            return sends
        saves = Checkpoint(every_s=60, grace_s=5)
        role = Role("worker", 2, Shape(gpus=self.lots.choice([1, 2])), run=("true",))
        return replace(
            sends, checkpoint=saves, roles=(role,), expected_s=None, elastic=None, time_limit_s=None
        )

    def report(self) -> None:
        """A source says how a link is."""
        health = self.lots.choice([0.0, 0.1, 0.25, 0.5, 0.75, 1.0])
        source = self.lots.choice(["ufm", "node_exporter"])
        self.tell(LinkHealthObserved, link=self.lots.choice(LINKS), source=source, health=health)

    def restore(self) -> None:
        """An operator overrules what is said of a link."""
        self.tell(LinkRestoreRequested, link=self.lots.choice(LINKS))

    def slow(self) -> None:
        """A rank is slow, or as fast as others again."""
        one = self.any_job(Phase.RUNNING)
        if one is not None:
            told = {
                "rank": self.lots.randrange(2),
                "node": self.lots.choice(one.placement.members).node,
            }
            factor = self.lots.choice([1.0, 1.1, 2.0])
            self.tell(
                RankSlownessObserved, job=one.job, attempt=one.attempt, slowdown=factor, **told
            )

    def pause(self) -> None:
        """Time passes, as far as the scheduler slept at most."""
        wake_at = self.scheduler.wake_at()
        self.now = (
            self.now + 300 if wake_at is None else min(self.now + 300, max(self.now, wake_at))
        )

    def ways(self) -> Sequence[Callable[[Any], None]]:
        return (
            *(way for name, way in WAYS.items() if name not in SELDOM or self.lots.random() < 0.2),
            *[WornLives.report] * 5,
            *[WornLives.pause] * 5,
            *[WAYS["save"]] * 3,
            *[WAYS["end when told"]] * 2,
            WornLives.restore,
            *[WornLives.slow] * 2,
        )


def moves_off(facts: Iterable[Fact]) -> list[GangMoving]:
    """The moves off links and slow nodes among some facts."""
    return [
        each
        for each in facts
        if isinstance(each, GangMoving) and "node " not in each.flees and each.flees
    ]


def live(policy: str, seed: int, steps: int = STEPS) -> int:
    """How many gangs left a link in a life."""
    lives = WornLives(seed, replace(EVERY_KIND[policy], restart_s=5.0))
    for _ in range(steps):
        lives.step()
    return lives.moves


@pytest.mark.parametrize("policy", POLICIES)
def test_a_recovered_scheduler_moves_the_same_gangs_off_links(policy: str) -> None:
    live(policy, 1)


@pytest.mark.soak
@pytest.mark.parametrize("policy", sorted(EVERY_KIND))
@pytest.mark.parametrize("seed", seeds(20, 811_000))
def test_a_recovered_scheduler_moves_the_same_gangs_off_links_in_any_life(
    policy: str, seed: int
) -> None:
    live(policy, seed, 120)
