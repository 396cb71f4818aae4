"""Estimates follow the policy order as it is now: with fair shares they hold no room against who had less."""

from dataclasses import replace

from gantree.model.events import HoldRequested, JobSubmitted, ReleaseRequested
from gantree.model.facts import GangPlaced, ReservationDropped
from gantree.model.jobs import Job
from gantree.policy.rules import Backfill, Policy, Preemption, QueueRule
from gantree.testing.builders import cluster, job
from support.lives import Life

HOUR_S = 3600.0
DAY_S = 86_400.0
TEAMS = (QueueRule("a"), QueueRule("b"))
NOBODY = Preemption("none")
FAIR = Policy(
    order=("share", "priority", "arrival"), half_life_s=7 * DAY_S, share_users=True, queues=TEAMS
)


def of(name: str, queue: str, members: int = 2, user: str = "") -> Job:
    """A gang of whole nodes."""
    return replace(job(name, members, 8), queue=queue, user=user or queue)


def life_of(*jobs: Job, policy: Policy = FAIR) -> Life:
    """32 GPUs for which six gangs of `a` wait since the first second; the others come a second later."""
    life = Life(cluster(leaves=1, nodes=4), policy)
    for number in range(6):
        life.submit(of(f"a{number}", "a", user="ann"), runs_s=HOUR_S)
    life.until(life.now + 1)
    for each in jobs:
        life.submit(each, runs_s=HOUR_S)
    life.until(life.now + 6 * HOUR_S)
    return life


def starts(life: Life) -> dict[str, int]:
    """The hour at which each job started."""
    placed = [fact for fact in life.stage.facts if isinstance(fact, GangPlaced)]
    return {fact.job: round((fact.at - placed[0].at) / HOUR_S) for fact in placed}


def submit_held(life: Life, *jobs: Job) -> None:
    """Jobs that are considered in a pass over all once they are released, not as arrivals."""
    for each in jobs:
        submitted = life.stage.event(JobSubmitted, job=each.name, spec=each)
        life.stage.handle([submitted, life.stage.event(HoldRequested, job=each.name)])


def release(life: Life, *jobs: str) -> None:
    life.stage.handle([life.stage.event(ReleaseRequested, job=job) for job in jobs])


def phases(life: Life, *jobs: str) -> list[str]:
    return [life.jobs[job].phase.value for job in jobs]


def test_a_queue_that_used_nothing_shares_the_next_room_with_one_that_used_all() -> None:
    found = starts(life_of(of("b0", "b"), of("b1", "b")))
    assert found == {"a0": 0, "a1": 0, "b0": 1, "a2": 1, "b1": 2, "a3": 2, "a4": 3, "a5": 3}


def test_a_user_who_used_nothing_shares_the_next_room_of_the_queue() -> None:
    found = starts(life_of(of("b0", "a", user="bob"), of("b1", "a", user="bob")))
    assert found == {"a0": 0, "a1": 0, "b0": 1, "a2": 1, "b1": 2, "a3": 2, "a4": 3, "a5": 3}


def test_a_large_gang_of_a_queue_that_used_nothing_is_told_a_start_in_place_of_those_behind_it() -> (
    None
):
    life = life_of(of("b0", "b", members=4))
    dropped = [fact for fact in life.stage.facts if isinstance(fact, ReservationDropped)]
    assert [each.job for each in dropped if each.reason == "b0 goes first"] == ["a2", "a3"]
    assert starts(life)["b0"] == 1


def test_room_that_is_promised_is_held_against_every_queue() -> None:
    limited = replace(FAIR, queues=())
    life = Life(cluster(leaves=1, nodes=4), limited)
    for number in range(4):
        spec = replace(of(f"a{number}", "a"), time_limit_s=HOUR_S)
        life.submit(spec, runs_s=HOUR_S)
    life.until(life.now + 1)
    life.submit(replace(of("b0", "b"), time_limit_s=HOUR_S), runs_s=HOUR_S)
    life.until(life.now + 6 * HOUR_S)
    assert starts(life) == {"a0": 0, "a1": 0, "a2": 1, "a3": 1, "b0": 2}


def in_pool(spec: Job, pool: str) -> Job:
    (role,) = spec.roles
    return replace(
        spec, roles=(replace(role, shape=replace(role.shape, labels=(("pool", pool),))),)
    )


def test_who_comes_to_have_had_less_in_a_pass_is_asked_again_in_the_same_moment() -> None:
    """A later job of `a` starts, so that `a` has more than `b`, whose first job was refused before in the pass."""
    site = cluster(leaves=1, nodes=8)
    pools = ["first"] * 6 + ["second"] * 2
    nodes = tuple(
        replace(node, labels=(("pool", pool),))
        for node, pool in zip(site.nodes, pools, strict=True)
    )
    life = Life(replace(site, nodes=nodes), Policy(queues=TEAMS, preemption=NOBODY))
    life.submit(in_pool(of("a0", "a", 1), "first"), in_pool(of("b0", "b", 2), "first"))
    life.submit(replace(in_pool(of("a1", "a", 6), "first"), priority="serving"))
    assert list(life.stage.scheduler.ledger.reservations) == ["a1"]
    submit_held(life, in_pool(of("a2", "a", 2), "second"))
    first = replace(of("b1", "b", 1), priority="serving", expected_s=DAY_S)
    life.submit(in_pool(first, "first"))
    assert phases(life, "a1", "b1", "a2") == ["pending"] * 3
    release(life, "a2")
    assert phases(life, "a1", "b1", "a2") == ["pending", "starting", "starting"]


def test_each_queue_is_compared_with_the_estimate_by_its_own_share() -> None:
    queues = (QueueRule("a"), QueueRule("more"), QueueRule("less"))
    policy = Policy(queues=queues, preemption=NOBODY, backfill=Backfill(reservations=1))
    life = Life(cluster(leaves=1, nodes=4), policy)
    life.submit(of("a0", "a", 1), of("m0", "more", 2))
    life.submit(of("a1", "a", 4))
    assert list(life.stage.scheduler.ledger.reservations) == ["a1"]
    both = (of("m1", "more", 1), of("l0", "less", 1))
    submit_held(life, *(replace(each, expected_s=DAY_S) for each in both))
    release(life, "m1", "l0")
    assert phases(life, "a1", "m1", "l0") == ["pending", "pending", "starting"]
