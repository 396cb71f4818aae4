"""`gantree label`: other labels for a node."""

from typing import Annotated

import typer

from gantree.cli.daemon import client
from gantree.cli.node_asking import ask_each_node
from gantree.cli.options import JsonOption, StateOption, new_app
from gantree.model.errors import BadInput

app = new_app()


@app.command()
def label(
    node: Annotated[str, typer.Argument(metavar="NODE", help="Name of the node.")],
    labels: Annotated[
        list[str],
        typer.Argument(metavar="KEY=VALUE|KEY-...", help="Labels to set, or with - to take away."),
    ],
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Set labels of a node, or take them away; what runs there stays."""
    wanted = dict(_label(each) for each in labels)
    daemon = client(state)
    ask_each_node([node], lambda name: daemon.label(name, wanted), "labelled", as_json=as_json)


def _label(text: str) -> tuple[str, str | None]:
    key, equals, value = text.partition("=")
    if equals:
        return key, value
    if text.endswith("-") and len(text) > 1:
        return text[:-1], None
    raise BadInput(f"found {text!r}; allowed: KEY=VALUE to set a label, KEY- to take it away")
