"""What would become of a job if it asked for something else: told by the scheduler itself, and nothing changes."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.core.alternatives import Alternative, Change, Stopped, alternatives, changed
from gantree.core.ledger.invariants import check
from gantree.core.ledger.ledger_copy import copy_of
from gantree.model.cluster import Cluster, Node
from gantree.model.errors import BadInput, Conflict, NotFound
from gantree.model.events import CancelRequested, JobSubmitted
from gantree.model.jobs import Checkpoint, Job, Shape
from gantree.model.phases import Phase
from gantree.model.verdicts import Gate
from gantree.planning.rightsizing.ranking import options
from gantree.policy.rules import Backfill, Policy, QueueRule
from gantree.testing.builders import cluster, job, machine
from gantree.testing.stage import Stage
from support.examples import examples


@pytest.fixture
def stage() -> Stage:
    """Two leaves of two 8-GPU nodes; 2 GPUs of the last are free."""
    stage = Stage(cluster(leaves=2, nodes=2))
    stage.submit(
        *(job(name, gpus=8, time_limit_s=600.0) for name in ("a", "b")),
        *(job(name, gpus=4, time_limit_s=900.0) for name in ("c", "d")),
    )
    stage.started("a", "b", "c", "d")
    assert stage.nodes("c") == stage.nodes("d")
    stage.submit(job("e", gpus=4), job("f", gpus=2))
    stage.started("e", "f")
    assert stage.nodes("e") == stage.nodes("f")
    return stage


def ask(stage: Stage, name: str, *changes: Change) -> tuple[Alternative, ...]:
    return alternatives(stage.scheduler.ledger, name, changes, stage.now)


def test_a_wish_that_is_relaxed_lets_the_gang_start_at_once() -> None:
    stage = Stage(cluster(leaves=2, nodes=2))
    stage.submit(job("x", gpus=8), job("y", gpus=8), job("z", gpus=8))
    stage.started("x", "y", "z")
    stage.ended("y")
    stage.submit(job("wide", members=2, gpus=8, required="leaf"))
    as_is, spine, one = ask(stage, "wide", (("topology.required", "spine"),), (("members", 1),))
    assert not as_is.now
    assert as_is.start is not None and not as_is.start.promised  # nobody told how long they run
    assert as_is.refused is not None and as_is.refused.gate is Gate.CONTIGUITY
    assert spine.now and spine.placement is not None
    assert sorted(spine.placement.nodes) == ["n1", "n3"]
    assert spine.comm_ratio is not None and spine.comm_ratio > 1
    assert one.now and one.placement is not None and len(one.placement.members) == 1


def test_a_higher_priority_says_who_would_be_stopped_and_when_the_gang_starts(stage: Stage) -> None:
    stage.submit(job("next", members=2, gpus=8, time_limit_s=3600.0))
    as_is, urgent = ask(stage, "next", (("priority", "serving"),))
    assert as_is.start is not None and as_is.start.promised
    assert as_is.start.starts_at == pytest.approx(630.0)
    assert as_is.stopped == ()
    assert not urgent.now
    assert urgent.placement is not None
    there = [name for name in "abcdef" if stage.nodes(name)[0] in urgent.placement.nodes]
    assert sorted(urgent.stopped, key=str) == [Stopped(name, "preempt") for name in there]
    assert urgent.start is not None
    assert urgent.start.starts_at == pytest.approx(stage.now + stage.policy.grace_s)
    assert sorted(urgent.start.waits_for) == there


def test_the_price_is_that_of_the_run_at_its_size_and_place(stage: Stage) -> None:
    stage.submit(job("next", members=2, gpus=8, time_limit_s=3600.0))
    as_is, half = ask(stage, "next", (("members", 1),))
    assert as_is.gpu_hours == pytest.approx(16.0)
    assert as_is.cost_USD == pytest.approx(16 * 6.88)  # AWS, as `topology.hardware.prices` has it
    assert half.run_s == pytest.approx(3600.0)  # its limit, though half the members need longer
    assert half.gpu_hours == pytest.approx(8.0)
    assert (as_is.cut, half.cut) == (False, True)


def test_a_run_that_a_shorter_limit_would_end_before_its_work_is_done_is_said_to_be_cut(
    stage: Stage,
) -> None:
    stage.submit(replace(job("next", gpus=8, time_limit_s=7200.0), expected_s=3600.0))
    as_is, longer, shorter = ask(
        stage, "next", (("time_limit", 3700.0),), (("time_limit", 1800.0),)
    )
    assert [each.run_s for each in (as_is, longer, shorter)] == [3600.0, 3600.0, 1800.0]
    assert [each.cut for each in (as_is, longer, shorter)] == [False, False, True]


def test_half_the_members_take_twice_as_long_where_no_limit_ends_them(stage: Stage) -> None:
    stage.submit(replace(job("next", members=2, gpus=8), expected_s=1800.0, communicates=False))
    as_is, half = ask(stage, "next", (("members", 1),))
    assert as_is.run_s == pytest.approx(1800.0)
    assert half.run_s == pytest.approx(3600.0)
    assert half.gpu_hours == pytest.approx(as_is.gpu_hours)


def test_more_members_for_a_shorter_time_are_within_the_same_budget() -> None:
    stage = Stage(cluster(leaves=1, nodes=4))
    spec = replace(job("j", members=2, gpus=8), expected_s=3600.0, budget_USD=120.0, held=True)
    stage.submit(replace(spec, communicates=False))
    as_is, double = ask(stage, "j", (("members", 4),))
    assert as_is.now and double.now
    assert as_is.run_s == pytest.approx(3600.0)
    assert double.run_s == pytest.approx(1800.0)
    assert double.cost_USD == pytest.approx(as_is.cost_USD)


def test_a_run_on_each_model_takes_as_long_as_the_speeds_that_the_job_tells_say() -> None:
    """As `gantree fit` and the budget of a job have it: at speed 1 what its user expects."""
    models = ("A100-80GB", "H100-80GB")
    machines = {model: replace(machine(8), name=model, gpu=model) for model in models}
    nodes = tuple(Node(f"n{number}", model) for number, model in enumerate(models))
    stage = Stage(Cluster("two", ("node",), machines, nodes))
    speeds = tuple(zip(models, (0.4, 1.0), strict=True))
    spec = replace(job("j", gpus=8), expected_s=3600.0, speeds=speeds)
    spec = replace(spec, roles=(replace(spec.roles[0], shape=Shape(gpus=8, models=models)),))
    stage.submit(replace(spec, held=True))
    runs_s = [each.run_s for each in ask(stage, "j", *((("gpu", model),) for model in models))[1:]]
    ways = options(spec, stage.scheduler.ledger.rooms().fabric)
    assert runs_s == [way.run_s for way in ways] == [9000.0, 3600.0]


def test_a_model_that_is_not_there_is_refused_for_good(stage: Stage) -> None:
    stage.submit(job("next", members=2, gpus=8))
    _, other = ask(stage, "next", (("gpu", "A100-80GB"),))
    assert other.refused is not None and other.refused.never
    assert other.start is None


def test_another_queue_has_another_quota() -> None:
    rules = (QueueRule("a", limit={"gpus": 8}), QueueRule("b"))
    stage = Stage(cluster(leaves=1, nodes=2), Policy(queues=rules))
    stage.submit(replace(job("one", gpus=8), queue="a"), replace(job("two", gpus=8), queue="a"))
    as_is, there = ask(stage, "two", (("queue", "b"),))
    assert as_is.refused is not None and as_is.refused.gate is Gate.LIMIT
    assert there.now
    with pytest.raises(BadInput, match="no queue"):
        ask(stage, "two", (("queue", "c"),))


def test_holds_and_predecessors_are_left_aside_and_what_runs_is_asked_as_if_it_stopped() -> None:
    stage = Stage(cluster(leaves=1, nodes=2))
    stage.submit(
        job("runs", gpus=8), replace(job("held", gpus=8), held=True), job("after", after=("runs",))
    )
    stage.started("runs")
    assert ask(stage, "held")[0].now
    assert ask(stage, "after")[0].now
    as_is, wide = ask(stage, "runs", (("members", 2),))
    assert as_is.now and as_is.placement is not None and list(as_is.placement.nodes) == ["n0"]
    assert wide.now and wide.placement is not None and len(wide.placement.members) == 2


def test_a_job_that_asks_for_something_else_keeps_its_place_in_the_order_of_arrival() -> None:
    stage = Stage(cluster(leaves=1, nodes=2))
    both_nodes = [
        job(name, members=2, gpus=8, time_limit_s=limit_s)
        for name, limit_s in (("first", 600.0), ("early", 3600.0), ("late", 3600.0))
    ]
    stage.submit(*both_nodes)
    stage.started("first")
    _, shorter = ask(stage, "early", (("time_limit", 1800.0),))
    assert shorter.start is not None
    assert shorter.start.starts_at == pytest.approx(600.0 + stage.policy.grace_s)


def test_changes_that_are_none_and_jobs_that_are_gone_are_refused(stage: Stage) -> None:
    stage.submit(job("next", members=2, gpus=8))
    nonsense: list[Change] = [
        (("colour", "red"),),
        (("members", 0),),
        (("time_limit", -1.0),),
        (("priority", "royal"),),
        (("topology.required", "galaxy"),),
    ]
    for change in nonsense:
        with pytest.raises(BadInput):
            ask(stage, "next", change)
    with pytest.raises(NotFound):
        ask(stage, "nobody")
    stage.ended("a")
    with pytest.raises(Conflict, match="has ended"):
        ask(stage, "a")


WISHES = st.tuples(
    st.integers(1, 4),
    st.sampled_from([2, 4, 8]),
    st.sampled_from([None, "leaf"]),
    st.sampled_from(["research", "batch", "serving"]),
    st.sampled_from([None, 300.0, 900.0]),
)
CHANGES = st.one_of(
    st.tuples(st.just("members"), st.integers(1, 4)),
    st.tuples(st.just("topology.required"), st.sampled_from([None, "leaf", "spine"])),
    st.tuples(st.just("priority"), st.sampled_from(["research", "batch", "serving"])),
    st.tuples(st.just("time_limit"), st.sampled_from([60.0, 600.0])),
)


def made(name: str, wish: tuple[int, int, str | None, str, float | None]) -> Job:
    members, gpus, required, priority, limit_s = wish
    checkpoint = Checkpoint() if gpus == 8 else None
    return job(
        name,
        members=members,
        gpus=gpus,
        required=required,
        priority=priority,
        time_limit_s=limit_s,
        checkpoint=checkpoint,
    )


@settings(max_examples=examples(15))
@given(st.lists(WISHES, min_size=3, max_size=9), CHANGES)
def test_what_is_told_is_what_happens_to_who_had_asked_for_it_and_nothing_has_changed(
    wishes: list[tuple[int, int, str | None, str, float | None]],
    entry: tuple[str, str | int | float | None],
) -> None:
    """The plain twin: the last job cancelled, and handed in again with the change.

    Whether it starts at once, where, and who is stopped is the same. Reserved starts need not be: what others were told
    while it waited stands for a job that comes anew, not for one that had asked for the other thing all along.
    """
    stage = Stage(cluster(leaves=2, nodes=2), Policy(backfill=Backfill(reservations=2)))
    jobs = [made(f"j{number}", wish) for number, wish in enumerate(wishes)]
    stage.submit(*jobs)
    stage.started(*(name for name, phase in stage.phases().items() if phase == "starting"))
    last = jobs[-1].name
    if stage.phase(last) is not Phase.PENDING:
        return
    ledger = stage.scheduler.ledger
    before, facts = copy_of(ledger), len(stage.facts)
    _, told = ask(stage, last, (entry,))
    assert (ledger.jobs, ledger.claims, ledger.reservations) == (
        before.jobs,
        before.claims,
        before.reservations,
    )
    assert ledger.signatures == before.signatures and len(stage.facts) == facts
    check(ledger)
    spec = replace(changed(ledger, jobs[-1], (entry,)), name="anew")
    stage.handle(
        [
            stage.event(CancelRequested, job=last),
            stage.event(JobSubmitted, job="anew", spec=spec),
        ]
    )
    assert told.now == (stage.phase("anew") is Phase.STARTING)
    if told.now:
        assert told.placement is not None
        assert list(told.placement.nodes) == list(dict.fromkeys(stage.nodes("anew")))
    claim = ledger.claims.get("anew")
    if claim is not None:
        assert {each.job for each in told.stopped} <= set(claim.victims)
        assert told.start is not None


def test_a_shadow_is_equal_and_changes_alone(stage: Stage) -> None:
    stage.submit(job("next", members=2, gpus=8))
    ledger = stage.scheduler.ledger
    twin = copy_of(ledger)
    check(twin)
    assert (twin.jobs, twin.reservations, dict(twin.rooms().owners)) == (
        ledger.jobs,
        ledger.reservations,
        dict(ledger.rooms().owners),
    )
    for name, state in twin.jobs.items():
        assert state is not ledger.jobs[name]
        assert state.spec is ledger.jobs[name].spec
    twin.let_go(["a"])
    twin.accounts.stop(twin.jobs["a"], stage.now)
    check(ledger)
