"""`gantree cordon`: let nothing new start on nodes."""

from gantree.cli.daemon import client
from gantree.cli.node_asking import NodesArgument, ReasonOption, ask_each_node
from gantree.cli.options import JsonOption, StateOption, new_app

app = new_app()


@app.command()
def cordon(
    nodes: NodesArgument,
    reason: ReasonOption = "",
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let nothing new start on nodes; what runs there stays."""
    daemon = client(state)
    ask_each_node(nodes, lambda node: daemon.cordon(node, reason), "cordoned", as_json=as_json)
