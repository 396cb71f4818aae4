"""The history in SQL: writes of a turn, and searches of ended jobs.

A search by queue, user, name or outcome walks the index of that column backwards; one without walks the table itself.
Moments become bounds of seq first, which grows with them.
"""

from dataclasses import asdict
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Row, and_, false, or_, select, true

from gantree.accounting.change import HistoryChange
from gantree.accounting.ended_jobs import EndedJob, JobSearch, RecordedJob, Scope
from gantree.journal.sql.database import Database
from gantree.journal.sql.history_tables import ended_jobs, history_mark
from gantree.journal.sql.statements import Statement

ESCAPE = "\\"
WILDCARDS = frozenset("*?")
_INSERT = Statement(ended_jobs.insert())


def write_history(connection: Connection, change: HistoryChange, after_fact: int) -> None:
    """Record what a turn adds, whose first fact comes after a seq. Runs nothing but `Statement`s."""
    rows = [_row(after_fact + 1 + index, ended) for index, ended in change.ended]
    if rows:
        _INSERT.run(connection, rows)


def _row(seq: int, ended: EndedJob) -> dict[str, Any]:
    values = asdict(ended)
    values["user_name"] = values.pop("user")
    texts = ("job", "name", "queue", "user_name", "reason", "last_failure", "nodes")
    return {"seq": seq, **values, **{name: _writable(values[name]) for name in texts}}


def _writable(text: str) -> str:
    """PostgreSQL's text has no NUL, and nobody's has a lone surrogate."""
    return text.encode(errors="replace").decode().replace("\0", "?")


class SqlHistory:
    """Reads the history of a journal. Any thread may use it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def ended_job(self, job: str) -> RecordedJob | None:
        """The ended job of an id."""
        wanted = select(ended_jobs).where(ended_jobs.c.job == _writable(job))
        with self._database.reading() as connection:
            found = connection.execute(wanted).first()
        return None if found is None else _recorded(found)

    def ended_jobs(self, search: JobSearch, before: int | None, limit: int) -> list[RecordedJob]:
        """The ended jobs that a search finds, the last that ended first."""
        with self._database.reading() as connection:
            bounds = _bounds(connection, search, before)
            wanted = select(ended_jobs).where(
                *bounds, *_conditions(connection.dialect.name, search)
            )
            wanted = wanted.order_by(ended_jobs.c.seq.desc()).limit(limit)
            return [_recorded(row) for row in connection.execute(wanted)]

    def rebuild_after(self) -> int | None:
        """The seq of the fact after which the history is to be made from facts again; None: it is complete."""
        with self._database.reading() as connection:
            after: int | None = connection.execute(
                select(history_mark.c.rebuild_after)
            ).scalar_one()
        return after


def _recorded(row: Row[Any]) -> RecordedJob:
    values = dict(row._mapping)
    seq, values["user"] = values.pop("seq"), values.pop("user_name")
    return RecordedJob(seq, EndedJob(**values))


def _bounds(
    connection: Connection, search: JobSearch, before: int | None
) -> list[ColumnElement[bool]]:
    """Limits of seq. since and until are looked up once, not compared with every row."""
    bounds = [] if before is None else [ended_jobs.c.seq < before]
    if search.since is not None:
        first = _first_from(connection, search.since)
        bounds.append(ended_jobs.c.seq >= first if first is not None else false())
    if search.until is not None:
        end = _first_from(connection, search.until)
        bounds += [] if end is None else [ended_jobs.c.seq < end]
    return bounds


def _first_from(connection: Connection, moment: float) -> int | None:
    """The seq of the first job that ended at a moment or later."""
    wanted = select(ended_jobs.c.seq).where(ended_jobs.c.ended_at >= moment)
    order = ended_jobs.c.ended_at, ended_jobs.c.seq
    found: int | None = connection.execute(wanted.order_by(*order).limit(1)).scalar()
    return found


def _conditions(dialect: str, search: JobSearch) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if search.queue is not None:
        conditions.append(_within(dialect, search.queue))
    if search.user is not None:
        conditions.append(ended_jobs.c.user_name == _writable(search.user))
    if search.name is not None:
        conditions.append(_named(dialect, search.name))
    if search.exact_name is not None:
        conditions.append(ended_jobs.c.name == _writable(search.exact_name))
    if search.outcomes:
        conditions.append(ended_jobs.c.outcome.in_(sorted(search.outcomes)))
    if Scope() not in search.scopes:
        scopes = (_in_scope(dialect, scope) for scope in search.scopes)
        conditions.append(or_(false(), *scopes))
    return conditions


def _named(dialect: str, pattern: str) -> ColumnElement[bool]:
    """As the pattern says; one without wildcards is a name, or an id."""
    if WILDCARDS.isdisjoint(pattern):
        name = _writable(pattern)
        return or_(ended_jobs.c.name == name, ended_jobs.c.job == name)
    columns = (ended_jobs.c.name, ended_jobs.c.job)
    return or_(*(_matches(dialect, column, pattern) for column in columns))


def _within(dialect: str, queue: str) -> ColumnElement[bool]:
    """Of a queue, or of one below it."""
    column, below = ended_jobs.c.queue, _matches(dialect, ended_jobs.c.queue, f"{queue}/*")
    return or_(column == _writable(queue), below)


def _matches(dialect: str, column: Column[str], pattern: str) -> ColumnElement[bool]:
    """Whether a text is as a pattern with `*` and `?` has it. SQLite's LIKE ignores case, its GLOB does not."""
    pattern = _writable(pattern)
    if dialect == "sqlite":
        return column.op("GLOB", is_comparison=True)(pattern.replace("[", "[[]"))
    for special in (ESCAPE, "%", "_"):
        pattern = pattern.replace(special, ESCAPE + special)
    return column.like(pattern.replace("*", "%").replace("?", "_"), escape=ESCAPE)


def _in_scope(dialect: str, scope: Scope) -> ColumnElement[bool]:
    parts = [
        *([_within(dialect, scope.queue)] if scope.queue else []),
        *([] if scope.user is None else [ended_jobs.c.user_name == _writable(scope.user)]),
    ]
    return and_(true(), *parts)
