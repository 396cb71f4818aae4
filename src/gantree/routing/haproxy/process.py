"""A process of HAProxy: started with sockets that the router holds, told things at its runtime socket, ended softly.

The listening sockets belong to the router, so what connects while one process follows another waits in their backlog.
A process that is to end answers what it has begun, closes and is gone; the connection to its runtime socket, opened
before, goes on until then. If the router is killed, the kernel tells its processes to end in the same way.
"""

import asyncio
import ctypes
import shutil
import signal
import subprocess
import time
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from gantree.model.errors import Unreachable

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
START_WITHIN_S = 10.0
PAUSE_S = 0.01
ANSWER_WITHIN_S = 10.0
PROMPT = b"\n> "
LONGEST_OUTPUT = 8192
MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(16 << 20), "MALLOC_TRIM_THRESHOLD_": str(256 << 20)}
"""Buffers of 128 KiB come from the heap: the C library would map and unmap each, at ten times the time of a request."""


class HaproxyProcess:
    """One process. directory holds its files."""

    def __init__(self, process: Process, directory: Path) -> None:
        self.directory = directory
        self._process = process
        self._lock = asyncio.Lock()
        self._output = b""
        self._reading = asyncio.create_task(self._read_output())
        self.ended = asyncio.create_task(self._end())

    @classmethod
    async def start(
        cls,
        program: str,
        directory: Path,
        files: Mapping[str, str],
        fds: Sequence[int],
        environment: Mapping[str, str],
    ) -> Self:
        """Start one and wait until it answers. Raises Unreachable with what it said."""
        directory.mkdir(mode=0o700)
        for name, text in files.items():
            (directory / name).write_text(text, encoding="utf-8")
        process = await asyncio.create_subprocess_exec(
            program, "-f", str(directory / "haproxy.cfg"), "-db",
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            pass_fds=tuple(fds), preexec_fn=_end_with_parent, env={**environment, **MALLOC},
            process_group=0,
        )  # fmt: skip
        self = cls(process, directory)
        try:
            await self._connect()
        except BaseException:
            self.kill()
            raise
        return self

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.returncode is None

    @property
    def output(self) -> str:
        """The last that it said."""
        return self._output.decode(errors="replace").strip()

    async def run(self, command: str) -> str:
        """Run a command at the runtime socket and return what it prints. Raises Unreachable."""
        async with self._lock:
            try:
                async with asyncio.timeout(ANSWER_WITHIN_S):
                    self._writer.write(command.encode() + b"\n")
                    await self._writer.drain()
                    answer = await self._answer()
            except (OSError, EOFError, TimeoutError) as error:
                raise Unreachable(
                    f"HAProxy (process {self.pid}) does not answer: {error!r}"
                ) from error
        return answer.decode(errors="replace").strip()

    def end_softly(self) -> None:
        """Take nothing new and end once all that has begun has ended."""
        self._signal(signal.SIGUSR1)

    def kill(self) -> None:
        """End now."""
        self._signal(signal.SIGKILL)

    def release(self) -> None:
        """Close the connection to the runtime socket: a process that is to end waits for it."""
        with suppress(AttributeError):
            self._writer.close()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def _connect(self) -> None:
        until_s = time.monotonic() + START_WITHIN_S
        while True:
            try:
                self._reader, self._writer = await asyncio.open_unix_connection(
                    self.directory / "admin.sock", limit=1 << 26
                )
                break
            except OSError as error:
                if self._process.returncode is not None or time.monotonic() > until_s:
                    await self._reading
                    raise Unreachable(f"HAProxy does not start: {self.output}") from error
                await asyncio.sleep(PAUSE_S)
        self._writer.write(b"prompt\n")
        await self._answer()

    async def _answer(self) -> bytes:
        answer = await self._reader.readuntil(PROMPT)
        return answer[: -len(PROMPT)]

    async def _read_output(self) -> None:
        assert self._process.stdout is not None
        while piece := await self._process.stdout.read(LONGEST_OUTPUT):
            self._output = (self._output + piece)[-LONGEST_OUTPUT:]

    async def _end(self) -> int:
        code = await self._process.wait()
        self.release()
        shutil.rmtree(self.directory, ignore_errors=True)
        return code


def _end_with_parent() -> None:
    """Let the kernel end this process softly when the thread that starts it is gone, as with `kill -9`."""
    none = ctypes.c_ulong(0)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGUSR1), none, none, none)
