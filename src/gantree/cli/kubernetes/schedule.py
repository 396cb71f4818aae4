"""`gantree kubernetes schedule`: the daemon as a scheduler of a Kubernetes cluster.

It is `gantree up` with pods instead of processes: the site is what the cluster's nodes tell, jobs are the gangs of pods
that name it as their scheduler, and everything else (policy, journal, API, pages) is the same.
"""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypedDict

import typer

from gantree.api.access.access import TOKEN_FILE
from gantree.api.gpu_metrics.exporters import exporters_of
from gantree.api.http.connections import HEAD_WITHIN_S
from gantree.api.observability.log_format import Format, Level
from gantree.api.server.daemon import run_daemon
from gantree.api.server.listeners import Listen, listen_of
from gantree.api.server.settings import Settings, own_name
from gantree.cli.daemon.access_options import AccessOption
from gantree.cli.daemon.options import (
    AcceptClockOption,
    CordonLemonsOption,
    FabricPortsOption,
    GpuMetricsOption,
    HeaderTimeoutOption,
    InsecureOption,
    LeaseOption,
    LinkLoadOption,
    ListenOption,
    LogFormatOption,
    LogLevelOption,
    MaxConnectionsOption,
    NameOption,
    NodeMetricsOption,
    PricesOption,
    PrometheusOption,
    RepairHooksOption,
    StallOption,
    TlsCertOption,
    TlsKeyOption,
    TokenFileOption,
    log_settings,
)
from gantree.cli.input.files import read_text, source_of
from gantree.cli.input.policies import policy_named
from gantree.cli.input.prices import prices_of
from gantree.cli.input.repair_hooks import repair_hooks_of
from gantree.cli.kubernetes.options import (
    ApiServerOption,
    CheckImageOption,
    ClusterOption,
    ContextOption,
    FederationNamespaceOption,
    FederationVolumeOption,
    GpuConfigProfilesOption,
    KubeconfigOption,
    LeaseNameOption,
    LevelOption,
    MigConfigsOption,
    NodeGroupsOption,
    NodeSelectorOption,
    PartitionNodesOption,
    ReportUrlOption,
    SchedulerOption,
    check_image_of,
    federation_of,
    partition_nodes_of,
    report_url_of,
    settings_of_options,
)
from gantree.cli.kubernetes.shadow import REPORT, newest_report, report_text, state_dir_of
from gantree.cli.options import (
    DatabaseOption,
    PolicyOption,
    StateOption,
    database_url,
)
from gantree.control.engine.leadership import LEASE_S
from gantree.control.engine.watchdog import STALL_S
from gantree.executors.kubernetes.apiserver.settings import SCHEDULER, Shadow
from gantree.formats import read_cluster
from gantree.formats.node_groups import read_node_groups
from gantree.model.cluster import Cluster
from gantree.model.errors import BadInput
from gantree.model.mig_configs import PartitionNodes
from gantree.model.node_groups import NodeGroup
from gantree.model.repairs import RepairChain
from gantree.web import pages

DEFAULT_SCHEDULER = "default-scheduler"
DryRunOption = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Schedule the pods of another scheduler without writing to the cluster, and report the difference.",
    ),
]
ShadowOption = Annotated[
    str,
    typer.Option(
        "--shadow-scheduler",
        metavar="NAME",
        help="schedulerName of the pods that a dry run schedules.",
    ),
]


def kubernetes(
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    api_server: ApiServerOption = None,
    scheduler_name: SchedulerOption = SCHEDULER,
    level: LevelOption = None,
    node_selector: NodeSelectorOption = None,
    lease_name: LeaseNameOption = None,
    cluster: ClusterOption = None,
    node_groups: NodeGroupsOption = None,
    partition_nodes: PartitionNodesOption = None,
    mig_configs: MigConfigsOption = None,
    gpu_config_profiles: GpuConfigProfilesOption = None,
    dry_run: DryRunOption = False,
    shadow_scheduler: ShadowOption = DEFAULT_SCHEDULER,
    policy: PolicyOption = None,
    state: StateOption = None,
    database: DatabaseOption = None,
    name: NameOption = None,
    lease: LeaseOption = LEASE_S,
    stall: StallOption = STALL_S,
    listen: ListenOption = None,
    report_url: ReportUrlOption = None,
    check_image: CheckImageOption = None,
    federation_namespace: FederationNamespaceOption = None,
    federation_volume: FederationVolumeOption = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    token_file: TokenFileOption = None,
    access: AccessOption = None,
    max_connections: MaxConnectionsOption = None,
    header_timeout: HeaderTimeoutOption = HEAD_WITHIN_S,
    insecure: InsecureOption = False,
    gpu_metrics: GpuMetricsOption = None,
    node_metrics: NodeMetricsOption = None,
    fabric_ports: FabricPortsOption = None,
    link_load: LinkLoadOption = None,
    prometheus: PrometheusOption = None,
    repair_hooks: RepairHooksOption = None,
    cordon_lemons: CordonLemonsOption = False,
    prices: PricesOption = None,
    accept_clock: AcceptClockOption = False,
    log_format: LogFormatOption = Format.AUTO,
    log_level: LogLevelOption = Level.WARNING,
) -> None:
    """Run the scheduler (the default command)."""
    directory = state_dir_of(state, database, dry_run=dry_run)
    shadow = Shadow(shadow_scheduler, directory / REPORT) if dry_run else None
    told = (kubeconfig, context, api_server, level, node_selector, scheduler_name, shadow)
    at = _listen(listen, token_file, directory, tls_cert, tls_key, insecure=insecure)
    settings = replace(
        _of_site(directory, policy),
        listen=at and at.limited(max_connections, header_timeout),
        access_file=access,
        **_leadership(database, name, lease, stall, accept_clock=accept_clock),
        **exporters_of(gpu_metrics, node_metrics, fabric_ports, link_load, prometheus),
        **_faults(repair_hooks, shadow, cordon_lemons=cordon_lemons),
        prices=prices_of(prices),
        **log_settings(log_level, log_format),
        kubernetes=replace(
            settings_of_options(*told),
            **_nodes_of(cluster, node_groups, partition_nodes, mig_configs, gpu_config_profiles),
            **_of_leaders(lease_name, scheduler_name, report_url, check_image, listen, shadow),
            **federation_of(federation_namespace, federation_volume, shadow),
        ),
    )
    run_daemon(settings, pages.routers())
    _print_report(shadow, directory)


