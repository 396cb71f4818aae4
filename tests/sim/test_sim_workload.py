"""Rows of a trace as jobs, and rows that cannot be."""

from dataclasses import replace

import pytest

from gantree.formats.traces import TraceJob
from gantree.model.cluster import Cluster
from gantree.model.errors import BadInput
from gantree.model.jobs import Checkpoint, Elastic
from gantree.policy.rules import Policy
from gantree.sim.run import simulate
from gantree.sim.workload import check_trace, job_of
from gantree.testing.builders import cluster

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
        replace(ROW, mig="3g.40gb"),
        replace(ROW, gpus_per_member=0, gpu_share=1.5),
        replace(ROW, slice_members=2),
        replace(ROW, parallelism=(("data", 4), ("expert", 3))),
    ],
)
def test_rows_that_cannot_be_are_refused(row: TraceJob) -> None:
    with pytest.raises(BadInput, match="job 7"):
        check_trace([row])


def site(*spot: float | None) -> Cluster:
    """A node of 8 GPUs for each: a spot node, by its interruptions a day, or None."""
    plain = cluster(leaves=1, nodes=len(spot))
    nodes = tuple(replace(node, spot=each) for node, each in zip(plain.nodes, spot, strict=True))
    return replace(plain, nodes=nodes)


@pytest.mark.parametrize(
    ("spot", "markets", "outcomes"),
    [
        ((1.0, 1.0), (None, None), ["succeeded", "succeeded"]),
        ((1.0, None), (None, None), ["succeeded", "succeeded"]),
        ((1.0, 1.0), (None, "spot"), ["pending", "succeeded"]),
        ((1.0, 1.0), ("on-demand", None), ["pending", "pending"]),
        ((None, None), (None, "any"), ["succeeded", "succeeded"]),
    ],
)
def test_jobs_of_a_trace_that_says_nothing_of_markets_run_on_spot_nodes(
    spot: tuple[float | None, ...], markets: tuple[str | None, ...], outcomes: list[str]
) -> None:
    rows = [
        TraceJob(str(number), 0.0, 60.0, 1, 8, market=market)
        for number, market in enumerate(markets)
    ]
    result = simulate(site(*spot), rows, Policy())
    assert [job.outcome for job in result.jobs] == outcomes
    assert all(job.wait_s == 0 for job in result.jobs if job.outcome == "succeeded")
    told = [job.reason for job in result.jobs if job.outcome != "succeeded"]
    assert all("`any` in the column `market`" in reason for reason in told[:1] if not markets[0])
