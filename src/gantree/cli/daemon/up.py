"""`gantree up`: the daemon in the foreground.

Which cluster it gets: the file that --cluster names; else as many machines of the catalogue as --virtual asks
for; else the one that the state directory has recorded; else this machine, if it has GPUs.
"""

import os
import re
from pathlib import Path
from typing import Any, TypedDict

from gantree.api.access.access import TOKEN_FILE
from gantree.api.client.target import target
from gantree.api.gpu_metrics.exporters import exporters_of
from gantree.api.http.connections import HEAD_WITHIN_S
from gantree.api.observability.log_format import Format, Level
from gantree.api.server.daemon import run_daemon
from gantree.api.server.listeners import Listen, listen_of, root_path_of
from gantree.api.server.settings import KernelLog, Settings, own_name
from gantree.cli.daemon.access_options import AccessOption, RunAsOption, check_run_as
from gantree.cli.daemon.notify_options import (
    MailFromOption,
    SmtpOption,
    WebhookHostOption,
    notify_settings,
)
from gantree.cli.daemon.options import (
    AcceptClockOption,
    AdvertiseOption,
    ClusterOption,
    CordonLemonsOption,
    FabricPortsOption,
    GpuMetricsOption,
    HeaderTimeoutOption,
    InsecureOption,
    KeepEndedOption,
    KeepHistoryOption,
    KernelLogOption,
    LeaseOption,
    LinkLoadOption,
    ListenOption,
    LogFormatOption,
    LogLevelOption,
    MaxConnectionsOption,
    MpsControlOption,
    NameOption,
    NodeMetricsOption,
    PartitionGpusOption,
    PricesOption,
    PrometheusOption,
    QueueWaitingOption,
    RateOption,
    RepairHooksOption,
    RootPathOption,
    StallOption,
    TlsCertOption,
    TlsKeyOption,
    TokenFileOption,
    UserWaitingOption,
    VirtualOption,
    log_settings,
)
from gantree.cli.daemon.run_limit_options import (
    KeepFreeOption,
    KeepRunsOption,
    LogCapOption,
    MostRunsOption,
    run_limits,
)
from gantree.cli.input.clusters import this_machine_text, virtual_text
from gantree.cli.input.durations import seconds_of
from gantree.cli.input.files import read_text, source_of
from gantree.cli.input.policies import policy_named
from gantree.cli.input.prices import prices_of
from gantree.cli.input.repair_hooks import repair_hooks_of
from gantree.cli.options import (
    DatabaseOption,
    PolicyOption,
    StateOption,
    database_url,
    state_dir,
)
from gantree.control.engine.leadership import LEASE_S
from gantree.control.engine.retention import KEEP_ENDED, RetentionLimits
from gantree.control.engine.watchdog import STALL_S
from gantree.control.nodes.sharing.partitioning import PartitionGpus
from gantree.control.requests.waiting_limits import DEFAULT_WAITING_LIMITS, WaitingLimits
from gantree.journal.sqlite import FILE as JOURNAL_FILE
from gantree.model.errors import BadInput, JournalError, Unreachable
from gantree.model.repairs import RepairChain
from gantree.telemetry.nvml.driver import uuids
from gantree.telemetry.partitions.amd_smi import check_amd_smi
from gantree.web import pages

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


