"""Snakemake's own suite for executors, and workflows of ours, on a real daemon."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import snakemake.common.tests

from gantree_client import Client, job_name
from snakemake_executor_plugin_gantree import ExecutorSettings


@pytest.mark.usefixtures("daemon")
class TestWorkflows(snakemake.common.tests.TestWorkflowsLocalStorageBase):
    """The suite of Snakemake."""

    __test__ = True

    def get_executor(self) -> str:
        return "gantree"

    def get_executor_settings(self) -> ExecutorSettings:
        return ExecutorSettings()


@pytest.fixture
def here(daemon: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _command(*words: str) -> list[str]:
    base = "--executor gantree --jobs 8 --seconds-between-status-checks 1 --latency-wait 2 --show-failed-logs"
    return [sys.executable, "-m", "snakemake", *base.split(), *words]


def _snakemake(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _command(*words), capture_output=True, text=True, check=False, timeout=180, env=os.environ | variables
    )  # fmt: skip


def _jobs(client: Client, rule: str) -> list[dict[str, Any]]:
    return [row for row in client.jobs() if row["job"].startswith(f"snakejob.{rule}.")]


def test_resources_variables_and_folder_of_a_rule_are_those_of_its_job(
    here: Path, client: Client
) -> None:
    (here / "Snakefile").write_text("""
envvars: "TOLD"
rule shaped:
    output: "out.txt"
    threads: 3
    resources: mem_mb=2048, runtime=7, gpu=2, gpu_model="H100-80GB", gantree_priority="research"
    shell: "echo $TOLD $PWD $CUDA_VISIBLE_DEVICES $GANTREE_JOB > {output}"
""")
    done = _snakemake("--gantree-queue", "default", TOLD="told", UNTOLD="untold")
    assert done.returncode == 0, done.stderr
    told, folder, gpus, job = (here / "out.txt").read_text().split()
    assert (told, folder) == ("told", str(here))
    assert len(gpus.split(",")) == 2
    row = client.job(job)
    (role,) = row["spec"]["roles"]
    shape = role["shape"]
    assert (shape["cpus"], shape["gpus"], shape["models"]) == (3, 2, ["H100-80GB"])
    assert 1.9 < shape["memory_GiB"] <= 2.0
    assert (row["spec"]["time_limit_s"], row["priority"], row["queue"]) == (420, 100, "default")
    assert dict(role["env"]).get("TOLD") == "told"
    assert "told" not in " ".join(role["run"])
    assert "UNTOLD" not in dict(role["env"])


def test_a_job_that_fails_says_why_and_its_output_is_shown(here: Path) -> None:
    (here / "Snakefile").write_text("""
rule fails:
    output: "out.txt"
    shell: "echo the cause >&2; exit 3"
""")
    done = _snakemake()
    assert done.returncode == 1
    assert "failed: rank 0 ended with 1" in done.stderr.replace("\n", " ")
    assert "the cause" in done.stderr
    (log,) = (here / ".snakemake" / "gantree_logs").iterdir()
    assert "the cause" in log.read_text()


def test_retries_of_snakemake_are_new_jobs(here: Path, client: Client) -> None:
    (here / "Snakefile").write_text("""
rule retried:
    output: "out.txt"
    resources: mem_mb=lambda wildcards, attempt: 100 * attempt
    shell: "test -e seen && touch {output} || {{ touch seen; exit 1; }}"
""")
    before = len(_jobs(client, "retried"))
    done = _snakemake("--retries", "1")
    assert done.returncode == 0, done.stderr
    rows = _jobs(client, "retried")[before:]
    assert [row["phase"] for row in rows] == ["failed", "succeeded"]


def test_many_jobs_and_their_order(here: Path) -> None:
    (here / "Snakefile").write_text("""
rule all:
    input: "sum.txt"
rule one:
    output: "part/{n}.txt"
    shell: "echo {wildcards.n} > {output}"
rule sum:
    input: expand("part/{n}.txt", n=range(24))
    output: "sum.txt"
    shell: "cat {input} | wc -l > {output}"
""")
    done = _snakemake("--jobs", "30", "--cores", "64")
    assert done.returncode == 0, done.stderr
    assert (here / "sum.txt").read_text().strip() == "24"


SLOW = """
rule slow:
    output: "out.txt"
    shell: "echo $GANTREE_JOB >> started; while test ! -e go; do sleep 0.1; done; touch {output}"
"""


def _await(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} does not come"
        time.sleep(0.05)


def test_ctrl_c_cancels_the_jobs(here: Path, client: Client) -> None:
    (here / "Snakefile").write_text(SLOW)
    process = subprocess.Popen(_command(), stderr=subprocess.DEVNULL)
    _await(here / "started")
    process.send_signal(signal.SIGINT)
    assert process.wait(60) != 0
    job = (here / "started").read_text().strip()
    assert client.wait(job, within_s=60)["phase"] == "cancelled"


def test_a_snakemake_that_was_killed_finds_its_job_again(here: Path, client: Client) -> None:
    (here / "Snakefile").write_text(SLOW)
    process = subprocess.Popen(_command(), stderr=subprocess.DEVNULL)
    _await(here / "started")
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert _snakemake("--unlock").returncode == 0
    again = subprocess.Popen(_command(), stderr=subprocess.PIPE, text=True)
    assert again.stderr is not None
    said = ""
    for line in again.stderr:
        said += line
        if "runs already, as" in line:
            (here / "go").touch()
            break
    said += again.stderr.read()
    assert again.wait(120) == 0, said
    (job,) = (here / "started").read_text().split()
    assert client.job(job)["phase"] == "succeeded"
    assert list((here / ".snakemake" / "gantree_jobs").iterdir()) == []


def test_a_workflow_outlives_the_death_of_the_daemon(here: Path, daemon: Any) -> None:
    (here / "Snakefile").write_text(SLOW)
    process = subprocess.Popen(_command(), stderr=subprocess.PIPE, text=True)
    _await(here / "started")
    daemon.kill()
    time.sleep(2)
    (here / "go").touch()
    daemon.start()
    _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert len((here / "started").read_text().split()) == 1


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ("nodes=2", "rule wrong: resource nodes"),
        ('gantree_quue="x"', "gantree_quue: allowed: gantree_image"),
        ('gantree_queue="no such/queue"', "rule wrong: gantree did not accept the job"),
        ('gpu="many"', "rule wrong: resource gpu: found 'many'"),
    ],
)
def test_what_cannot_be_is_named_with_its_rule(here: Path, resources: str, message: str) -> None:
    (here / "Snakefile").write_text(f"""
rule wrong:
    output: "out.txt"
    resources: {resources}
    shell: "touch {{output}}"
""")
    done = _snakemake()
    assert done.returncode == 1
    assert message in " ".join(done.stderr.split())


def test_without_a_daemon_it_ends_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Snakefile").write_text(
        'rule a:\n    output: "out.txt"\n    shell: "touch {output}"\n'
    )
    done = _snakemake("--gantree-server", str(tmp_path / "nowhere"))
    assert done.returncode == 1
    assert "no daemon answers" in done.stderr
    assert job_name("x") not in done.stderr
