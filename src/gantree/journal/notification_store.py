"""Notifications in the database of a journal: which facts are still to be looked at, and what is not delivered yet.

What a fact says is put into the rows in the transaction that moves the cursor, so no event is missed or doubled
here. A row goes once it is delivered or given up. What is sent, and where, is not decided here.
"""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import ColumnElement, bindparam, or_, select, tuple_

from gantree.journal.contract import RecordedFact
from gantree.journal.encoding.codec import FACT_CODEC, Encoded
from gantree.journal.sql.database import Database
from gantree.journal.sql.notification_tables import notification_mark, notifications
from gantree.journal.sql.tables import facts, turns
from gantree.model.errors import NotLeading
from gantree.model.facts import Fact


@dataclass(frozen=True, slots=True)
class Notification:
    """A message about one fact to one address. at is the moment of the fact, next_at that of the next try."""

    seq: int
    channel: str
    target: str
    address: str
    body: str
    at: float
    tries: int = 0
    next_at: float = 0.0


@dataclass(frozen=True, slots=True)
class FactPage:
    """The facts of some kinds after one seq, up to another."""

    after: int
    to: int
    facts: tuple[RecordedFact, ...]


_LAST_FACT = select(turns.c.last_fact).order_by(turns.c.turn.desc()).limit(1)
_ROW = (notifications.c.seq == bindparam("of_seq")) & (
    notifications.c.channel == bindparam("of_channel")
)
_POSTPONE = (
    notifications.update()
    .where(_ROW)
    .values(tries=bindparam("new_tries"), next_at=bindparam("new_next_at"))
)


class NotificationStore:
    """The rows. Any thread may use it; every method may wait for the database, and raises JournalError."""

    def __init__(self, database: Database) -> None:
        """database is the journal's. Where many may write at once, what is written here waits for no turn."""
        self._database = database if database.owned else database.apart()

    def begin(self) -> None:
        """Switch notifications on: the first time, from the newest fact on; later, from where they were."""
        with self._database.writing() as connection:
            newest = connection.execute(_LAST_FACT).scalar_one_or_none() or 0
            unset = notification_mark.c.cursor.is_(None)
            connection.execute(notification_mark.update().where(unset).values(cursor=newest))

    def cursor(self) -> int:
        """The seq of the newest fact that was looked at; `begin` was called before."""
        with self._database.reading() as connection:
            return int(connection.execute(select(notification_mark.c.cursor)).scalar_one())

    def facts(self, kinds: Collection[type[Fact]], after: int, most: int) -> FactPage:
        """The facts of these kinds among the next `most` facts."""
        wanted = select(facts.c.seq, facts.c.kind, facts.c.version, facts.c.data)
        names = [kind.__name__ for kind in kinds]
        with self._database.reading() as connection:
            newest = int(connection.execute(_LAST_FACT).scalar_one_or_none() or 0)
            to = min(newest, after + most)
            if to <= after:
                return FactPage(after, after, ())
            wanted = wanted.where(facts.c.seq > after, facts.c.seq <= to, facts.c.kind.in_(names))
            rows = connection.execute(wanted.order_by(facts.c.seq)).all()
        found = (RecordedFact(seq, FACT_CODEC.decode(Encoded(*code))) for seq, *code in rows)
        return FactPage(after, to, tuple(found))

    def add(self, rows: Sequence[Notification], after: int, to: int) -> None:
        """Record the notifications of a page of facts, and move the cursor behind it.

        Raises NotLeading, and has changed nothing, where another process has moved it.
        """
        moved = notification_mark.update().where(notification_mark.c.cursor == after)
        with self._database.writing() as connection:
            if connection.execute(moved.values(cursor=to)).rowcount != 1:
                raise NotLeading("another daemon makes the notifications of this journal")
            if rows:
                connection.execute(notifications.insert(), [asdict(row) for row in rows])

    def targets(self, now: float, longest_wait_s: float) -> list[str]:
        """The targets for which something is due."""
        wanted = select(notifications.c.target).where(_is_due(now, longest_wait_s)).distinct()
        with self._database.reading() as connection:
            return list(connection.execute(wanted.order_by(notifications.c.target)).scalars())

    def due(self, target: str, now: float, longest_wait_s: float, most: int) -> list[Notification]:
        """What is due for a target, the oldest fact first."""
        wanted = select(notifications).where(notifications.c.target == target)
        wanted = wanted.where(_is_due(now, longest_wait_s))
        with self._database.reading() as connection:
            rows = connection.execute(wanted.order_by(notifications.c.seq).limit(most)).all()
        return [Notification(**row._mapping) for row in rows]

    def settle(self, done: Sequence[Notification], postponed: Sequence[Notification]) -> None:
        """Delete what was delivered or given up, and write down the next tries of the rest."""
        if not done and not postponed:
            return
        keys = [(row.seq, row.channel) for row in done]
        key = tuple_(notifications.c.seq, notifications.c.channel)
        later = [
            {
                "of_seq": row.seq,
                "of_channel": row.channel,
                "new_tries": row.tries,
                "new_next_at": row.next_at,
            }
            for row in postponed
        ]
        with self._database.writing() as connection:
            if keys:
                connection.execute(notifications.delete().where(key.in_(keys)))
            if later:
                connection.execute(_POSTPONE, later)

    def older_than(self, at: float, most: int) -> list[Notification]:
        """Notifications of facts before a moment."""
        wanted = select(notifications).where(notifications.c.at < at).limit(most)
        with self._database.reading() as connection:
            return [Notification(**row._mapping) for row in connection.execute(wanted)]


def _is_due(now: float, longest_wait_s: float) -> ColumnElement[bool]:
    """A try that is far ahead was written by a clock that was wrong."""
    next_at = notifications.c.next_at
    return or_(next_at <= now, next_at > now + 2 * longest_wait_s)
