"""The commands that need a daemon, against a real one that runs real processes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from support.daemon import Daemon, Program

Gantree = Callable[..., Any]
Complaints = Callable[[Any, str], list[str]]
JobFile = Callable[..., Path]
CLUSTER = """
name: pair
tiers: [leaf, node]
machines: {m4: {gpus: 4, gpu: H100-80GB}}
nodes: [{names: "n[0-1]", machine: m4, at: {leaf: l0}}]
"""
READY_WITHIN_S = 300.0


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One daemon for all tests of this file; each uses job names of its own."""
    with Daemon(tmp_path_factory.mktemp("daemon") / "state", CLUSTER) as running:
        yield running


@pytest.fixture(autouse=True)
def _own_state(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANTREE_STATE", str(daemon.state_dir))


class Started:
    """A command line in a process of its own, its output in a file."""

    def __init__(self, log: Path, *words: object) -> None:
        self._log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "gantree.cli", *(str(word) for word in words)],
                stdout=output,
                stderr=output,
            )

    def wait_for(self, text: str) -> str:
        """Wait until it has printed a text; return all that it has."""
        deadline = time.monotonic() + READY_WITHIN_S
        while text not in (printed := self._log.read_text()):
            assert time.monotonic() < deadline, printed
            time.sleep(0.01)
        return printed

    def end(self) -> tuple[int, str]:
        """Exit status and output."""
        return self.process.wait(READY_WITHIN_S), self._log.read_text()


def test_submit_prints_the_ids_and_the_rest_follows(
    gantree: Gantree, daemon: Daemon, complaints: Complaints, job_file: JobFile
) -> None:
    assert (
        gantree("submit", job_file("first", 1, 1), job_file("second", 2, 1)).out
        == "first\nsecond\n"
    )
    again = gantree("submit", job_file("first", 1, 1), "--json").json()
    assert complaints(again, "submit") == []
    row = {"job": "first-2", "name": "first", "array": None}
    assert again == {"jobs": [row], "services": [], "warnings": []}
    for job in ("first", "second", "first-2"):
        daemon.wait(job)
    rows = gantree("jobs", "--all", "--json").json()
    assert complaints(rows, "jobs") == []
    assert {"first", "second", "first-2"} <= {row["job"] for row in rows["jobs"]}
    assert "first-2" not in gantree("jobs").out
    assert gantree("why", "second").out.startswith("Ended: succeeded")


def test_options_of_submit_replace_what_the_file_says(
    gantree: Gantree, daemon: Daemon, job_file: JobFile
) -> None:
    words = ("--name", "renamed", "--queue", "team/a", "--priority", "7")
    assert gantree("submit", job_file("original", 1, 0), *words).out == "renamed\n"
    row = daemon.client.job("renamed")
    assert (row["queue"], row["priority"]) == ("team/a", 7)


def test_a_refused_file_leaves_the_ones_before_it_handed_in_and_said(
    gantree: Gantree, job_file: JobFile, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("name: bad\ngang: [{role: w, member: 1}]\n")
    outcome = gantree("submit", job_file("good", 1, 0), bad)
    assert (outcome.code, outcome.out) == (2, "good\n")
    assert f"gantree: {bad}:2: " in outcome.err


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"priority": "urgnt"}, "priority: found `urgnt`; allowed: "),
        ({"after": ["nope"]}, "after: there is no job nope"),
        ({"topology": {"required": "laef"}}, "topology.required: "),
    ],
)
def test_what_the_daemon_finds_wrong_is_told_with_file_and_job(
    gantree: Gantree, job_file: JobFile, fields: dict[str, object], told: str
) -> None:
    file = job_file("wrong", 1, 0, **fields)
    outcome = gantree("submit", file)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(f"gantree: {file}: job wrong: {told}")


