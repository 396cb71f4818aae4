"""Commands that ask the daemon for the same thing about several jobs, one after the other."""

from collections.abc import Callable, Sequence
from typing import Any

import typer

from gantree.cli.errors import FAILURE, told
from gantree.cli.printing import print_json
from gantree.model.errors import Conflict, NotFound


def ask_each(
    jobs: Sequence[str], ask: Callable[[str], dict[str, Any]], done: str, *, as_json: bool
) -> None:
    """Ask for each job and print which were `done` ("held"); one that is refused does not save the others."""
    asked: list[str] = []
    refused = False
    for job in jobs:
        try:
            asked.append(ask(job)["job"])
        except (NotFound, Conflict) as error:
            refused = True
            typer.echo(told(error), err=True)
    if as_json:
        print_json({done: asked})
    else:
        for job in asked:
            typer.echo(f"{job} is {done}")
    if refused:
        raise typer.Exit(FAILURE)
