"""What a job that cannot start says: in `why`, `jobs`, its page and its logs, from its first failure on."""

import http.client
import json
import socket
import time
from collections.abc import Iterator

import pytest

from cli.conftest import Gantree
from support.daemon import Daemon

CLUSTER = """
name: one
tiers: [node]
machines: {m4: {gpus: 4, gpu: H100-80GB}}
nodes: [{names: n0, machine: m4}]
"""
NO_FOLDER = "could not enter its working directory /no/such/folder: No such file or directory"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One daemon for all tests of this file; each uses job names of its own."""
    state = tmp_path_factory.mktemp("daemon") / "state"
    with Daemon(state, CLUSTER, pages=True) as running:
        yield running


@pytest.fixture(autouse=True)
def _state(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANTREE_STATE", str(daemon.state_dir))


def submitted(daemon: Daemon, name: str, **fields: object) -> str:
    """A job of one process that is handed in."""
    role = {"role": "worker", "members": 1, "each": {"gpus": 1}, "run": ["true"], **fields}
    text = json.dumps({"name": name, "gang": [role]})
    job: str = daemon.client.submit(text, "job.yaml")["jobs"][0]["job"]
    return job


def page_of(daemon: Daemon, path: str) -> str:
    """What the daemon shows there, over its socket."""
    line = http.client.HTTPConnection("gantree")
    line.sock = socket.socket(socket.AF_UNIX)
    line.sock.connect(str(daemon.state_dir / "gantree.sock"))
    line.request("GET", path)
    return line.getresponse().read().decode()


def failed_once(daemon: Daemon, name: str) -> str:
    """A job that waits for its second attempt, because its working directory is not there."""
    job = submitted(daemon, name, workdir="/no/such/folder")
    while daemon.client.job(job)["failures"] == 0:
        time.sleep(0.02)
    return job


def test_the_last_failure_of_a_start_stands_wherever_one_looks(
    daemon: Daemon, gantree: Gantree
) -> None:
    job = failed_once(daemon, "lost-folder")
    assert NO_FOLDER in daemon.client.job(job)["last_failure"]
    assert NO_FOLDER in gantree("why", job).out
    assert NO_FOLDER in gantree("jobs").out
    assert NO_FOLDER in gantree("logs", job).out
    assert NO_FOLDER in page_of(daemon, f"/jobs/{job}")
    assert NO_FOLDER in page_of(daemon, "/queue")
    daemon.client.hold(job)
    assert NO_FOLDER in gantree("why", job).out
    daemon.client.cancel(job)


@pytest.mark.parametrize("command", ["no-such-command", "/etc/passwd", "/etc/passwd/below"])
def test_a_command_that_does_not_exist_is_not_tried_again(
    daemon: Daemon, gantree: Gantree, command: str
) -> None:
    ended = daemon.wait(submitted(daemon, "no-command", run=[command]))
    sentence = f"rank 0 on node n0 could not run the command '{command}'"
    assert (ended["phase"], ended["attempt"]) == ("failed", 1)
    assert sentence in str(ended["reason"])
    assert f"could not run the command '{command}'" in gantree("logs", str(ended["job"])).out
