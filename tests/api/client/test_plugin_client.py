"""The client that plug-ins of other tools share, on a real daemon: no change of the API may break it unnoticed."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gantree_client import ApiError, Client, Rejected, Unreachable, exported, job_name
from support.daemon import Daemon

CLUSTER = """
name: plug-ins
tiers: [node]
machines: {m: {gpus: 0, cpus: 64}}
nodes: [{names: n0, machine: m}]
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("state"), CLUSTER, listen="127.0.0.1:0") as daemon:
        yield daemon


@pytest.fixture
def client(daemon: Daemon) -> Client:
    return Client(daemon.state_dir)


def _job(command: str, **fields: Any) -> dict[str, Any]:
    role = {"role": "w", "members": 1, "run": ["/bin/sh", "-c", command]}
    return {"name": job_name("a job"), "gang": [role], "restarts": 0} | fields


def test_an_array_is_submitted_once_waited_for_and_read(client: Client) -> None:
    job = _job("echo $GANTREE_ARRAY_INDEX $GREETING; exit $GANTREE_ARRAY_INDEX", array="0-1")
    ids = [client.submit([job], default_env={"GREETING": "hi"}, key=job["name"]) for _ in range(2)]
    first, second = ids[0]
    assert ids == [[f"{job['name']}-0", f"{job['name']}-1"]] * 2
    rows = [client.wait(each, within_s=60) for each in (first, second)]
    assert [(row["phase"], row["exit_code"]) for row in rows] == [("succeeded", 0), ("failed", 1)]
    assert "".join(client.logs(second, rank=0)) == "1 hi\n"
    assert "".join(client.logs(second, follow=True)) == "[0] 1 hi\n"
    assert client.cancel(first) is False


def test_jobs_are_found_in_lists_and_one_by_one(client: Client) -> None:
    jobs = client.submit([_job("true") for _ in range(25)])
    for job in jobs:
        client.wait(job, within_s=60)
    assert set(client.rows([*jobs, "never-was"], since=0)) == set(jobs)
    assert set(client.rows([jobs[0], "never-was"], since=0)) == {jobs[0]}
    later = client.job(jobs[0])["submitted_at"] + 3600
    assert set(client.rows(jobs, since=later)) == set(jobs)


def test_a_waiting_job_says_why_and_is_cancelled(client: Client) -> None:
    (job,) = client.submit([_job("true", hold=True)])
    assert client.job(job, wait_s=0.1)["phase"] == "pending"
    assert "held" in client.why(job)
    assert client.cancel(job)


def test_errors_are_those_of_the_daemon_and_can_be_pickled(client: Client, daemon: Daemon) -> None:
    with pytest.raises(Rejected, match="there is no job") as caught:
        client.job("never-was")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.title, again.status, str(again)) == ("NotFound", 404, str(caught.value))
    with pytest.raises(Rejected, match=r"jobs\[0\].name"):
        client.submit([_job("true") | {"name": "a b"}])
    with pytest.raises(Rejected) as refused:
        Client(daemon.url).job("a")
    assert refused.value.status == 401


def test_of_several_addresses_the_one_that_answers_is_found(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANTREE_TOKEN", (daemon.state_dir / "token").read_text().strip())
    client = Client(f"http://127.0.0.1:9,{daemon.url}")
    (job,) = client.submit([_job("true")])
    assert pickle.loads(pickle.dumps(client)).wait(job, within_s=60)["phase"] == "succeeded"


@pytest.mark.parametrize("where", ["http://127.0.0.1:9", "/nowhere/at/all", "/" + "long/" * 40])
def test_a_daemon_that_never_answered_is_an_error_at_once(where: str) -> None:
    with pytest.raises(Unreachable, match="no daemon answers"):
        Client(where).job("a")


@pytest.mark.parametrize("where", ["ftp://head", "https://me:secret@head"])
def test_an_address_that_is_none_is_named(where: str) -> None:
    with pytest.raises(ApiError, match="allowed: a URL"):
        Client(where)


def test_a_long_path_of_a_state_directory_is_reached(daemon: Daemon, tmp_path: Path) -> None:
    link = tmp_path / ("l" * 120)
    link.symlink_to(daemon.state_dir)
    assert isinstance(list(Client(link).jobs()), list)


def test_what_a_job_gets_of_the_callers_environment() -> None:
    own = {"PATH": "/bin", "LANG": "C", "SECRET": "s", "RANK": "3", "SLURM_JOB_ID": "1"}
    assert exported(None, own) == {"PATH": "/bin", "LANG": "C"}
    assert exported("ALL", own) == {"PATH": "/bin", "LANG": "C", "SECRET": "s"}
    assert exported("NONE,SECRET,A=b", own) == {"SECRET": "s", "A": "b"}
    with pytest.raises(ApiError, match="found 'NO'"):
        exported("NO", own)


def test_names_are_new_short_and_allowed() -> None:
    names = {job_name("my täsk/" + "x" * 80, is_array=True) for _ in range(50)}
    assert len(names) == 50
    assert max(map(len, names)) <= 57
    assert job_name("???").startswith("job-")
