"""Roll-ups summed up beforehand: by queue, GPU model, project or device, for steps of a minute, an hour and a day.

`usage_history` has a row for each queue, user, model, project and device, a thousand of them a minute on a large site.
A page that shows a day of queues would add up half a million. So a turn adds its amounts here, too, under the name that
they have in each dimension: for a minute, an hour, a day and a week as `step`s of an answer; others are sums of these.
A row is as wide as its step, or as the row of `usage_history` whose amounts it has, where that is wider; it becomes
coarser with it. So sums of a step are the same from either table.

`gantree usage` adds up whole days by queue, user, model, project or device, of each GPU model and device. These totals
are here by day alone, in dimensions of their own (`TOTAL_OF`).

All other sums are added up from `usage_history`: steps by user or of one, and totals of less than everybody
(`has_steps`, `has_totals`). A condition on the width excludes no row of a step; it is there for the primary key, which
begins with it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Select,
    and_,
    case,
    false,
    func,
    literal,
    literal_column,
    not_,
    or_,
    select,
)

from gantree.accounting.buckets import DAY_S, HOUR_S, MINUTE_S, Bucket
from gantree.accounting.ended_jobs import Scope
from gantree.accounting.steps import AFTER_MONDAY_S, WEEK_S, begin_of
from gantree.accounting.usage import UsageAmounts, UsageKey, UsageQuery
from gantree.journal.sql.history_tables import usage_history, usage_sums
from gantree.journal.sql.patterns import within, writable

USAGE = tuple(one.name for one in fields(UsageAmounts))
STEPS = (MINUTE_S, HOUR_S, DAY_S, WEEK_S)
CAPACITY = "capacity"
"""The dimension of what is nobody's, by GPU model; no other one has that."""
DIMENSIONS = ("queue", "model", "project", "device")
TOTAL_OF = {
    each: f"{each} by model and device" for each in ("queue", "user", "model", "project", "device")
}
"""The dimension of days alone that has the totals by a query's `by`: its names have GPU model and device, too."""
APART = "\x1f"
"""Between name, GPU model and device in a name of a total; no model and no device has one in its name."""
COLUMN_OF = {"user": "user_name", "model": "gpu_model"}
_values = attrgetter(*USAGE)


def summed(usage: Mapping[tuple[Bucket, UsageKey], UsageAmounts]) -> list[dict[str, Any]]:
    """Rows of what a turn counted."""
    of_name: dict[tuple[Bucket, str, str], list[float]] = {}
    for (bucket, key), amounts in usage.items():
        added = _values(amounts)
        for dimension, name in _names(key):
            _add(of_name, (bucket, dimension, name), added)
    of_step: dict[tuple[int, Bucket, str, str], list[float]] = {}
    for (bucket, dimension, name), sums in of_name.items():
        for step in STEPS if dimension in (CAPACITY, *DIMENSIONS) else (DAY_S,):
            width = max(step, bucket.width)
            wide = Bucket(width, begin_of(bucket.start, width))
            _add(of_step, (step, wide, dimension, name), sums)
    return [
        {"step": step, "width": bucket.width, "start": bucket.start, "dimension": dimension,
         "name": writable(name), **dict(zip(USAGE, sums, strict=True))}
        for (step, bucket, dimension, name), sums in of_step.items()
    ]  # fmt: skip


def _names(key: UsageKey) -> tuple[tuple[str, str], ...]:
    """A name in each dimension that a key counts in."""
    if (key.queue, key.user) == ("", ""):
        return ((CAPACITY, key.model),)
    of_device = f"{APART}{key.model}{APART}{key.device}"
    return (
        *((dimension, getattr(key, dimension)) for dimension in DIMENSIONS),
        *((total, f"{getattr(key, each)}{of_device}") for each, total in TOTAL_OF.items()),
    )


def _add(to: dict[Any, list[float]], key: Any, amounts: Any) -> None:
    before = to.get(key)
    to[key] = (
        list(amounts) if before is None else [a + b for a, b in zip(before, amounts, strict=True)]
    )


def make_again(connection: Connection) -> None:
    """Make all of it of `usage_history`."""
    connection.execute(usage_sums.delete())
    for step, dimension, name in _dimensions():
        rows = _of_history(step, dimension, name)
        names = [column.name for column in rows.selected_columns]
        connection.execute(usage_sums.insert().from_select(names, rows))


def _dimensions() -> Iterator[tuple[int, str, ColumnElement[str]]]:
    """(step, dimension, what a row of `usage_history` is called there) of all sums."""
    of = usage_history.c
    column = {each: of[COLUMN_OF.get(each, each)] for each in TOTAL_OF}
    for step in STEPS:
        yield step, CAPACITY, of.gpu_model
        yield from ((step, each, column[each]) for each in DIMENSIONS)
    for each, total in TOTAL_OF.items():
        yield DAY_S, total, column[each] + APART + of.gpu_model + APART + of.device


