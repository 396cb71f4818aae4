"""The options of `gantree up` for access control and for the Unix users of jobs."""

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
        help="Access file: users and their roles. [default: every caller may do everything]",
    ),
]
RunAsOption = Annotated[
    bool,
    typer.Option(
        "--run-as-submitter",
        help="Run each job as the Unix user who submits it; needs root and --access.",
    ),
]


def check_run_as(access: Path | None, *, run_as_submitter: bool) -> None:
    """Raise BadInput if jobs cannot run as other users, or if there is no access file."""
    if run_as_submitter and (access is None or os.geteuid() != 0):
        raise BadInput("--run-as-submitter needs --access and root")
