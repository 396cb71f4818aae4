"""Metrics of the front for Prometheus, made of what `gantree federation status` says. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

Json = Mapping[str, Any]
READY = "ready"


class _Status(Collector):
    """The metrics of one status."""

    def __init__(self, status: Json) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """All of them."""
        clusters = self._status["clusters"]
        ready = _gauge("cluster_ready", "1: the cluster answers and holds its lease.")
        silent = _gauge("cluster_silent_seconds", "Time since its last answer; 0 while it answers.")
        jobs = _gauge("jobs", "Jobs and services that the cluster has.", "kind")
        for row in clusters:
            at = [row["cluster"], row["region"]]
            ready.add_metric(at, float(row["state"] == READY))
            silent.add_metric(at, row["silent_s"] or 0.0)
            for kind in ("job", "service"):
                jobs.add_metric([*at, kind], row[f"{kind}s"])
        without = GaugeMetricFamily(
            "gantree_federation_jobs_without_cluster", "Jobs and services that no cluster has."
        )
        without.add_metric([], self._status["without_cluster"])
        yield from (ready, silent, jobs, without)


def _gauge(name: str, what: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(
        f"gantree_federation_{name}", what, labels=["cluster", "region", *labels]
    )


def exposition(status: Json) -> bytes:
    """The metrics of a status in the text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Status(status))
    return generate_latest(registry)
