"""Notifications that are not delivered yet, and up to which fact they were made."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")
SECONDS: sa.types.TypeEngine[float] = sa.Double().with_variant(sa.REAL, "sqlite")


def upgrade() -> None:
    """Make them, empty."""
    texts = (sa.Column(name, sa.Text, nullable=False) for name in ("target", "address", "body"))
    op.create_table(
        "notifications",
        sa.Column("seq", NUMBER, nullable=False),
        sa.Column("channel", sa.Text, nullable=False),
        *texts,
        sa.Column("at", SECONDS, nullable=False),
        sa.Column("tries", NUMBER, nullable=False),
        sa.Column("next_at", SECONDS, nullable=False),
        sa.PrimaryKeyConstraint("seq", "channel", name="notifications_pkey"),
    )
    op.create_index("notifications_by_target", "notifications", ["target", "next_at"])
    mark = op.create_table(
        "notification_mark",
        sa.Column("one", NUMBER, primary_key=True, autoincrement=False),
        sa.Column("cursor", NUMBER),
    )
    op.bulk_insert(mark, [{"one": 1, "cursor": None}])
