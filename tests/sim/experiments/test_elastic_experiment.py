"""elastic: which jobs may change their size, and between which sizes."""

import pytest

from gantree.formats.traces import TraceJob
from gantree.sim.experiments.queueing.elastic import ELASTIC, RIGID, resizable, rows


@pytest.mark.parametrize(
    ("members", "gpus", "least", "most"),
    [(1, 2, 1, 2), (1, 8, 1, 2), (2, 8, 1, 4), (3, 8, 2, 6), (10, 8, 5, 16), (16, 8, 8, 16)],
)
def test_a_job_may_have_half_to_twice_its_members_as_far_as_the_site_reaches(
    members: int, gpus: int, least: int, most: int
) -> None:
    found = resizable(TraceJob("a", 0.0, 1.0, members, gpus))
    assert (found.elastic_min, found.elastic_max) == (least, most)


def test_half_of_the_jobs_are_elastic_and_nothing_else_differs() -> None:
    rigid, elastic = rows(RIGID, 1), rows(ELASTIC, 1)
    share = sum(row.elastic_max is not None for row in elastic) / len(elastic)
    assert 0.4 < share < 0.6
    assert all(row.elastic_max is None for row in rigid)
    assert [row.job_id for row in rigid] == [row.job_id for row in elastic]
