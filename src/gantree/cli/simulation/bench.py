"""`gantree bench`: benchmarks of this program, its speed and its quality; `openb` has a module of its own."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from gantree.cli.options import JsonOption, new_app
from gantree.cli.output.printing import columns, print_json
from gantree.cli.simulation.bench_openb import openb
from gantree.sim.bench.decisions import decisions as measure_decisions
from gantree.sim.bench.memory import memory as measure_memory
from gantree.sim.bench.preemption import run as measure_reclaim
from gantree.sim.bench.queue import queue as measure_queue
from gantree.sim.bench.siblings import fill as measure_fill
from gantree.sim.bench.siblings import large_gang, refusals
from gantree.sim.bench.tas import QUEUES
from gantree.sim.bench.tas import tas as measure_tas

app = new_app()

LARGE = 131_072

GpusOption = Annotated[int, typer.Option("--gpus", min=64, help="GPUs of the cluster.")]
SeedOption = Annotated[int, typer.Option(help="Random seed.")]
CountOption = Annotated[int, typer.Option("--decisions", min=1, help="Decisions to measure.")]


@app.callback()
def bench() -> None:
    """Benchmark the scheduler on this machine."""


@app.command()
def decisions(
    gpus: GpusOption = 16_384,
    count: CountOption = 1_000,
    seed: SeedOption = 1,
    as_json: JsonOption = False,
) -> None:
    """Measure one gang decision on a half-full cluster."""
    _print(measure_decisions(gpus=gpus, decisions=count, seed=seed), as_json)


@app.command()
def gang(
    gpus: GpusOption = LARGE,
    members: Annotated[int, typer.Option(min=1, help="Members of the gang.")] = 1024,
    gpus_each: Annotated[int, typer.Option(min=0, help="GPUs per member.")] = 1,
    required: Annotated[
        str, typer.Option(help="Tier of the domain: pod, spine, leaf or node.")
    ] = "pod",
    count: CountOption = 50,
    seed: SeedOption = 1,
    as_json: JsonOption = False,
) -> None:
    """Measure the decision on one large gang in one domain."""
    _print(large_gang(gpus, members, gpus_each, required, count, seed), as_json)


@app.command()
def fill(
    gpus: Annotated[
        int, typer.Option(min=64, help="GPUs of the cluster, and number of jobs.")
    ] = 4_000,
    as_json: JsonOption = False,
) -> None:
    """Measure filling an empty cluster with jobs of one GPU."""
    _print(measure_fill(gpus), as_json)


@app.command()
def refusal(
    gpus: GpusOption = LARGE,
    count: CountOption = 200,
    seed: SeedOption = 1,
    as_json: JsonOption = False,
) -> None:
    """Measure explaining why a gang of ten cannot be placed, and what would help."""
    _print(refusals(gpus, count, seed), as_json)


@app.command()
def tas(
    queues: Annotated[
        int, typer.Option(min=1, help="Number of queues, of 500 gangs each.")
    ] = QUEUES,
    as_json: JsonOption = False,
) -> None:
    """Measure the scheduler in Kueue's test of topology-aware scheduling."""
    _print(measure_tas(queues), as_json)


@app.command()
def queue(
    gpus: GpusOption = 16_384,
    gangs: Annotated[int, typer.Option(min=1, help="Pending gangs.")] = 10_000,
    events: Annotated[int, typer.Option(min=1, help="Events to measure.")] = 200,
    reservations: Annotated[int, typer.Option(min=0, help="Reservations.")] = 4,
    limited: Annotated[
        bool, typer.Option("--limited", help="Gangs wait behind limits of queues; GPUs are free.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Measure a full cycle and single events with a long queue."""
    _print(measure_queue(gpus, gangs, events, reservations, limited=limited), as_json)


@app.command()
def reclaim(
    gpus: Annotated[int, typer.Option(min=64, help="GPUs of the cluster.")] = 5_000,
    as_json: JsonOption = False,
) -> None:
    """Measure planning a reclaim for one large gang on a cluster full of single-GPU jobs."""
    figures = measure_reclaim(gpus)
    flat = {
        f"{question}_{name}": value
        for question, of_question in figures.items()
        if question != "gpus"
        for name, value in of_question.items()
    }
    _print(figures if as_json else {"gpus": figures["gpus"], **flat}, as_json)


@app.command()
def memory(gpus: GpusOption = LARGE, as_json: JsonOption = False) -> None:
    """Measure the memory of a cluster and the indexes of ten shapes."""
    _print(measure_memory(gpus), as_json)


app.command()(openb)


def _print(figures: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(dict(figures))
        return
    rows = [(name, "-" if value is None else f"{value:g}") for name, value in figures.items()]
    typer.echo(columns(("FIGURE", "VALUE"), rows))
