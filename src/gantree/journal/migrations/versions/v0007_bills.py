"""Cores, memory and slower places in the roll-ups. Rows that are there have none of them."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

SECONDS: sa.types.TypeEngine[float] = sa.Double().with_variant(sa.REAL, "sqlite")
ADDED = ("slower_gpu_s", "cpu_s", "memory_GiB_s", "capacity_cpu_s", "capacity_memory_GiB_s")


def upgrade() -> None:
    """Add the columns."""
    for name in ADDED:
        column = sa.Column(name, SECONDS, nullable=False, server_default="0")
        op.add_column("usage_history", column)
