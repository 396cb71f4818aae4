"""The Gantt before it is drawn: bars of what was, is and will be, in rows where none lies on another."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.core.ledger.ledger import Ledger
from gantree.model.facts import Fact
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from gantree.web.pages.gantt.attempts import Past
from gantree.web.pages.gantt.layout import (
    LABEL_WIDTH,
    MOST_BOXES,
    WIDTH,
    Picture,
    Places,
    Span,
    fitted,
    order_of_jobs,
    picture,
)
from gantree.web.pages.gantt.scene import Bar, bars_to_come, redacted
from support.examples import examples

HOUR = 3600.0


def bar(name: str, since: float, until: float, node: str = "n0", gpus: Sequence[int] = (0,)) -> Bar:
    held = {node: tuple(gpus)}
    return Bar(name, 1, "q", "ann", "s0/l0", len(gpus), held, "past", since, until)


def past_of(facts: Sequence[Fact], ledger: Ledger) -> Past:
    past = Past()
    for fact in facts:
        past.see(fact, ledger)
    return past


# ----- what there is to draw


def test_an_attempt_that_is_over_says_from_when_to_when_and_why_it_ended() -> None:
    stage = Stage(cluster(leaves=1, nodes=1))
    stage.submit(job("good", 1, 4), job("bad", 1, 4))
    stage.started("good", "bad")
    stage.wait(60)
    stage.ended("good")
    stage.wait(60)
    stage.cancel("bad")
    stage.wait(5)
    stage.ended("bad", 143)
    past = past_of(stage.facts, stage.scheduler.ledger)
    told = [(one.job, one.placed_at, one.until, one.how) for one in past.over]
    assert told == [("good", 0, 60, "succeeded"), ("bad", 0, 125, "cancelled")]
    assert past.open == {}


def test_a_preempted_attempt_says_for_whom_and_the_next_one_begins_anew() -> None:
    stage = Stage(cluster(leaves=1, nodes=1))
    stage.submit(job("low", 1, 8, priority="research"))
    stage.started("low")
    stage.wait(1000)
    stage.submit(job("high", 1, 8, priority="serving"))
    stage.ended("low", 143)
    past = past_of(stage.facts, stage.scheduler.ledger)
    (one,) = past.over
    assert (one.job, one.how, one.by) == ("low", "preempted", "high")
    assert past.open["high"].placed_at == 1000


def kinds(stage: Stage) -> list[tuple[str, str, float, float]]:
    found = bars_to_come(stage.scheduler.ledger, stage.now)
    return [(one.job, one.kind, one.since, one.until) for one in found]


def test_what_runs_is_drawn_up_to_now_then_to_its_probable_end_then_to_its_limit() -> None:
    stage = Stage(cluster(leaves=1, nodes=1))
    stage.submit(replace(job("a", 1, 8, time_limit_s=HOUR), expected_s=1800.0))
    stage.started("a")
    stage.wait(600)
    grace = stage.policy.grace_s
    assert kinds(stage) == [
        ("a", "running", 0, 600),
        ("a", "guessed", 600, 1800),
        ("a", "limit", 1800, HOUR + grace),
    ]


def test_a_promised_start_and_an_estimated_one_are_told_apart() -> None:
    stage = Stage(cluster(leaves=1, nodes=1))
    stage.submit(job("a", 1, 8, time_limit_s=HOUR))
    stage.started("a")
    stage.submit(job("b", 1, 8, time_limit_s=HOUR))
    assert [(name, kind) for name, kind, *_ in kinds(stage) if name == "b"] == [("b", "promised")]
    stage = Stage(cluster(leaves=1, nodes=1))
    stage.submit(replace(job("a", 1, 8), expected_s=HOUR))
    stage.started("a")
    stage.submit(job("b", 1, 8))
    (told,) = (one for one in bars_to_come(stage.scheduler.ledger, stage.now) if one.job == "b")
    assert (told.kind, told.ends_known) == ("estimated", False)


def test_of_hidden_jobs_only_place_and_time_are_left() -> None:
    (seen,) = redacted([bar("secret", 0, 1)], lambda user, queue: False)
    assert (seen.job, seen.queue, seen.user, seen.how) == ("", "", "", "")
    assert (seen.gpus_of_node, seen.since, seen.until) == ({"n0": (0,)}, 0, 1)


# ----- where it is drawn


spans = st.tuples(st.integers(0, 100), st.integers(1, 30)).map(lambda two: (two[0], sum(two)))


@st.composite
def bars(draw: st.DrawFn) -> list[Bar]:
    """Bars of a node with 8 GPUs on which nobody holds what another holds."""
    made: list[Bar] = []
    for number, (since, until) in enumerate(draw(st.lists(spans, max_size=25))):
        wanted = set(draw(st.sets(st.integers(0, 7), min_size=1, max_size=4)))
        for other in made:
            if other.since < until and since < other.until:
                wanted -= set(other.gpus_of_node["n0"])
        if wanted:
            made.append(bar(f"j{number}", since, until, gpus=sorted(wanted)))
    return made


PLACES = Places({"n0": 8}, {"n0": "s0/l0"}, "leaf")


def lie_on_each_other(drawn: Picture) -> list[tuple[Bar, Bar]]:
    return [
        (a.bar, b.bar)
        for row in drawn.rows
        for i, a in enumerate(row.boxes)
        for b in row.boxes[i + 1 :]
        if a.bar.since < b.bar.until
        and b.bar.since < a.bar.until
        and a.first < b.first + b.lanes
        and b.first < a.first + a.lanes
    ]


@given(bars())
@settings(max_examples=examples(60))
def test_no_bar_lies_on_another_and_all_are_inside_their_row(made: list[Bar]) -> None:
    span = Span(0, 200)
    for by in ("node", "domain"):
        drawn = picture(made, by, span, 50, 10, PLACES)
        assert lie_on_each_other(drawn) == []
        for row in drawn.rows:
            for box in row.boxes:
                assert row.y <= box.y and box.y + box.height <= row.y + row.height
                assert box.x >= LABEL_WIDTH and box.x + box.width <= WIDTH + 2


@given(bars())
@settings(max_examples=examples(60))
def test_on_a_node_every_gpu_of_every_bar_is_covered_once(made: list[Bar]) -> None:
    drawn = picture(made, "node", Span(0, 200), 50, 10, PLACES)
    covered = sorted(
        (box.bar.job, lane)
        for row in drawn.rows
        for box in row.boxes
        for lane in range(box.first, box.first + box.lanes)
    )
    assert covered == sorted((one.job, gpu) for one in made for gpu in one.gpus_of_node["n0"])


def test_rows_beyond_the_most_are_counted() -> None:
    made = [bar(f"j{number}", 0, 1) for number in range(12)]
    drawn = picture(made, "job", Span(0, 10), 5, 5)
    assert (len(drawn.rows), drawn.left_out) == (5, 7)


def test_what_nobody_could_look_at_is_not_drawn_but_counted() -> None:
    nodes = [f"n{number}" for number in range(100)]
    places = Places(dict.fromkeys(nodes, 8), dict.fromkeys(nodes, "l0"), "leaf")
    many = [bar(f"job-{each}", each, each + 1, node) for each in range(200) for node in nodes]
    drawn = picture(many, "node", Span(0, 1000), 900, 100, places)
    assert MOST_BOXES <= sum(len(row.boxes) for row in drawn.rows) < MOST_BOXES + 200
    assert len(drawn.rows) + drawn.left_out == 100


def test_jobs_that_run_come_first_the_largest_of_them_first_and_what_is_over_last() -> None:
    made = [
        bar("old", 0, 1),
        replace(bar("small", 0, 1), kind="running"),
        replace(bar("large", 0, 1, gpus=range(8)), kind="running"),
        replace(bar("next", 5, 6), kind="promised"),
        replace(bar("newer", 0, 3)),
    ]
    order = [one.job for one in order_of_jobs(made, lambda one: True)]
    assert order == ["large", "small", "next", "newer", "old"]


@pytest.mark.parametrize("width_s", [900, HOUR, 21_600, 86_400, 604_800, 2_592_000])
def test_the_scale_has_round_moments_that_do_not_crowd(width_s: float) -> None:
    drawn = picture([bar("a", 0, width_s)], "job", Span(10, 10 + width_s), 20, 5)
    assert 2 <= len(drawn.ticks) <= 9
    assert all(at % 60 == 0 for _, at in drawn.ticks)


# ----- what is fitted


BARS = st.lists(
    st.tuples(st.floats(0, 2000), st.floats(1, 900), st.sampled_from(["past", "guessed", "limit"])),
    max_size=6,
)


@settings(max_examples=examples(200), deadline=None)
@given(BARS)
def test_a_fitted_span_has_all_bars_and_now_and_no_empty_half(
    drawn: list[tuple[float, float, str]],
) -> None:
    now, most = 1000.0, Span(0.0, 2000.0)
    bars = [replace(bar("a", at, at + long), kind=kind) for at, long, kind in drawn]
    span = fitted(bars, most, now)
    assert span.since < now < span.until
    shown = [each for each in bars if each.since < most.until and each.until > most.since]
    for each in shown:
        assert span.since <= each.since
        if each.kind != "limit":
            assert span.until >= min(each.until, most.until)
    first = min([now, *(each.since for each in shown)])
    last = max([now, *(min(each.until, most.until) for each in shown if each.kind != "limit")])
    width = span.until - span.since
    assert first - span.since <= 0.03 * width
    assert span.until - last <= 0.3 * width or width <= 700
