"""Functions as jobs of a real daemon: results, errors, logs, gangs, arrays, time limits, preemption, killed clients."""

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import submitit
from submitit.core import utils

from gantree_client import Client, Rejected, exported
from gantree_submitit import GantreeExecutor, GantreeJob

# Jobs cannot import this module, which pytest imported from its path.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def _executor(folder: Path, **parameters: Any) -> GantreeExecutor:
    executor = GantreeExecutor(folder, max_num_timeout=2)
    executor.update_parameters(**parameters)
    return executor


def _where(x: int) -> dict[str, Any]:
    print("to stdout", x)
    print("to stderr", x, file=sys.stderr)
    names = ("FOO", "GANTREE_JOB", "CUDA_VISIBLE_DEVICES", "RANK", "WORLD_SIZE", "SECRET")
    return {"x": x, "cwd": str(Path.cwd())} | {name: os.environ.get(name) for name in names}


def test_a_function_runs_as_a_job_and_gives_its_result(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SECRET", "is not passed on")
    executor = _executor(
        tmp_path / "log", name="my probe", gpus_per_node=2, cpus_per_task=3, mem_gb=1.5, env={"FOO": "bar"}
    )  # fmt: skip
    job = executor.submit(_where, 7)
    result = job.result()
    assert (result["x"], result["cwd"], result["FOO"], result["SECRET"]) == (
        7,
        str(tmp_path),
        "bar",
        None,
    )
    assert result["GANTREE_JOB"] == job.job_id
    assert len(result["CUDA_VISIBLE_DEVICES"].split(",")) == 2
    row = client.wait(job.job_id)
    assert row["job"].startswith("my-probe-")
    shape = row["spec"]["roles"][0]["shape"]
    assert (shape["gpus"], shape["cpus"], shape["memory_GiB"]) == (2, 3.0, 1.5)
    assert (row["phase"], row["exit_code"], row["attempt"]) == ("succeeded", 0, 1)
    assert "to stdout 7\n" in (job.stdout() or "")
    assert "to stdout 7\n" not in (job.stderr() or "")
    assert "to stderr 7\n" in (job.stderr() or "")
    logs = "".join(client.logs(job.job_id, rank=0))
    assert "to stdout 7\n" in logs
    assert "to stderr 7\n" in logs


def test_an_error_is_told_with_its_trace_and_is_not_tried_again(
    client: Client, tmp_path: Path
) -> None:
    job = _executor(tmp_path).submit(_Steps(1, tmp_path, error="on purpose"))
    error = job.exception()
    assert isinstance(error, utils.FailedJobError)
    assert "ValueError: on purpose" in str(error)
    row = client.wait(job.job_id)
    assert (row["phase"], row["exit_code"], row["attempt"]) == ("failed", 1, 1)
    assert job.get_info()["State"] == "FAILED"


def test_many_functions_are_one_array(client: Client, tmp_path: Path) -> None:
    jobs = _executor(tmp_path / "%j").map_array(pow, [2, 3, 4], [5, 2, 1])
    assert [job.result() for job in jobs] == [32, 9, 4]
    ids = [job.job_id for job in jobs]
    assert ids == [f"{ids[0].removesuffix('-0')}-{index}" for index in range(3)]
    submitted = {client.job(each)["submitted_at"] for each in ids}
    assert len(submitted) == 1


def test_many_jobs_are_asked_about_with_one_list(client: Client, tmp_path: Path) -> None:
    executor = _executor(tmp_path, cpus_per_task=1)
    jobs = executor.map_array(pow, range(24), [2] * 24)
    assert [job.result() for job in jobs] == [each**2 for each in range(24)]
    for job in jobs:
        client.wait(job.job_id)
    GantreeJob.watcher.clear()
    assert [job.get_info()["State"] for job in jobs] == ["COMPLETED"] * 24


def _place() -> tuple[int, int, int, int, list[str]]:
    env = submitit.JobEnvironment()
    return env.global_rank, env.local_rank, env.node, env.num_nodes, list(env.hostnames)


def test_a_gang_has_its_ranks_and_knows_its_nodes(daemon: Any, tmp_path: Path) -> None:
    job = _executor(tmp_path, nodes=2, tasks_per_node=2, gpus_per_node=4).submit(_place)
    results = job.results()
    assert [each[:4] for each in results] == [
        (0, 0, 0, 2),
        (1, 1, 0, 2),
        (2, 0, 1, 2),
        (3, 1, 1, 2),
    ]
    assert {tuple(each[4]) for each in results} == {("127.0.0.1", results[0][4][1])}


def _rank_1_fails() -> None:
    if submitit.JobEnvironment().global_rank == 1:
        raise ValueError("rank 1")
    time.sleep(600)


def test_of_a_gang_the_error_of_the_rank_that_failed_is_told(daemon: Any, tmp_path: Path) -> None:
    job = _executor(tmp_path, tasks_per_node=2).submit(_rank_1_fails)
    for each in (job, *job._sub_jobs):
        each._results_timeout_s = 1
    assert "ValueError: rank 1" in str(job.exception())


def test_a_cancelled_job_ends_and_says_so(client: Client, tmp_path: Path) -> None:
    job = _executor(tmp_path).submit(time.sleep, 600)
    client.job(job.job_id, wait_s=60, until="running")
    job._results_timeout_s = 0
    job.cancel()
    assert client.wait(job.job_id, within_s=60)["phase"] == "cancelled"
    assert job.get_info()["State"] == "CANCELLED"
    job.cancel()  # once more is no error
    with pytest.raises(utils.UncompletedJobError, match="CANCELLED"):
        job.result()


class _Steps(submitit.helpers.Checkpointable):
    """Counts steps, one every 50 ms; knows after a checkpoint how far it was."""

    def __init__(self, steps: int, folder: Path, error: str = "", done: int = 0) -> None:
        self.steps, self.folder, self.error, self.done = steps, folder, error, done

    def __call__(self) -> tuple[int, int]:
        """How many steps there were before this attempt, and in all."""
        before = self.done
        (self.folder / f"attempt-{os.environ['GANTREE_ATTEMPT']}").touch()
        while self.done < self.steps:
            time.sleep(0.05)
            self.done += 1
        if self.error:
            raise ValueError(self.error)
        return before, self.done

    def checkpoint(self) -> utils.DelayedSubmission:
        """Go on from here."""
        return utils.DelayedSubmission(self)


def test_before_its_time_is_up_a_function_saves_and_starts_again(
    client: Client, tmp_path: Path
) -> None:
    executor = _executor(tmp_path, timeout_min=6 / 60, signal_delay_s=3)
    job = executor.submit(_Steps(100, tmp_path))
    before, done = job.result()
    assert done == 100
    assert before > 0
    row = client.wait(job.job_id)
    assert (row["phase"], row["exit_code"]) == ("succeeded", 0)
    assert 2 <= row["attempt"] <= 3


def test_a_function_that_cannot_save_ends_when_its_time_is_up(
    client: Client, tmp_path: Path
) -> None:
    executor = _executor(tmp_path, timeout_min=4 / 60, signal_delay_s=2)
    job = executor.submit(time.sleep, 600)
    assert "timed-out and not checkpointable" in str(job.exception())
    assert client.wait(job.job_id)["attempt"] == 1


def test_a_preempted_function_goes_on_from_its_checkpoint(client: Client, tmp_path: Path) -> None:
    job = _executor(tmp_path, nodes=2, gpus_per_node=4, priority="research").submit(
        _Steps(60, tmp_path)
    )
    client.job(job.job_id, wait_s=60, until="running")
    _wait_for(tmp_path / "attempt-1")
    time.sleep(0.5)
    urgent = {"name": "urgent", "priority": "production", "gang": [
        {"role": "w", "members": 2, "each": {"gpus": 4}, "run": ["sleep", "0.5"]}]}  # fmt: skip
    (other,) = client.submit([urgent])
    assert client.wait(other, within_s=60)["phase"] == "succeeded"
    # Both ranks count for themselves; only rank 0's checkpoint is kept, as with submitit on Slurm.
    assert all(done == 60 and before > 0 for before, done in job.results())
    row = client.wait(job.job_id)
    assert (row["preemptions"], row["failures"], row["phase"]) == (1, 0, "succeeded")
    assert row["checkpoint_step"] == 1


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} does not come"
        time.sleep(0.02)


