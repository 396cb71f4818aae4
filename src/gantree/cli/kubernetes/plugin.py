"""The program `kubectl-gantree`, which kubectl runs as `kubectl gantree`: why gangs wait, from the cluster's objects.

`why` and `jobs` read pods and events with the rights of the user. `when` and `queues` need what only the daemon knows:
they run gantree's own command in its pod, by `kubectl exec`.
"""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gantree.cli.kubernetes.options import extra
from gantree.cli.options import JsonOption, new_app
from gantree.cli.output.errors import FAILURE, error_text, exit_code_of
from gantree.cli.output.printing import columns, print_json, printable
from gantree.executors.kubernetes.apiserver.connection import Connection
from gantree.executors.kubernetes.apiserver.kubeconfig import connection_of
from gantree.executors.kubernetes.apiserver.settings import SCHEDULER
from gantree.model.errors import BadInput, GantreeError, NotFound, Unreachable
from gantree.text.words import plural

if TYPE_CHECKING:
    from gantree.executors.kubernetes.tools.gang_report import GangReport

DAEMON, STATE = "gantree/gantree", "/state"
LATEST_EVENTS = 5

NameArgument = Annotated[str, typer.Argument(metavar="POD|GANG", help="Pod, gang, or job id.")]
NamespaceOption = Annotated[
    str | None,
    typer.Option("--namespace", "-n", metavar="NAME", help="Namespace. [default: the context's]"),
]
KubeconfigOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Kubeconfig. [default: KUBECONFIG]")
]
ContextOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Context. [default: the current context]")
]
SchedulerOption = Annotated[
    str, typer.Option(metavar="NAME", help="schedulerName of gantree's pods.")
]
DaemonOption = Annotated[
    str,
    typer.Option(
        envvar="GANTREE_DEPLOYMENT",
        metavar="NAMESPACE/DEPLOYMENT",
        help="Where gantree runs.",
    ),
]
AllOption = Annotated[bool, typer.Option("--all-namespaces", "-A", help="Of all namespaces.")]

app = new_app(no_args_is_help=True, help="Show what gantree does with pods of a cluster.")


@app.command()
def why(
    name: NameArgument,
    namespace: NamespaceOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    scheduler_name: SchedulerOption = SCHEDULER,
    as_json: JsonOption = False,
) -> None:
    """Explain why a pod or a gang waits, or where it runs."""
    connection = connection_of(None, kubeconfig, context)
    reports = _found(connection, namespace, scheduler_name, name)
    if as_json:
        print_json({"gangs": [_document(each) for each in reports]})
    else:
        typer.echo("\n".join(line for each in reports for line in _why_lines(each)))


@app.command()
def jobs(
    namespace: NamespaceOption = None,
    all_namespaces: AllOption = False,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    scheduler_name: SchedulerOption = SCHEDULER,
    as_json: JsonOption = False,
) -> None:
    """List the gangs of a namespace."""
    connection = connection_of(None, kubeconfig, context)
    where = "" if all_namespaces else namespace or connection.namespace
    reports = _reports(connection, where, scheduler_name, with_events=False)
    if as_json:
        print_json({"gangs": [_document(each) for each in reports]})
    elif reports:
        head = ("NAMESPACE", "GANG", "QUEUE", "PODS", "BOUND", "STATE", "WHY OR WHERE")
        typer.echo(columns(head, map(_row, reports)))
    else:
        typer.echo(f"No pods of {scheduler_name} in {where or 'any namespace'}.")


@app.command()
def when(
    name: NameArgument,
    namespace: NamespaceOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    scheduler_name: SchedulerOption = SCHEDULER,
    daemon: DaemonOption = DAEMON,
    as_json: JsonOption = False,
) -> None:
    """Show when a waiting gang starts. Needs the right to exec into gantree's pod."""
    connection = connection_of(None, kubeconfig, context)
    reports = _found(connection, namespace, scheduler_name, name)
    words = ["when", reports[0].job or reports[0].full_name]
    _run_in_pod(daemon, words, kubeconfig, context, as_json=as_json)


@app.command()
def queues(
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    daemon: DaemonOption = DAEMON,
    as_json: JsonOption = False,
) -> None:
    """List queues with their guarantees and usage. Needs the right to exec into gantree's pod."""
    _run_in_pod(daemon, ["queues"], kubeconfig, context, as_json=as_json)


