"""Claims that are settled: a claimant before whom somebody goes by the time its room is free is not started to be
stopped at once; what else is held for one that starts is free to the others.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.state import JobState
from gantree.model.cluster import Cluster, Node
from gantree.model.events import GangEnded, HoldRequested, JobSubmitted, PriorityRequested
from gantree.model.facts import GangPlaced, GangPreempted
from gantree.model.jobs import Job
from gantree.model.phases import Phase
from gantree.policy.rules import Backfill, Boost, Policy, Preemption, QueueRule
from gantree.testing.builders import cluster, job, machine
from gantree.testing.stage import Stage


def claimed(policy: Policy | None = None, nodes: int = 1) -> Stage:
    """A gang claims the room of one of a lower class, which leaves."""
    stage = Stage(cluster(leaves=1, nodes=nodes, gpus=4), policy or Policy())
    stage.submit(job("leaves", gpus=4, priority="batch"))
    stage.started("leaves")
    for number in range(1, nodes):
        stage.submit(job(f"stays{number}", gpus=4, priority="serving"))
    stage.submit(job("claims", gpus=4, priority="production"))
    assert list(stage.scheduler.ledger.claims) == ["claims"]
    return stage


def what_followed(stage: Stage, told: int) -> list[str]:
    """Who was placed (+) and who was stopped for somebody (-) since so many facts."""
    sign = {GangPlaced: "+", GangPreempted: "-"}
    return [sign[type(f)] + f.job for f in stage.facts[told:] if isinstance(f, GangPlaced | GangPreempted)]  # fmt: skip


@pytest.mark.parametrize(("changed", "priority"), [("claims", "research"), ("leaves", "serving")])
def test_who_was_stopped_for_one_that_goes_after_it_by_now_has_its_room_back(
    changed: str, priority: str
) -> None:
    stage = claimed()
    stage.tell(PriorityRequested, job=changed, priority=priority)
    told = len(stage.facts)
    stage.ended("leaves")
    assert what_followed(stage, told) == ["+leaves"]
    assert not stage.scheduler.ledger.claims


@pytest.mark.parametrize("across", [True, False])
def test_in_a_queue_that_is_owed_the_room_too_nobody_is_started_to_be_stopped_at_once(
    across: bool,
) -> None:
    """What the claimant is owed its victim is owed as well."""
    queues = (QueueRule("default", guarantee={"gpus": 4}),)
    stage = claimed(Policy(queues=queues, preemption=Preemption(across=across)))
    stage.tell(PriorityRequested, job="leaves", priority="serving")
    told = len(stage.facts)
    stage.ended("leaves")
    assert what_followed(stage, told) == ["+leaves"]


def test_nobody_passes_a_claimant_whose_victim_still_leaves() -> None:
    """The victim once waited with a higher priority; it waits no more, so the claimant is not put off for it."""
    stage = Stage(cluster(leaves=1, nodes=2, gpus=4), Policy(backfill=Backfill("any")))
    stage.submit(job("leaves", gpus=4, priority="serving"))
    stage.submit(job("ends", gpus=4, priority="serving"))
    stage.started("leaves", "ends")
    stage.tell(PriorityRequested, job="leaves", priority="batch")
    stage.submit(job("claims", gpus=4, priority="production"), job("low", gpus=4, priority="batch"))
    assert list(stage.scheduler.ledger.claims) == ["claims"]
    stage.tell(PriorityRequested, job="leaves", priority="serving")
    told = len(stage.facts)
    stage.ended("ends")
    assert what_followed(stage, told) == ["+claims"]


def test_by_order_too() -> None:
    policy = Policy(
        order=("priority", "arrival"), preemption=replace(Policy().preemption, by="order")
    )
    stage = claimed(policy)
    stage.tell(PriorityRequested, job="claims", priority="research")
    told = len(stage.facts)
    stage.ended("leaves")
    assert what_followed(stage, told) == ["+leaves"]


@pytest.mark.parametrize("ends_first", [True, False])
def test_who_comes_in_the_moment_in_which_the_room_is_free_is_asked_first(ends_first: bool) -> None:
    stage = claimed()
    told, attempt = len(stage.facts), stage.state("leaves").attempt
    events = [
        stage.event(GangEnded, job="leaves", attempt=attempt, exit_code=0),
        stage.event(JobSubmitted, job="comes", spec=job("comes", gpus=4, priority="serving")),
    ]
    stage.handle(events if ends_first else events[::-1])
    assert what_followed(stage, told) == ["+comes"]


def test_the_claimant_starts_where_they_have_room_elsewhere() -> None:
    stage = claimed(nodes=2)
    stage.tell(PriorityRequested, job="leaves", priority="serving")
    told = len(stage.facts)
    attempts = {name: stage.state(name).attempt for name in ("leaves", "stays1")}
    stage.started("stays1")
    stage.handle(
        [stage.event(GangEnded, job=name, attempt=attempts[name], exit_code=0) for name in attempts]
    )
    assert sorted(what_followed(stage, told)) == ["+claims", "+leaves"]


def test_who_has_waited_for_another_job_until_then_is_asked_first() -> None:
    stage = Stage(cluster(leaves=1, nodes=2, gpus=4))
    stage.submit(
        job("leaves", gpus=4, priority="batch"), job("prepares", gpus=4, priority="serving")
    )
    stage.started("leaves", "prepares")
    stage.submit(job("claims", gpus=4, priority="production"))
    stage.submit(job("then", 2, 4, priority="serving", after=("prepares",)))
    told = len(stage.facts)
    attempts = {name: stage.state(name).attempt for name in ("leaves", "prepares")}
    stage.handle(
        [stage.event(GangEnded, job=name, attempt=attempts[name], exit_code=0) for name in attempts]
    )
    assert what_followed(stage, told) == ["+then"]


def test_a_claimant_whose_boost_expires_then_goes_after_a_third_one() -> None:
    policy = Policy(boosts=(Boost(by=300, until_s=60.0, job="claims"),))
    stage = Stage(cluster(leaves=1, nodes=1, gpus=4), policy)
    stage.submit(job("leaves", gpus=4, priority="batch"))
    stage.started("leaves")
    stage.submit(
        job("claims", gpus=4, priority="batch"), job("third", gpus=4, priority="production")
    )
    assert list(stage.scheduler.ledger.claims) == ["claims"]
    told, stage.now = len(stage.facts), 60.0
    stage.ended("leaves")
    assert what_followed(stage, told) == ["+third"]


def test_nobody_is_looked_for_a_place_before_the_claimed_room_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many of a higher class come: each search of each for each claim took minutes."""
    asked: list[str] = []

    def looks(_: DecisionBuilder, state: JobState) -> bool:
        asked.append(state.job)
        return False

    monkeypatch.setattr("gantree.core.cycle.claim_admission._may_start_over_claims", looks)
    stage = claimed()
    large = [job(f"large{number}", 2, 4, priority="serving") for number in range(6)]
    stage.submit(*large[:3])
    assert not asked
    attempt = stage.state("leaves").attempt
    came = [stage.event(JobSubmitted, job=spec.name, spec=spec) for spec in large[3:]]
    stage.handle([*came, stage.event(GangEnded, job="leaves", attempt=attempt, exit_code=0)])
    assert asked == ["large3"]
    assert stage.phase("claims") is Phase.STARTING


