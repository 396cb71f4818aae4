"""Snapshots as rows, and deletion of what they cover, on a connection of the journal.

A text is kept as it is, beside its SHA-256, so damage is seen and never read. What it says: `snapshots`.
"""

from collections.abc import Callable
from hashlib import sha256
from typing import Any

from sqlalchemy import Column, Connection, Row, bindparam, func, select

from gantree.journal.contract import Compacted, Snapshot
from gantree.journal.sql.tables import compacted, facts, inbox, orders, set_aside, snapshots, turns
from gantree.model.errors import JournalError

KEPT = 2
"""So many snapshots are kept: the newest, and one in case it is damaged."""


def digest_of(text: str) -> str:
    """Return the checksum of a text."""
    return sha256(text.encode(errors="surrogatepass")).hexdigest()


def snapshot_of(row: Row[tuple[int, int, int, str, str]]) -> Snapshot | None:
    """The snapshot, None if it is damaged."""
    if digest_of(row.text) != row.sha256:
        return None
    return Snapshot(seq=row.seq, cursor=row.cursor, turns=row.turn, text=row.text)


def save(connection: Connection, name: str, snapshot: Snapshot) -> None:
    """Keep a snapshot, and drop those that are older than the one before it."""
    end = connection.execute(select(turns).where(turns.c.turn == snapshot.turns)).one_or_none()
    if end is None or (end.last_fact, end.cursor) != (snapshot.seq, snapshot.cursor):
        raise JournalError(
            f"journal {name}: the snapshot of turn {snapshot.turns} does not end where that turn ended"
        )
    row = {
        "turn": snapshot.turns,
        "seq": snapshot.seq,
        "cursor": snapshot.cursor,
        "sha256": digest_of(snapshot.text),
        "text": snapshot.text,
    }
    connection.execute(snapshots.delete().where(snapshots.c.turn == snapshot.turns))
    connection.execute(snapshots.insert().values(row))
    newest = select(snapshots.c.turn).order_by(snapshots.c.turn.desc()).limit(KEPT)
    kept = connection.execute(newest).scalars().all()
    connection.execute(snapshots.delete().where(snapshots.c.turn < kept[-1]))


def latest(connection: Connection, name: str) -> Snapshot | None:
    """The newest readable snapshot. Raises JournalError if there must be one and there is none."""
    deleted = connection.execute(select(compacted.c.fact)).scalar_one()
    for row in connection.execute(select(snapshots).order_by(snapshots.c.turn.desc())).all():
        snapshot = snapshot_of(row)
        if snapshot is not None and snapshot.seq >= deleted:
            return snapshot
    if deleted:
        raise JournalError(
            f"journal {name} is damaged: facts up to {deleted} were compacted, and no snapshot of them is readable;"
            " restore it from a copy"
        )
    return None


def compact(connection: Connection, name: str, keep_after_seq: int) -> Compacted:
    """Delete the turns that end at a fact or before it, as far as a readable snapshot covers them."""
    snapshot = latest(connection, name)
    covered = select(turns).where(
        turns.c.last_fact <= keep_after_seq,
        turns.c.turn <= (snapshot.turns if snapshot else 0),
    )
    end = connection.execute(covered.order_by(turns.c.turn.desc()).limit(1)).one_or_none()
    if end is None:
        return Compacted(0, 0, 0)
    before = connection.execute(select(compacted.c.event)).scalar_one()
    marks = {"turn": end.turn, "fact": end.last_fact, "order": end.last_order, "event": end.cursor}
    connection.execute(compacted.update().values(marks))
    connection.execute(turns.delete().where(turns.c.turn < end.turn))
    emptied = inbox.update().where(
        inbox.c.seq > before,
        inbox.c.seq <= end.cursor,
        inbox.c.seq.not_in(select(set_aside.c.seq)),
    )
    return Compacted(
        facts=connection.execute(facts.delete().where(facts.c.seq <= end.last_fact)).rowcount,
        orders=connection.execute(orders.delete().where(orders.c.seq <= end.last_order)).rowcount,
        events=connection.execute(emptied.values(data="")).rowcount,
    )


def facts_before(connection: Connection, at: float) -> int:
    """The seq of the newest fact of turns that came to nothing but events observed before a moment; 0 for none."""
    event = _last_row(connection, inbox.c.seq, inbox.c.observed_at, lambda found: found < at)
    turn = _last_row(connection, turns.c.turn, turns.c.cursor, lambda found: found <= event)
    wanted = select(turns.c.last_fact).where(turns.c.turn <= turn).order_by(turns.c.turn.desc())
    return int(connection.execute(wanted.limit(1)).scalar_one_or_none() or 0)


def _last_row(
    connection: Connection, key: Column[int], value: Column[Any], is_before: Callable[[Any], bool]
) -> int:
    """The key of the last row whose value is before something; 0 for none. Values grow with keys: halves are asked."""
    wanted = select(key, value).where(key > bindparam("after")).order_by(key).limit(1)
    before = 0
    after = int(connection.execute(select(func.max(key))).scalar_one_or_none() or 0)
    while before < after:
        middle = (before + after) // 2
        found, told = connection.execute(wanted, {"after": middle}).one()
        if is_before(told):
            before = found
        else:
            after = middle
    return before
