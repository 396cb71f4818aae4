"""A replica: a small HTTP server in a process of its own. `python -m support.replica NAME PORT`

GET or POST; the query says what it does: wait_ms before the answer, events of a stream (one each gap_ms), held (the
answer waits until its connection for `/release` comes), fail (it closes without an answer), break (it closes in the
middle of one). The answer is JSON: its name, what it was sent, how many requests it works on, and how many it had
before. It needs the standard library only, so it starts fast.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from asyncio import StreamReader, StreamWriter
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, urlsplit

START_WITHIN_S = 300.0


class _Server:
    def __init__(self, name: str) -> None:
        self._name = name
        self._in_flight = self._taken = 0
        self._released = asyncio.Event()

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while await self._one(reader, writer):
                pass
        writer.close()

    async def _one(self, reader: StreamReader, writer: StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        lines = head.split("\r\n")
        headers = {
            name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])
        }
        body = await _body(headers, reader)
        asked = parse_qs(urlsplit(lines[0].split()[1]).query, keep_blank_values=True)
        path = urlsplit(lines[0].split()[1]).path
        if path == "/release":
            self._released.set()
            self._released = asyncio.Event()
        self._in_flight += path != "/release"
        before, self._taken = self._taken, self._taken + (path != "/release")
        try:
            return await self._answer(asked, path, headers, body, before, writer)
        finally:
            self._in_flight -= path != "/release"

    async def _answer(
        self,
        asked: dict[str, list[str]],
        path: str,
        headers: dict[str, str],
        body: bytes,
        before: int,
        writer: StreamWriter,
    ) -> bool:
        if "fail" in asked:
            return False
        if "held" in asked:
            await self._released.wait()
        await asyncio.sleep(int(asked.get("wait_ms", ["0"])[0]) / 1000)
        if "break" in asked:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf")
            await writer.drain()
            return False
        if "events" in asked:
            await self._stream(int(asked["events"][0]), int(asked["gap_ms"][0]), writer)
            return False
        told = {
            "name": self._name,
            "path": path,
            "headers": headers,
            "length": len(body),
            "in_flight": self._in_flight,
            "before": before,
        }
        content = json.dumps(told).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
        writer.write(b"Content-Length: %d\r\n\r\n%s" % (len(content), content))
        await writer.drain()
        return True

    async def _stream(self, events: int, gap_ms: int, writer: StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n")
        writer.write(b"Transfer-Encoding: chunked\r\n\r\n")
        for number in range(events):
            event = b"data: %d %s\n\n" % (number, self._name.encode())
            writer.write(b"%x\r\n%s\r\n" % (len(event), event))
            await writer.drain()
            await asyncio.sleep(gap_ms / 1000)
        writer.write(b"0\r\n\r\n")
        await writer.drain()


async def _body(headers: dict[str, str], reader: StreamReader) -> bytes:
    if headers.get("transfer-encoding") != "chunked":
        return await reader.readexactly(int(headers.get("content-length", 0)))
    body = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)
    return body


async def _main(name: str, file: Path) -> None:
    server = await asyncio.start_server(_Server(name).serve, "127.0.0.1", 0)
    part = file.with_suffix(".part")
    part.write_text(str(server.sockets[0].getsockname()[1]))
    part.rename(file)
    await server.serve_forever()


class ReplicaProcess:
    """A replica while it runs."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self._file = directory / f"{name}.port"
        self._file.unlink(missing_ok=True)
        command = [sys.executable, "-S", __file__, name, str(self._file)]
        self._process = subprocess.Popen(command, env={"PATH": os.environ["PATH"]})
        self._port: int | None = None

    @property
    def port(self) -> int:
        """Where it listens, once it does."""
        until_s = time.monotonic() + START_WITHIN_S
        while self._port is None:
            if self._file.exists():
                self._port = int(self._file.read_text())
            elif time.monotonic() > until_s:
                raise TimeoutError(f"{self.name} does not start")
            else:
                time.sleep(0.01)
        return self._port

    def kill(self) -> None:
        """End it as a lost node would."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], Path(sys.argv[2])))
