"""Commands that ask the daemon for the same thing about several nodes; options that they share."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from gantree.cli.errors import FAILURE, told
from gantree.cli.printing import print_json
from gantree.model.errors import Conflict, NotFound

NodesArgument = Annotated[list[str], typer.Argument(metavar="NODE...", help="Names of nodes.")]
ReasonOption = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Why, for others to read.")
]


def ask_each_node(
    nodes: Sequence[str], ask: Callable[[str], dict[str, Any]], done: str, *, as_json: bool
) -> list[str]:
    """Ask for each node and print which were `done`; one that is refused does not save the others. Gives the names."""
    asked: list[str] = []
    refused = False
    for node in nodes:
        try:
            asked.append(ask(node)["node"])
        except (NotFound, Conflict) as error:
            refused = True
            typer.echo(told(error), err=True)
    if as_json:
        print_json({done: asked})
    else:
        for node in asked:
            typer.echo(f"{node} is {done}")
    if refused:
        raise typer.Exit(FAILURE)
    return asked
