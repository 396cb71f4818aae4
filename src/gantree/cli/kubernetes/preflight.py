"""`gantree kubernetes preflight`: what keeps gangs from running, or from running fast, on a cluster, with fixes."""

import asyncio
from typing import Any

import typer

from gantree.cli.kubernetes.options import (
    ApiServerOption,
    ContextOption,
    KubeconfigOption,
    LevelOption,
    NodeSelectorOption,
    SchedulerOption,
    extra,
    settings_of_options,
)
from gantree.cli.options import JsonOption
from gantree.cli.output.errors import FAILURE
from gantree.cli.output.printing import print_json
from gantree.cli.output.progress import busy
from gantree.executors.kubernetes.apiserver.settings import SCHEDULER, KubernetesSettings
from gantree.model.errors import Unreachable
from gantree.text.words import plural


def preflight(
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    api_server: ApiServerOption = None,
    scheduler_name: SchedulerOption = SCHEDULER,
    level: LevelOption = None,
    node_selector: NodeSelectorOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check whether a cluster is ready for gangs on GPUs and RDMA, and print fixes.

    It changes nothing. Exit status 1 if there is a problem.
    """
    settings = settings_of_options(
        kubeconfig, context, api_server, level, node_selector, scheduler_name
    )
    with busy("Asking"):
        document = _checked(settings)
    if as_json:
        print_json(document)
    else:
        typer.echo(_text(document))
    if document["problems"]:
        raise typer.Exit(FAILURE)


def _checked(settings: KubernetesSettings) -> dict[str, Any]:
    """What was found, as it is printed for programs. Raises Unreachable."""
    with extra():
        from gantree.executors.kubernetes.apiserver.client import ApiError  # noqa: PLC0415 - an extra
        from gantree.executors.kubernetes.tools.preflight import Level, findings, gpu_nodes  # noqa: PLC0415 - an extra
        from gantree.executors.kubernetes.tools.survey import survey  # noqa: PLC0415 - an extra
    try:
        surveyed = asyncio.run(survey(settings.connection, settings.node_selector))
    except ApiError as error:
        raise Unreachable(f"{settings.connection.server}: {error}") from error
    found = findings(surveyed, settings.scheduler, settings.levels)
    count = {each: sum(1 for finding in found if finding.level == each) for each in Level}
    return {
        "server": {"url": settings.connection.server, "version": surveyed.version},
        "namespace": surveyed.namespace,
        "nodes": len(surveyed.nodes),
        "gpu_nodes": len(gpu_nodes(surveyed)),
        "problems": count[Level.PROBLEM],
        "warnings": count[Level.WARNING],
        "findings": [
            {
                "level": str(finding.level),
                "check": finding.check,
                "what": finding.what,
                "fix": finding.fix,
                "nodes": list(finding.nodes),
            }
            for finding in found
        ],
    }


def _text(document: dict[str, Any]) -> str:
    lines = [line for finding in document["findings"] for line in _lines(finding)]
    summary = (
        f"{plural(document['problems'], 'problem')}, {plural(document['warnings'], 'warning')}"
    )
    of = f"{plural(document['nodes'], 'node')}, {document['gpu_nodes']} with GPUs"
    home = f"gantree's Lease and records would be in namespace {document['namespace']}"
    return "\n".join(
        [*lines, f"{summary}: {of}, Kubernetes {document['server']['version']}; {home}"]
    )


def _lines(finding: dict[str, Any]) -> list[str]:
    from gantree.text.hostlists import folded  # noqa: PLC0415 - it takes long to import

    where = f"{folded(finding['nodes'])}: " if finding["nodes"] else ""
    return [
        f"{finding['level']}: {finding['check']}: {where}{finding['what']}",
        f"    {finding['fix']}",
    ]
