"""GPU-seconds by purpose of a row of the history (`GET /v1/history/usage`): step by step, and in all. Pure."""

from collections.abc import Mapping
from typing import Any

from gantree.accounting.usage import PURPOSES

Json = dict[str, Any]
HOUR_S = 3600.0


def gpu_s_of(row: Json) -> Mapping[str, list[float]]:
    """GPU-seconds of each step, by purpose."""
    return {name: row[f"{name}_gpu_s"] for name in PURPOSES}


def sums_of(row: Json) -> Json:
    """GPU-hours of a row by purpose, with those that were allocated and those that there were.

    useful_share is useful of allocated, measured_share that of which counters told; None where nothing was allocated.
    """
    hours = {name: sum(gpu_s) / HOUR_S for name, gpu_s in gpu_s_of(row).items()}
    allocated, capacity = (sum(row[f"{name}_gpu_s"]) / HOUR_S for name in ("allocated", "capacity"))
    ran = sum(row["used_gpu_s"]) / HOUR_S
    return {
        "name": row["name"],
        **{name: max(0.0, amount) for name, amount in hours.items()},
        "allocated": allocated,
        "capacity": capacity,
        "allocated_share": allocated / capacity if capacity else None,
        "useful_share": max(0.0, hours["useful"]) / allocated if allocated else None,
        "measured_share": min(1.0, 1 - max(0.0, hours["unmeasured"]) / ran) if ran > 0 else None,
    }
