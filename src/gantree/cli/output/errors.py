"""Errors and warnings: sentences on stderr, and an exit status."""

import os
import signal

import typer

from gantree.model.errors import BadInput, GantreeError, Unauthenticated, Unsupported

BAD_INPUT = 2
FAILURE = 1
BROKEN_PIPE = 128 + signal.SIGPIPE
"""The exit status that a shell gives a program which wrote to a closed pipe."""


def error_text(error: GantreeError) -> str:
    """The lines that are printed for an error."""
    lines = str(error).splitlines() or [repr(error)]
    if isinstance(error, Unauthenticated):
        lines.append(
            "The token is taken from GANTREE_TOKEN, or from the file in GANTREE_TOKEN_FILE."
        )
    return "\n".join(f"gantree: {line}" for line in lines)


def os_error_text(error: OSError) -> str:
    """The line that is printed for an error of the operating system."""
    where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
    return f"gantree: {where}{(error.strerror or str(error)).lower()}"


def exit_code_of(error: GantreeError) -> int:
    """2 if the input is wrong, 1 for any other error."""
    return BAD_INPUT if isinstance(error, BadInput | Unsupported) else FAILURE


def warn(sentence: str) -> None:
    """Print a warning on stderr."""
    typer.echo(f"gantree: warning: {sentence}", err=True)
