"""Runs on sites that fail: the scheduler restarts gangs from their last checkpoint, and nothing is lost but work."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.core.ledger.invariants import check
from gantree.formats.traces import TraceJob
from gantree.model.cluster import Link, LinkId
from gantree.model.jobs import AxisTraffic, Job, Traffic
from gantree.policy.rules import Policy
from gantree.sim.cluster import Overheads
from gantree.sim.results import JobRow
from gantree.sim.run import Simulation, simulate
from gantree.sim.running.faults import Fault
from gantree.sim.running.model import (
    Checkpoints,
    FailureRate,
    Failures,
    RunningModel,
    Spot,
    Stragglers,
)
from gantree.sim.running.stragglers import SlowOnes
from gantree.sim.workload import job_of
from gantree.testing.builders import cluster
from support.examples import examples

SITE = cluster(leaves=2, nodes=2, gpus=4)
NODE_TIER, LEAF_TIER = 3, 2
NODES = ("n0", "n1", "n2", "n3")


def trace_job(
    name: str, duration_s: float, members: int = 1, checkpoint_s: float | None = None
) -> TraceJob:
    return TraceJob(name, 0.0, duration_s, members, 4, checkpoint_s=checkpoint_s)


class Planned:
    """Faults as a test writes them, in place of drawn ones."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.left = list(faults)

    def next_moment(self) -> float | None:
        return self.left[0].at_s if self.left else None

    def pop(self) -> Fault:
        return self.left.pop(0)

    def repaired_by(self) -> float:
        return max((fault.at_s for fault in self.left if fault.up), default=0.0)


def run(
    rows: Sequence[TraceJob], faults: Sequence[Fault], model: RunningModel, start_s: float = 0.0
) -> Simulation:
    """A run with planned faults to its end, all invariants checked after every step."""
    simulation = Simulation(SITE, rows, Policy(), Overheads(start_s=start_s), running=model)
    simulation._faults = Planned(faults)  # type: ignore[assignment]  # planned instead of drawn
    while simulation.step():
        check(simulation.scheduler.ledger)
    return simulation


@pytest.mark.parametrize(
    ("domain", "link"),
    [((NODE_TIER, 1), LinkId("node", "n1")), ((LEAF_TIER, 1), LinkId("leaf", "s0/l1"))],
)
def test_the_scheduler_knows_a_degraded_link_until_it_is_repaired(
    domain: tuple[int, int], link: LinkId
) -> None:
    faults = [
        Fault(10.0, "link", domain, health=0.5),
        Fault(20.0, "link", domain, up=True),
    ]
    simulation = Simulation(SITE, [trace_job("a", 100)], Policy(), Overheads())
    simulation._faults = Planned(faults)  # type: ignore[assignment]  # planned instead of drawn
    health_at: dict[float, dict[LinkId, float]] = {}
    while simulation.step():
        health_at[simulation.now] = simulation.scheduler.ledger.site.health_of_link()
    assert (health_at[10.0], health_at[20.0]) == ({link: 0.5}, {})


LINKS_FAIL = RunningModel(
    step_time=True, failures=Failures(links=(("node", FailureRate(0.0, 1.0, 0.5)),))
)


def sending(leaves: int, faults: Sequence[Fault], policy: Policy) -> JobRow:
    """One gang of two nodes whose steps are traffic alone, with 3000 s of work and a save every 50 s."""
    site = replace(
        cluster(leaves=leaves, nodes=2, gpus=4, nics=2),
        links={"leaf": Link(50, 6), "spine": Link(25, 12)},
    )

    def job(row: TraceJob) -> Job:
        traffic = Traffic((AxisTraffic("data", 100e9),), compute_s=0.0)
        return replace(job_of(row), traffic=traffic)

    rows = [trace_job("a", 3000, members=2, checkpoint_s=50)]
    simulation = Simulation(site, rows, policy, Overheads(start_s=10.0), job, running=LINKS_FAIL)
    simulation._faults = Planned(faults)  # type: ignore[assignment]  # planned instead of drawn
    while simulation.step():
        check(simulation.scheduler.ledger)
    return simulation.result().jobs[0]


