"""The process from which readers are forked: itself forked from the daemon before that has threads, files or secrets.

A fork shares all code that is loaded, so a reader is there in milliseconds, and is none of a process with threads. The
host does nothing but fork, one reader for each socket that it is handed. It ends with the daemon, however that ends:
its socket says so; and the kernel ends the readers with it (PR_SET_PDEATHSIG).
"""

import ctypes
import gc
import logging
import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
PR_SET_NAME = 15
NICER = 5
"""Added to the nice value of the daemon: whoever decides goes before whoever reads."""
FIRST_TO_KILL = 500
"""Added to the score by which the kernel chooses whom to kill when memory runs out."""
OF_THE_DAEMON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What a terminal or a service manager sends to all processes; the daemon alone goes by it."""

log = logging.getLogger(__name__)


class ReaderHost:
    """The daemon's end of it."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control

    def start(self) -> socket.socket:
        """A socket to a new reader. Raises OSError where the host is gone."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                socket.send_fds(self._control, [b"r"], [theirs.fileno()])
        except OSError:
            ours.close()
            raise
        return ours

    def close(self) -> None:
        """End the host and its readers."""
        self._control.close()


def fork_host(serve: Callable[[socket.socket], None]) -> ReaderHost:
    """Fork a host whose readers do serve with their socket. To be called while the process has one thread."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        _end_after(lambda: _host(theirs, serve))
    theirs.close()
    return ReaderHost(ours)


def end_with(parent: int, name: bytes) -> None:
    """Let the kernel kill this process as soon as its parent is dead, and call it by a name (15 letters are shown)."""
    libc = ctypes.CDLL(None, use_errno=True)
    none = ctypes.c_ulong(0)
    libc.prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), none, none, none)
    libc.prctl(PR_SET_NAME, ctypes.c_char_p(name), none, none, none)
    if os.getppid() != parent:
        os._exit(1)


def _host(control: socket.socket, serve: Callable[[socket.socket], None]) -> None:
    gc.freeze()
    end_with(os.getppid(), b"gantree-host")
    for number in OF_THE_DAEMON:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for readers
    me = os.getpid()
    while True:
        word, handed, _, _ = socket.recv_fds(control, 1, 1)
        if not word:
            return
        (descriptor,) = handed
        if os.fork() == 0:
            control.close()
            _end_after(lambda: _reader(me, socket.socket(fileno=descriptor), serve))  # noqa: B023 - runs at once
        os.close(descriptor)


def _reader(host: int, own: socket.socket, serve: Callable[[socket.socket], None]) -> None:
    end_with(host, b"gantree-reader")
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with suppress(OSError):
        os.nice(NICER)
        with open("/proc/self/oom_score_adj", "w") as score:  # noqa: PTH123 - a file of the kernel
            score.write(str(FIRST_TO_KILL))
    serve(own)


def _end_after(work: Callable[[], None]) -> None:
    """Do it and end, without anything that belongs to the process this one was forked from."""
    status = 1
    try:
        work()
        status = 0
    except Exception:
        log.exception("%s ended", os.getpid())
    finally:
        os._exit(status)
