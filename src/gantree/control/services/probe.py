"""One look at a replica: whether its port accepts a connection, or answers a path of HTTP with a status below 400.

Each is a connection of its own, as kubelet's probes are, and reads no more than the status line. A client library
would read, decode and pool what nobody asks for, at five times the CPU: a site has hundreds of probes a second.
"""

import asyncio
import re
from contextlib import suppress

from gantree.model.replicas import Endpoint

LONGEST_LINE = 1024
BELOW_STATUS = 400

_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: |\r?\n)")


async def probe(endpoint: Endpoint, http_path: str | None, timeout_s: float) -> str:
    """Return why a replica is not ready; "" if it is. Raises nothing but the cancellation of its task."""
    try:
        async with asyncio.timeout(timeout_s):
            return await _look(endpoint, http_path)
    except TimeoutError:
        return f"no answer from {_where(endpoint, http_path)} within {timeout_s:g} s"
    except OSError as error:
        return f"no connection to {_where(endpoint, http_path)}: {error.strerror or error}"


async def _look(endpoint: Endpoint, http_path: str | None) -> str:
    reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port, limit=LONGEST_LINE)
    try:
        return "" if http_path is None else await _status(reader, writer, endpoint, http_path)
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def _status(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, endpoint: Endpoint, path: str
) -> str:
    lines = (
        f"GET {path} HTTP/1.1",
        f"Host: {endpoint.address}",
        "User-Agent: gantree-probe",
        "Accept: */*",
        "Connection: close",
    )
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("ascii"))
    try:
        found = _STATUS.match(await reader.readline())
    except ValueError:  # longer than any status line
        found = None
    if found is None:
        return f"{_where(endpoint, path)} does not answer as HTTP does"
    status = int(found[1])
    return "" if status < BELOW_STATUS else f"{_where(endpoint, path)} answers {status}"


def _where(endpoint: Endpoint, path: str | None) -> str:
    return f"port {endpoint.port}" if path is None else f"{path} at port {endpoint.port}"
