"""Results of a test beside Kueue's and the lower bounds, in simulated seconds."""

from collections.abc import Mapping
from math import fsum
from typing import Any

from gantree.sim.kueue.bound import (
    admission_bounds_s,
    makespan_bound_s,
    weighted_admission_bound_s,
)
from gantree.sim.kueue.shapes import Shape
from gantree.sim.kueue.work import class_of
from gantree.sim.results import Result, statistics

HEAD = ("SHAPE", "WHAT", "OURS s", "BOUND s", "KUEUE s (wall clock)")


def of_run(shape: Shape, result: Result, core: Mapping[str, Any]) -> dict[str, Any]:
    """Plain data of a run. quota_use is CPU-seconds of work over those of all quotas until the last end."""
    end_s = max((row.end_s for row in result.jobs if row.end_s is not None), default=0.0)
    cpu_s = fsum(kind.run_s * kind.all_cpus * kind.count for kind in shape.classes)
    cpu_s *= shape.cohorts * shape.queues_of_cohort
    return {
        "shape": shape.name,
        "workloads": shape.workloads,
        "finished": sum(row.finished for row in result.jobs),
        "makespan_s": round(end_s, 3),
        "makespan_bound_s": round(makespan_bound_s(shape), 3),
        "kueue_wall_s": shape.kueue.wall_s,
        "quota_use": round(cpu_s / (end_s * shape.cohorts * shape.cohort_cpus), 4)
        if end_s
        else None,
        "preemptions": sum(row.preemptions for row in result.jobs),
        "weighted_admission_s": _weighted_admission_s(shape, result),
        "weighted_admission_bound_s": round(weighted_admission_bound_s(shape), 3),
        "classes": _classes(shape, result),
        "core": dict(core),
    }


def _weighted_admission_s(shape: Shape, result: Result) -> float | None:
    """Mean time from arrival to the start of the run that finished, weighed by CPU-seconds."""
    kinds = {kind.name: kind for kind in shape.classes}
    weighted = sum_cpu_s = 0.0
    for row in result.jobs:
        if row.jct_s is None or not row.finished:
            return None
        kind = kinds[class_of(row.job_id)]
        cpu_s = kind.run_s * kind.all_cpus
        weighted += cpu_s * (row.jct_s - kind.run_s)
        sum_cpu_s += cpu_s
    return round(weighted / sum_cpu_s, 3)


def _classes(shape: Shape, result: Result) -> dict[str, Any]:
    waits_s: dict[str, list[float]] = {kind.name: [] for kind in shape.classes}
    for row in result.jobs:
        if row.wait_s is not None:
            waits_s[class_of(row.job_id)].append(row.wait_s)
    bounds_s = admission_bounds_s(shape)
    return {
        name: {
            "admission_s": statistics(waits),
            "admission_bound_s": round(bounds_s[name], 3),
            "kueue_admission_s": shape.kueue.admission_s.get(name),
        }
        for name, waits in waits_s.items()
    }


def lines(figures: Mapping[str, Any]) -> list[list[str]]:
    """Lines below HEAD."""
    shape = figures["shape"]
    found = [
        [
            shape,
            "makespan",
            f"{figures['makespan_s']:.1f}",
            f"{figures['makespan_bound_s']:.1f}",
            f"{figures['kueue_wall_s']:.1f}",
        ]
    ]
    for name, of_class in figures["classes"].items():
        mean_s, kueue_s = of_class["admission_s"]["mean"], of_class["kueue_admission_s"]
        found.append(
            [
                shape,
                f"admission, {name}",
                "-" if mean_s is None else f"{mean_s:.1f}",
                f"{of_class['admission_bound_s']:.1f}",
                "-" if kueue_s is None else f"{kueue_s:.1f}",
            ]
        )
    weighted_s = figures["weighted_admission_s"]
    found.append(
        [
            shape,
            "admission, by CPU-seconds",
            "-" if weighted_s is None else f"{weighted_s:.1f}",
            f"{figures['weighted_admission_bound_s']:.1f}",
            "-",
        ]
    )
    core = figures["core"]
    per_workload_ms = core["seconds"] / figures["workloads"] * 1e3
    found.append([shape, "core, in all", f"{core['seconds']:.1f}", "-", "-"])
    found.append([shape, "core, a workload", f"{per_workload_ms / 1e3:.6f}", "-", "-"])
    return found
