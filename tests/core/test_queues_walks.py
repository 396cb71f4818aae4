"""Queues through the whole core: whatever comes in whatever order, no limit is passed and no guarantee is broken.

A witness folds every fact by itself and looks at the queues between any two of them, by a plain recount from the rules
and from who holds what; `Stage` checks everything else after every event.
"""

from dataclasses import dataclass, field, replace
from random import Random

import pytest

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.queue.eligibility import eligible, in_order
from gantree.model.cluster import Cluster, Node
from gantree.model.facts import Fact, GangPlaced, GangPreempted
from gantree.model.jobs import Checkpoint, Elastic, Job, Role, Shape
from gantree.model.phases import Phase
from gantree.placement.choice.search import fits
from gantree.policy.amounts import requested
from gantree.policy.queues import QueueTree
from gantree.policy.quota.quota import Quota
from gantree.policy.rules import Amounts, Backfill, Policy, QueueRule
from gantree.testing.builders import machine
from gantree.testing.stage import Stage
from support.examples import seeds

A, B = "H100-80GB", "A100-80GB"
GPUS_A, GPUS_B = f"gpus/{A}", f"gpus/{B}"
TREE = ("a", "a/c", "a/d", "b", "b/f", "e")
LEAVES = ("a/c", "a/d", "b/f", "e")
USERS = ("ann", "bob")


def two_models() -> Cluster:
    """Two nodes of four H100 and two of four A100."""
    first = machine(4, name="ma")
    second = type(first)("mb", 4, B, first.links, first.numa, first.nics, first.cpus)
    nodes = tuple(
        Node(f"n{number}", "ma" if number < 2 else "mb", (f"l{number // 2}",))
        for number in range(4)
    )
    return Cluster("two", ("leaf", "node"), {"ma": first, "mb": second}, nodes)


def some(lots: Random, often: float, most: int) -> Amounts:
    """An amount of GPUs, of one model, of both, or of none."""
    if lots.random() > often:
        return {}
    keys = lots.choice([("gpus",), ("gpus",), (GPUS_A,), (GPUS_B,), ("gpus", GPUS_B)])
    return {key: float(lots.randint(2, most)) for key in keys}


def queues(lots: Random) -> tuple[QueueRule, ...]:
    """The tree with random rules; what is guaranteed is no more than there is."""
    return tuple(
        QueueRule(
            path,
            weight=lots.choice([1.0, 3.0]),
            cohort=lots.choice([None, None, "x"]),
            guarantee={} if path in ("a", "b") else some(lots, 0.7, 4),
            limit=some(lots, 0.2, 12),
            lend=some(lots, 0.2, 4),
            borrow=some(lots, 0.2, 8),
            most_running=lots.choice([None] * 5 + [3]),
            most_waiting=lots.choice([None] * 5 + [4]),
            user_limit=some(lots, 0.1, 8),
            most_running_per_user=lots.choice([None] * 5 + [2]),
        )
        for path in TREE
    )


def a_policy(lots: Random) -> Policy:
    return Policy(
        queues=queues(lots),
        share_users=lots.random() < 0.5,
        backfill=lots.choice(
            [Backfill("any"), Backfill("any"), Backfill("promised", 2), Backfill("none")]
        ),
        min_run_s=lots.choice([0.0, 1000.0]),
        evictions_per_day=lots.choice([None, 0]),
        half_life_s=lots.choice([None, 100.0]),
        elastic=lots.random() < 0.5,
    )


def a_job(lots: Random, name: str) -> Job:
    models = lots.choice([(), (A,), (B,), (A, B), (B, A)])
    members = lots.randint(1, 3)
    shape = Shape(gpus=lots.choice([1, 2, 4]), models=models)
    return Job(
        name,
        roles=(Role("worker", members, shape, run=("true",)),),
        queue=lots.choice(LEAVES),
        priority=lots.choice(["batch", "batch", "batch", "production"]),
        user=lots.choice(USERS),
        preemptible=lots.random() < 0.8,
        elastic=Elastic(1, members + 1) if lots.random() < 0.3 else None,
        checkpoint=lots.choice([None, Checkpoint(grace_s=20)]),
        time_limit_s=lots.choice([None, 50.0, 200.0]),
        expected_s=lots.choice([None, 40.0]),
    )


def recounted(ledger: Ledger) -> Quota:
    """The quota of what runs, counted anew."""
    accounts = ledger.accounts
    quota = Quota(accounts.tree, accounts.quota.capacity)
    for state in ledger.holding.values():
        assert state.placement is not None
        quota.take(
            state.queue,
            state.job,
            accounts.amounts.held(state.placement),
            (-state.priority, state.seq),
        )
    return quota


