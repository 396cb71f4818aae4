"""The page of the fleet: what its charts draw, and what is said of them."""

from dataclasses import asdict
from typing import Any

import pytest

from gantree.accounting.purposes import sums_of
from gantree.accounting.usage import UsageAmounts
from gantree.web.pages.fleet.heat import QUEUES_SHOWN, heat, share_of
from gantree.web.pages.fleet.purposes import DRAWN, purposes_chart

STARTS = [0, 3600]
HOUR = 3600.0


def row(name: str, *steps: UsageAmounts) -> dict[str, Any]:
    """A row of the history."""
    figures = [
        {**asdict(step), "unmeasured_gpu_s": step.unmeasured_gpu_s, "free_gpu_s": step.free_gpu_s}
        for step in steps
    ]
    return {"name": name, **{key: [step[key] for step in figures] for key in figures[0]}}


def answer(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"starts": STARTS, "step_s": 3600, "until": 7200.0, "rows": list(rows)}


def used(gpus: float, useful: float, idle: float, lost: float = 0.0, **more: float) -> UsageAmounts:
    """An hour of so many GPUs."""
    hours: dict[str, Any] = {
        "allocated": gpus,
        "used": gpus,
        "useful": useful,
        "idle": idle,
        "lost": lost,
        **more,
    }
    return UsageAmounts(**{f"{key}_gpu_s": amount * HOUR for key, amount in hours.items()})


WHOLE = row("", used(4, 3, 1, capacity=8, down=2), used(8, 2, 0, capacity=8))


def test_purposes_fill_the_height_of_all_gpus() -> None:
    chart = purposes_chart(answer(WHOLE), WHOLE)
    paths = {shape.name: shape.path for shape in chart.shapes}
    assert list(paths) == ["useful", "idle", "unmeasured", "down", "free"]
    assert paths["useful"].startswith("M62.0,108.8 307.0,108.8 307.0,128.5"), "3, then 2 of 8"
    assert paths["free"].startswith("M62.0,10.0 307.0,10.0 307.0,10.0"), "8 in all"
    assert chart.words == "useful 31 %, idle 6 %, unmeasured 38 %, down 12 %, free 12 %"


def test_work_that_turns_out_to_be_lost_changes_no_height() -> None:
    lost = row("", used(4, 4, 0, capacity=8), used(4, -2, 0, lost=6, capacity=8))
    chart = purposes_chart(answer(lost), lost)
    tops = {shape.name: shape.path for shape in chart.shapes}
    assert "307.0,10.0" in tops["free"] and tops["free"].count(",10.0") == 4, "8 GPUs in both steps"
    assert tops["useful"].count("552.0,168.0") == 2, "nothing is drawn below nothing"
    assert sums_of(lost)["useful"] == 2, "the sum of the period is what is left"


def test_sums_say_what_counters_told_of() -> None:
    sums = sums_of(WHOLE)
    assert (sums["useful_share"], sums["allocated_share"]) == (5 / 12, 12 / 16)
    assert sums["measured_share"] == pytest.approx(0.5)
    assert set(DRAWN) <= set(sums)


def test_each_queue_is_a_row_of_cells_by_its_useful_part() -> None:
    first = row("a/very/long/name/of/a/queue", used(4, 3.9, 0.1), used(4, 0, 4))
    second = row("b", used(1, 0, 0), used(0, 0, 0))
    drawn = heat(answer(first, second), [first, second])
    assert [name for _, name, _ in drawn.rows] == ["…/long/name/of/a/queue", "b"]
    cells = {shape.look: shape.path.count("M") for shape in drawn.shapes}
    assert cells == {"use-0": 1, "use-1": 0, "use-2": 0, "use-3": 1, "unmeasured": 1}
    assert drawn.words == "of what counters told: a/very/long/name/of/a/queue 49 %"


def test_lost_time_is_not_useful_and_a_queue_without_gpus_has_no_row() -> None:
    first, none = (
        row("a", used(4, -3, 0, lost=4), used(4, 4, 0)),
        row("b", used(0, 0, 0), used(0, 0, 0)),
    )
    drawn = heat(answer(first, none), [first, none])
    assert len(drawn.rows) == 1
    assert {shape.look for shape in drawn.shapes if shape.path} == {"use-0", "use-3"}


@pytest.mark.parametrize(
    ("useful", "look"),
    [(0.99, "use-0"), (1, "use-1"), (1.99, "use-1"), (2, "use-2"), (3, "use-3"), (4, "use-3")],
)
def test_a_level_begins_with_its_share(useful: float, look: str) -> None:
    one = row("a", used(4, useful, 4 - useful), used(0, 0, 0))
    assert [shape.look for shape in heat(answer(one), [one]).shapes if shape.path] == [look]


@pytest.mark.parametrize(
    ("amounts", "share"),
    [((2, 2, 4), 0.25), ((2, -1, 0), 1.0), ((-3, 4, 4), 0.0), ((-1, 0, 0), None)],
)
def test_a_share_is_of_what_is_not_less_than_nothing(
    amounts: tuple[float, float, float], share: float | None
) -> None:
    assert share_of(*amounts) == share


def test_the_map_has_the_largest_queues() -> None:
    rows = [row(f"q{number}", used(1, 1, 0), used(1, 1, 0)) for number in range(QUEUES_SHOWN + 1)]
    drawn = heat(answer(*rows), rows)
    assert [name for _, _, name in drawn.rows] == [f"q{number}" for number in range(QUEUES_SHOWN)]


def test_nothing_is_drawn_of_nothing() -> None:
    nothing = row("", used(0, 0, 0), used(0, 0, 0))
    assert purposes_chart(answer(nothing), nothing).words == "nothing is on record"
    assert sums_of(nothing)["useful_share"] is None
