"""The entry point of the program `gantree`, before any slow import.

Until the commands can answer for it, Ctrl-C ends the process as the system would: without a traceback. So nothing that
must be read from disk is imported before that. What a command does is elsewhere.
"""

import _signal as signal  # type: ignore[import-not-found]  # built in, unlike `signal`, so it has no stub
import os
import sys


def start() -> None:
    """Run the command line of this process and exit."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # else it is ignored, and stays so
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    _open_standard_streams()
    from gantree.control.garbage import without_collecting  # noqa: PLC0415 - see above

    with without_collecting():  # what is imported stays
        from gantree.cli.main import main  # noqa: PLC0415 - this is what takes long

    signal.signal(signal.SIGINT, before)
    main()


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
