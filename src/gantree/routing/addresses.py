"""Addresses: those that a router listens at, and those of replicas, which HAProxy wants as numbers."""

import asyncio
import ipaddress
import socket
import time
from collections.abc import Callable
from dataclasses import replace

from gantree.model.errors import BadInput
from gantree.routing.table import RoutedReplica, RouteTable

BACKLOG = 4096
BIND_WITHIN_S = 5.0
"""A router that was killed leaves its HAProxy, which lets go of the address a moment later."""
PAUSE_S = 0.05


def split_address(text: str, option: str) -> tuple[str, int]:
    """Split HOST:PORT. Raises BadInput."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise BadInput(f"{option}: found {text!r}; allowed: HOST:PORT, such as 0.0.0.0:8400")
    return host.strip("[]"), int(port)


def listening_socket(text: str, option: str) -> socket.socket:
    """Return a socket that listens at HOST:PORT. Raises BadInput."""
    host, port = split_address(text, option)
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise BadInput(f"{option}: {text}: {error}") from error
    until_s = time.monotonic() + BIND_WITHIN_S
    while True:
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(where)
            listening.listen(BACKLOG)
        except OSError as error:
            listening.close()
            if time.monotonic() > until_s:
                raise BadInput(f"{option}: {text}: {error}") from error
            time.sleep(PAUSE_S)
            continue
        listening.setblocking(False)
        return listening


def written_address(listening: socket.socket) -> str:
    """Return HOST:PORT of a socket, as URLs have it."""
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def resolved(table: RouteTable, complain: Callable[[str], None]) -> RouteTable:
    """Return a table with numbers for names of hosts. A replica whose host has no address is not ready."""
    services = []
    for service in table.services:
        replicas = [await _resolved(each, complain) for each in service.replicas]
        services.append(replace(service, replicas=tuple(replicas)))
    return replace(table, services=tuple(services))


async def _resolved(replica: RoutedReplica, complain: Callable[[str], None]) -> RoutedReplica:
    try:
        ipaddress.ip_address(replica.host)
        return replica
    except ValueError:
        pass
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            replica.host, replica.port, type=socket.SOCK_STREAM
        )
    except OSError as error:
        complain(f"{replica.replica}: {replica.host}: {error}")
        return replace(replica, host="0.0.0.0", ready=False)  # noqa: S104 - no address, nothing listens
    return replace(replica, host=str(found[0][4][0]))
