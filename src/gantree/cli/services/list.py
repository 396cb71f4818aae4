"""`gantree services`: the live services as a table, or one with its replicas, its load and how it was scaled."""

import time
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from gantree.api.client.client import Client
from gantree.cli.daemon_client import client, known_services
from gantree.cli.options import JsonOption, StateOption, new_app
from gantree.cli.output.list_watch import Lines, WatchCommand, WatchOption, watch
from gantree.cli.output.printing import columns, moment, print_json, printable
from gantree.model.errors import BadInput

HEAD = ("SERVICE", "STATE", "READY", "BOUNDS", "REVISION", "QUEUE", "USER", "REQUESTS/S", "P99")
REPLICA_HEAD = (
    "REPLICA", "PHASE", "READY", "REVISION", "ATTEMPT", "NODES", "ADDRESS", "IN FLIGHT", "REASON",
)  # fmt: skip
SCALINGS_SHOWN = 5
NOTHING = "-"
Json = dict[str, Any]


app = new_app()


@app.command(cls=WatchCommand)
def services(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="Show this service in full.", autocompletion=known_services
        ),
    ] = None,
    watch_s: WatchOption = None,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """List services, or show one with its replicas."""
    if as_json and watch_s is not None:
        raise BadInput("--watch: not allowed with --json; GET /v1/events streams changes")
    daemon = client(state)
    if watch_s is not None:
        watch(lambda most: _read(daemon, name), watch_s)
    if not as_json:
        typer.echo("\n".join(_read(daemon, name)(time.time())))
    elif name is None:
        print_json({"services": daemon.services()})
    else:
        print_json(daemon.service(name))


def _read(daemon: Client, name: str | None) -> Lines:
    """What is printed of all services, or of one; it is the same at any time."""
    lines = _table(daemon.services()) if name is None else _lines(daemon.service(name))
    return lambda now: lines


def _table(rows: Sequence[Json]) -> list[str]:
    """Of a federation with ready and wanted replicas of each cluster, too."""
    if not rows:
        return ["No services."]
    if not any("clusters" in row for row in rows):
        return columns(HEAD, map(_cells, rows)).splitlines()
    cells = ((*_cells(row), _clusters(row)) for row in rows)
    return columns((*HEAD, "CLUSTERS"), cells).splitlines()


def _clusters(row: Json) -> str:
    told = row.get("clusters", ())
    return ", ".join(f"{each['cluster']} {each['ready']}/{each['wanted']}" for each in told)


def _cells(row: Json) -> tuple[str, ...]:
    load = row["load"]
    return (
        row["service"],
        row["state"],
        f"{row['ready']}/{_known(row['wanted'])}",
        NOTHING if row["min"] is None else f"{row['min']}-{row['max']}",
        str(row["revision"]) or NOTHING,
        printable(row["queue"]),
        printable(row["user"]),
        NOTHING if load is None else f"{load['rate']:.1f}",
        NOTHING if load is None else _seconds(load["latency_p99_s"]),
    )


def _lines(row: Json) -> list[str]:
    """What there is to say of one service."""
    drains = f", {row['draining']} more drain" if row["draining"] else ""
    lines = [
        f"{row['service']}: {row['state']}; {_ready(row)}{drains};"
        f" {_bounds(row)}queue {printable(row['queue'])}"
    ]
    if row["ended_at"] is not None:
        lines.append(f"  ended {moment(row['ended_at'])}: {printable(row['reason'])}")
    elif row["reason"]:
        lines.append(f"  {printable(row['reason'])}")
    if "clusters" in row:
        lines.append(f"  clusters: {_clusters(row)}")
    lines += [
        f"  model {printable(model)}: requests go to service {printable(owner)}, which had it first"
        for model, owner in row["taken_models"].items()
    ]
    lines.append(f"  load: {_load(row['load'])}")
    lines += _autoscaler(row["autoscaler"])
    lines += [_scaling(each) for each in row["scalings"][-SCALINGS_SHOWN:]]
    if row["replicas"]:
        lines += columns(REPLICA_HEAD, map(_replica_cells, row["replicas"])).splitlines()
    return lines


def _ready(row: Json) -> str:
    if row["wanted"] is None:
        return f"{row['ready']} pods are ready, others decide how many there are"
    return f"{row['ready']} of {row['wanted']} replicas are ready"


def _bounds(row: Json) -> str:
    if row["wanted"] is None:
        return ""
    return f"{row['min']} to {row['max']} replicas, revision {row['revision']}, "


def _known(number: int | None) -> str:
    return NOTHING if number is None else str(number)


def _load(load: Json | None) -> str:
    if load is None:
        return "no router reports it"
    latencies = (
        ("p50", "latency_p50_s"),
        ("p99", "latency_p99_s"),
        ("first token p99", "ttft_p99_s"),
        ("between tokens p99", "itl_p99_s"),
    )
    parts = [
        f"{load['rate']:.1f} requests/s",
        f"{load['in_flight']} in flight",
        f"{load['queued']} queued",
        *(f"{name} {_seconds(load[field])}" for name, field in latencies if load[field]),
    ]
    if load["tokens_per_s"] is not None:
        parts.append(f"{load['tokens_per_s']:.0f} tokens/s")
    return ", ".join(parts)


def _autoscaler(told: Json | None) -> list[str]:
    """What the autoscaler said last, and values that it does not know."""
    if told is None:
        return []
    kept = f", kept by {told['kept_by']}" if told["kept_by"] else ""
    problems = [f"  not known: {printable(each)}" for each in told["problems"]]
    return [f"  autoscaler: {told['replicas']} for {printable(told['reason'])}{kept}", *problems]


def _scaling(each: Json) -> str:
    reason = printable(each["reason"])
    why = f"autoscaler: {reason}" if each["automatic"] else f"set by {reason or 'a user'}"
    return f"  {moment(each['at'])} from {each['before']} to {each['replicas']}, {why}"


def _replica_cells(row: Json) -> Sequence[str]:
    state = "draining" if row["draining"] else ("yes" if row["ready"] else "no")
    return (
        row["replica"],
        row["phase"],
        state,
        str(row["revision"]) or NOTHING,
        str(row["attempt"]),
        ",".join(row["nodes"]) or NOTHING,
        NOTHING if row["port"] is None else f"{row['host']}:{row['port']}",
        NOTHING if row["in_flight"] is None else str(row["in_flight"]),
        printable(row["reason"]),
    )


def _seconds(value: float | None) -> str:
    """A latency: "85 ms", "2.3 s"."""
    if value is None:
        return NOTHING
    return f"{value * 1000:.0f} ms" if value < 1.0 else f"{value:.1f} s"
