"""The options of `gantree up`. `up` turns them into settings."""

from pathlib import Path
from typing import Annotated, TypedDict

import typer

from gantree.api.observability.log_format import Format, Level
from gantree.control.engine.leadership import SHORTEST_LEASE_S
from gantree.control.engine.watchdog import SHORTEST_STALL_S
from gantree.control.nodes.sharing.partitioning import PartitionGpus
from gantree.journal.contract import LONGEST_LEASE_S

ClusterOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="Cluster file. [default: the recorded cluster, else this machine]"
    ),
]
VirtualOption = Annotated[
    str | None,
    typer.Option(
        metavar="MACHINE:COUNT", help="Simulate machines of the catalogue, such as dgx-h100:2."
    ),
]
PartitionGpusOption = Annotated[
    PartitionGpus | None,
    typer.Option(
        metavar="HOW",
        help="Partition GPUs for jobs: nvml (MIG of this machine, as root), amd-smi (compute partitions of this"
        " machine, as root), simulated, never."
        " [default: simulated with --virtual, else as before, else never]",
    ),
]
MpsControlOption = Annotated[
    str | None,
    typer.Option(
        metavar="PROGRAM",
        help="Program that starts an MPS control daemon for each GPU that jobs share by mps; none: the site runs them."
        " [default: nvidia-cuda-mps-control for this machine's GPUs; none if CUDA_MPS_PIPE_DIRECTORY is set]",
    ),
]
NameOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Name among the daemons of the database. [default: HOST-PROCESS]"
    ),
]
AdvertiseOption = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Address for clients. [default: the address of --listen]"),
]
LeaseOption = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        min=SHORTEST_LEASE_S,
        max=LONGEST_LEASE_S,
        help="A standby leads once the leader has not reached the database for this time.",
    ),
]
StallOption = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        min=SHORTEST_STALL_S,
        help="Exit with status 70 once the engine hangs for this time, or computes for ten times as long.",
    ),
]
ListenOption = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Also listen on this TCP address."),
]
TlsCertOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="TLS certificate chain for --listen, PEM.")
]
TlsKeyOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="TLS private key. [default: in --tls-cert]")
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="File with the token for --listen; created if missing. [default: STATE/token]",
    ),
]
RateOption = Annotated[
    float | None,
    typer.Option(min=0.1, metavar="N", help="Request limit of each caller. [default: none]"),
]
MaxConnectionsOption = Annotated[
    int | None,
    typer.Option(
        min=8,
        metavar="N",
        help="Connections over TCP at once. [default: 4096, fewer where open files are limited]",
    ),
]
HeaderTimeoutOption = Annotated[
    float,
    typer.Option(
        min=1,
        metavar="SECONDS",
        help="End a connection whose request headers take longer, or that is idle for longer.",
    ),
]
InsecureOption = Annotated[
    bool, typer.Option("--insecure", help="Allow --listen without TLS for other machines.")
]
RootPathOption = Annotated[
    str,
    typer.Option(
        metavar="PATH", help="Path under which a proxy serves the daemon, such as /gantree."
    ),
]
UserWaitingOption = Annotated[
    int,
    typer.Option(
        min=0, help="Most waiting jobs of one user; an array counts as at most 64. 0: no limit."
    ),
]
QueueWaitingOption = Annotated[
    int,
    typer.Option(min=0, help="Most waiting jobs of one queue, counted likewise. 0: no limit."),
]
KeepEndedOption = Annotated[
    int,
    typer.Option(min=0, metavar="N", help="Number of ended jobs to keep in lists."),
]
KeepHistoryOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help="Delete facts older than this, such as 30d. [default: keep all]"
    ),
]
AcceptClockOption = Annotated[
    bool,
    typer.Option(
        "--accept-clock", help="Start though the clock is over 30 days ahead of the journal."
    ),
]
GpuMetricsOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="URL",
        help="DCGM exporters of GPU utilisation: http://{node}:9400/metrics, or one URL for all nodes; may be"
        " repeated. [default: the driver of this machine]",
    ),
]
NodeMetricsOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="URL",
        help="node_exporters with the rates of NICs: http://{node}:9100/metrics, or one URL for all nodes; may be"
        " repeated.",
    ),
]
FabricPortsOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="URL",
        help="Ports of the fabric, from which up-links are counted: UFM's /ufmRest/resources/ports, or the print of"
        " ibnetdiscover, over HTTP or in a file:///PATH that is kept fresh; may be repeated.",
    ),
]
KernelLogOption = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        help="Kernel log with faults of GPUs: /dev/kmsg, or a file or FIFO that hosts forward theirs to; never: none."
        " [default: /dev/kmsg, if a node is this machine]",
    ),
]
RepairHooksOption = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Commands that repair nodes with a fault, by its sign."),
]
PricesOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="Prices of the site, for usage and its bills. [default: list prices]"
    ),
]
CordonLemonsOption = Annotated[
    bool,
    typer.Option(
        "--cordon-lemons", help="Cordon nodes with faults or other signs on 4 of 28 days or more."
    ),
]
LinkLoadOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="URL",
        help="Load of links, from which new gangs keep away: metrics gantree_link_load{link} from 0 to 1, such as the"
        " federation of a Prometheus; may be repeated.",
    ),
]
PrometheusOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="Prometheus server that is asked for queries that services scale on."
    ),
]
LogFormatOption = Annotated[
    Format, typer.Option(help="Log format; auto: text on a terminal, else JSON.")
]
LogLevelOption = Annotated[Level, typer.Option(help="Lowest level that is logged.")]


class LogSettings(TypedDict):
    """Those of a daemon's settings that are about its log."""

    log_level: Level
    log_format: Format


def log_settings(level: Level, form: Format) -> LogSettings:
    """Return what --log-level and --log-format say."""
    return {"log_level": level, "log_format": form}
