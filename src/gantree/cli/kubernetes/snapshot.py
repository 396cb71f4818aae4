"""`gantree kubernetes snapshot`: a cluster and its gangs as files that `simulate`, `place` and `what-if` read."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from gantree.cli.kubernetes.options import (
    ApiServerOption,
    ContextOption,
    KubeconfigOption,
    LevelOption,
    NodeSelectorOption,
    extra,
    told_settings,
)
from gantree.cli.output.errors import warn
from gantree.cli.output.progress import busy
from gantree.executors.kubernetes.apiserver.settings import KubernetesSettings
from gantree.model.errors import BadInput, Unreachable

FolderArgument = Annotated[
    Path,
    typer.Argument(metavar="FOLDER", help="Where the files go; it is made if it is not there."),
]


def snapshot(
    folder: FolderArgument,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    api_server: ApiServerOption = None,
    level: LevelOption = None,
    node_selector: NodeSelectorOption = None,
) -> None:
    """Write a cluster and its gangs down as files that the simulator reads.

    Names of nodes, pods and queues are in them, and what pods ask for; secrets, environments, commands, images and
    annotations are not.
    """
    told = told_settings(kubeconfig, context, api_server, level, node_selector)
    with busy("Reading"):
        files, warnings = _taken(told)
    for warning in warnings:
        warn(warning)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{folder}: cannot be written: {error.strerror}") from None
    typer.echo(f"{folder}: {', '.join(files)}")


def _taken(told: KubernetesSettings) -> tuple[dict[str, str], tuple[str, ...]]:
    """The files by name, and what is odd. Raises Unreachable."""
    with extra():
        from gantree.executors.kubernetes.apiserver.client import ApiError  # noqa: PLC0415 - an extra
        from gantree.executors.kubernetes.tools.snapshot import files_of, seen  # noqa: PLC0415 - an extra
    try:
        cluster = asyncio.run(seen(told.connection, told.node_selector))
    except ApiError as error:
        raise Unreachable(f"{told.connection.server}: {error}") from error
    return files_of(cluster, told.name, told.levels)