def _of_site(directory: Path, policy: str | None) -> Settings:
    """The settings of a daemon whose site is the cluster's nodes."""
    return Settings(directory, None, "the cluster's nodes", *policy_named(policy))


def _leadership(
    database: str | None, name: str | None, lease_s: float, stall_s: float, *, accept_clock: bool
) -> dict[str, Any]:
    """The settings of a daemon among others."""
    return {
        "database": database_url(database),
        "name": name or own_name(),
        "lease_s": lease_s,
        "stall_s": stall_s,
        "accept_clock": accept_clock,
    }


def _listen(
    listen: str | None,
    token_file: Path | None,
    directory: Path,
    tls_cert: Path | None,
    tls_key: Path | None,
    *,
    insecure: bool,
) -> Listen | None:
    """Where the daemon listens beside its socket; None: nowhere. Raises BadInput."""
    token = token_file or directory / TOKEN_FILE
    return listen_of(listen, token, tls_cert, tls_key, insecure=insecure) if listen else None


def _print_report(shadow: Shadow | None, directory: Path) -> None:
    """At the end of a dry run."""
    if shadow is not None:
        typer.echo(report_text(newest_report(directory)))


def _lease_of(name: str | None, scheduler: str, shadow: Shadow | None) -> str:
    """The name of the Lease; a dry run has none."""
    if shadow is not None:
        return ""
    return scheduler if name is None else name


class _Nodes(TypedDict):
    cluster: Cluster | None
    node_groups: tuple[NodeGroup, ...]
    partition_nodes: PartitionNodes | None


def _nodes_of(
    cluster: str | None,
    groups: str | None,
    labels: list[str] | None,
    configs: str | None,
    profiles: str | None,
) -> _Nodes:
    """What files say of nodes that there are or could be, and of their MIG configs. Raises BadInput."""
    return {
        "cluster": _site_of(cluster),
        "node_groups": _groups_of(groups),
        "partition_nodes": partition_nodes_of(labels, configs, profiles),
    }


class _OfLeaders(TypedDict):
    lease: str
    report_url: str
    check_image: str


def _of_leaders(
    lease: str | None,
    scheduler: str,
    report_url: str | None,
    check_image: str | None,
    listen: str | None,
    shadow: Shadow | None,
) -> _OfLeaders:
    """What a dry run has not, because it leads nobody: a Lease, and pods that post to it. Raises BadInput."""
    url = report_url_of(report_url, listen, shadow)
    return {
        "lease": _lease_of(lease, scheduler, shadow),
        "report_url": url,
        "check_image": check_image_of(check_image, url),
    }


def _site_of(file: str | None) -> Cluster | None:
    return None if file is None else read_cluster(read_text(file), source_of(file))


class _Faults(TypedDict):
    repair_hooks: tuple[RepairChain, ...]
    cordon_lemons: bool


def _faults(hooks: str | None, shadow: Shadow | None, *, cordon_lemons: bool) -> _Faults:
    """What repairs nodes, and whether lemons are taken out. Raises BadFields, and BadInput in a dry run."""
    return {"repair_hooks": _hooks_of(hooks, shadow), "cordon_lemons": cordon_lemons}


def _hooks_of(file: str | None, shadow: Shadow | None) -> tuple[RepairChain, ...]:
    """The steps that repair nodes. Raises BadFields, and BadInput in a dry run."""
    if file is not None and shadow is not None:
        raise BadInput(
            "--repair-hooks is of no use in a dry run: it changes nothing in the cluster"
        )
    return repair_hooks_of(file)


def _groups_of(file: str | None) -> tuple[NodeGroup, ...]:
    return () if file is None else read_node_groups(read_text(file), source_of(file))
