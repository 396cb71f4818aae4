"""What services needed in each hour of the week, in the database of a journal, so that a prediction outlives a daemon.

168 numbers for each live service with `predict: true`; what a daemon writes replaces what it wrote before.
"""

import json
from collections.abc import Collection, Mapping

from sqlalchemy import select

from gantree.journal.sql.database import Database
from gantree.journal.sql.service_week_tables import service_weeks
from gantree.services.load_of_week import LoadOfWeek


class ServiceWeekStore:
    """The rows. Any thread may use it; every method may wait for the database, and raises JournalError."""

    def __init__(self, database: Database) -> None:
        """database is the journal's. Where many may write at once, what is written here waits for no turn."""
        self._database = database if database.owned else database.apart()

    def read(self) -> dict[str, LoadOfWeek]:
        """The table of each service."""
        with self._database.reading() as connection:
            rows = connection.execute(select(service_weeks)).all()
        return {
            row.service: LoadOfWeek(tuple(json.loads(row.needed)), row.hour, row.sum, row.samples)
            for row in rows
        }

    def write(self, weeks: Mapping[str, LoadOfWeek], live: Collection[str]) -> None:
        """Keep these, and of others only those of live services."""
        column = service_weeks.c.service
        rows = [
            {
                "service": service,
                "needed": json.dumps(week.needed),
                "hour": week.hour,
                "sum": week.sum,
                "samples": week.samples,
            }
            for service, week in weeks.items()
        ]
        with self._database.writing() as connection:
            there = connection.execute(select(column)).scalars().all()
            gone = [service for service in there if service in weeks or service not in live]
            for service in gone:
                connection.execute(service_weeks.delete().where(column == service))
            if rows:
                connection.execute(service_weeks.insert(), rows)
