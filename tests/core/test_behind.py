"""Who is behind a waiting job in the order: nobody who may be stopped for it is left out, now or later."""

from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gantree.core.cycle.behind import Ranks
from gantree.core.ledger.state import JobState
from gantree.core.queue.preemption_rules import SETTLED_S, no_right, overtaken_at
from gantree.model.jobs import Job
from gantree.model.phases import Phase
from gantree.policy.rules import Backfill, OrderKey, Policy, Preemption, QueueRule
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from support.examples import examples

SITE = cluster(leaves=2, nodes=2, gpus=4)
RULES = (QueueRule("a", guarantee={"gpus": 8}), QueueRule("b"))
LATER_S = (0.0, 1.0, 30.0, 100.0, 400.0, 1e5)
ORDERS: tuple[tuple[tuple[OrderKey, ...], tuple[float, ...]], ...] = (
    (("remaining_service", "arrival"), ()),
    (("priority", "share", "stretch", "arrival"), ()),
    (("smallest", "share", "remaining"), ()),
    (("attained", "arrival"), ()),
    (("attained", "arrival"), (600.0, 3000.0)),
    (("attained", "remaining"), (1000.0,)),
)

policies = st.builds(
    lambda order, queues, across, min_run_s: Policy(
        order=order[0],
        attained_levels=order[1],
        queues=queues,
        backfill=Backfill("any", 1),
        preemption=Preemption(by="order", across=across),
        min_run_s=min_run_s,
    ),
    st.sampled_from(ORDERS),
    st.sampled_from(((), RULES)),
    st.booleans(),
    st.sampled_from((0.0, 1e6)),
)


class Unfolded(Stage):
    """Without recovery after each step: a moment is kept until it comes whose cause time has taken away meanwhile, so
    who is recovered may wake later. What is asked here are rights, not moments."""

    def _check_recovery(self) -> None:
        """Nothing is folded."""


def gang(
    members: int, gpus: int, queue: str = "a", priority: int = 100, expected_s: float | None = None
) -> Job:
    """A gang that begins again when it fails."""
    written = job("x", members=members, gpus=gpus, restarts=9)
    return replace(written, queue=queue, priority=priority, expected_s=expected_s)


gangs = st.builds(
    gang,
    st.sampled_from((1, 1, 2, 4)),
    st.sampled_from((1, 2, 4)),
    st.sampled_from(("a", "b")),
    st.sampled_from((100, 200)),
    st.sampled_from((None, 50.0, 500.0, 5000.0)),
)
acts = st.one_of(
    gangs,
    gangs,
    st.tuples(st.integers(0, 9), st.integers(0, 1)),
    st.sampled_from((10.0, 200.0, 1500.0)),
)

SPARED = Policy(order=ORDERS[0][0], preemption=Preemption(by="order"), min_run_s=1e6)
SERVED = replace(SPARED, order=ORDERS[3][0])
IN_SHARES = replace(SPARED, order=ORDERS[2][0])
ALL_OF_IT = gang(4, 4, expected_s=5000.0)
GOES_FORWARD = [ALL_OF_IT, replace(ALL_OF_IT, expected_s=4000.0), 1500.0]
"""Another gang goes first until the one that runs has less left to do."""
BEGINS_AGAIN = [
    gang(1, 1, expected_s=5000.0),
    gang(2, 4, expected_s=1000.0),
    600.0,
    gang(4, 4, expected_s=250.0),
    (1, 1),
    10.0,
]
"""The second goes before the third, until it fails and has all of its work to do again."""
FALLS_BACK = [ALL_OF_IT, ALL_OF_IT]
AT_THE_VERY_MOMENT = [gang(1, 4), ALL_OF_IT, 220.0]
"""In 30 s, at the very moment, the first falls back a level: it may be seen then, or 1 ms later."""
OF_ANOTHER_QUEUE = [ALL_OF_IT, replace(ALL_OF_IT, queue="b", expected_s=50.0)]
"""They are as large; what comes after shares is no right between queues."""


