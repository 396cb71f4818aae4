"""A service of the front as its copies in several clusters are together. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any

Json = dict[str, Any]
SUMS = ("wanted", "ready", "current", "placed", "draining", "min", "max", "floor", "spare")
LOAD_SUMS = ("requests", "errors", "shed", "in_flight", "queued", "concurrency", "rate")
LATENCIES = ("latency_p50_s", "latency_p99_s", "ttft_p99_s", "itl_p99_s")
STATES = ("ending", "starting", "updating", "at zero", "ready")
"""Of several copies, the service has the first of these that one of them has."""
OF_CLUSTER = ("cluster", "state", "wanted", "ready")

Copy = tuple[str, Json]
"""A cluster, and its row of the service."""


def summed(copies: Sequence[Copy]) -> Json:
    """The row of a service: sums over its copies, with those of each cluster; the rest is as in the first."""
    rows = [row for _, row in copies]
    states = [row["state"] for row in rows]
    known = [state for state in STATES if state in states]
    return {
        **rows[0],
        **{key: _total(row[key] for row in rows) for key in SUMS},
        "state": known[0] if known else states[0],
        "load": _load([row["load"] for row in rows if row["load"] is not None]),
        "cluster": ",".join(cluster for cluster, _ in copies),
        "clusters": [
            {key: {**row, "cluster": cluster}[key] for key in OF_CLUSTER} for cluster, row in copies
        ],
    }


def in_full(copies: Sequence[Copy]) -> Json:
    """A service in full: its replicas are called CLUSTER/REPLICA where there are several copies."""
    found = summed(copies)
    if len(copies) == 1:
        return found
    replicas = [
        {**each, "replica": f"{cluster}/{each['replica']}"}
        for cluster, row in copies
        for each in row["replicas"]
    ]
    scalings = [
        {**each, "reason": f"{cluster}: {each['reason']}"}
        for cluster, row in copies
        for each in row["scalings"]
    ]
    return {
        **found,
        "autoscaler": None,
        "replicas": replicas,
        "scalings": sorted(scalings, key=lambda each: each["at"]),
    }


def _load(loads: Sequence[Json]) -> Json | None:
    """What routers report of all copies; of quantiles the largest."""
    if not loads:
        return None
    return {
        "at": min(load["at"] for load in loads),
        **{key: _total(load[key] for load in loads) for key in LOAD_SUMS},
        **{key: _largest(load[key] for load in loads) for key in LATENCIES},
        "tokens_per_s": _total(load["tokens_per_s"] for load in loads),
    }


def _largest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _total(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
