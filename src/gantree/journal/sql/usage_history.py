"""Roll-ups in SQL: what a turn adds to them, older ones made coarser, and their sums."""

from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from importlib import import_module
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Select,
    Table,
    and_,
    bindparam,
    case,
    cast,
    false,
    func,
    literal_column,
    or_,
    select,
)

from gantree.accounting.buckets import (
    DAY_S,
    HOUR_S,
    HOURS_KEPT_S,
    MINUTE_S,
    MINUTES_KEPT_S,
    Bucket,
    minute_of,
)
from gantree.accounting.ended_jobs import Scope
from gantree.accounting.usage import (
    CountedTo,
    UsageAmounts,
    UsageChange,
    UsageKey,
    UsageQuery,
    WaitAmounts,
)
from gantree.journal.sql.history_tables import (
    KEY,
    history_mark,
    usage_history,
    usage_sums,
    wait_history,
)
from gantree.journal.sql.patterns import within, writable
from gantree.journal.sql.statements import Statement
from gantree.journal.sql.usage_sums import (
    COLUMN_OF,
    USAGE,
    capacity_of_days,
    has_steps,
    has_totals,
    step_begin,
    summed,
    sums_of_steps,
    totals_of_days,
)

WAITS = tuple(one.name for one in fields(WaitAmounts))
HELD = ("allocated_gpu_s", "starting_gpu_s", "restart_gpu_s", "checkpoint_gpu_s", "useful_gpu_s", "idle_gpu_s",
        "lost_gpu_s", "waited_s")  # fmt: skip
"""What gangs held, by purpose, and waits. A column less makes a statement of a million rows a tenth quicker."""
CAPACITY = (
    "capacity_gpu_s", "allocated_gpu_s", "down_gpu_s", "held_gpu_s", "reserved_gpu_s", "stranded_gpu_s",
)  # fmt: skip
COARSER = ((MINUTE_S, HOUR_S, MINUTES_KEPT_S), (HOUR_S, DAY_S, HOURS_KEPT_S))
"""(width, width that it becomes, after how many seconds)."""


def _insert(table: Table, dialect: str) -> Any:
    """An insertion of a dialect, which is imported for it: that of PostgreSQL takes a tenth of the time of a start."""
    return import_module(f"sqlalchemy.dialects.{dialect}").insert(table)


def _insertion(table: Table, sums: tuple[str, ...], dialect: str) -> Any:
    """The insertion of given values."""
    return _adding(table, sums, _insert(table, dialect))


def _adding(table: Table, sums: tuple[str, ...], insert: Any) -> Any:
    """An insertion that adds to the row where there is one."""
    new = insert.excluded
    added = {name: table.c[name] + new[name] for name in sums}
    if table is usage_history:
        mark = table.c.counted_to
        added["counted_to"] = case((new.counted_to > mark, new.counted_to), else_=mark)
    return insert.on_conflict_do_update(
        index_elements=[column.name for column in table.primary_key], set_=added
    )


def _coarser(table: Table, sums: tuple[str, ...], dialect: str) -> Any:
    """Rows of one width, before a moment, as rows of another."""
    start = table.c.start - table.c.start % _number("to")
    keys = [column for column in table.primary_key if column.name not in ("width", "start")]
    amounts = [func.sum(table.c[name]).label(name) for name in sums]
    if table is usage_history:
        amounts.append(func.max(table.c.counted_to).label("counted_to"))
    rows = select(_number("to").label("width"), start.label("start"), *keys, *amounts)
    rows = rows.where(_old(table)).group_by(start, *keys)
    names = [*("width", "start"), *(key.name for key in keys), *(each.name for each in amounts)]
    return _adding(table, sums, _insert(table, dialect).from_select(names, rows))


def _number(name: str) -> ColumnElement[int]:
    return cast(bindparam(name), Integer)


def _old(table: Table) -> ColumnElement[bool]:
    return and_(table.c.width == bindparam("from"), table.c.start < bindparam("before"))


_TABLES = ((usage_history, USAGE), (usage_sums, USAGE), (wait_history, WAITS))
_ADD = {table.name: Statement(partial(_insertion, table, sums)) for table, sums in _TABLES}
_COARSEN = tuple(Statement(partial(_coarser, table, sums)) for table, sums in _TABLES)
_DELETE = tuple(Statement(table.delete().where(_old(table))) for table, _ in _TABLES)
_MARK = Statement(history_mark.update().values(counted_to=bindparam("moment")))


def write_usage(connection: Connection, change: UsageChange) -> None:
    """Add what a turn counted; once a minute, make older rows coarser. Runs nothing but `Statement`s."""
    if change.usage:
        _ADD["usage_history"].run(connection, [
            {"width": bucket.width, "start": bucket.start, "queue": writable(key.queue),
             "user_name": writable(key.user), "gpu_model": key.model, "project": writable(key.project),
             "device": key.device, "counted_to": change.counted_to.get(key, 0.0),
             **{name: getattr(amounts, name) for name in USAGE}}
            for (bucket, key), amounts in change.usage.items()
        ])  # fmt: skip
        _ADD["usage_sums"].run(connection, summed(change.usage))
    if change.waits:
        _ADD["wait_history"].run(connection, [
            {"width": bucket.width, "start": bucket.start, "queue": writable(wait.queue),
             "user_name": writable(wait.user), "bin": wait.bin, "jobs": each.jobs, "waited_s": each.waited_s}
            for (bucket, wait), each in change.waits.items()
        ])  # fmt: skip
    if change.is_minute_over:
        _MARK.run(connection, [{"moment": change.all_counted_to}])
        make_coarser(connection, change.all_counted_to)