def up(
    cluster: ClusterOption = None,
    virtual: VirtualOption = None,
    partition_gpus: PartitionGpusOption = None,
    mps_control: MpsControlOption = None,
    policy: PolicyOption = None,
    state: StateOption = None,
    database: DatabaseOption = None,
    name: NameOption = None,
    advertise: AdvertiseOption = None,
    lease: LeaseOption = LEASE_S,
    stall: StallOption = STALL_S,
    listen: ListenOption = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    token_file: TokenFileOption = None,
    requests_per_second: RateOption = None,
    access: AccessOption = None,
    run_as_submitter: RunAsOption = False,
    max_connections: MaxConnectionsOption = None,
    header_timeout: HeaderTimeoutOption = HEAD_WITHIN_S,
    insecure: InsecureOption = False,
    root_path: RootPathOption = "",
    gpu_metrics: GpuMetricsOption = None,
    node_metrics: NodeMetricsOption = None,
    fabric_ports: FabricPortsOption = None,
    kernel_log: KernelLogOption = None,
    link_load: LinkLoadOption = None,
    prometheus: PrometheusOption = None,
    repair_hooks: RepairHooksOption = None,
    cordon_lemons: CordonLemonsOption = False,
    prices: PricesOption = None,
    keep_ended: KeepEndedOption = KEEP_ENDED,
    keep_history: KeepHistoryOption = None,
    user_waiting: UserWaitingOption = DEFAULT_WAITING_LIMITS.per_user,
    queue_waiting: QueueWaitingOption = DEFAULT_WAITING_LIMITS.per_queue,
    accept_clock: AcceptClockOption = False,
    notify_webhook_host: WebhookHostOption = None,
    smtp: SmtpOption = None,
    mail_from: MailFromOption = None,
    log_cap: LogCapOption = "1GiB",
    keep_free: KeepFreeOption = None,
    keep_runs: KeepRunsOption = "90d",
    most_runs: MostRunsOption = "50%",
    log_format: LogFormatOption = Format.AUTO,
    log_level: LogLevelOption = Level.WARNING,
) -> None:
    """Run the daemon in the foreground.

    Ctrl-C and SIGTERM stop it. Running jobs continue, and the next start adopts them.
    """
    directory, url = state_dir(state), database_url(database)
    at = _listen(listen, tls_cert, tls_key, token_file, directory, insecure=insecure)
    settings = Settings(
        directory,
        *_site(cluster, virtual, directory, has_database=url is not None),
        *policy_named(policy),  # type: ignore[arg-type]  # mypy follows one unpacked tuple, not two
        listen=at and at.limited(max_connections, header_timeout),
        **_access(access, requests_per_second, root_path, run_as_submitter=run_as_submitter),
        **exporters_of(gpu_metrics, node_metrics, fabric_ports, link_load, prometheus),
        **_faults(kernel_log, repair_hooks, cordon_lemons=cordon_lemons),
        prices=prices_of(prices),
        **_leadership(url, name, advertise, lease, stall, accept_clock=accept_clock),
        **_limits(keep_ended, keep_history, user_waiting, queue_waiting),
        notify=notify_settings(notify_webhook_host, smtp, mail_from),
        **_gpu_parts(partition_gpus, virtual, mps_control),
        run_limits=run_limits(log_cap, keep_free, keep_runs, most_runs),
        **log_settings(log_level, log_format),
    )
    run_daemon(settings, pages.routers())


def _listen(
    listen: str | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    token_file: Path | None,
    directory: Path,
    *,
    insecure: bool,
) -> Listen | None:
    """Where the daemon listens beside its socket; None: nowhere."""
    if listen is None:
        if tls_cert or tls_key or token_file or insecure:
            raise BadInput("--tls-cert, --tls-key, --token-file and --insecure need --listen")
        return None
    token = token_file or directory / TOKEN_FILE
    return listen_of(listen, token, tls_cert, tls_key, insecure=insecure)


def _partition_gpus(told: PartitionGpus | None, virtual: str | None) -> PartitionGpus | None:
    """How GPUs are partitioned; None: as before. Unreachable without a driver, if it is to be asked."""
    if told in (PartitionGpus.NVML, PartitionGpus.AMD_SMI):
        if os.geteuid() != 0:
            raise BadInput(
                f"--partition-gpus {told.value}: only root may partition GPUs; start the daemon as root"
            )
        uuids() if told is PartitionGpus.NVML else check_amd_smi()
    return PartitionGpus.SIMULATED if told is None and virtual is not None else told


class _Access(TypedDict):
    access_file: Path | None
    requests_per_s: float | None
    run_as_submitter: bool
    root_path: str


