"""A slice of a real trace, where the data is at hand: Microsoft Philly 2017 on a cluster that is too small for it."""

from itertools import islice
from pathlib import Path

import pytest

from gantree.core.ledger.invariants import check
from gantree.formats.traces import read_trace
from gantree.policy.rules import Policy
from gantree.sim.cluster import Overheads
from gantree.sim.run import Simulation
from gantree.testing.builders import cluster
from support.examples import examples

PHILLY = Path(__file__).resolve().parents[3] / "shared/data/traces/philly_pollux/philly_jobs.csv.gz"
JOBS = 50 * examples(4)
CHECK_EVERY = 50


@pytest.mark.skipif(not PHILLY.exists(), reason="the Philly trace is not beside this checkout")
def test_the_first_jobs_of_the_philly_trace_all_finish_on_a_crowded_cluster() -> None:
    rows = tuple(islice(read_trace(PHILLY), JOBS))
    simulation = Simulation(
        cluster(spines=1, leaves=2, nodes=2), rows, Policy(), Overheads(start_s=30)
    )
    steps = 0
    while simulation.step():
        steps += 1
        if steps % CHECK_EVERY == 0:
            check(simulation.scheduler.ledger)
    check(simulation.scheduler.ledger)
    result = simulation.result()
    needs_gpu_s = sum((row.duration_s + 30) * row.members * row.gpus_per_member for row in rows)
    assert all(job.finished or job.gpus > result.gpus for job in result.jobs)
    assert result.held_gpu_s == pytest.approx(
        needs_gpu_s
        - sum(
            (row.duration_s + 30) * job.gpus
            for row, job in zip(rows, result.jobs, strict=True)
            if not job.finished
        )
    )
    assert max(sample.waiting_jobs for sample in result.samples) > 100
    assert result.summary()["gpu_utilisation"] > 0.5