@pytest.mark.parametrize("then", [[], [HoldRequested]])
def test_the_claimant_starts_where_they_wait_for_something_else_than_room(
    then: Sequence[type[HoldRequested]],
) -> None:
    """Its victim is held by hand; or it may never have that room, as its queue has too little."""
    queues = (QueueRule("few", limit={"gpus": 2}), QueueRule("default"))
    stage = Stage(
        cluster(leaves=1, nodes=1, gpus=4), Policy(queues=queues, backfill=Backfill("any"))
    )
    stage.submit(job("leaves", gpus=4, priority="batch"))
    stage.started("leaves")
    stage.submit(job("claims", gpus=4, priority="production"))
    stage.submit(replace(job("comes", gpus=4, priority="serving"), queue="few"))
    stage.tell(PriorityRequested, job="leaves", priority="serving")
    for kind in then:
        stage.tell(kind, job="leaves")
    told = len(stage.facts)
    stage.ended("leaves")
    assert what_followed(stage, told) == (["+claims"] if then else ["+leaves"])


def test_who_asks_for_any_model_takes_no_claim_that_is_owed_that_of_its_model() -> None:
    """Judged by GPUs of any model it was owed them: it took the claim, was stopped, took it again, and so for ever."""
    first = machine(4, name="ma")
    second = replace(first, name="mb", gpu="A100-80GB")
    nodes = (Node("n0", "ma", ("l0",)), Node("n1", "mb", ("l0",)))
    queues = (
        QueueRule("owner", guarantee={f"gpus/{first.gpu}": 4}),
        QueueRule("other", guarantee={f"gpus/{second.gpu}": 4}),
        QueueRule("any", guarantee={"gpus": 2}),
    )
    site = Cluster("two", ("leaf", "node"), {"ma": first, "mb": second}, nodes)
    stage = Stage(site, Policy(queues=queues))
    stage.submit(of_model(replace(job("stays", gpus=4), queue="other"), second.gpu))
    stage.submit(replace(job("guest", gpus=2, priority="serving"), queue="any"))
    stage.submit(of_model(replace(job("owed", gpus=4), queue="owner"), first.gpu))
    assert list(stage.scheduler.ledger.claims) == ["owed"]
    told = len(stage.facts)
    stage.ended("guest")
    assert what_followed(stage, told) == ["+owed"]


