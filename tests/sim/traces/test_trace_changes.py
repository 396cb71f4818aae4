"""Parts of traces, load, descriptions."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.formats.traces import TraceJob, open_trace, write_trace
from gantree.sim.traces.description import describe
from gantree.sim.traces.load import closer, longer
from gantree.sim.traces.selection import Selection, selected
from gantree.sim.traces.sizes import NONE, PART, name_of, size_class

HOUR_S = 3600.0
JOBS = [
    TraceJob("a", 100, 60, 1, 1, queue="x/y", user="ann"),
    TraceJob("b", 200, 600, 2, 8, queue="x", gpu="H100-80GB"),
    TraceJob("c", 300, 6000, 1, 0, queue="xy", time_limit_s=7000, expected_s=5000),
    TraceJob("d", 100 + 7200, 60, 2, 0, queue="x", gpu_share=0.25),
]


def ids(selection: Selection) -> str:
    return "".join(job.job_id for job in selected(JOBS, selection, 100))


def test_jobs_of_a_time_of_queues_and_of_sizes_are_selected() -> None:
    assert ids(Selection()) == "abcd"
    assert ids(Selection(from_s=100, to_s=200)) == "b"
    assert ids(Selection(queues=("x",))) == "abd"
    assert ids(Selection(queues=("x/y", "xy"))) == "ac"
    assert ids(Selection(least_gpus=0.5, most_gpus=1)) == "ad"
    assert ids(Selection(queues=("x",), first=2)) == "ab"


@given(st.lists(st.floats(0, 1e6), min_size=2), st.floats(0.01, 100))
def test_load_grows_by_the_factor(moments: list[float], factor: float) -> None:
    jobs = [TraceJob(str(at), moment, 10, 1, 1) for at, moment in enumerate(sorted(moments))]
    first_s = jobs[0].submit_s
    faster = list(closer(jobs, factor, first_s))
    assert faster[0].submit_s == first_s
    span_s = jobs[-1].submit_s - first_s
    assert (faster[-1].submit_s - first_s) * factor == pytest.approx(span_s, abs=1e-3)
    assert [job.submit_s for job in faster] == sorted(job.submit_s for job in faster)
    assert sum(job.duration_s for job in longer(jobs, factor)) == pytest.approx(
        10 * len(jobs) * factor
    )


def test_limits_grow_with_durations() -> None:
    (changed,) = longer([JOBS[2]], 2)
    assert (changed.duration_s, changed.time_limit_s, changed.expected_s) == (12000, 14000, 10000)


@given(st.floats(0, 1e6))
def test_each_number_of_gpus_has_one_class_that_is_no_smaller(gpus: float) -> None:
    bound = size_class(gpus)
    assert gpus <= bound or PART < gpus < 1
    assert bound in (NONE, PART) or bound / 2 < gpus
    assert size_class(bound) == bound


def test_classes_have_the_names_of_their_gpus() -> None:
    bounds = [NONE, PART, 1.0, 2.0, 4.0, 8.0, 128.0]
    assert [name_of(bound) for bound in bounds] == ["none", "<1", "1", "2", "3-4", "5-8", "65-128"]


def test_a_description_counts_everything_once(tmp_path: Path) -> None:
    write_trace(JOBS, tmp_path / "t.csv")
    told = describe(open_trace(tmp_path / "t.csv"))
    assert (told["jobs"], told["first_s"], told["span_s"], told["users"]) == (4, 100, 7200, 1)
    gpu_s = 60 + 16 * 600 + 0.5 * 60
    assert told["gpu_hours"] == pytest.approx(gpu_s / HOUR_S, abs=1e-6)
    assert told["mean_gpus"] == pytest.approx(gpu_s / 7200, abs=1e-6)
    assert told["jobs_per_hour"] == 2
    assert told["duration_s"] == {
        "mean": 1680, "p10": 60, "p50": 60, "p90": 6000, "p99": 6000, "max": 6000,
    }  # fmt: skip
    assert [(each["gpus"], each["jobs"]) for each in told["sizes"]] == [
        ("none", 1), ("<1", 1), ("1", 1), ("9-16", 1),
    ]  # fmt: skip
    assert [each["queue"] for each in told["queues"]] == ["x", "x/y", "xy"]
    assert sum(each["gpu_hours_share"] for each in told["queues"]) == pytest.approx(1, abs=1e-5)
    assert told["gpu_models"] == [{"gpu": None, "jobs": 3}, {"gpu": "H100-80GB", "jobs": 1}]
    assert told["jobs_by_hour_of_day"] == [3, 0, 1] + [0] * 21
    assert told["jobs_by_day_of_week"] == [4, 0, 0, 0, 0, 0, 0]


def test_an_empty_trace_is_described(tmp_path: Path) -> None:
    write_trace([], tmp_path / "t.csv")
    told = describe(open_trace(tmp_path / "t.csv"))
    assert (told["jobs"], told["duration_s"]["mean"], told["mean_gpus"]) == (0, None, None)
