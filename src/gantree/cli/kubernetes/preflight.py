"""`gantree kubernetes preflight`: what of a cluster keeps gangs from running, or from running fast, and what to fix."""

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
    told_settings,
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
    """Check a cluster for what gangs on GPUs and RDMA need, and say what to fix.

    It changes nothing. Exit status 1 where there is a problem.
    """
    told = told_settings(kubeconfig, context, api_server, level, node_selector, scheduler_name)
    with busy("Asking"):
        document = _checked(told)
    if as_json:
        print_json(document)
    else:
        typer.echo(_text(document))
    if document["problems"]:
        raise typer.Exit(FAILURE)


def _checked(told: KubernetesSettings) -> dict[str, Any]:
    """What was found, as it is printed for programs. Raises Unreachable."""
    with extra():
        from gantree.executors.kubernetes.apiserver.client import ApiError  # noqa: PLC0415 - an extra
        from gantree.executors.kubernetes.tools.preflight import Level, findings, gpu_nodes  # noqa: PLC0415 - an extra
        from gantree.executors.kubernetes.tools.survey import survey  # noqa: PLC0415 - an extra
    try:
        seen = asyncio.run(survey(told.connection, told.node_selector))
    except ApiError as error:
        raise Unreachable(f"{told.connection.server}: {error}") from error
    found = findings(seen, told.scheduler, told.levels)
    count = {each: sum(1 for finding in found if finding.level == each) for each in Level}
    return {
        "server": {"url": told.connection.server, "version": seen.version},
        "nodes": len(seen.nodes),
        "gpu_nodes": len(gpu_nodes(seen)),
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
    return "\n".join([*lines, f"{summary}: {of}, Kubernetes {document['server']['version']}"])


def _lines(finding: dict[str, Any]) -> list[str]:
    from gantree.text.hostlists import folded  # noqa: PLC0415 - it takes long to import

    where = f"{folded(finding['nodes'])}: " if finding["nodes"] else ""
    return [
        f"{finding['level']}: {finding['check']}: {where}{finding['what']}",
        f"    {finding['fix']}",
    ]
