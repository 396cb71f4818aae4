"""The options of `gantree up` that bound what jobs' output and old run directories take of the disk."""

from dataclasses import replace
from typing import Annotated

import typer

from gantree.cli.input.durations import seconds_of
from gantree.cli.input.sizes import bytes_of, disk_amount_of
from gantree.executors.local.run_limits import RunLimits
from gantree.executors.local.shim.log_cap import LEAST_BYTES
from gantree.model.errors import BadInput

LogCapOption = Annotated[
    str,
    typer.Option(
        metavar="SIZE", help="Largest log of a process; the middle of a larger one is dropped."
    ),
]
KeepFreeOption = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE|PERCENT",
        help="Part of the disk that logs leave free. [default: 5%, at most 10GiB]",
    ),
]
KeepRunsOption = Annotated[
    str,
    typer.Option(metavar="TIME", help="Delete logs and records of attempts that ended longer ago."),
]
MostRunsOption = Annotated[
    str,
    typer.Option(
        metavar="SIZE|PERCENT",
        help="Part of the disk for logs and records of ended attempts; the oldest are deleted.",
    ),
]


def run_limits(log_cap: str, keep_free: str | None, keep_runs: str, most_runs: str) -> RunLimits:
    """The limits that the options set. Raises BadInput."""
    cap_bytes = bytes_of("--log-cap", log_cap)
    if cap_bytes < LEAST_BYTES:
        raise BadInput(f"--log-cap: found {log_cap!r}; allowed: a size of at least 1MiB")
    limits = RunLimits(
        log_cap_bytes=cap_bytes,
        keep_s=seconds_of("--keep-runs", keep_runs),
        most=disk_amount_of("--most-runs", most_runs),
    )
    if keep_free is None:
        return limits
    return replace(limits, keep_free=disk_amount_of("--keep-free", keep_free))
