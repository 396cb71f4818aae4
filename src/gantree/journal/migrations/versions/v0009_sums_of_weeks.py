"""Sums of use of weeks, made of those of days: a year is drawn in weeks."""

from alembic import op

from gantree.journal.migrations.versions.v0008_sums_of_use import AMOUNTS, COLUMN_OF, COUNTS, KEY

revision = "0009"
down_revision = "0008"

DAY_S, WEEK_S = 86_400, 604_800
AFTER_MONDAY_S = 259_200


def upgrade() -> None:
    """Add the rows; those of a day have all amounts of that day, in minutes and hours, too."""
    names = ", ".join(f'"{name}"' for name in (*AMOUNTS, *COUNTS))
    sums = ", ".join(f'sum("{name}")' for name in (*AMOUNTS, *COUNTS))
    begin = f"start - (start + {AFTER_MONDAY_S}) % {WEEK_S}"
    dimensions = ", ".join(f"'{name}'" for name in COLUMN_OF)
    op.execute(
        f"INSERT INTO usage_sums ({', '.join(KEY)}, {names}) "  # noqa: S608 - all are names from above
        f"SELECT {WEEK_S}, {begin}, {WEEK_S}, dimension, name, {sums} FROM usage_sums "
        f"WHERE step = {DAY_S} AND dimension IN ({dimensions}) GROUP BY {begin}, dimension, name"
    )
