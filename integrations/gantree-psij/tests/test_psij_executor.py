"""Jobs of PSI/J on a real daemon: streams, launchers, gangs, errors, cancellation, killed clients."""

import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from psij import (
    InvalidJobException,
    Job,
    JobAttributes,
    JobExecutor,
    JobSpec,
    JobState,
    JobStatus,
    ResourceSpecV1,
)

from gantree_client import Client

WITHIN = timedelta(minutes=2)


@pytest.fixture
def executor(daemon: Any) -> JobExecutor:
    return JobExecutor.get_instance("gantree")


def _sh(command: str, **fields: Any) -> Job:
    return Job(JobSpec("/bin/sh", ["-c", command], **fields))


def _ended(executor: JobExecutor, job: Job) -> JobStatus:
    executor.submit(job)
    status = job.wait(WITHIN)
    assert status is not None, "it does not end"
    return status


def test_streams_folder_environment_and_resources(
    executor: JobExecutor, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_CALLER", "inherited")
    (tmp_path / "in").write_text("from stdin")
    job = _sh(
        'echo "$PWD $OF_CALLER $OF_SPEC $(cat)"; echo error >&2',
        directory=tmp_path, stdin_path=tmp_path / "in", stdout_path=tmp_path / "out", stderr_path=tmp_path / "err",
        environment={"OF_SPEC": 7}, name="my job",
        resources=ResourceSpecV1(cpu_cores_per_process=2, gpu_cores_per_process=1, memory=2**30),
        attributes=JobAttributes(timedelta(minutes=3), "default", custom_attributes={"gantree.priority": "research"}),
    )  # fmt: skip
    states: list[JobState] = []
    job.set_job_status_callback(lambda _, status: states.append(status.state))
    status = _ended(executor, job)
    assert (status.state, status.exit_code) == (JobState.COMPLETED, 0)
    assert states == [JobState.QUEUED, JobState.ACTIVE, JobState.COMPLETED]
    assert (tmp_path / "out").read_text() == f"{tmp_path} inherited 7 from stdin\n"
    assert (tmp_path / "err").read_text() == "error\n"
    row = client.job(str(job.native_id))
    shape = row["spec"]["roles"][0]["shape"]
    assert (shape["cpus"], shape["gpus"], shape["memory_GiB"]) == (2, 1, 1.0)
    assert (row["spec"]["time_limit_s"], row["priority"]) == (180, 100)
    assert row["job"].startswith("my-job-")


def test_a_gang_has_its_ranks_and_a_file_for_each(executor: JobExecutor, tmp_path: Path) -> None:
    job = _sh(
        "echo $RANK of $WORLD_SIZE on $NODE_RANK", launcher="gantree", stdout_path=tmp_path / "out",
        resources=ResourceSpecV1(node_count=2, processes_per_node=2, gpu_cores_per_process=2),
    )  # fmt: skip
    assert _ended(executor, job).state is JobState.COMPLETED
    said = [(tmp_path / f"out{suffix}").read_text() for suffix in ("", ".1", ".2", ".3")]
    assert said == ["0 of 4 on 0\n", "1 of 4 on 0\n", "2 of 4 on 1\n", "3 of 4 on 1\n"]


@pytest.mark.parametrize(("launcher", "times"), [(None, 1), ("multiple", 4)])
def test_a_launcher_runs_on_the_first_node_and_knows_all(
    executor: JobExecutor, tmp_path: Path, launcher: str | None, times: int
) -> None:
    job = _sh(
        'wc -l < "$PSIJ_NODEFILE"', launcher=launcher, stdout_path=tmp_path / "out",
        resources=ResourceSpecV1(node_count=2, processes_per_node=2, gpu_cores_per_process=1),
    )  # fmt: skip
    assert _ended(executor, job).state is JobState.COMPLETED
    assert (tmp_path / "out").read_text().split() == ["4"] * times


def test_an_exit_code_fails_a_job_once(executor: JobExecutor, client: Client) -> None:
    job = _sh("exit 5", resources=ResourceSpecV1(node_count=2, processes_per_node=1))
    status = _ended(executor, job)
    assert (status.state, status.exit_code) == (JobState.FAILED, 5)
    assert client.job(str(job.native_id))["attempt"] == 1


def test_a_job_over_its_duration_fails(executor: JobExecutor) -> None:
    job = _sh("sleep 600", attributes=JobAttributes(timedelta(seconds=1)))
    status = _ended(executor, job)
    assert status.state is JobState.FAILED
    assert "limit" in str(status.message)


def test_a_cancelled_job_is_canceled_and_is_no_longer_listed(executor: JobExecutor) -> None:
    job = _sh("sleep 600", resources=ResourceSpecV1(node_count=2, processes_per_node=1))
    executor.submit(job)
    job.wait(WITHIN, target_states=[JobState.ACTIVE])
    assert job.native_id in executor.list()
    job.cancel()
    status = job.wait(WITHIN)
    assert status is not None
    assert status.state is JobState.CANCELED
    assert job.native_id not in executor.list()


CLIENT = """
from psij import Job, JobExecutor, JobSpec
job = Job(JobSpec("/bin/sh", ["-c", "sleep 1; exit 4"]))
JobExecutor.get_instance("gantree").submit(job)
print(job.native_id, flush=True)
import time; time.sleep(600)
"""


def test_a_job_outlives_its_client_and_the_daemon_and_is_attached_to(daemon: Any) -> None:
    process = subprocess.Popen([sys.executable, "-c", CLIENT], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    native_id = process.stdout.readline().strip()
    process.send_signal(signal.SIGKILL)
    process.wait()
    job = Job()
    JobExecutor.get_instance("gantree", url=str(daemon.state_dir)).attach(job, native_id)
    daemon.kill()
    daemon.start()
    status = job.wait(WITHIN)
    assert status is not None
    assert (status.state, status.exit_code) == (JobState.FAILED, 4)


def test_many_jobs_are_asked_about_with_one_list(executor: JobExecutor) -> None:
    jobs = [_sh("true") for _ in range(24)]
    for job in jobs:
        executor.submit(job)
    for job in jobs:
        status = job.wait(WITHIN)
        assert status is not None
        assert status.state is JobState.COMPLETED


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"resources": ResourceSpecV1(exclusive_node_use=True)}, "exclusive_node_use"),
        ({"attributes": JobAttributes(account="x")}, "account"),
        ({"attributes": JobAttributes(queue_name="no such/queue")}, "queue"),
        (
            {"attributes": JobAttributes(custom_attributes={"gantree.quue": 1})},
            "gantree.quue; allowed",
        ),
        ({"launcher": "gantree", "pre_launch": "/x"}, "pre_launch"),
    ],
)
def test_what_cannot_be_is_named(
    executor: JobExecutor, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidJobException, match=message):
        executor.submit(_sh("true", **fields))


def test_attaching_to_no_job_is_an_error(executor: JobExecutor) -> None:
    with pytest.raises(InvalidJobException, match="no job never-was"):
        executor.attach(Job(), "never-was")
