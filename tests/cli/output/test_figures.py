"""Figures as people read them: three digits, thousands apart, no exponent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.cli.output.figures import digits, dollars, rate_text, size_text, time_text


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        (time_text(1234.0), "1,230 s"),
        (time_text(8.321), "8.32 s"),
        (time_text(0.0781), "78.1 ms"),
        (time_text(4.5e-5), "45 us"),
        (time_text(0.0), "0 s"),
        (rate_text(334.11), "334.1 GB/s"),
        (rate_text(0.0213), "0.0213 GB/s"),
        (rate_text(0.0), "0 GB/s"),
        (size_text(1 << 30), "1 GiB"),
        (size_text(1e15), "909.5 TiB"),
        (size_text(12), "12 B"),
        (dollars(0.5), "$0.50"),
        (dollars(0.5091), "$0.509"),
        (dollars(0.00123), "$0.00123"),
        (dollars(1220.5), "$1,220.50"),
        (dollars(0.9999), "$1.00"),
        (dollars(0.0), "$0.00"),
    ],
)
def test_a_figure_is_shown_with_its_unit(told: str, shown: str) -> None:
    assert told == shown


@given(st.floats(min_value=1e-12, max_value=1e15))
def test_three_digits_are_near_and_never_an_exponent(figure: float) -> None:
    shown = digits(figure)
    assert "e" not in shown
    assert float(shown.replace(",", "")) == pytest.approx(figure, rel=0.0051)
