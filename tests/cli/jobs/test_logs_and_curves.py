"""Output and curve of a job over the API and the command line: merged by time, searched, with times; by attempt."""

import http.client
import json
import re
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cli.conftest import Gantree
from gantree.model.errors import BadFields, BadInput, NotFound
from support.daemon import Daemon

CLUSTER = """
name: one
tiers: [node]
machines: {m4: {gpus: 4, gpu: H100-80GB}}
nodes: [{names: n0, machine: m4}]
"""
SCRIPT = "printf 'a%s\\nb%s\\nno end%s' $RANK $RANK $RANK"
LEARN = """
import sys
from gantree import training
first = 2 * training.rendezvous().restarts
for step in range(first, first + 4):
    training.progress(step, loss=4.0 - step)
sys.exit(0 if first else 3)
"""
STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon on which the job `said` of three ranks has run, and `learns`, which failed once and redid two steps."""
    state = tmp_path_factory.mktemp("logs") / "state"
    role = {"role": "w", "members": 1, "processes": 3, "each": {"gpus": 3}}
    role["run"] = ["sh", "-c", SCRIPT]
    learn = {"role": "w", "members": 1, "each": {"gpus": 1}, "run": [sys.executable, "-c", LEARN]}
    learns = {"name": "learns", "gang": [learn], "restarts": {"limit": 1, "backoff": "0s"}}
    with Daemon(state, CLUSTER, pages=True) as running:
        running.client.submit(json.dumps(learns), "learns.yaml")
        running.client.submit(json.dumps({"name": "said", "gang": [role]}), "said.yaml")
        running.wait("said")
        running.wait("learns")
        yield running


def output(daemon: Daemon, **options: Any) -> list[str]:
    return b"".join(daemon.client.logs("said", **options)).decode().splitlines()


def test_some_ranks_some_lines_and_times(daemon: Daemon) -> None:
    assert sorted(output(daemon, ranks="0,2", tail=1)) == ["[0] no end0", "[2] no end2"]
    assert output(daemon, grep="^[ab][12]$", ranks="1") == ["[1] a1", "[1] b1"]
    assert output(daemon, rank=2, grep="END|no") == ["no end2"]
    assert output(daemon, rank=0) == ["a0", "b0", "no end0"]
    assert sorted(output(daemon, since=0, grep="a")) == ["[0] a0", "[1] a1", "[2] a2"]
    assert output(daemon, since=1e10) == []
    (line,) = output(daemon, rank=1, grep="b", timestamps=True)
    assert re.fullmatch(f"{STAMP} b1", line)


def test_rows_say_where_their_bytes_are(daemon: Daemon) -> None:
    rows = list(daemon.client.log_pieces("said", ranks="1"))
    assert "".join(row["text"] for row in rows) == "a1\nb1\nno end1"
    assert [rows[0]["start"], rows[-1]["end"]] == [0, len("a1\nb1\nno end1")]
    assert {(row["attempt"], row["rank"]) for row in rows} == {(1, 1)}
    submitted = daemon.client.job("said")["submitted_at"]
    assert all(row["at"] > submitted for row in rows)


def test_what_cannot_be_given_is_refused(daemon: Daemon) -> None:
    with pytest.raises(NotFound, match="no rank 7"):
        output(daemon, ranks="0-7")
    with pytest.raises(BadFields, match="either rank or ranks"):
        output(daemon, ranks="0", rank=0)
    with pytest.raises(BadFields, match=r"grep.*regular expression of RE2"):
        output(daemon, grep="(")
    with pytest.raises(BadFields, match="since"):
        output(daemon, since=-1)


def test_the_command_prints_the_same(
    daemon: Daemon, gantree: Gantree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANTREE_STATE", str(daemon.state_dir))
    done = gantree("logs", "said", "--ranks", "1", "--grep", "a", "-t", "--since", "1h")
    assert re.fullmatch(rf"\[1\] {STAMP} a1\n", done.out)
    rows = gantree("logs", "said", "--rank", "2", "--json", "-f").out.splitlines()
    assert [json.loads(row)["line"] for row in rows] == ["a2", "b2", "no end2"]
    assert gantree("logs", "said", "-f", "--rank", "1").out == "a1\nb1\nno end1"
    late = gantree("logs", "said", "--since", "2099-01-01T00:00")
    assert (late.code, late.out) == (0, "")
    wrong = gantree("logs", "said", "--since", "soon")
    assert (wrong.code, "--since: found 'soon'" in wrong.err) == (2, True)
    both = gantree("logs", "said", "--rank", "1", "--ranks", "1")
    assert (both.code, "only one of them" in both.err) == (2, True)


def test_the_curve_of_a_job_has_the_reports_of_each_attempt(
    daemon: Daemon,
    gantree: Gantree,
    complaints: Callable[[Any, str], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GANTREE_STATE", str(daemon.state_dir))
    told = gantree("curve", "learns", "--json").json()
    assert complaints(told, "curve") == []
    steps = [
        (each["attempt"], [(point["step"], point["loss"]) for point in each["points"]])
        for each in told["attempts"]
    ]
    assert steps == [(1, [(0, 4.0), (3, 1.0)]), (2, [(2, 2.0), (5, -1.0)])]
    only = daemon.client.curve("learns", attempt=2)
    assert only["attempts"] == told["attempts"][1:]
    drawn = gantree("curve", "learns").out.splitlines()
    assert "4 to 1" in drawn[1]
    assert drawn[2].startswith("2")
    rows = gantree("curve", "learns", "--csv").out.splitlines()
    assert (rows[0], len(rows)) == ("attempt,step,loss,samples_per_s,step_s,at", 5)
    assert "has reported nothing" in gantree("curve", "said").out
    page = page_of(daemon, "/jobs/learns")
    assert page.count("<polyline") == 2
    assert "Loss from 2 to -1, steps 2 to 5; 2 attempts" in page


def test_a_forecast_says_where_a_job_would_start_or_why_not_and_takes_nothing(
    daemon: Daemon,
) -> None:
    def asked(members: int, **more: object) -> Any:
        role = {"role": "w", "members": members, "each": {"gpus": 4}, "run": ["true"]}
        return daemon.client.forecast(json.dumps({"name": "new", "gang": [role], **more}))

    before = daemon.client.jobs()
    now = asked(1)
    assert (now["job"], now["forecast"]["now"]) == ("new", True)
    assert now["forecast"]["place"]["nodes"] == ["n0"]
    never = asked(2)["forecast"]
    assert (never["now"], never["start"], never["refused"]["never"]) == (False, None, True)
    assert never["sentence"]
    with pytest.raises(BadFields, match="members"):
        asked(0)
    with pytest.raises(BadInput, match="nothing-like-it"):
        asked(1, priority="nothing-like-it")
    assert daemon.client.jobs() == before


def page_of(daemon: Daemon, path: str) -> str:
    """What the daemon shows there, over its socket."""
    line = http.client.HTTPConnection("gantree")
    line.sock = socket.socket(socket.AF_UNIX)
    line.sock.connect(str(daemon.state_dir / "gantree.sock"))
    line.request("GET", path)
    return line.getresponse().read().decode()
