"""`gantree trace slice` and `gantree trace scale`: a part of a trace, and the same jobs with more or less load."""

from math import inf, isfinite
from typing import Annotated

import typer

from gantree.cli.input.durations import seconds_of
from gantree.cli.options import JsonOption
from gantree.cli.traces.files import FormatOption, OutOption, TraceArgument, opened, written
from gantree.model.errors import BadInput
from gantree.sim.traces.load import closer, longer
from gantree.sim.traces.selection import Selection, selected


def slice_(
    trace: TraceArgument,
    out: OutOption,
    since: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="Submitted from then on, since the first job."),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="Submitted before then.")
    ] = None,
    queue: Annotated[
        list[str] | None, typer.Option(metavar="QUEUE", help="Of it, and all below it; repeatable.")
    ] = None,
    gpus: Annotated[
        str | None,
        typer.Option(metavar="N|LEAST-MOST", help="With so many GPUs: 8, 1-64, 8- or -0.5."),
    ] = None,
    first: Annotated[int | None, typer.Option(min=1, metavar="N", help="Only the first N.")] = None,
    form: FormatOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the jobs of a time, of queues or of sizes. Their columns stay as they are."""
    least, most = _bounds(gpus)
    selection = Selection(
        from_s=0.0 if since is None else seconds_of("--from", since),
        to_s=inf if until is None else seconds_of("--to", until),
        queues=tuple(queue or ()),
        least_gpus=least,
        most_gpus=most,
        first=first,
    )
    found = opened(trace, form)
    written(selected(found, selection, found.first_s), out, {}, as_json=as_json)


def _bounds(text: str | None) -> tuple[float, float]:
    if text is None:
        return 0.0, inf
    low, dash, high = text.partition("-")
    try:
        least = float(low) if low else 0.0
        most = (float(high) if high else inf) if dash else least
    except ValueError:
        least, most = 1.0, 0.0
    if not 0 <= least <= most or not isfinite(least) or text == "-":
        raise BadInput(
            f"--gpus: found {text!r}; allowed: a number such as 8, or a span such as 1-64"
        )
    return least, most


Factor = Annotated[float, typer.Option(metavar="FACTOR")]


def scale(
    trace: TraceArgument,
    out: OutOption,
    arrivals: Annotated[
        float | None,
        typer.Option(metavar="FACTOR", help="Jobs come so many times as fast."),
    ] = None,
    durations: Annotated[
        float | None,
        typer.Option(metavar="FACTOR", help="Jobs run so many times as long, limits with them."),
    ] = None,
    form: FormatOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the same jobs with more or less load: coming faster, or running longer."""
    if arrivals is None and durations is None:
        raise BadInput("scale: say --arrivals FACTOR, --durations FACTOR, or both")
    for option, factor in (("--arrivals", arrivals), ("--durations", durations)):
        if factor is not None and not 1e-6 <= factor <= 1e6:
            raise BadInput(f"{option}: found {factor:g}; allowed: a factor from 1e-6 to 1e6")
    found = opened(trace, form)
    jobs = iter(found)
    if arrivals is not None:
        jobs = closer(jobs, arrivals, found.first_s)
    if durations is not None:
        jobs = longer(jobs, durations)
    written(jobs, out, {}, as_json=as_json)
