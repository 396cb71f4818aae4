"""The history in SQL: writes of a turn, and searches of ended jobs.

A search walks an index backwards, from the job that ended last, until it has found as many as it wants. No index has a
queue with all below it, so there is a walk for each queue by itself, and the newest rows of all walks are the answer.
Moments become bounds of seq first, which grows with them.
"""

from dataclasses import fields
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, bindparam, false, func, or_, select

from gantree.accounting.buckets import Bucket
from gantree.accounting.change import HistoryChange
from gantree.accounting.ended_jobs import EndedJob, JobSearch, RecordedJob, Scope
from gantree.accounting.ended_use import EndedUse
from gantree.accounting.usage import CountedTo, UsageAmounts, UsageKey, UsageQuery, WaitAmounts
from gantree.journal.sql.book import book_rows
from gantree.journal.sql.database import Database
from gantree.journal.sql.ended_use import ended_use, recorded
from gantree.journal.sql.history_tables import ended_jobs, history_mark
from gantree.journal.sql.patterns import WILDCARDS, matches, writable
from gantree.journal.sql.statements import Statement
from gantree.journal.sql.usage_history import (
    capacity_of,
    counted_to,
    usage_steps,
    usage_totals,
    wait_sums,
    write_usage,
)
from gantree.model.access import is_within

NAMES = tuple(one.name for one in fields(EndedJob) if one.name != "user")
MOST_WALKS = 100
"""A search that would take more walks than these takes one, over all jobs."""
_INSERT = Statement(ended_jobs.insert())
_TELL_LATE = Statement(
    ended_jobs.update()
    .where(ended_jobs.c.job == bindparam("of_job"))
    .values(useful_gpu_s=bindparam("useful"), idle_gpu_s=bindparam("idle"))
)


def write_history(connection: Connection, change: HistoryChange, after_fact: int) -> None:
    """Record what a turn adds, whose first fact comes after a seq. Runs nothing but `Statement`s."""
    rows = [_row(after_fact + 1 + index, ended) for index, ended in change.ended]
    if rows:
        _INSERT.run(connection, rows)
    if change.told_late:
        _TELL_LATE.run(connection, [
            {"of_job": writable(job), "useful": useful, "idle": idle}
            for job, useful, idle in change.told_late
        ])  # fmt: skip
    if change.usage is not None:
        write_usage(connection, change.usage)


def _row(seq: int, ended: EndedJob) -> dict[str, Any]:
    values = {name: getattr(ended, name) for name in NAMES}
    values["user_name"] = ended.user
    texts = ("job", "name", "queue", "user_name", "reason", "last_failure", "nodes", "project")
    return {"seq": seq, **values, **{name: writable(values[name]) for name in texts}}


