"""Rows of traces from jobs: of the scheduler, and of a daemon's journal."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings

from gantree.formats import read_cluster, read_policy
from gantree.formats.traces import TraceJob
from gantree.model.events import CancelRequested
from gantree.model.jobs import Job, Role, Shape
from gantree.sim.cluster import Overheads
from gantree.sim.replay.reading import read_recording
from gantree.sim.traces.recorded import recorded_jobs
from gantree.sim.traces.rows import from_monday, row_of
from gantree.sim.workload import job_of
from support.examples import examples
from support.recorded_simulations import RecordedSimulation
from support.traces import TRACES

POLICY = "preset: fifo\n"
SITE = """
name: one-leaf
tiers: [leaf, node]
machines: {m4: {gpus: 4, gpu: H100-80GB, cpus: 64, memory_GiB: 256}}
nodes: [{names: "n[0-1]", machine: m4, at: {leaf: l0}}]
"""


@settings(max_examples=examples(100))
@given(TRACES)
def test_the_row_of_the_job_of_a_row_is_the_row(jobs: list[TraceJob]) -> None:
    for row in jobs:
        again = row_of(job_of(row), row.job_id, row.submit_s, row.duration_s)
        assert again == replace(row, model=None, busy=None), (
            "counters say how busy it is, not the job"
        )


def test_of_several_roles_the_one_with_the_most_gpus_becomes_the_row() -> None:
    roles = (
        Role("server", 9, Shape(cpus=4)),
        Role("worker", 2, Shape(gpus=8)),
        Role("chief", 1, Shape(gpus=8)),
    )
    row = row_of(Job("j", roles), "ns/j", 0, 1)
    assert (row.job_id, row.members, row.gpus_per_member) == ("ns-j", 2, 8)


@pytest.mark.parametrize(
    ("device", "mig"), [("mig-3g.40gb", "3g.40gb"), ("mig-1g.10gb.me", "1g.10gb+me")]
)
def test_an_instance_that_is_asked_for_as_a_device_is_a_mig(device: str, mig: str) -> None:
    shape = Shape(devices=((f"nvidia.com/{device}", 1),))
    assert row_of(Job("j", (Role("pod", 1, shape),)), "j", 0, 1).mig == mig


def test_a_moment_has_the_monday_before_it() -> None:
    tuesday = 1_767_657_600.0  # 2026-01-06 00:00 UTC
    assert tuesday - from_monday(tuesday) == 86_400
    assert from_monday(from_monday(tuesday)) == from_monday(tuesday)


@pytest.fixture
def past(tmp_path: Path) -> Iterator[RecordedSimulation]:
    rows = [
        TraceJob("a", 0, 100, 1, 4, queue="x"),
        TraceJob("b", 10, 200, 2, 4, user="ann", checkpoint_s=50),
        TraceJob("c", 20, 50, 2, 4),
    ]
    jobs = [(row, job_of(row)) for row in rows]
    requests = (CancelRequested(id="cancel", observed_at=30.0, job="tc"),)
    site, policy = read_cluster(SITE, "site"), read_policy(POLICY, "policy")
    record = RecordedSimulation(tmp_path, site, jobs, policy, Overheads(), requests, POLICY)
    record.run_on()
    yield record
    record.journal.close()


def test_a_journal_becomes_a_trace_of_the_jobs_that_ran(past: RecordedSimulation) -> None:
    recording = read_recording(past.journal, read_policy(POLICY, "policy"))
    jobs, left_out = recorded_jobs(recording)
    assert left_out == {"never ran": 1}
    assert [(job.job_id, job.duration_s, job.members) for job in jobs] == [
        ("ta", 100, 1),
        ("tb", 200, 2),
    ]
    assert (jobs[0].queue, jobs[1].user, jobs[1].checkpoint_s) == ("x", "ann", 50)
    assert jobs[1].submit_s - jobs[0].submit_s == 10
