"""Replicas on one GPU: the simulation against closed forms of queueing theory, and against a plain twin."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.sim.experiments.sharing.gpu_queue import (
    Slices,
    Stream,
    in_slices,
    mean_of,
    on_partition,
    partition_rate,
    percentile,
    poisson,
    side_by_side,
)
from gantree.sim.experiments.sharing.noisy_neighbour import (
    METHODS,
    SATURATED,
    Case,
    keeps_up,
    p99,
    slices,
)
from support.examples import examples

MANY = 30_000

gaps_and_works = st.lists(st.tuples(st.floats(0, 5), st.floats(0.01, 5)), max_size=8)


def stream_of(pairs: list[tuple[float, float]]) -> Stream:
    at, found = 0.0, []
    for gap, work in pairs:
        at += gap
        found.append((at, work))
    return found


def test_m_d_1_waits_as_pollaczek_and_khinchin_say() -> None:
    for load in (0.3, 0.7):
        found = on_partition(poisson(load, MANY, 0.0, Random(1)), 1.0)
        assert mean_of(found) == pytest.approx(1 + load / (2 * (1 - load)), rel=0.03)


def test_m_g_1_on_a_part_of_the_gpu_waits_as_pollaczek_and_khinchin_say() -> None:
    rate, load, cv = partition_rate(3 / 7, 0.6), 0.4, 0.5
    busy = load / rate
    found = on_partition(poisson(load, MANY, cv, Random(2)), rate)
    expected = (1 + busy * (1 + cv**2) / (2 * (1 - busy))) / rate
    assert mean_of(found) == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("replicas", [2, 5])
def test_exponential_work_side_by_side_is_m_m_1_with_processor_sharing(replicas: int) -> None:
    load = 0.5 / replicas
    streams = [poisson(load, MANY // replicas, 1.0, Random(seed)) for seed in range(replicas)]
    found = [time for times in side_by_side(streams, 1.0) for time in times]
    assert mean_of(found) == pytest.approx(1 / (1 - 0.5), rel=0.06)


def test_the_p99_of_m_m_1_is_that_of_an_exponential_time() -> None:
    found = on_partition(poisson(0.5, MANY, 1.0, Random(3)), 1.0)
    assert percentile(found, 99) == pytest.approx(4.605 / 0.5, rel=0.07)


def test_short_slices_without_a_cost_of_switching_are_processor_sharing() -> None:
    streams = [poisson(0.35, 4_000, 1.0, Random(seed)) for seed in (5, 6)]
    sliced = in_slices(streams, Slices(0.01, 0.0))
    shared = side_by_side(streams, 1.0)
    for one, other in zip(sliced, shared, strict=True):
        assert one == pytest.approx(other, abs=0.1, rel=0.02)


def test_two_requests_in_slices_with_switches_by_hand() -> None:
    streams = [[(0.0, 2.0)], [(0.0, 1.0)]]
    # 0: 0..1, switch, 1: 1.5..2.5 and done, switch, 0: 3..4
    assert in_slices(streams, Slices(1.0, 0.5)) == [[4.0], [2.5]]


def test_beside_one_that_never_pauses_a_slice_in_two_is_ones_own() -> None:
    assert in_slices([[(0.0, 3.0)]], Slices(1.0, 0.0), saturated=1) == [[5.0]]
    assert side_by_side([[(0.0, 3.0)]], 1.0, saturated=1) == [[pytest.approx(6.0)]]


@given(gaps_and_works, st.floats(0.1, 1.0))
def test_one_replica_alone_does_not_notice_how_the_gpu_is_shared(
    pairs: list[tuple[float, float]], width: float
) -> None:
    stream = stream_of(pairs)
    expected = pytest.approx(on_partition(stream, 1.0), abs=1e-9)
    assert side_by_side([stream], width)[0] == expected
    assert in_slices([stream], Slices(0.5, 0.1))[0] == expected


@settings(max_examples=examples(60))
@given(st.lists(gaps_and_works, min_size=1, max_size=4), st.floats(0.2, 1.0), st.integers(0, 2))
def test_side_by_side_equals_a_plain_twin(
    pairs: list[list[tuple[float, float]]], width: float, saturated: int
) -> None:
    streams = [stream_of(each) for each in pairs]
    found = side_by_side(streams, width, saturated=saturated)
    for one, other in zip(found, twin(streams, width, saturated), strict=True):
        assert one == pytest.approx(other, abs=1e-6)


def twin(streams: list[Stream], width: float, saturated: int) -> list[list[float]]:
    """From event to event; the work that is left is reduced for each head by itself."""
    left = [list(stream) for stream in streams]
    rest: list[float | None] = [None] * len(streams)
    found: list[list[float]] = [[] for _ in streams]
    now = 0.0
    while any(left):
        for replica, stream in enumerate(left):
            if rest[replica] is None and stream and stream[0][0] <= now:
                rest[replica] = stream[0][1]
        busy = [replica for replica, work in enumerate(rest) if work is not None]
        rate = min(1.0, 1 / (width * max(1, len(busy) + saturated)))
        ends = [now + (rest[replica] or 0.0) / rate for replica in busy]
        comes = [at for stream in left for at, _ in stream if at > now]
        then = min(ends + comes)
        for replica, end in zip(busy, ends, strict=True):
            rest[replica] = (rest[replica] or 0.0) - (then - now) * rate
            if end <= then + 1e-12:
                found[replica].append(end - left[replica].pop(0)[0])
                rest[replica] = None
        now = then
    return found


def test_a_queue_that_grows_for_ever_is_told_from_one_that_does_not() -> None:
    mig, mps, slices = METHODS
    assert keeps_up(Case(mig, 0.65, SATURATED, 1))
    assert not keeps_up(Case(mig, 0.8, 0.0, 1))
    assert keeps_up(Case(mps, 0.65, SATURATED, 1))
    assert not keeps_up(Case(slices, 0.65, SATURATED, 1))
    assert keeps_up(Case(slices, 0.3, SATURATED, 1))


def test_under_mig_a_neighbour_changes_nothing() -> None:
    assert p99(Case(METHODS[0], 0.3, 0.0, 1)) == p99(Case(METHODS[0], 0.3, SATURATED, 1))


def test_a_switch_takes_as_long_whatever_the_length_of_slices() -> None:
    short, long = (slices(Case(METHODS[2], 0.3, 0.2, 1, "slice_s", end)) for end in ("low", "high"))
    assert long.length == pytest.approx(15 * short.length)
    assert long.length * long.switch_share == pytest.approx(short.length * short.switch_share)


def test_a_wider_request_is_slowed_more_by_a_partition() -> None:
    low, high = (p99(Case(METHODS[0], 0.3, 0.0, 1, "width", end)) for end in ("low", "high"))
    assert low < p99(Case(METHODS[0], 0.3, 0.0, 1)) < high
