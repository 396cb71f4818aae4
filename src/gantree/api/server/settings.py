"""Settings of a daemon. `gantree up` makes them from its options, tests make them directly."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from socket import gethostname

from gantree.api.observability.log_format import Format, Level
from gantree.api.server.listeners import Listen
from gantree.control.engine.leadership import LEASE_S
from gantree.control.engine.retention import DEFAULT_RETENTION, RetentionLimits
from gantree.control.engine.watchdog import STALL_S
from gantree.control.nodes.sharing.partitioning import PartitionGpus
from gantree.control.notifications.settings import NO_NOTIFICATIONS, NotifySettings
from gantree.control.requests.policy_text import PolicyText
from gantree.control.requests.waiting_limits import DEFAULT_WAITING_LIMITS, WaitingLimits
from gantree.executors.kubernetes.apiserver.settings import KubernetesSettings
from gantree.executors.local.run_limits import DEFAULT_LIMITS, RunLimits
from gantree.formats import read_cluster
from gantree.formats.policy.locations import NOWHERE, PolicyPlaces
from gantree.formats.policy.reader import PRESETS
from gantree.formats.prices.reader import PricesFile
from gantree.model.cluster import Cluster
from gantree.model.repairs import RepairChain
from gantree.policy.rules import Policy
from gantree.text.words import did_you_mean


def own_name() -> str:
    """The default name of a daemon."""
    return f"{gethostname()}-{os.getpid()}"


class KernelLog(Enum):
    """A kernel log that is no file."""

    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Settings:
    """cluster_text may be None where the state directory has seen a cluster before; source is its name in messages.

    policy_text is the file of the policy that rules from now on; None: the newest on record rules, and policy where
    there is none. places are those of the policy's file, for errors. listen is an address of TCP to answer at, beside
    the socket. requests_per_s is how often a caller may ask; None: as often as it likes.
    root_path is the prefix that a proxy serves the daemon under: "/gantree", or "".
    database is the URL of a PostgreSQL that holds the journal; None: SQLite in the state directory. name is what the
    daemon is called among those that share the database, advertise the URL at which clients reach it, and lease_s how
    long it may be out of touch before another leads. stall_s is how long its engine may hang before it ends itself.
    keep says how many ended jobs the daemon knows, and how long the journal keeps facts.
    access_file says who may do what; None: whoever reaches the socket or has the token may do everything.
    kubernetes: orders become pods there, and the site is what its nodes tell; None: processes of this machine.
    run_as_submitter: jobs run as the Unix users of those who handed them in, which takes root.
    accept_clock: the wall clock is right, however far it is ahead of the journal. run_limits say what output and old
    run directories may take of the disk.
    notify says where notifications of jobs may go; by default nowhere.
    partition_gpus: how GPUs are partitioned by MIG; None: as the last daemon of the state directory did, or never.
    mps_control is the program that starts MPS control daemons, or "none"; None: NVIDIA's, for this machine alone.
    gpu_metrics are addresses of exporters that tell how busy GPUs are; none: the driver of this machine is asked.
    node_metrics are addresses of node_exporters that tell the rates of NICs, fabric_ports those of a fabric's ports,
    link_load those of the load of links. prometheus is the server that is asked for queries that services scale on.
    repair_hooks are the steps that repair nodes with a fault. cordon_lemons: nodes with signs on many days are taken
    out.
    prices is the file of the site's prices; None: list prices.
    kernel_log is where faults of GPUs are read from; None: the kernel log of this machine, if it is one of the nodes.
    """

    state_dir: Path
    cluster_text: str | None
    source: str = "cluster.yaml"
    policy: Policy = field(default_factory=lambda: PRESETS["gantree"])
    places: PolicyPlaces = NOWHERE
    policy_text: PolicyText | None = None
    listen: Listen | None = None
    requests_per_s: float | None = None
    access_file: Path | None = None
    run_as_submitter: bool = False
    root_path: str = ""
    gpu_metrics: tuple[str, ...] = ()
    node_metrics: tuple[str, ...] = ()
    fabric_ports: tuple[str, ...] = ()
    link_load: tuple[str, ...] = ()
    prometheus: str | None = None
    database: str | None = field(default=None, repr=False)
    name: str = field(default_factory=own_name)
    advertise: str | None = None
    lease_s: float = LEASE_S
    stall_s: float = STALL_S
    keep: RetentionLimits = DEFAULT_RETENTION
    log_level: Level = Level.WARNING
    log_format: Format = Format.AUTO
    kubernetes: KubernetesSettings | None = None
    run_limits: RunLimits = DEFAULT_LIMITS
    waiting_limits: WaitingLimits = DEFAULT_WAITING_LIMITS
    accept_clock: bool = False
    notify: NotifySettings = NO_NOTIFICATIONS
    partition_gpus: PartitionGpus | None = None
    kernel_log: Path | KernelLog | None = None
    repair_hooks: tuple[RepairChain, ...] = ()
    cordon_lemons: bool = False
    mps_control: str | None = None
    prices: PricesFile | None = None

    def site(self) -> Cluster | None:
        """The cluster as described now. Raises BadInput for a text that is no cluster file."""
        return None if self.cluster_text is None else read_cluster(self.cluster_text, self.source)

    def warnings(self) -> Iterator[str]:
        """What is likely a mistake in one file beside another: storage of queues that the policy does not have."""
        names = [rule.path for rule in self.policy.queues]
        storage = None if self.prices is None else self.prices.tariff.storage
        if self.prices is None or storage is None or not names:
            return
        for queue in storage.GiB_of_queue:
            if queue not in names:
                where, hint = f"{self.prices.source}: storage.GiB", did_you_mean(queue, names)
                yield f"{where}: the policy has no queue `{queue}`, which is billed all the same. {hint}".rstrip()