def test_jobs_of_a_file_that_wait_for_each_other_are_told_so(
    gantree: Gantree, job_file: JobFile
) -> None:
    a, b = job_file("a", 1, 0, after=["b"]), job_file("b", 1, 0, after=["a"])
    a.write_text(f"{a.read_text()}\n---\n{b.read_text()}")
    told = "job a: after: a and b wait for each other; remove one `after`"
    assert gantree("submit", a).err == f"gantree: {a}: {told}\n"


def test_a_job_that_can_never_start_is_taken_with_a_warning(
    gantree: Gantree, job_file: JobFile, complaints: Complaints
) -> None:
    outcome = gantree("submit", job_file("never", 1, 9))
    assert (outcome.code, outcome.out) == (0, "never\n")
    assert outcome.err.startswith("gantree: warning: never: ")
    told = gantree("why", "never", "--json").json()
    assert complaints(told, "why") == []
    assert (told["refused"]["gate"], told["refused"]["never"]) == ("SHAPE", True)
    lines = gantree("why", "never").out.splitlines()
    assert lines[:2] == [
        told["sentence"],
        "  gate: SHAPE (never fits, not even on the empty cluster)",
    ]
    cancelled = gantree("cancel", "never", "--json").json()
    assert complaints(cancelled, "cancel") == []
    assert cancelled == {"cancelled": ["never"]}


def test_an_unknown_job_does_not_save_the_others_from_being_cancelled(
    gantree: Gantree, daemon: Daemon, job_file: JobFile
) -> None:
    gantree("submit", job_file("doomed", 1, 9))
    outcome = gantree("cancel", "ghost", "doomed")
    assert (outcome.code, outcome.out) == (1, "doomed is being cancelled\n")
    assert outcome.err == "gantree: there is no job ghost\n"
    assert daemon.wait("doomed")["phase"] == "cancelled"
    assert gantree("cancel", "doomed").code == 1


def test_run_prints_the_output_of_all_ranks_and_ends_with_the_jobs_code(gantree: Gantree) -> None:
    script = "echo rank $RANK in $PWD; exit $(( RANK == 2 ? 7 : 0 ))"
    outcome = gantree(
        "run", "-n", 2, "--processes", 2, "--name", "codes", "--", "bash", "-c", script
    )
    assert outcome.code == 7
    assert f"[2] rank 2 in {Path.cwd()}" in outcome.out.splitlines()
    assert outcome.err == "gantree: codes failed: rank 2 ended with 7\n"


def test_run_of_one_process_prints_its_bytes_as_they_are(gantree: Gantree) -> None:
    outcome = gantree("run", "--gpus", 1, "--", "printf", "a\\nb")
    assert (outcome.code, outcome.out, outcome.err) == (0, "a\nb", "")


def test_run_passes_command_options_and_variables_on(gantree: Gantree) -> None:
    words = ("run", "--env", "GREETING=hi", "bash", "-c", 'echo "$GREETING $0 $*"', "-n", "--json")
    assert gantree(*words).out == "hi -n --json\n"


def test_a_time_limit_ends_run_with_124(gantree: Gantree) -> None:
    outcome = gantree("run", "--time-limit", "0.3s", "--name", "slow", "--", "sleep", "30")
    assert outcome.code == 124
    assert "slow timed-out" in outcome.err


def test_what_run_cannot_make_a_job_of_is_bad_input(gantree: Gantree) -> None:
    outcome = gantree("run", "--time-limit", "soon", "--", "true")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("gantree: the command line:")
    assert "time_limit" in outcome.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_of_run_cancels_the_job(
    daemon: Daemon, tmp_path: Path, number: signal.Signals
) -> None:
    name = f"interrupted-{number.name}"
    script = "trap 'echo bye; exit' TERM; echo up; while :; do sleep 0.02; done"
    run = Started(tmp_path / "log", "run", "--name", name, "--", "bash", "-c", script)
    run.wait_for("up\n")
    run.process.send_signal(number)
    code, printed = run.end()
    assert code == 130
    assert printed.startswith("up\n")
    assert "bye\n" in printed
    assert f"gantree: {name} cancelled" in printed
    assert daemon.client.job(name)["phase"] == "cancelled"


