"""Commands about nodes: list, cordon, uncordon, drain and label them."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from gantree.cli.daemon_client import change_each, client
from gantree.cli.links import in_words
from gantree.cli.options import JsonOption, StateOption
from gantree.cli.output.printing import columns, moment, print_json
from gantree.model.errors import BadInput

HEAD = ("NODE", "STATE", "GPUS", "FREE", "MIG", "JOBS", "LABELS", "REASON")
MIG = HEAD.index("MIG")

NodesArgument = Annotated[list[str], typer.Argument(metavar="NODE...", help="Node names.")]
ReasonOption = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Reason, shown by gantree nodes.")
]


def nodes(state: StateOption = None, as_json: JsonOption = False) -> None:
    """List nodes with their state and jobs."""
    rows = client(state).nodes()
    if as_json:
        print_json({"nodes": rows})
    else:
        typer.echo(_table([_cells(row) for row in rows]))


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    """The nodes as columns; MIG instances have one where there are any."""
    if any(row[MIG] for row in rows):
        return columns(HEAD, rows)
    without = [(*row[:MIG], *row[MIG + 1 :]) for row in (HEAD, *rows)]
    return columns(without[0], without[1:])


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    labels = ",".join(f"{key}={value}" for key, value in row["labels"].items())
    jobs = ",".join(each["job"] for each in row["jobs"])
    waits = f"waits for {', '.join(row['waits_for'])}" if row["waits_for"] else ""
    links = [in_words(each) for each in row.get("links", ())]
    kept = [f"{each['reason']} ({each['kept']})" for each in row.get("signs", ()) if each["kept"]]
    repair = _repair(row.get("repair"))
    why = "; ".join(text for text in (row["reason"], repair, waits, *kept, *links) if text)
    free = str(row["free_gpus"]) if row["state"] == "ready" else "-"
    mig = _instances(row.get("mig", ()))
    return row["node"], row["state"], str(row["gpus"]), free, mig, jobs, labels, why


def _repair(repair: dict[str, Any] | None) -> str:
    """How far a repair has come: "repair: reboot, 2 of 4, since 12:03"."""
    if repair is None:
        return ""
    state = "" if repair["state"] == "running" else f" {repair['state']}"
    where = f"{repair['step']}, {repair['number']} of {len(repair['steps'])}"
    reason = f" ({repair['reason']})" if repair["reason"] else ""
    return f"repair{state}: {where}, since {moment(repair['since'])}{reason}"


def repair(
    nodes: NodesArgument,
    stop: Annotated[
        bool, typer.Option("--stop", help="Stop the repair; the nodes stay out of use.")
    ] = False,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Start the repair of nodes again from its first step, or stop it."""
    daemon, action = client(state), "stop" if stop else "start"
    done = "stopped" if stop else "started"
    sentence = f"the repair of {{}} is {'stopped' if stop else 'started'}"
    change_each(
        "node",
        nodes,
        lambda node: daemon.repair(node, action),
        done,
        as_json=as_json,
        sentence=sentence,
    )


def _instances(instances: Sequence[dict[str, Any]]) -> str:
    """MIG instances by profile: "3x1g.10gb (1 idle)"."""
    counts: dict[str, list[int]] = {}
    for each in instances:
        of_profile = counts.setdefault(each["profile"], [0, 0])
        of_profile[0] += 1
        of_profile[1] += each["job"] is None
    return ",".join(
        f"{total}x{profile}" + (f" ({idle} idle)" if idle else "")
        for profile, (total, idle) in counts.items()
    )


def cordon(
    nodes: NodesArgument,
    reason: ReasonOption = "",
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Mark nodes unschedulable; running jobs stay."""
    daemon = client(state)
    _change(nodes, lambda node: daemon.cordon(node, reason), "cordoned", as_json=as_json)


def uncordon(nodes: NodesArgument, state: StateOption = None, as_json: JsonOption = False) -> None:
    """Mark cordoned or drained nodes schedulable again."""
    _change(nodes, client(state).uncordon, "uncordoned", as_json=as_json)


def drain(
    nodes: NodesArgument,
    deadline: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="How long a job that fits nowhere else may stay, such as 30m. [default: 0s]",
        ),
    ] = None,
    reason: ReasonOption = "",
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Cordon nodes and move their jobs away.

    Jobs save a checkpoint if they can, then continue on other nodes or wait in the queue. Jobs that may not be
    preempted stay until they end; the command prints their names.
    """
    daemon, deadline_s = (
        client(state),
        None if deadline is None else seconds_of("--deadline", deadline),
    )
    drained = _change(
        nodes,
        lambda node: daemon.drain(node, deadline_s=deadline_s, reason=reason),
        "draining",
        as_json=as_json,
    )
    for node in drained if not as_json else ():
        staying = daemon.node(node)["waits_for"]
        if staying:
            typer.echo(f"{node} waits for {', '.join(staying)}, which may not be preempted")


def seconds_of(option: str, text: str) -> float:
    """Return the seconds of a duration as files write it. Raises BadInput, naming the option."""
    from gantree.formats.validation.fields import duration  # noqa: PLC0415 - Pydantic takes long to import

    try:
        return duration(text)
    except ValueError as error:
        raise BadInput(
            f"{option}: found {text!r}; allowed: a duration such as 90s, 15m or 7d"
        ) from error


def label(
    node: Annotated[str, typer.Argument(metavar="NODE", help="Node name.")],
    labels: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY=VALUE|KEY-...", help="KEY=VALUE sets a label, KEY- removes it."
        ),
    ],
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Set or remove labels of a node; running jobs stay."""
    changes = dict(_label(each) for each in labels)
    daemon = client(state)
    _change([node], lambda name: daemon.label(name, changes), "labelled", as_json=as_json)


def _label(text: str) -> tuple[str, str | None]:
    key, equals, value = text.partition("=")
    if equals:
        return key, value
    if text.endswith("-") and len(text) > 1:
        return text[:-1], None
    raise BadInput(f"found {text!r}; allowed: KEY=VALUE to set a label, KEY- to remove it")


def _change(
    nodes: Sequence[str], change: Callable[[str], dict[str, Any]], done: str, *, as_json: bool
) -> list[str]:
    return change_each("node", nodes, change, done, as_json=as_json)
