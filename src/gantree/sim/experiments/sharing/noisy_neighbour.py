"""noisy-neighbour: p99 of a replica of inference beside another on one GPU, under MPS, MIG and time-slices."""

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from gantree.sim.experiments.experiment import (
    Bench,
    Cell,
    Judgement,
    Outcome,
    Plot,
    Table,
    Verdict,
    at_least,
    at_most,
    mean,
)
from gantree.sim.experiments.inputs import INPUTS, figures
from gantree.sim.experiments.sharing.gpu_queue import (
    Slices,
    in_slices,
    on_partition,
    partition_rate,
    percentile,
    poisson,
    shared_rate,
    side_by_side,
)

METHODS = ("MIG, 3g.40gb each", "MPS", "time-slices")
MIG, MPS, SLICES = METHODS
HALF = 3 / 7
"""Compute of a 3g.40gb instance; two of them are all that fit on a GPU."""

SATURATED = 1.0
"""Load of a neighbour that infers without pause: its next request comes when one is served."""

RANGES = ("width", "work_cv", "slice_s")
"""Figures of the input that are shown at both ends of their range."""

NEIGHBOURS = (0.0, 0.2, 0.4, 0.6, 0.8, SATURATED)
REQUESTS = 12_000
"""Requests of the replica that is watched, a seed."""


@dataclass(frozen=True, slots=True)
class Case:
    """A method, the loads of the replica that is watched and of its neighbour, and the seed.

    figure and end say which figure of the input stands at "low" or "high"; all others are the likeliest.
    """

    method: str
    load: float
    neighbour: float
    seed: int
    figure: str = ""
    end: str = ""

    def value(self, name: str) -> float:
        """Return a figure of inputs/gpu-sharing.csv for this case."""
        found = figures("gpu-sharing")[name]
        return getattr(found, self.end) if name == self.figure else found.value


def value(name: str) -> float:
    """Return the likeliest figure of inputs/gpu-sharing.csv."""
    return figures("gpu-sharing")[name].value


def slices(case: Case) -> Slices:
    """Return the time-slices of a case, in units of the work of a request; a switch always takes as long."""
    share = value("switch_share") * value("slice_s") / case.value("slice_s")
    return Slices(case.value("slice_s") / value("service_s"), share)


def p99(case: Case) -> float:
    """Return the p99 of the watched replica over the time of one request alone on the whole GPU."""
    width, cv = case.value("width"), case.value("work_cv")
    watched = poisson(case.load, REQUESTS, cv, Random(case.seed))  # noqa: S311 - no secret
    if case.method == MIG:
        return percentile(on_partition(watched, partition_rate(HALF, width)), 99)
    streams, saturated = [watched], int(case.neighbour == SATURATED)
    if 0 < case.neighbour < SATURATED:
        count = int(REQUESTS * case.neighbour / case.load)
        other = Random(case.seed + 1_000)  # noqa: S311 - no secret
        streams.append(poisson(case.neighbour, count, cv, other))
    if case.method == MPS:
        return percentile(side_by_side(streams, width, saturated=saturated)[0], 99)
    return percentile(in_slices(streams, slices(case), saturated=saturated)[0], 99)


def keeps_up(case: Case) -> bool:
    """Whether the queue of the watched replica does not grow for ever."""
    if case.method == MIG:
        return case.load < partition_rate(HALF, value("width"))
    if case.method == MPS:
        return case.load < shared_rate(2, value("width"))
    stretch = 1 + value("switch_share")
    return case.load * 2 * stretch < 1 or (case.load + case.neighbour) * stretch < 1


def run(bench: Bench) -> Outcome:
    """Watch a replica at two loads beside all neighbours, under all methods."""
    loads = (figures("gpu-sharing")["load"].low, value("load"))
    cases = [
        Case(method, load, neighbour, seed)
        for method in METHODS
        for load in loads
        for neighbour in NEIGHBOURS
        for seed in bench.seeds
    ]
    stable = [case for case in cases if keeps_up(case)]
    found = dict(zip(stable, bench.workers.map(p99, stable), strict=True))
    rows = {load: _rows(load, found, bench.seeds) for load in loads}
    measured = _measured()
    ends = [
        Case(method, loads[0], SATURATED, bench.seeds[0], name, end)
        for name in RANGES
        for end in ("low", "high")
        for method in METHODS
    ]
    return Outcome(
        verdicts=(*_verdicts(rows[loads[0]]), _of_model(measured)),
        tables=(
            *(_table(load, rows[load]) for load in loads),
            Table(
                "Seconds of an inference, by pods that infer without pause on one A100",
                ("method", "pods", "measured", "predicted", "predicted / measured"),
                tuple(measured),
            ),
            _sensitivity(ends, bench.workers.map(p99, ends)),
        ),
        plots=(_plot(loads[0], rows[loads[0]]),),
    )


Rows = dict[str, list[float | None]]
"""p99 by method, one for each of NEIGHBOURS, over the time alone; None where the queue grows for ever."""


