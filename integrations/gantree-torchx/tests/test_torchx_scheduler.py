"""Applications of TorchX on a real daemon: the command line, the runner, roles, logs, retries, cancellation."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from torchx.runner import Runner, get_runner
from torchx.schedulers import get_scheduler_factories
from torchx.schedulers.api import Stream
from torchx.specs import AppDef, AppState, BindMount, Resource, Role, macros, make_app_handle

from gantree_client import Client
from gantree_torchx import create_scheduler


def _role(*command: str, **fields: Any) -> Role:
    fields = {"name": "worker", "image": "", "resource": Resource(cpu=1, gpu=0, memMB=512)} | fields
    return Role(entrypoint=command[0], args=list(command[1:]), **fields)


def _app(*roles: Role, name: str = "app") -> AppDef:
    return AppDef(name=name, roles=list(roles))


@pytest.fixture
def runner(daemon: Any) -> Runner:
    return get_runner()


def _id(handle: str) -> str:
    return handle.rsplit("/", 1)[1]


def _run(runner: Runner, app: AppDef, **cfg: Any) -> str:
    return runner.run(app, "gantree", cfg)


def _torchx(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torchx.cli.main", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_the_command_line_runs_an_application_and_shows_status_and_logs(client: Client) -> None:
    ran = _torchx(
        "run", "-s", "gantree", "--wait", "--log", "utils.echo", "--msg", "hello from torchx"
    )
    assert ran.returncode == 0, ran.stderr
    handle = ran.stdout.strip().splitlines()[0]
    assert handle.startswith("gantree://torchx/echo-")
    assert "hello from torchx" in ran.stdout + ran.stderr
    status = _torchx("status", handle)
    assert "SUCCEEDED" in status.stdout, status.stderr
    assert "hello from torchx" in _torchx("log", handle).stdout
    assert client.job(_id(handle))["exit_code"] == 0
    assert _id(handle) in _torchx("list", "-s", "gantree").stdout


def test_the_schedulers_of_torchx_stay_beside_it() -> None:
    names = set(get_scheduler_factories())
    assert {
        "local_docker",
        "local_cwd",
        "slurm",
        "kubernetes",
        "aws_batch",
        "lsf",
        "gantree",
    } <= names
    assert get_scheduler_factories()["local_cwd"]("tests").backend == "local"


def test_roles_are_one_gang_with_their_resources_environment_and_ranks(
    runner: Runner, client: Client
) -> None:
    shown = "echo $GANTREE_ROLE $RANK/$WORLD_SIZE $FOO $TORCHX_JOB_ID $CUDA_VISIBLE_DEVICES"
    handle = _run(runner, _app(
        _role("sh", "-c", shown, name="a", num_replicas=2, env={"FOO": "bar"}, resource=Resource(2, 4, 2048)),
        _role("sh", "-c", shown, name="b", env={"FOO": macros.app_id}),
    ))  # fmt: skip
    status = runner.wait(handle, wait_interval=0.1)
    assert status is not None
    assert (status.state, status.num_restarts) == (AppState.SUCCEEDED, 0)
    assert {(role.role, len(role.replicas)) for role in status.roles} == {("a", 2), ("b", 1)}
    assert {replica.hostname for replica in status.roles[0].replicas} == {"n0", "n1"}
    lines = [
        "".join(runner.log_lines(handle, role, k)).split()
        for role, k in (("a", 0), ("a", 1), ("b", 0))
    ]
    assert [line[:3] for line in lines] == [
        ["a", "0/3", "bar"], ["a", "1/3", "bar"], ["b", "2/3", _id(handle)]
    ]  # fmt: skip
    assert lines[0][3] == f"gantree://torchx/{_id(handle)}"
    assert len(lines[0][4].split(",")) == 4
    shape = client.job(_id(handle))["spec"]["roles"][0]["shape"]
    assert (shape["cpus"], shape["gpus"], shape["memory_GiB"]) == (2.0, 4, 2.0)
    with pytest.raises(ValueError, match="no replica 2 of role a"):
        runner.log_lines(handle, "a", 2)


def test_replicas_with_arguments_of_their_own_are_roles_of_their_own(runner: Runner) -> None:
    role = _role("echo", "I am", macros.replica_id, "of", macros.app_id, num_replicas=2)
    handle = _run(runner, _app(role))
    assert runner.wait(handle, wait_interval=0.1)
    assert [next(iter(runner.log_lines(handle, "worker", k))) for k in (0, 1)] == [
        f"I am 0 of {_id(handle)}\n", f"I am 1 of {_id(handle)}\n"
    ]  # fmt: skip


def test_an_exit_code_fails_the_application_after_its_retries(
    runner: Runner, client: Client
) -> None:
    handle = _run(runner, _app(_role("sh", "-c", "echo try; exit 7")))
    status = runner.wait(handle, wait_interval=0.1)
    assert status is not None
    assert status.state is AppState.FAILED
    assert "exit code 7" in status.msg
    again = _app(_role("sh", "-c", "test $GANTREE_ATTEMPT = 2", max_retries=1))
    handle = _run(runner, again)
    status = runner.wait(handle, wait_interval=0.1)
    assert status is not None
    assert (status.state, status.num_restarts) == (AppState.SUCCEEDED, 1)


def test_an_application_over_its_time_limit_has_failed(runner: Runner) -> None:
    handle = _run(runner, _app(_role("sleep", "600")), time_limit="1s")
    status = runner.wait(handle, wait_interval=0.1)
    assert status is not None
    assert status.state is AppState.FAILED
    assert "limit" in status.msg


def test_a_cancelled_application_is_cancelled_and_may_be_cancelled_again(
    runner: Runner, client: Client
) -> None:
    handle = _run(runner, _app(_role("sleep", "600")))
    client.job(_id(handle), wait_s=60, until="running")
    runner.cancel(handle)
    status = runner.wait(handle, wait_interval=0.1)
    assert status is not None
    assert status.state is AppState.CANCELLED
    runner.cancel(handle)
    assert runner.status(make_app_handle("gantree", "tests", "never-was")) is None


def test_logs_are_followed_to_the_end_and_filtered(runner: Runner) -> None:
    command = "for i in 1 2 3; do echo line $i; sleep 0.2; done; printf 'no end'"
    handle = _run(runner, _app(_role("sh", "-c", command)))
    assert list(runner.log_lines(handle, "worker", 0, should_tail=True)) == [
        "line 1\n", "line 2\n", "line 3\n", "no end"
    ]  # fmt: skip
    assert list(runner.log_lines(handle, "worker", 0, regex="[23]")) == ["line 2\n", "line 3\n"]
    with pytest.raises(ValueError, match="combined"):
        runner.log_lines(handle, "worker", 0, streams=Stream.STDERR)


def test_a_workspace_is_copied_and_an_image_that_is_a_directory_is_where_it_runs(
    runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "main.py").write_text("import os; print('in', os.getcwd())")
    handle = runner.run(
        _app(_role(sys.executable, "main.py")), "gantree", {"job_dir": str(tmp_path / "copy")},
        workspace=f"file://{tmp_path / 'code'}",
    )  # fmt: skip
    assert (
        "".join(runner.log_lines(handle, "worker", should_tail=True)) == f"in {tmp_path / 'copy'}\n"
    )
    monkeypatch.chdir(tmp_path / "code")
    handle = _run(runner, _app(_role(sys.executable, "main.py", image="ghcr.io/no/such:image")))
    assert (
        "".join(runner.log_lines(handle, "worker", should_tail=True)) == f"in {tmp_path / 'code'}\n"
    )


def test_an_application_that_waits_says_why(runner: Runner) -> None:
    handle = _run(runner, _app(_role("true", resource=Resource(1, 99, 1))))
    status = runner.status(handle)
    assert status is not None
    assert status.state is AppState.PENDING
    assert "99 GPUs" in status.msg
    runner.cancel(handle)


def test_the_fewest_replicas_make_it_elastic(runner: Runner, client: Client) -> None:
    handle = _run(
        runner, _app(_role("true", num_replicas=3, min_replicas=1, resource=Resource(1, 4, 1)))
    )
    status = runner.wait(handle, wait_interval=0.1)
    assert status is not None
    assert status.state is AppState.SUCCEEDED  # with the two that fit
    assert client.job(_id(handle))["spec"]["elastic"] is not None


@pytest.mark.parametrize(
    ("role", "cfg", "message"),
    [
        (_role("true", mounts=[BindMount("/a", "/b")]), {}, "mounts"),
        (_role("true", metadata={"gantree.gpus": 1}), {}, "gantree.gpus; allowed: gantree.gpu"),
        (_role("true"), {"queue": "no such/queue"}, "queue"),
        (_role("true"), {"export": "NOT_SET_ANYWHERE"}, "NOT_SET_ANYWHERE"),
    ],
)
def test_what_cannot_be_is_named_before_anything_is_submitted(
    runner: Runner, client: Client, role: Role, cfg: dict[str, Any], message: str
) -> None:
    before = [row["job"] for row in client.jobs()]
    with pytest.raises(Exception, match=message):
        _run(runner, _app(role), **cfg)
    assert [row["job"] for row in client.jobs()] == before


def test_a_dry_run_shows_the_job_and_submitted_twice_is_one_job(
    runner: Runner, client: Client
) -> None:
    dry = runner.dryrun(_app(_role("echo", "once"), name="my app!"), "gantree", {"priority": "7"})
    job = json.loads(str(dry))
    assert (job["name"][:7], job["priority"]) == ("my-app-", 7)
    first, second = runner.schedule(dry), runner.schedule(dry)
    assert first == second
    assert [row["job"] for row in client.jobs(name=job["name"])] == [_id(first)]


KILLED = """
import sys
from torchx.runner import get_runner
from torchx.specs import AppDef, Role
role = Role("worker", "", entrypoint="sh", args=["-c", "sleep 1; echo went on"])
runner = get_runner()
print(runner.run(AppDef("orphan", [role]), "gantree"), flush=True)
import time; time.sleep(600)
"""


def test_an_application_outlives_its_client_and_the_daemon(daemon: Any) -> None:
    process = subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    handle = process.stdout.readline().strip()
    process.send_signal(signal.SIGKILL)
    process.wait()
    daemon.kill()
    daemon.start()
    runner = get_runner()
    status = runner.wait(handle, wait_interval=0.1)
    assert status is not None
    assert status.state is AppState.SUCCEEDED
    assert list(runner.log_lines(handle, "worker")) == ["went on\n"]


def test_a_scheduler_waits_for_a_daemon_that_restarts(daemon: Any) -> None:
    scheduler = create_scheduler("tests")
    app_id = scheduler.submit(_app(_role("sleep", "1")), {})
    daemon.kill()
    daemon.start()
    deadline = time.monotonic() + 60
    while (found := scheduler.describe(app_id)) and found.state is not AppState.SUCCEEDED:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    assert found
