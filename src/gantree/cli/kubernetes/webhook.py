"""`gantree kubernetes webhook`: the mutating admission webhook for pods of other controllers."""

import asyncio
import re
from pathlib import Path
from typing import Annotated

import typer

from gantree.api.server.listeners import listen_of
from gantree.cli.kubernetes.options import SchedulerOption
from gantree.executors.kubernetes.apiserver.settings import SCHEDULER
from gantree.executors.kubernetes.tools.admission import Site
from gantree.executors.kubernetes.tools.webhook import serve
from gantree.model.errors import BadInput

LISTEN = "0.0.0.0:8443"
_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_RDMA = re.compile(r"(rdma/[A-Za-z0-9][A-Za-z0-9_.-]*)(?:=([1-9][0-9]{0,3}))?")

VariableOption = Annotated[
    list[str] | None,
    typer.Option(
        "--env",
        metavar="NAME=VALUE",
        help="Variable to add to containers with GPUs that do not set it, such as NCCL_SOCKET_IFNAME=eth0;"
        " may be repeated.",
    ),
]
RdmaOption = Annotated[
    str | None,
    typer.Option(
        metavar="RESOURCE[=COUNT]",
        help="Resource to add to containers with GPUs in pods with gantree.io/rdma, such as rdma/hca=1.",
    ),
]


def webhook(
    tls_cert: Annotated[Path, typer.Option(metavar="FILE", help="TLS certificate of the webhook.")],
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="TLS private key. [default: in --tls-cert]")
    ] = None,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address to listen on.")
    ] = LISTEN,
    scheduler_name: SchedulerOption = SCHEDULER,
    env: VariableOption = None,
    rdma_resource: RdmaOption = None,
) -> None:
    """Serve a mutating admission webhook that adds variables and RDMA devices to pods.

    The Helm chart installs it with webhook.enabled. It needs no kubeconfig and writes nothing.
    """
    where = listen_of(listen, Path(), tls_cert, tls_key)
    resource, count = _resource_of(rdma_resource)
    site = Site(scheduler_name, _variables_of(env or []), resource, count)
    asyncio.run(serve(site, where.host, where.port, tls_cert, tls_key))


def _variables_of(given: list[str]) -> tuple[tuple[str, str], ...]:
    found = [_VARIABLE.fullmatch(each) for each in given]
    for each, match in zip(given, found, strict=True):
        if match is None:
            raise BadInput(f"--env: found {each!r}; allowed: NAME=VALUE")
    return tuple((match[1], match[2]) for match in found if match is not None)


def _resource_of(given: str | None) -> tuple[str, int]:
    if given is None:
        return "", 0
    match = _RDMA.fullmatch(given)
    if match is None:
        raise BadInput(f"--rdma-resource: found {given!r}; allowed: rdma/NAME or rdma/NAME=COUNT")
    return match[1], int(match[2] or 1)