def test_a_gang_on_a_degraded_link_moves_once_that_pays_and_works_on_at_full_speed() -> None:
    down = Fault(100.0, "link", (NODE_TIER, 0), health=0.5)
    stays = sending(2, [down], Policy(leave_degraded=False))
    moves = sending(2, [down], Policy(restart_s=60.0))
    assert (stays.attempts, moves.attempts) == (1, 2)
    assert stays.placement is not None and moves.placement is not None
    assert (stays.placement.members[0].node, moves.placement.members[0].node) == ("n0", "n2")
    assert (stays.end_s or 0.0) > 10 + 3000 + 1000
    assert (moves.end_s or inf) < 10 + 3000 + 10 + 200


def test_a_gang_that_starts_on_a_degraded_link_is_slowed_once_and_until_it_is_repaired() -> None:
    repaired = Fault(2000.0, "link", (NODE_TIER, 0), up=True)
    ends = [
        sending(1, [Fault(at_s, "link", (NODE_TIER, 0), health=0.5), repaired], Policy()).end_s
        for at_s in (0.0, 11.0)
    ]
    assert ends[0] == pytest.approx(ends[1], abs=2.0)


def test_a_node_that_announces_its_failure_is_left_before_it_fails() -> None:
    """The sign comes at 95, right behind the save at 90: a save on request, and nothing is done twice."""
    faults = [
        Fault(95.0, "sign", (NODE_TIER, 0)),
        Fault(100.0, "node", (NODE_TIER, 0)),
        Fault(1000.0, "node", (NODE_TIER, 0), up=True),
    ]
    simulation = run([trace_job("a", 200)], faults, SAVES)
    (row,) = simulation.result().jobs
    assert (row.end_s, row.failures) == (200.0, 0)
    assert simulation.scheduler.ledger.site.unwell == {}


def test_a_gang_leaves_a_slow_node_some_time_after_it_was_named() -> None:
    slow = Stragglers(nodes=0.3, speed=0.5, named_after_s=60.0)
    seed = next(n for n in range(100) if list(SlowOnes(slow, n).slow_nodes(NODES)) == ["n0"])
    ends = []
    for leaves in (False, True):
        policy = Policy(leave_degraded=leaves, restart_s=10.0)
        rows = [trace_job("a", 2000, checkpoint_s=50)]
        simulation = Simulation(
            SITE, rows, policy, Overheads(), running=RunningModel(stragglers=slow), seed=seed
        )
        while simulation.step():
            check(simulation.scheduler.ledger)
        (row,) = simulation.result().jobs
        ends.append(row.end_s)
    assert ends[0] == 4000
    assert ends[1] is not None and 2060 < ends[1] < 2300


ON = RunningModel(failures=Failures())
SAVES = RunningModel(failures=Failures(), checkpoints=Checkpoints(every_s=30))


def test_a_gang_whose_node_is_lost_does_again_what_it_has_not_saved() -> None:
    """Lost at 100 with 90 s saved: 10 s are done again, elsewhere, 5 s later (the back-off)."""
    down = Fault(100, "node", (NODE_TIER, 0))
    simulation = run(
        [trace_job("a", 200)], [down, Fault(1000, "node", (NODE_TIER, 0), up=True)], SAVES
    )
    (row,) = simulation.result().jobs
    assert row.end_s == 100 + 5 + 110
    assert (row.attempts, row.failures) == (2, 1)
    assert row.gpu_s_lost == row.gpu_s_lost_to_failures == 10 * 4
    assert row.useful_gpu_s == 200 * 4
    assert row.placement is not None
    assert row.placement.members[0].node != "n0"


def test_a_process_that_fails_stops_its_gang_alone() -> None:
    fault = Fault(100, "process", (NODE_TIER, 0), gpu=2)
    simulation = run([trace_job("a", 200), trace_job("b", 200)], [fault], ON)
    a, b = simulation.result().jobs
    assert (a.end_s, a.failures) == (100 + 5 + 200, 1)
    assert (b.end_s, b.failures) == (200, 0)
    assert simulation.result().summary()["faults"] == {"process": {"came": 1, "gangs": 1}}


