"""`gantree cancel`: ask for jobs to be gone."""

import typer

from gantree.cli.daemon import JobsArgument, client
from gantree.cli.errors import FAILURE, told
from gantree.cli.options import JsonOption, StateOption, new_app
from gantree.cli.printing import print_json
from gantree.model.errors import Conflict, NotFound

app = new_app()


@app.command()
def cancel(
    jobs: JobsArgument,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Cancel jobs, whether they wait or run."""
    daemon = client(state)
    asked: list[str] = []
    refused = False
    for job in jobs:  # one that is unknown or over must not save the others
        try:
            asked.append(daemon.cancel(job)["job"])
        except (NotFound, Conflict) as error:
            refused = True
            typer.echo(told(error), err=True)
    if as_json:
        print_json({"cancelled": asked})
    else:
        for job in asked:
            typer.echo(f"{job} is being cancelled")
    if refused:
        raise typer.Exit(FAILURE)
