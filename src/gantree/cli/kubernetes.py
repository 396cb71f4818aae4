"""`gantree kubernetes`: the daemon as a scheduler of a Kubernetes cluster.

It is `gantree up` with pods instead of processes: the site is what the cluster's nodes tell, jobs are the gangs of pods
that name it as their scheduler, and everything else (policy, journal, API, pages) is the same.
"""

from pathlib import Path
from typing import Annotated

import typer

from gantree.api.access import TOKEN_FILE
from gantree.api.daemon import run_daemon
from gantree.api.gpu_counters import checked
from gantree.api.listening import listen_of
from gantree.api.log_lines import Format, Level
from gantree.api.settings import Settings, own_name
from gantree.cli.access_options import AccessOption
from gantree.cli.options import (
    DatabaseOption,
    PolicyOption,
    StateOption,
    database_url,
    new_app,
    state_dir,
)
from gantree.cli.policies import policy_named
from gantree.cli.reading import read_text, source_of
from gantree.cli.up_options import (
    GpuMetricsOption,
    InsecureOption,
    LeaseOption,
    ListenOption,
    LogFormatOption,
    LogLevelOption,
    NameOption,
    TlsCertOption,
    TlsKeyOption,
    TokenFileOption,
)
from gantree.control.leadership import LEASE_S
from gantree.executors.kubernetes.kubeconfig import reach_of
from gantree.executors.kubernetes.settings import SCHEDULER, KubernetesSettings
from gantree.formats import read_cluster
from gantree.web import pages

app = new_app()

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
LeaseNameOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The Lease by which one of several daemons leads, each with a journal of its own; '' for none."
        " [default: the schedulerName; with --database none]",
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="A cluster file that tells where nodes stand and what they are, instead of their labels.",
    ),
]


@app.command()
def kubernetes(
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    api_server: ApiServerOption = None,
    scheduler_name: SchedulerOption = SCHEDULER,
    level: LevelOption = None,
    lease_name: LeaseNameOption = None,
    cluster: ClusterOption = None,
    policy: PolicyOption = None,
    state: StateOption = None,
    database: DatabaseOption = None,
    name: NameOption = None,
    lease: LeaseOption = LEASE_S,
    listen: ListenOption = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    token_file: TokenFileOption = None,
    access: AccessOption = None,
    insecure: InsecureOption = False,
    gpu_metrics: GpuMetricsOption = None,
    log_format: LogFormatOption = Format.AUTO,
    log_level: LogLevelOption = Level.WARNING,
) -> None:
    """Schedule the pods of a Kubernetes cluster that name gantree as their scheduler."""
    directory = state_dir(state)
    token = token_file or directory / TOKEN_FILE
    told = KubernetesSettings(
        reach_of(api_server, kubeconfig, context),
        scheduler_name,
        tuple(level or ()),
        lease=scheduler_name if lease_name is None else lease_name,
        cluster=None if cluster is None else read_cluster(read_text(cluster), source_of(cluster)),
    )
    settings = Settings(
        directory,
        None,
        "the cluster's nodes",
        *policy_named(policy),
        listen=listen_of(listen, token, tls_cert, tls_key, insecure=insecure) if listen else None,
        access_file=access,
        database=database_url(database),
        name=name or own_name(),
        lease_s=lease,
        gpu_metrics=tuple(checked(url) for url in gpu_metrics or ()),
        log_level=log_level,
        log_format=log_format,
        kubernetes=told,
    )
    run_daemon(settings, pages.routers())
