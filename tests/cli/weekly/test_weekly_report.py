"""`gantree report`: a week of a daemon with a past, as text, HTML and PDF."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gantree.cli.weekly.figures import Figures, Week, week_of
from gantree.cli.weekly.report import report_of
from gantree.model.errors import BadInput
from support.command_line import CommandLine
from support.daemon import Daemon
from support.recorded_week import CLUSTER, RecordedWeek

MONDAY = 1_795_392_000.0
"""2026-11-23, of week 48."""
DAY_S = 86_400.0


@pytest.fixture(scope="module")
def week() -> Week:
    """The last week that is over."""
    return week_of(None, time.time())


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, week: Week) -> Iterator[Daemon]:
    """Half a day of its Tuesday is on record."""
    state = tmp_path_factory.mktemp("weekly") / "state"
    half = RecordedWeek(state, begin=week.since + DAY_S, days=0.5)
    half.live()
    half.journal.close()
    with Daemon(state, CLUSTER) as daemon:
        yield daemon


@pytest.mark.parametrize(
    ("word", "name", "days"),
    [
        (None, "2026-W47", "2026-11-16 to 2026-11-22"),
        ("2026-W48", "2026-W48", "2026-11-23 to 2026-11-29"),
        ("2026-W01", "2026-W01", "2025-12-29 to 2026-01-04"),
    ],
)
def test_weeks_are_those_of_iso_8601(word: str | None, name: str, days: str) -> None:
    week = week_of(word, MONDAY + 5 * DAY_S)
    assert (week.name, week.days, week.before.until) == (name, days, week.since)


@pytest.mark.parametrize("word", ["2026-W60", "48", "2026-W49", ""])
def test_a_week_that_is_none_or_is_yet_to_come_is_refused(word: str) -> None:
    with pytest.raises(BadInput, match="allowed: a week"):
        week_of(word, MONDAY + 5 * DAY_S)


def test_the_week_is_told_by_day_purpose_queue_and_waste(
    daemon: Daemon, gantree: CommandLine, week: Week
) -> None:
    asked = ("report", "--week", week.name, "--state", str(daemon.state_dir))
    told = gantree(*asked)
    assert told.code == 0, told.err
    for words in (
        "Tue ",
        "Queues",
        "training",
        "What GPU-hours were for",
        "checkpoint declared",
        "MEDIAN WAIT",
    ):
        assert words in told.out
    found = json.loads(gantree(*asked, "--json").out)
    tuesday = found["days"][1]
    assert sum(queue["allocated"] for queue in found["queues"]) == pytest.approx(
        found["fleet"]["allocated"]
    )
    parts = ("useful", "idle", "lost", "starting", "restart", "checkpoint", "unmeasured")
    assert sum(tuesday[part] for part in parts) == pytest.approx(tuesday["allocated"])
    rest = ("down", "held", "reserved", "stranded", "free")
    assert tuesday["capacity"] == 64 * 24, "8 nodes of 8 GPUs for all of Tuesday"
    assert sum(tuesday[part] for part in (*parts, *rest)) == pytest.approx(tuesday["capacity"])
    assert found["fleet_before"].get("allocated", 0) == 0


def test_each_figure_of_a_queue_stands_in_its_column() -> None:
    queue = {
        "name": "a",
        "allocated": 90.0,
        "useful_share": 0.5,
        "idle": 20.0,
        "lost": 10.0,
        "starting": 1.0,
    }
    queue |= {
        "restart": 2.0,
        "checkpoint": 4.0,
        "succeeded": 7,
        "failed": 3,
        "timed_out": 8,
        "preempted": 6,
    }
    node = {
        "node": "n0",
        "days": 4,
        "faults": 1,
        "out": 2,
        "links": 3,
        "slow_ranks": 5,
        "lemon": True,
    }
    figures = Figures(
        week_of("2026-W48", MONDAY), MONDAY, {}, {}, (), (queue,), {"a": {"p50_s": 90.0}}, {},
        {"rows": []}, {"rows": [node]},
    )  # fmt: skip
    tables = {table.title.split()[0]: table for table in report_of(figures).tables}
    names = [column.title for column in tables["Queues"].columns]
    assert dict(zip(names, tables["Queues"].rows[0], strict=True)) == {
        "Queue": "a", "GPU-hours": "90", "Useful": "50%", "Idle h": "20", "Lost h": "10", "Overhead h": "7",
        "Done": "7", "Failed": "11", "Preempted": "6", "Median wait": "1m30s",
    }  # fmt: skip
    assert list(tables["Nodes"].rows) == [("n0", "4", "1", "2", "3", "5", "yes")]


def test_files_are_written_whole_or_not_at_all(
    daemon: Daemon, gantree: CommandLine, tmp_path: Path
) -> None:
    html, pdf = tmp_path / "week.html", tmp_path / "week.pdf"
    asked = ("report", "--state", str(daemon.state_dir))
    assert gantree(*asked, "--html", str(html), "--pdf", str(pdf)).code == 0
    assert "The week of the fleet" in html.read_text()
    assert pdf.read_bytes().startswith(b"%PDF-") and pdf.read_bytes().rstrip().endswith(b"%%EOF")
    refused = gantree(*asked, "--html", str(html), "--pdf", str(tmp_path / "no" / "week.pdf"))
    assert refused.code == 2 and "no directory" in refused.err
