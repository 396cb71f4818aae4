"""Asking only those who could get another answer decides the same as asking everybody every time."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gantree.core.cycle.awake import Awake
from gantree.core.cycle.freeable import Freeable
from gantree.core.ledger.decision_builder import Draft
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import BOOKING, JobState
from gantree.core.queue.fit_bound import Wakes
from gantree.core.queue.held_capacity import Passing, passed_by
from gantree.core.scheduler import Scheduler
from gantree.model.events import (
    ClusterObserved,
    Event,
    GangEnded,
    GangStarted,
    JobSubmitted,
    NodeLost,
    NodeReturned,
    TimePassed,
)
from gantree.model.facts import Fact
from gantree.model.jobs import Job, TopologyWish
from gantree.model.phases import Phase
from gantree.policy.order import Line, Standing
from gantree.policy.rules import Backfill, Policy, Preemption, QueueRule
from gantree.policy.walk import Looked, Walk
from gantree.testing.builders import cluster, job
from support.examples import examples

SITE = cluster(leaves=2, nodes=2, gpus=4)
QUEUES = ("a", "b", "c")
RULES = (
    QueueRule("a", guarantee={"gpus": 8}),
    QueueRule("b", weight=2.0, limit={"gpus": 14}),
    QueueRule("c", guarantee={"gpus": 4}, lend={"gpus": 2}),
)

COHORT = (
    QueueRule("site", cohort="site", guarantee={"gpus": 14}, limit={"gpus": 14}),
    *(QueueRule(f"site/{name}", guarantee={"gpus": 4}, borrow={"gpus": 8}) for name in QUEUES),
)
"""As in Kueue: queues that borrow of each other alone, and take back what they lent."""


@pytest.fixture(autouse=True, scope="module")
def few_are_asked_as_many_are() -> Iterator[None]:
    """The lives here are short: bounds for all queues at once are asked of every front."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gantree.core.cycle.awake.FEW", 0)
        yield


class AsksEverybody(Awake):
    """Trusts no bound and no memory."""

    def those_of(self, draft: Draft, queue: int, *, due: bool = False) -> Looked:
        return Looked(tuple(draft.ledger.lines.in_queue(queue)))

    def still(self, draft: Draft, standing: Standing) -> bool:
        return True

    def might(self, draft: Draft, line: Line, state: JobState) -> bool:
        return True

    def is_new(self, ledger: Ledger, state: JobState, now: float) -> bool:
        return True

    def may_make_room(self, ledger: Ledger, standing: Standing, now: float) -> bool:
        return True


def who_asks_everybody(policy: Policy) -> Scheduler:
    """A scheduler that walks over all lines each time."""
    scheduler = Scheduler(policy)
    cycle = scheduler._cycle
    cycle._awake = AsksEverybody(cycle._desk, forgets_rooms=True)
    return scheduler


gangs = st.builds(
    lambda members, gpus, queue, priority, required, limit_s, expected_s, preemptible: replace(
        job("x", members=members, gpus=gpus),
        queue=queue,
        priority=priority,
        topology=TopologyWish(required=required),
        time_limit_s=limit_s,
        expected_s=expected_s,
        preemptible=preemptible,
    ),
    st.sampled_from((1, 1, 2, 3)),
    st.sampled_from((1, 2, 4, 4)),
    st.sampled_from(QUEUES),
    st.sampled_from((100, 200, 300)),
    st.sampled_from((None, None, "leaf")),
    st.sampled_from((None, 100.0, 1000.0)),
    st.sampled_from((None, 50.0, 500.0)),
    st.sampled_from((True, True, True, False)),
)
acts = st.one_of(
    st.tuples(st.just("submit"), st.lists(gangs, min_size=1, max_size=1)),
    st.tuples(st.just("submit"), st.lists(gangs, min_size=1, max_size=8)),
    st.tuples(st.just("end"), st.integers(0, 9)),
    st.tuples(st.just("lose"), st.integers(0, 3)),
    st.tuples(st.just("wait"), st.sampled_from((1.0, 60.0, 700.0))),
)
policies = st.builds(
    lambda queues, reservations, by, across, gain, min_run_s: Policy(
        queues=queues,
        backfill=Backfill("promised" if reservations else "any", max(1, reservations)),
        preemption=Preemption(by=by, across=across, gain=gain),
        min_run_s=min_run_s,
    ),
    st.sampled_from(((), RULES)),
    st.integers(0, 2),
    st.sampled_from(("priority", "order", "none")),
    st.booleans(),
    st.sampled_from((0.0, 1.0)),
    st.sampled_from((0.0, 300.0)),
)


