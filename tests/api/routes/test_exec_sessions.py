"""`gantree attach` against a real daemon: over its socket and over TCP, on pipes and on a terminal, and ports."""

import os
import pty
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gantree.api.client.client import Client
from gantree.api.client.exec_session import open_exec_session
from gantree.model.errors import Conflict, Unauthenticated, Unreachable
from support.daemon import Daemon
from support.gangs import left_over

CLUSTER = """
name: one
tiers: [node]
machines: {m4: {gpus: 4, gpu: H100-80GB}}
nodes: [{names: n0, machine: m4}]
"""
SERVES = f"{sys.executable} -m http.server 0 --bind 127.0.0.1"
JOB = f"""
name: notebook
gang:
  - {{role: w, members: 1, each: {{gpus: 2}}, env: {{MINE: mine, PYTHONUNBUFFERED: "1"}}, run: [sh, -c, "{SERVES}"]}}
"""
WARNED = """
name: {name}
time_limit: 1h
warn: {{signal: SIGUSR1, before: {before}}}
gang:
  - role: w
    members: 1
    each: {{gpus: 1}}
    run: [sh, -c, "trap 'echo warned' USR1; echo up; while :; do sleep 0.1; done"]
"""
OF_THE_JOB = 2
"""Processes: the shell and what it serves with, which may be one."""
UP = ("sh", "-c", "trap '' TERM HUP; setsid sleep 61 & echo up; sleep 61")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    state = tmp_path_factory.mktemp("attach") / "state"
    with Daemon(state, CLUSTER, listen="127.0.0.1:0") as daemon:
        daemon.client.submit(JOB)
        daemon.client.submit(WARNED.format(name="early", before="59m59s"))
        daemon.wait("notebook", until="running")
        yield daemon


def environment(daemon: Daemon, *, over_tcp: bool = False) -> dict[str, str]:
    token = (daemon.state_dir / "token").read_text().strip()
    where = {"GANTREE_SERVER": daemon.url, "GANTREE_TOKEN": token}
    return {**os.environ, **(where if over_tcp else {"GANTREE_STATE": str(daemon.state_dir)})}


def words(*more: str) -> list[str]:
    return [sys.executable, "-m", "gantree.cli", "attach", "notebook", *more]


