"""`gantree top`: reads once, so that an error is a sentence, and opens the view."""

import os
import sys
from typing import Annotated

import typer

from gantree.cli.daemon_client import client
from gantree.cli.options import StateOption
from gantree.model.errors import BadInput


def top(
    every_s: Annotated[
        float,
        typer.Option(
            "--every", metavar="SECONDS", min=0.2, max=3600, help="Seconds between refreshes."
        ),
    ] = 2.0,
    state: StateOption = None,
) -> None:
    """Show the cluster, queues and jobs in a live view.

    Keys: ? explains them, q quits.
    """
    streams = (sys.stdin, sys.stdout, sys.stderr)
    if not all(each.isatty() for each in streams) or os.environ.get("TERM") in (None, "dumb"):
        raise BadInput(
            "top: needs a terminal; gantree jobs --watch, gantree queues and gantree nodes do not"
        )
    daemon = client(state)
    from gantree.cli.top.feed import Feed  # noqa: PLC0415 - with what follows

    feed = Feed(daemon)
    first = feed.read()
    from gantree.cli.top.app import Top  # noqa: PLC0415 - Textual takes half a second

    view = Top(feed, first, every_s)
    view.run()
    if view.return_code:
        raise typer.Exit(view.return_code)
