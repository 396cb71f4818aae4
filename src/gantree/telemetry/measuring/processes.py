"""Measured programs, each the leader of a process group that is always killed as a whole."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from gantree.model.errors import Unreachable

POLL_S = 0.05
GRACE_S = 2.0
TOLD_CHARS = 600
"""Characters of a failed program's output that are reported."""


@contextmanager
def running(
    commands: Sequence[Sequence[str]], env: Mapping[str, str], logs: Sequence[Path]
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start programs, each writing to its log; on leaving, none of their process groups lives.

    Raises Unreachable where one cannot be started.
    """
    started: list[subprocess.Popen[bytes]] = []
    try:
        for command, log in zip(commands, logs, strict=True):
            with log.open("wb") as file:
                started.append(_start(command, env, file.fileno()))
        yield started
    finally:
        _end(started)


def _start(command: Sequence[str], env: Mapping[str, str], log: int) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            list(command),
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    except OSError as error:
        raise Unreachable(f"{command[0]}: cannot be started: {error.strerror}") from None


def wait(
    programs: Sequence[subprocess.Popen[bytes]],
    logs: Sequence[Path],
    deadline: float,
    meanwhile: Callable[[], None] = lambda: None,
) -> None:
    """Wait until all have ended well, calling `meanwhile` now and then. deadline is on the monotonic clock.

    Raises Unreachable, with the end of its log, when one fails, and when the deadline has passed.
    """
    while True:
        codes = [_code(program) for program in programs]
        meanwhile()
        bad = next((i for i, code in enumerate(codes) if code), None)
        if bad is not None:
            raise Unreachable(
                f"{_name(programs[bad])} {_end_of(codes[bad] or 0)}: {_tail(logs[bad])}"
            )
        if None not in codes:
            return
        if time.monotonic() > deadline:
            late = codes.index(None)
            raise Unreachable(
                f"{_name(programs[late])} did not end in time and was stopped: {_tail(logs[late])}"
            )
        time.sleep(POLL_S)


def _code(program: subprocess.Popen[bytes]) -> int | None:
    """Return the exit status, -N for signal N, None while it runs; not reaped, so its group's number stays its own."""
    ended = os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def _name(program: subprocess.Popen[bytes]) -> str:
    words = program.args
    return " ".join(str(word) for word in words)[:200] if isinstance(words, list) else str(words)


def _end_of(code: int) -> str:
    return f"ended with status {code}" if code > 0 else f"was ended by signal {-code}"


def _tail(log: Path) -> str:
    """The end of what a program wrote, in one line."""
    text = log.read_bytes()[-8 * TOLD_CHARS :].decode(errors="replace")
    words = " | ".join(line.strip() for line in text.splitlines() if line.strip())
    return words[-TOLD_CHARS:] or "it wrote nothing"


def _end(programs: Sequence[subprocess.Popen[bytes]]) -> None:
    """End what is left of each process group: asked first, then killed."""
    for program in programs:
        if _code(program) is None:
            _signal(program, signal.SIGTERM)
    until = time.monotonic() + GRACE_S
    while None in map(_code, programs) and time.monotonic() < until:
        time.sleep(POLL_S)
    for program in programs:
        _signal(program, signal.SIGKILL)
        program.wait()


def _signal(program: subprocess.Popen[bytes], number: int) -> None:
    """Signal a process group. Its leader may have ended before its children: the group is still theirs."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(program.pid, number)
