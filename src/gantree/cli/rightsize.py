"""`gantree fit`: on which GPU models and markets of a cluster a job may run: memory, speed, time, money. Offline.

Nothing is placed: a way that is open may still have to wait for room. How ways are weighed is `planning.rightsize`.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

from gantree.cli.errors import warn
from gantree.cli.figures import digits, dollars
from gantree.cli.money import odd_prices
from gantree.cli.options import JsonOption, new_app
from gantree.cli.printing import columns, plural, print_json, span
from gantree.cli.reading import read_text, source_of
from gantree.formats import read_cluster, read_job, read_prices
from gantree.model.jobs import Job
from gantree.planning.rightsize import Option, options, refused
from gantree.policy.rules import Policy
from gantree.topology.fabric import Fabric
from gantree.topology.footprint import GIB, LEANEST, USUAL, Footprint, footprint_of, memory_of
from gantree.topology.prices import LIST_PRICES

app = new_app()

REFUSED = 3
HOUR_S = 3600.0
HEAD = ("", "GPU", "market", "memory", "speed", "run", "price", "lost", "with losses")


@app.command()
def fit(
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", help="Cluster file.")],
    job: Annotated[str, typer.Argument(metavar="JOB", help='Job file; "-" is stdin.')],
    prices: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Prices of the site, over the list prices."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say on which GPUs a job may run: memory, time, money.

    Exit status: 0 there is a way, 3 every way is closed for some job, 2 bad input.
    """
    fabric = Fabric.build(read_cluster(read_text(cluster), source_of(cluster)))
    known = read_prices(read_text(prices), source_of(prices)) if prices else LIST_PRICES
    jobs = read_job(read_text(job), source_of(job))
    for odd in odd_prices(known, {machine.gpu for machine in fabric.machines}):
        warn(odd)
    answers = [(each, options(each, fabric, known, Policy().restart_s)) for each in jobs]
    if as_json:
        print_json({"jobs": [_json(each, ways) for each, ways in answers]})
    else:
        typer.echo("\n\n".join("\n".join(_lines(each, ways)) for each, ways in answers))
    if any(refused(each, ways) is not None for each, ways in answers):
        raise typer.Exit(REFUSED)


# ----- for people


def _lines(job: Job, ways: Sequence[Option]) -> Iterator[str]:
    usual, leanest = footprint_of(job, USUAL), footprint_of(job, LEANEST)
    yield f"{job.name}: {plural(job.gpus, 'GPU')}, chosen by {job.choose}"
    if usual is not None and leanest is not None:
        parts = ", ".join(f"{n} {digits(size / GIB)}" for n, size in usual.parts if size)
        yield f"each needs about {digits(usual.GiB)} GiB ({parts}), at least {digits(leanest.GiB)}"
    yield columns(HEAD, (_row(number, job, way) for number, way in enumerate(ways, 1)))
    for way in ways:
        if way.why_not:
            yield f"closed: {way.why_not}"
    for note in dict.fromkeys(note for way in ways for note in way.notes):
        yield f"note: {note}"
    verdict = refused(job, ways)
    if verdict is not None:
        yield verdict.sentence


def _row(number: int, job: Job, way: Option) -> tuple[str, ...]:
    lost = way.expected_loss_gpu_s
    return (
        str(number) if way.open else "-",
        way.model or "any",
        way.market.replace("_", "-"),
        _memory(job, way.model),
        "?" if way.speed is None else digits(way.speed),
        "?" if way.run_s is None else span(way.run_s),
        "?" if way.run_USD is None else dollars(way.run_USD),
        "?" if lost is None or math.isinf(lost) else f"{digits(lost / HOUR_S)} GPU h",
        "?"
        if way.expected_USD is None or math.isinf(way.expected_USD)
        else dollars(way.expected_USD),
    )


def _memory(job: Job, model: str | None) -> str:
    usual, leanest = footprint_of(job, USUAL), footprint_of(job, LEANEST)
    memory_GiB = memory_of(model)
    if memory_GiB is None or usual is None or leanest is None:
        return "?"
    if usual.GiB <= memory_GiB:
        return f"fits {memory_GiB:g} GiB"
    return f"tight in {memory_GiB:g} GiB" if leanest.GiB <= memory_GiB else "too small"


# ----- for programs


def _json(job: Job, ways: Sequence[Option]) -> dict[str, Any]:
    verdict = refused(job, ways)
    return {
        "job": job.name,
        "gpus": job.gpus,
        "choose": job.choose,
        "memory": {
            "usual": _footprint_json(footprint_of(job, USUAL)),
            "least": _footprint_json(footprint_of(job, LEANEST)),
        },
        "ways": [_way_json(way) for way in ways],
        "why": None
        if verdict is None
        else {"gate": verdict.gate.value, "sentence": verdict.sentence},
    }


def _footprint_json(need: Footprint | None) -> dict[str, float] | None:
    """GiB by what for, and in all."""
    if need is None:
        return None
    return {**{name: size / GIB for name, size in need.parts}, "total": need.GiB}


def _way_json(way: Option) -> dict[str, Any]:
    return {
        "gpu": way.model,
        "market": way.market,
        "open": way.open,
        "memory_GiB": memory_of(way.model),
        "speed": way.speed,
        "run_s": way.run_s,
        "run_USD": way.run_USD,
        "expected_loss_gpu_s": _finite(way.expected_loss_gpu_s),
        "expected_USD": _finite(way.expected_USD),
        "why_not": way.why_not or None,
        "notes": list(way.notes),
    }


def _finite(figure: float | None) -> float | None:
    return None if figure is None or math.isinf(figure) else figure
