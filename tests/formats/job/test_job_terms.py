"""job.yaml: who hands a job in, how long it may take, what it may cost, whether it may be stopped, what comes first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.formats import read_job
from gantree.formats.job.rules import MAX_AFTER
from gantree.model.errors import BadFields, GantreeError
from gantree.model.jobs import Job, Warn

TERMS = """\
name: train
user: ann
preemptible: true
gang:
  - {role: worker, members: 2, each: {gpus: 8}, gpu: [{model: H100-80GB, speed: 1.0}, A100-80GB]}
  - {role: reader, members: 1, each: {gpus: 1}, gpu: {model: T4-16GB, speed: 0.1}}
checkpoint: {every: 10m}
time_limit: 8h
expected: 5h
choose: cost
budget_USD: 250.5
spot: true
hold: true
project: llm
"""
LEAST = "name: a\ngang: [{role: r, members: 1}]\n"


def test_the_terms_of_a_job_are_read() -> None:
    (job,) = read_job(TERMS, "j.yaml")
    assert (job.user, job.project, job.preemptible, job.held) == ("ann", "llm", True, True)
    assert (job.expected_s, job.time_limit_s) == (18_000.0, 28_800.0)
    assert (job.choose, job.budget_USD, job.spot) == ("cost", 250.5, True)
    assert job.speeds == (("H100-80GB", 1.0), ("T4-16GB", 0.1))
    assert job.roles[0].shape.models == ("H100-80GB", "A100-80GB")
    assert job.roles[1].shape.models == ("T4-16GB",)


def test_a_warning_before_the_time_limit_is_read() -> None:
    (job,) = read_job(TERMS + "warn: {signal: SIGUSR2, before: 5m}\n", "j.yaml")
    assert job.warn == Warn("SIGUSR2", 300.0)


def test_a_job_that_says_nothing_has_the_defaults() -> None:
    (job,) = read_job(LEAST, "j.yaml")
    assert job == Job("a", job.roles)


def test_a_job_that_is_not_preemptible_may_checkpoint() -> None:
    (job,) = read_job(LEAST + "preemptible: false\ncheckpoint: {every: 1m}\n", "j.yaml")
    assert not job.preemptible


def test_one_speed_of_a_model_in_two_roles_is_one_speed() -> None:
    text = TERMS.replace("model: T4-16GB, speed: 0.1", "model: H100-80GB, speed: 1")
    assert read_job(text, "j.yaml")[0].speeds == (("H100-80GB", 1.0),)


@pytest.mark.parametrize(
    ("old", "new", "line", "field", "words"),
    [
        ("model: T4-16GB, ", "model: H100-80GB, ", 6, "gang[1].gpu.speed", "which is 1 above"),
        ("speed: 1.0", "speed: 2", 5, "gang[0].gpu[0].speed", "at most 1"),
        ("speed: 1.0", "sped: 1", 5, "gang[0].gpu[0].sped", "Did you mean `speed`?"),
        ("user: ann", "user: ''", 2, "user", "text in one line"),
        ("preemptible: true", "preemptible: false", 12, "spot", "beside `preemptible: false`"),
        ("preemptible: true", "preemptible: no", 3, "preemptible", "true or false"),
        ("checkpoint: {every: 10m}\n", "", 11, "spot", "without checkpoint"),
        (
            "expected: 5h",
            "warn: {signal: SIGUSR1, before: 8h}",
            9,
            "warn.before",
            "less than time_limit",
        ),
        (
            "time_limit: 8h\nexpected: 5h",
            "warn: {signal: SIGHUP, before: 5m}",
            8,
            "warn",
            "beside time_limit",
        ),
        ("expected: 5h", "warn: {signal: SIGTERM, before: 5m}", 9, "warn.signal", "SIGUSR1"),
        ("expected: 5h", "warn: {signal: SIGHUP}", 9, "warn.before", ""),
        ("expected: 5h", "expected: 9h", 9, "expected", "at most time_limit, which is 28800 s"),
        ("expected: 5h", "expected: 0s", 9, "expected", "longer than 0s"),
        ("choose: cost", "choose: price", 10, "choose", "one of order, time, cost"),
        ("budget_USD: 250.5", "budget_USD: 0", 11, "budget_USD", "above 0"),
        ("hold: true", "hold: held", 13, "hold", "true or false"),
        ("project: llm", "project: a b", 14, "project", "a name of letters"),
    ],
)
def test_what_is_wrong_with_terms_is_told(
    old: str, new: str, line: int, field: str, words: str
) -> None:
    assert old in TERMS
    with pytest.raises(BadFields) as caught:
        read_job(TERMS.replace(old, new), "j.yaml")
    (problem,) = caught.value.problems
    assert (problem.line, problem.field) == (line, field)
    assert words in str(problem)


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("{every: 10m}", "often", "checkpoint"),
        ("{every: 10m}", "{every: often}", "checkpoint.every"),
        ("time_limit: 8h", "time_limit: -1", "time_limit"),
        ("preemptible: true", "preemptible: no", "preemptible"),
    ],
)
def test_what_could_not_be_read_makes_no_term_look_wrong(old: str, new: str, field: str) -> None:
    with pytest.raises(BadFields) as caught:
        read_job(TERMS.replace(old, new), "j.yaml")
    assert [problem.field for problem in caught.value.problems] == [field]


GANG = "gang: [{role: r, members: 1}]\n"
ARRAY = f"name: sweep\n{GANG}array: 0-2,7\n---\n"


def test_what_comes_after_an_array_comes_after_all_its_jobs() -> None:
    text = f"{ARRAY}name: report\n{GANG}after: [prepare, sweep, sweep-1]\n"
    *_, report = read_job(text, "j.yaml")
    assert report.after == ("prepare", "sweep-0", "sweep-1", "sweep-2", "sweep-7")


def test_a_job_goes_before_an_array_of_its_name() -> None:
    text = f"{ARRAY}name: sweep\n{GANG}---\nname: report\n{GANG}after: sweep\n"
    *_, report = read_job(text, "j.yaml")
    assert report.after == ("sweep",)


@pytest.mark.parametrize("name", ["sweep", "sweep-2"])
def test_no_array_comes_after_itself(name: str) -> None:
    with pytest.raises(BadFields, match="itself"):
        read_job(f"name: sweep\n{GANG}array: 0-2\nafter: {name}\n", "j.yaml")


def test_two_large_arrays_need_a_job_between_them() -> None:
    first = f"name: a\n{GANG}array: 0-4999\n---\n"
    many = MAX_AFTER // 5000
    second = f"name: b\n{GANG}array: 0-{many - 1}\nafter: a\n"
    assert len(read_job(first + second, "j.yaml")) == 5000 + many
    with pytest.raises(BadFields, match="put one job between two large arrays"):
        read_job(first + second.replace(f"0-{many - 1}", f"0-{many}"), "j.yaml")


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 3), st.text(max_size=3)), max_size=6)
)
def test_a_mutated_job_of_terms_is_read_or_refused_in_words(
    mutations: list[tuple[int, int, str]],
) -> None:
    text = f"{TERMS}---\n{ARRAY}name: report\n{GANG}after: sweep\n"
    for place, length, new in mutations:
        start = place % len(text)
        text = text[:start] + new + text[start + length :]
    try:
        read_job(text, "j.yaml")
    except GantreeError as error:
        assert str(error)
