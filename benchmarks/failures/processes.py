"""The processes of a run that are killed and started again: etcd, kube-apiserver, and gantree."""

import os
import signal
import subprocess
import sys
from pathlib import Path


class Restartable:
    """A command that is started again whenever it was killed. exits: how often it ended by itself."""

    def __init__(self, command: list[str], log: Path) -> None:
        self.command, self._log = command, log
        self._process: subprocess.Popen[bytes] | None = None
        self.exits: list[str] = []

    def start(self) -> None:
        """Start it."""
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(self.command, stdout=output, stderr=output)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def revive(self) -> None:
        """Start it again if it has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            self.exits.append(self._log.read_text(errors="replace")[-500:])
            self.start()

    def stop(self) -> None:
        """End it for good."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()


def taken_over(name: str, place: Path) -> Restartable:
    """A running process by its program and the directory that it has its files in; it may be killed from now on."""
    for each in Path("/proc").iterdir():
        words = _command(each) if each.name.isdigit() else []
        if words and Path(words[0]).name == name and any(str(place) in word for word in words):
            return _Adopted(words, place / f"{name}-again.log", int(each.name))
    raise SystemExit(f"no {name} has its files in {place}")


class _Adopted(Restartable):
    """One that somebody else has started, until it is killed."""

    def __init__(self, command: list[str], log: Path, pid: int) -> None:
        super().__init__(command, log)
        self._pid = pid

    def kill(self) -> None:
        """The first time by its id."""
        if self._process is None:
            os.kill(self._pid, signal.SIGKILL)
        super().kill()


def _command(process: Path) -> list[str]:
    try:
        return (process / "cmdline").read_text().split("\0")[:-1]
    except OSError:
        return []


def gantree(place: Path, config: Path, policy: Path) -> Restartable:
    """gantree with a journal of its own, and a Lease."""
    command = [
        sys.executable, "-m", "gantree", "kubernetes", "schedule", f"--kubeconfig={config}",
        f"--policy={policy}", f"--state={place / 'state'}", "--name=g0",
    ]  # fmt: skip
    return Restartable(command, place / "gantree.log")