@pytest.mark.parametrize("over_tcp", [False, True])
def test_a_command_beside_a_job_gets_input_and_gives_output_and_status(
    daemon: Daemon, *, over_tcp: bool
) -> None:
    script = "echo $RANK $MINE $CUDA_VISIBLE_DEVICES; echo bad >&2; cat; exit 7"
    done = subprocess.run(
        words("--", "sh", "-c", script),
        env=environment(daemon, over_tcp=over_tcp),
        input=b"typed\n" * 50_000,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (7, b"bad\n")
    assert done.stdout == b"0 mine 0,1\n" + b"typed\n" * 50_000
    assert daemon.client.job("notebook")["phase"] == "running"


def test_at_a_terminal_keys_go_to_the_command_and_its_status_comes_back(daemon: Daemon) -> None:
    script = "trap 'exit 4' INT; tty; while :; do sleep 0.02; done"
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(sys.executable, words("--", "sh", "-c", script), environment(daemon))
    said = b""
    while b"/dev/pts/" not in said:
        said += os.read(terminal, 1000)
    os.write(terminal, b"\x03")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 4
    os.close(terminal)


def test_a_port_of_the_job_answers_on_this_machine(daemon: Daemon) -> None:
    log = b"".join(daemon.client.logs("notebook", rank=0)).decode()
    while not (found := re.search(r"port (\d+)", log)):
        log = b"".join(daemon.client.logs("notebook", rank=0)).decode()
    with socket.create_server(("127.0.0.1", 0)) as looked_for:
        local = looked_for.getsockname()[1]
    forward = subprocess.Popen(
        words("--port", f"{found[1]}:{local}"),
        env=environment(daemon, over_tcp=True),
        stderr=subprocess.PIPE,
    )
    assert forward.stderr is not None
    assert f"forwarding 127.0.0.1:{local} to port {found[1]} " in forward.stderr.readline().decode()
    for _ in range(2):
        with urllib.request.urlopen(f"http://127.0.0.1:{local}/", timeout=300) as page:
            assert page.status == 200 and b"<html" in page.read()
    forward.send_signal(signal.SIGINT)
    assert forward.wait(timeout=300) == 0
    forward.stderr.close()


def test_refusals_come_as_the_errors_that_they_are(daemon: Daemon) -> None:
    with pytest.raises(Unauthenticated):
        open_exec_session(Client(daemon.url, "nonsense").target, "notebook", {})
    with pytest.raises(Conflict, match="no process of this member listens at port 1"):
        list(open_exec_session(daemon.client.target, "notebook", {"port": 1}).receive())
    done = subprocess.run(words("--port", "0"), capture_output=True, check=False)
    assert (done.returncode, b"allowed: a port" in done.stderr) == (2, True)


def test_a_slow_reader_does_not_grow_the_daemon(daemon: Daemon) -> None:
    before_KiB = held_KiB(daemon.process.pid)
    slow = [
        open_exec_session(daemon.client.target, "notebook", {"command": ["cat", "/dev/zero"]})
        for _ in range(3)
    ]
    read = sum(len(payload) for _, (_, payload) in zip(range(50), slow[0].receive(), strict=False))
    assert read > 0
    time.sleep(0.5)
    assert held_KiB(daemon.process.pid) - before_KiB < 20_000
    assert daemon.client.health()["pid"] == daemon.process.pid
    for each in slow:
        each.connection.socket.shutdown(socket.SHUT_RDWR)
        each.connection.socket.close()


def held_KiB(pid: int) -> int:
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0])


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_daemons_death_ends_what_was_attached_and_not_the_job_nor_its_warning(
    daemon: Daemon,
) -> None:
    until(lambda: len(left_over(daemon.state_dir / "runs" / "notebook")) <= OF_THE_JOB)
    guest = open_exec_session(daemon.client.target, "notebook", {"command": list(UP)})
    output = guest.receive()
    assert next(output) == (b"o", b"up\n")
    ended: list[Exception] = []

    def wait_for_end() -> None:
        try:
            list(output)
        except Unreachable as error:
            ended.append(error)

    waiting = threading.Thread(target=wait_for_end)
    waiting.start()
    until_warned(daemon, "early")
    daemon.client.submit(WARNED.format(name="late", before="59m57s"))
    assert next(daemon.client.logs("late", follow=True))
    daemon.kill()
    waiting.join(timeout=300)
    assert ended
    until(lambda: len(left_over(daemon.state_dir / "runs" / "notebook")) <= OF_THE_JOB)
    daemon.start()
    detail = daemon.client.job("notebook")
    assert (detail["phase"], detail["attempt"]) == ("running", 1)
    until_warned(daemon, "late")
    for job in ("early", "late"):
        daemon.client.cancel(job)
        daemon.wait(job)
        assert b"".join(daemon.client.logs(job, rank=0)) == b"up\nwarned\n"
    warned = [fact["data"]["job"] for fact in daemon.client.facts() if fact["fact"] == "GangWarned"]
    assert warned == ["early", "late"]


def until_warned(daemon: Daemon, job: str) -> None:
    """Follow its output as far as to the warning, which comes before its time limit."""
    seen = b""
    for chunk in daemon.client.logs(job, rank=0, follow=True):
        seen += chunk
        if b"warned" in seen:
            return


def test_cancelling_the_job_ends_what_was_attached(daemon: Daemon) -> None:
    guest = open_exec_session(daemon.client.target, "notebook", {"command": list(UP)})
    output = guest.receive()
    assert next(output) == (b"o", b"up\n")
    daemon.client.cancel("notebook")
    with pytest.raises(Conflict, match="over, or is being stopped"):
        list(output)
    assert daemon.wait("notebook")["phase"] == "cancelled"
    assert left_over(daemon.state_dir / "runs" / "notebook") == []
    with pytest.raises(Conflict, match="notebook is cancelled"):
        list(open_exec_session(daemon.client.target, "notebook", {}).receive())
