"""Where the program `gantree` begins, before anything that takes long is imported.

Until the commands can answer for it, Ctrl-C ends the process as the system would: without a traceback. It imports next
to nothing at its top, and has nothing of what a command does.
"""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def start() -> None:
    """Run the command line of this process and exit."""
    _open_standard_streams()
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # else it is ignored, and stays so
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    with importing():
        from gantree.cli.main import main  # noqa: PLC0415 - this is what takes long

    signal.signal(signal.SIGINT, before)
    main()


@contextmanager
def importing() -> Iterator[None]:
    """What is imported stays, so to look for garbage meanwhile is in vain; that takes a tenth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _open_standard_streams() -> None:
    """Put nothing where a standard stream was closed (`>&-`): else a socket would get its number, and be written to."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        nowhere = os.open(os.devnull, os.O_RDWR)
        if nowhere != number:
            os.dup2(nowhere, number)
            os.close(nowhere)
        setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", closefd=False))
