"""`gantree experiment`: claims of the field, each shown by one command."""

from pathlib import Path
from typing import Annotated

import typer

from gantree.cli.options import JsonOption
from gantree.cli.output.printing import columns, print_json
from gantree.cli.output.progress import progress
from gantree.sim.experiments.catalogue import HOME_OF
from gantree.sim.experiments.catalogue import experiment as named
from gantree.sim.experiments.experiment import Experiment, Outcome, Table
from gantree.sim.experiments.page import cell_text, document
from gantree.sim.experiments.runner import run, write, write_index

ALL = "all"
LIST = "list"


def experiment(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="An experiment, `all`, or `list` for their names.")
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Write NAME.md, NAME.json and plots there."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, max=100, help="Repeat with so many seeds.")] = 3,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Processes; all cores, if omitted.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", metavar="DIR", help="Where inputs lie that gantree may not carry (published)."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run an experiment: its claim, set-up, result and verdict."""
    if name == LIST:
        _list(as_json)
        return
    names = list(HOME_OF) if name == ALL else [name]
    chosen = [named(each) for each in names]
    options = {} if data is None else {"data": str(data)}
    found = []
    with progress("Experiments") as advance:
        for number, each in enumerate(chosen):
            outcome = run(each, tuple(range(1, seeds + 1)), processes, options)
            if out is not None:
                write(each, outcome, out)
            found.append((each, outcome))
            advance(number + 1, len(chosen))
    if out is not None and name == ALL:
        write_index(found, out)
    if as_json:
        documents = [document(*each) for each in found]
        print_json(documents if name == ALL else documents[0])
        return
    for each, outcome in found:
        typer.echo(text(each, outcome))


def _list(as_json: bool) -> None:
    chosen = [named(each) for each in HOME_OF]
    if as_json:
        print_json([{"experiment": each.name, "title": each.title} for each in chosen])
    else:
        typer.echo(columns(("NAME", "TITLE"), [(each.name, each.title) for each in chosen]))


def text(experiment: Experiment, outcome: Outcome) -> str:
    """Return an outcome for the terminal."""
    parts = [
        f"{experiment.name}: {experiment.title}",
        f"Claim: {experiment.claim}",
        f"Source: {experiment.source}",
        f"Set-up: {experiment.set_up}",
        *map(_table, outcome.tables),
        *outcome.notes,
        *experiment.notes,
        columns(
            ("VERDICT", "MEASURED", "CLAIM"),
            [
                (verdict.judgement, verdict.measured, f"{verdict.claim}{_why(verdict.why)}")
                for verdict in outcome.verdicts
            ],
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _why(why: str) -> str:
    return f" ({why})" if why else ""


def _table(table: Table) -> str:
    rows = [tuple(map(cell_text, row)) for row in table.rows]
    return f"{table.title}\n{columns(tuple(name.upper() for name in table.head), rows)}"
