"""Elastic gangs in simulated time: they keep their work over a resize, and work in proportion to their members."""

import pytest

from gantree.core.cycle.growth import SETTLED_S
from gantree.formats.traces import TraceJob
from gantree.policy.rules import Policy
from gantree.sim.run import simulate
from gantree.testing.builders import cluster


def row(
    job_id: str, submit_s: float, duration_s: float, members: int, **fields: object
) -> TraceJob:
    """One row: members of eight GPUs that save every minute."""
    return TraceJob(
        job_id=job_id, submit_s=submit_s, duration_s=duration_s, members=members,
        gpus_per_member=8, checkpoint_s=60.0, **fields,  # type: ignore[arg-type]  # as the test writes them
    )  # fmt: skip


def ends(*rows: TraceJob, policy: Policy | None = None) -> dict[str, float]:
    """When each job ends, on four nodes of eight GPUs."""
    result = simulate(cluster(leaves=1, nodes=4, gpus=8), rows, policy or Policy())
    assert all(job.end_s is not None for job in result.jobs)
    return {job.job_id: job.end_s for job in result.jobs if job.end_s is not None}


def test_a_gang_that_grew_to_twice_its_members_does_the_rest_in_half_the_time() -> None:
    grows = row("e", 0.0, 6000.0, 2, elastic_min=1, elastic_max=4)
    assert ends(grows)["e"] == pytest.approx(SETTLED_S + (6000 - SETTLED_S) / 2, abs=1)


def test_a_gang_that_started_with_half_of_its_members_needs_twice_the_time() -> None:
    small = row("e", 0.0, 1000.0, 4, elastic_min=2, elastic_max=4)
    end_s = ends(row("half", 0.0, 9000.0, 2), small)
    assert end_s == pytest.approx({"half": 9000.0, "e": 2000.0}, abs=1)


def test_members_are_given_back_and_no_work_is_lost_by_that() -> None:
    """Alone for 2000 s (1400 of them with four members), then with three beside another job of one."""
    grows = row("e", 0.0, 6000.0, 2, elastic_min=1, elastic_max=4)
    end_s = ends(grows, row("other", 2000.0, 10_000.0, 1))
    done_s = SETTLED_S + (2000 - SETTLED_S) * 2
    assert end_s["other"] == pytest.approx(12_000, abs=1)
    assert end_s["e"] == pytest.approx(2000 + (6000 - done_s) / 1.5, abs=1)


def test_a_policy_that_is_not_elastic_leaves_gangs_as_they_are_written() -> None:
    grows = row("e", 0.0, 6000.0, 2, elastic_min=1, elastic_max=4)
    assert ends(grows, policy=Policy(elastic=False))["e"] == 6000.0
