"""Whose clock is called low among its peers, and what is not compared."""

import numpy as np
import pytest

from gantree.telemetry.slow_clocks import (
    AT_LEAST,
    BUSY,
    CLOCK,
    WINDOW,
    FloatArray,
    clock_marks,
    loaded_clock,
    slowed_by,
)

REASON = "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"


def clocks_of(*level: float, sigma: float = 0.01, seed: int = 0) -> FloatArray:
    """A window of GPUs of these mean clocks, in MHz."""
    noise = np.random.default_rng(seed).normal(0, sigma, (WINDOW, len(level)))
    found: FloatArray = np.array(level) * np.exp(noise)
    return found


def named(clocks: FloatArray) -> list[int]:
    marks = clock_marks(clocks)
    return np.flatnonzero(marks.starts & marks.stays).tolist()


@pytest.mark.parametrize(
    ("level", "who"),
    [
        ((1400, 1400, 1400, 1100), [3]),
        ((1400, 1100, 1400, 1100, 1400, 1400, 1400), [1, 3]),
        ((1400, 1400, 1400, 1300), []),
        ((1400, 1400, 1400, 1900), []),
        ((1400, 1400, 1100), []),
        ((1000, 1000, 1000, 1000), []),
    ],
)
def test_a_gpu_is_named_that_is_far_below_three_peers_or_more(
    level: tuple[float, ...], who: list[int]
) -> None:
    assert named(clocks_of(*level)) == who


def test_ratio_is_that_to_the_median_of_the_peers() -> None:
    marks = clock_marks(clocks_of(1400, 1400, 1500, 1050, sigma=1e-6))
    assert (round(float(marks.ratio[3]), 3), marks.compared) == (0.75, 4)


def test_what_varies_more_must_be_clear_of_that() -> None:
    """A scrape sees a GPU compute or wait, by chance: half of the time 1,000, half 1,980 MHz."""
    random = np.random.default_rng(1)
    clocks = random.choice([1000.0, 1980.0], (WINDOW, 64))
    assert named(clocks) == []
    assert named(clocks * np.where(np.arange(64) == 5, 0.85, 1.0)) == []


def test_a_name_stays_until_the_gpu_is_nearly_as_fast() -> None:
    stays = [
        bool(clock_marks(clocks_of(1400, 1400, 1400, low, sigma=1e-4)).stays[3])
        for low in (1100, 1250, 1290, 1310)
    ]
    assert stays == [True, True, True, False]


def test_a_gpu_without_load_is_not_compared() -> None:
    clocks = clocks_of(1400, 1400, 1400, 300)
    clocks[AT_LEAST - 1 :, 3] = np.nan
    assert named(clocks) == []
    clocks[AT_LEAST - 1, 3] = 300.0
    assert named(clocks) == [3]
    clocks[:, 0] = np.nan
    assert named(clocks) == [], "two peers are too few"
    marks = clock_marks(np.full((WINDOW, 8), np.nan))
    assert (marks.compared, named(np.full((WINDOW, 8), np.nan))) == (0, [])


@pytest.mark.parametrize(
    ("signs", "clock"),
    [
        ({CLOCK: 1410.0, BUSY: 100.0}, 1410.0),
        ({CLOCK: 1410.0, BUSY: 90.0}, 1410.0),
        ({CLOCK: 1410.0, BUSY: 89.0}, None),
        ({CLOCK: 1410.0, BUSY: 1e9}, None),
        ({CLOCK: 0.0, BUSY: 100.0}, None),
        ({CLOCK: 1e5, BUSY: 100.0}, None),
        ({CLOCK: -5.0, BUSY: 100.0}, None),
        ({CLOCK: 1410.0}, None),
        ({}, None),
    ],
)
def test_a_clock_counts_under_load(signs: dict[str, float], clock: float | None) -> None:
    found = loaded_clock(signs)
    assert (None if np.isnan(found) else found) == clock


@pytest.mark.parametrize(
    ("signs", "reason"),
    [
        ({}, ""),
        ({REASON: 0.0}, ""),
        ({REASON: 4.0}, ""),
        ({REASON: 0x24}, "heat"),
        ({REASON: 0x48}, "heat"),
        ({REASON: 0x80}, "the power brake"),
        ({"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": 8.0}, "the hardware"),
        ({REASON: -1.0}, ""),
    ],
)
def test_what_slows_a_gpu_is_said_where_it_is_known(signs: dict[str, float], reason: str) -> None:
    assert slowed_by(signs) == reason
