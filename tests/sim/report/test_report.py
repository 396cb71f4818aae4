"""report.html: in a browser without a network it draws all charts and shows their numbers; its HTML is sound."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from gantree.formats.traces import TraceJob
from gantree.policy.rules import Policy
from gantree.sim import files
from gantree.sim.measures.timeline import timeline_of
from gantree.sim.report import gantt
from gantree.sim.report.document import number_text
from gantree.sim.report.gantt import PARTS, ROWS
from gantree.sim.report.over_time import OTHERS, QUEUES_SHOWN
from gantree.sim.report.page import page
from gantree.sim.results import Result
from gantree.sim.run import simulate
from gantree.testing.builders import cluster
from support.chromium import Complaints, chromium

SITE = cluster(leaves=2, nodes=2, gpus=4)


def jobs(count: int, queues: int = 3) -> list[TraceJob]:
    return [
        TraceJob(
            job_id=f"j{n}", submit_s=float(n * 7 % 50), duration_s=float(5 + n * 13 % 40),
            members=1 + n % 3, gpus_per_member=1 + n % 4, queue=f"q{n % queues}",
            priority=("research", "batch", "serving")[n % 3], checkpoint_s=10.0 if n % 2 else None,
        )
        for n in range(count)
    ]  # fmt: skip


def run(trace: list[TraceJob]) -> Result:
    return simulate(SITE, trace, Policy())


def html(result: Result) -> str:
    return page(result, timeline_of(result), files.summary(result))


def charts_of(text: str) -> list[dict[str, Any]]:
    found = re.search(r'id="charts">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return list(json.loads(found[1]).values())


def gantt_of(text: str) -> dict[str, Any]:
    [chart] = [each for each in charts_of(text) if "x2" in each.get("encoding", {})]
    return chart


class Page(HTMLParser):
    """Reads a page: whether every tag is closed, and what it would load from elsewhere."""

    VOID = frozenset({"meta"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loaded: list[str] = []
        self.seen: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.loaded += [value or "" for key, value in attrs if key in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text += data


def test_the_page_stands_alone_and_says_what_did_not_finish() -> None:
    result = run([*jobs(9), TraceJob("never", 0, 1, 5, 4)])
    read = Page(html(result))
    assert (read.open, read.loaded) == ([], [])
    assert result.jobs[-1].reason.startswith("Never fits")
    assert result.jobs[-1].reason in read.text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0, "0"),
        (-0.0, "0"),
        (1234567.25, "1,234,567.25"),
        (0.00052, "0.00052"),
        (1.9999, "2"),
    ],
)
def test_numbers_are_short_and_small_ones_are_not_nothing(value: float | None, text: str) -> None:
    assert number_text(value) == text


def test_what_was_run_stands_apart_from_the_figures() -> None:
    result = run(jobs(6))
    told = files.summary(result) | {"running": {"seed": 77_123}, "inputs": {"seed": 77_456}}
    read = Page(page(result, timeline_of(result), told))
    assert "What was run" in read.text and "77,456" in read.text
    assert "77,123" not in read.text
    assert "What was run" not in Page(html(result)).text


def test_names_from_outside_cannot_become_markup() -> None:
    bad = "</script><script>alert(1)</script>"
    plain = Page(html(run(jobs(6)))).seen.count("script")
    result = replace(run(jobs(6)), cluster=bad)
    result = replace(
        result, jobs=tuple(replace(row, queue=bad, outcome=bad) for row in result.jobs)
    )
    text = html(result)
    assert Page(text).seen.count("script") == plain
    assert bad in Page(text).text
    assert bad not in text


def test_the_page_of_an_empty_run_has_no_charts() -> None:
    read = Page(html(run([])))
    assert read.open == []
    assert charts_of(html(run([]))) == []


def test_the_gantt_chart_draws_every_attempt_at_its_gpus() -> None:
    result = run([TraceJob("wide", 0, 3600, 3, 4), TraceJob("one", 0, 7200, 1, 2)])
    chart = gantt_of(html(result))
    assert "n3" in chart["encoding"]["y"]["axis"]["labelExpr"]
    drawn = [
        (each["job"], each["y"], each["y2"], each["x"], each["x2"])
        for each in chart["data"]["values"]
    ]
    assert drawn == [
        ("wide", 0, 0.9, 0, 1), ("wide", 1, 1.9, 0, 1), ("wide", 2, 2.9, 0, 1), ("one", 3, 3.45, 0, 2),
    ]  # fmt: skip


def test_many_attempts_are_drawn_as_shares_of_parts_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gantt, "MARKS", 50)
    trace = [TraceJob(f"j{n}", n, 40, 1, 4, queue=f"q{n % 9}") for n in range(51)]
    values = gantt_of(html(run(trace)))["data"]["values"]
    assert 0 < len(values) <= ROWS * PARTS
    assert all(0 < each["held"] <= 1 for each in values)
    assert {each["queue"] for each in values} <= {*(f"q{n}" for n in range(9)), OTHERS}
    assert len({each["queue"] for each in values}) <= QUEUES_SHOWN + 1


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_in_a_browser_without_a_network_every_chart_is_drawn_and_is_a_table(
    browser: Browser, scheme: Any, tmp_path: Path
) -> None:
    files.write(run(jobs(40)), tmp_path)
    context = browser.new_context(offline=True, color_scheme=scheme)
    shown, complaints, asked = context.new_page(), Complaints(), []
    complaints.listen_to(shown)
    shown.on("request", lambda request: asked.append(request.url))
    shown.goto((tmp_path / "report.html").as_uri())
    shown.wait_for_selector("body[data-drawn=yes]")
    charts = charts_of((tmp_path / "report.html").read_text())
    assert shown.locator(".chart svg").count() == len(charts) >= 10
    for number, chart in enumerate(charts):
        details = shown.locator("details[data-chart]").nth(number)
        details.locator("summary").click()
        rows = details.locator("tr")
        rows.first.wait_for()
        assert rows.count() == len(chart["data"]["values"]) + 1
    assert "GPUs" in shown.locator("details table").first.inner_text()
    assert complaints == []
    assert asked == [(tmp_path / "report.html").as_uri()]
    context.close()
