"""Authentication: every route depends on `caller_of`, which `Access` resolves. Permissions are in `permissions`.

Without an access file the peer of the Unix socket is an operator, named by its Unix user (SO_PEERCRED): who can open
the socket can open the whole state directory. With an access file only root and the daemon's own user are operators;
other Unix users are mapped by the file. A caller over TCP shows the token of the daemon's token file (an operator), a
token made by the daemon, one of the OIDC provider, or the cookie of a session opened with one of them.
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
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import Depends
from starlette.requests import HTTPConnection

from gantree.api.access.access_file import AccessFile
from gantree.api.access.cookies import check_origin, cookie_of
from gantree.api.access.rate_limits import RateLimits
from gantree.api.access.tokens import PREFIX, Tokens, exceeds
from gantree.api.http.connections import STATE
from gantree.executors.local.unix_users import unix_user
from gantree.journal.access_store import TokenRow
from gantree.model.access import Grant, Power, grant_of, narrowed, scope_of
from gantree.model.errors import BadInput, Forbidden, Unauthenticated

if TYPE_CHECKING:  # it needs libraries that take long to import, and few daemons have a provider
    from gantree.api.access.oidc import Oidc, Providers

Via = Literal["socket", "tcp"]
TOKEN_FILE = "token"  # noqa: S105 - a file's name, in the state directory
LONGEST_TOKEN_FILE = 4096
DAEMON_TOKEN = "token"  # noqa: S105 - how whoever shows the daemon's own token is called
EVERYTHING = (grant_of("operator"),)
STRANGER = "somebody unknown at "
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a request, over which transport, with which grants. credential: the id of what was shown, no secret."""

    name: str
    grants: tuple[Grant, ...]
    via: Via
    credential: str = ""

    def may(self, power: Power, queue: str) -> bool:
        """Whether it has a power over a queue; over "" only with a grant for all."""
        return any(power in each.powers and each.covers(queue) for each in self.grants)

    @property
    def is_operator(self) -> bool:
        """Whether it may change the site."""
        return self.may(Power.OPERATE, "")

    @property
    def sees_all(self) -> bool:
        """Whether no job is kept from it."""
        return self.may(Power.SEE, "")

    @property
    def reads_all(self) -> bool:
        """Whether nothing of any job is kept from it."""
        return self.may(Power.READ, "")

    @property
    def is_person(self) -> bool:
        """Whether the caller is a user; the daemon's own token belongs to none."""
        return self.credential != DAEMON_TOKEN


@dataclass(frozen=True, slots=True)
class Transport:
    """How a request came in: the Unix socket with its peer's user id, or TCP. The server notes it in the scope."""

    via: Via
    uid: int | None = None