def main() -> None:
    """Run the command line of this process and exit."""
    try:
        app(prog_name="kubectl gantree")
    except GantreeError as error:
        typer.echo(error_text(error), err=True)
        sys.exit(exit_code_of(error))


def _found(
    connection: Connection, namespace: str | None, scheduler: str, name: str
) -> "list[GangReport]":
    """Raises NotFound."""
    where = namespace or connection.namespace
    reports = _reports(connection, where, scheduler, with_events=True)
    with extra():
        from gantree.executors.kubernetes.tools.gang_report import found  # noqa: PLC0415 - an extra
    chosen = found(reports, name)
    if not chosen:
        raise NotFound(f"no pod or gang {name!r} of {scheduler} in namespace {where}")
    return chosen


def _reports(
    connection: Connection, namespace: str, scheduler: str, *, with_events: bool
) -> "list[GangReport]":
    with extra():
        from gantree.executors.kubernetes.apiserver.client import ApiError  # noqa: PLC0415 - an extra
        from gantree.executors.kubernetes.tools.gang_report import gang_reports  # noqa: PLC0415 - an extra
    try:
        return asyncio.run(gang_reports(connection, namespace, scheduler, with_events=with_events))
    except ApiError as error:
        raise Unreachable(f"{connection.server}: {error}") from error


def _run_in_pod(
    daemon: str, words: list[str], kubeconfig: Path | None, context: str | None, *, as_json: bool
) -> None:
    """Run a command of gantree's in its pod and exit as it does."""
    namespace, slash, deployment = daemon.partition("/")
    if not (namespace and slash and deployment):
        raise BadInput(f"--daemon: found {daemon!r}; allowed: NAMESPACE/DEPLOYMENT")
    reach = [f"--kubeconfig={kubeconfig}"] if kubeconfig else []
    reach += [f"--context={context}"] if context else []
    command = ["kubectl", *reach, "-n", namespace, "exec", f"deploy/{deployment}", "--", "gantree"]
    command += [*words, "--state", STATE, *(["--json"] if as_json else [])]
    try:
        done = subprocess.run(command, env=os.environ, check=False)
    except OSError as error:
        raise Unreachable(f"kubectl cannot be run: {error.strerror}") from error
    if done.returncode:
        typer.echo(
            f"gantree: this runs gantree in deploy/{deployment} of namespace {namespace}; it needs the right to create"
            " pods/exec there. kubectl gantree why needs only rights in your own namespace.",
            err=True,
        )
        raise typer.Exit(FAILURE)


def _document(report: "GangReport") -> dict[str, Any]:
    events = [
        {"type": each.type, "reason": each.reason, "message": each.message}
        for each in report.events
    ]
    return {
        "namespace": report.namespace,
        "gang": report.name,
        "queue": report.queue,
        "job": report.job,
        "state": report.state,
        "pods": list(report.pods),
        "bound": report.bound,
        "nodes": list(report.nodes),
        "domain": report.domain,
        "why": report.why,
        "events": events,
    }


def _where(report: "GangReport") -> str:
    nodes = ",".join(report.nodes)
    return f"{nodes} in {report.domain}" if nodes and report.domain else nodes


def _row(report: "GangReport") -> tuple[str, ...]:
    told = report.why or _where(report) or "-"
    counts = str(len(report.pods)), str(report.bound)
    return (
        report.namespace,
        report.name,
        printable(report.queue or "-"),
        *counts,
        report.state,
        printable(told),
    )


def _why_lines(report: "GangReport") -> list[str]:
    pods = plural(len(report.pods), "pod")
    lines = [f"{report.full_name} is {report.state}: {pods}, {report.bound} bound"]
    if report.why:
        lines.append(f"  {printable(report.why)}")
    elif report.state == "waiting":
        lines.append("  gantree has said nothing about it yet")
    if where := _where(report):
        lines.append(f"  on {where}")
    told = {(each.reason, each.message): each for each in report.events}
    latest = list(told.values())[-LATEST_EVENTS:]
    news = [each for each in latest if each.message != report.why]
    return [*lines, *(f"  {each.reason}: {printable(each.message)}" for each in news)]