def test_an_interrupt_while_the_job_is_being_handed_in_cancels_it(
    daemon: Daemon, tmp_path: Path
) -> None:
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        run = Started(tmp_path / "log", "run", "--name", "early", "--", "sleep", "60")
        while not is_connected(run.process.pid):
            time.sleep(0.01)
        run.process.send_signal(signal.SIGINT)
        time.sleep(0.2)
    finally:
        daemon.process.send_signal(signal.SIGCONT)
    assert run.end()[0] == 130
    assert daemon.wait("early")["phase"] == "cancelled"


def is_connected(pid: int) -> bool:
    """Whether a process has a socket open."""
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since it was listed
            if str(link.readlink()).startswith("socket:"):
                return True
    return False


def test_the_second_interrupt_leaves_the_job(daemon: Daemon, tmp_path: Path) -> None:
    script = "trap '' TERM; echo up; sleep 1"
    run = Started(tmp_path / "log", "run", "--name", "stubborn", "--", "bash", "-c", script)
    run.wait_for("up\n")
    run.process.send_signal(signal.SIGINT)
    run.wait_for("cancelling stubborn")
    run.process.send_signal(signal.SIGINT)
    code, printed = run.end()
    assert code == 130
    assert "stubborn continues" in printed
    daemon.wait("stubborn")


