"""The tables of the history, beside those of the journal: what is recorded of ended jobs, and of use over time.

`ended_jobs` has a row a job, whose seq is that of the fact by which it ended; since facts are in order of time,
ended_at grows with it. `usage_history` and `wait_history` are roll-ups: `start` is the first second of a bucket of
`width` seconds. `usage_sums` has the same amounts as `usage_history`, summed up beforehand by what pages ask for
(`usage_sums`). `history_mark` (one row) says up to which moment all that is held was counted, and, where the
history is to be made from facts again, after which fact; null: it is complete.
"""

from sqlalchemy import Column, Index, Integer, PrimaryKeyConstraint, Table, Text

from gantree.journal.sql.tables import METADATA, NUMBER, SECONDS, counted, number

GPU_SECONDS = (
    "capacity_gpu_s", "allocated_gpu_s", "used_gpu_s", "starting_gpu_s", "restart_gpu_s", "checkpoint_gpu_s",
    "useful_gpu_s", "idle_gpu_s", "lost_gpu_s", "down_gpu_s", "held_gpu_s", "reserved_gpu_s", "stranded_gpu_s",
)  # fmt: skip
"""Columns of `usage_history` that are amounts of GPU-seconds."""
OF_BILLS = ("slower_gpu_s", "cpu_s", "memory_GiB_s", "capacity_cpu_s", "capacity_memory_GiB_s")
"""Columns that bills alone need."""
OF_COUNTERS = ("powered_gpu_s", "energy_kWh", "nvlink_GB", "nic_GB")
"""Columns of what counters tell beside useful and idle."""
KEY = ("queue", "user_name", "gpu_model", "project", "device")
"""The columns of a `UsageKey`, in its order."""
COUNTS = ("submitted", "started", "succeeded", "failed", "cancelled", "timed_out", "preempted")


def _text(name: str, before: str | None = None) -> Column[str]:
    """before: what rows have that are older than the column."""
    return Column(name, Text, nullable=False, server_default=before)


def _amount(name: str, before: str | None = None) -> Column[float]:
    return Column(name, SECONDS, nullable=False, server_default=before)


ended_jobs = Table(
    "ended_jobs",
    METADATA,
    counted("seq"),
    Column("job", Text, nullable=False, unique=True),
    _text("name"),
    _text("queue"),
    _text("user_name"),
    number("priority"),
    _text("outcome"),
    _text("reason"),
    Column("exit_code", NUMBER),
    _text("last_failure"),
    _amount("submitted_at"),
    Column("started_at", SECONDS),
    _amount("ended_at"),
    number("attempts"),
    number("failures"),
    number("preemptions"),
    number("members"),
    number("processes"),
    number("gpus"),
    _text("gpu_model"),
    _text("nodes"),
    _amount("held_gpu_s"),
    _amount("lost_gpu_s"),
    _amount("waited_s"),
    _text("project", ""),
    _amount("useful_gpu_s", "0"),
    _amount("idle_gpu_s", "0"),
)
for _column in ("queue", "user_name", "name", "outcome"):
    Index(f"ended_jobs_by_{_column}", ended_jobs.c[_column], ended_jobs.c.seq)
Index("ended_jobs_by_end", ended_jobs.c.ended_at, ended_jobs.c.seq)

usage_history = Table(
    "usage_history",
    METADATA,
    Column("width", Integer, nullable=False),
    number("start"),
    *(_text(name) for name in KEY),
    *(_amount(name) for name in GPU_SECONDS),
    _amount("waited_s"),
    *(number(name) for name in COUNTS),
    _amount("counted_to"),
    *(_amount(name, "0") for name in (*OF_BILLS, *OF_COUNTERS)),
    PrimaryKeyConstraint("width", "start", *KEY, name="usage_history_pkey"),
)
usage_sums = Table(
    "usage_sums",
    METADATA,
    Column("width", Integer, nullable=False),
    number("start"),
    Column("step", Integer, nullable=False),
    _text("dimension"),
    _text("name"),
    *(_amount(name) for name in (*GPU_SECONDS, "waited_s", *OF_BILLS)),
    *(number(name) for name in COUNTS),
    *(_amount(name, "0") for name in OF_COUNTERS),
    PrimaryKeyConstraint("width", "start", "step", "dimension", "name", name="usage_sums_pkey"),
)
wait_history = Table(
    "wait_history",
    METADATA,
    Column("width", Integer, nullable=False),
    number("start"),
    _text("queue"),
    _text("user_name"),
    Column("bin", Integer, nullable=False),
    number("jobs"),
    _amount("waited_s"),
    PrimaryKeyConstraint("width", "start", "queue", "user_name", "bin", name="wait_history_pkey"),
)
history_mark = Table(
    "history_mark",
    METADATA,
    counted("one"),
    _amount("counted_to"),
    Column("rebuild_after", NUMBER),
)
