"""`gantree reprioritise`: another priority for jobs that wait or run."""

from typing import Annotated

import typer

from gantree.cli.asking import ask_each
from gantree.cli.daemon import JobsArgument, client
from gantree.cli.options import JsonOption, StateOption, class_or_number, new_app

app = new_app()


@app.command()
def reprioritise(
    jobs: JobsArgument,
    priority: Annotated[
        str,
        typer.Option("--priority", metavar="CLASS|N", help="A class of the policy, or a number."),
    ],
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give jobs another priority, whether they wait or run."""
    daemon, wanted = client(state), class_or_number(priority)
    assert wanted is not None
    ask_each(jobs, lambda job: daemon.reprioritise(job, wanted), "reprioritised", as_json=as_json)
