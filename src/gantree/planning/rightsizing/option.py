"""One option for a job: a GPU model and a market, with speed, time and cost, and why it is excluded."""

import math
from dataclasses import dataclass, replace

from gantree.model.cluster import ANY_MARKET, MARKET_LABEL, SPOT
from gantree.model.jobs import Elastic, Job, Role
from gantree.model.verdicts import Gate
from gantree.planning.rightsizing.offers import Offers, markets_of, stretch
from gantree.policy.amounts import requested_by_member
from gantree.topology.hardware.prices import Market, PriceList
from gantree.topology.traffic import footprint

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Option:
    """One option to run a job: a GPU model and a market.

    job is the job restricted to these, for the search. speed is relative to the job's fastest model, run_s the time of
    a run without interruptions, run_USD its price; expected_loss_gpu_s and expected_USD include interruptions. None:
    not known; notes name the assumptions. gate and why_not: why an option is closed. Options of one rank are equally
    good; a lower rank is better.
    """

    model: str | None
    market: Market
    job: Job
    speed: float | None
    run_s: float | None = None
    run_USD: float | None = None
    expected_loss_gpu_s: float | None = None
    expected_USD: float | None = None
    gate: Gate | None = None
    why_not: str = ""
    notes: tuple[str, ...] = ()
    rank: int = 0

    @property
    def open(self) -> bool:
        """Whether the job may run so."""
        return self.gate is None


@dataclass(frozen=True, slots=True)
class Terms:
    """What all ways of a job have in common: what there is, what it costs, and what a stop and a new start cost."""

    offers: Offers
    prices: PriceList
    restart_s: float


def gpu_roles(job: Job) -> list[Role]:
    """Roles whose members have GPUs or parts of them."""
    return [role for role in job.roles if role.shape.on_gpus]


