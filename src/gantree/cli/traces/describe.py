"""`gantree trace describe`: what is in a trace."""

from pathlib import Path
from typing import Annotated, Any

import typer

from gantree.cli.options import JsonOption
from gantree.cli.output.printing import columns, print_json, printable, span
from gantree.cli.traces.files import FormatOption, TraceArgument, opened
from gantree.formats.workload import write_workload
from gantree.model.errors import BadInput
from gantree.sim.traces.description import describe as description_of
from gantree.sim.traces.distribution import distribution_of

BARS = "▁▂▃▄▅▆▇█"
MOST_QUEUES = 20
HEAD = ("JOBS", "OF ALL", "GPU-HOURS", "OF ALL", "MEDIAN", "P90", "LONGEST")


def describe(
    trace: TraceArgument,
    form: FormatOption = None,
    workload: Annotated[
        Path | None,
        typer.Option(
            "--workload", metavar="FILE", help="Write the distribution of the jobs for synthesize."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Describe a trace: jobs, GPU-hours, sizes, durations, queues and arrivals."""
    found = opened(trace, form)
    if workload is not None:
        _write(workload, write_workload(distribution_of(found)))
    description = description_of(found)
    if as_json:
        print_json(description)
    else:
        typer.echo(_text(description))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{path}: cannot be written: {error.strerror}") from None


def _text(told: dict[str, Any]) -> str:
    parts = [_figures(told), _table("GPUS", "gpus", told["sizes"])]
    queues = told["queues"]
    parts.append(_table("QUEUE", "queue", queues[:MOST_QUEUES]))
    if len(queues) > MOST_QUEUES:
        parts.append(f"{len(queues) - MOST_QUEUES} more queues are in --json.")
    return "\n\n".join(parts)


def _figures(told: dict[str, Any]) -> str:
    rows = {
        "format": told["format"],
        "jobs": f"{told['jobs']:,}",
        "left out": ", ".join(f"{count:,} {why}" for why, count in told["left_out"].items()),
        "span": span(told["span_s"]),
        "GPU-hours": f"{told['gpu_hours']:,.0f}",
        "GPUs on average": _number(told["mean_gpus"]),
        "jobs an hour": _number(told["jobs_per_hour"]),
        "duration": _durations(told["duration_s"]),
        "users": str(told["users"]) if told["users"] else "",
        "GPU models": _models(told["gpu_models"]),
        "by hour of day": _bars(told["jobs_by_hour_of_day"]),
        "by day of week": _bars(told["jobs_by_day_of_week"]),
    }
    return "\n".join(f"{name:16}{text}" for name, text in rows.items() if text)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}"


def _durations(told: dict[str, float | None]) -> str:
    return ", ".join(f"{name} {span(value)}" for name, value in told.items() if value is not None)


def _models(told: list[dict[str, Any]]) -> str:
    asked = [each for each in told if each["gpu"]]
    return ", ".join(f"{printable(each['gpu'])} {each['jobs']:,}" for each in asked[:8])


def _bars(counts: list[int]) -> str:
    most = max(counts)
    return "".join(BARS[count * (len(BARS) - 1) // most] for count in counts) if most else ""


def _table(head: str, key: str, rows: list[dict[str, Any]]) -> str:
    return columns((head, *HEAD), [(printable(row[key]), *_cells(row)) for row in rows])


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    duration_s = row["duration_s"]
    return (
        f"{row['jobs']:,}",
        f"{row['job_share']:.1%}",
        f"{row['gpu_hours']:,.0f}",
        f"{row['gpu_hours_share']:.1%}",
        *(span(duration_s[name]) for name in ("p50", "p90", "max")),
    )
