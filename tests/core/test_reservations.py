"""What a waiting gang is promised, whatever comes later: random lives with limits, losses and cancellations."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import Phase as Stages
from hypothesis import strategies as st

from gantree.core.explain.explain import when, why
from gantree.core.reservations.reservations import LATE_S
from gantree.core.scheduler import Scheduler
from gantree.model.cluster import Cluster
from gantree.model.events import (
    CancelRequested,
    Event,
    HoldRequested,
    NodeLost,
    SuspendRequested,
    TimePassed,
)
from gantree.model.facts import (
    AttemptEnded,
    Fact,
    GangPlaced,
    JobEnded,
    ReservationDropped,
    ReservationMade,
)
from gantree.model.jobs import Checkpoint, Elastic, Job
from gantree.model.phases import Phase
from gantree.model.site_facts import NodeMarked
from gantree.policy.rules import Backfill, Policy, Preemption, QueueRule
from gantree.testing.builders import cluster, job, machine
from gantree.testing.stage import Stage
from support.examples import examples
from support.lives import Life

GRACE_S = 10.0
CLASSES = ("research", "batch", "production", "serving")


def slipped(facts: Sequence[Fact]) -> list[str]:
    """Jobs whose promised start was put off or passed, though no node was lost since: written from the words."""
    promised: dict[str, float] = {}
    slips = []
    for fact in facts:
        job_id = getattr(fact, "job", "")
        if isinstance(fact, NodeMarked) and not fact.usable:
            promised.clear()
        elif isinstance(fact, JobEnded):
            promised.pop(job_id, None)
        elif isinstance(fact, ReservationMade):
            if job_id in promised and (fact.starts_at > promised[job_id] or not fact.promised):
                slips.append(job_id)
            if fact.promised:
                promised[job_id] = fact.starts_at
        elif isinstance(fact, GangPlaced) and fact.at <= promised.get(job_id, fact.at) + LATE_S:
            promised.pop(job_id, None)
        slips += [late for late, moment in promised.items() if fact.at > moment + LATE_S]
    return slips


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """A gang with a limit, mostly."""
    members = draw(st.integers(1, 4))
    spec = job(
        "",
        members,
        draw(st.sampled_from([1, 2, 4])),
        priority=draw(st.sampled_from(CLASSES)),
        time_limit_s=draw(st.sampled_from([40.0, 60.0, 100.0, 300.0, None])),
    )
    return replace(spec, preemptible=draw(st.booleans()))


policies = st.builds(
    Policy,
    order=st.sampled_from([("priority", "share", "arrival"), ("remaining_service", "arrival")]),
    backfill=st.builds(Backfill, reservations=st.sampled_from([1, 2, 4])),
    preemption=st.builds(Preemption, by=st.sampled_from(["priority", "order", "none"])),
    grace_s=st.just(GRACE_S),
)
moments = st.tuples(
    jobs(),
    st.sampled_from([10.0, 30.0, 80.0, 500.0]),
    st.sampled_from([0.0, 5.0, 10.0]),
    st.sampled_from([0.0, 5.0, 20.0, 40.0]),
    st.sampled_from(["", "", "", "", "", "lose", "cancel"]),
)


@given(policies, st.lists(moments, min_size=4, max_size=14))
@settings(
    max_examples=examples(12),
    deadline=None,
    phases=(Stages.generate,),
    suppress_health_check=list(HealthCheck),
)
def test_a_promised_start_is_kept_unless_a_node_is_lost(
    policy: Policy, lives: list[tuple[Job, float, float, float, str]]
) -> None:
    """Nothing that comes later, of whatever priority, puts it off; nor does any decision of ours."""
    life = Life(cluster(leaves=2, nodes=2, gpus=4), policy)
    for number, (spec, runs_s, leaves_s, pause_s, accident) in enumerate(lives):
        life.submit(replace(spec, name=f"j{number}"), runs_s=runs_s, leaves_s=leaves_s)
        if accident == "lose":
            life.stage.tell(NodeLost, node=f"n{number % 4}")
        if accident == "cancel":
            life.stage.cancel(f"j{number // 2}")
        life.pause(0.0)  # who was placed by that begins at once: time limits count from then
        life.until(life.now + pause_s)
    life.until(life.now + 400)
    assert slipped(life.stage.facts) == []


POOL = (("pool", "second"),)


def with_a_pool(site: Cluster) -> Cluster:
    """Two nodes, of which the second is in a pool."""
    first, second = site.nodes
    return replace(site, nodes=(first, replace(second, labels=POOL)))


def in_the_pool(spec: Job) -> Job:
    """The job, to run nowhere else."""
    (role,) = spec.roles
    return replace(spec, roles=(replace(role, shape=replace(role.shape, labels=POOL)),))


@pytest.fixture
def life() -> Life:
    """One node of 8 GPUs, six of them taken by `long` until 100 s and 10 s more at most."""
    life = Life(cluster(leaves=1, nodes=1), Policy(grace_s=GRACE_S))
    life.submit(job("long", gpus=6, time_limit_s=100), leaves_s=GRACE_S)
    return life


def test_who_passes_and_begins_late_is_named_as_the_cause(life: Life) -> None:
    """Its time limit counts from when it runs, so it may stay longer than when it was let in front."""
    stage = life.stage
    life.submit(job("big", gpus=8, time_limit_s=50), runs_s=50)
    life.until(20)
    stage.submit(job("small", gpus=2, time_limit_s=75))
    assert life.jobs["small"].phase is Phase.STARTING
    stage.wait(40)
    stage.started("small")
    stage.wait(50)
    stage.ended("long")
    stage.wait(10)
    (dropped,) = (fact for fact in stage.facts if isinstance(fact, ReservationDropped))
    assert dropped.reason == "small began later than it was to"


def test_a_start_is_promised_where_everybody_in_the_way_has_a_limit(life: Life) -> None:
    life.submit(job("big", gpus=8, time_limit_s=50), runs_s=50)
    start = when(life.stage.scheduler.ledger, "big", 0)
    assert start is not None
    assert (start.starts_at, start.promised, start.waits_for) == (110, True, ("long",))
    life.until(110)
    assert life.jobs["big"].placed_at == 110


def test_a_gang_without_a_limit_in_the_way_makes_an_estimate(life: Life) -> None:
    life.submit(job("endless", gpus=2))
    life.submit(job("big", gpus=8))
    start = when(life.stage.scheduler.ledger, "big", 0)
    assert start is not None and not start.promised


@pytest.mark.parametrize(("limit_s", "starts"), [(100, True), (101, False), (None, False)])
def test_only_what_is_gone_in_time_runs_in_front_of_a_promise(
    life: Life, limit_s: float | None, starts: bool
) -> None:
    life.submit(job("big", gpus=8, time_limit_s=50))
    life.submit(job("small", gpus=2, time_limit_s=limit_s))
    assert (life.jobs["small"].phase is Phase.RUNNING) is starts


def test_promises_are_several_deep_and_none_delays_another(life: Life) -> None:
    for name in ("first", "second", "third"):
        life.submit(job(name, gpus=8, time_limit_s=50), leaves_s=GRACE_S)
    ledger = life.stage.scheduler.ledger
    told = [ledger.reservations[name].starts_at for name in ("first", "second", "third")]
    assert told == [110, 170, 230]
    assert all(reservation.promised for reservation in ledger.reservations.values())
    life.until(400)
    placed = [fact.at for fact in life.stage.facts if isinstance(fact, GangPlaced)]
    assert placed == [0, 110, 170, 230]


def test_an_urgent_gang_that_comes_later_does_not_take_the_promised_room(life: Life) -> None:
    life.submit(job("promised", gpus=8, priority="research", time_limit_s=50), runs_s=50)
    life.until(100)
    life.submit(job("urgent", gpus=8, priority="serving", time_limit_s=50), runs_s=50)
    life.until(110)
    assert life.jobs["promised"].placed_at == 110


def test_a_promise_of_one_gpu_shields_nobody_and_is_kept_where_its_holder_is_stopped() -> None:
    """The whole gang stands where `tiny` starts at its end; `urgent` has the rest of its place, and `tiny` its own."""
    stage = Stage(cluster(leaves=2, nodes=2))
    stage.submit(job("wide", 4, 8, time_limit_s=3_600.0))
    stage.started("wide")
    stage.submit(job("tiny", gpus=1, priority="research", time_limit_s=600.0))
    assert stage.scheduler.ledger.reservations["tiny"].promised
    stage.submit(job("urgent", 2, 8, priority="serving", time_limit_s=1_200.0))
    assert stage.phase("wide") is Phase.STOPPING
    stage.ended("wide")
    assert (stage.phase("urgent"), stage.phase("tiny")) == (Phase.STARTING, Phase.STARTING)
    assert stage.state("wide").phase is Phase.PENDING


def test_a_gang_does_not_shrink_onto_room_that_is_promised_to_another() -> None:
    """Its time limit counts anew from its new start, so it would be there still at the start that `told` was told."""
    stage = Stage(with_a_pool(cluster(leaves=1, nodes=2)))
    stage.submit(replace(job("elastic", 2, 8, time_limit_s=100.0), elastic=Elastic(1, 2)))
    stage.started("elastic")
    stage.submit(in_the_pool(job("told", gpus=8, priority="research", time_limit_s=600.0)))
    assert stage.scheduler.ledger.reservations["told"].promised
    stage.submit(job("urgent", gpus=8, priority="serving"))
    assert stage.state("elastic").moving is None
    stage.ended("elastic")
    assert (stage.phase("urgent"), stage.phase("told")) == (Phase.STARTING, Phase.STARTING)


def test_nobody_is_stopped_for_room_that_is_promised_to_another() -> None:
    """All that `wide` would leave is reserved for `told`, which may not be put off; that is said to who waits."""
    stage = Stage(cluster(leaves=1, nodes=2))
    stage.submit(job("wide", 2, 8, time_limit_s=3_600.0))
    stage.started("wide")
    stage.submit(job("told", 2, 8, priority="research", time_limit_s=600.0))
    stage.submit(job("urgent", gpus=8, priority="serving", time_limit_s=1_200.0))
    assert stage.phase("wide") is Phase.RUNNING
    explained = why(stage.scheduler.ledger, "urgent", stage.now)
    assert explained.sentence.endswith(
        " Preempting wide would not help: that room is reserved for told."
    )


def test_why_names_no_start_that_gives_way_to_who_asks() -> None:
    """`est` waits for a gang without a limit on n1: it is an estimate, and `urgent` goes before it."""
    stage = Stage(with_a_pool(cluster(leaves=1, nodes=2)))
    for name, limit_s in (("limited", 3_600.0), ("endless", None)):
        stage.submit(job(name, gpus=8, priority="research", time_limit_s=limit_s))
        stage.started(name)
    stage.submit(job("told", gpus=8, priority="research", time_limit_s=600.0))
    stage.submit(in_the_pool(job("est", gpus=8, priority="research", time_limit_s=600.0)))
    reservations = stage.scheduler.ledger.reservations
    assert reservations["told"].promised and not reservations["est"].promised
    stage.submit(job("urgent", 2, 8, priority="serving"))
    sentence = why(stage.scheduler.ledger, "urgent", stage.now).sentence
    assert sentence.endswith("would not help: that room is reserved for told.")


def test_a_promise_becomes_better_when_what_is_in_the_way_ends_early(life: Life) -> None:
    life.submit(job("big", gpus=8))
    life.stage.ended("long")
    assert life.jobs["big"].placed_at == 0


@pytest.mark.parametrize("asked", [CancelRequested, HoldRequested])
def test_a_promise_becomes_better_when_a_gang_that_waits_in_front_goes_away(
    life: Life, asked: type[Event]
) -> None:
    life.submit(job("waits", gpus=8, time_limit_s=100.0))
    life.submit(job("next", gpus=4, time_limit_s=100.0))
    reservations = life.stage.scheduler.ledger.reservations
    before = reservations["next"].starts_at
    life.stage.tell(asked, job="waits")
    assert reservations["next"].starts_at < before
    assert reservations["next"].waits_for == ("long",)


def test_a_row_of_promises_moves_up_together_when_who_goes_first_of_it_goes_away() -> None:
    """The second is not in the way of the first, as it waits for it: both start as early as if `front` had not come."""
    stage = Stage(cluster(leaves=1, nodes=2))
    stage.submit(job("r", 1, 8, time_limit_s=500.0), job("long", 1, 8, time_limit_s=1_000.0))
    stage.started("r", "long")
    stage.submit(job("front", 2, 8, time_limit_s=5_000.0))
    for name in ("second", "third", "fourth"):
        stage.submit(job(name, 2, 8, time_limit_s=100.0))
    reservations = stage.scheduler.ledger.reservations
    before = {name: told.starts_at for name, told in reservations.items()}
    stage.cancel("front")
    assert {name: told.starts_at for name, told in reservations.items() if told.promised} == {
        name: starts_at - (before["second"] - before["front"])
        for name, starts_at in before.items()
        if name != "front"
    }


def test_who_moves_up_holds_its_room_before_those_behind_it() -> None:
    """Else one that comes later and may pass these, whose start is only estimated, takes the room of a promise."""
    stage = Stage(cluster(leaves=1, nodes=2))
    stage.submit(job("r1", gpus=4, time_limit_s=500.0), job("r2", gpus=4, time_limit_s=1_000.0))
    stage.submit(replace(job("nolimit", gpus=8), expected_s=5_000.0))
    stage.started("r1", "r2", "nolimit")
    stage.submit(job("second", gpus=8, time_limit_s=100.0), replace(job("third", 2, 8)))
    reservations = stage.scheduler.ledger.reservations
    assert (reservations["second"].promised, reservations["second"].starts_at) == (True, 1_030.0)
    assert "second" in reservations["third"].waits_for and not reservations["third"].promised
    stage.ended("r2")
    assert reservations["second"].starts_at == 530.0
    stage.submit(replace(job("later", gpus=4), expected_s=100.0))
    assert stage.phase("later") is Phase.PENDING
    assert list(reservations)[:2] == ["second", "third"]


def test_a_promise_of_one_policy_is_an_estimate_by_one_that_puts_a_quota_before_it() -> None:
    stage = Stage(cluster(leaves=1, nodes=2))
    stage.submit(job("runs", gpus=8, time_limit_s=100.0))
    stage.started("runs")
    stage.submit(job("told", 2, 8, time_limit_s=100.0))
    assert stage.scheduler.ledger.reservations["told"].promised
    rules = (QueueRule("default", guarantee={"gpus": 8}), QueueRule("other", guarantee={"gpus": 8}))
    stage.policy = Policy(queues=rules)
    stage.scheduler = Scheduler(stage.policy)
    stage.scheduler.recover(stage.facts)
    decision = stage.tell(TimePassed)
    (dropped, made) = decision.facts
    assert isinstance(dropped, ReservationDropped) and "policy" in dropped.reason
    assert isinstance(made, ReservationMade) and not made.promised
    assert stage.tell(TimePassed).facts == ()


def test_a_holder_that_cannot_be_killed_in_time_is_told_as_the_cause() -> None:
    life = Life(cluster(leaves=1, nodes=1), Policy(grace_s=GRACE_S))
    life.submit(job("stuck", gpus=8, time_limit_s=100), leaves_s=1_000)
    life.submit(job("big", gpus=8, time_limit_s=50))
    life.until(200)
    reasons = [getattr(fact, "reason", "") for fact in life.stage.facts]
    assert "stuck is late to leave" in reasons
    life.until(1_200)
    ends = [fact.at for fact in life.stage.facts if isinstance(fact, AttemptEnded)]
    assert life.jobs["big"].placed_at == ends[0] == 1_100


LIMITED = Policy(queues=(QueueRule("a", limit={"gpus": 4}), QueueRule("b")))


def limited(name: str, queue: str, limit_s: float, priority: str = "serving") -> Job:
    """A gang of one node that may not be stopped for another one of this test."""
    return replace(job(name, gpus=4, priority=priority), queue=queue, time_limit_s=limit_s)


@pytest.mark.parametrize("alike", [1, 6])
def test_who_waited_for_its_own_limit_is_told_a_start_as_soon_as_it_waits_for_room(
    alike: int,
) -> None:
    stage = Stage(cluster(leaves=1, nodes=2, gpus=4), LIMITED)
    stage.submit(limited("r", "a", 100.0), limited("z", "b", 1_000.0))
    stage.started("r", "z")
    names = [f"w{number}" for number in range(alike)]
    stage.submit(*(limited(name, "a", 50.0, "research") for name in names))
    stage.submit(limited("x", "b", 500.0))
    assert list(stage.scheduler.ledger.reservations) == ["x"]
    stage.ended("r")
    assert stage.phase("x") is Phase.STARTING
    assert list(stage.scheduler.ledger.reservations) == names[:4]


def test_a_start_that_waits_for_quota_names_the_gang_that_frees_it() -> None:
    """Its room is free; the queue may borrow no more until a gang has left elsewhere, and the start hangs on that."""
    queues = (QueueRule("a", borrow={"gpus": 4}), QueueRule("b", guarantee={"gpus": 8}))
    stage = Stage(with_a_pool(cluster(leaves=1, nodes=2, gpus=4)), Policy(queues=queues))
    stage.submit(limited("r", "a", 100.0))
    stage.started("r")
    assert stage.nodes("r") == ["n0"]
    stage.submit(in_the_pool(limited("x", "a", 50.0)))
    told = stage.scheduler.ledger.reservations["x"]
    assert (told.starts_at, told.promised, told.waits_for) == (130.0, False, ("r",))
    stage.wait(200.0)
    slipped = [fact.reason for fact in stage.facts if isinstance(fact, ReservationDropped)]
    assert slipped == ["r is late to leave"]


def test_others_leave_for_a_promised_gang_as_soon_as_one_has_left_who_might_have_been_late() -> (
    None
):
    """While `saves` may take longer than until the start, nobody is stopped: there is no hurry. It saves early."""
    policy = Policy(grace_s=GRACE_S, min_run_s=30.0, queues=(QueueRule("default"),))
    stage = Stage(cluster(leaves=1, nodes=2, gpus=4), policy)
    checkpoint = Checkpoint(every_s=10.0, grace_s=60.0)
    for name in ("saves", "low"):
        spec = job(name, gpus=4, priority="research", time_limit_s=60.0)
        stage.submit(replace(spec, checkpoint=checkpoint if name == "saves" else None))
        stage.started(name)
    stage.submit(job("big", 2, 4, priority="production"))
    assert stage.scheduler.ledger.reservations["big"].starts_at == 60.0 + GRACE_S
    stage.wait(20.0)
    stage.tell(SuspendRequested, job="saves")
    assert stage.phase("saves") is Phase.SAVING
    stage.wait(10.0)
    assert stage.phase("low") is Phase.RUNNING
    stage.wait(5.0)
    stage.ended("saves")
    assert stage.phase("low") is Phase.STOPPING


def of_cpus(name: str, gpus: int, priority: str, time_limit_s: float | None) -> Job:
    """A job of so many GPUs that needs 12 of the 16 CPUs of its node."""
    spec = job(name, gpus=gpus, priority=priority, time_limit_s=time_limit_s)
    (role,) = spec.roles
    return replace(spec, roles=(replace(role, shape=replace(role.shape, cpus=12.0)),))


def test_nobody_is_stopped_for_cpus_that_are_promised_to_another() -> None:
    """`told` starts on the CPUs that `holder` leaves, on none of its GPUs: `urgent` may not have them before."""
    site = cluster(leaves=1, nodes=1, gpus=4)
    site = replace(site, machines={"m": machine(4, cpus=16)})
    stage = Stage(site)
    stage.submit(of_cpus("holder", 2, "research", 100.0))
    stage.started("holder")
    stage.submit(replace(of_cpus("told", 0, "research", 600.0), preemptible=False))
    assert stage.scheduler.ledger.reservations["told"].promised
    stage.submit(of_cpus("urgent", 2, "serving", None))
    assert stage.phase("holder") is Phase.RUNNING
    stage.ended("holder")
    assert (stage.phase("told"), stage.phase("urgent")) == (Phase.STARTING, Phase.PENDING)


def test_a_newcomer_that_ends_before_a_start_reserved_in_the_same_moment_starts_at_once() -> None:
    """It got a reservation behind that, and started in the next pass; a recovered scheduler started it first."""
    stage = Stage(cluster(leaves=1, nodes=1, gpus=4))
    stage.submit(job("old", gpus=2, time_limit_s=100))
    stage.started("old")
    stage.submit(job("large", gpus=4, time_limit_s=100), job("short", gpus=1, time_limit_s=10))
    assert stage.phase("short") == "starting"
    assert [one.job for one in stage.facts if isinstance(one, ReservationMade)] == ["large"]
