"""Tokens, sessions and the audit log in the database of a journal. Permissions are not decided here.

Any daemon on the database writes here, whoever leads: nothing of it is decided by, and no epoch is asked. A secret is
known by its SHA-256 alone: it has 256 random bits, so no slower digest is needed. Rows of the audit log are only ever
added.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from sqlalchemy import Select, bindparam, select

from gantree.journal.sql.database import Database
from gantree.journal.sql.tables import audit, tokens

Kind = Literal["token", "session", "daemon-session"]
"""A daemon-session was opened with the daemon's own token: it has that one's powers, and no user's."""


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token, or the session of a browser. It never allows more than its user may do, nor than role over queue.

    groups are those that an OIDC provider vouched for. parent is the token that it was opened or made with: it ends
    with that one.
    """

    id: str
    sha256: str
    kind: Kind
    user: str
    role: str
    queue: str
    created_at: float
    created_by: str
    expires_at: float | None = None
    revoked_at: float | None = None
    groups: tuple[str, ...] = ()
    parent: str | None = None

    def is_good(self, now: float) -> bool:
        """Neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


@dataclass(frozen=True, slots=True)
class AuditRow:
    """Who asked for what, through which door, and what came of it. seq 0: not written yet."""

    at: float
    who: str
    door: str
    route: str
    what: str
    status: int
    request_id: str
    seq: int = 0


_FIND = select(tokens).where(tokens.c.sha256 == bindparam("sha256"))
_BY_ID = select(tokens).where(tokens.c.id == bindparam("id"))
_LIST = select(tokens).where(tokens.c.kind == "token").order_by(tokens.c.created_at, tokens.c.id)
_ADD_AUDIT = audit.insert()


class AccessStore:
    """The rows. Any thread may use it; every method may wait for the database, and raises JournalError."""

    def __init__(self, database: Database) -> None:
        """database is the journal's. Where many may write at once, what is written here waits for no turn."""
        self._database = database if database.owned else database.apart()

    def add(self, row: TokenRow) -> None:
        """Make a token or session durable."""
        values = asdict(row) | {"user_name": row.user, "groups": json.dumps(row.groups)}
        del values["user"]
        with self._database.writing() as connection:
            connection.execute(tokens.insert().values(values))

    def find(self, sha256: str) -> TokenRow | None:
        """The token or session of a digest; None where there is none, or where its parent is good no more."""
        with self._database.reading() as connection:
            found = connection.execute(_FIND, {"sha256": sha256}).one_or_none()
            row = None if found is None else _token(dict(found._mapping))
            if row is None or row.parent is None:
                return row
            parent = connection.execute(_BY_ID, {"id": row.parent}).one_or_none()
        is_revoked = parent is None or parent.revoked_at is not None
        return None if is_revoked else row

    def token(self, token_id: str) -> TokenRow | None:
        """The token or session of an id."""
        with self._database.reading() as connection:
            found = connection.execute(_BY_ID, {"id": token_id}).one_or_none()
        return None if found is None else _token(dict(found._mapping))

    def all(self, user: str | None = None) -> list[TokenRow]:
        """All tokens, or those of a user, oldest first; sessions are none."""
        wanted = _LIST if user is None else _LIST.where(tokens.c.user_name == user)
        with self._database.reading() as connection:
            return [_token(dict(row._mapping)) for row in connection.execute(wanted)]

    def revoke(self, token_id: str, at: float) -> None:
        """From now on it is good for nothing, nor is what was made with it. Twice is the same as once."""
        ids = [token_id]
        with self._database.writing() as connection:
            while ids:
                still_good = tokens.c.id.in_(ids) & tokens.c.revoked_at.is_(None)
                connection.execute(tokens.update().where(still_good).values(revoked_at=at))
                below = tokens.c.parent.in_(ids) & tokens.c.revoked_at.is_(None)
                ids = [row.id for row in connection.execute(select(tokens.c.id).where(below))]

    def forget_sessions(self, ended_before: float) -> None:
        """Delete expired sessions; unlike tokens they are never listed."""
        old = (tokens.c.kind != "token") & (tokens.c.expires_at < ended_before)
        with self._database.writing() as connection:
            connection.execute(tokens.delete().where(old))

    def note(self, rows: Sequence[AuditRow]) -> None:
        """Make rows of the audit log durable, all of them in one transaction."""
        values = [asdict(row) for row in rows]
        for each in values:
            del each["seq"]
        with self._database.writing() as connection:
            connection.execute(_ADD_AUDIT, values)

    def audit(self, since: float | None, user: str | None, after: int, most: int) -> list[AuditRow]:
        """Rows of the audit log after a seq, oldest first."""
        wanted: Select[Any] = select(audit).where(audit.c.seq > after)
        if since is not None:
            wanted = wanted.where(audit.c.at >= since)
        if user is not None:
            wanted = wanted.where(audit.c.who == user)
        with self._database.reading() as connection:
            found = connection.execute(wanted.order_by(audit.c.seq).limit(most))
            return [AuditRow(**dict(row._mapping)) for row in found]


def _token(row: Mapping[str, Any]) -> TokenRow:
    values = dict(row)
    values["user"] = values.pop("user_name")
    values["groups"] = tuple(json.loads(values["groups"]))
    return TokenRow(**values)
