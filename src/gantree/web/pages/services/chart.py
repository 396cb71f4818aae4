"""How many replicas were wanted, and how many ready, over time, as shapes for an SVG. Pure."""

from datetime import UTC, datetime

from gantree.web.pages.services.history import ServiceHistory, Steps
from gantree.web.pages.step_charts import BOTTOM, LEFT, RIGHT, TOP, Chart, Shape

LEAST_S = 60.0
MOMENTS = 5
SECONDS_UP_TO_S = 1800.0
"""Times are written with seconds on charts of less."""
MOST_LINES = 5


def replicas_chart(history: ServiceHistory, until: float) -> Chart | None:
    """The chart of a service; both are drawn in steps. None where nothing is on record, one where the other is not."""
    if not history.wanted:
        return None
    since = min(history.since, until - LEAST_S)
    highest = max(number for _, number in (*history.wanted, *history.ready, (since, 1)))
    shapes = [Shape("wanted", "capacity", _line(history.wanted, since, until, highest))]
    told = f"{history.wanted[-1][1]} wanted"
    if history.ready:
        area = _area(history.ready, since, until, highest)
        shapes.insert(0, Shape("ready", "allocated", area))
        told = f"{history.ready[-1][1]} ready of {told}"
    return Chart(
        "Replicas",
        tuple(shapes),
        _x_ticks(since, until),
        tuple((_y(number, highest), f"{number:,}") for number in _numbers(highest)),
        f"{told}; at most {max(n for _, n in history.wanted)} were wanted",
    )


def _x(at: float, since: float, until: float) -> float:
    return LEFT + (at - since) / (until - since) * (RIGHT - LEFT)


def _y(number: float, highest: int) -> float:
    return BOTTOM - number / highest * (BOTTOM - TOP)


def _corners(steps: Steps, since: float, until: float, highest: int) -> list[str]:
    """Both ends of each step."""
    ends = [*(at for at, _ in steps[1:]), until]
    return [
        f"{_x(at, since, until):.1f},{_y(number, highest):.1f}"
        for (begin, number), end in zip(steps, ends, strict=True)
        for at in (begin, end)
    ]


def _line(steps: Steps, since: float, until: float, highest: int) -> str:
    return f"M{' '.join(_corners(steps, since, until, highest))}"


def _area(steps: Steps, since: float, until: float, highest: int) -> str:
    first = _x(steps[0][0], since, until)
    corners = " ".join(_corners(steps, since, until, highest))
    return f"M{first:.1f},{BOTTOM:.1f} {corners} {RIGHT:.1f},{BOTTOM:.1f}Z"


def _x_ticks(since: float, until: float) -> tuple[tuple[float, str], ...]:
    """Moments from the left end to the right one, in UTC."""
    form = "%H:%M:%S" if until - since < SECONDS_UP_TO_S else "%H:%M"
    width = (until - since) / MOMENTS
    moments = [since + (number + 0.5) * width for number in range(MOMENTS)]
    return tuple(
        (_x(at, since, until), datetime.fromtimestamp(at, UTC).strftime(form)) for at in moments
    )


def _numbers(highest: int) -> range:
    """Whole numbers from 0 up, a handful of them, at a round distance."""
    step = next(
        each * 10**power
        for power in range(12)
        for each in (1, 2, 5)
        if each * 10**power * MOST_LINES >= highest
    )
    return range(0, highest + 1, step)
