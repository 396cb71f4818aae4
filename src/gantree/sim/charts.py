"""Charts of plain rows: lines, bars and distributions, in one look, as Vega-Lite (Altair) and as SVG (vl-convert).

A row is a mapping from field to value; the functions name the fields to draw. Altair and vl-convert are an extra
(`pip install 'gantree[simulate]'`), imported when the first chart is made. What is worth drawing is decided elsewhere.

Equal rows give equal bytes: categories and series keep the order in which rows name them, nothing is named by a
counter, and no text depends on the time. Lengths of text are measured with the machine's sans-serif font,
so margins may differ by pixels between machines with different fonts.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias

from gantree.model.errors import Unsupported

Row: TypeAlias = Mapping[str, Any]

MISSING = "charts need Altair and vl-convert: pip install 'gantree[simulate]'"

WIDTH, HEIGHT = 640, 240
"""Size of a drawing area in pixels."""

CDF_POINTS = 400
"""Points of one distribution at most; more are not seen."""

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C6BB1", "#7F7F7F")
"""Series, after Okabe and Ito (2008), which people with colour blindness tell apart; yellow and black are left out."""

DARK_COLOURS = (
    "#5AB4F0",
    "#F0B434",
    "#2FC79B",
    "#E49BC4",
    "#8FD0F5",
    "#FF8A4C",
    "#B79BE0",
    "#A8B1BA",
)
"""The same, lighter, for a dark page."""

DURATIONS_S = (1, 10, 60, 600, 3_600, 6 * 3_600, 86_400, 7 * 86_400, 30 * 86_400)
"""Marks of an axis of durations."""

_DURATION_LABEL = (
    "datum.value < 60 ? datum.value + ' s' : datum.value < 3600 ? datum.value / 60 + ' min' : "
    "datum.value < 86400 ? datum.value / 3600 + ' h' : datum.value / 86400 + ' d'"
)


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart as Vega-Lite with its rows, without a theme."""

    spec: Mapping[str, Any]


def theme(*, dark: bool = False) -> dict[str, Any]:
    """The Vega-Lite configuration of the house. For a dark page it has light text; the background is the page's."""
    series = DARK_COLOURS if dark else COLOURS
    text, faint, grid = (
        ("#e6e9ec", "#a3adb7", "#2f353b") if dark else ("#1b1f23", "#59626b", "#e6e9ec")
    )
    return {
        "font": "sans-serif",
        "background": None,
        "view": {"stroke": None},
        "axis": {
            "gridColor": grid,
            "domainColor": faint,
            "tickColor": faint,
            "labelColor": faint,
            "titleColor": faint,
            "titleFontWeight": "normal",
            "labelFontSize": 11,
            "titleFontSize": 12,
        },
        "axisX": {"grid": False},
        "legend": {"labelColor": text, "titleColor": faint, "titleFontWeight": "normal"},
        "title": {"color": text, "anchor": "start", "fontSize": 14, "fontWeight": 600},
        "header": {"labelColor": text, "titleColor": faint},
        "range": {"category": list(series)},
        "mark": {"color": series[0]},
        "line": {"strokeWidth": 1.8},
        "rule": {"color": faint},
    }


def altair_library() -> Any:
    """The module `altair`. Raises Unsupported with the command that installs it."""
    try:
        return import_module("altair")
    except ModuleNotFoundError as error:
        raise Unsupported(MISSING) from error


def vl_convert_library() -> Any:
    """The module `vl_convert`. Raises Unsupported with the command that installs it."""
    try:
        return import_module("vl_convert")
    except ModuleNotFoundError as error:
        raise Unsupported(MISSING) from error


def to_svg(chart: Chart, *, dark: bool = False) -> str:
    """The chart as SVG on white (on near black if dark), for documents."""
    spec = {**chart.spec, "background": "#14171a" if dark else "#ffffff"}
    svg: str = vl_convert_library().vegalite_to_svg(spec, config=theme(dark=dark))
    return svg + "\n"


def empty_chart() -> Any:
    """A chart of Altair without rows: it checks all that it is given against the schema, and rows take seconds."""
    alt = altair_library()
    return alt.Chart(alt.Data(values=[]))


def finished(
    drawn: Any, values: Sequence[Row], *, title: str = "", width: int = WIDTH, height: int = HEIGHT
) -> Chart:
    """A chart of Altair with its rows."""
    sized = drawn.properties(width=width, height=height)
    spec = (sized.properties(title=title) if title else sized).to_dict()
    for layer in spec.get("layer", ()):
        layer.pop("data", None)
    spec.pop("config", None)
    return Chart({**spec, "data": {"values": list(values)}})