def act(stage: Stage, number: int, what: Any) -> None:
    """A gang is submitted, the n-th that holds a place ends or fails, or seconds pass; what was placed starts."""
    holding = list(stage.scheduler.ledger.holding)
    if isinstance(what, Job):
        stage.submit(replace(what, name=f"j{number}"))
    elif isinstance(what, float):
        stage.wait(what)
    elif holding:
        stage.ended(holding[what[0] % len(holding)], exit_code=what[1])
    started = [name for name in stage.phases() if stage.phase(name) is Phase.STARTING]
    stage.started(*started)


def gangs_that_stay(stage: Stage) -> list[JobState]:
    """Those of whom some may be told to leave."""
    return [state for state in stage.scheduler.ledger.holding.values() if not state.leaving]


@settings(max_examples=examples(40), deadline=None)
@example(SPARED, GOES_FORWARD)
@example(SPARED, BEGINS_AGAIN)
@example(SERVED, FALLS_BACK)
@example(replace(SERVED, attained_levels=(1000.0,)), AT_THE_VERY_MOMENT)
@example(IN_SHARES, OF_ANOTHER_QUEUE)
@given(policies, st.lists(acts, min_size=6, max_size=20))
def test_whoever_may_be_stopped_by_order_now_or_later_is_behind(
    policy: Policy, life: list[Any]
) -> None:
    stage, ranks, fall = Unfolded(SITE, policy), Ranks(), inf
    ledger = stage.scheduler.ledger
    for number, what in enumerate(life):
        act(stage, number, what)
        stay, of_queue = gangs_that_stay(stage), dict[str, list[JobState]]()
        for state in stay:
            of_queue.setdefault(state.spec.queue, []).append(state)
        if stage.now >= fall - 2 * SETTLED_S:  # who has fallen, or is about to, is looked at again
            ranks.forget()
        fall = ranks.next_fall(ledger, stage.now)
        until = fall - 2 * SETTLED_S
        ranks.count(ledger, of_queue, partial(ledger.accounts.not_owed, stay))
        for head in ledger.jobs.values():
            if head.phase is not Phase.PENDING:
                continue
            behind = list(ranks.those(ranks.behind(ledger, head, stage.now)))
            for other in stay:
                moments = [
                    stage.now + later_s for later_s in LATER_S if stage.now + later_s < until
                ]
                if any(not no_right(ledger, head, other, moment)[0] for moment in moments):
                    assert other in behind
            if not policy.falls_ever_back:  # as time goes by, there are only fewer of them
                now = stage.now
                assert all(overtaken_at(ledger, head, other, now) <= now for other in behind)


@settings(max_examples=examples(20), deadline=None)
@given(policies, st.lists(acts, min_size=6, max_size=20))
def test_those_not_owed_their_place_are_told_together_as_each_alone(
    policy: Policy, life: list[Any]
) -> None:
    stage = Unfolded(SITE, policy)
    accounts = stage.scheduler.ledger.accounts
    for number, what in enumerate(life):
        act(stage, number, what)
        stay = gangs_that_stay(stage)
        assert accounts.not_owed(stay) == [each for each in stay if not accounts.is_owed(each)]


def test_a_gang_that_falls_back_a_level_is_stopped_from_then_on_for_one_that_waits() -> None:
    by_level = replace(SERVED, attained_levels=(800.0,), min_run_s=0.0)
    policy = replace(by_level, backfill=Backfill("any", 1))
    stage = Stage(SITE, policy)
    for number, what in enumerate([ALL_OF_IT, 20.0, ALL_OF_IT]):
        act(stage, number, what)
    falls_at = stage.scheduler.wake_at()
    assert falls_at is not None
    assert 0.0 < falls_at - 800.0 / 16 <= SETTLED_S
    stage.wait(falls_at - stage.now - 2 * SETTLED_S)
    assert stage.phases() == {"j0": "running", "j2": "pending"}
    stage.wait(2 * SETTLED_S)
    assert stage.phases() == {"j0": "stopping", "j2": "pending"}
    assert stage.scheduler.ledger.claims.keys() == {"j2"}
