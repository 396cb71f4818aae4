"""A real daemon for the tests of all plug-ins: `gantree up` in a process of its own, on virtual nodes of this machine.

GANTREE_EXECUTABLE names the command; each plug-in is tested in an environment of its own, without the scheduler.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gantree_client import ENDED, ApiError, Client, Rejected

CLUSTER = """
name: plug-ins
tiers: [node]
machines:
  m4: {gpus: 4, gpu: H100-80GB, cpus: 64, memory_GiB: 256}
nodes:
  - {names: "n[0-1]", machine: m4}
"""
POLICY = "preset: gantree\nevictions: {grace: 5s, restart: 1s}\n"
READY_WITHIN_S = 120.0


class Daemon:
    """A daemon that can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.state_dir = folder / "state"
        self.state_dir.mkdir(mode=0o700, parents=True)
        self._files = [folder / "cluster.yaml", folder / "policy.yaml"]
        for path, text in zip(self._files, (CLUSTER, POLICY), strict=True):
            path.write_text(text)
        self._output = folder / "daemon.out"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def client(self) -> Client:
        """A client of its own."""
        return Client(self.state_dir)

    def start(self) -> None:
        """Start it and wait until it answers."""
        gantree = os.environ.get("GANTREE_EXECUTABLE") or shutil.which("gantree")
        assert gantree, "GANTREE_EXECUTABLE names no command: make integrations sets it"
        cluster, policy = self._files
        command = [
            gantree,
            "up",
            "--state",
            self.state_dir,
            "--cluster",
            cluster,
            "--policy",
            policy,
        ]
        variables = {
            name: value for name, value in os.environ.items() if not name.startswith("GANTREE_")
        }
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                command, stdout=output, stderr=output, env=variables, start_new_session=True
            )
        self._await()

    def _await(self) -> None:
        deadline = time.monotonic() + READY_WITHIN_S
        while True:
            try:
                list(self.client.jobs(since=time.time()))
            except ApiError:
                assert self._process is not None
                assert self._process.poll() is None, self._output.read_text()
                assert time.monotonic() < deadline, self._output.read_text()
                time.sleep(0.05)
            else:
                return

    def kill(self) -> None:
        """kill -9, at once; its jobs go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """Cancel every job, so that no process outlives the tests, and stop it."""
        assert self._process is not None
        if self._process.poll() is not None:
            self.start()
        client = self.client
        rows = [row for row in client.jobs() if row["phase"] not in ENDED]
        for row in sorted(rows, key=lambda row: row["phase"] != "pending"):
            client.cancel(row["job"])
        for row in rows:
            client.wait(row["job"], within_s=60)
        self._process.terminate()
        self._process.wait()


@pytest.fixture(scope="session")
def _daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path_factory.mktemp("daemon"))
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.stop()


@pytest.fixture
def daemon(_daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> Daemon:
    """The daemon of this run, to which the environment points."""
    for name in ("GANTREE_SERVER", "GANTREE_TOKEN", "GANTREE_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GANTREE_STATE", str(_daemon.state_dir))
    return _daemon


@pytest.fixture
def client(daemon: Daemon) -> Client:
    """A client of that daemon."""
    return daemon.client


def until(client: Client, job: str, phase: str, within_s: float = 60.0) -> None:
    """Wait until a job has a phase."""
    deadline = time.monotonic() + within_s
    while (row := client.job(job))["phase"] != phase:
        assert time.monotonic() < deadline, row
        time.sleep(0.05)


__all__ = ["Daemon", "Rejected", "until"]