def of(queue: str, members: int, *, gpus: int = 4, priority: int = 100) -> Job:
    """A gang of a queue, of whole nodes if not otherwise said."""
    return replace(job("x", members=members, gpus=gpus), queue=queue, priority=priority)


SHORT = replace(of("a", 1, priority=200), time_limit_s=100.0)


TAKEN_BACK = [("submit", [of("b", 1)] * 3), ("submit", [of("a", 2)]), ("end", 0)]
"""What one queue lent is taken back, and no priority has to do with it."""


LENT_AND_BEHIND = [
    ("lose", 2),
    (
        "submit",
        [
            replace(of("b", 2), topology=TopologyWish(required="leaf")),
            of("a", 3),
            of("a", 1, gpus=1),
            replace(of("a", 1, gpus=1), preemptible=False, expected_s=50.0),
        ],
    ),
    ("submit", [of("a", 1, gpus=1)] * 2),
    *[("submit", [of("a", 1, gpus=1)])] * 3,
    ("lose", 0),
    *[("submit", [of("b", 1, gpus=1)])] * 2,
    ("submit", [of("a", 1)]),
    ("end", 0),
    ("end", 9),
    ("lose", 1),
]
"""Who runs on what a queue lent stands behind the one who takes it back, too: it leaves once."""


APART = Preemption(across=False)
PARTS_OF_A_NODE = [
    ("submit", [*[of("a", 1, gpus=1)] * 3, of("a", 1, gpus=1, priority=200), SHORT]),
    ("submit", [of("a", 2, priority=200)]),
    ("submit", [of("a", 1, gpus=1)]),
    ("submit", [of("a", 2, gpus=1)]),
    (
        "submit",
        [of("a", 1, gpus=1), of("a", 1, gpus=1), of("a", 1, gpus=2), of("a", 1, gpus=3), SHORT],
    ),
    ("end", 1),
]
"""One GPU that is reserved stands between a gang and a whole node."""


LATE = [
    ("submit", [of("a", 1, gpus=1)] * 2),
    ("submit", [replace(of("a", 3), time_limit_s=100.0)]),
    ("wait", 60.0),
    ("submit", [of("a", 1, gpus=1)]),
    ("submit", [of("a", 1, gpus=2)]),
    ("wait", 60.0),
    ("submit", [of("a", 1, gpus=1)]),
    ("submit", [of("a", 1, gpus=1)]),
    ("wait", 60.0),
]
"""A promised start has passed: who was told it need not be in time any more."""


RESTS = [
    ("submit", [of("c", 3, gpus=2, priority=300)]),
    ("submit", [replace(of("a", 1, priority=200), preemptible=False)]),
    ("lose", 0),
    ("submit", [of("a", 2)]),
    ("end", 8),
    ("wait", 700.0),
]
"""While a gang may not start another takes the room that is free: it might be stopped when the time is up."""


NO_LONGER_DUE = [
    ("submit", [of("b", 2, priority=200)]),
    (
        "submit",
        [
            of("c", 1, gpus=2),
            replace(of("b", 3, gpus=1, priority=300), topology=TopologyWish(required="leaf")),
            of("a", 2),
        ],
    ),
    ("submit", [of("a", 1, gpus=1, priority=200)]),
]
"""What is claimed is no longer owed, so it does not count against the quota of who goes before."""


DUE_WHEN_ONE_HAS_LEFT = [
    ("submit", [of("a", 1, gpus=1), of("c", 1), of("c", 2, gpus=2, priority=200)]),
    *[("lose", node) for node in (1, 0, 1)],
    ("submit", [of("b", 1, gpus=1, priority=300), of("b", 2, priority=300)]),
    *[("end", which) for which in (2, 0)],
    ("submit", [of("a", 1, gpus=2, priority=200), of("a", 2, priority=200)]),
    ("end", 0),
]
"""What one of its queue used that has left a gang is owed then: it may have room that is kept for an estimate."""


