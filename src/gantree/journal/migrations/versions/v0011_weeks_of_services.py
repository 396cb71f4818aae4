"""What services needed in each hour of the week."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

SECONDS: sa.types.TypeEngine[float] = sa.Double().with_variant(sa.REAL, "sqlite")
NUMBER: sa.types.TypeEngine[int] = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "service_weeks",
        sa.Column("service", sa.Text, primary_key=True),
        sa.Column("needed", sa.Text, nullable=False),
        sa.Column("hour", NUMBER, nullable=False),
        sa.Column("sum", SECONDS, nullable=False),
        sa.Column("samples", NUMBER, nullable=False),
    )
