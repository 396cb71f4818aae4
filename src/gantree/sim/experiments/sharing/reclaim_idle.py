"""reclaim-idle: held GPU time that comes back if idle gangs give their GPUs up: a bound, and days under the rule."""

from collections.abc import Mapping
from dataclasses import astuple
from math import exp

from gantree.sim.experiments.experiment import Bench, Outcome, Plot, Table, at_least, mean
from gantree.sim.experiments.inputs import Figure, figures
from gantree.sim.experiments.sharing.idle_week import Case, Fared, run_case

PERIODS_S = (120, 300, 600, 900, 1800, 3600, 7200, 14_400)
"""Mean lengths of idle periods that are drawn in the plot."""
DAYS = 1.0
LEAST_PERCENT = 10.0
"""Of what is held; what comes back is worth that many more machines."""

Arms = Mapping[tuple[float, float | None], Fared]
"""How days went, by the mean idle period and the time until a gang is reclaimed, in seconds."""


def figure(name: str) -> Figure:
    """Return a figure of inputs/idleness.csv."""
    return figures("idleness")[name]


def regained(
    idle: float, period_s: float, threshold_s: float, restart_s: float, resumed: float
) -> float:
    """Return the share of held GPU time that comes back, less what it costs.

    idle is the share of held time that is idle, in periods of exponential length with a mean. What is beyond the
    threshold comes back: exp(-threshold / mean) of idle time. Each period that is so long costs a restart if work is
    resumed after it, which a share of them is.
    """
    long_ones = exp(-threshold_s / period_s)
    return idle * long_ones * (1 - resumed * restart_s / period_s)


def run(bench: Bench) -> Outcome:
    """Run days with and without the rule, and work out the bound."""
    cases = [_case(seed, *arm) for arm in _arms() for seed in bench.seeds]
    found = bench.workers.map(run_case, cases)
    arms = {
        arm: _mean([one for case, one in zip(cases, found, strict=True) if _arm(case) == arm])
        for arm in _arms()
    }
    likely = figure("idle_period_s").value
    regained_share = _regained(arms, likely, figure("threshold_s").high)
    return Outcome(
        verdicts=(
            at_least(
                "GPU-hours that idle jobs hold come back: of all that is held, with idle periods of 30 minutes on"
                " average and the rule of 15 minutes",
                100 * regained_share,
                LEAST_PERCENT,
                " %",
                "most idle periods end before the rule takes them",
            ),
        ),
        tables=(_simulated(arms), _table()),
        plots=(_plot(),),
    )


def _arms() -> list[tuple[float, float | None]]:
    """Mean idle periods and rules: the time until a gang is reclaimed, None for never."""
    period, threshold = figure("idle_period_s"), figure("threshold_s")
    return [
        (period_s, reclaim_s)
        for period_s in (period.low, period.value, period.high)
        for reclaim_s in (None, threshold.low, threshold.high)
    ]


def _case(seed: int, period_s: float, reclaim_s: float | None) -> Case:
    of = {name: figure(name).value for name in ("idle_short", "idle_long", "restart_s", "sample_s")}
    return Case(seed, period_s, reclaim_s, days=DAYS, **of)


def _arm(case: Case) -> tuple[float, float | None]:
    return case.period_s, case.reclaim_s


def _mean(found: list[Fared]) -> Fared:
    return Fared(*(mean(values) for values in zip(*map(astuple, found), strict=True)))


def _regained(arms: Arms, period_s: float, reclaim_s: float | None) -> float:
    """The share of what is held without the rule that is not held with it."""
    return 1 - arms[period_s, reclaim_s].held_gpu_h / arms[period_s, None].held_gpu_h


def _simulated(arms: Arms) -> Table:
    rows = tuple(
        (
            period_s / 60, "never" if reclaim_s is None else f"{reclaim_s / 60:.0f}", fared.held_gpu_h,
            fared.idle_gpu_h, 100 * _regained(arms, period_s, reclaim_s), fared.reclaims,
            fared.jct_h,
        )
        for (period_s, reclaim_s), fared in arms.items()
    )  # fmt: skip
    head = (
        "mean idle period min", "reclaimed after min", "held GPU-hours", "idle by the draw", "comes back %", "reclaims",
        "mean completion h",
    )  # fmt: skip
    return Table("The first day of Philly's week under the rule, mean over seeds", head, rows)


def _bound(idle: str, period_s: float, threshold_s: float) -> float:
    after_s = threshold_s + figure("sample_s").value
    restart_s, resumed = figure("restart_s").value, figure("mid_job").value
    return regained(figure(idle).value, period_s, after_s, restart_s, resumed)


def _table() -> Table:
    period, threshold = figure("idle_period_s"), figure("threshold_s")
    rows = tuple(
        (
            jobs, 100 * figure(idle).value, mean_s / 60, after_s / 60, 100 * _bound(idle, mean_s, after_s),
        )
        for jobs, idle in (("under 6 h", "idle_short"), ("over 24 h", "idle_long"))
        for mean_s in (period.low, period.value, period.high)
        for after_s in (threshold.low, threshold.high)
    )  # fmt: skip
    head = ("jobs", "idle %", "mean idle period min", "taken after min", "comes back %")
    return Table("The share of held GPU time that comes back, less restarts", head, rows)


def _plot() -> Plot:
    from gantree.sim import charts  # noqa: PLC0415 - Altair is an extra

    rows = [
        {
            "jobs": f"{jobs}, {after_s / 60:.0f} min",
            "period": period_s / 60,
            "back": 100 * _bound(idle, period_s, after_s),
        }
        for jobs, idle in (("under 6 h", "idle_short"), ("over 24 h", "idle_long"))
        for after_s in (figure("threshold_s").low, figure("threshold_s").high)
        for period_s in PERIODS_S
    ]  # fmt: skip
    chart = charts.lines(
        rows, "period", "back", "jobs", x_title="mean idle period, minutes", y_title="held GPU time that comes back, %",
        log_x=True, points=True,
    )  # fmt: skip
    caption = "At most so much of the held GPU time comes back, by how long idle periods are"
    return Plot("reclaim-idle", caption, charts.to_svg(chart))
