"""workload.yaml: distributions of jobs."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.formats.traces import TraceJob
from gantree.formats.workload import EVEN, Workload, read_workload, write_workload
from gantree.model.errors import BadFields

DOCUMENT = Path(__file__).parents[2] / "docs" / "traces.md"
GOOD = """jobs: 10
span: 1d
requests: [{members: 2, gpus_per_member: 4, weight: 3}, {gpu_share: 0.5}]
durations: [{gpus: 8, seconds: {0: 1, 50: 60, 100: 3600}}]
"""


def test_the_workload_in_the_documentation_is_read() -> None:
    (text,) = re.findall(r"```yaml\n(# workload\n.*?)```", DOCUMENT.read_text(), flags=re.DOTALL)
    workload = read_workload(text, "docs/traces.md")
    assert [weight for _, weight in workload.requests] == [80, 15, 5]
    assert workload.requests[2][0].checkpoint_s == 900
    assert len(workload.arrivals) == 24


def test_what_is_left_out_has_defaults() -> None:
    workload = read_workload(GOOD, "w.yaml")
    assert workload == Workload(
        jobs=10,
        span_s=86_400,
        requests=((TraceJob("", 0, 0, 2, 4), 3.0), (TraceJob("", 0, 0, 1, 0, gpu_share=0.5), 1.0)),
        durations=((8, ((0, 1), (50, 60), (100, 3600))),),
        arrivals=EVEN,
    )


@given(
    st.lists(
        st.tuples(
            st.builds(
                TraceJob,
                job_id=st.just(""),
                submit_s=st.just(0.0),
                duration_s=st.just(0.0),
                members=st.integers(1, 99),
                gpus_per_member=st.integers(0, 8),
                queue=st.sampled_from(["a", "a/b", "007", "true", "no"]),
                priority=st.sampled_from(["batch", 5, -3]),
                preemptible=st.booleans(),
                cpus_per_member=st.floats(0, 1e6),
                parallelism=st.sampled_from([(), (("tensor", 2), ("data", 4))]),
            ),
            st.floats(1e-3, 1e6),
        ),
        min_size=1,
        max_size=4,
    ),
    st.lists(st.floats(0, 1e6), min_size=2, max_size=6),
)
def test_what_is_written_is_read_again(
    requests: list[tuple[TraceJob, float]], seconds: list[float]
) -> None:
    steps = [round(100 * number / (len(seconds) - 1), 3) for number in range(len(seconds))]
    quantiles = tuple(zip(steps, sorted(seconds), strict=True))
    workload = Workload(7, 3600.5, tuple(requests), ((0.5, quantiles), (8.0, quantiles)))
    assert read_workload(write_workload(workload), "w.yaml") == workload


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("jobs: 10", "jobs: 0", 1, "1 or more"),
        ("jobs: 10", "job: 10", 1, "Did you mean `jobs`"),
        ("members: 2", "membres: 2", 3, "Did you mean `members`"),
        ("members: 2", "members: 0", 3, "a whole number of 1 or more"),
        ("weight: 3", "weight: 0", 3, "a number above 0"),
        ("gpu_share: 0.5", "gpu_share: 0.5, gpus_per_member: 1", 3, "gpus_per_member 0"),
        (
            "[{members: 2, gpus_per_member: 4, weight: 3}, {gpu_share: 0.5}]",
            "[]",
            3,
            "at least one",
        ),
        ("0: 1,", "1: 1,", 4, "0 and 100 among them"),
        ("50: 60", "150: 60", 4, "a percentage"),
        ("50: 60", "50: 9999", 4, "rise with the percents"),
        ("span: 1d", "span: 1d\narrivals: [1, 2]", 3, "24 or 168 weights"),
    ],
)
def test_what_is_wrong_is_named_by_line(old: str, new: str, line: int, words: str) -> None:
    with pytest.raises(BadFields) as caught:
        read_workload(GOOD.replace(old, new), "w.yaml")
    assert caught.value.problems[0].line == line
    assert words in str(caught.value)
