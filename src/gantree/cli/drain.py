"""`gantree drain`: let everybody leave nodes, with as little harm as can be."""

from typing import Annotated

import typer

from gantree.cli.daemon import client
from gantree.cli.node_asking import NodesArgument, ReasonOption, ask_each_node
from gantree.cli.options import JsonOption, StateOption, new_app
from gantree.formats.fields import duration
from gantree.model.errors import BadInput

app = new_app()


@app.command()
def drain(
    nodes: NodesArgument,
    deadline: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="How long a job without a place elsewhere may stay, like 30m. [default: not at all]",
        ),
    ] = None,
    reason: ReasonOption = "",
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let everybody leave nodes, and nothing new start there.

    Jobs save if they can, and go on where there is a place for them, or wait. Those that are never stopped for others
    are waited for and named.
    """
    daemon, deadline_s = client(state), None if deadline is None else _seconds(deadline)
    asked = ask_each_node(
        nodes,
        lambda node: daemon.drain(node, deadline_s=deadline_s, reason=reason),
        "draining",
        as_json=as_json,
    )
    for node in asked if not as_json else ():
        stay = daemon.node(node)["waits_for"]
        if stay:
            typer.echo(f"{node} waits for {', '.join(stay)}: never stopped for others")


def _seconds(text: str) -> float:
    try:
        return duration(text)
    except ValueError as error:
        raise BadInput(
            f"--deadline: found {text!r}; allowed: a duration such as 90s, 15m or 7d"
        ) from error
