"""The five-minute tour of the README does what it says: every command runs, and what is shown is printed.

One shell runs the blocks in their order, as a reader would paste them, with the examples in a folder of its own and
`gantree` on its path. A block that starts a daemon is followed by what the reader is told to wait for, `ready`. A
`text` block is all that the `sh` block before it prints, but for `...`, which stands for lines that are left out,
and for what differs from run to run: those rules are DIFFERS and in_order. A block that cannot run everywhere says
so in a comment of the README, `<!-- tour: not run: needs ... -->`, and nothing else is left out.
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
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pytest

from support.daemon import Daemon

ROOT = Path(__file__).resolve().parents[1]
GANTREE = Path(sys.executable).with_name("gantree")
README = (ROOT / "README.md").read_text(encoding="utf-8")
PATIENCE_S = 300.0
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
DIFFERS = (
    (r"in [0-9dhms]+ \(\d\d:\d\d:\d\d\)", "in SPAN (TIME)"),  # a start, an end to come
    (r"^(\S+ +succeeded .+) [0-9dhms]+$", r"\1 SPAN"),  # the column FOR of `gantree jobs`
)
"""What differs from run to run in a line, and the word that is put in its place."""
LEFT_OUT = "..."
BLOCK = re.compile(
    r"(?:^<!-- tour: not run: (?P<needs>needs .+) -->\n)?^```(?P<kind>\w*)\n(?P<body>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(slots=True)
class Block:
    """Commands that are pasted together, what the README shows of their output, and why they are not run ("")."""

    commands: list[str]
    shown: list[str]
    needs: str


def tour(readme: str) -> list[Block]:
    """The blocks of the tour. AssertionError for anything in it that would silently be left out."""
    (text,) = re.findall(r"^## Five-minute tour\n(.*?)^## ", readme, re.DOTALL | re.MULTILINE)
    blocks: list[Block] = []
    for found in BLOCK.finditer(text):
        kind, lines = found["kind"], found["body"].splitlines()
        assert kind in ("sh", "text"), f"a block of the kind {kind!r} would not be tested"
        if kind == "sh":
            blocks.append(Block(lines, [], found["needs"] or ""))
        else:
            assert not found["needs"], f"an output is left out after {blocks[-1].commands}"
            assert not blocks[-1].shown, f"two outputs of {blocks[-1].commands}"
            blocks[-1].shown = lines
    prose = BLOCK.sub("", text)
    assert re.findall(r"^(?: {4}.*|.*```.*|<!--.*)", prose, re.MULTILINE) == [], "left out"
    return blocks


def in_order(lines: list[str]) -> list[str]:
    """Lines of ranks, which write side by side, by their number; without what differs from run to run."""
    ordered: list[str] = []
    for is_of_rank, some in groupby(lines, lambda line: re.match(r"\[\d+\] ", line) is not None):
        run = list(some)
        ordered += sorted(run) if is_of_rank else run
    for pattern, word in DIFFERS:
        ordered = [re.sub(pattern, word, line.rstrip()) for line in ordered]
    return ordered


def is_shown(shown: list[str], printed: list[str]) -> bool:
    """Whether a `text` block is what was printed."""
    lines = (
        r"(?:.*\n)*" if line == LEFT_OUT else re.escape(line) + r"\n" for line in in_order(shown)
    )
    return (
        re.fullmatch("".join(lines), "".join(f"{each}\n" for each in in_order(printed))) is not None
    )


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

    def type_in(self, command: str) -> tuple[int, str]:
        """The exit status of a command, and what was printed; a daemon has started, or stopped, thereafter."""
        before = len(self.printed())
        self._tell(f'{command}\necho "<$?>"\n')
        told = self._until(r"<(\d+)>\n", before)
        if command.endswith("&"):
            self._until(r" ready: .*\n", before)
        elif command == "kill $!":
            self._until(r"stopped; .*\n", before)
        return int(told[1]), self.printed()[before : told.start()]

    def _until(self, pattern: str, begin: int) -> re.Match[str]:
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
        if "stopped; no gang was running" in self.printed():
            return
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
    words = [
        command.split() for block in tour(README) if not block.needs for command in block.commands
    ]
    assert set(SHOWN) - {word for first, word, *_ in words if first == "gantree"} == set()


@pytest.mark.parametrize(
    "unseen", ["```console\n$ gantree jobs\n```", "    gantree jobs", "<!-- tour: not run -->\n"]
)
def test_no_block_of_the_tour_is_left_out_unless_it_says_what_it_needs(unseen: str) -> None:
    with pytest.raises(AssertionError, match=r"left out|would not be tested"):
        tour(README.replace("**A job.**", f"{unseen}\n\n**A job.**"))


def test_a_changed_word_a_missing_line_and_one_too_many_are_noticed() -> None:
    printed = ["[1] b", "[0] a", "starts in 1h (03:51:59) on s0", "the rest"]
    shown = ["[0] a", "[1] b", "starts in 59m30s (14:31:07) on s0", "..."]
    assert is_shown(shown, printed)
    assert not is_shown([*shown[:2], "starts in 59m30s (14:31:07) on s1", "..."], printed)
    assert not is_shown(shown[:3], printed)
    assert not is_shown([*shown, "more"], printed)


def test_the_tour_runs_as_it_is_written(shell: Shell, tmp_path: Path) -> None:
    answer_to: dict[str, str] = {}
    for block in tour(README):
        if block.needs:
            continue
        printed = ""
        for command in block.commands:
            status, answer = shell.type_in(command)
            assert status == 0, f"{command}\n{answer}"
            name = command.split()[1]
            answer_to[name] = answer_to.get(name, "") + answer
            printed += answer
        if block.shown:
            assert is_shown(block.shown, printed.splitlines()), f"{block.commands}\n{printed}"
    assert "a  service  2 GPUs" in answer_to["topo"]
    assert re.search(r"^service +(starting|running) ", answer_to["jobs"], re.MULTILINE), "adopted"
    assert "6 jobs on 32 GPUs" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