def _access(
    file: Path | None, rate: float | None, root_path: str, *, run_as_submitter: bool
) -> _Access:
    """The settings of who may do what, how often and below which path, and as whom jobs run. Raises BadInput."""
    check_run_as(file, run_as_submitter=run_as_submitter)
    return {
        "access_file": file,
        "requests_per_s": rate,
        "run_as_submitter": run_as_submitter,
        "root_path": root_path_of(root_path),
    }


def _kernel_log(told: str | None) -> Path | KernelLog | None:
    """Where faults of GPUs are read from. Raises BadInput for what cannot be read."""
    if told is None or told == KernelLog.NEVER.value:
        return None if told is None else KernelLog.NEVER
    path = Path(told)
    if path.is_dir() or not os.access(path, os.R_OK):
        problem = "cannot be read" if path.exists() else "does not exist"
        raise BadInput(
            f"--kernel-log: {told} {problem}; allowed: /dev/kmsg (as root), a file, a FIFO, never"
        )
    return path


class _Faults(TypedDict):
    kernel_log: Path | KernelLog | None
    repair_hooks: tuple[RepairChain, ...]
    cordon_lemons: bool


def _faults(kernel_log: str | None, repair_hooks: str | None, *, cordon_lemons: bool) -> _Faults:
    """Where faults are read from, what repairs nodes, and whether lemons are taken out. Raises BadInput."""
    return {
        "kernel_log": _kernel_log(kernel_log),
        "repair_hooks": repair_hooks_of(repair_hooks),
        "cordon_lemons": cordon_lemons,
    }


class _GpuParts(TypedDict):
    partition_gpus: PartitionGpus | None
    mps_control: str | None


def _gpu_parts(told: PartitionGpus | None, virtual: str | None, mps: str | None) -> _GpuParts:
    """How GPUs are partitioned and shared. Raises BadInput, and Unreachable without a driver."""
    return {"partition_gpus": _partition_gpus(told, virtual), "mps_control": mps}


class _Limits(TypedDict):
    keep: RetentionLimits
    waiting_limits: WaitingLimits


def _limits(ended: int, history: str | None, of_user: int, of_queue: int) -> _Limits:
    """What is kept, and how many jobs may wait. Raises BadInput."""
    history_s = seconds_of("--keep-history", history) if history else None
    return {
        "keep": RetentionLimits(ended, history_s),
        "waiting_limits": WaitingLimits(of_user, of_queue),
    }


def _leadership(
    database: str | None,
    name: str | None,
    advertise: str | None,
    lease_s: float,
    stall_s: float,
    *,
    accept_clock: bool,
) -> dict[str, Any]:
    """The settings of a daemon among others, by whose clock they go. Raises BadInput."""
    if database is None and (name or advertise):
        raise BadInput("--name and --advertise need --database")
    if name is not None and _NAME.fullmatch(name) is None:
        raise BadInput(
            f"--name: found {name!r}; allowed: letters, digits, '.', '_', '-', at most 64"
        )
    url = advertise and target(advertise).url
    return {
        "database": database, "name": name or own_name(), "advertise": url, "lease_s": lease_s, "stall_s": stall_s,
        "accept_clock": accept_clock,
    }  # fmt: skip


def _site(
    cluster: str | None, virtual: str | None, directory: Path, *, has_database: bool
) -> tuple[str | None, str]:
    """The text of a cluster file and its name in messages; None: the recorded cluster."""
    if cluster is not None and virtual is not None:
        raise BadInput("--cluster cannot be used with --virtual")
    if cluster is not None:
        return read_text(cluster), source_of(cluster)
    if virtual is not None:
        return virtual_text(virtual), f"--virtual {virtual}"
    if has_database or (directory / JOURNAL_FILE).exists():
        return None, "the recorded cluster"
    if directory.exists() and not directory.is_dir():  # or the driver would be blamed
        raise JournalError(f"{directory} cannot be a state directory: it is a file")
    return _this_machine(), "this machine"


def _this_machine() -> str:
    try:
        return this_machine_text()
    except Unreachable as error:
        raise Unreachable(f"{error}\nOr give a cluster file with --cluster.") from None
