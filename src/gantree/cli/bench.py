"""`gantree bench`: figures of this program, how fast and how good; `openb` has a module of its own."""

from typing import Annotated

import typer

from gantree.cli.bench_openb import openb
from gantree.cli.options import JsonOption, new_app
from gantree.cli.printing import columns, print_json
from gantree.sim.bench import decisions as measure_decisions

app = new_app()


@app.callback()
def bench() -> None:
    """Measure this program on this machine."""


@app.command()
def decisions(
    gpus: Annotated[int, typer.Option(min=64, help="Size of the cluster.")] = 16_384,
    count: Annotated[int, typer.Option("--decisions", min=1, help="How many to measure.")] = 1_000,
    seed: Annotated[int, typer.Option(help="Of the random gangs.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """How long one gang decision takes on a half-full cluster."""
    figures = measure_decisions(gpus=gpus, decisions=count, seed=seed)
    if as_json:
        print_json(figures)
    else:
        typer.echo(
            columns(("FIGURE", "VALUE"), [(name, f"{value:g}") for name, value in figures.items()])
        )


app.command()(openb)