CLIENT = """
import sys, submitit
executor = submitit.AutoExecutor(sys.argv[1], cluster="gantree")
job = executor.submit(pow, 2, 10)
print(job.job_id, flush=True)
job.result()
import time; time.sleep(600)
"""


def test_a_job_outlives_its_client_and_is_found_by_its_id(daemon: Any, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", CLIENT, tmp_path], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    job_id = process.stdout.readline().strip()
    process.send_signal(signal.SIGKILL)
    process.wait()
    job: GantreeJob[int] = GantreeJob(tmp_path, job_id)
    assert job.result() == 1024
    assert job.submission().args == (2, 10)


def test_a_job_can_be_pickled(daemon: Any, tmp_path: Path) -> None:
    job = pickle.loads(pickle.dumps(_executor(tmp_path).submit(pow, 2, 3)))
    assert job.result() == 8


def test_a_daemon_that_is_killed_meanwhile_loses_nothing(daemon: Any, tmp_path: Path) -> None:
    job = _executor(tmp_path).submit(_Steps(20, tmp_path))
    _wait_for(tmp_path / "attempt-1")
    daemon.kill()
    daemon.start()
    assert job.result() == (0, 20)


def test_a_submission_that_is_sent_again_is_accepted_once(client: Client, tmp_path: Path) -> None:
    job = _executor(tmp_path).submit(pow, 2, 3)
    sent = json.loads((tmp_path / f"{job.job_id}_submission.json").read_text())
    again = client.submit([sent], base_dir=Path.cwd(), default_env=exported(), key=job.job_id)
    assert again == [job.job_id]
    assert [row["job"] for row in client.jobs() if job.job_id in row["job"]] == [job.job_id]
    with pytest.raises(Rejected, match="key"):
        client.submit([sent | {"priority": "research"}], key=job.job_id)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"quue": "x"}, "quue"),
        ({"signal_delay_s": 0}, "more than 0"),
    ],
)
def test_a_wrong_parameter_is_named_at_once(
    daemon: Any, tmp_path: Path, parameters: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        _executor(tmp_path, **parameters)


def test_a_job_that_the_daemon_refuses_leaves_no_pickle(daemon: Any, tmp_path: Path) -> None:
    with pytest.raises(utils.FailedSubmissionError, match="queue"):
        _executor(tmp_path, queue="no such/queue").submit(pow, 2, 3)
    assert list(tmp_path.rglob("*.pkl")) == []


def test_setup_commands_run_before_and_their_failure_is_the_jobs(
    client: Client, tmp_path: Path
) -> None:
    executor = _executor(tmp_path, setup=["export FOO=1", f"touch '{tmp_path}/a file'"])
    assert executor.submit(_where, 1).result()["FOO"] == "1"
    assert (tmp_path / "a file").exists()
    executor.update_parameters(setup=["exit 9"])
    job = executor.submit(_where, 1)
    assert client.wait(job.job_id)["exit_code"] == 9


def test_the_executor_is_found_and_chosen_where_the_environment_names_a_daemon(
    daemon: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = submitit.AutoExecutor(tmp_path)
    assert executor.cluster == "gantree"
    executor.update_parameters(
        timeout_min=1, cpus_per_task=1, gantree_queue="default", slurm_partition="x"
    )
    assert executor.submit(pow, 2, 3).result() == 8
    monkeypatch.delenv("GANTREE_STATE")
    assert submitit.AutoExecutor(tmp_path).cluster == "local"
    with pytest.raises(ValueError, match="%j"):
        GantreeExecutor(tmp_path / "%A_%a")
