"""`gantree node-fault`: report a fault of a GPU or of a node, as a log shipper or a monitor would."""

from typing import Annotated

import typer

from gantree.cli.daemon_client import client
from gantree.cli.options import JsonOption, StateOption
from gantree.cli.output.printing import print_json
from gantree.model.errors import BadInput


def node_fault(
    node: Annotated[str, typer.Argument(metavar="NODE", help="Node name.")],
    gpu: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Index of the GPU. [default: not known which]"),
    ] = None,
    xid: Annotated[
        int | None, typer.Option(min=1, max=999, metavar="N", help="NVIDIA's XID.")
    ] = None,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="The fault, shown by gantree nodes.")
    ] = "",
    source: Annotated[
        str,
        typer.Option(metavar="NAME", help="Who reports it; each source has a report of its own."),
    ] = "operator",
    clear: Annotated[
        bool, typer.Option("--clear", help="Say that the source finds the node healthy again.")
    ] = False,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Report a fault of a GPU: nothing new starts on its node.

    Jobs that can save leave the node. With an XID that says that the GPU is lost (79, 95), jobs that hold it are
    stopped at once and start again elsewhere. Other XIDs count if NVIDIA says to reset or restart for them.
    """
    told = gpu is not None or xid is not None or bool(reason)
    if clear == told:
        raise BadInput("give --xid or --reason, or --clear alone")
    if not clear and xid is None and not reason:
        raise BadInput("--gpu needs --xid or --reason")
    answer = client(state).node_fault(node, gpu=gpu, xid=xid, reason=reason, source=source)
    if as_json:
        print_json(answer)
    elif clear:
        typer.echo(f"{node}: {source} reports no fault")
    elif answer["fault"]:
        typer.echo(f"{node}: {answer['fault']}")
    else:
        typer.echo(f"XID {xid} calls for no reset of a GPU: nothing follows for {node}")
