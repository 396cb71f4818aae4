"""Creates the executor of a daemon: processes of this machine, or pods of a Kubernetes cluster.

An engine says how the site is found, and makes the cluster that the controller talks to.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from socket import gethostname
from typing import TYPE_CHECKING

from prometheus_client.registry import Collector

from gantree.api.observability.dry_run_metrics import ShadowFigures
from gantree.api.server.settings import Settings
from gantree.control.engine.controller import FindSite
from gantree.control.nodes.checks.check_marks import marks_of_check
from gantree.control.nodes.checks.check_prices import prices_of_check
from gantree.control.nodes.checks.pod_checks import link_check_calls
from gantree.control.nodes.run_versions import policy_version, versions_of
from gantree.control.nodes.sharing.gpu_ids import mig_ids_of
from gantree.control.nodes.sharing.host_gpus import host_gpu_ids, instances_reader
from gantree.control.nodes.sharing.mps_program import mps_program_of
from gantree.control.nodes.sharing.partitioning import (
    as_permitted,
    how_to_partition,
    partitioner_of,
    without_foreign_instances,
)
from gantree.control.nodes.sharing.time_slices import time_slice_of
from gantree.control.ports import Clock, ClusterPort, Emit, MakeCluster
from gantree.core.ledger.ledger import Ledger
from gantree.core.view import LedgerView
from gantree.executors.kubernetes.apiserver.settings import EXTRA, KubernetesSettings
from gantree.executors.local.cluster import LocalCluster
from gantree.executors.local.partitions.partitions import PartitionerOf
from gantree.executors.local.unix_users import RunAs
from gantree.journal.contract import Election
from gantree.model.cluster import Cluster
from gantree.model.errors import Unsupported
from gantree.policy.rules import Policy
from gantree.telemetry.nvml.driver import versions

if TYPE_CHECKING:
    from gantree.executors.kubernetes.apiserver.lease import LeaseElection


@dataclass(frozen=True, slots=True)
class ExecutorSetup:
    """site: the cluster as it is now, or who finds it; None: as on record. close lets go of what was opened.

    figures are metrics of its own. may_grow: nodes come and go by themselves.
    """

    site: Cluster | FindSite | None
    make_cluster: MakeCluster
    close: Callable[[], None]
    figures: Collector | None = None
    may_grow: bool = False


def local_executor(
    settings: Settings,
    site: Cluster | None,
    policy: Callable[[], Policy],
    leads: Callable[[], bool],
    run_as: RunAs | None,
    open_files: int | None,
    ledger: Callable[[], Ledger],
) -> ExecutorSetup:
    """Processes of this machine, below the state directory. open_files is the soft limit of the jobs on them.

    ledger is asked where orders are carried out and polls are made.
    """
    hostname = gethostname()
    how = how_to_partition(settings.partition_gpus, settings.state_dir)

    found: list[PartitionerOf] = []  # looked for once, so that site and executor agree

    def partitioners(cluster: Cluster) -> PartitionerOf:
        if not found:
            every = partitioner_of(how, cluster, settings.state_dir, hostname)
            found.append(without_foreign_instances(every, cluster, settings.state_dir))
        return found[0]

    def find_site(decided: LedgerView) -> Cluster | None:
        cluster = site or decided.site.description
        if cluster is None:
            return None
        instances = instances_reader(cluster, hostname)
        return as_permitted(cluster, partitioners(cluster), hostname, instances)

    def make_cluster(described: Cluster, emit: Emit, clock: Clock) -> ClusterPort:
        return LocalCluster(
            settings.state_dir,
            described,
            emit,
            clock,
            gpu_ids=host_gpu_ids(described, hostname),
            mig_ids=mig_ids_of(hostname, instances_reader(described, hostname)),
            partitioner_of=partitioners(described),
            mps_program_of=mps_program_of(settings.mps_control, hostname, os.environ),
            time_slice_of=time_slice_of(described, hostname),
            versions=versions_of(hostname, versions),
            about=lambda: {"policy": policy_version(policy())},
            leads=leads,
            run_as=run_as,
            limits=settings.run_limits,
            open_files=open_files,
            price_check=lambda order: prices_of_check(order, ledger().fabric),
            mark_faults=lambda job, attempt, faults: marks_of_check(
                ledger(), job, attempt, faults, clock()
            ),
        )

    return ExecutorSetup(find_site, make_cluster, lambda: None)


def election_by_lease(told: KubernetesSettings, journal: Election) -> tuple["LeaseElection", float]:
    """The election that comes before a journal's own, and for how long a lease holds. Raises Unsupported, BadInput."""
    try:
        from gantree.executors.kubernetes.apiserver.lease import (  # noqa: PLC0415 - an extra
            LEASE_S,
            LeaseElection,
        )
    except ModuleNotFoundError as error:
        raise Unsupported(EXTRA) from error
    return LeaseElection(told.connection, told.lease, journal), LEASE_S


def kubernetes_executor(
    settings: Settings,
    decided: Callable[[], LedgerView],
    leads: Callable[[], bool],
    wake: Callable[[], None],
    nodes_within_s: float,
    policy: Callable[[], Policy],
    ledger: Callable[[], Ledger],
    lease_holds: Callable[[], bool],
) -> ExecutorSetup:
    """Pods. Everything is listed before this returns; it waits so long for a first node.

    policy, ledger and lease_holds (of a federation's lease) are asked where orders are carried out and polls are made.

    Raises Unreachable, which another try may mend, and Unsupported without the extra.
    """
    told = settings.kubernetes
    assert told is not None, "a daemon on Kubernetes"
    try:
        from gantree.executors.kubernetes.opening import Opened  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise Unsupported(EXTRA) from error
    opened = Opened(told, wake, leads, nodes_within_s)

    def make_cluster(described: Cluster, emit: Emit, clock: Clock) -> ClusterPort:
        calls = link_check_calls(told.check_image, ledger, policy, clock)
        return opened.cluster(emit, clock, decided, calls, lease_holds)

    figures = ShadowFigures(lambda: opened.report) if told.shadow is not None else None
    return ExecutorSetup(opened.site, make_cluster, opened.close, figures, may_grow=True)
