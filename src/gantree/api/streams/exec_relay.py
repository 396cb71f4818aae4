"""Relays an exec session between its WebSocket and the command or port of a member.

Messages on the WebSocket are binary: a letter, then what it is about. `executors.attached` says which letters there
are; a port knows i, e, o and x alone. Each side is read only when the other has taken what came before, so neither
side can make the daemon hold more than a few chunks of it. A session without traffic for IDLE_S is closed.
"""

import asyncio
import json
import socket
import time
from collections.abc import Coroutine
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from gantree.executors.exec_session import PendingExecSession
from gantree.executors.local.shim.exec_session import CHUNK, HEAD, MOST_WAITING, SIZE
from gantree.model.errors import Conflict

CALLS_BACK_WITHIN_S = 10.0
IDLE_S = 4 * 3600.0
MOST_BYTES = 1024 * 1024
"""Of one message."""
GONE = "gone"
LETTERS = (b"i", b"e", b"w")
"""What a client may send."""


class IdleTimer:
    """Time without traffic."""

    def __init__(self, idle_s: float) -> None:
        self._idle_s = idle_s
        self._last = time.monotonic()

    def note_traffic(self) -> None:
        """Note traffic."""
        self._last = time.monotonic()

    async def too_long(self) -> str:
        """Return, with the reason, once the session was idle for too long."""
        while (left_s := self._last + self._idle_s - time.monotonic()) > 0:
            await asyncio.sleep(left_s)
        return f"no traffic for {self._idle_s:g} s"


async def connection_of(awaited: PendingExecSession) -> socket.socket:
    """The connection of the command that was requested. Raises Conflict where it does not come."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(CALLS_BACK_WITHIN_S):
            while True:
                connection, _ = await loop.sock_accept(awaited.listener)
                if await asyncio.to_thread(awaited.accepts, connection):
                    return connection
                connection.close()
    except TimeoutError:
        raise Conflict("the member did not start the command; is it being stopped?") from None
    finally:
        awaited.close()


async def relay_command(websocket: WebSocket, connection: socket.socket, quiet: IdleTimer) -> str:
    """Relay until the command ends or the client disconnects; the reason, "" after an ordinary end."""
    reader, writer = await asyncio.open_connection(sock=connection, limit=MOST_WAITING)
    try:
        return await _first(
            _from_command(websocket, reader, quiet),
            _to_command(websocket, writer, quiet),
            quiet.too_long(),
        )
    finally:
        writer.close()


async def relay_port(websocket: WebSocket, address: tuple[str, int], quiet: IdleTimer) -> str:
    """The same with a port. Raises OSError where nothing listens there."""
    reader, writer = await asyncio.open_connection(*address, limit=MOST_WAITING)
    try:
        return await _first(
            _from_port(websocket, reader, quiet),
            _to_port(websocket, writer, quiet),
            quiet.too_long(),
        )
    finally:
        writer.close()


async def _first(*ways: Coroutine[Any, Any, str]) -> str:
    """What the first that ends says; the others are given up."""
    tasks = [asyncio.ensure_future(way) for way in ways]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(task for task in tasks if task in done).result()
    except WebSocketDisconnect:
        return GONE
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _from_command(
    websocket: WebSocket, reader: asyncio.StreamReader, quiet: IdleTimer
) -> str:
    try:
        while True:
            letter, length = HEAD.unpack(await reader.readexactly(HEAD.size))
            payload = await reader.readexactly(length)
            quiet.note_traffic()
            await websocket.send_bytes(letter + payload)
            if letter == b"x":
                return ""
    except (asyncio.IncompleteReadError, ConnectionError):
        return "the attempt is over, or is being stopped"


async def _to_command(websocket: WebSocket, writer: asyncio.StreamWriter, quiet: IdleTimer) -> str:
    try:
        while True:
            letter, payload = await _receive(websocket, quiet)
            if letter == b"w" and len(payload) != SIZE.size:
                return "a size is rows and columns, two bytes each"
            writer.write(HEAD.pack(letter, len(payload)) + payload)
            await writer.drain()
    except WebSocketDisconnect:
        return GONE
    except ConnectionError:
        return await _never()


async def _from_port(websocket: WebSocket, reader: asyncio.StreamReader, quiet: IdleTimer) -> str:
    while data := await _read(reader):
        quiet.note_traffic()
        await websocket.send_bytes(b"o" + data)
    await websocket.send_bytes(b"x" + json.dumps({"code": 0}).encode())
    return ""


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(CHUNK)
    except ConnectionError:
        return b""


async def _to_port(websocket: WebSocket, writer: asyncio.StreamWriter, quiet: IdleTimer) -> str:
    try:
        while True:
            letter, payload = await _receive(websocket, quiet)
            if letter == b"i":
                writer.write(payload)
                await writer.drain()
            elif letter == b"e":
                writer.write_eof()
    except WebSocketDisconnect:
        return GONE
    except ConnectionError:
        return await _never()


async def _receive(websocket: WebSocket, quiet: IdleTimer) -> tuple[bytes, bytes]:
    """One message of the client. Raises WebSocketDisconnect."""
    while True:
        message = await websocket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1000))
        data = message.get("bytes") or b""
        if data[:1] in LETTERS:
            quiet.note_traffic()
            return data[:1], data[1:]


async def _never() -> str:
    """Wait for the other way to end."""
    never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    return await never