def _rows(load: float, found: dict[Case, float], seeds: Sequence[int]) -> Rows:
    rows: Rows = {method: [] for method in METHODS}
    for method in METHODS:
        for neighbour in NEIGHBOURS:
            cases = [Case(method, load, neighbour, seed) for seed in seeds]
            known = [found[case] for case in cases if case in found]
            rows[method].append(mean(known) if known else None)
    return rows


def _times(rows: Rows, method: str, place: int = -1) -> float:
    first, then = rows[method][0], rows[method][place]
    assert first is not None and then is not None, "the light load is served under every method"
    return then / first


def _verdicts(rows: Rows) -> list[Verdict]:
    isolated, shared, sliced = (_times(rows, method) for method in METHODS)
    of_mig, of_mps = rows[MIG][-1], rows[MPS][-1]
    assert of_mig is not None and of_mps is not None, "the light load is served under every method"
    return [
        at_most("MIG: a neighbour does not change the p99", isolated, 1.0, "x"),
        at_least("time-slices: a neighbour that never pauses doubles the p99, or worse", sliced, 2, "x"),
        Verdict(
            "MPS lies between the two",
            f"{shared:.3g}x, against {isolated:.3g}x and {sliced:.3g}x",
            Judgement.HOLDS if isolated < shared < sliced else Judgement.MISSED,
        ),
        at_most(
            "beside a neighbour that never pauses MIG has the lowest p99 (MIG / MPS)", of_mig / of_mps, 1, "x",
            "a request keeps more of the GPU busy than an instance has: the partition slows it always, and more than "
            "the neighbour does under MPS. MIG gives a p99 that can be promised, not the lowest",
        ),
    ]  # fmt: skip


def _measured() -> list[tuple[str, int, float, float, float]]:
    """(method, pods, seconds measured, seconds predicted, ratio) of pods that infer without pause."""
    width, alone_s = value("width"), value("service_s")
    predicted: dict[str, Callable[[int], float]] = {
        "MPS": lambda pods: alone_s / shared_rate(pods, width),
        "time-slices": lambda pods: alone_s * pods * (1 + value("switch_share") * (pods > 1)),
        "MIG 1g.10gb": lambda _: alone_s / partition_rate(1 / 7, width),
    }
    path = INPUTS / "gpu-sharing-measured.csv"
    with path.open(encoding="utf-8", newline="") as file:
        rows = [(row["method"], int(row["pods"]), float(row["seconds"])) for row in csv.DictReader(file)]  # fmt: skip
    return [
        (method, pods, seconds, predicted[method](pods), predicted[method](pods) / seconds)
        for method, pods, seconds in rows
    ]


def _of_model(measured: Sequence[tuple[str, int, float, float, float]]) -> Verdict:
    off = max(abs(1 - row[-1]) for row in measured)
    return at_most("the model is within 15 % of what was measured", 100 * off, 15, " %")


def _table(load: float, rows: Rows) -> Table:
    service_ms = 1000 * value("service_s")
    head = ("method", *(_name(neighbour) for neighbour in NEIGHBOURS))
    return Table(
        f"p99 in ms of a replica that is busy {100 * load:.0f} % of the time alone, by the load of its neighbour "
        "(empty: its queue grows for ever)",
        head,
        tuple(
            (method, *(None if each is None else service_ms * each for each in found))
            for method, found in rows.items()
        ),
    )


def _sensitivity(cases: Sequence[Case], found: Sequence[float]) -> Table:
    """One row for each end of a figure's range; the cases of a row follow each other."""
    service_ms, count = 1000 * value("service_s"), len(METHODS)
    rows: list[tuple[Cell, ...]] = []
    for place in range(0, len(cases), count):
        case = cases[place]
        times = (service_ms * each for each in found[place : place + count])
        rows.append((f"{case.figure} {case.value(case.figure):g}", *times))
    title = "p99 in ms at the light load beside one that never pauses, one figure at the ends of its range (one seed)"
    return Table(title, ("figure", *METHODS), tuple(rows))


def _name(neighbour: float) -> str:
    return "never pauses" if neighbour == SATURATED else f"{100 * neighbour:.0f} %"


def _plot(load: float, rows: Rows) -> Plot:
    from gantree.sim import charts  # noqa: PLC0415 - Altair is an extra

    points = [
        {"method": method, "neighbour": 100 * neighbour, "p99": 1000 * value("service_s") * each}
        for method, found in rows.items()
        for neighbour, each in zip(NEIGHBOURS, found, strict=True)
        if each is not None
    ]
    chart = charts.lines(
        points, "neighbour", "p99", "method", x_title="load of the neighbour, % (100: never pauses)",
        y_title="p99, ms", points=True,
    )  # fmt: skip
    caption = f"p99 of a replica at {100 * load:.0f} % load, by the load of its neighbour"
    return Plot("noisy-neighbour", caption, charts.to_svg(chart))