ONE_IS_OWED = (QueueRule("a"), QueueRule("b"), QueueRule("c", guarantee={"gpus": 4}))
PUSHED_OUT = [
    ("submit", [of("b", 1, priority=300)]),
    ("submit", [of("b", 1, gpus=3, priority=300)] * 2),
    ("submit", [of("c", 1)]),
    (
        "submit",
        [
            of("b", 1, priority=300),
            of("c", 2, gpus=1, priority=260),
            of("a", 1, priority=250),
        ],
    ),
]
"""The second of three starts and takes from another what it was owed, which the first may stop then, and the third."""


@settings(max_examples=examples(30), deadline=None)
@example(Policy(backfill=Backfill("promised", 1), preemption=APART), LATE)
@example(Policy(queues=RULES, backfill=Backfill("any", 1), preemption=Preemption(gain=1.0)), RESTS)
@example(Policy(queues=RULES, preemption=Preemption(by="none")), NO_LONGER_DUE)
@example(Policy(backfill=Backfill("promised", 1), preemption=APART), PARTS_OF_A_NODE)
@example(Policy(queues=RULES, preemption=Preemption(by="none")), TAKEN_BACK)
@example(Policy(queues=RULES, backfill=Backfill("promised", 1)), DUE_WHEN_ONE_HAS_LEFT)
@given(policies, st.lists(acts, min_size=4, max_size=30))
def test_who_asks_only_those_that_could_get_another_answer_decides_as_who_asks_everybody(
    policy: Policy, life: list[tuple[str, Any]]
) -> None:
    quick, plain = Scheduler(policy), who_asks_everybody(policy)
    now, lost = 0.0, set[str]()
    _both(quick, plain, [ClusterObserved(id="site", observed_at=0.0, cluster=SITE)])
    for number, (act, what) in enumerate(life):
        if act == "wait":
            now += what
        _both(quick, plain, list(_events(quick, act, what, number, now, lost)))


ORDERS: tuple[tuple[tuple[str, ...], tuple[float, ...]], ...] = (
    (("remaining_service", "arrival"), ()),
    (("priority", "share", "stretch", "arrival"), ()),
    (("attained", "arrival"), ()),
    (("attained", "arrival"), (600.0, 3000.0)),
    (("attained", "remaining", "smallest"), (1000.0,)),
)
by_order = st.builds(
    lambda policy, order: replace(
        policy,
        order=order[0],
        attained_levels=order[1],
        preemption=replace(policy.preemption, by="order"),
    ),
    policies,
    st.sampled_from(ORDERS),
)
"""Policies under which a gang is stopped for one that goes before it, wherever both stand by then."""


@settings(max_examples=examples(40), deadline=None)
@given(by_order, st.lists(acts, min_size=4, max_size=30))
def test_who_asks_those_alone_who_go_before_a_gang_that_runs_decides_as_who_asks_everybody(
    policy: Policy, life: list[tuple[str, Any]]
) -> None:
    quick, plain = Scheduler(policy), who_asks_everybody(policy)
    now, lost = 0.0, set[str]()
    _both(quick, plain, [ClusterObserved(id="site", observed_at=0.0, cluster=SITE)])
    for number, (act, what) in enumerate(life):
        now += what if act == "wait" else 0.0
        wakes_at, before = quick.wake_at(), quick.ledger.applied
        _both(quick, plain, list(_events(quick, act, what, number, now, lost)))
        if act == "wait" and quick.ledger.applied > before:
            assert wakes_at is not None and wakes_at <= now, "time has changed an answer unheard"


def in_cohort(act: tuple[str, Any]) -> tuple[str, Any]:
    """The same with the gangs in queues of COHORT."""
    kind, what = act
    if kind != "submit":
        return act
    return kind, [replace(gang, queue=f"site/{gang.queue}") for gang in what]


ABOVE_THE_LIMIT = [
    ("submit", [of("site/a", 2)]),
    ("submit", [of("site/a", 2), of("site/a", 1, gpus=3)]),
    ("end", 0),
]
"""Twelve GPUs at most are one queue's, fourteen the cohort's: the second gang has none until the first has ended."""
OWED_WHEN_ONE_HAS_LEFT = [
    ("submit", [of("site/b", 1)]),
    (
        "submit",
        [
            of("site/b", 1, gpus=2),
            *[of("site/c", 1)] * 2,
            of("site/a", 1, gpus=1),
            of("site/b", 1, gpus=2),
        ],
    ),
    ("submit", [of("site/a", 1, gpus=1)]),
    ("lose", 1),
]
"""A queue that loses a node is owed what the gang there still holds: another may take it back at once."""


