"""`gantree history nodes`: what nodes showed over weeks, and which of them are lemons."""

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from gantree.cli.daemon_client import client
from gantree.cli.options import JsonOption, StateOption
from gantree.cli.output.printing import columns, print_json

HEAD = ("NODE", "DAYS", "FAULTS", "OUT", "LINKS", "SLOW RANKS", "LAST")


def node_signs(
    days: Annotated[
        int, typer.Option(min=1, max=366, metavar="N", help="Of so many days up to now.")
    ] = 28,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show how often nodes had faults, were out of use, had worn links or slow ranks."""
    found = client(state).node_signs(days=days)
    if as_json:
        print_json(found)
        return
    rows = found["rows"]
    if not rows:
        typer.echo(f"no node showed a sign in {days} days")
        return
    typer.echo(columns(HEAD, map(_cells, rows)))
    lemons = [row["node"] for row in rows if row["lemon"]]
    if lemons:
        typer.echo(f"lemons, with signs on {found['lemon_days']} days or more: {' '.join(lemons)}")
    if not found["complete"]:
        typer.echo("The journal does not go back so far: there may have been more.")


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    counts = (row[name] for name in ("days", "faults", "out", "links", "slow_ranks"))
    last = datetime.fromtimestamp(row["last_at"], UTC).strftime("%Y-%m-%d %H:%M")
    return (row["node"], *map(str, counts), last)
