"""`gantree nodes`: the nodes as a table: whether each may be used, what runs there, its labels."""

from typing import Any

import typer

from gantree.cli.daemon import client
from gantree.cli.options import JsonOption, StateOption, new_app
from gantree.cli.printing import columns, print_json

app = new_app()

HEAD = ("NODE", "STATE", "GPUS", "FREE", "JOBS", "LABELS", "REASON")


@app.command()
def nodes(
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the nodes: whether they may be used, what runs there."""
    rows = client(state).nodes()
    if as_json:
        print_json({"nodes": rows})
    else:
        typer.echo(columns(HEAD, [_cells(row) for row in rows]))


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    labels = ",".join(f"{key}={value}" for key, value in row["labels"].items())
    jobs = ",".join(each["job"] for each in row["jobs"])
    waits = f"waits for {', '.join(row['waits_for'])}" if row["waits_for"] else ""
    why = "; ".join(text for text in (row["reason"], waits) if text)
    free = str(row["free_gpus"]) if row["state"] == "ready" else "-"
    return row["node"], row["state"], str(row["gpus"]), free, jobs, labels, why
