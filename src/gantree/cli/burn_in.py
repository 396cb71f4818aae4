"""`gantree burn-in`: cordoned nodes check their own GPUs and links before they return."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from gantree.api.client.client import Client
from gantree.cli.daemon_client import client
from gantree.cli.nodes import NodesArgument, seconds_of
from gantree.cli.options import JsonOption, StateOption
from gantree.cli.output.check_figures import WHAT, amount, unit_of
from gantree.cli.output.printing import columns, print_json
from gantree.cli.output.progress import busy
from gantree.model.phases import ENDED

HEAD = ("WHERE", "WHAT", "MEASURED", "EXPECTED", "UNIT")
WAIT_S = 20.0


def burn_in(
    nodes: NodesArgument,
    duration: Annotated[
        str, typer.Option(metavar="TIME", help="Time that it may take, from 10s to 1d.")
    ] = "10m",
    queue: Annotated[
        str, typer.Option(metavar="QUEUE", help="Queue that its job is counted in.")
    ] = "default",
    uncordon: Annotated[
        bool, typer.Option("--uncordon", help="Uncordon the nodes that pass.")
    ] = False,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check GPUs and links of cordoned, empty nodes.

    GPUs compute and copy for six tenths of the time; then all-reduces are timed inside each node, between them and over
    all. Prints what was measured and expected. Exits 0 if all nodes pass, 1 otherwise.
    """
    daemon = client(state)
    job = daemon.burn_in(nodes, duration_s=seconds_of("--duration", duration), queue=queue)["job"]
    ended = _wait(daemon, job)
    report = daemon.record(job, attempt=1).get("check") if ended["attempt"] else None
    passed = passing_nodes(nodes, report)
    for node in passed if uncordon else ():
        daemon.uncordon(node)
    answer = {
        "job": job,
        "passed": passed,
        "failed": [node for node in nodes if node not in passed],
        "uncordoned": passed if uncordon else [],
        "reason": ended["reason"],
        "report": report,
    }
    print_json(answer) if as_json else _show(answer)
    if answer["failed"]:
        raise typer.Exit(1)


def _wait(daemon: Client, job: str) -> dict[str, Any]:
    """The job once it has ended."""
    with busy(f"{job} runs"):
        while True:
            detail = daemon.job(job, wait_s=WAIT_S, until="ended")
            if detail["phase"] in ENDED:
                return detail


def passing_nodes(nodes: Sequence[str], report: Mapping[str, Any] | None) -> list[str]:
    """Return the nodes that pass: all of a check that did, and those that one which named others did not name.

    A link that is at fault is that of a domain or of a NIC: nobody is known to be well then.
    """
    if report is None:
        return []
    if report["state"] == "passed":
        return list(nodes)
    faults = report["faults"]
    if not faults or any(fault["node"] is None for fault in faults):
        return []
    named = {fault["node"] for fault in faults}
    return [node for node in nodes if node not in named]


def _show(answer: Mapping[str, Any]) -> None:
    report = answer["report"]
    if report is None:
        typer.echo(answer["reason"])
    else:
        if report["figures"]:
            typer.echo(columns(HEAD, [_cells(each) for each in report["figures"]]))
        for line in (*report["warnings"], report["sentence"]):
            typer.echo(line)
    for words in ("passed", "failed", "uncordoned"):
        if answer[words]:
            typer.echo(f"{words}: {', '.join(answer[words])}")


def _cells(figure: Mapping[str, Any]) -> tuple[str, ...]:
    expected = "-" if figure["expected"] is None else amount(figure["expected"])
    return (
        figure["name"],
        WHAT[figure["kind"]],
        amount(figure["measured"]),
        expected,
        unit_of(figure),
    )
