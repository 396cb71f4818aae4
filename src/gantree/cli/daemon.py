"""The way to the daemon for the commands that need one."""

import os
from pathlib import Path
from typing import Annotated

import typer

from gantree.api.client import Client
from gantree.api.target import SERVER_VARIABLE, token_from_environment
from gantree.cli.options import state_dir
from gantree.model.errors import GantreeError


def client(chosen_state_dir: Path | None) -> Client:
    """A client for the daemon: that of the state directory if one is chosen, else that of --server, if there is one."""
    server = os.environ.get(SERVER_VARIABLE)
    if chosen_state_dir is None and server:
        return Client(server, token_from_environment())
    return Client(state_dir(chosen_state_dir))


def known_jobs(ctx: typer.Context, incomplete: str) -> list[str]:
    """The ids that a shell may complete a word to; none without a daemon."""
    chosen = ctx.params.get("state")
    try:
        rows = client(None if chosen is None else Path(chosen)).jobs()
    except GantreeError:
        return []
    return [row["job"] for row in rows if row["job"].startswith(incomplete)]


JobArgument = Annotated[str, typer.Argument(help="Job id or name.", autocompletion=known_jobs)]
JobsArgument = Annotated[
    list[str],
    typer.Argument(metavar="JOB...", help="Job ids or names.", autocompletion=known_jobs),
]
