"""Learned run times against a plain list of all runs."""

from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.policy import runtimes
from gantree.policy.runtimes import (
    ENOUGH_RUNS,
    LEAST_LEFT_S,
    MOST_RUNS,
    Runtimes,
    estimated_end,
    latest_end,
    stem_of,
)
from support.examples import examples

Run = tuple[str, str, str, float]

runs_of_few = st.lists(
    st.tuples(
        st.sampled_from(["q1", "q2"]),
        st.sampled_from(["ann", "bob"]),
        st.sampled_from(["train-1", "train-2", "eval"]),
        st.integers(0, 30).map(float),
    ),
    max_size=60,
)


def learned(runs: list[Run]) -> Runtimes:
    book = Runtimes()
    for run in runs:
        book.learn(*run)
    return book


def by_the_list(
    runs: list[Run], asked: tuple[str, str, str], q: float, ran_s: float
) -> float | None:
    """The same from all runs, group by group, newest first."""
    queue, user, name = asked
    key = (queue, user, name.rstrip("-12"))
    for width in (3, 2, 1, 0):
        mine = [
            run_s
            for of_queue, of_user, of_name, run_s in reversed(runs)
            if (of_queue, of_user, of_name.rstrip("-12"))[:width] == key[:width]
        ]
        longer = sorted(run_s for run_s in mine[:MOST_RUNS] if run_s > ran_s)
        if len(longer) >= ENOUGH_RUNS or (longer and not width):
            return longer[ceil(q * len(longer)) - 1]
    return None


@given(
    runs_of_few,
    st.sampled_from([("q1", "ann", "train-2"), ("q2", "eve", "eval"), ("q3", "eve", "x")]),
    st.sampled_from([0.01, 0.5, 0.9, 1.0]),
    st.integers(0, 30).map(float),
)
@settings(max_examples=examples(100))
def test_a_quantile_is_that_of_the_closest_group_with_enough_longer_runs(
    runs: list[Run], asked: tuple[str, str, str], q: float, ran_s: float
) -> None:
    assert learned(runs).quantile(*asked, q, ran_s) == by_the_list(runs, asked, q, ran_s)


def test_a_group_keeps_its_newest_runs_and_forgets_older_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runtimes, "MOST_RUNS", 10)
    book = learned(
        [("q", "ann", "train", float(run_s)) for run_s in (*range(100, 120), *range(10))]
    )
    assert book.quantile("q", "ann", "train", 1.0) == 9


def test_groups_are_bounded_and_the_one_that_learned_nothing_for_longest_goes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four groups of the one job that keeps coming stay; ten thousand users of one job each do not pile up."""
    monkeypatch.setattr(runtimes, "MOST_GROUPS", 20)
    book = Runtimes()
    for number in range(200):
        book.learn("q", "ann", "train", 7.0)
        book.learn("q", f"user{number}", "once", 5.0)
    assert len(book._runs_of_group) == 20
    assert book.quantile("q", "ann", "train-3", 0.5) == 7


def test_a_job_that_nobody_ran_before_is_judged_by_its_user_then_its_queue_then_all() -> None:
    book = learned(
        [("q", "ann", "train", 100.0)] * ENOUGH_RUNS
        + [("q", "bob", "train", 10.0)] * 5 * ENOUGH_RUNS
        + [("r", "bob", "train", 1.0)] * 50 * ENOUGH_RUNS
    )
    assert book.quantile("q", "ann", "new", 0.5) == 100
    assert book.quantile("q", "eve", "new", 0.5) == 10
    assert book.quantile("s", "eve", "new", 0.5) == 1


def test_with_nothing_learned_or_nothing_longer_there_is_no_quantile() -> None:
    assert Runtimes().quantile("q", "ann", "train", 0.9) is None
    assert learned([("q", "ann", "train", 50.0)]).quantile("q", "ann", "train", 0.9, 50.0) is None
    assert learned([("q", "ann", "train", 50.0)]).quantile("q", "ann", "train", 0.9, 49.0) == 50


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("llama-7b", "llama-7b"),
        ("llama-7b-03", "llama-7b"),
        ("llama-7b[12]", "llama-7b"),
        ("sweep17", "sweep"),
        ("nightly-2026-11-21", "nightly"),
        ("eval_3.2", "eval"),
        ("12345", ""),
        ("", ""),
    ],
)
def test_a_stem_is_the_name_without_the_numbers_that_end_it(name: str, stem: str) -> None:
    assert stem_of(name) == stem


times = st.one_of(st.none(), st.integers(0, 10_000).map(float))


@given(st.integers(0, 5_000).map(float), times, times, times)
def test_an_estimated_end_is_never_past_and_never_beyond_the_limit(
    ran_s: float, limit_s: float | None, learned_s: float | None, said_s: float | None
) -> None:
    now, grace_s = 50_000.0, 30.0
    end = estimated_end(now - ran_s, now, limit_s, grace_s, learned_s, said_s)
    latest = latest_end(now - ran_s, limit_s, grace_s)
    assert end.enforced == (end.kind == "limit")
    if latest is None:
        assert end.ends_at > now
        assert not end.enforced
    else:
        assert latest.enforced
        assert end.ends_at <= latest.ends_at
        assert end.ends_at > now or end == latest


@pytest.mark.parametrize(
    ("limit_s", "learned_s", "said_s", "ends_at", "kind"),
    [
        (None, 300.0, 900.0, 1300, "learned"),
        (None, 50.0, 900.0, 1900, "said"),
        (None, None, 900.0, 1900, "said"),
        (None, None, 99.0, 1100 + LEAST_LEFT_S, "assumed"),
        (None, None, None, 1100 + LEAST_LEFT_S, "assumed"),
        (250.0, 300.0, None, 1280, "limit"),
        (400.0, 300.0, None, 1300, "learned"),
        (80.0, None, None, 1110, "limit"),
    ],
)
def test_what_is_learned_goes_before_the_guess_and_both_before_the_assumption(
    limit_s: float | None, learned_s: float | None, said_s: float | None, ends_at: float, kind: str
) -> None:
    """Started at 1,000, asked at 1,100, with 30 s of grace."""
    end = estimated_end(1000.0, 1100.0, limit_s, 30.0, learned_s, said_s)
    assert (end.ends_at, end.kind) == (ends_at, kind)


def test_a_gang_of_which_nothing_is_known_is_taken_to_run_as_long_again() -> None:
    assert estimated_end(0.0, 7200.0, None, 30.0, None).ends_at == 14_400
