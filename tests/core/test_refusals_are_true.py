"""Whatever `why` says of a job that waits alone is true: its gate, its numbers, and who would have to end for it.

Random gangs run, and nobody else waits; then one more comes. A twin counts what is free by hand, node by node, and what
is said of others' ends is tried out: they end.
"""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import HealthCheck, assume, event, example, given, settings
from hypothesis import Phase as Stages
from hypothesis import strategies as st

from gantree.core.explain.explain import when, why
from gantree.core.explain.explanation import Explanation
from gantree.core.ledger.ledger import Ledger
from gantree.model.cluster import Cluster, Node
from gantree.model.events import NodeLost
from gantree.model.jobs import Job
from gantree.model.phases import Phase
from gantree.model.verdicts import Gate, Refused
from gantree.policy.rules import Policy, Preemption, QueueRule
from gantree.testing.builders import cluster, job, machine
from support.examples import examples
from support.lives import Life

LEAVES, NODES, GPUS = 2, 2, 4
TIERS = {None: NODES * LEAVES, "leaf": NODES, "node": 1}
"""Tier -> nodes of one of its domains."""
CLASSES = ("research", "batch", "serving")
QUEUES = (
    (QueueRule("a"), QueueRule("b")),
    (QueueRule("a", guarantee={"gpus": 6}), QueueRule("b")),
    (QueueRule("a", guarantee={"gpus": 8}, lend={"gpus": 2}), QueueRule("b", limit={"gpus": 8})),
    (QueueRule("a", guarantee={"gpus": 4}), QueueRule("b", borrow={"gpus": 6}, most_running=3)),
)

policies = st.builds(
    Policy,
    queues=st.sampled_from(QUEUES),
    preemption=st.builds(
        Preemption,
        by=st.sampled_from(["priority", "order", "none"]),
        who=st.sampled_from([{}, {"serving": ("research",)}]),
        across=st.booleans(),
    ),
    min_run_s=st.sampled_from([0.0, 30.0]),
    evictions_per_day=st.sampled_from([None, 0]),
)


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """A gang of equal members, within a domain or not."""
    spec = job(
        "",
        draw(st.sampled_from([1, 1, 2, 3, 4, 5])),
        draw(st.sampled_from([1, 2, 2, 3, 4, 4, 5])),
        priority=draw(st.sampled_from(CLASSES)),
        required=draw(st.sampled_from([None, None, "leaf", "node"])),
        time_limit_s=draw(st.sampled_from([None, 100.0])),
    )
    queue, preemptible = draw(st.sampled_from("ab")), draw(st.sampled_from([True, True, False]))
    return replace(spec, queue=queue, preemptible=preemptible)


lives = st.tuples(policies, st.lists(jobs(), min_size=3, max_size=9), jobs(), st.booleans())
SETTINGS = settings(
    max_examples=examples(20),
    deadline=None,
    phases=(Stages.explicit, Stages.generate),
    suppress_health_check=list(HealthCheck),
)


def alone(life: Life) -> None:
    """Nobody waits any more."""
    life.quiet()
    for state in list(life.jobs.values()):
        if state.phase is Phase.PENDING:
            life.stage.cancel(state.job)


def told(wishes: tuple[Policy, list[Job], Job, bool]) -> tuple[Life, Explanation, Refused]:
    """The life in which the last gang waits for others who run, and what is said of it."""
    policy, running, wanted, loses = wishes
    life = Life(cluster(leaves=LEAVES, nodes=NODES, gpus=GPUS), policy)
    for number, spec in enumerate(running):
        life.submit(replace(spec, name=f"j{number}"))
    if loses:
        life.stage.tell(NodeLost, node="n3")
    alone(life)
    life.submit(replace(wanted, name="wanted"))
    life.quiet()
    for state in list(life.jobs.values()):
        if state.phase is Phase.PENDING and state.job != "wanted":
            life.stage.cancel(state.job)
    assume(life.jobs["wanted"].phase is Phase.PENDING)
    explained = why(life.stage.scheduler.ledger, "wanted", life.now)
    assert explained.refused is not None, explained.sentence
    return life, explained, explained.refused


def free_gpus_of_node(ledger: Ledger, *, empty: bool = False) -> list[int]:
    """Free GPUs of each node, by who holds what; none of a node that is out of use."""
    free = [GPUS] * (LEAVES * NODES)
    if empty:
        return free
    for node in range(len(free)):
        if f"n{node}" in ledger.unusable:
            free[node] = 0
    for state in ledger.holding.values():
        for member in state.placement.members if state.placement else ():
            free[int(member.node[1:])] -= len(member.gpus)
    return [max(0, gpus) for gpus in free]