def _of_history(step: int, dimension: str, name: ColumnElement[str]) -> Select[Any]:
    """The rows of a step and dimension, of all that there is."""
    of = usage_history.c
    wide = literal_column(str(step), Integer)
    width = case((of.width < wide, wide), else_=of.width)
    start = _begin_of(of.start, width)
    rows = select(
        wide.label("step"), width.label("width"), start.label("start"),
        literal(dimension).label("dimension"), name.label("name"),
        *(func.sum(of[each]).label(each) for each in USAGE),
    )  # fmt: skip
    is_capacity = and_(of.queue == "", of.user_name == "")
    rows = rows.where(is_capacity if dimension == CAPACITY else not_(is_capacity))
    return rows.group_by(width, start, name)


def has_totals(query: UsageQuery) -> bool:
    """Whether the totals of a query are here: those of everybody, by anything."""
    return query.by in TOTAL_OF and _is_of_everybody(query)


def totals_of_days(
    connection: Connection, query: UsageQuery, columns: Sequence[str]
) -> list[tuple[str, str, str, tuple[float, ...]]]:
    """(name, GPU model, device, amounts of the columns) of a query of which `has_totals`."""
    of = usage_sums.c
    rows = select(of.name, *(func.sum(of[each]) for each in columns)).where(
        of.step == DAY_S,
        of.dimension == TOTAL_OF[query.by],
        of.width == DAY_S,
        of.start >= query.since,
        of.start < query.until,
    )
    found = connection.execute(rows.group_by(of.name))
    return [(*row[0].rsplit(APART, 2), tuple(row[1:])) for row in found]


def capacity_of_days(
    connection: Connection, since: int, until: int, columns: Sequence[str]
) -> tuple[float, ...]:
    """Amounts of whole days, of everybody and of nobody."""
    of = usage_sums.c
    sums = select(*(func.coalesce(func.sum(of[each]), 0.0) for each in columns)).where(
        of.step == DAY_S,
        of.dimension.in_([CAPACITY, "queue"]),
        of.width == DAY_S,
        of.start >= since,
        of.start < until,
    )
    return tuple(connection.execute(sums).one())


def has_steps(query: UsageQuery) -> bool:
    """Whether the sums of a query are here: of everybody, but by user; of some queues, in all or by queue."""
    if _is_of_everybody(query):
        return query.by != "user"
    is_of_users = query.user is not None or any(scope.user is not None for scope in query.scopes)
    return query.by in ("all", "queue") and not is_of_users


def _is_of_everybody(query: UsageQuery) -> bool:
    return (query.queue, query.user) == (None, None) and Scope() in query.scopes


def step_begin(start: ColumnElement[int], step_s: int) -> ColumnElement[int]:
    """The first second of the step of a moment."""
    return _begin_of(start, literal_column(str(step_s), Integer))


def _begin_of(start: ColumnElement[int], width: ColumnElement[int]) -> ColumnElement[int]:
    """As `steps.begin_of` does."""
    return start - (start + AFTER_MONDAY_S) % width


def sums_of_steps(
    connection: Connection, query: UsageQuery
) -> list[tuple[Bucket, str, UsageAmounts]]:
    """(step, name, amounts) in order, of a query of which `has_steps`."""
    of, step = usage_sums.c, query.step
    start, kept = (
        step_begin(of.start, step).label("at"),
        max(each for each in STEPS if each <= step),
    )
    name = of.name if query.by != "all" else literal_column("''")
    amounts = [func.sum(of[each]).label(each) for each in USAGE]
    rows = select(start, name.label("name"), of.width, *amounts).where(
        of.width.in_([each for each in STEPS if each >= kept]),
        of.start > query.since - DAY_S,
        of.start < query.until,
        of.step == kept,
        of.start + of.width > query.since,
        _is_asked(connection.dialect.name, query),
    )
    order = [start, *([name] if query.by != "all" else []), of.width]
    found = connection.execute(rows.group_by(*order).order_by(*order)).all()
    return [(Bucket(max(row[2], step), row[0]), row[1], UsageAmounts(*row[3:])) for row in found]


def _is_asked(dialect: str, query: UsageQuery) -> ColumnElement[bool]:
    """The rows of the dimension that has the sums; capacity is in those of everything and of models."""
    of = usage_sums.c
    queues = [] if query.queue is None else [within(dialect, of.name, query.queue)]
    if Scope() not in query.scopes:
        queues.append(or_(false(), *(_in_scope(dialect, scope) for scope in query.scopes)))
    if query.by in ("queue", "project", "device"):
        return and_(of.dimension == query.by, *queues)
    dimension = "queue" if queues else "model"
    return or_(of.dimension == CAPACITY, and_(of.dimension == dimension, *queues))


def _in_scope(dialect: str, scope: Scope) -> ColumnElement[bool]:
    return (
        within(dialect, usage_sums.c.name, scope.queue) if scope.queue else usage_sums.c.name != ""
    )
