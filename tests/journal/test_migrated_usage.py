"""Use that an older gantree counted: after an upgrade `gantree usage` and the pages have the same sums of it."""

import shutil
from collections import defaultdict
from contextlib import closing
from itertools import product
from math import isclose
from pathlib import Path
from random import Random
from typing import Any

import pytest
from sqlalchemy import Connection, MetaData, Table, create_engine

from gantree.accounting.buckets import DAY_S, HOUR_S, MINUTE_S
from gantree.accounting.usage import UsageQuery
from gantree.journal.postgres import PostgresElection, PostgresJournal
from gantree.journal.sql.journal import SqlJournal
from gantree.journal.sql.usage_history import CAPACITY, HELD
from gantree.journal.sqlite import FILE, SqliteJournal
from support.history_recount import check_sums
from support.older_journals import older_database

FILES = Path(__file__).parents[1] / "data" / "journals"
WITH_HISTORY = range(4, 8)
"""Versions whose journals have roll-ups and no sums of them; later ones are passed on the way from these."""
SINCE = 20_000 * DAY_S
BUCKETS = (
    (DAY_S, SINCE),
    (HOUR_S, SINCE + DAY_S + HOUR_S),
    (HOUR_S, SINCE + DAY_S + 2 * HOUR_S),
    (MINUTE_S, SINCE + 2 * DAY_S + MINUTE_S),
    (MINUTE_S, SINCE + 2 * DAY_S + 2 * MINUTE_S),
)
UNTIL = SINCE + 3 * DAY_S
OWNERS = (("", ""), ("a", "ann"), ("a", "bob"), ("a/b", "ann"), ("", "ann"), ("a", ""))
"""(queue, user); the first is the capacity's."""
KEYS = {"gpu_model": ("", "H100-80GB"), "project": ("", "llm"), "device": ("", "1g.10gb")}
COLUMN_OF = {"user": "user_name", "model": "gpu_model"}
Row = dict[str, Any]


def rows_of(table: Table) -> list[Row]:
    """A row of each bucket and key that a table of this version can have, with an amount in every other column."""
    lots = Random(8)
    keys = {name: values for name, values in KEYS.items() if name in table.c}
    rows = []
    for (width, start), (queue, user), *of_key in product(BUCKETS, OWNERS, *keys.values()):
        key = {"width": width, "start": start, "queue": queue, "user_name": user}
        key.update(zip(keys, of_key, strict=True))
        if (queue, user) == ("", "") and (key.get("project") or key.get("device")):
            continue
        others = (column.name for column in table.c if column.name not in key)
        amounts = {name: lots.randrange(1, 1000) for name in others}
        rows.append({**key, **amounts})
    return rows


def filled(connection: Connection) -> list[Row]:
    """Fill the roll-ups of an older database."""
    table = Table("usage_history", MetaData(), autoload_with=connection)
    rows = rows_of(table)
    connection.execute(table.insert(), rows)
    return rows


def check_same(journal: SqlJournal, rows: list[Row]) -> None:
    """Sums of the journal are those of its rows as they were before it was upgraded."""
    check_sums(journal)
    of_jobs = [row for row in rows if (row["queue"], row["user_name"]) != ("", "")]
    for by in ("queue", "user", "model", "project", "device"):
        before: dict[tuple[str, ...], float] = defaultdict(float)
        for row, figure in product(of_jobs, HELD):
            names = (row.get(each, "") for each in (COLUMN_OF.get(by, by), "gpu_model", "device"))
            before[(*names, figure)] += row.get(figure, 0.0)
        after = {
            (name, model, device, figure): getattr(amounts, figure)
            for name, model, device, amounts in journal.history.totals(
                UsageQuery(SINCE, UNTIL, DAY_S, by)
            )
            for figure in HELD
        }
        assert after.keys() == before.keys()
        assert all(isclose(after[at], before[at]) for at in after), by
    capacity = journal.history.capacity(SINCE, UNTIL)
    for figure in CAPACITY:
        assert isclose(getattr(capacity, figure), sum(row.get(figure, 0.0) for row in rows))


@pytest.mark.parametrize("version", WITH_HISTORY)
def test_a_file_of_an_older_gantree_keeps_the_sums_of_its_use(tmp_path: Path, version: int) -> None:
    shutil.copy(FILES / f"version-{version}.sqlite3", tmp_path / FILE)
    engine = create_engine(f"sqlite:///{tmp_path / FILE}")
    with engine.begin() as connection:
        rows = filled(connection)
    engine.dispose()
    with closing(SqliteJournal(tmp_path)) as journal:
        check_same(journal, rows)


@pytest.mark.parametrize("version", WITH_HISTORY)
def test_a_database_of_an_older_gantree_keeps_the_sums_of_its_use(
    database_url: str, version: int
) -> None:
    older_database(database_url, version, FILES / "version-1.sqlite3")
    with closing(PostgresElection(database_url, 3.0)) as old, old.database.writing() as connection:
        rows = filled(connection)
    with closing(PostgresJournal(database_url)) as journal:
        check_same(journal, rows)
