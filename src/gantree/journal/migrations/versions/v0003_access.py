"""Tokens, sessions and the audit log."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")
SECONDS: sa.types.TypeEngine[float] = sa.Double().with_variant(sa.REAL, "sqlite")


def upgrade() -> None:
    """Nobody has a token yet, and nothing was audited."""
    op.create_table(
        "tokens",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("sha256", sa.String(64), nullable=False, unique=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("user_name", sa.Text, nullable=False),
        sa.Column("groups", sa.Text, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("queue", sa.Text, nullable=False),
        sa.Column("parent", sa.Text),
        sa.Column("created_at", SECONDS, nullable=False),
        sa.Column("created_by", sa.Text, nullable=False),
        sa.Column("expires_at", SECONDS),
        sa.Column("revoked_at", SECONDS),
    )
    op.create_table(
        "audit",
        sa.Column("seq", NUMBER, primary_key=True, autoincrement=True),
        sa.Column("at", SECONDS, nullable=False),
        sa.Column("who", sa.Text, nullable=False),
        sa.Column("door", sa.Text, nullable=False),
        sa.Column("route", sa.Text, nullable=False),
        sa.Column("what", sa.Text, nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
    )