def members_that_fit(free: list[int], spec: Job) -> int:
    """The most members that one domain of the tier that is asked for has room for."""
    nodes = TIERS[spec.topology.required]
    members = [gpus // spec.roles[0].shape.gpus for gpus in free]
    return max(sum(members[first : first + nodes]) for first in range(0, len(free), nodes))


def check_quota(ledger: Ledger, spec: Job, refused: Refused) -> None:
    """By the words of the rules; all that a queue is guaranteed and does not use is lent, up to `lend`."""
    rule, *others = sorted(ledger.policy.queues, key=lambda each: each.path != spec.queue)
    mine, theirs = (
        0 if refused.never else used(ledger, path) for path in (rule.path, others[0].path)
    )
    if refused.gate is Gate.LIMIT:
        if refused.short_by and refused.short_by.resource == "gpus":
            assert refused.short_by.amount == mine + spec.gpus - rule.limit["gpus"]
        return
    guaranteed = {each.path: each.guarantee.get("gpus", 0.0) for each in ledger.policy.queues}
    if not spec.preemptible:
        assert mine + spec.gpus > guaranteed[rule.path]
        return
    idle = max(0.0, guaranteed[others[0].path] - theirs)
    kept = max(0.0, idle - others[0].lend.get("gpus", idle))
    left = LEAVES * NODES * GPUS - mine - theirs - kept
    left = min(left, guaranteed[rule.path] + rule.borrow.get("gpus", inf) - mine)
    assert refused.short_by is not None and refused.short_by.amount == spec.gpus - max(0.0, left)


def used(ledger: Ledger, queue: str) -> int:
    return sum(state.gpus for state in ledger.holding.values() if state.spec.queue == queue)


@given(lives)
@SETTINGS
def test_the_gate_and_its_numbers_are_those_of_a_count_by_hand(
    wishes: tuple[Policy, list[Job], Job, bool],
) -> None:
    life, _, refused = told(wishes)
    ledger, spec = life.stage.scheduler.ledger, life.jobs["wanted"].spec
    event(refused.gate)
    if refused.gate in (Gate.LIMIT, Gate.QUOTA):
        check_quota(ledger, spec, refused)
        return
    free, each = free_gpus_of_node(ledger), spec.roles[0].shape.gpus
    fits_empty = members_that_fit(free_gpus_of_node(ledger, empty=True), spec) >= spec.members
    assert refused.never is not fits_empty
    assert members_that_fit(free, spec) < spec.members
    assert (refused.gate is Gate.SHAPE) is (each > GPUS)
    if not refused.never and refused.gate is not Gate.HARM:
        assert (refused.gate is Gate.ROOM) is (sum(free) < spec.gpus)
    if not refused.never and sum(free) < spec.gpus:
        assert refused.short_by is not None
        assert (refused.short_by.resource, refused.short_by.amount) == (
            "gpus",
            spec.gpus - sum(free),
        )


YOUNG = (
    Policy(queues=QUEUES[1], preemption=Preemption(by="order"), min_run_s=30.0),
    [
        replace(job("", 3, 2, time_limit_s=100.0), queue="b"),
        replace(job("", 3, 2, time_limit_s=100.0), queue="b"),
        replace(job("", 3, 1, time_limit_s=100.0), queue="a"),
    ],
    replace(job("", 4, 2, priority="serving", required="leaf", time_limit_s=100.0), queue="b"),
    False,
)
"""In 30 s those may be stopped who use up the quota; but the third, who stays, holds GPUs of both leaves."""

TOLD = (
    Policy(queues=QUEUES[0], preemption=Preemption(by="order"), min_run_s=30.0),
    [replace(job("", 4, 4, priority="research", time_limit_s=100.0), queue="a")],
    replace(job("", 1, 4, required="node"), queue="a", preemptible=False),
    False,
)
"""What a gang was told before it was told a start holds no more: in 30 s it is asked whether others may be stopped."""


@example(TOLD)
@example(YOUNG)
@given(lives)
@SETTINGS
def test_when_those_end_who_are_said_to_be_in_the_way_the_gang_starts(
    wishes: tuple[Policy, list[Job], Job, bool],
) -> None:
    """Those whom it may stop it then stops; and all who are named but one are not enough."""
    life, explained, refused = told(wishes)
    event(f"{refused.gate}, {len(explained.in_the_way)} in the way")
    in_the_way = [name for name, _ in explained.in_the_way]
    assert all(because for _, because in explained.in_the_way)
    for name in in_the_way:
        assert life.jobs["wanted"].phase is Phase.PENDING, f"{name} need not end"
        life.stage.ended(name)
    if in_the_way:
        life.quiet()
        assert life.jobs["wanted"].phase is not Phase.PENDING


@given(lives)
@SETTINGS
def test_a_gang_starts_when_all_have_ended_unless_it_never_does(
    wishes: tuple[Policy, list[Job], Job, bool],
) -> None:
    """Unless a node is lost that it needs; and of one that never starts nobody is told when."""
    life, _, refused = told(wishes)
    event(f"{refused.gate}, never: {refused.never}")
    ledger = life.stage.scheduler.ledger
    if refused.never:
        assert when(ledger, "wanted", life.now) is None
    for name in list(ledger.holding):
        if name != "wanted" and life.jobs[name].phase is not Phase.PENDING:
            life.stage.ended(name)
    life.quiet()
    usable = [0 if f"n{node}" in ledger.unusable else GPUS for node in range(LEAVES * NODES)]
    lacks = members_that_fit(usable, life.jobs["wanted"].spec) < life.jobs["wanted"].spec.members
    assert (life.jobs["wanted"].phase is Phase.PENDING) is (refused.never or lacks)


@pytest.mark.parametrize("models", [("H100-80GB",), ("H100-80GB", "A100-80GB")])
def test_nobody_is_told_when_a_gang_starts_whose_queue_may_have_too_little_of_every_model(
    models: tuple[str, ...],
) -> None:
    """Counted in GPUs of any model there is room for it as soon as the other one has ended."""
    plain = machine(GPUS)
    machines = {model: replace(plain, name=model, gpu=model) for model in models}
    nodes = tuple(Node(f"n{number}", models[number % len(models)], ()) for number in range(2))
    limit = {f"gpus/{model}": 3.0 for model in models}
    rules = (QueueRule("a", limit=limit), QueueRule("b"))
    life = Life(Cluster("models", ("node",), machines, nodes), Policy(queues=rules))
    life.submit(replace(job("other", 2, gpus=GPUS, time_limit_s=100), queue="b"))
    life.submit(replace(job("wanted", gpus=GPUS), queue="a"))
    explained = why(life.stage.scheduler.ledger, "wanted", 0)
    assert explained.refused is not None and explained.refused.never
    assert when(life.stage.scheduler.ledger, "wanted", 0) is None
