"""What a queue says to a job while some leave and others claim their room: each gang counts once, now and to come."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.scheduler import Scheduler
from gantree.model.cluster import Cluster, Machine, Node
from gantree.model.events import ClusterObserved, GangEnded, JobSubmitted
from gantree.model.facts import GangPreempted
from gantree.model.jobs import Job, Role, Shape
from gantree.model.phases import Phase
from gantree.policy.amounts import held
from gantree.policy.quota.quota import Quota
from gantree.policy.rules import Amounts, Policy, Preemption, QueueRule
from gantree.testing.builders import cluster, job
from support.examples import examples

SITE = cluster(leaves=2, nodes=2, gpus=4)
OWNERS = "abcd"


def queues(gpus: int, *, limited: bool) -> tuple[QueueRule, ...]:
    """A cohort of four owners that lend to each other; limited: it may use no more than they own together."""
    limit = {"gpus": gpus} if limited else {}
    own = gpus // len(OWNERS)
    return (
        QueueRule("all", cohort="all", guarantee={"gpus": gpus}, limit=limit),
        *(
            QueueRule(f"all/{name}", guarantee={"gpus": own}, borrow={"gpus": gpus - own})
            for name in OWNERS
        ),
    )


def of(name: str, queue: str, *, gpus: int = 1, preemptible: bool = True) -> Job:
    return replace(job(name, gpus=gpus), queue=f"all/{queue}", preemptible=preemptible)


def scheduler_of(rules: tuple[QueueRule, ...]) -> Scheduler:
    scheduler = Scheduler(Policy(queues=rules, preemption=Preemption(across=False)))
    scheduler.handle([ClusterObserved(id="site", observed_at=0.0, cluster=SITE)])
    return scheduler


def submit(scheduler: Scheduler, *specs: Job) -> list[tuple[str, str]]:
    """Who is stopped for these, and for whom."""
    facts = scheduler.handle(
        [
            JobSubmitted(id=each.name, observed_at=scheduler.now, job=each.name, spec=each)
            for each in specs
        ]
    ).facts
    return [(fact.job, fact.by) for fact in facts if isinstance(fact, GangPreempted)]


def end(scheduler: Scheduler, name: str) -> None:
    attempt = scheduler.ledger.jobs[name].attempt
    scheduler.handle(
        [
            GangEnded(
                id=f"end-{name}", observed_at=scheduler.now, job=name, attempt=attempt, exit_code=0
            )
        ]
    )


@pytest.mark.parametrize(("gpus", "limited"), [(16, False), (16, True), (8, True)])
def test_each_claim_stops_as_many_as_it_takes_however_many_claim(gpus: int, limited: bool) -> None:
    scheduler = scheduler_of(queues(gpus, limited=limited))
    submit(scheduler, *(of(f"a{number}", "a") for number in range(gpus)))
    stopped = submit(scheduler, *(of(f"{queue}0", queue) for queue in "bcd"))
    assert [by for _, by in stopped] == ["b0", "c0", "d0"]
    assert len({who for who, _ in stopped}) == len(stopped)


@pytest.mark.parametrize("limited", [False, True])
def test_a_claimant_starts_when_its_room_is_free_though_others_still_leave(limited: bool) -> None:
    scheduler = scheduler_of(queues(16, limited=limited))
    submit(scheduler, *(of(f"a{number}", "a") for number in range(16)))
    stopped = submit(scheduler, *(of(f"{queue}0", queue) for queue in "bcd"))
    for left, (who, by) in enumerate(stopped):
        end(scheduler, who)
        waiting = [name for name in ("b0", "c0", "d0") if name in scheduler.ledger.claims]
        assert waiting == [name for _, name in stopped[left + 1 :]]
        assert scheduler.ledger.jobs[by].phase is Phase.STARTING


def test_nobody_starts_above_a_limit_while_those_who_leave_hold_their_places() -> None:
    rules = (QueueRule("all", limit={"gpus": 8}), *(QueueRule(f"all/{name}") for name in OWNERS))
    scheduler = Scheduler(Policy(queues=rules))
    scheduler.handle([ClusterObserved(id="site", observed_at=0.0, cluster=SITE)])
    submit(scheduler, of("a0", "a", gpus=4), of("a1", "a", gpus=4))
    urgent = replace(of("a2", "a", gpus=2), priority=1000)
    assert submit(scheduler, urgent) == [("a1", "a2")]  # two GPUs of a limit of eight are to come
    submit(scheduler, of("b0", "b", gpus=2))
    states = scheduler.ledger.jobs
    assert [states[name].phase for name in ("a2", "b0")] == [Phase.PENDING, Phase.PENDING]
    end(scheduler, "a1")
    assert [states[name].phase for name in ("a2", "b0")] == [Phase.STARTING, Phase.STARTING]


def test_a_claimant_starts_on_cpus_beside_one_who_waits_for_more_of_the_same_node() -> None:
    machine = Machine("m", gpus=0, cpus=8)
    site = Cluster("one", ("node",), {"m": machine}, (Node("n0", "m", ()),))
    rules = tuple(
        QueueRule(f"all/{name}", guarantee={"cpus": 2}, borrow={"cpus": 6}) for name in OWNERS
    )
    cohort = QueueRule("all", cohort="all", guarantee={"cpus": 8})
    scheduler = Scheduler(Policy(queues=(cohort, *rules)))
    scheduler.handle([ClusterObserved(id="site", observed_at=0.0, cluster=site)])
    submit(scheduler, *(on_cpus(f"a{number}", "a") for number in range(4)))
    stopped = submit(scheduler, on_cpus("b0", "b"), on_cpus("c0", "c"))
    assert [by for _, by in stopped] == ["b0", "c0"]
    for who, by in stopped:
        end(scheduler, who)
        assert scheduler.ledger.jobs[by].phase is Phase.STARTING


def on_cpus(name: str, queue: str) -> Job:
    role = Role("worker", 1, Shape(gpus=0, cpus=2), run=("true",))
    return replace(of(name, queue), roles=(role,))


# ----- the twin


def to_come(ledger: Ledger, state: JobState, gone: Iterable[str]) -> Quota:
    """Who will hold a place when all have left who leave or are gone, and all claimants have theirs; counted anew."""
    accounts = ledger.accounts
    quota = Quota(accounts.tree, accounts.quota.capacity)
    places = [
        (each, each.placement)
        for each in ledger.holding.values()
        if not each.leaving and each.job not in gone and each.placement is not None
    ]
    places += [
        (ledger.jobs[name], claim.placement)
        for name, claim in ledger.claims.items()
        if name != state.job and not accounts.outranks(state, ledger.jobs[name])
    ]
    for number, (each, placement) in enumerate(places):
        quota.take(each.queue, f"{number}", held(placement.members, lambda node: None), 0)
    return quota


asked_for = st.tuples(
    st.sampled_from(OWNERS), st.integers(1, 3), st.sampled_from((100, 100, 200, 300))
)
acts = st.one_of(
    st.lists(asked_for, min_size=1, max_size=6),
    st.integers(0, 20),  # that one ends
)


@settings(max_examples=examples(20), deadline=None)
@given(st.booleans(), st.booleans(), st.lists(acts, min_size=3, max_size=12))
def test_what_is_to_come_is_what_a_count_of_all_places_and_claims_says(
    limited: bool, across: bool, life: list[list[tuple[str, int, int]] | int]
) -> None:
    rules = queues(12, limited=limited)
    scheduler = Scheduler(Policy(queues=rules, preemption=Preemption(across=across)))
    scheduler.handle([ClusterObserved(id="site", observed_at=0.0, cluster=SITE)])
    for number, act in enumerate(life):
        ledger = scheduler.ledger
        if isinstance(act, int):
            holding = [*ledger.leaving, *ledger.holding]
            if holding:
                end(scheduler, holding[act % len(holding)])
        else:
            named = enumerate(act)
            submit(
                scheduler,
                *(replace(of(f"j{number}-{n}", q, gpus=g), priority=p) for n, (q, g, p) in named),
            )
        _agree(ledger)


def _agree(ledger: Ledger) -> None:
    """For every waiting job, with nobody, the first of those that run, and all of them gone."""
    accounts, running = ledger.accounts, [*ledger.holding]
    for state in ledger.jobs.values():
        if state.phase is not Phase.PENDING:
            continue
        amounts: Amounts = accounts.amounts.requested(state)
        for gone in ([], running[:1], running):
            plain = to_come(ledger, state, gone).room(state.queue, amounts)
            told = accounts.projected_admission(state, amounts, gone)
            assert (told.state, told.may_reclaim) == (plain.state, plain.may_reclaim)
            now = accounts.admission(state, amounts, gone)
            held_now = accounts.quota.room_without(state.queue, amounts, gone)
            assert now.refused == (told.refused or held_now.refused)
