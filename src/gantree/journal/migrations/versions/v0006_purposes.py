"""Use by purpose, project and device. Rows that are there keep what they have: what they held is unmeasured."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")
SECONDS: sa.types.TypeEngine[float] = sa.Double().with_variant(sa.REAL, "sqlite")
KEY = ("width", "start", "queue", "user_name", "gpu_model")
BEFORE = ("capacity_gpu_s", "allocated_gpu_s", "used_gpu_s", "lost_gpu_s")
ADDED = ("starting_gpu_s", "restart_gpu_s", "checkpoint_gpu_s", "useful_gpu_s", "idle_gpu_s", "down_gpu_s",
         "held_gpu_s", "reserved_gpu_s", "stranded_gpu_s", "waited_s")  # fmt: skip
COUNTS = ("submitted", "started", "succeeded", "failed", "cancelled", "timed_out", "preempted")


def upgrade() -> None:
    """The key of a table grows by making it anew: SQLite changes no key."""
    _ended_jobs()
    op.rename_table("usage_history", "usage_history_5")
    if op.get_bind().dialect.name == "postgresql":  # names of keys are unique there
        op.execute("ALTER INDEX usage_history_pkey RENAME TO usage_history_5_pkey")
    _usage_history()
    before, after = _names("usage_history_5"), _names("usage_history", "project", "device", *ADDED)
    nothing = [sa.literal(""), sa.literal(""), *(sa.literal(0.0) for _ in ADDED)]
    rows = sa.select(*before.c, *nothing)
    op.execute(after.insert().from_select(list(after.c.keys()), rows))
    op.drop_table("usage_history_5")


def _names(table: str, *more: str) -> sa.TableClause:
    """A table with the columns that it had before, and more."""
    names = (*KEY, *BEFORE, *COUNTS, "counted_to", *more)
    return sa.table(table, *(sa.column(name) for name in names))


def _ended_jobs() -> None:
    texts = sa.Column("project", sa.Text, nullable=False, server_default="")
    op.add_column("ended_jobs", texts)
    for name in ("useful_gpu_s", "idle_gpu_s"):
        op.add_column("ended_jobs", sa.Column(name, SECONDS, nullable=False, server_default="0"))


def _usage_history() -> None:
    op.create_table(
        "usage_history",
        sa.Column("width", sa.Integer, nullable=False),
        sa.Column("start", NUMBER, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in (*KEY[2:], "project", "device")),
        *(sa.Column(name, SECONDS, nullable=False) for name in (*BEFORE, *ADDED)),
        *(sa.Column(name, NUMBER, nullable=False) for name in COUNTS),
        sa.Column("counted_to", SECONDS, nullable=False),
        sa.PrimaryKeyConstraint(*KEY, "project", "device", name="usage_history_pkey"),
    )
