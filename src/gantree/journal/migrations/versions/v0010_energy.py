"""What counters told of power and traffic, in the roll-ups and their sums. Rows that are there have none of it."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

SECONDS: sa.types.TypeEngine[float] = sa.Double().with_variant(sa.REAL, "sqlite")
ADDED = ("powered_gpu_s", "energy_kWh", "nvlink_GB", "nic_GB")


def upgrade() -> None:
    """Add the columns."""
    for table in ("usage_history", "usage_sums"):
        for name in ADDED:
            op.add_column(table, sa.Column(name, SECONDS, nullable=False, server_default="0"))
