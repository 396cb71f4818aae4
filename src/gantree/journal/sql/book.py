"""The book of a period in SQL: amounts by all that they are counted by."""

from collections.abc import Iterator

from sqlalchemy import Connection, Integer, case, func, literal_column, select

from gantree.accounting.buckets import DAY_S, HOUR_S, MINUTE_S, Bucket
from gantree.accounting.usage import UsageAmounts, UsageKey
from gantree.journal.sql.history_tables import KEY, usage_history
from gantree.journal.sql.usage_sums import USAGE


def book_rows(
    connection: Connection, since: int, until: int, step: int
) -> Iterator[tuple[Bucket, UsageKey, UsageAmounts]]:
    """The sums of each step and key from since until, in order; rows that are wider than a step stay as they are."""
    table, wide = usage_history.c, literal_column(str(step), Integer)
    start = (table.start - table.start % wide).label("step")
    width = case((table.width > wide, table.width), else_=wide).label("wide")
    keys = [table[name] for name in KEY]
    amounts = [func.sum(table[name]).label(name) for name in USAGE]
    wanted = select(start, width, *keys, *amounts).where(
        table.width.in_([MINUTE_S, HOUR_S, DAY_S]), table.start >= since, table.start < until
    )
    groups = (start, width, *keys)
    for row in connection.execute(wanted.group_by(*groups).order_by(*groups)):
        first, values = 2 + len(KEY), tuple(row)
        yield (
            Bucket(values[1], values[0]),
            UsageKey(*values[2:first]),
            UsageAmounts(*values[first:]),
        )
