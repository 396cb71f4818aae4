"""The metrics of the ledger: one sample of its figures, as Prometheus collects it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gantree.control.metrics.figures import Figures
from gantree.control.metrics.gates import WAITS
from gantree.control.metrics.service_metrics import LoadFigures, ServiceFigures, of_services
from gantree.model.verdicts import Gate


@dataclass(frozen=True, slots=True)
class LedgerSample:
    """The figures of the ledger at one time, and of the inbox.

    at: seconds since 1970. took_s: how long sampling held the controller's thread. backlog: events in the inbox that no
    turn has read; unflushed: events that are not yet in the inbox. waits and refusals are by gate (`gates`), services
    and their loads by name.
    """

    figures: Figures
    at: float
    took_s: float
    epoch: int
    backlog: int
    unflushed: int
    set_aside: int
    waits: Mapping[str, int]
    refusals: Mapping[str, int]
    services: Mapping[str, ServiceFigures]
    loads: Mapping[str, LoadFigures]


class LedgerCollector(Collector):
    """The newest sample as Prometheus metrics; none before the first."""

    def __init__(self) -> None:
        self.sample: LedgerSample | None = None

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        sample = self.sample
        if sample is None:
            return
        yield from _of_queues(sample.figures)
        yield from _of_budgets(sample.figures)
        yield from _of_gpus(sample.figures)
        yield from _of_waits(sample)
        yield from of_services(sample.services, sample.loads)
        yield _one("epoch", "The epoch that this daemon writes in.", sample.epoch)
        yield _one("inbox_backlog_events", "Events in the inbox, not decided yet.", sample.backlog)
        yield _one(
            "intake_waiting_events",
            "Events told by the cluster, not in the inbox.",
            sample.unflushed,
        )
        yield _one("set_aside_events", "Events that were ever set aside.", sample.set_aside)
        yield _one(
            "figures_timestamp_seconds", "When the figures of the ledger were taken.", sample.at
        )
        yield _one("figures_walk_seconds", "How long it took to take them.", sample.took_s)


def _one(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"gantree_{name}", text, value=value)


def _by(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(f"gantree_{name}", text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _of_queues(figures: Figures) -> Iterator[Metric]:
    queues = figures.queues.items()
    yield _by(
        "queue_waiting_jobs", "Jobs that wait.", "queue", {name: q.waiting for name, q in queues}
    )
    yield _by(
        "queue_oldest_waiting_seconds",
        "Since the oldest job that waits was handed in; 0 where none waits.",
        "queue",
        {name: q.oldest_s for name, q in queues},
    )
    yield _by(
        "queue_running_gangs",
        "Gangs that hold a place.",
        "queue",
        {name: q.running for name, q in queues},
    )
    yield _by(
        "queue_held_gpus",
        "GPUs that its gangs hold, parts as such.",
        "queue",
        {name: q.gpus for name, q in queues},
    )


def _of_budgets(figures: Figures) -> Iterator[Metric]:
    labels = ["queue", "period"]
    used = GaugeMetricFamily(
        "gantree_budget_used_ratio", "What is used of a budget, over all of it.", labels=labels
    )
    forecast = GaugeMetricFamily(
        "gantree_budget_forecast_ratio",
        "What is used at the end of the period at the present rate, over all of the budget.",
        labels=labels,
    )
    closed = GaugeMetricFamily(
        "gantree_budget_closed", "1 where a budget is used up and nothing starts.", labels=labels
    )
    for key, use in figures.budgets.items():
        used.add_metric(key, use.used / use.budget.amount)
        forecast.add_metric(key, use.forecast / use.budget.amount)
        closed.add_metric(key, use.is_closed)
    yield from (used, forecast, closed)


def _of_gpus(figures: Figures) -> Iterator[Metric]:
    yield _by("gpus", "GPUs, each once.", "use", figures.gpus)
    yield _one("gpu_utilisation_ratio", "GPUs held by jobs over usable ones.", figures.utilisation)
    yield _by(
        "fragmentation_ratio",
        "Share of the free GPUs that lie in domains of a tier of which a part is held.",
        "tier",
        {name: tier.torn for name, tier in figures.tiers.items()},
    )
    yield _by(
        "largest_free_domain_gpus",
        "The most free GPUs in one domain of a tier.",
        "tier",
        {name: tier.largest for name, tier in figures.tiers.items()},
    )
    yield _by("reservations", "Starts told to jobs that wait.", "kind", figures.starts)
    yield _by(
        "unhealthy_nodes",
        "Nodes of which a source reports a fault.",
        "state",
        figures.unhealthy_nodes,
    )
    yield _by("links", "Links of which a source reports something.", "state", figures.links)


def _of_waits(sample: LedgerSample) -> Iterator[Metric]:
    yield _by(
        "waiting_jobs",
        "Jobs that wait, by the gate that refuses them.",
        "gate",
        {gate: sample.waits.get(gate, 0) for gate in WAITS},
    )
    refusals = CounterMetricFamily(
        "gantree_refusals", "Jobs that came to a gate, from none or another.", labels=["gate"]
    )
    for gate in Gate:
        refusals.add_metric([gate.value], sample.refusals.get(gate.value, 0))
    yield refusals
