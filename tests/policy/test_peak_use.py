"""The most that was used in a window of time, against a plain search of all that was used in it."""

from math import ceil

from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.policy.quota.peak_use import STEPS, PeakUse
from support.examples import examples

WINDOW_S = 600.0
steps = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 9)), max_size=30)


@settings(max_examples=examples(150), deadline=None)
@given(steps, st.integers(0, 1500), st.integers(1, 10))
def test_the_peak_is_the_highest_level_of_the_window(
    steps: list[tuple[int, int]], later_s: int, below: int
) -> None:
    """A level counts until a window after it was left, to the next sixtieth of one."""
    peak, now, levels = PeakUse(WINDOW_S, 0), 0.0, [(0.0, 0)]
    for after_s, level in steps:
        now += after_s
        peak.note(level, now)
        levels.append((now, level))
    now += later_s
    step_s = WINDOW_S / STEPS
    left_at = [ceil(at / step_s) * step_s for at, _ in levels[1:]]
    past = zip((level for _, level in levels), left_at, strict=False)
    in_window = [level for level, left in past if left + WINDOW_S > now]
    assert peak.most(now) == max([levels[-1][1], *in_window])
    assert len(peak.past) <= STEPS + 1
    moment = peak.falls_below(below, now)
    if moment is None:
        assert peak.most(now) < below or peak.level >= below
    else:
        assert peak.most(moment - 0.1) >= below > peak.most(moment)


def test_a_level_that_is_left_and_taken_again_counts_from_the_last_time() -> None:
    peak = PeakUse(WINDOW_S, 0)
    for level, at in ((8, 0.0), (2, 100.0), (8, 200.0), (2, 300.0)):
        peak.note(level, at)
    assert peak.past == [(300.0, 8)]
    assert peak.most(899.0) == 8 and peak.most(900.0) == 2


def test_a_level_is_held_up_to_a_sixtieth_of_the_window_longer_and_each_falls_at_its_own_time() -> (
    None
):
    peak = PeakUse(WINDOW_S, 8)
    peak.note(4, 1.0)
    peak.note(0, 101.0)
    assert peak.past == [(10.0, 8), (110.0, 4)]
    assert [peak.falls_below(level, 200.0) for level in (8, 5, 4, 1)] == [
        610.0,
        610.0,
        710.0,
        710.0,
    ]
    assert peak.falls_below(9, 200.0) is None and peak.falls_below(0, 200.0) is None
