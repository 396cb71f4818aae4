"""Which of the caller's variables reach a job: the same for `run` and `submit`, as with `sbatch --export`."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.conftest import Gantree
from support.daemon import Daemon

CLUSTER = """
name: one
tiers: [node]
machines: {m4: {gpus: 4, gpu: H100-80GB}}
nodes: [{names: n0, machine: m4}]
"""
SHOW = ["/bin/sh", "-c", 'echo "$PATH|$MINE|$OTHER|$GANTREE_JOB"']
CASES = [
    ([], "/mine/bin:/usr/bin:/bin||"),
    (["--export", "ALL"], "/mine/bin:/usr/bin:/bin|1|two words"),
    (["--export", "NONE"], "DAEMON||"),
    (["--export", "MINE,OTHER=x"], "/mine/bin:/usr/bin:/bin|1|x"),
    (["--export", "NONE,MINE"], "DAEMON|1|"),
    (["--export", "ALL,MINE=7"], "/mine/bin:/usr/bin:/bin|7|two words"),
    (["--env", "OTHER=a,b"], "/mine/bin:/usr/bin:/bin||a,b"),
    (["--env-file", "FILE"], "/mine/bin:/usr/bin:/bin|from file|two words"),
    (["--env-file", "FILE", "--export", "NONE,MINE=9"], "DAEMON|9|two words"),
]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One daemon for all tests of this file."""
    with Daemon(tmp_path_factory.mktemp("daemon") / "state", CLUSTER) as running:
        yield running


@pytest.fixture(autouse=True)
def _caller(daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller's environment; the daemon was forked from another."""
    monkeypatch.setenv("GANTREE_STATE", str(daemon.state_dir))
    monkeypatch.setenv("PATH", "/mine/bin:/usr/bin:/bin")
    monkeypatch.setenv("MINE", "1")
    monkeypatch.setenv("OTHER", "two words")
    monkeypatch.setenv("GANTREE_JOB", "of-the-caller")
    (tmp_path / "FILE").write_text("# of the team\nMINE=from file\n\nOTHER\n")
    monkeypatch.chdir(tmp_path)


def submitted(daemon: Daemon, gantree: Gantree, *words: object) -> str:
    """What a job that is handed in prints."""
    outcome = gantree("submit", *words)
    assert outcome.code == 0, outcome.err
    daemon.wait(outcome.out.strip())
    return gantree("logs", outcome.out.strip(), "--rank", 0).out.strip()


def job_of(path: Path, **fields: object) -> Path:
    """A job file of one process that shows its variables."""
    role = {"role": "worker", "members": 1, "each": {"gpus": 0}, "run": SHOW, **fields}
    file = path / "show.yaml"
    file.write_text(json.dumps({"name": "show", "gang": [role]}))
    return file


def told_by_daemon(daemon: Daemon) -> str:
    """The PATH of the daemon, which jobs have where nothing is passed on."""
    environ = Path(f"/proc/{daemon.process.pid}/environ").read_text().split("\0")
    return next(entry.removeprefix("PATH=") for entry in environ if entry.startswith("PATH="))


@pytest.mark.parametrize(("options", "told"), CASES)
def test_run_and_submit_pass_on_the_same(
    daemon: Daemon, gantree: Gantree, tmp_path: Path, options: list[str], told: str
) -> None:
    expected = told.replace("DAEMON", told_by_daemon(daemon))
    assert gantree("run", *options, "--name", "show", "--", *SHOW).out.startswith(
        f"{expected}|show"
    )
    assert submitted(daemon, gantree, *options, job_of(tmp_path)).startswith(f"{expected}|show")


def test_what_a_job_file_says_yields_to_named_variables_alone(
    daemon: Daemon, gantree: Gantree, tmp_path: Path
) -> None:
    file = job_of(tmp_path, env={"PATH": "/file/bin", "MINE": "of the file"})
    assert submitted(daemon, gantree, "--export=ALL", file).startswith("/file/bin|of the file|two")
    assert submitted(daemon, gantree, "--export=MINE", file).startswith("/file/bin|1||")


def test_a_script_says_itself_what_it_wants_unless_the_command_line_does(
    daemon: Daemon, gantree: Gantree, tmp_path: Path
) -> None:
    script = tmp_path / "show.sh"
    script.write_text(f"#!/bin/sh\n#SBATCH --export=ALL,OTHER=own\n{SHOW[2]}\n")
    script.chmod(0o755)
    assert submitted(daemon, gantree, script).startswith("/mine/bin:/usr/bin:/bin|1|own|show")
    assert gantree("run", script).out.startswith("/mine/bin:/usr/bin:/bin|1|own|show")
    named = ("--export", "OTHER=line")
    assert submitted(daemon, gantree, *named, script).startswith("/mine/bin:/usr/bin:/bin|1|line")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--export", "MISSING"], "--export MISSING"),
        (["--env", "=x"], "--env =x"),
        (["--env-file", "BAD"], "BAD:2: MISSING"),
        (["--env-file", "nowhere"], "nowhere: no such file"),
    ],
)
def test_variables_that_cannot_be_passed_on_are_bad_input(
    gantree: Gantree, tmp_path: Path, options: list[str], told: str
) -> None:
    (tmp_path / "BAD").write_text("A=1\nMISSING\n")
    for command in (["submit", *options, job_of(tmp_path)], ["run", *options, "--", "true"]):
        outcome = gantree(*command)
        assert (outcome.code, outcome.out) == (2, "")
        assert told in outcome.err
