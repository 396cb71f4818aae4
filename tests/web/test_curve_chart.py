"""The charts of what a job reported: lines inside their frame, an attempt each, whatever the numbers are."""

from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.executors.progress import Progress
from gantree.web.pages.jobs.curve_chart import HEIGHT, LEFT, MOST_POINTS, WIDTH, charts
from support.examples import examples

NUMBERS = st.one_of(st.none(), st.floats(-1e9, 1e9), st.sampled_from([float("nan"), float("inf")]))
REPORTS = st.lists(
    st.builds(Progress, st.integers(0, 10**6), NUMBERS, st.none(), NUMBERS, st.just(0.0)),
    max_size=8,
)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(REPORTS, max_size=3))
def test_lines_and_ticks_lie_in_the_frame(attempts: list[list[Progress]]) -> None:
    for chart in charts(list(enumerate(attempts, 1))):
        assert chart.lines
        for line in chart.lines:
            places = [tuple(map(float, each.split(","))) for each in line.points.split()]
            assert len(places) > 1
            assert all(LEFT <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in places)
        assert all(LEFT <= x <= WIDTH for x, _ in chart.x_ticks)
        assert all(0 <= y <= HEIGHT for y, _ in chart.y_ticks)


def reports(first: int, count: int, loss: float | None = 1.0) -> list[Progress]:
    return [Progress(step, loss, None, 0.5, float(step)) for step in range(first, first + count)]


def test_a_figure_that_is_not_reported_has_no_chart() -> None:
    assert charts([]) == []
    assert charts([(1, reports(0, 1))]) == []
    assert [chart.title for chart in charts([(1, reports(0, 5, None))])] == ["Step time"]


def test_each_attempt_has_a_line_and_long_ones_are_thinned_to_their_ends() -> None:
    loss, _ = charts([(1, reports(0, 5000)), (3, reports(4000, 2000))])
    assert [line.attempt for line in loss.lines] == [1, 3]
    assert all(len(line.points.split()) <= MOST_POINTS + 1 for line in loss.lines)
    assert loss.words == "Loss from 1 to 1, steps 4,000 to 5,999"
    first, last = (line.points.split() for line in loss.lines)
    assert float(first[0].split(",")[0]) == LEFT
    assert float(last[-1].split(",")[0]) == WIDTH - 8
