"""`gantree uncordon`: let nodes be used again."""

from gantree.cli.daemon import client
from gantree.cli.node_asking import NodesArgument, ask_each_node
from gantree.cli.options import JsonOption, StateOption, new_app

app = new_app()


@app.command()
def uncordon(
    nodes: NodesArgument,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let nodes be used again that were cordoned or drained."""
    ask_each_node(nodes, client(state).uncordon, "uncordoned", as_json=as_json)