def make_coarser(connection: Connection, now: float) -> None:
    """Turn minutes into hours and hours into days where they are old enough."""
    for width, to, kept_s in COARSER:
        values = {"from": width, "to": to, "before": int(now) - kept_s}
        for coarsen, delete in zip(_COARSEN, _DELETE, strict=True):
            coarsen.run(connection, [values])
            delete.run(connection, [values])


def counted_to(connection: Connection) -> CountedTo:
    """Up to which moments use is counted."""
    all_to = float(connection.execute(select(history_mark.c.counted_to)).scalar_one())
    table = usage_history.c
    keys = [table[name] for name in KEY]
    wanted = select(*keys, func.max(table.counted_to)).where(
        table.width == MINUTE_S, table.start >= int(minute_of(all_to)), table.counted_to > all_to
    )
    found = connection.execute(wanted.group_by(*keys))
    return CountedTo(all_to, {UsageKey(*key): at for *key, at in found})


def usage_steps(
    connection: Connection, query: UsageQuery
) -> list[tuple[Bucket, str, UsageAmounts]]:
    """(step, name, amounts) in order. A bucket that is wider than a step is what there is of its time."""
    if has_steps(query):
        return sums_of_steps(connection, query)
    wanted = _sums(connection, query, usage_history, USAGE, usage_history.c.width)
    return [
        (Bucket(max(row.width, query.step), row.step), row.name, UsageAmounts(*row[3:]))
        for row in connection.execute(wanted)
    ]


def usage_totals(
    connection: Connection, query: UsageQuery
) -> list[tuple[str, str, str, UsageAmounts]]:
    """(name, GPU model, device, amounts) of a whole period, whose ends are those of days; amounts of `HELD` alone."""
    if has_totals(query):
        totals = totals_of_days(connection, query, HELD)
        return [(name, model, device, _amounts(HELD, sums)) for name, model, device, sums in totals]
    table = usage_history
    name = table.c[COLUMN_OF.get(query.by, query.by)] if query.by != "all" else literal_column("''")
    keys = [name.label("name"), table.c.gpu_model, table.c.device]
    rows = select(*keys, *(func.sum(table.c[each]) for each in HELD)).where(
        *_in_days(query.since, query.until),
        *_conditions(connection.dialect.name, query, table),
    )
    found = connection.execute(rows.group_by(name, table.c.gpu_model, table.c.device))
    return [(row[0], row[1], row[2], _amounts(HELD, row[3:])) for row in found]


def capacity_of(connection: Connection, since: int, until: int) -> UsageAmounts:
    """The capacity of a period and what it was for, as far as `CAPACITY` goes; the ends are those of days."""
    return _amounts(CAPACITY, capacity_of_days(connection, since, until, CAPACITY))


def _amounts(columns: Sequence[str], sums: Sequence[Any]) -> UsageAmounts:
    return UsageAmounts(**dict(zip(columns, sums, strict=True)))


def _in_days(since: int, until: int) -> tuple[ColumnElement[bool], ...]:
    """Rows of whole days: a bucket is in one of them."""
    table = usage_history.c
    widths = table.width.in_([MINUTE_S, HOUR_S, DAY_S])
    return widths, table.start >= since, table.start < until


def wait_sums(connection: Connection, query: UsageQuery) -> list[tuple[int, str, int, WaitAmounts]]:
    """(start, name, bin, amounts) of each step in which there is something, in order."""
    wanted = _sums(connection, query, wait_history, WAITS, wait_history.c.bin)
    return [
        (row.step, row.name, row.bin, WaitAmounts(*row[3:])) for row in connection.execute(wanted)
    ]


def _sums(
    connection: Connection,
    query: UsageQuery,
    table: Table,
    sums: tuple[str, ...],
    *more: ColumnElement[Any],
) -> Select[Any]:
    step = step_begin(table.c.start, query.step).label("step")
    name = table.c[COLUMN_OF.get(query.by, query.by)] if query.by != "all" else literal_column("''")
    amounts = [func.sum(table.c[each]).label(each) for each in sums]
    rows = select(step, name.label("name"), *more, *amounts)
    rows = rows.where(
        table.c.width.in_([MINUTE_S, HOUR_S, DAY_S]),
        table.c.start > query.since - DAY_S,
        table.c.start + table.c.width > query.since,
        table.c.start < query.until,
        *_conditions(connection.dialect.name, query, table),
    )
    order = [step, *([name] if query.by != "all" else []), *more]
    return rows.group_by(*order).order_by(*order)


def _conditions(dialect: str, query: UsageQuery, table: Table) -> list[ColumnElement[bool]]:
    """Capacity is nobody's, so it is in sums of everything and of models alone."""
    is_capacity = and_(table.c.queue == "", table.c.user_name == "")
    conditions: list[ColumnElement[bool]] = []
    if query.by not in ("all", "model"):
        conditions.append(~is_capacity)
    if query.queue is not None:
        conditions.append(or_(is_capacity, within(dialect, table.c.queue, query.queue)))
    if query.user is not None:
        conditions.append(or_(is_capacity, table.c.user_name == writable(query.user)))
    if Scope() not in query.scopes:
        scopes = [_in_scope(dialect, table, scope) for scope in query.scopes]
        conditions.append(or_(is_capacity, false(), *scopes))
    return conditions


def _in_scope(dialect: str, table: Table, scope: Scope) -> ColumnElement[bool]:
    return and_(
        within(dialect, table.c.queue, scope.queue) if scope.queue else table.c.queue != "",
        *([] if scope.user is None else [table.c.user_name == writable(scope.user)]),
    )
