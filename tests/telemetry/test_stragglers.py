"""Who is named in a gang by the own times of its ranks: planted stragglers, and noise that must name nobody."""

import math
from collections.abc import Callable
from statistics import median

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.telemetry.stragglers import (
    JITTER,
    LONG_EVERY,
    LONG_WINDOW,
    SLOW,
    WINDOW,
    FloatArray,
    Straggler,
    jitter_marks,
    log_ratio,
    named,
    slow_marks,
    stragglers,
)
from support.examples import examples, seeds

STEP_S = 2.0


def gang(seed: int, steps: int, ranks: int, jitter: float = 0.03) -> FloatArray:
    """Own times own_s[step, rank] of healthy ranks: a fixed difference of GPUs of 2 %, and lognormal jitter."""
    random = np.random.default_rng(seed)
    offset = random.normal(0, 0.02, ranks)
    own_s: FloatArray = STEP_S * np.exp(offset + random.normal(0, jitter, (steps, ranks)))
    return own_s


def of_steps(own_s: FloatArray) -> list[dict[int, float]]:
    return [dict(enumerate(column)) for column in own_s.T.tolist()]


def first_named_at(own_s: FloatArray, rank: int) -> int:
    """Steps after which a rank is named for the first time."""
    for steps in range(16, len(own_s) + 1):
        found = named(own_s[:steps], range(own_s.shape[1]))
        if rank in [each.rank for each in found]:
            return steps
    raise AssertionError(f"rank {rank} is never named")


@pytest.mark.parametrize("ranks", [2, 3, 8, 64])
@pytest.mark.parametrize("seed", seeds(40))
def test_a_straggler_of_1_3_is_named_within_20_steps_and_nobody_else(ranks: int, seed: int) -> None:
    own_s, rank = gang(seed, 120, ranks), seed % ranks
    own_s[100:, rank] *= 1.3
    assert not [each for each in named(own_s[:100], range(ranks)) if each.sign == SLOW]
    assert first_named_at(own_s[84:], rank) - 16 <= 20
    (found,) = named(own_s, range(ranks))
    assert (found.rank, found.sign, found.peers) == (rank, SLOW, ranks - 1)
    assert 1.15 < found.ratio < 1.45


@pytest.mark.parametrize("seed", seeds(40))
def test_one_that_is_slow_from_its_first_step_is_named_after_20(seed: int) -> None:
    own_s = gang(seed, 20, 8)
    own_s[:, 5] *= 1.3
    assert [each.rank for each in named(own_s, range(8))] == [5]


@pytest.mark.parametrize("seed", seeds(40))
def test_where_steps_vary_by_a_quarter_it_takes_longer(seed: int) -> None:
    own_s = gang(seed, 100, 8, jitter=0.25)
    own_s[:, 5] *= 1.45
    marks = slow_marks(log_ratio(own_s), WINDOW, every=1)
    if not marks.steps_named()[5]:
        found = [each for each in named(own_s, range(8)) if each.sign == SLOW]
        assert [each.rank for each in found] == [5]
        assert found[0].steps % LONG_EVERY == 0
    assert slow_marks(log_ratio(own_s), LONG_WINDOW, LONG_EVERY).steps_named()[5]


@pytest.mark.parametrize("more", range(1, 9))
def test_the_newest_steps_are_always_judged(more: int) -> None:
    own_s = gang(2, LONG_WINDOW + more, 8)
    newest = jitter_marks(log_ratio(own_s[more:]))
    assert jitter_marks(log_ratio(own_s)).ratio.tolist() == newest.ratio.tolist()


def stall_of_all(own_s: FloatArray, random: np.random.Generator) -> None:
    own_s[40:60] *= 5.0


def pauses_of_single_ranks(own_s: FloatArray, random: np.random.Generator) -> None:
    own_s[random.random(own_s.shape) < 0.05] *= 3.0


def slow_for_five_steps(own_s: FloatArray, random: np.random.Generator) -> None:
    own_s[200:205, 2] *= 2.0


def half_are_a_little_slow(own_s: FloatArray, random: np.random.Generator) -> None:
    own_s[:, ::2] *= 1.05


def wide_noise(own_s: FloatArray, random: np.random.Generator) -> None:
    own_s *= np.exp(random.normal(0, 0.25, own_s.shape))


HARMLESS = [
    stall_of_all, pauses_of_single_ranks, slow_for_five_steps, half_are_a_little_slow, wide_noise,
]  # fmt: skip


