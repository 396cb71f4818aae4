"""Who asks: every route depends on `caller_of`, and `Access` decides it. What a caller may do is not decided here.

Whoever may open the Unix socket may open the whole state directory, so the peer of a socket is an operator, under the
name of the user that its process runs as, as the kernel tells (SO_PEERCRED). Whoever comes over TCP shows the bearer
token of the daemon's token file.
"""

import os
import pwd
import secrets
import socket
import stat
import struct
from dataclasses import dataclass, field
from functools import lru_cache
from hmac import compare_digest
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import Depends, Request

from gantree.api.rates import Rates
from gantree.model.errors import BadInput, Unauthenticated

Via = Literal["socket", "tcp"]
TOKEN_FILE = "token"  # noqa: S105 - a file's name, in the state directory
LONGEST_TOKEN_FILE = 4096
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a request, and how it came."""

    name: str
    is_operator: bool
    via: Via


@dataclass(frozen=True, slots=True)
class Door:
    """Where a request came in: the socket with the user id of its peer, or TCP. The server notes it in the scope."""

    via: Via
    uid: int | None = None


@dataclass(frozen=True, slots=True)
class Access:
    """Decides who a caller is. token is what callers over TCP must show; None: nobody comes over TCP.

    rates limits how often a caller may ask; None: as often as it likes.
    """

    token: str | None = field(default=None, repr=False)
    rates: Rates | None = None

    def caller(self, door: Door, authorization: str | None) -> Caller:
        """Raises Unauthenticated."""
        if door.via == "socket":
            return Caller(user_name(door.uid), True, "socket")
        scheme, _, shown = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not shown:
            raise Unauthenticated("a token is needed: send `Authorization: Bearer TOKEN`")
        known = self.token is not None and compare_digest(shown.encode(), self.token.encode())
        if not known:
            raise Unauthenticated("the token is not the daemon's")
        return Caller("token", True, "tcp")


async def caller_of(request: Request) -> Caller:
    """Who makes this request. Raises Unauthenticated and TooOften."""
    access: Access = request.app.state.access
    caller = access.caller(door_of(request.scope), request.headers.get("authorization"))
    if access.rates is not None:
        access.rates.take(caller.name)
    return caller


WhoAsks = Annotated[Caller, Depends(caller_of)]


def door_of(scope: Any) -> Door:
    """The door that a request came through; TCP, the strict one, where the server noted none."""
    door = scope.get("state", {}).get("door")
    return door if isinstance(door, Door) else Door("tcp")


def peer_uid(connection: Any) -> int:
    """The user id of the process at the other end of a Unix socket, when it connected."""
    packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    uid: int = _CREDENTIALS.unpack(packed)[1]
    return uid


@lru_cache(maxsize=1024)
def user_name(uid: int | None) -> str:
    """The name of a user of this machine, its number where it has none."""
    if uid is None:
        return "unknown"
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def token_of(path: Path) -> str:
    """The token in a file, which is made with a random one where there is none.

    Raises BadInput for a file that others than its owner may read, or that is no token's.
    """
    try:
        made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return _read_token(path)
    except OSError as error:
        raise BadInput(f"token file {path} cannot be made: {error.strerror}") from error
    token = secrets.token_urlsafe(32)
    with os.fdopen(made, "w", encoding="ascii") as file:
        file.write(token + "\n")
    return token


def _read_token(path: Path) -> str:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise BadInput(f"token file {path} cannot be read: {error.strerror}") from error
    with os.fdopen(file, "rb") as opened:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_mode & 0o077 or found.st_uid != os.geteuid():
            raise BadInput(f"token file {path} must be yours alone: chmod 600 {path}")
        token = opened.read(LONGEST_TOKEN_FILE).strip()
    if len(token) < 16 or not token.isascii() or any(byte <= 32 for byte in token):
        raise BadInput(f"token file {path} holds no token; remove it, and a new one is made")
    return token.decode("ascii")
