"""Tokens and sessions: issue, look up, revoke. Only digests are stored; the secret is shown once.

A secret is `gantree_` and 256 random bits, so that scanners know one that was committed by mistake. What was looked up
is remembered for a second: a request costs no look into the database, and a token that another daemon revoked is good
for a second more at most.
"""

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from gantree.journal.access_store import AccessStore, Kind, TokenRow
from gantree.model.access import Grant
from gantree.model.errors import NotFound

PREFIX = "gantree_"
KEPT_S = 1.0
MOST_KEPT = 10_000
LONGEST_SECRET = 200
SESSION_S = 12 * 3600.0
FORGET_EVERY_S = 3600.0


@dataclass(frozen=True, slots=True)
class TokenSpec:
    """A token or session to be made. role "": all that the user may do. expires_at None: good until it is revoked."""

    user: str
    role: str
    queue: str
    by: str
    expires_at: float | None
    kind: Kind = "token"
    groups: tuple[str, ...] = ()
    parent: str | None = None


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A new token: its secret, which is shown this once, and the row that is kept."""

    secret: str = field(repr=False)
    row: TokenRow


class Tokens:
    """All tokens and sessions of a journal. For one event loop; the database is asked on other threads."""

    def __init__(self, book: AccessStore, clock: Callable[[], float] = time.time) -> None:
        self._book = book
        self._clock = clock
        self._kept: OrderedDict[str, tuple[float, TokenRow | None]] = OrderedDict()
        self._forgot_at = 0.0

    async def issue(self, spec: TokenSpec) -> IssuedToken:
        """A new one, durable when this returns."""
        secret = PREFIX + secrets.token_urlsafe(32)
        row = TokenRow(
            secrets.token_hex(6),
            _digest(secret),
            spec.kind,
            spec.user,
            spec.role,
            spec.queue,
            self._clock(),
            spec.by,
            spec.expires_at,
            None,
            spec.groups,
            spec.parent,
        )
        await asyncio.to_thread(self._add, row)
        self._kept.pop(row.sha256, None)
        return IssuedToken(secret, row)

    def _add(self, row: TokenRow) -> None:
        if row.kind != "token" and self._clock() - self._forgot_at > FORGET_EVERY_S:
            self._forgot_at = self._clock()
            self._book.forget_sessions(self._forgot_at)
        self._book.add(row)

    async def find(self, secret: str) -> TokenRow | None:
        """Return the row of a secret; None if it is invalid. Raises JournalError."""
        if len(secret) > LONGEST_SECRET:
            return None
        digest, now = _digest(secret), self._clock()
        until, row = self._kept.get(digest, (0.0, None))
        if not now < until <= now + KEPT_S:
            row = await asyncio.to_thread(self._book.find, digest)
            self._kept[digest] = (now + KEPT_S, row)
            self._kept.move_to_end(digest)
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return row if row is not None and row.is_good(now) else None

    async def all(self, user: str | None = None) -> list[TokenRow]:
        """All tokens, or those of a user."""
        return await asyncio.to_thread(self._book.all, user)

    async def known(self, token_id: str) -> TokenRow | None:
        """The token or session of an id; None for what is no id of one."""
        return await asyncio.to_thread(self._book.token, token_id)

    async def one(self, token_id: str) -> TokenRow:
        """The token of an id. Raises NotFound."""
        row = await self.known(token_id)
        if row is None:
            raise NotFound(f"there is no token {token_id}")
        return row

    async def revoke(self, token_id: str) -> None:
        """From now on it is good for nothing, nor is what was opened or made with it."""
        await asyncio.to_thread(self._book.revoke, token_id, self._clock())
        self._kept.clear()

    @property
    def now(self) -> float:
        """Seconds since 1970, as expiry counts."""
        return self._clock()


def exceeds(grants: Sequence[Grant], held: Sequence[Grant]) -> bool:
    """Whether grants hold a power that others do not give over the same queue."""
    for each in grants:
        missing = each.powers
        for other in held:
            if other.covers(each.queue):
                missing &= ~other.powers
        if missing:
            return True
    return False


def _digest(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()