@pytest.mark.parametrize("harm", HARMLESS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("seed", seeds(40))
def test_what_passes_or_meets_all_names_nobody(
    harm: Callable[[FloatArray, np.random.Generator], None], seed: int
) -> None:
    own_s = gang(seed, 256, 8)
    harm(own_s, np.random.default_rng(seed + 1000))
    for steps in range(16, len(own_s), 5):
        assert named(own_s[:steps], range(8)) == []


def test_a_rank_stays_named_a_little_below_the_limit_and_not_far_below() -> None:
    own_s = gang(1, 200, 8, jitter=0.005)
    own_s[:, 3] = STEP_S * 1.3
    own_s[60:120, 3] = STEP_S * 1.12
    own_s[120:, 3] = STEP_S * 1.05
    kept = {
        steps: [each.rank for each in named(own_s[:steps], range(8))] for steps in (60, 119, 160)
    }
    assert kept == {60: [3], 119: [3], 160: []}
    assert named(own_s[62:119], range(8)) == []


@pytest.mark.parametrize("seed", seeds(40))
def test_a_rank_that_varies_is_named_as_jitter(seed: int) -> None:
    own_s = gang(seed, 128, 8)
    random = np.random.default_rng(seed + 500)
    own_s[:, 6] *= np.exp(random.normal(0, 0.2, 128))
    own_s[:, 6] /= np.median(own_s[:, 6]) / STEP_S
    (found,) = named(own_s, range(8))
    assert (found.rank, found.sign) == (6, JITTER)
    assert found.ratio > 3
    assert found.steps % 8 == 0 and 8 <= found.steps <= 72


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 9), st.floats(1e-3, 1e3), st.permutations(range(9)))
def test_neither_the_unit_nor_the_order_of_ranks_nor_common_stalls_matter(
    seed: int, ranks: int, unit: float, order: list[int]
) -> None:
    own_s = gang(seed, 40, ranks)
    own_s[:, 0] *= 1.4
    stalls = np.exp(np.random.default_rng(seed).normal(0, 1, (40, 1)))
    order = [each for each in order if each < ranks]
    plain, other = named(own_s, range(ranks)), named((own_s * unit * stalls)[:, order], order)
    other.sort(key=lambda each: each.rank)
    assert [(a.rank, a.sign, a.steps) for a in plain] == [(b.rank, b.sign, b.steps) for b in other]
    assert all(math.isclose(a.ratio, b.ratio) for a, b in zip(plain, other, strict=True))


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.integers(1, 6), min_size=2, max_size=9))
def test_the_ratio_is_to_the_median_of_all_others(own_s: list[int]) -> None:
    others = [own_s[:each] + own_s[each + 1 :] for each in range(len(own_s))]
    plain = [
        math.log(own) - median(map(math.log, rest)) for own, rest in zip(own_s, others, strict=True)
    ]
    assert log_ratio(np.array([own_s], dtype=float))[0].tolist() == pytest.approx(plain)


def test_ranks_are_compared_within_their_group_only() -> None:
    own_s = gang(3, 40, 8)
    own_s[:, 4:] *= 2.0
    assert stragglers(of_steps(own_s), range(8), [range(4), range(4, 8)]) == ()
    assert [each.rank for each in stragglers(of_steps(own_s), range(8), [range(8)])] == [4, 5, 6, 7]


def test_steps_that_not_all_ranks_report_do_not_count() -> None:
    own_s = gang(4, 40, 4)
    own_s[:, 1] *= 1.5
    told = of_steps(own_s)
    del told[3][39], told[2][0]
    (found,) = stragglers(told, [10, 11, 12, 13], [range(4)])
    assert (found.rank, found.steps) == (11, 38 - 15)
    for step in range(30):
        del told[0][step + 1]
    assert stragglers(told, [10, 11, 12, 13], [range(4)]) == ()
    assert stragglers([{}, {}], [0, 1], [range(2)]) == ()
    assert stragglers(told, [10, 11, 12, 13], [[0]]) == ()


def test_equal_times_name_nobody() -> None:
    assert named(np.full((100, 4), 0.5), range(4)) == []
    slow = np.full((100, 4), 0.5)
    slow[:, 2] = 0.7
    (found,) = named(slow, range(4))
    assert found == Straggler(2, SLOW, found.ratio, 85, 3)
    assert math.isclose(found.ratio, 1.4)
