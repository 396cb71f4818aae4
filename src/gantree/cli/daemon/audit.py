"""`gantree audit`: print the audit log."""

import time
from typing import Annotated, Any

import typer

from gantree.cli.daemon_client import client
from gantree.cli.input.durations import seconds_of
from gantree.cli.options import JsonOption, StateOption
from gantree.cli.output.printing import json_text, moment
from gantree.model.errors import Unreachable

PAGE = 1000


def audit(
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Print requests of the last 2h, 7d, ..."),
    ] = None,
    user: Annotated[
        str | None, typer.Option(metavar="NAME", help="Print requests of this user only.")
    ] = None,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the audit log: changes and denied requests.

    Oldest first.

    With --json one object per line.
    """
    daemon = client(state)
    first_at = None if since is None else time.time() - seconds_of("--since", since)
    after: int | None = 0
    while after is not None:
        page = daemon.audit(since=first_at, user=user, after=after, limit=PAGE)
        for row in page["rows"]:
            typer.echo(json_text(row) if as_json else _line(row))
        before, after = after, page["next"]
        if after is not None and after <= before:
            raise Unreachable(
                "the next page starts before this one: the server is no gantree daemon"
            )


def _line(row: dict[str, Any]) -> str:
    who = row["who"] or "-"
    return f"{moment(row['at'])}  {row['status']}  {who}  ({row['door']})  {row['route']}  {row['what']}"
