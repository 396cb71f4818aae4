"""`gantree jobs` against a real daemon: which jobs, which columns, and again and again."""

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gantree.cli.jobs.job_columns import COLUMNS, DEFAULT
from gantree.cli.jobs.list import Selection, _lines
from gantree.cli.output.list_watch import ENTER_SCREEN, HOME, LEAVE_SCREEN
from support.daemon import Daemon

Gantree = Callable[..., Any]
WITHIN_S = 300.0
CLUSTER = """
name: one
tiers: [node]
machines: {m4: {gpus: 4, gpu: H100-80GB}}
nodes: [{names: n0, machine: m4}]
"""
POLICY = (
    "queues: [{name: research, queues: [{name: nlp}, {name: cv}]}, {name: product}, {name: idle}]"
)


def held(name: str, queue: str, user: str = "") -> dict[str, object]:
    gang = [{"role": "w", "members": 1, "each": {"gpus": 1}, "run": ["true"]}]
    return {"name": name, "queue": queue, "hold": True, "gang": gang, **({"user": user} if user else {})}  # fmt: skip


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("list") / "state", CLUSTER, POLICY) as running:
        jobs = [held("a", "research/cv", "ann"), held("b", "research/nlp"), held("c", "product")]
        running.client.submit(jobs=jobs, user="bob")
        running.client.submit(jobs=[held("gone", "product", "ann")])
        running.client.cancel("gone")
        running.wait("gone")
        yield running


@pytest.fixture(autouse=True)
def _own_state(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANTREE_STATE", str(daemon.state_dir))


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ("", "a b c"),
        ("--all", "a b c gone"),
        ("--queue research", "a b"),
        ("--queue research/nlp", "b"),
        ("--user bob", "b c"),
        ("--all --user ann", "a gone"),
        ("--phase cancelled", "gone"),
        ("--phase pending,cancelled --queue product", "c gone"),
        ("--phase pending --phase cancelled --queue product", "c gone"),
        ("--since 1h", "a b c"),
        ("--since 2020-01-01 --queue product", "c"),
    ],
)
def test_filters_choose_the_jobs(gantree: Gantree, options: str, names: str) -> None:
    rows = gantree("jobs", "--json", *options.split()).json()["jobs"]
    assert [row["job"] for row in rows] == names.split()
    table = gantree("jobs", "--columns", "job", *options.split()).out
    assert table.split() == ["JOB", *names.split()]


@pytest.mark.parametrize("options", ["--since 2999-01-01", "--queue idle", "--user nobody"])
def test_a_selection_without_jobs_is_a_sentence(gantree: Gantree, options: str) -> None:
    outcome = gantree("jobs", *options.split())
    assert (outcome.code, outcome.out) == (0, "No such jobs.\n")


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (["--queue", "reserch"], "`research`"),
        (["--phase", "runing"], "`running`"),
        (["--columns", "job,fase"], "`phase`"),
        (["--columns", ""], "allowed: job, name"),
        (["--since", "yesterday"], "7d"),
        (["--watch", "0"], "--watch"),
        (["--watch", "--json"], "/v1/events"),
        (["--columns", "job", "--json"], "all fields"),
    ],
)
def test_an_unknown_word_is_bad_input_with_a_suggestion(
    gantree: Gantree, options: list[str], hint: str
) -> None:
    outcome = gantree("jobs", *options)
    assert (outcome.code, outcome.out) == (2, "")
    assert hint in outcome.err


def test_all_columns_have_a_cell_for_every_job(gantree: Gantree) -> None:
    outcome = gantree("jobs", "--all", "--columns", ",".join(COLUMNS))
    head, *rows = outcome.out.splitlines()
    assert head.split() == [column.head for column in COLUMNS.values()]
    assert len(rows) == 4
    assert re.search(r"a +a +pending +research/cv +ann ", rows[0])


def test_the_docs_list_the_columns() -> None:
    page = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
    section = page.partition("### `gantree jobs`")[2].partition("\n### ")[0]
    listed = re.findall(r"^\| `([a-z][a-z-]*)` \|", section, flags=re.MULTILINE)
    assert listed == list(COLUMNS)
    assert f"`{','.join(DEFAULT)}`" in section


def test_words_of_jobs_do_not_steer_the_terminal(gantree: Gantree, daemon: Daemon) -> None:
    row: dict[str, Any] = daemon.client.jobs(name="a")[0]
    selection = Selection((), None, None, None, by_array=False)
    row["reason"] = "no such file: \x1b[2J\nb"
    lines = _lines(selection, [COLUMNS["reason"]], [row], False, 0.0)
    assert lines == ["REASON", "no such file: ?[2J?b"]


Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def started(daemon: Daemon) -> Iterator[Start]:
    """Start `gantree jobs` in a process of its own."""
    running: list[subprocess.Popen[bytes]] = []

    def start(*words: str, **how: Any) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "gantree.cli", "jobs", *words]
        running.append(subprocess.Popen(command, **how))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.wait()


def test_on_a_pipe_the_table_is_printed_at_each_change(started: Start, daemon: Daemon) -> None:
    words = ("--watch", "0.1", "--queue", "idle", "--all", "--columns", "job,phase")
    process = started(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"No such jobs.\n"
    daemon.client.submit(jobs=[held("new", "idle")])
    assert [process.stdout.readline() for _ in range(3)] == [
        b"\n", b"JOB  PHASE\n", b"new  pending\n",
    ]  # fmt: skip
    daemon.client.cancel("new")
    assert [process.stdout.readline() for _ in range(3)] == [
        b"\n", b"JOB  PHASE\n", b"new  cancelled\n",
    ]  # fmt: skip
    process.send_signal(signal.SIGINT)
    rest, complaint = process.communicate(timeout=WITHIN_S)
    assert (process.returncode, rest, complaint) == (130, b"", b"")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_on_a_terminal_it_is_redrawn_in_place_and_leaves_the_last_table(
    started: Start, number: signal.Signals, code: int
) -> None:
    ours, theirs = pty.openpty()
    process = started("--watch", "--columns", "job", stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    drawn = _read_until(ours, b"\nc")
    process.send_signal(number)
    drawn += _read_until(ours, None)
    assert process.wait(WITHIN_S) == code
    before, _, rest = drawn.partition(ENTER_SCREEN.encode())
    during, _, after = rest.partition(LEAVE_SCREEN.encode())
    assert (before, after.split()) == (b"", [b"JOB", b"a", b"b", b"c"])
    assert during.startswith(HOME.encode())


def _read_until(descriptor: int, mark: bytes | None) -> bytes:
    """What comes until it has a mark; None: until nobody writes any more."""
    read = b""
    while mark is None or mark not in read:
        try:
            chunk = os.read(descriptor, 4096)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        read += chunk
    return read


def test_a_watch_goes_on_when_the_daemon_is_back(
    tmp_path: Path, started: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Daemon(tmp_path / "state", CLUSTER) as other:
        monkeypatch.setenv("GANTREE_STATE", str(other.state_dir))
        process = started("--watch", "0.1", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"No pending")
        other.kill()
        assert b"waiting for a daemon" in process.stderr.readline()
        other.start()
        other.client.submit(jobs=[held("later", "default")])
        assert process.stdout.readline() == b"\n"
        assert process.stdout.readline().startswith(b"JOB")
        assert process.stdout.readline().startswith(b"later")