@settings(max_examples=examples(15), deadline=None)
@example(Policy(preemption=APART), ABOVE_THE_LIMIT)
@example(Policy(backfill=Backfill("any", 1), preemption=APART), OWED_WHEN_ONE_HAS_LEFT)
@given(policies, st.lists(acts.map(in_cohort), min_size=4, max_size=20))
def test_who_asks_only_those_decides_as_who_asks_everybody_below_a_limit_that_queues_share(
    policy: Policy, life: list[tuple[str, Any]]
) -> None:
    policy = replace(policy, queues=COHORT)
    quick, plain = Scheduler(policy), who_asks_everybody(policy)
    now, lost = 0.0, set[str]()
    _both(quick, plain, [ClusterObserved(id="site", observed_at=0.0, cluster=SITE)])
    for number, (act, what) in enumerate(life):
        now += what if act == "wait" else 0.0
        _both(quick, plain, list(_events(quick, act, what, number, now, lost)))


MORE_THAN_THERE_IS = (QueueRule("a", guarantee={"gpus": 8}), QueueRule("b", guarantee={"gpus": 24}))
THREE = [of("a", 1, gpus=2, priority=300), *(of("b", 1, gpus=n, priority=300) for n in (1, 2))]
ROOM_BESIDE_A_CLAIM = [("submit", [of("b", 1)] * 4), ("submit", THREE)]
"""The second of three stops a gang for itself, and what it leaves of that is the first's, who could stop nobody."""
ROOM_BEFORE_ITS_TIME = [
    ("submit", [of("b", 1)] * 3),
    ("wait", 700.0),
    ("submit", [of("a", 1)]),
    ("submit", THREE),
]
"""The same, where the first may not stop one yet."""


@settings(max_examples=examples(15), deadline=None)
@example(Policy(queues=ONE_IS_OWED, backfill=Backfill("any", 1)), PUSHED_OUT)
@example(
    Policy(queues=MORE_THAN_THERE_IS, order=("priority", "arrival"), preemption=APART),
    ROOM_BESIDE_A_CLAIM,
)
@example(
    Policy(
        queues=MORE_THAN_THERE_IS,
        order=("priority", "arrival"),
        preemption=APART,
        min_run_s=300.0,
    ),
    ROOM_BEFORE_ITS_TIME,
)
@given(policies, st.lists(acts, min_size=4, max_size=30))
def test_a_walk_that_goes_on_where_nobody_was_passed_decides_as_one_that_begins_anew(
    policy: Policy, life: list[tuple[str, Any]]
) -> None:
    facts = _facts_of(policy, life)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Walk, "has_passed_any", lambda walk, of=None: True)
        patch.setattr(Walk, "has_left_out_any", lambda walk, first_of, lately=False: True)
        assert facts == _facts_of(policy, life)


def _facts_of(policy: Policy, life: list[tuple[str, Any]]) -> list[Fact]:
    scheduler, now, lost, facts = Scheduler(policy), 0.0, set[str](), list[Fact]()
    scheduler.handle([ClusterObserved(id="site", observed_at=0.0, cluster=SITE)])
    for number, (act, what) in enumerate(life):
        now += what if act == "wait" else 0.0
        facts += scheduler.handle(list(_events(scheduler, act, what, number, now, lost))).facts
    return facts


def _both(quick: Scheduler, plain: Scheduler, events: Sequence[Event]) -> None:
    """Tell both, then both that what was placed has started; they decide the same."""
    facts = quick.handle(events).facts
    assert facts == plain.handle(events).facts
    for state in list(quick.ledger.holding.values()):
        if state.running_at is None and not state.leaving:
            started = GangStarted(
                id=f"{state.job}.{state.attempt}",
                observed_at=events[-1].observed_at if events else state.placed_at or 0.0,
                job=state.job,
                attempt=state.attempt,
            )
            assert quick.handle([started]).facts == plain.handle([started]).facts


