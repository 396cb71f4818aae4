"""The process from which readers are forked: itself forked from the daemon before that has threads, files or secrets.

A fork shares all code that is loaded, so a reader is there in milliseconds, and is none of a process with threads. The
host does nothing but fork, one reader for each socket that it is handed. It ends with the daemon, however that ends:
its socket says so; and the kernel ends the readers with it (PR_SET_PDEATHSIG).

A host that was killed cannot be forked again, since by then the daemon has threads. The next one is the interpreter
executed anew (`python -m gantree.control.readers.host`), which loads the code itself: that takes a second or two, and
memory of its own.
"""

import ctypes
import gc
import logging
import os
import pickle
import signal
import socket
import struct
import sys
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

INPUT = 0
_LENGTH = struct.Struct("!I")

log = logging.getLogger(__name__)


class ReaderHost:
    """The daemon's end of it. prepare is what a host that was not forked does first; it is pickled, as is serve."""

    def __init__(
        self,
        control: socket.socket,
        pid: int,
        serve: Callable[[socket.socket], None],
        prepare: Callable[[], object],
    ) -> None:
        self._control, self._pid = control, pid
        self._serve, self._prepare = serve, prepare

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

    def renew(self) -> None:
        """Execute another host in the place of the one that is gone; on the main thread, which it ends with.

        Raises OSError where there can be none.
        """
        self.close()
        with suppress(ChildProcessError):
            os.waitpid(self._pid, os.WNOHANG)
        task = pickle.dumps((self._prepare, self._serve))
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-P", "-m", "gantree.control.readers.host"]
            as_input = (os.POSIX_SPAWN_DUP2, theirs.fileno(), INPUT)
            self._pid = os.posix_spawn(command[0], command, os.environ, file_actions=[as_input])
        self._control = ours
        ours.sendall(_LENGTH.pack(len(task)) + task)

    def close(self) -> None:
        """End the host and its readers."""
        self._control.close()


def fork_host(serve: Callable[[socket.socket], None], prepare: Callable[[], object]) -> ReaderHost:
    """Fork a host whose readers do serve with their socket. To be called while the process has one thread."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        _end_after(lambda: _host(theirs, serve))
    theirs.close()
    return ReaderHost(ours, pid, serve, prepare)


def be_host() -> None:
    """Be a host that was executed: its socket is its input, and what it is to do comes first over it."""
    control = socket.socket(fileno=os.dup(INPUT))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, INPUT)
    os.close(nothing)
    (length,) = _LENGTH.unpack(_received(control, _LENGTH.size))
    prepare, serve = pickle.loads(_received(control, length))  # noqa: S301 - the other end is the daemon
    prepare()
    _host(control, serve)


def _received(control: socket.socket, length: int) -> bytes:
    came = control.recv(length, socket.MSG_WAITALL)
    if len(came) < length:
        raise SystemExit(0)  # the daemon is gone
    return came


def end_with(parent: int, name: bytes) -> None:
    """Let the kernel kill this process as soon as its parent is dead, and call it by a name (15 letters are shown)."""
    libc = ctypes.CDLL(None, use_errno=True)
    none = ctypes.c_ulong(0)
    libc.prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), none, none, none)
    libc.prctl(PR_SET_NAME, ctypes.c_char_p(name), none, none, none)
    if os.getppid() != parent:
        os._exit(1)


def _see_to_readers(number: int, frame: object) -> None:
    """Reap readers that ended, and let go on who was stopped: all that read would wait for it."""
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            if pid == 0:
                return
            if os.WIFSTOPPED(status):
                os.kill(pid, signal.SIGCONT)


def _host(control: socket.socket, serve: Callable[[socket.socket], None]) -> None:
    gc.freeze()
    end_with(os.getppid(), b"gantree-host")
    for number in OF_THE_DAEMON:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, _see_to_readers)
    me = os.getpid()
    while True:
        word, handed, _, _ = socket.recv_fds(control, 1, 1)
        if not word:
            return
        for descriptor in handed:  # none where there is no room for it
            try:
                is_reader = os.fork() == 0
            except (
                OSError
            ) as error:  # no room for a process; the daemon sees its socket closed, and asks again
                log.error("no reader can be forked: %s", error)
                is_reader = False
            if is_reader:
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


if __name__ == "__main__":
    be_host()
