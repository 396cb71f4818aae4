"""`gantree rerun`: the same job once more, to start only on a place that is equal to that of an earlier attempt."""

from typing import Annotated

import typer

from gantree.cli.daemon import JobArgument, client
from gantree.cli.errors import warn
from gantree.cli.options import JsonOption, StateOption, new_app
from gantree.cli.printing import print_json

app = new_app()


@app.command()
def rerun(
    job: JobArgument,
    attempt: Annotated[
        int | None, typer.Option(min=1, help="The attempt to run again. [default: the last]")
    ] = None,
    anyhow: Annotated[
        bool, typer.Option("--anyhow", help="On any place, if the cluster has no equal one.")
    ] = False,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a job again on an equal place.

    Equal are the machines, the GPUs of each member, and which members share which domains. Warns of what has changed.
    """
    taken = client(state).rerun(job, attempt=attempt, anyhow=anyhow)
    if as_json:
        print_json(taken)
        return
    for each in taken["jobs"]:
        typer.echo(each["job"])
    for warning in taken["warnings"]:
        warn(warning)
