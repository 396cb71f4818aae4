"""Metrics of a dry run: what the scheduler in charge decided, and what gantree would have decided."""

from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

SIDES = {"theirs": "in-charge", "ours": "gantree"}
FIGURES = {
    "started": ("gangs_started", "Gangs of which all pods had a node."),
    "wait_s": ("wait_seconds", "Mean wait of the gangs that both have started."),
    "gpu_s_idle": ("idle_gpu_seconds", "GPU time that nobody held."),
    "gpu_s_of_a_part": (
        "partial_gpu_seconds",
        "GPU time held by pods that waited for the rest of their gang.",
    ),
}


class ShadowFigures(Collector):
    """Reads the newest report whenever it is asked."""

    def __init__(self, newest: Callable[[], dict[str, Any]]) -> None:
        self._newest = newest

    def collect(self) -> Iterator[Metric]:
        """A gauge a figure, labelled by the scheduler that it is about."""
        totals = self._newest().get("totals", {})
        for name, (called, what) in FIGURES.items():
            family = GaugeMetricFamily(f"gantree_shadow_{called}", what, labels=["scheduler"])
            for side, label in SIDES.items():
                value = totals.get(side, {}).get(name)
                if value is not None:
                    family.add_metric([label], value)
            yield family
        yield _domains(totals)


def _domains(totals: dict[str, Any]) -> Metric:
    family = GaugeMetricFamily(
        "gantree_shadow_domains",
        "Mean number of domains of a tier that gangs of several pods are in.",
        labels=["scheduler", "tier"],
    )
    for side, label in SIDES.items():
        for tier, mean in totals.get(side, {}).get("domains", {}).items():
            family.add_metric([label, tier], mean)
    return family
