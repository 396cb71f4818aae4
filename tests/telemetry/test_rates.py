"""A rate is what most intervals of a window show: no burst, no reset, no gap, no clock that goes back."""

from gantree.telemetry.rates import Counters


def rates(*readings: tuple[float, float]) -> list[float]:
    """The rate after each (value, seconds)."""
    counters = Counters()
    return [counters.rate(("n0", "x"), value, at) for value, at in readings]


def test_a_rate_counts_once_most_of_the_window_shows_it() -> None:
    assert rates((0, 0), (15, 15), (30, 30), (45, 45), (60, 60)) == [0.0, 0.0, 0.0, 1.0, 1.0]


def test_a_burst_is_no_rate() -> None:
    assert max(rates((0, 0), (9e9, 15), (9e9, 30), (9e9, 45), (9e9, 60), (9e9, 75))) == 0.0


def test_a_reset_is_left_out_and_the_counter_goes_on() -> None:
    told = rates((0, 0), (15, 15), (30, 30), (45, 45), (5, 60), (20, 75), (35, 90))
    assert told[3:] == [1.0, 1.0, 1.0, 1.0]


def test_the_same_moment_again_and_one_before_say_nothing() -> None:
    assert rates((0, 10), (900, 10), (900, 5), (900, 0)) == [0.0] * 4


def test_a_rate_is_gone_once_most_of_the_window_is_quiet() -> None:
    readings = [(15.0 * min(step, 5), 15.0 * step) for step in range(9)]
    assert rates(*readings)[-4:] == [1.0, 1.0, 1.0, 0.0]


def test_a_node_that_is_gone_is_forgotten() -> None:
    counters = Counters()
    counters.rate(("n0", "x"), 1, 0)
    counters.keep(frozenset())
    assert counters.rate(("n0", "x"), 100, 15) == 0.0