class Way:
    """One model on one market, for one job."""

    def __init__(
        self, job: Job, model: str | None, market: Market, speed: float | None, terms: Terms
    ) -> None:
        self.job, self.model, self.market, self.speed = job, model, market, speed
        self.notes: list[str] = []
        self.gpus = self._billed_gpus()
        self.run_s = self._run_s()
        self.stretch = self._stretch(terms) if market == "spot" else 1.0
        self.only_model = model is not None and len(terms.offers) == 1
        self.USD_per_hour = self._USD_per_hour(terms.prices)

    def _billed_gpus(self) -> float:
        """GPUs that are paid for; parts of a GPU count as quotas count them."""
        gpus = 0.0
        for role in gpu_roles(self.job):
            models = role.shape.models if self.model is None else (self.model,)
            of_model = replace(role, shape=replace(role.shape, models=models))
            gpus += role.members * requested_by_member(of_model).get("gpus", 0.0)
        return gpus

    def _run_s(self) -> float | None:
        expected_s = self.job.expected_s
        base_s = self.job.time_limit_s if expected_s is None else expected_s
        if self.speed is None and self.gpus != 0:
            self.notes.append(f"speed on {self.model or 'any GPU'} is not known, counted as 1")
        if base_s is None:
            self.notes.append("run time is not known: neither expected nor time_limit is told")
            return None
        return base_s / (self.speed or 1.0)

    def _stretch(self, terms: Terms) -> float | None:
        assert self.job.checkpoint is not None, "only jobs that save are on spot nodes"
        interval_s = self.job.checkpoint.every_s
        if interval_s is None:
            self.notes.append("checkpoint.every is not told, counted as none before the end")
            interval_s = self.run_s
        if interval_s is None:
            return None
        spot = [
            of_model["spot"]
            for of_model in markets_of(terms.offers, self.model)
            if "spot" in of_model
        ]
        per_day = max(offer.per_day for offer in spot)
        return stretch(
            interval_s, terms.restart_s, per_day * _nodes(self.job, spot[0].gpus_of_node)
        )

    def _USD_per_hour(self, prices: PriceList) -> float | None:
        """What all its GPUs cost an hour."""
        if self.gpus == 0:
            return 0.0
        quote = prices.quote(self.model, self.market)
        if quote is None:
            words = self.market.replace("_", "-")
            self.notes.append(f"the {words} price of {self.model or 'any GPU'} is not known")
        return None if quote is None else quote.USD_per_hour * self.gpus

    def key(self, place: int) -> tuple[float, ...]:
        """The sort key among the open options of a job: the criterion of its choice, then what else differs."""
        slow = math.inf if self.stretch is None else self.stretch / (self.speed or 1.0)
        USD = math.inf if self.USD_per_hour is None else self.USD_per_hour * slow
        by = {"order": place, "time": slow, "cost": USD}[self.job.choose]
        return (by, USD, slow, place, self.market == "on_demand")

    def option(self) -> Option:
        """The way with its time and money."""
        run_USD = expected_USD = loss_gpu_s = None
        if self.run_s is not None and self.stretch is not None:
            loss_gpu_s = self.run_s * (self.stretch - 1.0) * self.gpus
        if self.run_s is not None and self.USD_per_hour is not None:
            run_USD = self.USD_per_hour * self.run_s / HOUR_S
            expected_USD = None if self.stretch is None else run_USD * self.stretch
        gate, why_not = self._closed(expected_USD)
        return Option(
            self.model, self.market, self._held(), self.speed, self.run_s, run_USD, loss_gpu_s,
            expected_USD, gate, why_not, tuple(self.notes),
        )  # fmt: skip

    def _closed(self, cost_USD: float | None) -> tuple[Gate | None, str]:
        """(gate, why) where the job may not run so."""
        too_large = self._too_large()
        if too_large:
            return Gate.SHAPE, too_large
        words = f"{self.model or 'any GPU'} {self.market.replace('_', '-')}"
        if self.stretch == math.inf:
            return Gate.LIMIT, f"{words}: taken back too often for a run to end"
        budget = self.job.budget_USD
        if budget is None:
            return None, ""
        if cost_USD is None:
            return Gate.LIMIT, f"{words}: what it costs is not known ({'; '.join(self.notes)})"
        if cost_USD > budget:
            return Gate.LIMIT, f"{words}: about ${cost_USD:,.2f}, the budget is ${budget:,.2f}"
        return None, ""

    def _too_large(self) -> str:
        """Why the job does not fit into memory here, of a role that lists models of its own into none of these."""
        if self.model is not None:
            return footprint.why_not(self.job, self.model)
        for role in gpu_roles(self.job):
            models = role.shape.models
            if models and not footprint.fitting_models(self.job, models):
                return footprint.why_not(self.job, models[0])
        return ""

    def _held(self) -> Job:
        """The job, restricted to this model and market where it has a choice."""
        restricts = self.model is not None and not self.only_model
        roles = tuple(self._held_role(role, restricts) for role in self.job.roles)
        elastic = _fitting_sizes(self.job, self.model)
        if roles == self.job.roles and elastic == self.job.elastic:
            return self.job
        return replace(self.job, roles=roles, elastic=elastic)

    def _held_role(self, role: Role, restricts: bool) -> Role:
        shape = role.shape
        has_gpus = shape.on_gpus
        labels = tuple(label for label in shape.labels if label[0] != MARKET_LABEL)
        if self.market == "spot":
            labels = (*labels, (MARKET_LABEL, SPOT if has_gpus else ANY_MARKET))
        models = shape.models
        if self.model is None:
            models = footprint.fitting_models(self.job, models) or models
        elif restricts and has_gpus:
            models = (self.model,)
        if (labels, models) == (shape.labels, shape.models):
            return role
        return replace(role, shape=replace(shape, labels=labels, models=models))


def _nodes(job: Job, gpus_of_node: int) -> int:
    """Nodes that a gang is on at least: as many members on each as have their GPUs there."""
    nodes = 0
    for role in gpu_roles(job):
        together = max(1, gpus_of_node // max(1, role.shape.gpus))
        nodes += math.ceil(role.members / together)
    return max(1, nodes)


def _fitting_sizes(job: Job, gpu: str | None) -> Elastic | None:
    """The sizes of a gang at which the model fits into memory."""
    if job.elastic is None or len(job.roles) != 1:
        return job.elastic
    return Elastic(footprint.least_members(job, gpu), job.elastic.max)
