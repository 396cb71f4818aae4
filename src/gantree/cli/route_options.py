"""What `gantree route` and `gantree endpoint-picker` share: options, and the daemon whose table they follow."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from gantree.api.client.async_client import AsyncClient
from gantree.api.client.target import SERVER_VARIABLE, token_from_environment
from gantree.cli.options import state_dir
from gantree.routing.following import Source

WAIT_S = 20.0
"""How long the daemon holds a question for another table."""

AtOption = Annotated[
    str,
    typer.Option(
        metavar="PLACE", help="Place of callers that name none: a node, or a domain such as s0/l0."
    ),
]
TableOption = Annotated[
    str | None, typer.Option(metavar="FILE", help="Services and replicas, instead of the daemon's.")
]
NameOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Name in reports to the daemon. [default: HOST-PROCESS]"),
]
TokenizersOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIRECTORY",
        help="Tokenizers of models for affinity: cache, each in a directory of its name.",
    ),
]
DrainOption = Annotated[
    str, typer.Option(metavar="TIME", help="At the end, time for requests that have begun.")
]


def source_chosen(chosen: Path | None) -> Source:
    """The daemon of the state directory if one is chosen, else that of --server, if there is one."""
    server = os.environ.get(SERVER_VARIABLE)
    is_remote = chosen is None and bool(server)
    where: Path | str = server if is_remote and server else state_dir(chosen)
    daemon = AsyncClient(where, token_from_environment() if is_remote else None)

    async def fetch(after: str) -> Any:
        return await daemon.routes(after, wait_s=WAIT_S if after else 0.0)

    async def post(report: Mapping[str, Any]) -> object:
        return await daemon.report_routes(**report)

    return Source(fetch, post)
