"""A terminal of 80 columns and 24 lines in tmux, for tests of programs that draw on one."""

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

STATUS_TO_FILE = 'file=$1; shift; "$@"; echo $? > "$file"'
"""tmux 3.3 sometimes never says with which status a pane ended."""
WITHIN_S = 120.0


class Terminal:
    """A command in a terminal. It ends with the block."""

    def __init__(self, *words: str, columns: int = 80, lines: int = 24, **variables: str) -> None:
        """The words of `gantree`, and variables of its environment. Skips the test where there is no tmux."""
        if shutil.which("tmux") is None:
            pytest.skip("tmux draws the terminal of this test")
        self._name = f"gantree-test-{secrets.token_hex(6)}"
        self._status = Path(tempfile.gettempdir()) / f"{self._name}.status"
        noted = ["sh", "-c", STATUS_TO_FILE, "sh", str(self._status)]
        command = [*noted, sys.executable, "-m", "gantree.cli", *words]
        given = {"PYTHONPATH": os.environ.get("PYTHONPATH", ""), **variables}
        settings = [each for pair in given.items() for each in ("-e", "=".join(pair))]
        size = ["-x", str(columns), "-y", str(lines)]
        kept = ["start-server", ";", "set", "-g", "remain-on-exit", "on", ";"]
        self._run("-f", os.devnull, *kept, "new-session", "-d", *size, *settings, *command)

    def _run(self, *words: str) -> str:
        words = ("tmux", "-L", self._name, *words)
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout

    def press(self, *keys: str) -> None:
        """Press keys, as tmux names them."""
        self._run("send-keys", *keys)

    def write(self, text: str) -> None:
        """Type a text."""
        self._run("send-keys", "-l", text)

    def screen(self) -> str:
        """What is on the screen."""
        return self._run("capture-pane", "-p")

    def wait_for(self, wanted: str | Callable[[str], bool]) -> str:
        """The screen, once it has a text, or is as wanted."""
        deadline = time.monotonic() + WITHIN_S
        while True:
            screen = self.screen()
            if wanted in screen if isinstance(wanted, str) else wanted(screen):
                return screen
            assert time.monotonic() < deadline, f"{wanted!r} never came:\n{screen}"
            time.sleep(0.05)

    def exit_status(self) -> int:
        """The status of the command, once it has ended."""
        self.wait_for(lambda screen: self._status.exists() and self._status.read_text() != "")
        return int(self._status.read_text())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        subprocess.run(["tmux", "-L", self._name, "kill-server"], check=False)
        (Path("/tmp") / f"tmux-{os.getuid()}" / self._name).unlink(missing_ok=True)
        self._status.unlink(missing_ok=True)
