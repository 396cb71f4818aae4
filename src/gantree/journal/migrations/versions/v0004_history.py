"""Ended jobs, and roll-ups of use and waits. They are made from the facts at the next start of a daemon."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")
SECONDS: sa.types.TypeEngine[float] = sa.Double().with_variant(sa.REAL, "sqlite")


def _texts(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text, nullable=False) for name in names]


def _numbers(*names: str) -> list[sa.Column[int]]:
    return [sa.Column(name, NUMBER, nullable=False) for name in names]


def _amounts(*names: str) -> list[sa.Column[float]]:
    return [sa.Column(name, SECONDS, nullable=False) for name in names]


def upgrade() -> None:
    """Make them, empty."""
    _ended_jobs()
    _usage_history()
    op.create_table(
        "wait_history",
        sa.Column("width", sa.Integer, nullable=False),
        *_numbers("start"),
        *_texts("queue", "user_name"),
        sa.Column("bin", sa.Integer, nullable=False),
        *_numbers("jobs"),
        *_amounts("waited_s"),
        sa.PrimaryKeyConstraint(
            "width", "start", "queue", "user_name", "bin", name="wait_history_pkey"
        ),
    )
    mark = op.create_table(
        "history_mark",
        sa.Column("one", NUMBER, primary_key=True, autoincrement=False),
        *_amounts("counted_to"),
        sa.Column("rebuild_after", NUMBER),
    )
    op.bulk_insert(mark, [{"one": 1, "counted_to": 0.0, "rebuild_after": 0}])


def _ended_jobs() -> None:
    op.create_table(
        "ended_jobs",
        sa.Column("seq", NUMBER, primary_key=True, autoincrement=False),
        sa.Column("job", sa.Text, nullable=False, unique=True),
        *_texts("name", "queue", "user_name"),
        *_numbers("priority"),
        *_texts("outcome", "reason"),
        sa.Column("exit_code", NUMBER),
        *_texts("last_failure"),
        *_amounts("submitted_at"),
        sa.Column("started_at", SECONDS),
        *_amounts("ended_at"),
        *_numbers("attempts", "failures", "preemptions", "members", "processes", "gpus"),
        *_texts("gpu_model", "nodes"),
        *_amounts("held_gpu_s", "lost_gpu_s", "waited_s"),
    )
    for column in ("queue", "user_name", "name", "outcome"):
        op.create_index(f"ended_jobs_by_{column}", "ended_jobs", [column, "seq"])
    op.create_index("ended_jobs_by_end", "ended_jobs", ["ended_at", "seq"])


def _usage_history() -> None:
    op.create_table(
        "usage_history",
        sa.Column("width", sa.Integer, nullable=False),
        *_numbers("start"),
        *_texts("queue", "user_name", "gpu_model"),
        *_amounts("capacity_gpu_s", "allocated_gpu_s", "used_gpu_s", "lost_gpu_s"),
        *_numbers("submitted", "started", "succeeded", "failed"),
        *_numbers("cancelled", "timed_out", "preempted"),
        *_amounts("counted_to"),
        sa.PrimaryKeyConstraint(
            "width", "start", "queue", "user_name", "gpu_model", name="usage_history_pkey"
        ),
    )