def of_model(spec: Job, model: str | None) -> Job:
    """The same job, on GPUs of one model."""
    (role,) = spec.roles
    assert model is not None
    return replace(spec, roles=(replace(role, shape=replace(role.shape, models=(model,))),))


def test_who_is_owed_nothing_keeps_no_claim_from_a_higher_class_for_what_nobody_rations() -> None:
    """Its queue has no guarantee: that the model which it gets is counted for nobody makes it no due of its own."""
    first = machine(4, name="ma")
    second = replace(first, name="mb", gpu="A100-80GB")
    nodes = (Node("n0", "ma", ("l0",)), Node("n1", "mb", ("l0",)))
    queues = (QueueRule("owner", guarantee={f"gpus/{first.gpu}": 4}), QueueRule("plain"))
    site = Cluster("two", ("leaf", "node"), {"ma": first, "mb": second}, nodes)
    stage = Stage(site, Policy(queues=queues))
    stage.submit(of_model(replace(job("stays", gpus=4), queue="owner"), first.gpu))
    low, middle, high = (
        replace(job(name, gpus=4, priority=priority), queue="plain")
        for name, priority in (("low", "research"), ("middle", "batch"), ("high", "serving"))
    )
    stage.submit(of_model(low, second.gpu))
    stage.submit(middle)
    stage.submit(of_model(high, second.gpu))
    assert list(stage.scheduler.ledger.claims) == ["high"]


def test_a_claimant_has_what_another_no_longer_needs_that_starts_in_the_same_moment() -> None:
    """The start that `x` was told, on n0, is void once it stands elsewhere: `y` need not wait for whom it stops."""
    stage = Stage(cluster(leaves=3, nodes=2, gpus=4), Policy(min_run_s=30.0))
    for name in ("gone", "long", "v1", "v2", "v3", "stays"):
        priority = "research" if name.startswith("v") else "serving"
        stage.submit(job(name, gpus=4, priority=priority, time_limit_s=500.0))
        stage.started(name)
    stage.ended("gone")
    stage.submit(job("x", 2, 4, priority="production", required="leaf"))
    stage.wait(30.0)
    stage.submit(job("y", gpus=4, priority="serving"))
    claims, told = stage.scheduler.ledger.claims, stage.scheduler.ledger.reservations
    assert {name: claims[name].victims for name in claims} == {"x": ("v2", "v1"), "y": ("v3",)}
    assert told["x"].promised and "n0" in told["x"].placement.nodes
    for name in ("v1", "v2"):
        stage.cancel(name)
        stage.ended(name)
    assert (stage.phase("x"), stage.nodes("y")) == (Phase.STARTING, ["n0"])