def test_run_survives_the_death_of_the_daemon(daemon: Daemon, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    script = f"echo before; while [ ! -e {gate} ]; do sleep 0.02; done; echo after; exit 6"
    run = Started(
        tmp_path / "log", "run", "-n", 2, "--name", "survivor", "--", "bash", "-c", script
    )
    run.wait_for("[0] before\n")
    run.wait_for("[1] before\n")
    daemon.kill()
    run.wait_for("waiting for the daemon")
    gate.touch()
    daemon.start(with_cluster=False)
    code, printed = run.end()
    lines = printed.splitlines()
    assert code == 6
    assert [lines.count(f"[{rank}] before") for rank in (0, 1)] == [1, 1]
    assert "[0] after" in lines or "[1] after" in lines
    assert len(set(lines)) == len(lines)


def test_logs_come_whole_by_rank_or_as_json(
    gantree: Gantree, daemon: Daemon, complaints: Complaints
) -> None:
    gantree(
        "run", "-n", 2, "--name", "talk", "--", "bash", "-c", "echo one $RANK; echo [9] two $RANK"
    )
    whole = gantree("logs", "talk").out.splitlines()
    assert sorted(whole) == ["[0] [9] two 0", "[0] one 0", "[1] [9] two 1", "[1] one 1"]
    assert gantree("logs", "talk", "--rank", 1).out == "one 1\n[9] two 1\n"
    objects = [json.loads(line) for line in gantree("logs", "talk", "--json").out.splitlines()]
    assert [complaints(each, "logs") for each in objects] == [[]] * 4
    assert {(each["rank"], each["line"]) for each in objects} >= {(1, "[9] two 1")}
    only = gantree("logs", "talk", "--rank", 0, "--json").out.splitlines()
    assert [json.loads(line)["line"] for line in only] == ["one 0", "[9] two 0"]
    assert gantree("logs", "talk", "--rank", 2).code == 1


def test_a_tail_of_the_logs_has_the_last_lines_of_each_rank(gantree: Gantree) -> None:
    script = "for i in 1 2 3; do echo $i of $RANK; done"
    gantree("run", "-n", 2, "--name", "tail", "--", "bash", "-c", script)
    tail = gantree("logs", "tail", "--tail", 2).out.splitlines()
    assert sorted(tail) == ["[0] 2 of 0", "[0] 3 of 0", "[1] 2 of 1", "[1] 3 of 1"]
    assert gantree("logs", "tail", "-n", 1, "--rank", 1).out == "3 of 1\n"
    assert gantree("logs", "tail", "-n", 1, "--rank", 1, "--attempt", 1, "-f").out == "3 of 1\n"
    assert gantree("logs", "tail", "-n", 9, "--rank", 0).out == "1 of 0\n2 of 0\n3 of 0\n"
    assert gantree("logs", "tail", "--tail", 0).out == ""
    assert gantree("logs", "tail", "--tail", -1).code == 2


def test_the_daemons_cluster_is_drawn_with_its_jobs(
    gantree: Gantree, daemon: Daemon, complaints: Complaints, tmp_path: Path
) -> None:
    run = Started(tmp_path / "log", "run", "--gpus", 4, "--name", "holder", "--", "sleep", "60")
    deadline = time.monotonic() + READY_WITHIN_S
    while "holder" not in gantree("jobs").out:
        assert time.monotonic() < deadline
    daemon.wait("holder", until="running")
    answer = gantree("topo", "--json").json()
    assert complaints(answer, "topo") == []
    assert ["holder"] * 4 in [node["gpus"] for node in answer["nodes"]]
    assert "aaaa" in gantree("topo").out
    assert "running" in gantree("jobs").out
    run.process.send_signal(signal.SIGTERM)
    assert run.end()[0] == 130


def test_the_shell_completes_job_ids(gantree: Gantree, job_file: JobFile) -> None:
    gantree("submit", job_file("completes-me", 1, 0))
    asked = {
        "_GANTREE_COMPLETE": "complete_bash",
        "COMP_WORDS": "gantree why compl",
        "COMP_CWORD": "2",
    }
    done = gantree_in_a_process(env=asked)
    assert done.stdout.split() == ["completes-me"]
    elsewhere = gantree_in_a_process(env={**asked, "GANTREE_STATE": "/nowhere"})
    assert (elsewhere.stdout.split(), elsewhere.stderr) == ([], "")


def test_a_reader_that_goes_away_is_no_bug(daemon: Daemon) -> None:
    script = f"{sys.executable} -m gantree.cli jobs --all --json | head -c 1 >/dev/null; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr


def test_up_serves_a_virtual_cluster_and_ends_on_sigterm(gantree: Gantree, tmp_path: Path) -> None:
    state = tmp_path / "state"
    with Program("up", "--virtual", "dgx-a100:2", "--state", str(state)) as up:
        up.says(" ready: cluster virtual, 2 nodes, 16 GPUs")
        assert gantree("topo", "--state", state, "--json").json()["tiers"] == ["leaf", "node"]
        with Program("up", "--state", str(state)) as second:
            assert second.says("").startswith("gantree: ")
            assert second.process.wait(READY_WITHIN_S) == 1
        assert up.stop() == 0
    assert (state.stat().st_mode & 0o077) == 0


def gantree_in_a_process(
    *words: object, env: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run a command line to its end in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "gantree.cli", *(str(word) for word in words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=READY_WITHIN_S,
        env={**os.environ, **(env or {})},
    )


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--virtual", "dgx-h100"], 2, "MACHINE:COUNT"),
        (["--virtual", "dgx-h10:2"], 2, "dgx-h100"),
        (["--virtual", "dgx-h100:0"], 2, "MACHINE:COUNT"),
        (["--virtual", "dgx-h100:1", "--cluster", "c.yaml"], 2, "cannot be used with"),
        (["--cluster", "no-such.yaml"], 2, "no such file"),
        (["--policy", "gentree", "--virtual", "dgx-h100:1"], 2, "gentree"),
        (["--gpu-metrics", "file:///etc/passwd", "--virtual", "dgx-h100:1"], 2, "a URL without"),
    ],
)
def test_up_explains_what_it_cannot_serve(
    gantree: Gantree, tmp_path: Path, words: list[str], code: int, told: str
) -> None:
    outcome = gantree("up", "--state", tmp_path / "state", *words)
    assert (outcome.code, outcome.out) == (code, "")
    assert told in outcome.err
    assert not (tmp_path / "state").exists()
