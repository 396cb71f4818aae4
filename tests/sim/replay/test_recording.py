"""What is read from a journal: work of jobs however they ended, spans of time, arrays, compaction."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from gantree.control.snapshots import Snapshots
from gantree.formats import read_cluster, read_policy
from gantree.formats.traces import TraceJob
from gantree.journal.sqlite import SqliteJournal
from gantree.model.errors import BadInput
from gantree.model.events import CancelRequested, Event
from gantree.model.jobs import Checkpoint, Job, Restarts
from gantree.model.replicas import ReplicaOf
from gantree.sim.cluster import Overheads
from gantree.sim.replay.comparison import Comparison
from gantree.sim.replay.fit import check_suits
from gantree.sim.replay.reading import read_recording
from gantree.sim.replay.recording import Ending, Recording
from gantree.sim.replay.replaying import replay
from gantree.sim.replay.work import Source, WorkEstimates, WorkOf
from gantree.sim.workload import job_of
from support.recorded_simulations import RecordedSimulation

SITE = read_cluster(
    """
name: one-leaf
tiers: [leaf, node]
machines: {m4: {gpus: 4, gpu: H100-80GB, cpus: 64, memory_GiB: 256}}
nodes: [{names: "n[0-1]", machine: m4, at: {leaf: l0}}]
""",
    "site.yaml",
)
POLICY_TEXT = (
    "preset: gantree\npriorities: {batch: 200, production: 300}\nevictions: {min_run: 0s}\n"
)
POLICY = read_policy(POLICY_TEXT, "policy.yaml")
FIFO = read_policy("preset: fifo\n", "fifo.yaml")
Jobs = list[tuple[TraceJob, Job]]


def jobs_of(*rows: TraceJob) -> Jobs:
    return [(row, job_of(row)) for row in rows]


@contextmanager
def recorded(
    folder: Path, jobs: Jobs, *requests: Event, overheads: Overheads | None = None
) -> Iterator[RecordedSimulation]:
    past = RecordedSimulation(
        folder, SITE, jobs, POLICY, overheads or Overheads(), requests, POLICY_TEXT
    )
    try:
        yield past
    finally:
        past.journal.close()


def whole(
    folder: Path, jobs: Jobs, *requests: Event, overheads: Overheads | None = None
) -> Recording:
    with recorded(folder, jobs, *requests, overheads=overheads) as past:
        past.run_on()
        return read_recording(past.journal, POLICY)


def works(recording: Recording) -> dict[str, WorkOf]:
    estimates = WorkEstimates(recording.jobs)
    return {record.outcome.job: estimates.of(record) for record in recording.jobs}


def test_a_preempted_job_counts_the_work_that_it_kept(tmp_path: Path) -> None:
    jobs = jobs_of(
        TraceJob("a", 0, 100, 2, 4, checkpoint_s=30), TraceJob("b", 0, 50, 2, 4),
        TraceJob("p", 45, 10, 2, 4, priority="production"),
    )  # fmt: skip
    recording = whole(tmp_path, jobs, overheads=Overheads(start_s=5, stop_s=2, save_s=3))
    assert {job: each.seconds for job, each in works(recording).items()} == {
        "ta": 100, "tb": 50, "tp": 10
    }  # fmt: skip
    assert [each.outcome.preemptions for each in recording.jobs] == [1, 0, 0]
    measured = recording.measured
    assert (measured.overheads.start_s, measured.overheads.stop_s, measured.overheads.save_s) == (
        5,
        2,
        3,
    )
    assert (measured.starts, measured.stops, measured.saves) == (4, 1, 1)
    assert list(replay(recording, POLICY).jobs) == [each.outcome for each in recording.jobs]


def test_a_job_that_failed_fails_after_the_time_of_all_its_attempts(tmp_path: Path) -> None:
    ((row, spec),) = jobs_of(TraceJob("a", 0, 20, 1, 4))
    restarts = Restarts(limit=2, backoff_s=0.0)
    with recorded(tmp_path, [(row, replace(spec, restarts=restarts))]) as past:
        past.cluster.work_of_job["ta"].exit_code = 3
        past.run_on()
        recording = read_recording(past.journal, POLICY)
    (record,) = recording.jobs
    assert (record.outcome.attempts, record.work_s, record.exit_code) == (3, 60, 3)
    (again,) = replay(recording, FIFO).jobs
    assert (again.outcome, again.attempts, again.ended_at) == ("failed", 1, 60)


def test_a_replica_of_a_service_runs_as_long_as_it_did(tmp_path: Path) -> None:
    cancelled = CancelRequested(id="c", observed_at=50.0, job="ta")
    recording = whole(tmp_path, jobs_of(TraceJob("a", 0, 100, 1, 4)), cancelled)
    (record,) = recording.jobs
    spec = replace(record.spec, service=ReplicaOf("chat", 1, 1))
    of_service = replace(recording, jobs=(replace(record, spec=spec),), requests=())
    assert works(of_service) == {"ta": WorkOf(50.0, Source.RECORD)}
    (again,) = replay(of_service, FIFO).jobs
    assert (again.outcome, again.attempts, again.ended_at) == ("succeeded", 1, 50)


def test_jobs_that_did_not_run_to_their_end_are_estimated(tmp_path: Path) -> None:
    jobs = jobs_of(
        TraceJob("limited", 0, 100, 1, 1, time_limit_s=40),
        TraceJob("expected", 0, 100, 1, 1, expected_s=80),
        TraceJob("outlived", 0, 100, 1, 1, expected_s=20),
        TraceJob("alike", 0, 100, 1, 1),
        TraceJob("other-queue", 0, 100, 1, 1, queue="other"),
        TraceJob("ended", 0, 10, 1, 1), TraceJob("ended-too", 0, 30, 1, 1),
    )  # fmt: skip
    cancelled = [
        CancelRequested(id=f"c-{job}", observed_at=50.0, job=f"t{job}")
        for job in ("expected", "outlived", "alike", "other-queue")
    ]
    recording = whole(tmp_path, jobs, *cancelled)
    assert {job: (each.seconds, each.source) for job, each in works(recording).items()} == {
        "tlimited": (80, Source.TIME_LIMIT),
        "texpected": (80, Source.EXPECTED),
        "toutlived": (51, Source.EXPECTED),
        "talike": (51, Source.QUEUE),
        "tother-queue": (51, Source.ALL),
        "tended": (10, Source.RECORD),
        "tended-too": (30, Source.RECORD),
    }
    endings = {record.outcome.job: record.ending for record in recording.jobs}
    assert endings["tlimited"] is Ending.TIME_LIMIT and endings["talike"] is Ending.REQUEST
    outcomes = {job.job: (job.outcome, job.ended_at) for job in replay(recording, POLICY).jobs}
    assert outcomes["tlimited"] == ("timed-out", 40)
    assert outcomes["talike"] == ("cancelled", 50)


def test_a_span_of_time_carries_over_what_had_not_ended(tmp_path: Path) -> None:
    jobs = jobs_of(
        TraceJob("gone", 0, 10, 1, 4), TraceJob("long", 0, 100, 1, 4),
        TraceJob("new", 60, 50, 2, 4), TraceJob("late", 500, 10, 1, 1),
    )  # fmt: skip
    with recorded(tmp_path, jobs) as past:
        past.run_on()
        recording = read_recording(past.journal, POLICY, 40.0, 400.0)
    assert {record.outcome.job: record.done_before_s for record in recording.jobs} == {
        "tlong": 40, "tnew": None
    }  # fmt: skip
    assert (recording.began_at, recording.carried) == (40, 1)
    again = replay(recording, POLICY)
    assert [(job.job, job.ended_at) for job in again.jobs] == [("tlong", 100), ("tnew", 150)]
    document = Comparison(recording, again, replay(recording, FIFO)).document()
    assert document["recorded"]["jobs"] == 1
    assert document["recorded"]["makespan_s"] == document["recorded_policy"]["makespan_s"] == 110
    assert document["recorded"]["gpu_utilisation"] == document["recorded_policy"]["gpu_utilisation"]


def test_elements_of_an_array_are_jobs_of_their_own(tmp_path: Path) -> None:
    ((row, spec),) = jobs_of(TraceJob("a", 0, 30, 1, 4))
    array = replace(spec, array=((0, 39),))
    with recorded(
        tmp_path, [(row, array)], CancelRequested(id="c", observed_at=1.0, job="ta")
    ) as past:
        for index in range(40):
            past.cluster.expect(f"ta-{index}", 30.0, None, 1)
        past.run_on()
        recording = read_recording(past.journal, POLICY)
    assert len(recording.jobs) == 40
    assert recording.jobs[39].outcome.job == "ta-39"
    assert {record.outcome.outcome for record in recording.jobs} == {"cancelled"}
    assert {job.outcome for job in replay(recording, FIFO).jobs} == {"cancelled"}


def test_a_compacted_journal_begins_with_its_snapshot(tmp_path: Path) -> None:
    jobs = jobs_of(
        TraceJob("a", 0, 100, 2, 4, checkpoint_s=20), TraceJob("p", 50, 10, 2, 4, priority="production"),
        TraceJob("b", 90, 30, 1, 4),
    )  # fmt: skip
    with recorded(tmp_path, jobs) as past:
        past.run_on(until=60.0)
        epoch = past.journal.lead("test", 60.0)
        assert epoch is not None
        past._epoch = epoch
        taking = Snapshots(past.journal, epoch, every_facts=1)
        taking.fold(POLICY)
        taking._taken_at = 0
        taking.close(past.scheduler)
        past.journal.compact(past.journal.snapshot_seq(), epoch)
        past.run_on()
        recording = read_recording(past.journal, POLICY)
    assert recording.compacted_at == 60
    assert {job: each.seconds for job, each in works(recording).items()} == {
        "ta": 100,
        "tp": 10,
        "tb": 30,
    }
    assert list(replay(recording, POLICY).jobs) == [each.outcome for each in recording.jobs]


def test_a_journal_without_jobs_cannot_be_replayed(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path)
    try:
        with pytest.raises(BadInput, match="the journal is empty: no daemon has decided yet"):
            read_recording(journal, POLICY)
    finally:
        journal.close()


def test_the_error_is_how_far_the_recorded_policy_simulated_is_from_the_record(
    tmp_path: Path,
) -> None:
    jobs = jobs_of(TraceJob("a", 0, 100, 2, 4), TraceJob("b", 0, 100, 2, 4))
    recording = whole(tmp_path, jobs)
    slower = replay(recording, POLICY, Overheads(start_s=10))
    document = Comparison(recording, slower, replay(recording, FIFO)).document()
    assert document["error"] == {
        "start_s": {"mean": 15, "p50": 10, "p95": 20, "max": 20}, "makespan": 0.1
    }  # fmt: skip
    assert document["starts"]["earlier"] == 2


def test_a_job_that_saves_on_request_keeps_its_work_when_it_is_preempted(tmp_path: Path) -> None:
    (row, spec), *others = jobs_of(
        TraceJob("a", 0, 100, 2, 4, checkpoint_s=1e9),
        TraceJob("p", 60, 10, 2, 4, priority="production"),
    )
    saves = replace(spec, checkpoint=Checkpoint(signal="SIGUSR1"))
    recording = whole(tmp_path, [(row, saves), *others], overheads=Overheads(save_s=4))
    assert works(recording)["ta"].seconds == 100
    assert replay(recording, POLICY).jobs[0].preemptions == 1


def test_a_rejected_job_is_submitted_again_and_needs_no_queue(tmp_path: Path) -> None:
    jobs = jobs_of(TraceJob("a", 0, 10, 1, 4), TraceJob("b", 5, 10, 1, 4, required="rack"))
    recording = whole(tmp_path, jobs)
    assert [record.outcome.outcome for record in recording.jobs] == ["succeeded", "rejected"]
    assert [job.outcome for job in replay(recording, FIFO).jobs] == ["succeeded", "rejected"]
    moved = replace(recording.jobs[1], spec=replace(recording.jobs[1].spec, queue="gone"))
    only_default = read_policy("preset: fifo\nqueues: [{name: default}]\n", "p.yaml")
    check_suits(only_default, replace(recording, jobs=(recording.jobs[0], moved)), "p.yaml")
    with pytest.raises(BadInput, match="1 recorded job: there is no queue `gone`"):
        accepted = replace(recording.jobs[0], spec=moved.spec)
        check_suits(only_default, replace(recording, jobs=(accepted, moved)), "p.yaml")
