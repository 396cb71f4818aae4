"""The five-minute tour of the README does what it says: every command runs, and what is shown is printed.

One shell runs the blocks in their order, as a reader would paste them, with the examples in a folder of its own. A
block that starts a daemon is followed by what the reader is told to wait for, `ready`. Lines of a `text` block must
come out of the `sh` block before it, in whatever order: ranks write side by side.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from gantree.testing.daemon import Daemon

ROOT = Path(__file__).resolve().parents[1]
GANTREE = Path(sys.executable).with_name("gantree")
PATIENCE_S = 60.0
SHOWN = (
    "up",
    "topo",
    "submit",
    "logs",
    "jobs",
    "run",
    "why",
    "when",
    "what-if",
    "cancel",
    "place",
    "cost",
    "simulate",
)
"""Commands that a newcomer must have seen."""


def tour() -> list[tuple[list[str], list[str]]]:
    """The commands of each `sh` block, and the lines that the `text` block after it shows."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"^## Five-minute tour\n(.*?)^## ", readme, re.DOTALL | re.MULTILINE)
    blocks: list[tuple[list[str], list[str]]] = []
    for kind, body in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        assert kind in ("sh", "text"), f"a block of the kind {kind!r} would not be tested"
        if kind == "sh":
            blocks.append((body.splitlines(), []))
        else:
            blocks[-1][1].extend(body.splitlines())
    return blocks


class Shell:
    """A bash that is told commands one after the other, as at a prompt."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._printed = folder / "printed"
        environment = {
            "HOME": str(folder),
            "TMPDIR": str(folder),
            "PATH": f"{GANTREE.parent}:{os.environ['PATH']}",
            "LANG": "C.UTF-8",
        }
        with self._printed.open("wb") as printed:
            self._bash = subprocess.Popen(
                ["bash"],
                cwd=folder,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=printed,
                stderr=printed,
                text=True,
                start_new_session=True,
            )

    def printed(self) -> str:
        """Everything so far."""
        return self._printed.read_text(encoding="utf-8")

    def run(self, command: str) -> tuple[int, str]:
        """The exit status of a command, and what was printed meanwhile."""
        before = len(self.printed())
        self._tell(f'{command}\necho "<$?>"\n')
        told = self.until(r"<(\d+)>\n", before)
        return int(told[1]), self.printed()[before : told.start()]

    def until(self, pattern: str, begin: int) -> re.Match[str]:
        """Wait for something to be printed after a position."""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := re.compile(pattern).search(self.printed(), begin)):
            assert time.monotonic() < deadline, f"no {pattern} in:\n{self.printed()[begin:]}"
            time.sleep(0.01)
        return found

    def end(self) -> None:
        """Leave, with the daemon, wherever the tour broke off; a last daemon cancels the jobs that still run."""
        self._tell("exit\n")
        with suppress(
            subprocess.TimeoutExpired
        ):  # it still runs a command; that ends with the rest
            self._bash.communicate(timeout=5)
        with suppress(ProcessLookupError):  # the tour stopped its daemon itself
            os.killpg(self._bash.pid, signal.SIGKILL)
        self._bash.wait()
        cluster = (ROOT / "examples" / "four-dgx.yaml").read_text(encoding="utf-8")
        for state_dir in self._folder.glob("tmp.*"):
            with Daemon(state_dir, cluster):
                pass

    def _tell(self, text: str) -> None:
        assert self._bash.stdin is not None
        self._bash.stdin.write(text)
        self._bash.stdin.flush()


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    shell = Shell(tmp_path)
    yield shell
    shell.end()


def test_the_tour_shows_every_command_that_a_newcomer_needs() -> None:
    words = [command.split() for commands, _ in tour() for command in commands]
    assert set(SHOWN) - {word for first, word, *_ in words if first == "gantree"} == set()


def test_the_tour_runs_as_it_is_written(shell: Shell, tmp_path: Path) -> None:
    answer_to: dict[str, str] = {}
    for commands, shown in tour():
        printed = ""
        for command in commands:
            began = len(shell.printed())
            status, answer = shell.run(command)
            assert status == 0, f"{command}\n{answer}"
            if command.endswith("&"):
                shell.until(" ready: ", began)
            name = command.split()[1]
            answer_to[name] = answer_to.get(name, "") + answer
            printed += answer
        assert [line for line in shown if line not in printed.splitlines()] == [], printed
    assert "a  service  2 GPUs" in answer_to["topo"]
    assert re.search(r"^service +(starting|running) ", answer_to["jobs"], re.MULTILINE), "adopted"
    assert "service is being cancelled" in answer_to["cancel"]
    assert "6 jobs on 32 GPUs" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    shell.until("stopped; ", 0)
