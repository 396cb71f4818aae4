"""Options that the commands of `gantree kubernetes` share: how the API server is reached, and which nodes count."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from gantree.executors.kubernetes.apiserver.kubeconfig import connection_of
from gantree.executors.kubernetes.apiserver.settings import (
    EXTRA,
    SCHEDULER,
    KubernetesSettings,
    Shadow,
)
from gantree.model.errors import BadInput, Unsupported

KubeconfigOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="[default: as the pod that this is, else KUBECONFIG]"),
]
ContextOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Context of the kubeconfig. [default: its own]")
]
ApiServerOption = Annotated[
    str | None, typer.Option(metavar="URL", help="An API server that asks for no log-in.")
]
SchedulerOption = Annotated[
    str, typer.Option(metavar="NAME", help="The schedulerName of the pods that are gantree's.")
]
LevelOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY",
        help="A label of nodes that tells where they stand, the widest first; again for each tier."
        " [default: those that are known]",
    ),
]
NodeSelectorOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="A label of the nodes that are gantree's; again for each that they must have. [default: all nodes]",
    ),
]
LeaseNameOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The Lease by which one of several daemons leads, each with a journal of its own; '' for none."
        " [default: the schedulerName; with --database, and in a dry run, none]",
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="A cluster file that tells where nodes stand and what they are, instead of their labels.",
    ),
]
_KEY = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?/)?[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?"
_LABEL = re.compile(f"{_KEY}={_VALUE}")


@contextmanager
def extra() -> Iterator[None]:
    """Around imports of what talks to an API server. Raises Unsupported where the extra is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise Unsupported(EXTRA) from error


def told_settings(
    kubeconfig: Path | None,
    context: str | None,
    api_server: str | None,
    level: list[str] | None,
    node_selector: list[str] | None,
    scheduler_name: str = SCHEDULER,
    shadow: Shadow | None = None,
) -> KubernetesSettings:
    """What the options say. Raises BadInput."""
    return KubernetesSettings(
        connection_of(api_server, kubeconfig, context),
        scheduler_name,
        tuple(level or ()),
        node_selector=selector_of(node_selector or ()),
        shadow=shadow,
    )


def selector_of(labels: list[str] | tuple[str, ...]) -> str:
    """A label selector of the API for nodes that have all these labels. Raises BadInput for what is no label."""
    for label in labels:
        if _LABEL.fullmatch(label) is None:
            raise BadInput(
                f"--node-selector: found {label!r}; allowed: KEY=VALUE, as on a node: pool=a"
            )
    return ",".join(labels)