class SqlHistory:
    """Reads the history of a journal. Any thread may use it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def ended_job(self, job: str) -> RecordedJob | None:
        """The ended job of an id."""
        wanted = select(ended_jobs).where(ended_jobs.c.job == writable(job))
        with self._database.reading() as connection:
            found = connection.execute(wanted).first()
        return None if found is None else recorded(found)

    def ended_jobs(self, search: JobSearch, before: int | None, limit: int) -> list[RecordedJob]:
        """The ended jobs that a search finds, the last that ended first."""
        with self._database.reading() as connection:
            common = [*_bounds(connection, search, before), *_conditions(connection, search)]
            rows = dict[int, Row[Any]]()
            for walk in _walks(connection, search):
                wanted = select(ended_jobs).where(*common, *walk)
                newest = wanted.order_by(ended_jobs.c.seq.desc()).limit(limit)
                rows.update((row.seq, row) for row in connection.execute(newest))
        return [recorded(rows[seq]) for seq in sorted(rows, reverse=True)[:limit]]

    def usage(self, query: UsageQuery) -> list[tuple[Bucket, str, UsageAmounts]]:
        """(step, name, amounts) of each step in which there is something, in order."""
        with self._database.reading() as connection:
            return usage_steps(connection, query)

    def totals(self, query: UsageQuery) -> list[tuple[str, str, str, UsageAmounts]]:
        """(name, GPU model, device, amounts) of a whole period, whose ends are those of days: what was held, and waits.

        The step of the query is not read.
        """
        with self._database.reading() as connection:
            return usage_totals(connection, query)

    def capacity(self, since: int, until: int) -> UsageAmounts:
        """The capacity of a period, what of it was allocated, and what the rest was for; the ends are those of days."""
        with self._database.reading() as connection:
            return capacity_of(connection, since, until)

    def ended_use(
        self, since: float, until: float, scopes: tuple[Scope, ...], limit: int
    ) -> EndedUse:
        """What jobs used in their lives that were there in a period and have ended; limit: of the largest."""
        with self._database.reading() as connection:
            return ended_use(connection, since, until, scopes, limit)

    def book(
        self, since: int, until: int, step: int
    ) -> list[tuple[Bucket, UsageKey, UsageAmounts]]:
        """(bucket, key, amounts) of each step and key in which there is something, in order."""
        with self._database.reading() as connection:
            return list(book_rows(connection, since, until, step))

    def waits(self, query: UsageQuery) -> list[tuple[int, str, int, WaitAmounts]]:
        """(start, name, bin, amounts) of each step in which there is something, in order."""
        with self._database.reading() as connection:
            return wait_sums(connection, query)

    def counted_to(self) -> CountedTo:
        """Up to which moments use is counted."""
        with self._database.reading() as connection:
            return counted_to(connection)

    def rebuild_after(self) -> int | None:
        """The seq of the fact after which the history is to be made from facts again; None: it is complete."""
        with self._database.reading() as connection:
            after: int | None = connection.execute(
                select(history_mark.c.rebuild_after)
            ).scalar_one()
        return after


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


def _conditions(connection: Connection, search: JobSearch) -> list[ColumnElement[bool]]:
    """What all walks have in common."""
    conditions: list[ColumnElement[bool]] = []
    if search.user is not None:
        conditions.append(ended_jobs.c.user_name == writable(search.user))
    if search.name is not None:
        conditions.append(_named(connection.dialect.name, search.name))
    if search.exact_name is not None:
        conditions.append(ended_jobs.c.name == writable(search.exact_name))
    if search.outcomes:
        conditions.append(ended_jobs.c.outcome.in_(sorted(search.outcomes)))
    return conditions


def _walks(connection: Connection, search: JobSearch) -> list[list[ColumnElement[bool]]]:
    """The conditions of each walk: one queue of each scope, or all of it."""
    scopes = search.scopes
    if search.queue is None and not any(scope.queue for scope in scopes):
        return [_of_user(scope) for scope in dict.fromkeys(scopes)]
    queues = _queues(connection)
    if search.queue is not None:
        queues = [queue for queue in queues if is_within(queue, search.queue)]
    walks = dict.fromkeys(
        (queue, scope.user)
        for scope in scopes
        for queue in queues
        if not scope.queue or is_within(queue, scope.queue)
    )
    if len(walks) > MOST_WALKS or _is_narrow(search):
        found = [
            and_(ended_jobs.c.queue == queue, *_of_user(Scope("", user))) for queue, user in walks
        ]
        return [[or_(false(), *found)]]
    return [[ended_jobs.c.queue == queue, *_of_user(Scope("", user))] for queue, user in walks]


def _is_narrow(search: JobSearch) -> bool:
    """Whether the index of names finds few jobs."""
    begins = search.exact_name or (search.name or "")[:1]
    return begins not in ("", *WILDCARDS)


def _of_user(scope: Scope) -> list[ColumnElement[bool]]:
    return [] if scope.user is None else [ended_jobs.c.user_name == writable(scope.user)]


def _queues(connection: Connection) -> list[str]:
    """All queues that a job ended in, by a jump in the index from each to the next."""
    first = select(func.min(ended_jobs.c.queue).label("queue")).cte("queues", recursive=True)
    larger = select(func.min(ended_jobs.c.queue)).where(ended_jobs.c.queue > first.c.queue)
    after = select(larger.scalar_subquery()).where(first.c.queue.is_not(None))
    queues = first.union_all(after)
    found = connection.execute(select(queues.c.queue).where(queues.c.queue.is_not(None)))
    return list(found.scalars())


def _named(dialect: str, pattern: str) -> ColumnElement[bool]:
    """As the pattern says; one without wildcards is a name, or an id."""
    if WILDCARDS.isdisjoint(pattern):
        name = writable(pattern)
        return or_(ended_jobs.c.name == name, ended_jobs.c.job == name)
    columns = (ended_jobs.c.name, ended_jobs.c.job)
    return or_(*(matches(dialect, column, pattern) for column in columns))