@dataclass(frozen=True, slots=True)
class Access:
    """Authenticates callers. token is the daemon's own token; None: there is none.

    file says who may do what; without one, peers of the socket are operators, and there are no users to give tokens.
    tokens are those that were made here, providers gives the OIDC provider that the file names. runs_as_submitter: jobs
    run as the Unix users of those whose they are.
    rates limits how often a caller may ask; None: as often as it likes.
    """

    token: str | None = field(default=None, repr=False)
    rates: RateLimits | None = None
    file: AccessFile | None = None
    tokens: Tokens | None = None
    providers: "Providers | None" = None
    runs_as_submitter: bool = False

    @property
    def oidc(self) -> "Oidc | None":
        """The OIDC provider of the moment."""
        return None if self.providers is None else self.providers.now

    @property
    def url(self) -> str | None:
        """The daemon's address as browsers see it, where the file says so."""
        oidc = None if self.file is None else self.file.rules.oidc
        return None if oidc is None else oidc.url

    async def caller(
        self, transport: Transport, authorization: str | None, cookie: str = ""
    ) -> Caller:
        """Raises Unauthenticated, and Unreachable where a token cannot be looked up."""
        if transport.via == "socket":
            return self._peer(transport.uid)
        if authorization is None and cookie:
            return await self._of_secret(cookie, "the session has ended: log in again")
        scheme, _, shown = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not shown:
            raise Unauthenticated("a token is needed: send `Authorization: Bearer TOKEN`")
        return await self.of_token(shown)

    async def of_token(self, shown: str) -> Caller:
        """Who shows a token. Raises Unauthenticated, and Unreachable where it cannot be looked up."""
        if self.token is not None and compare_digest(shown.encode(), self.token.encode()):
            return Caller(DAEMON_TOKEN, EVERYTHING, "tcp", DAEMON_TOKEN)
        if shown.startswith(PREFIX):
            return await self._of_secret(shown, "the token is unknown, revoked or expired")
        oidc = self.oidc
        if oidc is not None and shown.count(".") == 2:
            who = await oidc.bearer(shown)
            return Caller(who.user, self.grants(who.user, who.groups), "tcp", "oidc")
        raise Unauthenticated("the token is not the daemon's")

    def grants(self, user: str, groups: tuple[str, ...] = ()) -> tuple[Grant, ...]:
        """What a user may do by the access file."""
        return () if self.file is None else self.file.rules.grants(user, groups)

    def rate_limit_anonymous(self, connection: HTTPConnection) -> None:
        """Count a request without valid credentials, by its address. Raises TooOften."""
        if self.rates is not None:
            transport, client = transport_of(connection.scope), connection.client
            at = (
                f"user id {transport.uid}"
                if transport.via == "socket" or client is None
                else client.host
            )
            self.rates.consume(f"{STRANGER}{at}")

    def check_unix_user(self, user: str) -> None:
        """Raise BadInput if there is no Unix user for the jobs of a user."""
        if self.runs_as_submitter and self.file is not None:
            unix_user(user, self.file.rules.unix_of_user.get(user))

    def check_acts_as(self, caller: Caller, user: str) -> None:
        """Raise Forbidden if a caller would run commands as a user with more permissions.

        Where jobs run as Unix users of their own, whoever runs a command in a job of somebody is that one to the
        socket, and has his files.
        """
        if not self.runs_as_submitter or user == caller.name or caller.is_operator:
            return
        if exceeds(self.grants(user), caller.grants):
            raise Forbidden(
                f"{user} may do more than {caller.name}, and jobs run as their users here"
            )

    def check_hands_in_for(self, caller: Caller, user: str, queue: str) -> None:
        """Raise Forbidden and BadInput where a caller may not have a job run as the Unix user of a user."""
        if not self.runs_as_submitter:
            return
        self.check_acts_as(caller, user)
        may = any(Power.SUBMIT in each.powers and each.covers(queue) for each in self.grants(user))
        if not may and user != caller.name and not caller.is_operator:
            raise Forbidden(
                f"{user} may not submit jobs to queue {queue}, so nobody may submit them for {user}"
            )
        self.check_unix_user(user)

    async def _of_secret(self, secret: str, otherwise: str) -> Caller:
        row = None if self.tokens is None else await self.tokens.find(secret)
        if row is None:
            raise Unauthenticated(otherwise)
        return self._of_row(row)

    def _of_row(self, row: TokenRow) -> Caller:
        if row.kind == "daemon-session":
            return Caller(DAEMON_TOKEN, EVERYTHING, "tcp", DAEMON_TOKEN)
        grants = narrowed(self.grants(row.user, row.groups), scope_of(row.role, row.queue))
        return Caller(row.user, grants, "tcp", row.id)

    def _peer(self, uid: int | None) -> Caller:
        name = user_name(uid)
        if self.file is None or uid in (0, os.geteuid()):
            return Caller(name, EVERYTHING, "socket", f"uid {uid}")
        user = self.file.rules.user_of_unix(name)
        if user is None:
            raise Unauthenticated(
                f"the access file names no user for the Unix user {name}; use a token over TCP"
            )
        return Caller(user, self.grants(user), "socket", f"uid {uid}")


async def caller_of(connection: HTTPConnection) -> Caller:
    """The caller of a request. Raises Unauthenticated, Forbidden (a cookie from another site) and TooOften.

    The result is kept for the request, so that it counts once against the rate limit.
    """
    state = connection.scope.setdefault("state", {})
    known: Caller | None = state.get("caller")
    if known is not None:
        return known
    access: Access = connection.app.state.access
    authorization = connection.headers.get("authorization")
    cookie = cookie_of(connection)
    try:
        caller = await access.caller(transport_of(connection.scope), authorization, cookie)
    except Unauthenticated:
        access.rate_limit_anonymous(connection)
        raise
    state["caller"] = caller
    if (made_over := state.get(STATE)) is not None:
        made_over.authenticate()
    if caller.via == "tcp" and authorization is None:
        check_origin(connection, access.url)
    if access.rates is not None:
        access.rates.consume(caller.name)
    return caller


CurrentCaller = Annotated[Caller, Depends(caller_of)]


def transport_of(scope: Any) -> Transport:
    """The transport of a request; TCP, the strict one, where the server noted none."""
    transport = scope.get("state", {}).get("transport")
    return transport if isinstance(transport, Transport) else Transport("tcp")


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
