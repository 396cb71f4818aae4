"""Sums of use by queue, model, project and device, made of the roll-ups that there are."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")
SECONDS: sa.types.TypeEngine[float] = sa.Double().with_variant(sa.REAL, "sqlite")
AMOUNTS = ("capacity_gpu_s", "allocated_gpu_s", "used_gpu_s", "starting_gpu_s", "restart_gpu_s", "checkpoint_gpu_s",
           "useful_gpu_s", "idle_gpu_s", "lost_gpu_s", "down_gpu_s", "held_gpu_s", "reserved_gpu_s", "stranded_gpu_s",
           "waited_s", "slower_gpu_s", "cpu_s", "memory_GiB_s", "capacity_cpu_s", "capacity_memory_GiB_s")  # fmt: skip
COUNTS = ("submitted", "started", "succeeded", "failed", "cancelled", "timed_out", "preempted")
KEY = ("width", "start", "step", "dimension", "name")
COLUMN_OF = {
    "capacity": "gpu_model",
    "queue": "queue",
    "model": "gpu_model",
    "project": "project",
    "device": "device",
}
APART = "\x1f"


def upgrade() -> None:
    """Make the table, and fill it: for each step and dimension by itself."""
    op.create_table(
        "usage_sums",
        sa.Column("width", sa.Integer, nullable=False),
        sa.Column("start", NUMBER, nullable=False),
        sa.Column("step", sa.Integer, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in KEY[3:]),
        *(sa.Column(name, SECONDS, nullable=False) for name in AMOUNTS),
        *(sa.Column(name, NUMBER, nullable=False) for name in COUNTS),
        sa.PrimaryKeyConstraint(*KEY, name="usage_sums_pkey"),
    )
    for step in (60, 3600, 86_400):
        for dimension, column in COLUMN_OF.items():
            op.execute(_filled(step, dimension, column))
    for dimension, column in {**COLUMN_OF, "user": "user_name"}.items():
        if dimension != "capacity":
            name = f"{column} || '{APART}' || gpu_model || '{APART}' || device"
            op.execute(_filled(86_400, f"{dimension} by model and device", name))


def _filled(step: int, dimension: str, column: str) -> str:
    """A row is as wide as the step, or as what it has the amounts of, where that is wider."""
    names = tuple(f'"{name}"' for name in (*AMOUNTS, *COUNTS))
    width = f"CASE WHEN width < {step} THEN {step} ELSE width END"
    is_capacity = "queue = '' AND user_name = ''"
    condition = is_capacity if dimension == "capacity" else f"NOT ({is_capacity})"
    return (
        f"INSERT INTO usage_sums ({', '.join((*KEY, *names))}) "  # noqa: S608 - all are names from above
        f"SELECT wide, start - start % wide, {step}, '{dimension}', {column}, "
        f"{', '.join(f'sum({name})' for name in names)} "
        f"FROM (SELECT *, {width} AS wide FROM usage_history) AS rows WHERE {condition} "
        f"GROUP BY wide, start - start % wide, {column}"
    )
