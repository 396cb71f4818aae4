"""What pages say: every fact has a sentence, times and numbers read as people write them."""

from dataclasses import replace
from typing import Any

import pytest

from gantree.api.access.access import EVERYTHING, Caller
from gantree.control.requests.read_view import ReadPoint, ReadView
from gantree.journal.contract import RecordedFact
from gantree.model.fact_kinds import FACTS
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from gantree.web.pages.formatting import DASH, moment, number, span
from gantree.web.pages.jobs.job import job_of, timeline_of
from gantree.web.pages.timeline import sentences
from gantree.web.pages.timeline.rows import fact_row


def test_every_kind_of_fact_has_words() -> None:
    assert [name for name, kind in FACTS.items() if kind not in sentences.KINDS] == []


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(None, DASH), (0.25, "0.25 s"), (90, "2 min"), (3600, "1 h"), (3900, "1 h 5 min"), (9e5, "10 d 10 h")],
)  # fmt: skip
def test_durations_have_two_units_at_most(seconds: float | None, words: str) -> None:
    assert span(seconds) == words


def test_numbers_are_whole_or_short() -> None:
    assert [number(each) for each in (None, 12_345, 0.123456, 2.0)] == [
        DASH,
        "12,345",
        "0.123",
        "2",
    ]


def test_a_time_is_an_element_that_a_browser_can_read() -> None:
    expected = '<time datetime="1970-01-01T00:00:01.500Z">1970-01-01 00:00:01 UTC</time>'
    assert str(moment(1.5)) == expected


def test_a_page_of_a_job_is_given_no_command_and_no_environment() -> None:
    stage = Stage(cluster())
    spec = job("a")
    role = replace(spec.roles[0], env=(("K", "a-secret"),), run=("train", "--key=a-secret"))
    stage.submit(replace(spec, roles=(role,)))
    journal: Any = None  # nothing here reads one
    view = ReadView(
        stage.scheduler.ledger, journal, ReadPoint(1, stage.now), lambda _: stage.scheduler
    )
    boss = Caller("op", EVERYTHING, "socket")
    told = job_of(view, "a", boss)
    recorded = [RecordedFact(seq, fact) for seq, fact in enumerate(stage.facts, 1)]
    rows = timeline_of(view, [fact_row(each) for each in recorded], boss)
    assert told["row"]["spec"]["priority"] == spec.priority
    assert any(row["kind"] == "JobAccepted" for row in rows)
    assert "a-secret" not in repr((told, rows))
