"""Jobs with alternative shapes: which one they start in, what they may stop, and what is said while they wait."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.core.explain.explain import why
from gantree.model.facts import ClaimDropped
from gantree.model.gang_shapes import every_shape, gpu_part, in_shape_of
from gantree.model.jobs import AlternativeShape, Job, Role, Shape
from gantree.model.phases import HOLDING, Phase
from gantree.placement.choice.search import fits
from gantree.policy.rules import Policy, QueueRule
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from support.examples import examples
from support.shape_lives import SHAPES

WHOLE, SLICE, HALF = Shape(gpus=1), Shape(mig="3g.40gb"), Shape(gpu_share=0.5)


def asks(name: str, first: Shape, *others: Shape, members: int = 1, **more: object) -> Job:
    """A job of one role with these shapes, each other one at half the speed of the one before."""
    alternatives = [AlternativeShape("w", shape, 0.5**n) for n, shape in enumerate(others, 1)]
    spec = Job(name, (Role("w", members, first, run=("true",)),), alternatives=tuple(alternatives))
    return replace(spec, **more)  # type: ignore[arg-type]  # fields of a job, as the test writes them


def part_of(stage: Stage, name: str) -> object:
    """The part of a GPU that each member of a placed gang has; None for a job that waits."""
    state = stage.state(name)
    return None if state.placement is None else gpu_part(state.present.roles[0].shape)


def parts(stage: Stage, *names: str) -> list[object]:
    return [part_of(stage, name) for name in names]


def test_the_shapes_are_tried_in_order_and_a_job_waits_if_none_fits() -> None:
    stage = Stage(cluster(leaves=1, nodes=1, gpus=2))
    stage.submit(job("whole", gpus=1), asks("instance", SLICE))
    for name in "abc":
        stage.submit(asks(name, WHOLE, Shape(mig="4g.40gb"), SLICE, HALF))
    assert parts(stage, *"abc") == [gpu_part(Shape(mig="4g.40gb")), None, None]
    stage.started("whole", "instance")
    stage.ended("whole")
    assert parts(stage, "b", "c") == [gpu_part(WHOLE), None]
    stage.ended("instance")
    assert parts(stage, "c") == [gpu_part(SLICE)]


def test_the_speed_of_a_placed_gang_is_that_of_its_shape() -> None:
    stage = Stage(cluster(leaves=1, nodes=1, gpus=1))
    stage.submit(asks("tenant", HALF))
    stage.submit(asks("a", WHOLE, SLICE, HALF))
    state = stage.state("a")
    assert state.placement is not None
    assert in_shape_of(state.spec, state.placement)[0] == 0.25


@pytest.mark.parametrize(
    ("choose", "part"), [("order", WHOLE), ("time", Shape(gpus=2)), ("cost", SLICE)]
)
def test_time_and_cost_choose_by_speed_and_by_price_per_speed(choose: str, part: Shape) -> None:
    """Two GPUs are 1.5 times as fast; three sevenths of a GPU are half as fast, so a run costs less there."""
    spec = asks("a", WHOLE, expected_s=3600.0, choose=choose)
    others = AlternativeShape("w", Shape(gpus=2), 1.5), AlternativeShape("w", SLICE, 0.5)
    stage = Stage(cluster(leaves=1, nodes=1, gpus=4))
    stage.submit(replace(spec, alternatives=others))
    assert part_of(stage, "a") == gpu_part(part)


def test_room_is_made_for_the_first_shape_for_which_it_can_be() -> None:
    stage = Stage(cluster(leaves=1, nodes=1, gpus=2))
    stage.submit(job("low", gpus=1, priority="batch"), job("high", gpus=1, priority="serving"))
    stage.started("low", "high")
    stage.submit(asks("a", Shape(gpus=2), WHOLE, priority="production"))
    assert stage.phase("low") is Phase.STOPPING
    stage.ended("low", 143)
    assert parts(stage, "a") == [gpu_part(WHOLE)]


def test_a_claim_on_a_part_of_a_gpu_starts_once_the_part_is_free() -> None:
    stage = Stage(cluster(leaves=1, nodes=1, gpus=1))
    stage.submit(asks("low", HALF), asks("high", HALF, priority="serving"))
    stage.started("low", "high")
    stage.submit(asks("a", WHOLE, HALF, priority="production"))
    assert stage.phase("low") is Phase.STOPPING
    stage.ended("low", 143)
    assert parts(stage, "a") == [gpu_part(HALF)]
    (dropped,) = (fact for fact in stage.facts if isinstance(fact, ClaimDropped))
    assert dropped.reason == "its room is free"


def test_what_a_quota_refuses_in_one_shape_starts_in_another() -> None:
    policy = Policy(queues=(QueueRule("q", limit={"gpus": 0.5}),))
    stage = Stage(cluster(leaves=1, nodes=1, gpus=4), policy)
    stage.submit(asks("a", WHOLE, HALF, queue="q"), asks("b", WHOLE, HALF, queue="q"))
    assert parts(stage, "a", "b") == [gpu_part(HALF), None]
    stage.started("a")
    stage.ended("a")
    assert parts(stage, "b") == [gpu_part(HALF)]


def test_jobs_with_one_first_shape_and_other_alternatives_are_not_taken_for_each_other() -> None:
    stage = Stage(cluster(leaves=1, nodes=1, gpus=2))
    stage.submit(job("whole", gpus=1), asks("instance", SLICE))
    stage.submit(asks("a", WHOLE, Shape(mig="1g.10gb")), asks("b", WHOLE, Shape(mig="2g.20gb")))
    assert parts(stage, "a", "b") == [
        gpu_part(Shape(mig="1g.10gb")),
        gpu_part(Shape(mig="2g.20gb")),
    ]


def test_a_job_whose_first_shape_no_machine_has_starts_in_another_and_never_waits_for_the_first() -> (
    None
):
    stage = Stage(cluster(leaves=1, nodes=1, gpus=2))
    stage.submit(asks("a", Shape(gpus=4), Shape(gpus=2)))
    stage.submit(asks("b", Shape(gpus=4), Shape(gpus=2)))
    assert parts(stage, "a", "b") == [gpu_part(Shape(gpus=2)), None]
    told = why(stage.scheduler.ledger, "b", stage.now)
    assert told.refused is not None and not told.refused.never
    assert "It cannot start with 4 GPUs either." in told.sentence
    stage.started("a")
    stage.submit(asks("c", Shape(gpus=4), Shape(gpus=2), priority="serving"))
    assert stage.phase("a") is Phase.STOPPING


@st.composite
def arrivals(draw: st.DrawFn) -> list[Job]:
    made = []
    for number in range(draw(st.integers(2, 9))):
        first, *others = draw(
            st.lists(st.sampled_from(SHAPES), min_size=1, max_size=4, unique_by=gpu_part)
        )
        made.append(asks(f"j{number}", first, *others, members=draw(st.integers(1, 2))))
    return made


@given(jobs=arrivals(), ends=st.lists(st.integers(0, 8), max_size=6))
@settings(max_examples=examples(150), deadline=None)
def test_the_first_shape_that_fits_on_free_room_starts_and_a_job_waits_only_if_none_fits(
    jobs: list[Job], ends: list[int]
) -> None:
    """All are of one priority, so nobody is stopped. The plain twin asks for each shape by itself."""
    stage = Stage(cluster(leaves=1, nodes=2, gpus=2))
    for spec in jobs:
        rooms = stage.scheduler.ledger.rooms()
        plain = next((shape for _, shape in every_shape(spec) if fits(rooms, shape)), None)
        stage.submit(spec)
        expected = None if plain is None else gpu_part(plain.roles[0].shape)
        assert part_of(stage, spec.name) == expected
    for number in ends:
        held = [name for name, s in stage.scheduler.ledger.jobs.items() if s.phase in HOLDING]
        if held:
            stage.started(held[number % len(held)])
            stage.ended(held[number % len(held)])
        ledger = stage.scheduler.ledger
        first = next((s for s in ledger.jobs.values() if s.phase is Phase.PENDING), None)
        if first is not None:
            shapes = (shape for _, shape in every_shape(first.spec))
            assert not any(fits(ledger.rooms(), shape) for shape in shapes)
