"""Results of a run, for the whole cluster and for each queue, as plain data and as a line of a table."""

from collections.abc import Mapping
from typing import Any

from gantree.sim.results import Result, statistics

HEAD = (
    "LOAD", "PRESET", "WAIT mean h", "p50", "p99", "JCT mean h", "p50", "p99", "UTIL %", "LEAVES", "SPINES",
    "PREEMPTED", "GPU-h LOST", "WAITING", "CORE ms",
)  # fmt: skip


def of_queues(result: Result) -> dict[str, dict[str, Any]]:
    """Queue -> jobs, finished, waiting and completion times in seconds, preemptions, GPU-hours lost."""
    rows_of_queue: dict[str, list[Any]] = {}
    for row in result.jobs:
        rows_of_queue.setdefault(row.queue, []).append(row)
    return {
        queue: {
            "jobs": len(rows),
            "finished": sum(row.finished for row in rows),
            "wait_s": statistics([row.wait_s for row in rows if row.wait_s is not None]),
            "jct_s": statistics([row.jct_s for row in rows if row.finished]),
            "preemptions": sum(row.preemptions for row in rows),
            "gpu_hours_lost": round(sum(row.gpu_s_lost for row in rows) / 3600, 3),
        }
        for queue, rows in sorted(rows_of_queue.items())
    }


def line(load: str, preset: str, summary: Mapping[str, Any], core_ms: float) -> list[str]:
    """A line below HEAD; core_ms is the mean time of one call of the scheduler in milliseconds."""
    times = [
        summary[kind][which] for kind in ("wait_s", "jct_s") for which in ("mean", "p50", "p99")
    ]
    spanned = summary["domains_spanned"]
    return [
        load,
        preset,
        *("-" if time_s is None else f"{time_s / 3600:.2f}" for time_s in times),
        f"{summary['gpu_utilisation'] * 100:.1f}",
        *(
            "-" if spanned.get(tier) is None else f"{spanned[tier]:.2f}"
            for tier in ("leaf", "spine")
        ),
        str(summary["preemptions"]),
        f"{summary['gpu_hours_lost']:.0f}",
        str(summary["jobs"] - summary["finished"]),
        f"{core_ms:.2f}",
    ]
