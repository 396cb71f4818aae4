"""Commands about links: list those that carry less than their rate, report one, overrule a report."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from gantree.cli.daemon_client import change_each, client
from gantree.cli.options import JsonOption, StateOption
from gantree.cli.output.printing import columns, moment, print_json

HEAD = ("LINK", "CARRIES", "BUSY", "SOURCE", "SINCE", "REASON")
BUSY = HEAD.index("BUSY")

LinksArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="LINK...",
        help="TIER:DOMAIN, node:NODE, nic:NODE/NIC, gpu-pcie:NODE/GPU or gpu-nvlink:NODE/GPU, such as leaf:s0/l0.",
    ),
]


def links(state: StateOption = None, as_json: JsonOption = False) -> None:
    """List links that carry less than their rate, or are busy."""
    rows = client(state).links()
    if as_json:
        print_json({"links": rows})
    elif rows:
        typer.echo(_table([_cells(row) for row in rows]))
    else:
        typer.echo("no link is reported to carry less than its rate")


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    """The links as columns; loads have one where there are any."""
    if any(row[BUSY] for row in rows):
        return columns(HEAD, rows)
    head, *rest = [(*row[:BUSY], *row[BUSY + 1 :]) for row in (HEAD, *rows)]
    return columns(head, rest)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    reason = "; ".join(filter(None, (row["reason"], "overruled" if row["overruled"] else "")))
    busy = f"{row['load']:.0%}" if row.get("load") else ""
    return row["link"], f"{row['health']:.0%}", busy, row["source"], moment(row["since"]), reason


def degrade(
    links: LinksArgument,
    health: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="Share of its rate that it carries: 0.5 is half, 1 is whole again."
        ),
    ],
    load: Annotated[
        float, typer.Option(min=0, max=1, help="Share of that which others' traffic takes.")
    ] = 0.0,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="Reason, shown by gantree links.")
    ] = "",
    source: Annotated[
        str, typer.Option(metavar="NAME", help="Who reports it; of several the lowest counts.")
    ] = "operator",
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Report links that carry less than their rate; running jobs stay."""
    daemon = client(state)
    change_each(
        "link",
        links,
        lambda link: daemon.degrade(link, health, reason=reason, source=source, load=load),
        "degraded",
        as_json=as_json,
        sentence=f"{{}} carries {health:.0%} of its rate" + (f", {load:.0%} busy" if load else ""),
    )


def restore(links: LinksArgument, state: StateOption = None, as_json: JsonOption = False) -> None:
    """Count links as whole again, until a source reports something else."""
    change_each("link", links, client(state).restore, "restored", as_json=as_json)


def in_words(row: dict[str, Any]) -> str:
    """A report as people read it: "nic:n1/mlx5_0 carries 50 % (ufm: 2x of 4x lanes)"."""
    why = f"{row['source']}: {row['reason']}" if row["reason"] else row["source"]
    overruled = ", overruled" if row["overruled"] else ""
    busy = f", {row['load']:.0%} busy" if row.get("load") else ""
    return f"{row['link']} carries {row['health']:.0%} of its rate{busy} ({why}{overruled})"
