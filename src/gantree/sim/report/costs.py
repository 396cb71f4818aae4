"""What a run cost: GPU-hours lost by the cause of the stop, energy, and money."""

from gantree.sim.charts import bars
from gantree.sim.measures.attempts import spans_of
from gantree.sim.measures.energy import energy_of
from gantree.sim.measures.gpu_hours import GpuHours, gpu_hours
from gantree.sim.measures.money import costs_of
from gantree.sim.measures.stop_costs import stop_costs
from gantree.sim.measures.timeline import span_of
from gantree.sim.report.document import Section, Table, number_text
from gantree.sim.results import Result
from gantree.topology.hardware.power import BUSY_SHARE, IDLE_SHARE

UNKNOWN = "model not named"


def stops_section(result: Result) -> Section | None:
    """GPU-hours that were lost, by cause; None if nothing was stopped."""
    costs = stop_costs(spans_of(result))
    if not costs:
        return None
    rows = [
        {"cause": cost.cause, "GPU-hours lost": round(cost.lost_gpu_hours, 3)} for cost in costs
    ]
    notes = [
        "GPU-hours that stopped attempts held for work that had to be done again, and for starting, saving and"
        " stopping.",
    ]
    table = Table(
        ("cause", "stops", "GPU-hours lost"),
        [(cost.cause, cost.stops, cost.lost_gpu_hours) for cost in costs],
    )
    return Section(
        "Cost of preemption and restarts", notes, [bars(rows, "cause", "GPU-hours lost")], [table]
    )


def energy_section(result: Result) -> Section:
    """Energy of the GPUs by the power model."""
    hours = _hours(result)
    notes = [
        f"GPUs alone: {BUSY_SHARE:.0%} of the board's power limit while held (arXiv:2506.14551), {IDLE_SHARE:.1%} while"
        " idle; docs/simulator.md has the sources. CPUs, network and cooling are not in it.",
        *_left_out(hours, {row.gpu for row in energy_of(hours)}, "a known power limit"),
    ]
    table = Table(
        ("GPU", "GPUs", "W held", "W idle", "kWh held", "kWh idle"),
        [
            (row.gpu, row.gpus, row.busy_W, row.idle_W, row.held_kWh, row.idle_kWh)
            for row in energy_of(hours)
        ],
    )
    return Section("Energy", notes, tables=[table] if table.rows else [])


def money_section(result: Result) -> Section:
    """The cluster at list prices."""
    hours = _hours(result)
    notes = [
        "Every GPU at its list price over the whole run, as in a rented fleet.",
        *_left_out(hours, {row.gpu for row in costs_of(hours)}, "a list price"),
    ]
    table = Table(
        ("GPU", "market", "GPUs", "$ an hour", "$ held", "$ idle", "price of", "source"),
        [
            (row.gpu, row.market, row.gpus, row.USD_per_hour, row.held_USD, row.idle_USD, row.date, row.source)
            for row in costs_of(hours)
        ],
    )  # fmt: skip
    return Section("Money", notes, tables=[table] if table.rows else [])


def _hours(result: Result) -> list[GpuHours]:
    return gpu_hours(result.fabric, spans_of(result), *span_of(result))


def _left_out(hours: list[GpuHours], known: set[str], what: str) -> list[str]:
    """A sentence about the GPUs that are in no row; none if all are."""
    rest: dict[str, int] = {}
    for row in hours:
        if row.gpu not in known:
            rest[row.gpu or UNKNOWN] = rest.get(row.gpu or UNKNOWN, 0) + row.gpus
    told = ", ".join(f"{number_text(gpus)} {gpu}" for gpu, gpus in rest.items())
    return [f"GPUs without {what} are left out: {told}."] if rest else []
