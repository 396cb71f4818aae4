"""The options of `gantree up` that say who may do what, and as whom jobs run."""

import os
from pathlib import Path
from typing import Annotated

import typer

from gantree.model.errors import BadInput

AccessOption = Annotated[
    Path | None,
    typer.Option(
        "--access",
        metavar="FILE",
        help="Who may do what. [default: whoever opens the socket or has the token, everything]",
    ),
]
RunAsOption = Annotated[
    bool,
    typer.Option(
        "--run-as-submitter",
        help="Run jobs as the Unix users of those who hand them in; takes root and --access.",
    ),
]


def check_run_as(access: Path | None, *, run_as_submitter: bool) -> None:
    """Raise BadInput where jobs cannot run as other users, or nobody says who these are."""
    if run_as_submitter and (access is None or os.geteuid() != 0):
        raise BadInput("--run-as-submitter needs --access, and a daemon that root has started")
