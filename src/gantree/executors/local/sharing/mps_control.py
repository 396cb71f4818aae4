"""One MPS control daemon: started, asked and ended by NVIDIA's program, which takes commands on its standard input.

A control daemon belongs to one GPU and one Unix user, since a server serves the processes of one user only. It has a
folder of its own, with its sockets and, in `log`, what it and its server report. The program finds a control daemon by
CUDA_MPS_PIPE_DIRECTORY, so nothing has to be known about the process.
https://docs.nvidia.com/deploy/mps/latest/appendix-tools-and-interface-reference.html
"""

import errno
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gantree.executors.local import processes
from gantree.executors.local.launch.environment import inherited
from gantree.executors.local.unix_users import UnixUser
from gantree.model.errors import Unreachable, Unsupported

ANSWER_WITHIN_S = 60.0
"""The program waits for a server that ends, and a server for the driver."""
UP_WITHIN_S = 30.0
_LOOK_EVERY_S = 0.1
_QUIT_WITHIN_S = 10
"""Seconds that a server gives to clients, of which there should be none."""
_LONGEST_PATH = 80
"""Bytes of a folder whose sockets' names fit in the 108 of a socket's address."""
_REPORTED_LINES = 4
_FAULT, _INITIALIZING = "FAULT", "INITIALIZING"
_NOBODY = "Cannot find MPS control daemon"


@dataclass(frozen=True, slots=True)
class MpsControl:
    """The control daemon of a folder. devices is its CUDA_VISIBLE_DEVICES, uid the user that its server runs as."""

    program: str
    folder: Path
    devices: str
    uid: int

    @property
    def variables(self) -> dict[str, str]:
        """How clients, and the program itself, find it."""
        return {
            "CUDA_MPS_PIPE_DIRECTORY": str(self.folder),
            "CUDA_MPS_LOG_DIRECTORY": str(self.folder / "log"),
        }

    def start(self, unix: UnixUser | None) -> None:
        """Start it with a server, unless it answers. unix owns its folder; None: the user of this process.

        Raises Unsupported without the program, Unreachable where it or its server does not come up, and OSError.
        """
        if shutil.which(self.program) is None:
            raise Unsupported(
                f"sharing a GPU by mps needs {self.program}, which is not installed here or not on the daemon's PATH"
            )
        if not self._is_up():
            self._remove()
            self._make_folder(unix)
            self._start_control_daemon()
        self._start_server()

    def quit(self) -> None:
        """End it with its server; what does not end is killed. Its folder is removed. Raises OSError."""
        if self._is_up():
            self._ask(f"quit -t {_QUIT_WITHIN_S}")
        if not _holds(lambda: not processes.sweep({str(self.folder): None})):
            raise TimeoutError(errno.ETIMEDOUT, "an MPS server cannot be killed", str(self.folder))
        self._remove()

    def _is_up(self) -> bool:
        return self.folder.is_dir() and self._ask("get_server_list") is not None

    def _start_control_daemon(self) -> None:
        if not self._run_in_background() or not _holds(self._is_up):
            raise Unreachable(f"the MPS control daemon did not start: {self._reported()}")

    def _run_in_background(self) -> bool:
        """Whether the program says that it has started. Output goes to a file: a pipe would stay open all the time."""
        with (self.folder / "log" / "start.log").open("w") as output:
            try:
                done = subprocess.run(
                    [self.program, "-d"], env=self._environment(), stdin=subprocess.DEVNULL,
                    stdout=output, stderr=subprocess.STDOUT, timeout=ANSWER_WITHIN_S, check=False,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                return False
        return done.returncode == 0

    def _start_server(self) -> None:
        """A server that cannot start is found here, not by the first process that waits for it."""
        if not self._servers():
            self._ask(f"start_server -uid {self.uid}")
        if not _holds(self._has_server):
            raise Unreachable(f"the MPS server did not start: {self._reported()}")

    def _has_server(self) -> bool:
        """Whether a server is past its start. Drivers before 510 do not say how a server is."""
        states = [self._ask(f"get_server_status {pid}") or "" for pid in self._servers()]
        if any(_FAULT in state for state in states):
            raise Unreachable(f"the MPS server is in a fault: {self._reported()}")
        return bool(states) and not any(_INITIALIZING in state for state in states)

    def _servers(self) -> list[str]:
        """Process ids of its servers."""
        return [word for word in (self._ask("get_server_list") or "").split() if word.isdecimal()]

    def _ask(self, command: str) -> str | None:
        """What the control daemon answers to a command; None if it does not run. Raises OSError."""
        try:
            done = subprocess.run(
                [self.program], env=self._environment(), input=f"{command}\n", text=True,
                capture_output=True, timeout=ANSWER_WITHIN_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return None
        is_there = done.returncode == 0 and _NOBODY not in done.stdout + done.stderr
        return done.stdout if is_there else None

    def _environment(self) -> dict[str, str]:
        """GANTREE_RUN marks what is left over, as with the processes of jobs."""
        return {
            **inherited(os.environ),
            **self.variables,
            "CUDA_VISIBLE_DEVICES": self.devices,
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "GANTREE_RUN": str(self.folder),
        }

    def _make_folder(self, unix: UnixUser | None) -> None:
        if len(os.fsencode(self.folder)) > _LONGEST_PATH:
            raise Unsupported(
                f"{self.folder} is too long for the sockets of MPS ({_LONGEST_PATH} bytes at most): start the daemon "
                "with a shorter --state"
            )
        for folder in (self.folder, self.folder / "log"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if unix is not None:
                os.chown(folder, unix.uid, unix.gid)
        if unix is not None:
            self.folder.parent.chmod(0o711)

    def _remove(self) -> None:
        if self.folder.is_dir():
            shutil.rmtree(self.folder)

    def _reported(self) -> str:
        """The last lines of its logs, in one."""
        lines = [
            line.strip()
            for name in ("start.log", "control.log", "server.log")
            for line in _lines(self.folder / "log" / name)[-_REPORTED_LINES:]
        ]
        return "; ".join(line for line in lines if line) or "it reported nothing"


def _holds(condition: Callable[[], bool]) -> bool:
    """Whether something comes to hold in time."""
    deadline = time.monotonic() + UP_WITHIN_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_EVERY_S)
    return True


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return []
