"""`gantree queues`: the queue tree as a table: guarantees, usage, borrowed and lent amounts."""

from collections import Counter
from typing import Any

import typer

from gantree.api.views.accounting.budget_view import budget_in_words
from gantree.api.views.lending_view import lending_in_words
from gantree.cli.daemon_client import client
from gantree.cli.options import JsonOption, StateOption
from gantree.cli.output.printing import columns, print_json

HEAD = (
    "QUEUE", "WEIGHT", "SHARE", "GUARANTEE", "USED", "BORROWED", "LENT", "LIMIT", "RUNNING", "WAITING", "CELLS",
)  # fmt: skip


def queues(
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """List queues with their guarantees, usage and loans."""
    rows = client(state).queues()
    if as_json:
        print_json({"queues": rows})
        return
    typer.echo(columns(HEAD, [_cells(row) for row in rows]))
    for row in rows:
        if row.get("lending"):
            typer.echo(f"Queue {row['queue']} {lending_in_words(row['lending'])}.")
        for budget in row.get("budgets", ()):
            typer.echo(f"Budget of {row['queue']}: {budget_in_words(budget)}.")


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    of_cluster = row["kind"] == "cluster"
    gone = "" if row.get("in_policy", True) else " (not in the policy)"
    amounts = [_amounts(row[field]) for field in ("guarantee", "used", "borrowed", "lent", "limit")]
    return (
        f"{'  ' * row['depth']}{row['name']}{gone}",
        "" if of_cluster else f"{row['weight']:g}",
        f"{row['used_part'] * 100:.1f} %",
        *amounts,
        str(row["running"]),
        str(row["waiting"]),
        _owned(row["cells"]),
    )


def _amounts(amounts: dict[str, float]) -> str:
    """GPUs, those of one model by its name, then what else is counted: "16 gpus, 8 H100-80GB"."""
    shown = dict(amounts)
    models = [name for name in shown if name.startswith("gpus/")]
    if "gpus" in shown and len(models) == 1 and shown["gpus"] == shown[models[0]]:
        del shown[models[0]]
    return ", ".join(f"{shown[name]:g} {name.rpartition('/')[2]}" for name in shown)


def _owned(cells: list[dict[str, Any]]) -> str:
    """How many cells of each tier, where bound ones are, what is lost: "2 leaf: s0/l0, 1 has no place; 1 nvlink"."""
    owned = Counter(cell["tier"] for cell in cells)
    shown = []
    for tier, count in owned.items():
        where = [cell["domain"] for cell in cells if cell["tier"] == tier and cell["domain"]]
        lost = sum(cell["tier"] == tier and cell["lost"] for cell in cells)
        if lost:
            where.append(f"{lost} {'has' if lost == 1 else 'have'} no place")
        shown.append(f"{count} {tier}" + (f": {', '.join(where)}" if where else ""))
    return "; ".join(shown)
