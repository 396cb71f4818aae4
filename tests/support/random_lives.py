"""Random lives: anything that may happen to random jobs under many policies, told to one scheduler and its twins.

A twin is told the same events from the moment at which it joins, and must decide the same facts and orders, and be
woken at the same moments. `POLICIES` have something of everything that a ledger keeps: shares, quotas, cells,
reservations, claims, elastic gangs, boosts, MIG instances.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from gantree.core.scheduler import Decision, Scheduler, settled
from gantree.core.snapshot.ledger_snapshot import snapshot_of
from gantree.core.snapshot.restore import restored
from gantree.journal.encoding.snapshots import SnapshotCodec
from gantree.model.cluster import Cluster, Node
from gantree.model.events import (
    CancelRequested,
    CheckpointSaved,
    ClusterObserved,
    CordonRequested,
    EndedJobsDue,
    Event,
    GangEnded,
    GangStarted,
    HealthObserved,
    HoldRequested,
    JobSubmitted,
    LabelRequested,
    MemberStarted,
    NodeLost,
    NodeReturned,
    PriorityRequested,
    RankExited,
    ReleaseRequested,
    ScaleRequested,
    SuspendRequested,
    TimePassed,
    UncordonRequested,
)
from gantree.model.facts import Fact
from gantree.model.jobs import Checkpoint, Elastic, Job, Restarts, Role, Shape, TopologySpec
from gantree.model.phases import HOLDING, Phase
from gantree.policy.rules import (
    Backfill,
    Boost,
    LendIdle,
    Policy,
    Preemption,
    QueueRule,
    TimeSharing,
)
from gantree.testing.builders import machine

A, B = "H100-80GB", "A100-80GB"
QUEUES = ("a/c", "a/d", "b", "e")
NODES = tuple(f"n{number}" for number in range(6))


def site(spares: int = 0) -> Cluster:
    """Four nodes of four H100 in two leaves, and two of four A100 in a third."""
    first = machine(4, name="ma", nics=2, cpus=32)
    second = replace(machine(4, name="mb"), gpu=B)
    nodes = tuple(
        Node(name, "ma" if number < 4 else "mb", (f"l{number // 2}",), (("rack", f"r{number}"),))
        for number, name in enumerate(NODES)
    )
    more = {"leaf": spares} if spares else {}
    return Cluster("two", ("leaf", "node"), {"ma": first, "mb": second}, nodes, spares=more)


def rules(**more: Any) -> tuple[QueueRule, ...]:
    return (
        QueueRule("a", weight=2, cohort="x", lend={"gpus": 6}),
        QueueRule("a/c", guarantee={f"gpus/{A}": 4}, limit={"gpus": 12}, **more),
        QueueRule("a/d", guarantee={"gpus": 3}, most_running=3),
        QueueRule("b", cohort="x", guarantee={"gpus": 4}, user_limit={"gpus": 8}),
        QueueRule("e", most_waiting=6),
    )


def cells() -> tuple[QueueRule, ...]:
    return (
        QueueRule("a"),
        QueueRule("a/c", cells=(("node", 1),)),
        QueueRule("a/d"),
        QueueRule("b", cells=(("leaf", 1),)),
        QueueRule("e"),
    )


LENDERS = (
    QueueRule("a", guarantee={"gpus": 12}, lend={"gpus": 2}, lend_idle=LendIdle(120.0)),
    QueueRule("a/c", guarantee={f"gpus/{A}": 6}, lend_idle=LendIdle(60.0, {f"gpus/{A}": 1})),
    QueueRule("a/d"),
    QueueRule("b", guarantee={"gpus": 8}, lend_idle=LendIdle(30.0), return_within_s=10.0),
    QueueRule("e", most_waiting=6),
)
POLICIES: dict[str, Policy] = {
    "as it comes": Policy(),
    "shares": Policy(queues=rules(), half_life_s=100.0, share_users=True, gpu_weights={A: 3.0}),
    "quotas": Policy(queues=rules(), evictions_per_day=2, min_run_s=20.0),
    "lends by use": Policy(queues=LENDERS, grace_s=5.0),
    "cells": Policy(queues=cells(), half_life_s=300.0),
    "stretch": Policy(order=("stretch",), backfill=Backfill("promised", 3, 0.5)),
    "by order": Policy(
        order=("attained", "share", "arrival"),
        attained_levels=(100.0, 1000.0),
        preemption=Preemption("order"),
        min_run_s=10.0,
        half_life_s=50.0,
    ),
    "shortest": Policy(order=("remaining_service",), preemption=Preemption(gain=0.5)),
    "in turn": Policy(queues=rules(), backfill=Backfill("none"), age_per_day=1e5),
    "turns": Policy(time_sharing=TimeSharing(("research", "batch"), 15.0), grace_s=5.0),
    "moves": Policy(
        defragment="apply", boosts=(Boost(150, 60.0, queue="b"), Boost(-50, 200.0, user="ann"))
    ),
}


MODELS = (
    QueueRule("a", weight=2, cohort="x", lend={"gpus": 6}, guarantee={f"gpus/{A}": 8}),
    QueueRule("a/c", guarantee={f"gpus/{A}": 4}, limit={"gpus": 12}),
    QueueRule("a/d", guarantee={"gpus": 3}, user_limit={"gpus": 4}),
    QueueRule("b", cohort="x", guarantee={f"gpus/{B}": 4}, most_running_per_user=1),
    QueueRule("e", most_waiting=6),
)
CELLS = (
    QueueRule("a"),
    QueueRule("a/c", cells=(("node", 1),), limit={"gpus": 10}),
    QueueRule("a/d", guarantee={"gpus": 3}),
    QueueRule("b", cells=(("leaf", 1),), user_limit={"gpus": 6}),
    QueueRule("e", guarantee={"gpus": 2}),
)
IN_TURN = Backfill("none")
MIXED = {
    "turn users": Policy(queues=MODELS, share_users=True, backfill=IN_TURN),
    "turn users cells": Policy(queues=CELLS, share_users=True, backfill=IN_TURN, half_life_s=60.0),
    "cells quotas": Policy(
        queues=CELLS, share_users=True, half_life_s=60.0, backfill=Backfill("promised", 3, 0.5)
    ),
    "models": Policy(
        queues=MODELS,
        share_users=True,
        boosts=(Boost(150, 60.0, queue="b"), Boost(-150, 200.0, user="ann")),
    ),
    "models order": Policy(
        queues=MODELS,
        order=("priority", "attained", "share", "arrival"),
        attained_levels=(100.0, 1000.0),
        preemption=Preemption("order"),
        share_users=True,
    ),
    "moves cells": Policy(queues=CELLS, defragment="apply", evictions_per_day=2, min_run_s=20.0),
    "any": Policy(
        queues=MODELS,
        backfill=Backfill("any"),
        preemption=Preemption(gain=0.5),
        order=("priority", "remaining_service", "arrival"),
    ),
    "blind": Policy(
        queues=MODELS, placement="random", placement_seed=3, defragment="apply", half_life_s=50.0
    ),
    "turns quotas": Policy(
        queues=MODELS, time_sharing=TimeSharing(("research", "batch"), 15.0), grace_s=5.0
    ),
}
"""Quotas of models, cells, users and turns at once, beside the policies that have one of these each."""
EVERY_KIND = POLICIES | MIXED


def a_job(lots: Random, name: str, jobs: list[str], guesses: bool) -> Job:
    models = lots.choice([(), (), (A,), (B, A)])
    kind = lots.random()
    members = lots.randint(1, 4)
    if kind < 0.6:
        shape = Shape(gpus=lots.choice([1, 2, 4]), models=models, cpus=lots.choice([0.0, 2.0]))
    elif kind < 0.85:
        shape = Shape(gpu_share=lots.choice([0.25, 0.5]), neighbours=True, isolation="time-slicing")
    else:
        shape = Shape(mig=lots.choice(["1g.10gb", "3g.40gb"]), models=(A,))
    return Job(
        name,
        (Role("worker", members, shape, run=("true",)),),
        queue=lots.choice(QUEUES),
        priority=lots.choice(["research", "batch", "batch", "production", "serving"]),
        user=lots.choice(["ann", "bob"]),
        topology=TopologySpec(required=lots.choice([None, None, "leaf"])),
        preemptible=lots.random() < 0.85,
        elastic=Elastic(1, members + 2) if shape.gpus and lots.random() < 0.35 else None,
        checkpoint=lots.choice([None, Checkpoint(grace_s=20)]),
        restarts=Restarts(1, 5.0, replace_s=lots.choice([None, 30.0])),
        time_limit_s=lots.choice([None, 50.0, 200.0]),
        expected_s=lots.choice([None, 40.0]) if guesses else 40.0,
        after=(lots.choice(jobs),) if jobs and lots.random() < 0.1 else (),
        held=lots.random() < 0.05,
    )


class Lives:
    """One scheduler that lives at random, and twins of it that must decide the same."""

    def __init__(self, seed: int, policy: Policy, guesses: bool = True) -> None:
        self.guesses = guesses
        self.lots = Random(seed)
        self.policy = policy
        self.scheduler = Scheduler(policy)
        self.twins: list[tuple[str, Scheduler]] = []
        self.facts: list[Fact] = []
        self.codec = SnapshotCodec()
        self.now, self.told = 0.0, 0
        self.tell(ClusterObserved, cluster=site(self.lots.choice([0, 0, 1])))

    def tell(self, kind: type[Event], **more: Any) -> None:
        self.told += 1
        self.handle([kind(id=f"e{self.told}", observed_at=self.now, **more)])

    def handle(self, events: list[Event]) -> None:
        decision = settled(self.scheduler, events, self.now)
        self.facts += decision.facts
        self.decided(events, decision)
        for name, twin in self.twins:
            assert_same(name, settled(twin, events, self.now), decision)

    def decided(self, events: list[Event], decision: Decision) -> None:
        """What is to be done about a decision; nothing."""

    def step(self) -> None:
        """Anything that may happen."""
        lots = self.lots
        ledger = self.scheduler.ledger
        wake_at = self.scheduler.wake_at()
        if lots.random() < 0.4:
            self.now += lots.choice([0.0, 1.0, 5.0, 20.0])
        elif wake_at is not None and lots.random() < 0.3:
            self.now = max(self.now, wake_at)
            return self.tell(TimePassed)
        starting = [s for s in ledger.holding.values() if s.phase is Phase.STARTING]
        if starting and lots.random() < 0.5:
            one = lots.choice(starting)
            return self.tell(GangStarted, job=one.job, attempt=one.attempt)
        lots.choice(self.ways())(self)
        return None

    def ways(self) -> Sequence[Callable[[Any], None]]:
        """What may happen; what stands there twice does so twice as often."""
        return list(WAYS.values())

    def any_job(self, *phases: Phase) -> Any:
        there = [s for s in self.scheduler.ledger.jobs.values() if s.phase in phases]
        return self.lots.choice(there) if there else None

    def submit(self) -> None:
        ledger = self.scheduler.ledger
        specs = [
            self.a_job(f"j{self.told}-{number}", list(ledger.jobs))
            for number in range(self.lots.randint(1, 3))
        ]
        self.told += 1
        self.handle(
            [
                JobSubmitted(id=f"s{spec.name}", observed_at=self.now, job=spec.name, spec=spec)
                for spec in specs
            ]
        )

    def a_job(self, name: str, jobs: list[str]) -> Job:
        return a_job(self.lots, name, jobs, self.guesses)

    def of_an_attempt(self, kind: type[Event], *phases: Phase, **more: Any) -> None:
        one = self.any_job(*(phases or HOLDING))
        if one is not None:
            self.tell(kind, job=one.job, attempt=one.attempt, **more)

    def save(self) -> None:
        one = self.any_job(Phase.RUNNING, Phase.SAVING)
        if one is not None:
            self.tell(
                CheckpointSaved,
                job=one.job,
                attempt=one.attempt,
                step=self.told,
                request=one.request,
            )

    def of_a_job(self, kind: type[Event], *phases: Phase, **more: Any) -> None:
        one = self.any_job(*phases)
        if one is not None:
            self.tell(kind, job=one.job, **more)

    def scale(self) -> None:
        one = self.any_job(Phase.PENDING, Phase.RUNNING)
        if one is not None and one.spec.elastic is not None:
            self.tell(ScaleRequested, job=one.job, members=one.spec.elastic.max - 1)

    def of_a_node(self, kind: type[Event], **more: Any) -> None:
        self.tell(kind, node=self.lots.choice(NODES), **more)

    def lose_member(self) -> None:
        """A member that runs ends with an error; often it is another one than the first."""
        one = self.any_job(Phase.RUNNING)
        if one is not None:
            rank = self.lots.randrange(len(one.placement.members))
            told = {"rank": rank, "exit_code": 1, "life": one.life_of(rank)}
            self.tell(RankExited, job=one.job, attempt=one.attempt, **told)

    def start_member(self) -> None:
        """A member that was replaced runs again."""
        gapped = list(self.scheduler.ledger.gapped.values())
        if gapped:
            one = self.lots.choice(gapped)
            member = one.missing[0].member
            told = {"member": member, "life": one.life_of(member)}
            self.tell(MemberStarted, job=one.job, attempt=one.attempt, **told)

    def change_site(self) -> None:
        if self.lots.random() < 0.3:
            self.tell(ClusterObserved, cluster=site(self.lots.choice([0, 1])))

    def make_twin(self, policy: Policy | None = None) -> Scheduler:
        """Through the text and back; the codec goes on from what had ended before."""
        snapshot = snapshot_of(self.scheduler, self.codec.begin(self.scheduler.ledger.forgotten))
        text = self.codec.encode(snapshot)
        self.codec = SnapshotCodec()
        return restored(self.codec.decode(text), policy or self.policy)

    def folded(self, policy: Policy | None = None) -> Scheduler:
        fold = Scheduler(policy or self.policy)
        fold.recover(self.facts)
        return fold


WAYS: dict[str, Callable[[Lives], None]] = {
    "submit": Lives.submit,
    "submit more": Lives.submit,
    "end": lambda lives: lives.of_an_attempt(GangEnded, exit_code=0),
    "end when told": lambda lives: lives.of_an_attempt(
        GangEnded, Phase.STOPPING, Phase.SAVING, exit_code=143
    ),
    "break": lambda lives: lives.of_an_attempt(GangEnded, exit_code=1),
    "fail": lambda lives: lives.of_an_attempt(RankExited, Phase.RUNNING, rank=0, exit_code=1),
    "save": Lives.save,
    "cancel": lambda lives: lives.of_a_job(CancelRequested, Phase.PENDING, Phase.RUNNING),
    "hold": lambda lives: lives.of_a_job(HoldRequested, Phase.PENDING),
    "release": lambda lives: lives.of_a_job(ReleaseRequested, Phase.PENDING),
    "suspend": lambda lives: lives.of_a_job(SuspendRequested, Phase.RUNNING),
    "reprioritise": lambda lives: lives.of_a_job(
        PriorityRequested, Phase.PENDING, Phase.RUNNING, priority="serving"
    ),
    "scale": Lives.scale,
    "lose a member": Lives.lose_member,
    "start a member": Lives.start_member,
    "unwell": lambda lives: lives.of_a_node(
        HealthObserved, source="dcgm", reason=lives.lots.choice(["", "XID 79", "XID 48"])
    ),
    "lose": lambda lives: lives.of_a_node(NodeLost),
    "return": lambda lives: lives.of_a_node(NodeReturned),
    "return again": lambda lives: lives.of_a_node(NodeReturned),
    "cordon": lambda lives: lives.of_a_node(CordonRequested, drain=lives.lots.random() < 0.5),
    "uncordon": lambda lives: lives.of_a_node(UncordonRequested),
    "label": lambda lives: lives.of_a_node(LabelRequested, labels=(("rack", "x"), ("new", "y"))),
    "change": Lives.change_site,
    "forget": lambda lives: lives.tell(
        EndedJobsDue, keep=lives.lots.choice([0, 2, 5]), ended_before=lives.now
    ),
}


def assert_same(name: str, ours: Decision, theirs: Decision) -> None:
    assert ours.facts == theirs.facts, name
    assert ours.orders == theirs.orders, name
    assert ours.wake_at == theirs.wake_at, name
