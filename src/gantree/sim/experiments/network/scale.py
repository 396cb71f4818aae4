"""scale: time of a decision from 1,000 to 131,072 GPUs, and what more time for the search would gain."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import median
from time import perf_counter

from gantree.model.jobs import Job
from gantree.model.placements import Placement
from gantree.placement.choice.search import place
from gantree.placement.request.placement_preferences import PlacementPreferences
from gantree.sim.bench.decisions import decisions
from gantree.sim.bench.mix import gang, half_full
from gantree.sim.experiments.experiment import Bench, Outcome, Plot, Table, at_most
from gantree.sim.experiments.inputs import models
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy

SIZES = (1024, 4096, 16_384, 65_536, 131_072)
DECISIONS = 200
SEARCHED_GPUS = 1024
"""GPUs of the clusters on which the optimum is searched for."""

GANGS = 6
"""Gangs a seed whose place is searched for with more time."""

SECONDS = (0.0, 0.1, 1.0)
"""Seconds for the exact search (`exact` of a policy)."""


@dataclass(frozen=True, slots=True)
class Sought:
    """One gang: step in seconds and time of the decision, by the seconds that the exact search had."""

    step_s: tuple[float, ...]
    took_s: tuple[float, ...]


def latency(gpus: int) -> dict[str, float]:
    """Measure decisions on a half-full cluster of so many GPUs."""
    return decisions(gpus=gpus, decisions=DECISIONS, seed=1)


def search(seed: int) -> list[Sought]:
    """Place gangs that train a model on a half-full cluster, with more and more time."""
    random = Random(seed)  # noqa: S311 - a draw of a simulation, not a secret
    occupancy = Occupancy(Fabric.build(half_full(SEARCHED_GPUS, random)))
    found: list[Sought] = []
    number = 0
    while len(found) < GANGS and number < 50 * GANGS:
        number += 1
        sought = _sought(occupancy, _training(gang(f"g{number}", random)))
        if sought is not None:
            found.append(sought)
    return found


def _training(job: Job) -> Job:
    """A gang that trains a language model, whatever it asks of the topology."""
    trained = models()["llama-7b"].trained_by(job)
    return replace(trained, name=job.name)


def _sought(occupancy: Occupancy, job: Job) -> Sought | None:
    """None where the gang does not fit, or has one node and so nothing to choose."""
    if len(job.roles) > 1 or job.roles[0].members == 1:
        return None
    steps_s, took_s = [], []
    for seconds in SECONDS:
        start_s = perf_counter()
        placed = place(occupancy, job, PlacementPreferences(exact_s=seconds))
        took_s.append(perf_counter() - start_s)
        if not isinstance(placed, Placement) or placed.predicted.step_s is None:
            return None
        steps_s.append(placed.predicted.step_s)
    return Sought(tuple(steps_s), tuple(took_s))


def run(bench: Bench) -> Outcome:
    """Measure latencies one after the other, since they are timed; search on all cores."""
    times = [latency(gpus) for gpus in SIZES]
    sought = [each for group in bench.workers.map(search, bench.seeds) for each in group]
    rows = [_row(place, sought) for place in range(len(SECONDS))]
    growth = times[-1]["median_us"] / times[0]["median_us"]
    return Outcome(
        verdicts=(
            at_most("128 times the GPUs: at most 4 times the median decision", growth, 4, "x"),
            at_most("131,072 GPUs: p99 of a decision below 10 ms", times[-1]["p99_us"] / 1000, 10, " ms"),
            at_most(
                "more time gains less than 1 % of the step", 100 * (rows[0][2] - 1), 1, " %",
                "a gang of many small pods finds fuller nodes over two spines; the search keeps to one",
            ),
        ),
        tables=(
            Table(
                "One gang decision on a half-full cluster",
                ("GPUs", "search median us", "search p99 us", "handle median us", "handle p99 us", "refused"),
                tuple(
                    (
                        int(each["gpus"]), each["median_us"], each["p99_us"], each["handle_median_us"],
                        each["handle_p99_us"], each["refused"],
                    )
                    for each in times
                ),
            ),
            Table(
                f"{len(sought)} gangs on {SEARCHED_GPUS} GPUs: step by the time for the exact search",
                ("seconds for the optimum", "decision ms, median", "step over the best found, mean", "worst"),
                tuple(rows),
            ),
        ),
        plots=(_plot(times),),
    )  # fmt: skip


def _row(place: int, sought: Sequence[Sought]) -> tuple[float, float, float, float]:
    over = [each.step_s[place] / min(each.step_s) for each in sought]
    took_ms = 1000 * median(each.took_s[place] for each in sought)
    return SECONDS[place], took_ms, sum(over) / len(over), max(over)


def _plot(times: Sequence[dict[str, float]]) -> Plot:
    from gantree.sim import charts  # noqa: PLC0415 - Altair is an extra

    rows = [
        {"gpus": each["gpus"], "figure": name, "us": each[key]}
        for each in times
        for name, key in (("median", "median_us"), ("p99", "p99_us"))
    ]
    chart = charts.lines(
        rows, "gpus", "us", "figure", x_title="GPUs", y_title="one decision, microseconds",
        log_x=True, log_y=True, points=True,
    )  # fmt: skip
    return Plot(
        "scale", "Time of one gang decision by the GPUs of the cluster", charts.to_svg(chart)
    )
