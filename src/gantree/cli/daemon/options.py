"""The options of `gantree up`. What they come to is in `up`."""

from pathlib import Path
from typing import Annotated

import typer

from gantree.api.observability.log_format import Format, Level
from gantree.control.engine.leadership import SHORTEST_LEASE_S
from gantree.control.engine.watchdog import SHORTEST_STALL_S
from gantree.journal.contract import LONGEST_LEASE_S

ClusterOption = Annotated[
    str | None, typer.Option(metavar="FILE", help="Cluster file. [default: as last time]")
]
VirtualOption = Annotated[
    str | None,
    typer.Option(metavar="MACHINE:COUNT", help="Pretend to have machines, like dgx-h100:2."),
]
NameOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="What others of the database call it. [default: HOST-PROCESS]"
    ),
]
AdvertiseOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="Where clients reach it over --listen. [default: as it listens]"
    ),
]
LeaseOption = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        min=SHORTEST_LEASE_S,
        max=LONGEST_LEASE_S,
        help="So long out of touch with the database, and another leads.",
    ),
]
StallOption = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        min=SHORTEST_STALL_S,
        help="So long its engine hangs, and it ends itself, with 70; ten times as long while that computes.",
    ),
]
ListenOption = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Answer there too, beside the Unix socket."),
]
TlsCertOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Certificate chain for --listen, PEM.")
]
TlsKeyOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Its key. [default: in --tls-cert]")
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Token that callers over --listen must show; made if missing. [default: STATE/token]",
    ),
]
RateOption = Annotated[
    float | None,
    typer.Option(min=0.1, metavar="N", help="How often a caller may ask. [default: no limit]"),
]
InsecureOption = Annotated[
    bool, typer.Option("--insecure", help="Let others reach --listen without TLS.")
]
RootPathOption = Annotated[
    str, typer.Option(metavar="PATH", help="Path that a proxy serves it under, like /gantree.")
]
KeepEndedOption = Annotated[
    int,
    typer.Option(min=0, metavar="N", help="Ended jobs that are listed, the newest ones."),
]
KeepHistoryOption = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Delete older facts: 30d, 12h. [default: keep all]"),
]
GpuMetricsOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="URL",
        help="DCGM exporters that tell how busy GPUs are: http://{node}:9400/metrics, or one that tells of all; may be"
        " given several times. [default: this machine's driver]",
    ),
]
LogFormatOption = Annotated[
    Format, typer.Option(help="How the log looks; auto: text on a terminal, else JSON.")
]
LogLevelOption = Annotated[Level, typer.Option(help="The least that is logged.")]
