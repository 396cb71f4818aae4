"""The tables of gantree 0.1.0, which wrote SQLite files only (user_version 1)."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")

SECONDS: sa.types.TypeEngine[float] = sa.Double().with_variant(sa.REAL, "sqlite")


def _encoded() -> tuple[sa.Column[str], sa.Column[int], sa.Column[str]]:
    return (
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("data", sa.Text, nullable=False),
    )


def _key(name: str) -> sa.Column[int]:
    return sa.Column(name, NUMBER, primary_key=True, autoincrement=False)


def upgrade() -> None:
    """Make them."""
    op.create_table("epochs", _key("epoch"))
    op.create_table(
        "inbox",
        _key("seq"),
        sa.Column("id", sa.Text, nullable=False, unique=True),
        sa.Column("observed_at", SECONDS, nullable=False),
        *_encoded(),
    )
    op.create_table(
        "turns",
        _key("turn"),
        sa.Column("epoch", NUMBER, nullable=False),
        sa.Column("cursor", NUMBER, nullable=False),
    )
    for name in ("facts", "orders"):
        op.create_table(name, _key("seq"), sa.Column("turn", NUMBER, nullable=False), *_encoded())
    op.create_table(
        "set_aside",
        sa.Column("seq", NUMBER, sa.ForeignKey("inbox.seq"), primary_key=True, autoincrement=False),
        sa.Column("error", sa.Text, nullable=False),
    )
