"""Leadership by lease, snapshots and compaction; turns say how far facts and orders have come with them."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")
SECONDS: sa.types.TypeEngine[float] = sa.Double().with_variant(sa.REAL, "sqlite")

_LAST_OF_EACH_TURN = """
UPDATE turns SET {column} = counted.last FROM (
    SELECT turns.turn AS turn, coalesce(max(of_turn.last) OVER (ORDER BY turns.turn), 0) AS last
    FROM turns LEFT JOIN (SELECT turn, max(seq) AS last FROM {table} GROUP BY turn) AS of_turn
    ON of_turn.turn = turns.turn
) AS counted WHERE counted.turn = turns.turn
"""


def _key(name: str) -> sa.Column[int]:
    return sa.Column(name, NUMBER, primary_key=True, autoincrement=False)


def _numbers(*names: str) -> list[sa.Column[int]]:
    return [sa.Column(name, NUMBER, nullable=False) for name in names]


def upgrade() -> None:
    """Nobody leads at first; epochs go on from the newest."""
    op.add_column("epochs", sa.Column("holder", sa.Text))
    op.add_column("epochs", sa.Column("began_at", SECONDS))
    for column, table in (("last_fact", "facts"), ("last_order", "orders")):
        op.add_column("turns", sa.Column(column, NUMBER, nullable=False, server_default="0"))
        op.execute(_LAST_OF_EACH_TURN.format(column=column, table=table))
    op.create_table(
        "leadership",
        _key("one"),
        *_numbers("epoch"),
        sa.Column("holder", sa.Text),
        sa.Column("until", SECONDS, nullable=False),
    )
    op.execute("INSERT INTO leadership SELECT 1, coalesce(max(epoch), 0), NULL, 0 FROM epochs")
    op.create_table(
        "snapshots",
        _key("turn"),
        *_numbers("seq", "cursor"),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("text", sa.Text, nullable=False),
    )
    op.create_table("compacted", _key("one"), *_numbers("turn", "fact", "order", "event"))
    op.execute("INSERT INTO compacted VALUES (1, 0, 0, 0, 0)")
