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
    typer.Option(
        metavar="FILE",
        help="Kubeconfig. [default: the service account of this pod, else KUBECONFIG]",
    ),
]
ContextOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Context of the kubeconfig. [default: the current context]"),
]
ApiServerOption = Annotated[
    str | None, typer.Option(metavar="URL", help="API server without authentication.")
]
SchedulerOption = Annotated[
    str, typer.Option(metavar="NAME", help="schedulerName of the pods to schedule.")
]
LevelOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY",
        help="Node label of a tier, widest tier first; may be repeated."
        " [default: well-known labels]",
    ),
]
NodeSelectorOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="Label of the nodes to use; may be repeated. [default: all nodes]",
    ),
]
LeaseNameOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Lease for the leader election of daemons with separate journals, in the namespace of the service account"
        " or of the kubeconfig's context; '' for none."
        " [default: the schedulerName; none with --database or --dry-run]",
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Cluster file with the tiers and machines of the nodes, instead of their labels.",
    ),
]
NodeGroupsOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Node groups of the cluster's autoscaler, to ask for nodes that do not exist yet.",
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


def settings_of_options(
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