def test_a_node_with_a_failed_gpu_takes_nothing_new_until_it_is_repaired() -> None:
    """Of four nodes three are busy: the gang on the failed GPU waits for the repair at 400."""
    faults = [Fault(100, "GPU", (NODE_TIER, 3), 1), Fault(400, "GPU", (NODE_TIER, 3), 1, up=True)]
    rows = [trace_job(name, 1000) for name in "abcd"]
    simulation = run(rows, faults, ON)
    assert sorted(row.end_s or 0 for row in simulation.result().jobs) == [1000, 1000, 1000, 1400]


def test_a_switch_takes_all_nodes_below_it() -> None:
    faults = [Fault(100, "domain", (LEAF_TIER, 0)), Fault(150, "domain", (LEAF_TIER, 0), up=True)]
    simulation = run([trace_job(name, 1000) for name in "abcd"], faults, ON)
    assert simulation.site.counts.gangs == {"domain": 2}
    assert simulation.site.counts.lost_gpu_s == 2 * 4 * 50
    assert sorted(row.end_s or 0 for row in simulation.result().jobs) == [1000, 1000, 1150, 1150]


def test_a_node_that_two_faults_took_returns_after_the_second_repair() -> None:
    node, leaf = (NODE_TIER, 0), (LEAF_TIER, 0)
    faults = [
        Fault(100, "node", node), Fault(110, "domain", leaf), Fault(150, "domain", leaf, up=True),
        Fault(300, "node", node, up=True),
    ]  # fmt: skip
    simulation = run([trace_job(name, 1000) for name in "abcd"], faults, ON)
    assert sorted(row.end_s or 0 for row in simulation.result().jobs) == [1000, 1000, 1150, 1300]


def test_a_run_ends_though_something_fails_for_ever() -> None:
    """A job that never fits waits; nodes that fail and are repaired do not keep the run going."""
    model = RunningModel(failures=Failures(node=FailureRate(50.0, 600)))
    result = simulate(SITE, [trace_job("huge", 10, members=5)], Policy(), running=model)
    assert result.jobs[0].outcome == "pending"


def test_a_spot_node_is_drained_before_it_is_taken() -> None:
    """The gang on it saves at the notice and goes on elsewhere without a failure."""
    node = (NODE_TIER, 0)
    faults = [
        Fault(100, "notice", node, deadline_at=220), Fault(220, "spot", node),
        Fault(500, "spot", node, up=True),
    ]  # fmt: skip
    simulation = run([trace_job("a", 200, checkpoint_s=30)], faults, ON)
    (row,) = simulation.result().jobs
    assert (row.end_s, row.failures, row.attempts) == (200, 0, 2)
    assert row.placement is not None
    assert row.placement.members[0].node != "n0"


def test_saves_and_restores_cost_what_they_cost() -> None:
    """Saves for 2 s after every 30 s of work; after the loss at 50 the state of 30 s is restored in 7 s."""
    model = RunningModel(failures=Failures(), checkpoints=Checkpoints(30, save_s=2, restore_s=7))
    down = Fault(50, "node", (NODE_TIER, 0))
    (row,) = (
        run([trace_job("a", 100)], [down, Fault(60, "node", (NODE_TIER, 0), up=True)], model)
        .result()
        .jobs
    )
    assert row.end_s == 50 + 5 + 7 + 70 + 2 * 2


def test_all_that_save_at_once_share_the_store() -> None:
    """Two gangs of 4 GPUs with 1 GB each save at 30: 8 GB through 2 GB/s; alone each would need 2 s."""
    model = RunningModel(checkpoints=Checkpoints(30, store_GBps=2, state_GB_per_GPU=1))
    alone = simulate(SITE, [trace_job("a", 40)], Policy(), running=model)
    assert [row.end_s for row in alone.jobs] == [42]
    both = simulate(SITE, [trace_job("a", 40), trace_job("b", 40)], Policy(), running=model)
    assert [row.end_s for row in both.jobs] == [44, 44]


