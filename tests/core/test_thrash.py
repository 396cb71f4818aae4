"""Nobody is stopped in vain, and nobody for ever: random policies, random jobs, and then nothing but what follows."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from math import log2
from typing import Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import Phase as Stages
from hypothesis import strategies as st

from gantree.core.explain.explain import why
from gantree.core.queue.preemption_backoff import AT_ANY_TIME
from gantree.model.events import CancelRequested, CordonRequested
from gantree.model.facts import (
    AttemptEnded,
    ClaimDropped,
    Fact,
    GangPlaced,
    GangPreempted,
    JobAccepted,
    JobRequeued,
    RoomClaimed,
)
from gantree.model.jobs import Checkpoint, Elastic, Job, Spread, TopologySpec
from gantree.policy.rules import Backfill, Policy, Preemption, QueueRule
from gantree.testing.builders import cluster, job
from support.examples import examples, sampled
from support.lives import Life

MOST_EVICTIONS = 2
"""Of one job, out of at most 16: one more, and it would rest, and end a cycle. In 1,000 lives of these strategies
nobody was stopped more than once (219 lives had a stop at all)."""
CLASSES = ("research", "batch", "production", "serving")
QUEUES = (
    (),
    (QueueRule("a", weight=2), QueueRule("b")),
    (QueueRule("a", guarantee={"gpus": 8}), QueueRule("b", guarantee={"gpus": 4})),
    (
        QueueRule("a", guarantee={"gpus": 4}, limit={"gpus": 8}),
        QueueRule("b", guarantee={"gpus": 4}, borrow={"gpus": 4}),
    ),
)
ORDERS = (
    ("priority", "share", "arrival"),
    ("share", "priority", "arrival"),
    ("remaining_service", "arrival"),
    ("attained", "arrival"),
    ("smallest", "arrival"),
)

policies = st.builds(
    Policy,
    order=st.sampled_from(ORDERS),
    queues=st.sampled_from(QUEUES),
    backfill=st.builds(
        Backfill,
        overtake=st.sampled_from(["any", "promised", "none"]),
        reservations=st.sampled_from([1, 4]),
    ),
    preemption=st.builds(
        Preemption,
        by=st.sampled_from(["priority", "order", "none"]),
        who=st.sampled_from([{}, {"serving": ("research",), "batch": ()}]),
        across=st.booleans(),
        gain=st.sampled_from([0.0, 1.0]),
    ),
    min_run_s=st.sampled_from([0.0, 30.0]),
    evictions_per_day=st.sampled_from([None, None, 1]),
    attained_levels=st.sampled_from([(), (100.0, 1_000.0)]),
    defragment=st.sampled_from(["off", "apply"]),
)


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """A gang of a queue "a" or "b"; elastic, saving or not to be stopped sometimes."""
    members = draw(st.integers(1, 4))
    saves = draw(st.sampled_from([None, None, Checkpoint(grace_s=20)]))
    spec = job(
        "",
        members,
        draw(st.sampled_from([1, 2, 4])),
        priority=draw(st.sampled_from(CLASSES)),
        required=draw(st.sampled_from([None, None, "leaf"])) if members <= 2 else None,
        checkpoint=saves,
    )
    return replace(
        spec,
        queue=draw(st.sampled_from("ab")),
        preemptible=draw(st.sampled_from([True, True, True, False])),
        expected_s=draw(st.sampled_from([None, 20.0, 400.0])),
        elastic=draw(st.sampled_from([None, None, Elastic(1, members + 1)])),
    )


arrivals = st.lists(
    st.tuples(jobs(), st.sampled_from([0.0, 0.0, 5.0, 40.0])), min_size=3, max_size=16
)
SETTINGS = settings(
    max_examples=examples(12),
    deadline=None,
    phases=(Stages.generate,),
    suppress_health_check=list(HealthCheck),
)


def lived(policy: Policy, wishes: Sequence[tuple[Job, float]]) -> Life:
    """All these came, and then whoever was told to stop has left, again and again until nobody was."""
    if not policy.queues:
        wishes = [(replace(spec, queue="default"), pause_s) for spec, pause_s in wishes]
    life = Life(cluster(leaves=2, nodes=2, gpus=4), policy)
    for number, (spec, pause_s) in enumerate(wishes):
        life.submit(replace(spec, name=f"j{number}"))
        life.pause(pause_s)
    life.quiet()
    return life


def most_stops(facts: Sequence[Fact]) -> int:
    """How often the job was told to leave that was told most often."""
    stops = Counter(fact.job for fact in facts if isinstance(fact, GangPreempted))
    return max(stops.values(), default=0)


@given(policies, arrivals)
@SETTINGS
def test_stopping_comes_to_rest(policy: Policy, wishes: list[tuple[Job, float]]) -> None:
    """No chain of stops leads back to where it began."""
    assert most_stops(lived(policy, wishes).stage.facts) <= MOST_EVICTIONS


@given(policies, arrivals)
@SETTINGS
def test_nobody_is_stopped_but_for_a_gang_that_then_starts(
    policy: Policy, wishes: list[tuple[Job, float]]
) -> None:
    """Each stop has a claim before it; its claimant starts there unless somebody of a greater right took over."""
    life = lived(policy, wishes)
    facts = life.stage.facts
    for number, fact in enumerate(facts):
        if isinstance(fact, GangPreempted):
            claims = [one for one in facts[:number] if isinstance(one, RoomClaimed)]
            mine = [one for one in claims if one.job == fact.by and fact.job in one.victims]
            assert mine, f"{fact.job} was stopped for {fact.by}, which claims nothing of its"
            became, others = outcome(facts[number:], fact.by)
            assert became != "the room was lost"
            if became == "others have its quota":
                assert any(has_as_great_a_right(policy, life, one, fact.by) for one in others)


def outcome(facts: Sequence[Fact], job_id: str) -> tuple[str, list[str]]:
    """What became of a claim: why it was dropped first of all, and who came since and claimed room or was placed."""
    came, others = set[str](), list[str]()
    for one in facts:
        if isinstance(one, ClaimDropped) and one.job == job_id:
            return one.reason, others
        if isinstance(one, JobAccepted | JobRequeued):
            came.add(one.job)
        elif isinstance(one, RoomClaimed | GangPlaced) and one.job in came:
            others.append(one.job)
    return "it stands", others


def has_as_great_a_right(policy: Policy, life: Life, job_id: str, other_id: str) -> bool:
    """Whether a job's priority is no lower than another's, where gangs are stopped by priority."""
    mine, its = life.jobs[job_id].priority, life.jobs[other_id].priority
    return policy.preemption.by != "priority" or mine >= its


@given(policies, arrivals)
@SETTINGS
def test_no_gang_is_stopped_in_the_moment_in_which_it_was_placed_but_for_a_new_arrival(
    policy: Policy, wishes: list[tuple[Job, float]]
) -> None:
    """No flip-flop: what starts when somebody has left is not stopped again by the same decision."""
    stage = lived(policy, wishes).stage
    placed: dict[str, int] = {}
    ends = 0
    for fact in stage.facts:
        ends += isinstance(fact, AttemptEnded)
        if isinstance(fact, GangPlaced):
            placed[fact.job] = ends
        elif isinstance(fact, GangPreempted) and fact.by in placed:
            again = [one for one in stage.facts if isinstance(one, GangPreempted)]
            back = [one for one in again if (one.job, one.by) == (fact.by, fact.job)]
            assert not [one for one in back if one.at == fact.at], f"{fact.job} and {fact.by}"


def test_others_are_stopped_for_a_gang_beside_which_who_goes_first_has_room_too() -> None:
    """What leaves is larger than the gang: who goes first, and could stop nobody itself, gets the rest."""
    policy = Policy(
        order=("priority", "arrival"),
        queues=(QueueRule("a"), QueueRule("b", guarantee={"gpus": 8})),
        preemption=Preemption(by="priority", across=False),
        backfill=Backfill("any"),
    )
    life = Life(cluster(leaves=1, nodes=2, gpus=4), policy)
    life.submit(replace(job("large", 2, 4, priority="research"), queue="b"))
    life.submit(replace(job("first", gpus=4, priority="serving"), queue="a"))
    assert life.quiet() == 0
    life.submit(replace(job("gang", gpus=4, priority="production"), queue="b"))
    assert life.quiet() == 1
    assert life.stage.phases() == {"large": "pending", "first": "running", "gang": "running"}


def test_a_later_arrival_of_a_higher_class_takes_the_quota_of_a_claim_elsewhere_and_that_is_said() -> (
    None
):
    """It has free room beside a gang of another queue; the claim stands until those have left whom it waits for."""
    policy = Policy(queues=(QueueRule("a", limit={"gpus": 8}), QueueRule("b")))
    life = Life(cluster(leaves=3, nodes=1, gpus=4), policy)
    for name in ("x", "y"):
        life.submit(replace(job(name, gpus=4, priority="research"), queue="a"), leaves_s=10.0)
    life.submit(replace(job("other", gpus=2, priority="serving"), queue="b"))
    life.submit(replace(job("big", 2, 4, priority="production"), queue="a"))
    life.submit(replace(job("urgent", gpus=2, priority="serving"), queue="a"))
    claims = life.stage.scheduler.ledger.claims
    assert list(claims) == ["big", "urgent"]
    assert claims["big"].placement.nodes.keys() == {"n0", "n1"}
    assert claims["urgent"].placement.nodes.keys() == {"n2"}
    life.until(60.0)
    since = [fact for fact in life.stage.facts if getattr(fact, "job", "") in ("big", "urgent")]
    assert outcome(since[1:], "big") == ("others have its quota", ["urgent", "urgent"])
    assert life.stage.phases()["big"] == "pending"


def test_who_was_stopped_does_not_take_back_the_room_though_the_order_puts_it_first() -> None:
    """Stopped by priority, and smaller, where the order asks for the smallest first: else it goes round in circles."""
    policy = Policy(order=("smallest", "arrival"), preemption=Preemption(by="priority"))
    life = Life(cluster(leaves=1, nodes=1, gpus=4), policy)
    life.submit(*(job(name, gpus=2, priority="research") for name in ("a", "b")))
    life.submit(job("whole", gpus=4, priority="serving"))
    assert life.quiet() == 2
    assert life.stage.phases() == {"a": "pending", "b": "pending", "whole": "running"}


def test_a_job_that_must_be_owed_is_not_kept_from_its_claim_by_one_of_its_queue_that_borrows() -> (
    None
):
    """Each would be stopped for it in turn, and none of them in time: the other one has started meanwhile."""
    rules = (QueueRule("a", guarantee={"gpus": 4}), QueueRule("b"))
    policy = Policy(queues=rules, preemption=Preemption(by="order"))
    life = Life(cluster(leaves=1, nodes=4, gpus=4), policy)
    first, other, owed = (
        job("first", gpus=4, priority="research"),
        job("other", 2, 2),
        job("owed", gpus=2),
    )
    life.submit(replace(first, queue="a"))
    life.submit(replace(owed, queue="a", preemptible=False))
    life.submit(replace(other, queue="a"))
    life.quiet()
    assert life.stage.phases() == {"first": "running", "other": "running", "owed": "running"}
    stops = [fact.job for fact in life.stage.facts if isinstance(fact, GangPreempted)]
    assert stops == ["first"]


UNTIL_IT_RESTS = AT_ANY_TIME + 1
"""So often a job may be stopped at one moment where rights go round: each time another one may preempt, and by a
reclaim before the first of these."""
DAY_S = 86_400.0


def come(
    order: Sequence[str], jobs: Sequence[Job], rules: Policy, owed_gpus: int, nodes: int = 1
) -> Life:
    """These came one after the other to nodes of four GPUs, so many of which in all are guaranteed to queue "s"."""
    queues = (QueueRule("s", guarantee={"gpus": owed_gpus}), QueueRule("e"))
    life = Life(cluster(leaves=1, nodes=nodes, gpus=4), replace(rules, queues=queues))
    by_name = {spec.name: spec for spec in jobs}
    for name in order:
        life.submit(by_name[name])
        life.pause(1.0)
    life.quiet()
    return life


def in_turn(order: Sequence[str], rules: Policy) -> Life:
    """Three jobs of which each may stop another: w stops v, which borrows; v stops y of its queue; y is owed a GPU."""
    jobs = (
        replace(job("w", gpus=4, priority="serving"), queue="e"),
        replace(job("v", gpus=4, priority="production"), queue="s"),
        replace(job("y", gpus=1, priority="batch"), queue="s"),
    )
    return come(order, jobs, rules, owed_gpus=1)


@pytest.mark.parametrize("order", list(permutations("wvy")))
@pytest.mark.parametrize(
    "rules",
    [
        Policy(backfill=Backfill("any")),
        Policy(backfill=Backfill("any"), order=("smallest", "arrival")),
        Policy(backfill=Backfill("any"), preemption=Preemption(by="order")),
    ],
)
def test_three_that_may_stop_each_other_come_to_rest(order: Sequence[str], rules: Policy) -> None:
    life = in_turn(order, rules)
    assert most_stops(life.stage.facts) <= UNTIL_IT_RESTS
    assert "running" in life.stage.phases().values()


@pytest.mark.parametrize("order", list(permutations("wvy")))
@pytest.mark.parametrize("by", ["priority", "order"])
def test_nobody_takes_over_a_claim_who_would_be_stopped_at_once(
    order: Sequence[str], by: Literal["priority", "order"]
) -> None:
    """y takes back its GPU from w, and v stops y of its queue. w goes before v, but y would take back its GPU again."""
    life = in_turn(order, Policy(backfill=Backfill("any"), preemption=Preemption(by=by)))
    life.until(life.now + DAY_S)
    assert most_stops(life.stage.facts) <= 1
    assert life.stage.phases() == {"w": "pending", "v": "running", "y": "pending"}


def test_what_is_claimed_within_a_guarantee_that_another_one_still_uses_gives_way_to_nobody_who_borrows() -> (
    None
):
    """x took over the claim of y as long as z had not left, and y took it back, again and again in one moment."""
    queues = (QueueRule("a", guarantee={"gpus": 4}), QueueRule("b"))
    policy = Policy(queues=queues, preemption=Preemption(by="none"))
    life = Life(cluster(leaves=1, nodes=2, gpus=4), policy)
    life.submit(replace(job("x", gpus=3, priority="serving"), queue="b"))
    life.submit(replace(job("z", gpus=4), queue="a"), leaves_s=10.0)
    life.stage.tell(CordonRequested, node=life.stage.nodes("z")[0])
    life.stage.tell(CancelRequested, job="z")
    life.submit(replace(job("y", gpus=4, priority="research"), queue="a"))
    assert life.quiet() == 2
    assert life.stage.phases() == {"x": "pending", "z": "cancelled", "y": "running"}


def test_who_would_stop_in_vain_is_told_so_and_starts_when_the_spoiler_is_gone() -> None:
    life = in_turn("vyw", Policy(backfill=Backfill("any")))
    assert life.stage.phases() == {"v": "running", "y": "pending", "w": "pending"}
    told = why(life.stage.scheduler.ledger, "w", life.stage.now)
    assert told.sentence.endswith(
        "Preempting v would not help: y gets that room, within the guarantee of its queue."
    )
    life.stage.cancel("y")
    assert life.quiet() == 1
    assert life.stage.phases() == {"v": "pending", "y": "cancelled", "w": "running"}


def over_a_guarantee(order: Sequence[str], rules: Policy) -> Life:
    """x stops v, which its queue is owed, and u; w may not stop v, goes before x, and borrows what v is owed."""
    jobs = (
        replace(job("w", gpus=4, priority="serving"), queue="e"),
        replace(job("x", gpus=4, priority="production"), queue="s"),
        replace(job("v", gpus=2, priority="batch"), queue="s"),
        replace(job("u", gpus=2, priority="research"), queue="e"),
    )
    return come(order, jobs, rules, owed_gpus=2)


@pytest.mark.parametrize("order", sampled(list(permutations("wxvu")), 3))
@pytest.mark.parametrize("by", ["priority", "order"])
def test_a_round_over_a_guarantee_comes_to_rest(
    order: Sequence[str], by: Literal["priority", "order"]
) -> None:
    life = over_a_guarantee(order, Policy(backfill=Backfill("any"), preemption=Preemption(by=by)))
    assert most_stops(life.stage.facts) <= UNTIL_IT_RESTS
    assert "running" in life.stage.phases().values()


def owed_beside_others(order: Sequence[str], rules: Policy) -> Life:
    """w may stop v, which borrows, but not u; y is owed what v gives back, and takes back from u beside, as it needs
    room on all three nodes; v may stop y.
    """
    spread = TopologySpec(spread=Spread("node", 1))
    y = replace(job("y", 3, 2, priority="batch"), queue="s")
    jobs = (
        replace(job("v", 2, 4, priority="production"), queue="s"),
        replace(job("u", gpus=4, priority="serving"), queue="e"),
        replace(y, roles=(replace(y.roles[0], topology=spread),)),
        replace(job("w", 2, 4, priority="serving"), queue="e"),
    )
    return come(order, jobs, rules, owed_gpus=6, nodes=3)


@pytest.mark.parametrize("order", sampled(list(permutations("vuyw")), 3))
@pytest.mark.parametrize("by", ["priority", "order"])
def test_a_round_over_what_is_owed_beside_others_comes_to_rest(
    order: Sequence[str], by: Literal["priority", "order"]
) -> None:
    life = owed_beside_others(order, Policy(backfill=Backfill("any"), preemption=Preemption(by=by)))
    assert most_stops(life.stage.facts) <= UNTIL_IT_RESTS
    assert "running" in life.stage.phases().values()


@pytest.mark.parametrize("order", sampled(["uyvw", "uwvy", "vuwy", "yuwv"], 2))
@pytest.mark.parametrize("by", ["priority", "order"])
def test_a_round_over_what_is_owed_beside_others_goes_on_less_and_less_often(
    order: Sequence[str], by: Literal["priority", "order"]
) -> None:
    """v stops y again and again, and does not get its room."""
    rules = Policy(backfill=Backfill("any"), preemption=Preemption(by=by))
    life = owed_beside_others(order, rules)
    life.until(life.now + DAY_S)
    preempting = [one for one in life.stage.facts if isinstance(one, RoomClaimed) and one.preempts]
    times = Counter(one.job for one in preempting)["v"]
    assert AT_ANY_TIME < times <= AT_ANY_TIME + log2(DAY_S / rules.restart_s + 1)
    assert most_stops(life.stage.facts) <= times + 1


def beside_its_own(order: Sequence[str], rules: Policy) -> Life:
    """x may stop v of its queue, which is owed its place, and borrows beside; w goes before x, may stop u of its own
    queue only, and needs the room of both. h leaves half a node free.
    """
    jobs = (
        replace(job("h", gpus=2, priority="serving"), queue="s", preemptible=False),
        replace(job("v", gpus=4, priority="research"), queue="s"),
        replace(job("u", gpus=4, priority="production"), queue="e"),
        replace(job("x", 3, 2, priority="batch"), queue="s"),
        replace(job("w", 2, 4, priority="serving"), queue="e"),
    )
    return come(["h", *order], jobs, rules, owed_gpus=6, nodes=3)


@pytest.mark.parametrize("order", sampled(list(permutations("vuxw")), 3))
@pytest.mark.parametrize("by", ["priority", "order"])
def test_a_round_within_queues_comes_to_rest(
    order: Sequence[str], by: Literal["priority", "order"]
) -> None:
    preemption = Preemption(by=by, across=False)
    life = beside_its_own(order, Policy(backfill=Backfill("any"), preemption=preemption))
    assert most_stops(life.stage.facts) <= UNTIL_IT_RESTS
    assert "running" in life.stage.phases().values()


def test_what_an_elastic_gang_is_owed_at_a_smaller_size_gives_way_to_nobody_who_borrows() -> None:
    """It asks for six GPUs and is owed four: so it claims two members. Judged by all six, it was owed nothing, gangs
    that borrow had its claim, it took it back, and so on in one moment.
    """
    queues = (QueueRule("a"), QueueRule("b", guarantee={"gpus": 4}))
    life = Life(cluster(leaves=1, nodes=2, gpus=4), Policy(queues=queues))
    for name in ("x", "y"):
        life.submit(replace(job(name, gpus=4, priority="production"), queue="a"), leaves_s=10.0)
    life.submit(replace(job("owed", 3, 2), queue="b", elastic=Elastic(1, 3)))
    claims = life.stage.scheduler.ledger.claims
    assert [len(claim.placement.members) for claim in claims.values()] == [2]
    life.submit(replace(job("urgent", 2, 4, priority="serving"), queue="a"))
    assert list(claims) == ["owed"]
    life.quiet()
    assert life.stage.phases()["owed"] == "running"
