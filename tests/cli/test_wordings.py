"""Sentences that sent users the wrong way, each as it must read now."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.conftest import Gantree, JobFile
from support.daemon import Daemon

CLUSTER = """
name: one
tiers: [node]
machines: {m4: {gpus: 4, gpu: H100-80GB}}
nodes: [{names: n0, machine: m4}]
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon that answers over TCP, too."""
    state = tmp_path_factory.mktemp("daemon") / "state"
    with Daemon(state, CLUSTER, listen="127.0.0.1:0") as running:
        yield running


def test_a_shortage_of_millions_is_written_in_full(
    gantree: Gantree, cluster_file: Path, job_file: JobFile
) -> None:
    told = gantree("place", cluster_file, job_file("huge", 999_999, 4)).out
    assert "short by: 3,999,980 gpus" in told


def test_a_number_in_quotes_is_shown_with_them(
    gantree: Gantree, cluster_file: Path, tmp_path: Path
) -> None:
    file = tmp_path / "quoted.yaml"
    role = '{role: w, members: "2", each: {gpus: 1, cpus: "0.5"}, run: [true]}'
    file.write_text(f"name: quoted\ngang:\n  - {role}\n")
    told = gantree("place", cluster_file, file).err
    assert 'members: found `"2"`; allowed: a whole number of 1 or more' in told
    assert 'cpus: found `"0.5"`' in told
    assert told.count("without quotes") == 2


def test_who_lacks_a_token_is_told_where_it_is_looked_for(
    daemon: Daemon, gantree: Gantree, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GANTREE_STATE", "GANTREE_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    for token in ("", "wrong"):
        monkeypatch.setenv("GANTREE_TOKEN", token)
        told = gantree("--server", daemon.url, "jobs")
        assert told.code == 1
        assert "GANTREE_TOKEN" in told.err
        assert "GANTREE_TOKEN_FILE" in told.err


def test_a_token_with_something_beside_it_is_refused_and_not_shown(
    daemon: Daemon, gantree: Gantree, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("GANTREE_STATE", raising=False)
    file = tmp_path / "token"
    file.write_text("gantree_abc\ntoken 1 of ann\n")
    for name, value in (("GANTREE_TOKEN", file.read_text()), ("GANTREE_TOKEN_FILE", str(file))):
        monkeypatch.delenv("GANTREE_TOKEN", raising=False)
        monkeypatch.setenv(name, value)
        told = gantree("--server", daemon.url, "jobs")
        assert told.code == 2
        assert f"{name}: " in told.err
        assert "allowed: the token alone, in one line" in told.err
        assert "gantree_abc" not in told.err


def test_a_suspended_job_is_told_how_to_resume(
    daemon: Daemon, gantree: Gantree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANTREE_STATE", str(daemon.state_dir))
    role = {"role": "worker", "members": 1, "each": {"gpus": 1}, "run": ["sleep", "600"]}
    text = json.dumps({"name": "paused", "gang": [role]})
    job = daemon.client.submit(text, "job.yaml")["jobs"][0]["job"]
    daemon.wait(job, until="running")
    daemon.client.suspend(job)
    while daemon.client.job(job)["phase"] != "pending":
        time.sleep(0.02)
    assert f"`gantree resume {job}` resumes it" in gantree("why", job).out
    daemon.client.cancel(job)


def test_a_state_that_is_a_file_is_named(gantree: Gantree, tmp_path: Path) -> None:
    file = tmp_path / "state"
    file.write_text("")
    told = gantree("up", "--state", file)
    assert told.err == f"gantree: {file} cannot be a state directory: it is a file\n"