def _events(
    quick: Scheduler, act: str, what: Any, number: int, now: float, lost: set[str]
) -> Iterator[Event]:
    name = f"e{number}"
    holding = list(quick.ledger.holding.values())
    if act == "submit":
        for each, gang in enumerate(what):
            spec: Job = replace(gang, name=f"j{number}-{each}")
            yield JobSubmitted(id=spec.name, observed_at=now, job=spec.name, spec=spec)
    elif act == "end" and holding:
        ending = list(quick.ledger.leaving.values()) or holding
        state = ending[what % len(ending)]
        yield GangEnded(id=name, observed_at=now, job=state.job, attempt=state.attempt, exit_code=0)
    elif act == "lose":
        node = f"n{what}"
        kind = NodeReturned if node in lost else NodeLost
        lost ^= {node}
        yield kind(id=name, observed_at=now, node=node)
    elif act == "wait":
        yield TimePassed(id=name, observed_at=now)


HELD_LATER = [
    *[("submit", [of("a", members, gpus=gpus)]) for members, gpus in ((1, 1), (3, 2))],
    *[("lose", node) for node in (1, 2)],
    ("submit", [of("a", 1, gpus=2)]),
    ("submit", [of("a", 1, priority=200)]),
    ("end", 0),
    ("submit", [of("b", 1)]),
]
"""Who has left a claim's node since the bounds were made is gone, and what it held is held for the claim."""


class Checked(Freeable):
    """Says no for all queues only where it does for the line itself."""

    def may_make_room_for_any(
        self, ledger: Ledger, lines: Sequence[Line], wakes: Wakes
    ) -> list[bool]:
        all_might = super().may_make_room_for_any(ledger, lines, wakes)
        for line, might in zip(lines, all_might, strict=True):
            assert might or not self._in_bounds(ledger, line, wakes)
        return all_might


@settings(max_examples=examples(60), deadline=None)
@example(Policy(queues=RULES, backfill=Backfill("any", 1)), False, TAKEN_BACK)
@example(
    Policy(
        queues=RULES,
        backfill=Backfill("promised", 1),
        preemption=Preemption(by="order"),
        min_run_s=300.0,
    ),
    True,
    LENT_AND_BEHIND,
)
@example(Policy(backfill=Backfill("any", 1), preemption=Preemption(gain=1.0)), False, HELD_LATER)
@given(policies, st.booleans(), st.lists(acts, min_size=4, max_size=20))
def test_the_bound_for_all_queues_never_says_no_where_that_of_one_says_yes(
    policy: Policy, by_arrival: bool, life: list[tuple[str, Any]]
) -> None:
    order = ("arrival",) if by_arrival else policy.order
    scheduler, now, lost = Scheduler(replace(policy, order=order)), 0.0, set[str]()
    scheduler._cycle._awake._freeable = Checked()
    scheduler.handle([ClusterObserved(id="site", observed_at=0.0, cluster=SITE)])
    for number, (act, what) in enumerate(life):
        now += what if act == "wait" else 0.0
        scheduler.handle(list(_events(scheduler, act, what, number, now, lost)))
        ledger, checked, wakes = scheduler.ledger, Checked(), Wakes()
        for line in ledger.lines:
            checked.may_make_room_for_any(ledger, [line], wakes)


@settings(max_examples=examples(30), deadline=None)
@given(policies, st.lists(acts, min_size=4, max_size=30))
def test_a_mask_of_bookings_says_which_reserved_room_a_job_may_use(
    policy: Policy, life: list[tuple[str, Any]]
) -> None:
    scheduler, passing, now, lost = Scheduler(policy), Passing(), 0.0, set[str]()
    scheduler.handle([ClusterObserved(id="site", observed_at=0.0, cluster=SITE)])
    for number, (act, what) in enumerate(life):
        now += what if act == "wait" else 0.0
        scheduler.handle(list(_events(scheduler, act, what, number, now, lost)))
        ledger = scheduler.ledger
        for state in ledger.jobs.values():
            if state.phase is Phase.PENDING and state.job not in ledger.claims:
                mask = passing.mask(ledger, state, now)
                told = [BOOKING + job for n, job in enumerate(ledger.bookings) if mask >> n & 1]
                assert tuple(told) == passed_by(ledger, state, now)
