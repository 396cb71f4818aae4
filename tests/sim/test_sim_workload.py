"""Rows of a trace as jobs, and rows that cannot be."""

from dataclasses import replace

import pytest

from gantree.formats.traces import TraceJob
from gantree.model.errors import BadInput
from gantree.model.jobs import Checkpoint, Elastic
from gantree.sim.workload import check_trace, job_of

ROW = TraceJob("7", 0, 100, 4, 8)


def test_a_row_says_what_its_job_is_owed_and_allows() -> None:
    job = job_of(
        replace(
            ROW,
            user="ann",
            expected_s=90.0,
            preemptible=False,
            elastic_min=2,
            elastic_max=8,
            time_limit_s=200.0,
            checkpoint_s=10.0,
            gpu="H100-80GB",
        )
    )
    assert (job.name, job.user, job.expected_s, job.time_limit_s) == ("t7", "ann", 90.0, 200.0)
    assert (job.preemptible, job.elastic) == (False, Elastic(2, 8))
    assert job.checkpoint == Checkpoint(every_s=10.0)
    assert job.roles[0].shape.models == ("H100-80GB",)


def test_a_row_that_says_nothing_wishes_nothing() -> None:
    job = job_of(ROW)
    assert (job.user, job.expected_s, job.time_limit_s) == ("", None, None)
    assert (job.preemptible, job.elastic, job.checkpoint) == (True, None, None)


@pytest.mark.parametrize(
    "row",
    [
        replace(ROW, elastic_min=5, elastic_max=8),
        replace(ROW, elastic_min=1, elastic_max=3),
        replace(ROW, elastic_min=0, elastic_max=8),
        replace(ROW, expected_s=float("inf")),
        replace(ROW, expected_s=-1.0),
    ],
)
def test_rows_that_cannot_be_are_refused(row: TraceJob) -> None:
    with pytest.raises(BadInput, match="job 7"):
        check_trace([row])
