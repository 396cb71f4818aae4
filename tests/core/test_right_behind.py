"""Who stands right behind one that has started goes the same way where nothing but room counts, and nowhere else.

Each story is told to a scheduler as it is and to one that remembers nobody right behind: both decide the same.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from gantree.core.cycle.awake import Awake
from gantree.core.cycle.right_behind import RightBehind
from gantree.core.ledger.decision_builder import Draft
from gantree.core.ledger.state import JobState
from gantree.core.scheduler import Decision, Scheduler
from gantree.model.events import ClusterObserved, Event, GangEnded, JobSubmitted
from gantree.model.facts import GangPlaced
from gantree.model.jobs import Job
from gantree.policy.order import Line
from gantree.policy.rules import Backfill, Policy, QueueRule
from gantree.testing.builders import cluster, job

SITE = ClusterObserved(id="site", observed_at=0.0, cluster=cluster(leaves=2, nodes=2, gpus=4))
PLAIN = Policy()


def came(at: float, *jobs: Job) -> list[Event]:
    return [
        JobSubmitted(id=f"{spec.name}/submitted", observed_at=at, job=spec.name, spec=spec)
        for spec in jobs
    ]


def alike(name: str, count: int, **told: object) -> list[Job]:
    """Jobs of one GPU that differ in their names alone."""
    first = replace(job(f"{name}0", gpus=1), **told)  # type: ignore[arg-type]  # fields by name
    return [replace(first, name=f"{name}{number}") for number in range(count)]


def ended(at: float, name: str) -> list[Event]:
    event_id = f"{name}/ended"
    return [GangEnded(id=event_id, observed_at=at, job=name, attempt=1, exit_code=0)]


def decided(policy: Policy, story: Sequence[Sequence[Event]]) -> list[Decision]:
    scheduler = Scheduler(policy)
    return [scheduler.handle(events) for events in ([SITE], *story)]


def placed(decisions: Sequence[Decision]) -> list[str]:
    return [fact.job for each in decisions for fact in each.facts if isinstance(fact, GangPlaced)]


def as_if_nobody_were(policy: Policy, story: Sequence[Sequence[Event]]) -> list[Decision]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RightBehind, "is_of", lambda self, ledger, line: False)
        return decided(policy, story)


def test_who_is_alike_is_not_asked_what_else_he_could_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of twelve, one is asked before he starts; and those for whom there is no place any more are asked."""
    asked: list[str] = []
    might = Awake.might

    def noted(self: Awake, draft: Draft, line: Line, state: JobState) -> bool:
        asked.append(state.job)
        return might(self, draft, line, state)

    monkeypatch.setattr(Awake, "might", noted)
    story = [came(1.0, *alike("a", 12))]
    decisions = decided(PLAIN, story)
    assert placed(decisions) == [f"a{number}" for number in range(12)]
    assert set(asked) == {"a0"}
    assert decisions == as_if_nobody_were(PLAIN, story)


STORIES: dict[str, tuple[Policy, list[list[Event]]]] = {
    "more than there is room for": (
        PLAIN,
        [came(1.0, *alike("a", 20)), ended(2.0, "a3"), ended(3.0, "a4"), came(4.0, *alike("b", 3))],
    ),
    "a queue with a limit": (
        Policy(queues=(QueueRule("default", limit={"gpus": 3}),)),
        [came(1.0, *alike("a", 6)), ended(2.0, "a1")],
    ),
    "a queue that may lend what it owns": (
        Policy(queues=(QueueRule("default"), QueueRule("own", guarantee={"gpus": 14}))),
        [came(1.0, *alike("a", 6)), came(2.0, *alike("b", 15, queue="own"))],
    ),
    "two kinds, one of each in turn": (
        PLAIN,
        [
            came(
                1.0,
                *(
                    each
                    for n in range(4)
                    for each in (alike("a", 4)[n], alike("b", 4, user="u")[n])
                ),
            )
        ],
    ),
    "one in the middle is held": (
        PLAIN,
        [came(1.0, *alike("a", 2), replace(alike("b", 1)[0], held=True), *alike("c", 2))],
    ),
    "room that is promised to one, on which those may start who are gone by then": (
        Policy(backfill=Backfill(reservations=1)),
        [
            came(1.0, *alike("x", 12, time_limit_s=1000.0), *alike("y", 4, time_limit_s=500.0)),
            *(ended(2.0, name) for name in ("x0", "x1", "x2", "y0", "y1")),
            came(3.0, replace(job("whole", gpus=4), time_limit_s=100.0)),
            came(4.0, *alike("short", 2, time_limit_s=50.0)),
        ],
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_the_same_is_decided_as_if_nobody_stood_right_behind(name: str) -> None:
    policy, story = STORIES[name]
    decisions = decided(policy, story)
    assert placed(decisions)
    assert decisions == as_if_nobody_were(policy, story)
