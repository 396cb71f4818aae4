"""`gantree seff`: what a job that has ended used."""

import typer

from gantree.cli.daemon_client import JobArgument, client
from gantree.cli.options import JsonOption, StateOption
from gantree.cli.output.ended_job import use_lines
from gantree.cli.output.printing import print_json

NAME_WIDTH = 18


def seff(job: JobArgument, state: StateOption = None, as_json: JsonOption = False) -> None:
    """Show what a job that has ended used.

    GPUs, wall time, GPU-hours held and lost, queue wait, preemptions: all that is on record.
    """
    row = client(state).ended_job(job)
    if as_json:
        print_json(row)
        return
    code = "" if row["exit_code"] is None else f" (exit code {row['exit_code']})"
    typer.echo(f"{row['job']}: {row['outcome']}{code}")
    for name, value in use_lines(row):
        typer.echo(f"{name.ljust(NAME_WIDTH)}{value}")
