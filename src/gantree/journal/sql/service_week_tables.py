"""The table of what services needed in each hour of the week: a row for each service with `predict: true`.

needed has a number or null for each hour, as JSON; hour, sum and samples are of the hour that has not ended.
"""

from sqlalchemy import Column, Table, Text

from gantree.journal.sql.tables import METADATA, SECONDS, number

service_weeks = Table(
    "service_weeks",
    METADATA,
    Column("service", Text, primary_key=True),
    Column("needed", Text, nullable=False),
    number("hour"),
    Column("sum", SECONDS, nullable=False),
    number("samples"),
)