@dataclass
class Witness:
    """Folds the facts on its own and looks between any two of them."""

    policy: Policy
    ledger: Ledger = field(init=False)
    cell_view: int = 0

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.policy)

    def look(self, facts: list[Fact]) -> None:
        for fact in facts[self.cell_view :]:
            if isinstance(fact, GangPreempted) and fact.cause == "reclaim":
                self._may_reclaim(fact)
            self.ledger.apply(fact)
            if isinstance(fact, GangPlaced):
                self._within(fact)
        self.cell_view = len(facts)

    def _may_reclaim(self, fact: GangPreempted) -> None:
        quota = recounted(self.ledger)
        victim = self.ledger.jobs[fact.job]
        assert victim.spec.preemptible, f"{fact.job} is never to be stopped"
        assert not quota.owed(fact.job), f"{fact.job} is owed what it holds"
        assert victim.queue != self.ledger.jobs[fact.by].queue

    def _within(self, fact: GangPlaced) -> None:
        """What the newest gang holds is admitted beside all that runs."""
        ledger = self.ledger
        quota, state = recounted(ledger), ledger.jobs[fact.job]
        admission = quota.room_without(
            state.queue,
            ledger.accounts.amounts.held(fact.placement),
            [fact.job],
            state.spec.preemptible,
        )
        assert not admission.refused, f"{fact.job}: {admission.words}"
        if not state.spec.preemptible:
            assert admission.state == "owed", f"{fact.job} borrows and can never be stopped"
        self._limits(ledger, quota.tree)

    def _limits(self, ledger: Ledger, tree: QueueTree) -> None:
        """Limits, by the words of the rules."""
        for rule in self.policy.queues:
            under = [
                state
                for state in ledger.holding.values()
                if f"{state.spec.queue}/".startswith(f"{rule.path}/")
            ]
            groups = [(under, rule.limit, rule.most_running)]
            for user in USERS:
                mine = [
                    state
                    for state in under
                    if state.spec.user == user and state.spec.queue == rule.path
                ]
                groups.append((mine, rule.user_limit, rule.most_running_per_user))
            for states, limit, most in groups:
                assert most is None or len(states) <= most, rule.path
                for resource, amount in limit.items():
                    used = sum(_held(ledger, state).get(resource, 0.0) for state in states)
                    assert used <= amount, (rule.path, resource)


def _held(ledger: Ledger, state: JobState) -> Amounts:
    assert state.placement is not None
    return ledger.accounts.amounts.held(state.placement)


def settle(stage: Stage) -> None:
    """Whoever leaves is gone."""
    for _ in range(60):
        leaving = list(stage.scheduler.ledger.leaving)
        if not leaving:
            return
        stage.ended(leaving[0], 143)
    raise AssertionError("gangs leave for ever")


def check_guarantees(stage: Stage) -> None:
    """Who is within the guarantee of its queue, and would fit without those that borrow, does not wait.

    Nor for a start that was estimated, but for one of its own queue, in which the order decides.
    """
    ledger = stage.scheduler.ledger
    quota = recounted(ledger)
    assert not ledger.claims, ledger.claims
    in_turn, behind = stage.policy.backfill.overtake == "none", set()
    for _, position in in_order(ledger, stage.now):
        state = ledger.jobs[position.job]
        if not eligible(ledger, state, stage.now) or state.spec.queue in behind:
            continue
        if in_turn:
            behind.add(state.spec.queue)
        borrowers = list(quota.borrowers(state.queue))
        rooms = ledger.rooms().copy()
        for owner in (*borrowers, *(f"reserve:{job}" for job in ledger.reservations)):
            rooms.give_back(owner)
        for job, reservation in ledger.reservations.items():
            other = ledger.jobs[job]
            if other is not state and (
                reservation.promised or goes_before_in_its_queue(other, state)
            ):
                rooms.take_free(f"reserve:{job}", reservation.placement.members)
        for model in state.spec.roles[0].shape.models or (A, B):
            spec = on_model(state.spec, model)
            answer = quota.room_without(state.queue, requested(spec), borrowers)
            waits = answer.state == "owed" and fits(rooms, spec)
            assert not waits, f"{state.job} waits, though it is owed its room on {model}"


def goes_before_in_its_queue(state: JobState, other: JobState) -> bool:
    """Whether a job stands before another one of the same queue."""
    return state.spec.queue == other.spec.queue and state.position < other.position


def on_model(spec: Job, model: str) -> Job:
    """The job held to one GPU model."""
    role = spec.roles[0]
    return replace(spec, roles=(replace(role, shape=replace(role.shape, models=(model,))),))


FOUND_SOMETHING = (36, 331, 347)
"""Lives in which starts were told only after a restart (36, 331), and a job of its own queue went before one owed."""


@pytest.mark.parametrize("seed", (*seeds(40), *FOUND_SOMETHING))
def test_no_limit_is_passed_and_no_guarantee_is_broken(seed: int) -> None:
    lots = Random(seed)
    policy = a_policy(lots)
    stage, witness = Stage(two_models(), policy), Witness(policy)
    for number in range(30):
        play(stage, lots, number)
        witness.look(stage.facts)
        if lots.random() < 0.3:
            settle(stage)
            witness.look(stage.facts)
            check_guarantees(stage)


def play(stage: Stage, lots: Random, number: int) -> None:
    """One event; where it has no meaning now, gangs start, or time passes."""
    what = lots.choice(["submit", "submit", "submit", "submit", "end", "leave", "start", "wait"])
    ledger = stage.scheduler.ledger
    starting = [job for job, state in ledger.holding.items() if state.phase is Phase.STARTING]
    holding, leaving = list(ledger.holding), list(ledger.leaving)
    if what == "submit":
        stage.submit(a_job(lots, f"j{number}"))
    elif what == "end" and holding:
        stage.ended(lots.choice(holding))
    elif what == "leave" and leaving:
        stage.ended(lots.choice(leaving), 143)
    elif starting:
        stage.started(*starting)
    else:
        stage.wait(10.0 * lots.randint(1, 80))
