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
    settings_of_options,
)
from gantree.cli.output.errors import warn
from gantree.cli.output.progress import busy
from gantree.executors.kubernetes.apiserver.settings import KubernetesSettings
from gantree.model.errors import BadInput, Unreachable

FolderArgument = Annotated[
    Path,
    typer.Argument(metavar="FOLDER", help="Output directory; created if missing."),
]


def snapshot(
    folder: FolderArgument,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    api_server: ApiServerOption = None,
    level: LevelOption = None,
    node_selector: NodeSelectorOption = None,
) -> None:
    """Write a cluster and its gangs to files for the simulator.

    The files hold names of nodes, pods and queues, and requests of pods. They hold no secrets, environments, commands,
    images or annotations.
    """
    settings = settings_of_options(kubeconfig, context, api_server, level, node_selector)
    with busy("Reading"):
        files, warnings = _taken(settings)
    for warning in warnings:
        warn(warning)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{folder}: cannot be written: {error.strerror}") from None
    typer.echo(f"{folder}: {', '.join(files)}")


def _taken(settings: KubernetesSettings) -> tuple[dict[str, str], tuple[str, ...]]:
    """The files by name, and what is odd. Raises Unreachable."""
    with extra():
        from gantree.executors.kubernetes.apiserver.client import ApiError  # noqa: PLC0415 - an extra
        from gantree.executors.kubernetes.tools.snapshot import files_of, seen  # noqa: PLC0415 - an extra
    try:
        cluster = asyncio.run(seen(settings.connection, settings.node_selector))
    except ApiError as error:
        raise Unreachable(f"{settings.connection.server}: {error}") from error
    return files_of(cluster, settings.name, settings.levels)
