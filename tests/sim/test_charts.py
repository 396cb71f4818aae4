"""Charts of plain rows: what is drawn, in which order, that equal rows give equal bytes, and no extra no chart."""

import re
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.model.errors import Unsupported
from gantree.sim import charts

ROWS: list[dict[str, Any]] = [
    {"t.h [h]": hour, "policy": policy, "GPUs": gpus, "low": gpus - 1, "high": gpus + 1}
    for policy, of_hour in (("zebra", (3, 5, 4)), ("ant", (1, 2, 3)))
    for hour, gpus in enumerate(of_hour)
]


def values_of(chart: charts.Chart) -> list[dict[str, Any]]:
    return list(chart.spec["data"]["values"])


def encodings(chart: charts.Chart) -> list[dict[str, Any]]:
    return [layer["encoding"] for layer in chart.spec.get("layer", [chart.spec])]


def texts(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_lines_keep_the_order_of_series_and_take_any_name_of_a_field() -> None:
    chart = charts.lines(ROWS, "t.h [h]", "GPUs", "policy", title="Use", band=("low", "high"))
    assert values_of(chart)[0] == {"x": 0, "y": 3, "series": "zebra", "low": 2, "high": 4}
    assert [each["color"]["scale"]["domain"] for each in encodings(chart)] == [["zebra", "ant"]] * 2
    written = texts(charts.to_svg(chart))
    assert {"Use", "t.h [h]", "GPUs", "policy", "zebra", "ant"} <= set(written)
    assert written.index("zebra") < written.index("ant")


def test_bars_keep_the_order_of_categories_and_show_intervals() -> None:
    rows = [
        {"mix": mix, "ratio": 1.5, "least": 1.0, "most": 2.0} for mix in ("light", "heavy", "even")
    ]
    svg = charts.to_svg(charts.bars(rows, "mix", "ratio", interval=("least", "most")))
    written = [text for text in texts(svg) if text in ("light", "heavy", "even")]
    assert written == ["light", "heavy", "even"]
    assert len(re.findall(r'stroke-width="1.5"', svg)) == 3
    assert len(re.findall(r'aria-roledescription="bar"', svg)) == 3


def test_stacked_bars_stand_on_each_other() -> None:
    rows = [{"mix": "light", "cause": cause, "hours": 2.0} for cause in ("reclaim", "priority")]
    beside = encodings(charts.bars(rows, "mix", "hours", "cause"))[0]
    stacked = encodings(charts.bars(rows, "mix", "hours", "cause", stacked=True))[0]
    assert "xOffset" in beside and beside["y"]["stack"] is None
    assert "xOffset" not in stacked and stacked["y"]["stack"] is True


def test_a_distribution_on_a_logarithmic_axis_begins_at_its_least_mark() -> None:
    rows = [{"wait": wait, "size": "1"} for wait in (None, 0.0, 0.5, 7_200.0, 50.0)]
    chart = charts.cdf(rows, "wait", "size", log_x=True, durations=True)
    assert [(value["x"], value["y"]) for value in values_of(chart)] == [
        (1.0, 0.25), (1.0, 0.5), (50.0, 0.75), (7_200.0, 1.0),
    ]  # fmt: skip
    assert {"1 s", "1 min", "1 h"} <= set(texts(charts.to_svg(chart)))


@given(st.lists(st.integers(0, 30), max_size=40), st.integers(1, 12))
def test_a_distribution_says_how_many_values_are_at_or_below(values: list[int], most: int) -> None:
    points = charts.distribution([float(value) for value in values], most)
    assert len(points) <= most
    assert not values or points[-1] == (max(values), 1.0)
    for at, share in points:
        below = sum(value < at for value in values) / len(values)
        at_most = sum(value <= at for value in values) / len(values)
        assert below < share <= at_most + 1e-6


def test_a_dark_chart_has_a_dark_ground_and_lighter_series() -> None:
    chart = charts.lines(ROWS, "t.h [h]", "GPUs", "policy")
    light, dark = charts.to_svg(chart), charts.to_svg(chart, dark=True)
    assert charts.COLOURS[0] in light and charts.COLOURS[0] not in dark
    assert charts.DARK_COLOURS[0] in dark and "#14171a" in dark


def test_equal_rows_give_equal_bytes_in_any_process_and_after_any_chart() -> None:
    program = (
        "import sys; from gantree.sim import charts\n"
        "rows = [{'x': n, 'y': n * n, 's': 'ab'[n % 2]} for n in range(9)]\n"
        "for _ in range(2):\n"
        "    chart = charts.lines(rows, 'x', 'y', 's', band=('x', 'y'))\n"
        "    sys.stdout.write(charts.to_svg(chart))\n"
    )

    def run(seed: str) -> bytes:
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}
        command = [sys.executable, "-c", program]
        return subprocess.run(command, env=environment, check=True, capture_output=True).stdout

    first = run("1")
    half = len(first) // 2
    assert first[:half] == first[half:]
    assert run("2") == first


@pytest.mark.parametrize("missing", ["altair", "vl_convert"])
def test_without_the_extra_the_error_names_the_command(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(Unsupported, match=r"pip install 'gantree\[simulate\]'"):
        charts.to_svg(charts.lines(ROWS, "t.h [h]", "GPUs"))
