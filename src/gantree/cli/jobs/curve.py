"""`gantree curve`: step time and loss that a job reported, over its attempts."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from math import isfinite
from typing import Annotated, Any

import typer

from gantree.cli.daemon_client import JobArgument, client, job_named
from gantree.cli.options import JsonOption, StateOption
from gantree.cli.output.printing import columns, print_json

Row = dict[str, Any]
HEAD = ("ATTEMPT", "STEPS", "LOSS", "", "STEP TIME", "")
FIELDS = ("step", "loss", "samples_per_s", "step_s", "at")
BARS = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
WIDTH = 24
"""Characters of a drawn curve."""


def curve(
    job: JobArgument,
    attempt: Annotated[
        int | None, typer.Option(min=1, help="Only this attempt. [default: the last twenty]")
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print all points as CSV.")] = False,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show step time and loss of a job over time, an attempt a line.

    The job reports them by gantree.training.progress.
    """
    daemon = client(state)
    found = daemon.curve(job_named(daemon, job), attempt=attempt)
    if as_json:
        print_json(found)
    elif as_csv:
        typer.echo(_csv(found["attempts"]), nl=False)
    elif found["attempts"]:
        typer.echo(columns(HEAD, [_cells(each) for each in found["attempts"]]))
    else:
        typer.echo(f"{found['job']} has reported nothing (gantree.training.progress does)")


def _csv(attempts: Iterable[Row]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("attempt", *FIELDS))
    for each in attempts:
        for point in each["points"]:
            writer.writerow((each["attempt"], *(point[name] for name in FIELDS)))
    return text.getvalue()


def _cells(row: Row) -> Sequence[str]:
    points = row["points"]
    steps = f"{points[0]['step']:,} to {points[-1]['step']:,}"
    return (
        str(row["attempt"]),
        steps,
        *_drawn([point["loss"] for point in points], ""),
        *_drawn([point["step_s"] for point in points], " s"),
    )


def _drawn(values: Sequence[float | str | None], unit: str) -> tuple[str, str]:
    """First and last of some values, and all of them as a line of bars."""
    numbers = [each for each in values if isinstance(each, (int, float)) and isfinite(each)]
    if not numbers:
        return "-", ""
    ends = f"{numbers[0]:.4g} to {numbers[-1]:.4g}{unit}"
    return ends, "".join(_bars(numbers))


def _bars(numbers: Sequence[float]) -> Iterator[str]:
    """A bar for each of at most WIDTH means of neighbours."""
    count = min(WIDTH, len(numbers))
    cuts = [place * len(numbers) // count for place in range(count + 1)]
    means = [sum(numbers[a:b]) / (b - a) for a, b in pairwise(cuts)]
    low, high = min(means), max(means)
    for mean in means:
        part = (mean - low) / (high - low) if high > low else 0.0
        yield BARS[min(len(BARS) - 1, int(part * len(BARS)))]
