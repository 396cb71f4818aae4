"""What errors and warnings look like to the caller: sentences on stderr, and an exit status."""

import os
import signal

import typer

from gantree.model.errors import BadInput, GantreeError, Unsupported

BAD_INPUT = 2
FAILURE = 1
UNREAD = 128 + signal.SIGPIPE
"""As a shell tells of a program that wrote to a pipe which nobody reads any more."""


def told(error: GantreeError) -> str:
    """The error as lines for people."""
    return "\n".join(f"gantree: {line}" for line in str(error).splitlines() or [repr(error)])


def told_by_system(error: OSError) -> str:
    """An error that the system gave and that nobody put into a sentence, as a line for people."""
    where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
    return f"gantree: {where}{(error.strerror or str(error)).lower()}"


def exit_code_of(error: GantreeError) -> int:
    """2 where the input is at fault, 1 where the world is."""
    return BAD_INPUT if isinstance(error, BadInput | Unsupported) else FAILURE


def warn(sentence: str) -> None:
    """Print something that the caller should know, on stderr."""
    typer.echo(f"gantree: warning: {sentence}", err=True)
