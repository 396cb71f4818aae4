"""reclaim-idle: a bound of the held GPU time that comes back if idle gangs give their GPUs up; the rule comes later."""

from math import exp

from gantree.sim.experiments.experiment import Bench, Judgement, Outcome, Plot, Table, Verdict
from gantree.sim.experiments.inputs import Figure, figures

PERIODS_S = (120, 300, 600, 900, 1800, 3600, 7200, 14_400)
"""Mean lengths of idle periods that are drawn in the plot."""


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
    """Work out the bound; nothing here is drawn, so seeds do not matter."""
    likely = _bound("idle_short", figure("idle_period_s").value, figure("threshold_s").value)
    long_jobs = _bound("idle_long", figure("idle_period_s").value, figure("threshold_s").value)
    return Outcome(
        verdicts=(
            Verdict(
                "GPU-hours that idle jobs hold come back",
                f"bound: {100 * likely:.0f} % of what jobs under 6 h hold, {100 * long_jobs:.0f} % of jobs over 24 h",
                Judgement.OPEN,
                "gantree does not take idle GPUs back yet; this is the most that the rule could win",
            ),
        ),
        tables=(_table(),),
        plots=(_plot(),),
    )


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
