"""Gangs leave links that carry less, once what staying is expected to lose is as large as what moving costs."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.core.cycle.degradations import degradation
from gantree.core.cycle.leaving_degraded import balance
from gantree.core.explain.explain import why
from gantree.model.cluster import LinkId
from gantree.model.events import (
    GangEnded,
    JobSubmitted,
    LinkHealthObserved,
    LinkRestoreRequested,
)
from gantree.model.facts import CheckpointRequested, GangMoving
from gantree.model.jobs import AxisTraffic, Checkpoint, Job, Traffic
from gantree.model.phases import Phase
from gantree.policy.rules import Policy
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from support.examples import examples

SITE = cluster(leaves=2, nodes=2, nics=2)
NIC, LEAF = LinkId("nic", "n0/mlx5_1"), LinkId("leaf", "s0/l0")
GRACE_S, RESTART_S = 60.0, 60.0
HALF_TRAFFIC = Traffic((AxisTraffic("data", 400e9),), compute_s=0.0)


def trained(name: str, members: int = 2, traffic: Traffic | None = HALF_TRAFFIC) -> Job:
    """A gang of whole nodes that saves, and whose steps are traffic alone."""
    saves = Checkpoint(every_s=900, grace_s=GRACE_S)
    return replace(job(name, members, 8, checkpoint=saves, required="leaf"), traffic=traffic)


def stage_of(*jobs: Job, policy: Policy | None = None) -> Stage:
    stage = Stage(SITE, policy)
    for each in jobs or (trained("a"),):
        stage.submit(each)
        stage.started(each.name)
    stage.wait(1000)
    return stage


def worn(stage: Stage, health: float = 0.5, link: LinkId = NIC) -> None:
    stage.tell(LinkHealthObserved, link=link, source="ufm", health=health)


def lost_share(stage: Stage, name: str = "a") -> float:
    found = degradation(stage.scheduler.ledger, stage.state(name))
    assert found is not None
    return found.lost_share


def movers(stage: Stage) -> list[str]:
    return [fact.job for fact in stage.facts if isinstance(fact, GangMoving)]


def sentence(stage: Stage, name: str = "a") -> str:
    return why(stage.scheduler.ledger, name, stage.now).sentence


def pays_at(stage: Stage, since: float, cost_s: float) -> float:
    return since + cost_s / lost_share(stage)


def test_a_gang_moves_once_the_loss_of_as_long_again_is_the_cost_of_moving() -> None:
    stage = stage_of()
    assert stage.nodes("a") == ["n0", "n1"]
    worn(stage)
    tips_at = pays_at(stage, 1000.0, GRACE_S + RESTART_S)
    assert stage.scheduler.wake_at() == pytest.approx(tips_at)
    stage.wait(tips_at - stage.now - 0.01)
    assert (stage.phase("a"), movers(stage)) == (Phase.RUNNING, [])
    stage.wait(0.01)
    (moving,) = [fact for fact in stage.facts if isinstance(fact, GangMoving)]
    assert moving.flees == "nic n0/mlx5_1 carries 50 % of its rate"
    assert stage.phase("a") is Phase.SAVING
    stage.saved("a", 7)
    stage.ended("a", 143)
    assert (stage.phase("a"), stage.nodes("a")) == (Phase.STARTING, ["n2", "n3"])
    assert stage.state("a").preemptions == 0


def test_what_is_repaired_soon_moves_nobody() -> None:
    stage = stage_of()
    for _ in range(50):
        worn(stage)
        stage.wait(60)
        worn(stage, 1.0)
        stage.wait(600)
        stage.saved("a", 1)
    assert movers(stage) == []


def test_right_after_a_checkpoint_moving_costs_a_restart_alone_and_nothing_is_saved_again() -> None:
    stage = stage_of()
    worn(stage)
    tips_at = pays_at(stage, 1000.0, RESTART_S)
    stage.wait(tips_at - stage.now - 1)
    stage.saved("a", 1)
    assert stage.phase("a") is Phase.RUNNING
    stage.wait(2)
    assert stage.phase("a") is Phase.RUNNING, "the work since the checkpoint counts"
    stage.saved("a", 2)
    assert stage.phase("a") is Phase.STOPPING
    assert not any(isinstance(fact, CheckpointRequested) for fact in stage.facts)
    stage.ended("a", 143)
    assert stage.nodes("a") == ["n2", "n3"]


def test_a_gang_without_a_better_place_stays_until_one_comes_free() -> None:
    stage = stage_of(trained("a"), job("b", 2, 8))
    worn(stage)
    stage.wait(100_000)
    assert stage.phase("a") is Phase.RUNNING
    assert "moves as soon as a faster place is free" in sentence(stage)
    stage.ended("b")
    assert stage.phase("a") is Phase.SAVING


def test_a_waiting_job_gets_free_room_before_a_gang_that_moves_for_speed() -> None:
    """It comes at the moment at which the room is free, so nothing was reserved for it before."""
    stage = stage_of(trained("a"), job("b", 2, 8))
    worn(stage)
    stage.wait(100_000)
    ended = stage.event(GangEnded, job="b", attempt=1, exit_code=0)
    stage.handle([ended, stage.event(JobSubmitted, job="c", spec=job("c", 2, 8))])
    assert stage.nodes("c") == ["n2", "n3"]
    assert stage.phase("a") is Phase.RUNNING


def test_a_place_whose_links_are_as_worn_is_no_better() -> None:
    stage = stage_of()
    worn(stage)
    worn(stage, link=LinkId("nic", "n3/mlx5_1"))
    stage.wait(100_000)
    assert movers(stage) == []
    worn(stage, 1.0, LinkId("nic", "n3/mlx5_1"))
    assert movers(stage) == ["a"]


def test_a_place_that_is_better_by_less_pays_later() -> None:
    stage = stage_of()
    worn(stage, 0.25)
    worn(stage, 0.5, LinkId("nic", "n3/mlx5_1"))
    whole_tips_at = pays_at(stage, 1000.0, GRACE_S + RESTART_S)
    stage.wait(whole_tips_at - stage.now + 1)
    assert movers(stage) == []
    while not movers(stage):
        wake_at = stage.scheduler.wake_at()
        assert wake_at is not None
        stage.wait(wake_at - stage.now)
    assert stage.now > whole_tips_at + 1
    assert sorted(stage.scheduler.ledger.claims["a"].placement.nodes) == ["n2", "n3"]


@pytest.mark.parametrize(
    ("spec", "policy", "because"),
    [
        (replace(trained("a"), checkpoint=None), Policy(), "it does not say how it saves"),
        (replace(trained("a"), preemptible=False), Policy(), "it is never stopped"),
        (trained("a"), Policy(leave_degraded=False), "the policy lets nobody leave for that"),
        (trained("a"), Policy(evictions_per_day=0), "its eviction budget is used up"),
    ],
)
def test_others_stay_and_it_is_said_why(spec: Job, policy: Policy, because: str) -> None:
    stage = stage_of(spec, policy=policy)
    worn(stage)
    stage.wait(100_000)
    assert stage.phase("a") is Phase.RUNNING
    assert f"It stays, for {because}." in sentence(stage)


def test_a_gang_leaves_a_gpu_whose_own_links_carry_less() -> None:
    stage = stage_of()
    worn(stage, 0.1, LinkId("gpu-pcie", "n0/3"))
    worn(stage, 0.1, LinkId("gpu-nvlink", "n0/3"))
    assert lost_share(stage) > 0.1
    stage.wait(100_000)
    assert movers(stage) == ["a"]


@pytest.mark.parametrize(
    ("spec", "link"),
    [
        (trained("a", traffic=None), NIC),
        (trained("a"), LEAF),
        (trained("a"), LinkId("nic", "n3/mlx5_1")),
        (trained("a", 1), LinkId("node", "n0")),
    ],
)
def test_a_gang_whose_steps_are_as_long_or_have_no_price_is_not_moved(
    spec: Job, link: LinkId
) -> None:
    stage = stage_of(spec)
    worn(stage, link=link)
    assert stage.scheduler.wake_at() is None
    stage.wait(100_000)
    assert movers(stage) == []
    assert "Its steps take" not in sentence(stage)
    has_no_price = spec.traffic is None
    assert ("its job tells neither `model` nor `traffic`" in sentence(stage)) == has_no_price


def test_a_job_that_ends_before_it_pays_stays() -> None:
    stage = stage_of(replace(trained("a"), expected_s=1200.0))
    worn(stage)
    assert lost_share(stage) * 200 < GRACE_S + RESTART_S
    assert stage.scheduler.wake_at() == 1200.0, "from then on nobody knows how long it runs"
    stage.wait(199)
    assert movers(stage) == []
    assert "its time is up before that would pay" in sentence(stage)


def test_a_place_that_comes_free_shortly_before_the_end_moves_nobody() -> None:
    stage = stage_of(replace(trained("a"), time_limit_s=10_000.0), job("b", 2, 8))
    worn(stage)
    stage.wait(8900)
    stage.ended("b")
    assert movers(stage) == []


def test_a_budget_counts_moves_off_links_and_is_there_again_after_a_day() -> None:
    stage = stage_of(policy=Policy(evictions_per_day=1))
    worn(stage)
    while not movers(stage):
        stage.wait((stage.scheduler.wake_at() or 0) - stage.now)
    left_at = stage.now
    stage.saved("a", 1)
    stage.ended("a", 143)
    stage.started("a")
    worn(stage, link=LinkId("nic", "n2/mlx5_1"))
    worn(stage, 1.0)
    stage.wait(3600)
    assert movers(stage) == ["a"]
    stage.wait(left_at + 86_400 - stage.now)
    assert movers(stage) == ["a", "a"]


def test_an_overruled_report_moves_nobody() -> None:
    stage = stage_of()
    worn(stage)
    stage.tell(LinkRestoreRequested, link=NIC)
    stage.wait(100_000)
    assert movers(stage) == []


def test_a_link_that_gets_worse_is_a_new_fault_and_one_that_gets_better_is_not() -> None:
    stage = stage_of(trained("a"), job("b", 2, 8))
    since = stage.scheduler.ledger.site.worn_since
    for health, expected in [(0.9, 1000.0), (0.86, 1000.0), (0.5, 1200.0), (0.75, 1200.0)]:
        worn(stage, health)
        assert since(NIC) == expected
        stage.wait(100)


def test_why_shows_the_sum_and_when_it_tips() -> None:
    stage = stage_of()
    worn(stage)
    stage.wait(30)
    share = lost_share(stage)
    assert (
        f"{1 / (1 - share):.2f} times as long as they would: nic n0/mlx5_1 carries 50 % of its rate, for 30 s."
        in sentence(stage)
    )
    assert (
        f"It stays: if that lasts another 30 s, staying loses {30 * share * 16 / 60:,.3g} GPU-minutes"
        in sentence(stage)
    )
    assert (
        "moving costs 32 GPU-minutes, 16 GPU-minutes right after a checkpoint; it moves in"
        in sentence(stage)
    )
    stage.wait(RESTART_S / share - 25)
    assert "It moves at its next checkpoint, or in" in sentence(stage)


@given(
    health=st.sampled_from([0.1, 0.3, 0.5, 0.8, 0.95]),
    saves_at=st.lists(st.floats(1, 3000), max_size=6),
    looks_at=st.lists(st.floats(1, 3000), max_size=6),
    expected_s=st.none() | st.floats(1100, 6000),
)
@settings(max_examples=examples(60), deadline=None)
def test_it_moves_at_the_first_moment_that_a_plain_sum_says(
    health: float, saves_at: list[float], looks_at: list[float], expected_s: float | None
) -> None:
    """The twin adds up seconds by itself, at each event and at each moment that the scheduler has asked for."""
    stage = stage_of(replace(trained("a"), expected_s=expected_s))
    worn(stage, health)
    share, saved_at = lost_share(stage), 0.0
    moments = sorted(
        [*((1000 + at, True) for at in saves_at), *((1000 + at, False) for at in looks_at)]
    )
    while not movers(stage):
        wake_at = stage.scheduler.wake_at()
        if moments and (wake_at is None or moments[0][0] <= wake_at):
            at, saves = moments.pop(0)
        elif wake_at is not None:
            at, saves = wake_at, False
        else:
            break
        stage.wait(max(0.0, at - stage.now - 1e-3))
        _agrees(stage, share, saved_at, expected_s)
        if movers(stage):
            break
        stage.now = at
        if saves:
            stage.saved("a", 1)
            saved_at = at
        else:
            stage.wait(0)
        _agrees(stage, share, saved_at, expected_s)


def _agrees(stage: Stage, share: float, saved_at: float, expected_s: float | None) -> None:
    now = stage.now
    lasts_s = now - 1000
    if expected_s is not None and expected_s > now:
        lasts_s = min(lasts_s, expected_s - now)
    spare_s = share * lasts_s - (min(GRACE_S, now - saved_at) + RESTART_S)
    if abs(spare_s) > 1e-2:
        assert bool(movers(stage)) == (spare_s > 0)


def test_the_balance_is_of_all_gpus() -> None:
    stage = stage_of()
    worn(stage)
    stage.wait(100)
    state = stage.state("a")
    found = degradation(stage.scheduler.ledger, state)
    assert found is not None
    sums = balance(stage.scheduler.ledger, state, found, stage.now)
    assert sums.loss_gpu_s == pytest.approx(16 * 100 * found.lost_share)
    assert sums.cost_gpu_s == 16 * (GRACE_S + RESTART_S)