def test_a_save_that_the_scheduler_asks_for_is_answered_by_one_that_has_begun() -> None:
    """Low saves by itself from 30 to 40; at 35 a higher job comes, and starts when that save is done."""
    model = RunningModel(checkpoints=Checkpoints(30, save_s=10))
    rows = [TraceJob("low", 0, 100, 4, 4), TraceJob("high", 35, 10, 4, 4, priority="serving")]
    low, high = simulate(SITE, rows, Policy(), running=model).jobs
    assert high.first_start_s == 40
    assert low.gpu_s_lost == 10 * 16
    assert low.end_s == 40 + 10 + 70 + 2 * 10


def test_a_straggler_slows_its_gang_down() -> None:
    model = RunningModel(stragglers=Stragglers(nodes=1.0, speed=0.5))
    (row,) = simulate(SITE, [trace_job("a", 100, members=2)], Policy(), running=model).jobs
    assert (row.end_s, row.stretch) == (200, 2)
    some = RunningModel(stragglers=Stragglers(attempts=0.3, speed=0.5))
    ends = [
        row.end_s
        for row in simulate(
            SITE,
            [TraceJob(str(n), 1000.0 * n, 100, 1, 1) for n in range(200)],
            Policy(),
            running=some,
        ).jobs
    ]
    slow = sum(end_s == 1000 * n + 200 for n, end_s in enumerate(ends))
    assert 40 <= slow <= 80
    assert slow + sum(end_s == 1000 * n + 100 for n, end_s in enumerate(ends)) == 200


TIMES = st.integers(0, 60).map(float)


@st.composite
def failing_traces(draw: st.DrawFn) -> list[TraceJob]:
    return [
        TraceJob(
            job_id=str(number),
            submit_s=draw(TIMES),
            duration_s=draw(TIMES),
            members=draw(st.integers(1, 4)),
            gpus_per_member=draw(st.sampled_from([1, 2, 4])),
            priority=draw(st.sampled_from(["research", "batch", "serving"])),
            checkpoint_s=draw(st.sampled_from([None, 5.0, 20.0])),
        )
        for number in range(draw(st.integers(0, 10)))
    ]


MODELS = st.builds(
    RunningModel,
    step_time=st.booleans(),
    contention=st.booleans(),
    checkpoints=st.sampled_from(
        [None, Checkpoints(10), Checkpoints(10, 1, 2), Checkpoints(10, 1, 0, 2.0, 0.5)]
    ),
    failures=st.sampled_from(
        [
            None,
            Failures(process=FailureRate(100, 0), node=FailureRate(400, 20)),
            Failures(
                GPU=FailureRate(150, 10),
                domains=(("leaf", FailureRate(200, 10)),),
                links=(("node", FailureRate(500, 10, 0.3)),),
            ),
        ]
    ),
    stragglers=st.sampled_from([None, Stragglers(0.3, 0.3, 0.7)]),
    spot=st.sampled_from([None, Spot()]),
)


@settings(max_examples=examples(60), deadline=None)
@given(failing_traces(), MODELS, st.integers(0, 3), st.sampled_from([0.0, 1.0, 2.5]))
def test_every_invariant_holds_and_every_job_ends(
    trace: list[TraceJob], model: RunningModel, seed: int, overhead_s: float
) -> None:
    overheads = Overheads(overhead_s, overhead_s, overhead_s)
    simulation = Simulation(SITE, trace, Policy(), overheads, running=model, seed=seed)
    while simulation.step():
        check(simulation.scheduler.ledger)
    result = simulation.result()
    for row, job in zip(trace, result.jobs, strict=True):
        assert job.finished, (job.outcome, job.reason)
        assert job.useful_gpu_s == row.duration_s * job.gpus
        assert 0 <= job.gpu_s_lost_to_failures <= job.gpu_s_lost + 1e-6
    owed = [overhead_s * job.gpus + job.useful_gpu_s + job.gpu_s_lost for job in result.jobs]
    if not model.checkpoints and not model.stragglers and not model.contention:
        assert result.held_gpu_s == pytest.approx(sum(owed))
    again = Simulation(SITE, trace, Policy(), overheads, running=model, seed=seed)
    while again.step():
        pass
    assert again.result().jobs == result.jobs
