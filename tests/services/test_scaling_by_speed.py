"""Replicas of different speeds: how many bear a load, and that their number comes to rest."""

from itertools import accumulate
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.services import Autoscaling, ReplicaCount, ScaleSteps, ScaleTarget
from gantree.services.autoscaler import of_shared, recommend
from gantree.services.load import Load, Measured, Replicas
from gantree.services.scaling_history import History
from support.examples import examples
from support.served_load import turns

SPEEDS = (0.25, 0.4, 0.5, 1.0, 1.5)
MOST = 200


@pytest.mark.parametrize(
    ("total", "speeds", "replicas"),
    [
        (16.0, (1.0, 1.0), 2),
        (16.0, (0.5, 0.5), 3),
        (16.0, (0.5, 0.5, 0.5, 0.5), 4),
        (16.0, (0.5, 1.0, 1.0), 3),
        (12.0, (0.5, 1.0, 1.0), 2),
        (0.0, (0.5, 1.0), 0),
    ],
)
def test_a_replica_bears_the_target_times_its_speed(
    total: float, speeds: tuple[float, ...], replicas: int
) -> None:
    assert of_shared(total, 8.0, len(speeds), 0.0, speeds) == replicas


@given(st.floats(0.0, 40.0), st.lists(st.sampled_from(SPEEDS), max_size=8))
def test_the_fewest_that_stay_bear_it(total: float, speeds: list[float]) -> None:
    found = of_shared(total, 1.0, len(speeds), 0.0, speeds)
    borne = list(accumulate([*speeds, *[1.0] * MOST], initial=0.0))
    assert found == next(count for count, sum_ in enumerate(borne) if sum_ >= total - 1e-6)


@settings(max_examples=examples(200), deadline=None)
@given(
    st.floats(0.1, 30.0), st.integers(0, 10**6), st.integers(1, 12), st.integers(0, 4), st.sampled_from([0.0, 0.1])
)  # fmt: skip
def test_at_a_constant_load_their_number_comes_to_rest(
    rate: float, seed: int, begin: int, start: int, tolerance: float
) -> None:
    """Each new replica has the next speed, whichever it is, and the newest one ends first."""
    scaling = Autoscaling((ScaleTarget("rate", 1.0),), 15.0, tolerance)
    lots, there, numbers = Random(seed), list[tuple[float, int]](), list[int]()
    wanted, history = begin, None
    for sample in range(150):
        there = there[:wanted]
        while len(there) < wanted:
            there.append((lots.choice(SPEEDS), sample + start))
        ready = tuple(speed for speed, at in there if at <= sample)
        told = Measured(rate, sample * 15.0)
        found, history = _recommended(scaling, wanted, ready, told, history)
        wanted = found
        numbers.append(wanted)
    assert turns(numbers) in {"", "u", "d", "ud"}
    assert len(set(numbers[-40:])) == 1


def test_slow_replicas_that_are_not_ready_for_a_while_are_not_ended() -> None:
    """As ones of speed 1 three would do; they are no faster than the others."""
    scaling = Autoscaling((ScaleTarget("rate", 1.0),), 15.0, down=ScaleSteps())
    wanted, _ = _recommended(scaling, 4, (0.5, 0.5), Measured(1.9, 15.0), None)
    assert wanted == 4


def _recommended(
    scaling: Autoscaling,
    wanted: int,
    ready: tuple[float, ...],
    told: Measured,
    history: History | None,
) -> tuple[int, History]:
    replicas = Replicas(wanted, len(ready), ready)
    load = Load((told,), told, told)
    found, history = recommend(scaling, ReplicaCount(1, 100), replicas, load, history, told.at_s)
    return found.replicas, history