def lines(
    rows: Iterable[Row],
    x: str,
    y: str,
    series: str | None = None,
    *,
    title: str = "",
    x_title: str | None = None,
    y_title: str | None = None,
    band: tuple[str, str] | None = None,
    log_x: bool = False,
    log_y: bool = False,
    step: bool = False,
    points: bool = False,
    durations: bool = False,
    width: int = WIDTH,
    height: int = HEIGHT,
) -> Chart:
    """Lines of y over x, one a value of series. band names fields with the low and high end of an area behind them.

    step holds each value until the next; durations marks x, in seconds, in seconds to days. Axes named None are
    called after their field.
    """
    alt = altair_library()
    values, names = _plain(rows, {"x": x, "y": y, "series": series, **_ends(band)})
    base = empty_chart()
    axis = alt.X(
        "x:Q",
        title=x_title or x,
        scale=alt.Scale(type="log") if log_x else alt.Scale(nice=False, zero=False),
        axis=_axis(alt, durations),
    )
    colour = _colour(alt, series, names)
    shape = "step-after" if step else "linear"
    drawn = base.mark_line(point=points, interpolate=shape).encode(
        x=axis,
        y=alt.Y("y:Q", title=y_title or y, scale=_scale(alt, log=log_y)),
        color=colour,
        tooltip=_tooltips(alt, {"series": series, "x": x_title or x, "y": y_title or y}),
    )
    if band is not None:
        area = base.mark_area(opacity=0.2, interpolate=shape)
        drawn = area.encode(x=axis, y=alt.Y("low:Q"), y2="high:Q", color=colour) + drawn
    return finished(drawn, values, title=title, width=width, height=height)


def bars(
    rows: Iterable[Row],
    x: str,
    y: str,
    series: str | None = None,
    *,
    title: str = "",
    x_title: str | None = None,
    y_title: str | None = None,
    interval: tuple[str, str] | None = None,
    stacked: bool = False,
    log_y: bool = False,
    width: int = WIDTH,
    height: int = HEIGHT,
) -> Chart:
    """Bars of y for each category x; the values of series stand beside each other, or on each other if stacked.

    interval names fields with the low and high end of an interval around y.
    """
    alt = altair_library()
    values, names = _plain(rows, {"x": x, "y": y, "series": series, **_ends(interval)})
    categories = list(dict.fromkeys(value["x"] for value in values))
    place: dict[str, Any] = {
        "x": alt.X("x:N", title=x_title or x, sort=categories, axis=alt.Axis(labelAngle=0))
    }
    if series is not None and not stacked:
        place["xOffset"] = alt.XOffset("series:N", sort=names)
    base = empty_chart().encode(**place)
    drawn = base.mark_bar().encode(
        y=alt.Y("y:Q", title=y_title or y, scale=_scale(alt, log=log_y), stack=stacked or None),
        color=_colour(alt, series, names),
        tooltip=_tooltips(alt, {"x": x_title or x, "series": series, "y": y_title or y}),
    )
    if interval is not None:
        drawn += base.mark_rule(strokeWidth=1.5).encode(y=alt.Y("low:Q"), y2="high:Q")
    return finished(drawn, values, title=title, width=width, height=height)


def cdf(
    rows: Iterable[Row],
    value: str,
    series: str | None = None,
    *,
    title: str = "",
    x_title: str | None = None,
    log_x: bool = False,
    durations: bool = False,
    least: float | None = None,
    width: int = WIDTH,
    height: int = HEIGHT,
) -> Chart:
    """The share of rows whose value is at most x, one line a value of series; rows without a value do not count.

    Values below `least` (1 by default where the axis is logarithmic) are drawn at it.
    """
    floor = least if least is not None else (1.0 if log_x else None)
    values_of_series: dict[str, list[float]] = {}
    for row in rows:
        if row[value] is not None:
            name = "" if series is None else str(row[series])
            values_of_series.setdefault(name, []).append(float(row[value]))
    legend = series or ""
    points = [
        {value: at if floor is None else max(floor, at), "share at or below": share, legend: name}
        for name, values in values_of_series.items()
        for at, share in distribution(values)
    ]
    return lines(
        points,
        value,
        "share at or below",
        series,
        title=title,
        x_title=x_title,
        log_x=log_x,
        step=True,
        durations=durations,
        width=width,
        height=height,
    )


def distribution(values: Sequence[float], most: int = CDF_POINTS) -> list[tuple[float, float]]:
    """(value, share of values at or below it), rising, at most `most` points of them, the last one always."""
    ordered = sorted(values)
    count = len(ordered)
    kept = min(count, most)
    ranks = sorted({-(-number * count // kept) for number in range(1, kept + 1)})
    return [(ordered[rank - 1], round(rank / count, 6)) for rank in ranks]


def _plain(
    rows: Iterable[Row], fields: Mapping[str, str | None]
) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows under the names of their places in a chart, and the values of series in their order."""
    named = {place: field for place, field in fields.items() if field is not None}
    values = [{place: row[field] for place, field in named.items()} for row in rows]
    names = list(dict.fromkeys(str(value["series"]) for value in values if "series" in value))
    return values, names


def _ends(fields: tuple[str, str] | None) -> dict[str, str]:
    return {} if fields is None else {"low": fields[0], "high": fields[1]}


def _scale(alt: Any, *, log: bool) -> Any:
    return alt.Scale(type="log") if log else alt.Undefined


def _axis(alt: Any, durations: bool) -> Any:
    if not durations:
        return alt.Undefined
    return alt.Axis(values=list(DURATIONS_S), labelExpr=_DURATION_LABEL)


def _colour(alt: Any, series: str | None, names: Sequence[str]) -> Any:
    if series is None:
        return alt.Undefined
    legend = alt.Legend(symbolOpacity=1)  # not that of a band
    return alt.Color("series:N", title=series, scale=alt.Scale(domain=list(names)), legend=legend)


def _tooltips(alt: Any, titles: Mapping[str, str | None]) -> list[Any]:
    return [
        alt.Tooltip(place, type="quantitative" if place == "y" else "nominal", title=title)
        for place, title in titles.items()
        if title is not None
    ]
