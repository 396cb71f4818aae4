"""`gantree scale`: another size for elastic gangs."""

from typing import Annotated

import typer

from gantree.cli.asking import ask_each
from gantree.cli.daemon import JobsArgument, client
from gantree.cli.options import JsonOption, StateOption, new_app

app = new_app()


@app.command()
def scale(
    jobs: JobsArgument,
    members: Annotated[int, typer.Option("--members", "-n", min=1, help="Members from now on.")],
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give elastic jobs another number of members.

    A job that runs saves if it can and goes on with them; it does not grow beyond that by itself.
    """
    daemon = client(state)
    ask_each(jobs, lambda job: daemon.scale(job, members), "scaled", as_json=as_json)
