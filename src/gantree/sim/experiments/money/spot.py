"""spot: what spot machines save, with interruptions, lost work and restarts counted."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from gantree.formats.policy.reader import PRESETS
from gantree.formats.traces import TraceJob
from gantree.model.cluster import Cluster
from gantree.planning.rightsizing.offers import stretch
from gantree.sim.cluster import Overheads
from gantree.sim.experiments.experiment import (
    Bench,
    Judgement,
    Outcome,
    Plot,
    Table,
    Verdict,
    mean,
)
from gantree.sim.experiments.inputs import INPUTS, cluster, figures
from gantree.sim.run import simulate
from gantree.sim.running.model import Checkpoints, RunningModel, Spot

NODES, GPUS_OF_NODE = 8, 8
WORK_H = 48.0
RATES = ("calm", "busy", "scarce")
ON_DEMAND = "on demand"
LEAST, MOST = 60.0, 90.0
"""Percent that the claim promises."""


@dataclass(frozen=True, slots=True)
class Price:
    """USD of a GPU-hour, on demand and spot."""

    gpu: str
    on_demand: float
    spot: float
    year: str

    @property
    def saved(self) -> float:
        """Percent off the price on demand."""
        return 100 * (1 - self.spot / self.on_demand)


@dataclass(frozen=True, slots=True)
class Ran:
    """One run: GPU-hours held for each of work, hours from submission to the end, interruptions."""

    held: float
    hours: float
    interruptions: int


@cache
def prices() -> tuple[Price, ...]:
    """Return the prices of inputs/spot-prices.csv."""
    with (INPUTS / "spot-prices.csv").open(encoding="utf-8", newline="") as file:
        return tuple(
            Price(row["gpu"], float(row["on_demand_USD"]), float(row["spot_USD"]), row["year"])
            for row in csv.DictReader(file)
        )


def per_day(rate: str) -> float:
    """Return interruptions of a node a day; none on demand."""
    if rate == ON_DEMAND:
        return 0.0
    return figures("reliability")[f"spot_per_day_{rate}"].value


def spot_site(rate: float) -> Cluster:
    """Return 16 nodes of one leaf pair, all spot, each interrupted so often a day; with 0 none is spot."""
    site = cluster("dgx-h100")
    return replace(site, nodes=tuple(replace(node, spot=rate or None) for node in site.nodes[:16]))


def run_rate(case: tuple[str, int]) -> Ran:
    """Run one job of 64 GPUs; case: how often its nodes are interrupted (or ON_DEMAND), and a seed."""
    rate, seed = case
    given = figures("reliability")
    row = TraceJob(
        "train", 0.0, WORK_H * 3600, NODES, GPUS_OF_NODE,
        checkpoint_s=given["checkpoint_min"].value * 60, market=None if rate == ON_DEMAND else "spot",
    )  # fmt: skip
    model = RunningModel(
        checkpoints=Checkpoints(save_s=given["save_s"].value, restore_s=given["restore_s"].value),
        spot=Spot(given["spot_notice_s"].value, given["spot_away_min"].value * 60),
    )
    start_s = given["restart_min"].value * 60
    policy = replace(PRESETS["gantree"], restart_s=start_s)
    overheads = Overheads(start_s)
    result = simulate(
        spot_site(per_day(rate)), [row], policy, overheads=overheads, running=model, seed=seed
    )
    job = result.jobs[0]
    assert job.end_s is not None, f"the job does not end: {job.reason}"
    useful_gpu_s = WORK_H * 3600 * job.gpus
    return Ran(result.held_gpu_s / useful_gpu_s, job.end_s / 3600, job.attempts - 1)


def saved(price: Price, held: float) -> float:
    """Return percent of the money on demand that spot saves, where it holds so many hours for each hour on demand."""
    return 100 * (1 - price.spot * held / price.on_demand)


def run(bench: Bench) -> Outcome:
    """Run the job with every rate of interruptions and seed."""
    cases = [(rate, seed) for rate in RATES for seed in bench.seeds]
    ran = dict(zip(cases, bench.workers.map(run_rate, cases), strict=True))
    on_demand = run_rate((ON_DEMAND, 1))
    held = {
        rate: mean([ran[rate, seed].held for seed in bench.seeds]) / on_demand.held
        for rate in RATES
    }
    return Outcome(
        verdicts=(
            _verdict("list prices of spot are 60 to 90 % below those on demand", [price.saved for price in prices()]),
            *(
                _verdict(
                    f"60 to 90 % are saved where interruptions are {rate} ({per_day(rate):g} a node-day)",
                    [saved(price, held[rate]) for price in prices()],
                )
                for rate in RATES
            ),
        ),
        tables=(
            Table(
                f"A job of 64 GPUs and {WORK_H:.0f} hours of work on spot nodes: means over seeds",
                (
                    "market", "interruptions a node-day", "attempts that were cut", "GPU-hours held for one of work",
                    "for one on demand", "by the formula", "hours until the end",
                ),
                (
                    (ON_DEMAND, 0.0, on_demand.interruptions, on_demand.held, 1.0, 1.0, on_demand.hours),
                    *(_row(rate, [ran[rate, seed] for seed in bench.seeds], held[rate]) for rate in RATES),
                ),
            ),
            Table(
                "Percent saved",
                ("GPU", "year", "on demand USD", "spot USD", "list price", *RATES),
                tuple(_savings(price, held) for price in prices()),
            ),
        ),
        plots=(_plot(held),),
    )  # fmt: skip


def _verdict(claim: str, percents: Sequence[float]) -> Verdict:
    within = sum(LEAST <= round(percent, 6) <= MOST for percent in percents)
    text = f"{min(percents):.0f} to {max(percents):.0f} %, {within} of {len(percents)} quotations within"
    if within == len(percents):
        return Verdict(claim, text, Judgement.HOLDS)
    judged = Judgement.PARTLY if within else Judgement.MISSED
    why = (
        "since prices on demand fell in 2025 and 2026, spot prices have followed them only in part"
    )
    return Verdict(claim, text, judged, why)


def _row(rate: str, ran: Sequence[Ran], held: float) -> tuple[str | float | None, ...]:
    return (
        rate,
        per_day(rate),
        mean([each.interruptions for each in ran]),
        mean([each.held for each in ran]),
        held,
        by_formula(per_day(rate)),
        mean([each.hours for each in ran]),
    )


def by_formula(rate: float) -> float | None:
    """Return how much longer the job takes by the formula that `spot` of a job is chosen by: nothing is saved at the
    notice; None where it would never end.
    """
    given = figures("reliability")
    every_s = given["checkpoint_min"].value * 60
    longer = stretch(every_s, given["restart_min"].value * 60, rate * NODES)
    return longer if longer < float("inf") else None


def _savings(price: Price, held: Mapping[str, float]) -> tuple[str | float, ...]:
    found = (saved(price, held[rate]) for rate in RATES)
    return (price.gpu, price.year, price.on_demand, price.spot, price.saved, *found)


def _plot(held: Mapping[str, float]) -> Plot:
    from gantree.sim import charts  # noqa: PLC0415 - Altair is an extra

    rows = []
    for price in prices():
        rows.append({"GPU": _short(price), "interruptions": "none", "saved": price.saved})
        rows += [
            {"GPU": _short(price), "interruptions": rate, "saved": saved(price, held[rate])}
            for rate in RATES
        ]
    chart = charts.bars(rows, "GPU", "saved", "interruptions", y_title="% saved")
    return Plot("spot", "Percent saved by spot, with interruptions counted", charts.to_svg(chart))


def _short(price: Price) -> str:
    return f"{price.gpu.split('-')[0]} {price.year} {price.saved:.0f} %"
