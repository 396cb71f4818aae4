"""What ended jobs used, added up in SQL."""

from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, false, func, or_, select, true

from gantree.accounting.ended_jobs import EndedJob, RecordedJob, Scope
from gantree.accounting.ended_use import EndedUse
from gantree.accounting.usage import UsageAmounts
from gantree.journal.sql.history_tables import ended_jobs
from gantree.journal.sql.patterns import within, writable

SUMS = ("held_gpu_s", "useful_gpu_s", "idle_gpu_s", "lost_gpu_s", "waited_s")


def ended_use(
    connection: Connection, since: float, until: float, scopes: tuple[Scope, ...], limit: int
) -> EndedUse:
    """What jobs used in their lives that were there in a period, and have ended; the largest up to a limit."""
    table = ended_jobs.c
    there = and_(
        table.ended_at >= since,
        table.submitted_at < until,
        or_(table.held_gpu_s > 0, table.waited_s > 0),
        or_(false(), *(_in_scope(connection.dialect.name, scope) for scope in scopes)),
    )
    sums = select(table.gpu_model, func.count(), *(func.sum(table[name]) for name in SUMS))
    of_model = connection.execute(sums.where(there).group_by(table.gpu_model)).all()
    order = table.held_gpu_s.desc(), table.waited_s.desc(), table.seq
    keys = select(table.seq).where(there).order_by(*order).limit(limit)
    largest = connection.execute(select(ended_jobs).where(table.seq.in_(keys)).order_by(*order))
    return EndedUse(
        sum(row[1] for row in of_model),
        tuple(recorded(row).ended for row in largest),
        {row[0]: _amounts(*row[2:]) for row in of_model},
    )


def recorded(row: Row[Any]) -> RecordedJob:
    """The job of a row."""
    values = dict(row._mapping)
    seq, values["user"] = values.pop("seq"), values.pop("user_name")
    return RecordedJob(seq, EndedJob(**values))


def _amounts(held: float, useful: float, idle: float, lost: float, waited: float) -> UsageAmounts:
    return UsageAmounts(
        allocated_gpu_s=held,
        useful_gpu_s=useful,
        idle_gpu_s=idle,
        lost_gpu_s=lost,
        waited_s=waited,
    )


def _in_scope(dialect: str, scope: Scope) -> ColumnElement[bool]:
    queue = within(dialect, ended_jobs.c.queue, scope.queue) if scope.queue else true()
    user = true() if scope.user is None else ended_jobs.c.user_name == writable(scope.user)
    return and_(queue, user)
