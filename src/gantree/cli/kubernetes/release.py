"""`gantree kubernetes release`: gives a switched namespace back to the scheduler that it had."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from gantree.cli.kubernetes.options import (
    ApiServerOption,
    ContextOption,
    KubeconfigOption,
    SchedulerOption,
    extra,
)
from gantree.cli.options import JsonOption
from gantree.cli.output.errors import FAILURE
from gantree.cli.output.printing import print_json
from gantree.cli.output.progress import busy
from gantree.executors.kubernetes.apiserver.connection import Connection
from gantree.executors.kubernetes.apiserver.kubeconfig import connection_of
from gantree.executors.kubernetes.apiserver.settings import SCHEDULER
from gantree.model.errors import BadInput, Unreachable
from gantree.text.words import plural

if TYPE_CHECKING:
    from gantree.executors.kubernetes.tools.release import Released

NamespacesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="NAMESPACE...", help="Namespaces to release.")
]
AllOption = Annotated[
    bool,
    typer.Option("--all-namespaces", "-A", help="Release every namespace that was switched."),
]


def release(
    namespaces: NamespacesArgument = None,
    all_namespaces: AllOption = False,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    api_server: ApiServerOption = None,
    scheduler_name: SchedulerOption = SCHEDULER,
    as_json: JsonOption = False,
) -> None:
    """Give namespaces back to the scheduler that they had, with their waiting pods.

    Takes the label gantree.io/scheduler from them, and evicts pods that wait for gantree so that their controllers make
    them again. Jobs of which all pods wait are suspended and resumed instead. Bound pods stay. Exit status 1 if pods
    are left that only their owner can make again.
    """
    if bool(namespaces) == all_namespaces:
        raise BadInput("name namespaces, or give --all-namespaces")
    connection = connection_of(api_server, kubeconfig, context)
    with busy("Releasing"):
        released = _released(connection, namespaces or [], scheduler_name, all_namespaces)
    if as_json:
        print_json({"namespaces": [_document(each) for each in released]})
    else:
        typer.echo("\n".join(_lines(released)))
    if any(each.left for each in released):
        raise typer.Exit(FAILURE)


def _released(
    connection: Connection, namespaces: list[str], scheduler: str, of_all: bool
) -> "list[Released]":
    with extra():
        from gantree.executors.kubernetes.apiserver.client import ApiError  # noqa: PLC0415 - an extra
        from gantree.executors.kubernetes.tools.release import release as released  # noqa: PLC0415 - an extra
    try:
        return asyncio.run(released(connection, namespaces, scheduler, of_all=of_all))
    except ApiError as error:
        raise Unreachable(f"{connection.server}: {error}") from error


def _document(told: "Released") -> dict[str, object]:
    left = [{"pod": pod, "why": why} for pod, why in told.left]
    return {
        "namespace": told.namespace,
        "evicted": told.evicted,
        "restarted_jobs": told.restarted,
        "left": left,
    }


def _lines(released: "list[Released]") -> list[str]:
    lines = []
    for each in released:
        done = f"{plural(len(each.evicted), 'pod')} evicted, {plural(len(each.restarted), 'Job')} restarted"
        lines.append(f"{each.namespace}: released; {done}, {len(each.left)} left")
        lines += [f"    {pod}: {why}" for pod, why in each.left]
    return lines or ["No namespace is switched."]
