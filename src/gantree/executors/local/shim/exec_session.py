# As in `shim`: pathlib and contextlib cost 10 ms of a start that somebody waits for at a terminal.
# ruff: noqa: PTH123
"""The process of one exec session: a command on a terminal or on pipes, connected to a remote client by a socket.

Runs in a fork of the member's shim, as the job's user and in its directory. That user may not be able to read the
Python and the files from which the shim was started. Standard library only, nothing of gantree. `exec_sessions` listens
on an abstract socket; the request has its name, argv, and rows and columns of the terminal (null: pipes). The socket
carries frames: a letter, the length in four bytes, and the payload.

    to this process    i input    e end of input    w size of the terminal: rows and columns in two bytes each
    from this process  o output   r error output    x exit, JSON: {"code": exit status as shells count}

The command is killed when the other end of the socket closes, when this process dies (by PR_SET_PDEATHSIG), and with
its member, as this process is a child of the shim. So are processes that it leaves behind: this process is a subreaper
and ends only when it has no child left.

Each direction is read only while less than MOST_WAITING bytes of it wait to be written, so a slow reader slows the
command down and memory does not grow.
"""

import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import struct
import termios
from typing import Any, NoReturn

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36
MOST_WAITING = 256 * 1024
"""Bytes that wait for either side; what comes beyond them is left where it is."""
CHUNK = 32 * 1024
HEAD = struct.Struct("!cI")
SIZE = struct.Struct("!HH")
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
"""As shells count."""


def _prctl(option: int, argument: ctypes.c_ulong | ctypes.c_char_p) -> None:
    none = ctypes.c_ulong(0)
    ctypes.CDLL(None).prctl(option, argument, none, none, none)


def _frame(letter: bytes, payload: bytes) -> bytes:
    return HEAD.pack(letter, len(payload)) + payload


def set_size(terminal: int, size: bytes) -> None:
    """Give a terminal its rows and columns; the command gets SIGWINCH."""
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", *SIZE.unpack(size), 0, 0))


class ExecSession:
    """One command and both directions of its input and output."""

    def __init__(
        self, connection: socket.socket, request: dict[str, Any], env: dict[str, str]
    ) -> None:
        self._connection = connection
        self._request = request
        self._env = env
        self._received = bytearray()
        self._to_command = bytearray()
        self._to_reader = bytearray()
        self._input_ends = False
        self._outputs: dict[int, bytes] = {}
        self._input: int | None = None
        self._terminal: int | None = None
        self._pid = self._woken = 0
        self._code: int | None = None

    def run(self) -> None:
        """Start the command, relay both directions until it has ended, and send its exit status."""
        self._woken, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        self._start()
        self._connection.setblocking(False)
        while not self._is_done():
            for end, events in self._poll().poll():
                self._handle(end, events)
            self._reap()
        self._wait_for_close()

    def _start(self) -> None:
        terminal = self._request["terminal"]
        ends: list[int]
        if terminal is not None:
            ours, theirs = os.openpty()
            set_size(ours, SIZE.pack(terminal["rows"], terminal["columns"]))
            self._input, self._terminal, self._outputs = ours, ours, {ours: b"o"}
            ends = [theirs, theirs, theirs]
        else:
            (his_in, self._input), (out, his_out), (err, his_err) = os.pipe(), os.pipe(), os.pipe()
            self._outputs = {out: b"o", err: b"r"}
            ends = [his_in, his_out, his_err]
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            self._exec(ends, parent)
        for end in {*ends}:
            os.close(end)
        for end in {self._input, *self._outputs}:
            os.set_blocking(end, False)

    def _exec(self, ends: list[int], parent: int) -> NoReturn:
        """In the child: use the ends as standard streams and execute the command. Never returns."""
        code, argv = _NOT_EXECUTABLE, self._request["argv"]
        try:
            _prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
            if os.getppid() != parent:
                os._exit(code)
            os.setsid()
            if self._terminal is not None:
                fcntl.ioctl(ends[0], termios.TIOCSCTTY, 0)
            for number, end in enumerate(ends):
                os.dup2(end, number)
            for handled in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):
                signal.signal(handled, signal.SIG_DFL)
            os.execvpe(argv[0], argv, self._env)  # noqa: S606  # no shell, on purpose
        except FileNotFoundError as error:
            code, why = _NOT_FOUND, error.strerror
        except BaseException as error:  # a child must never return into the loop
            why = str(error)
        os.write(2, f"gantree: cannot run {argv[0]!r}: {why}\n".encode(errors="replace"))
        os._exit(code)

    def _poll(self) -> select.poll:
        """Poll the ends that can be read or written now, and the connection for its end."""
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        events = select.POLLIN if len(self._to_command) < MOST_WAITING else 0
        poll.register(self._connection, events | (select.POLLOUT if self._to_reader else 0))
        is_full = len(self._to_reader) >= MOST_WAITING
        of_end = {} if is_full else dict.fromkeys(self._outputs, select.POLLIN)
        if self._input is not None and self._to_command:
            of_end[self._input] = of_end.get(self._input, 0) | select.POLLOUT
        for end, events in of_end.items():
            poll.register(end, events)
        return poll

    def _handle(self, end: int, events: int) -> None:
        if end == self._woken:
            os.read(end, CHUNK)
        elif end == self._connection.fileno():
            if events & (select.POLLHUP | select.POLLERR):
                _end()
            if events & select.POLLIN:
                self._receive()
            if events & select.POLLOUT:
                self._send()
        else:
            if end == self._input and events & (select.POLLOUT | select.POLLERR):
                self._write_input()
            if end in self._outputs and events & (select.POLLIN | select.POLLHUP):
                self._read_output(end)

    def _receive(self) -> None:
        """Read frames; end everything when the other end is closed."""
        try:
            data = self._connection.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            _end()
        self._received += data
        while len(self._received) >= HEAD.size:
            letter, length = HEAD.unpack_from(self._received)
            if len(self._received) < HEAD.size + length:
                return
            payload = bytes(self._received[HEAD.size : HEAD.size + length])
            del self._received[: HEAD.size + length]
            self._apply(letter, payload)

    def _apply(self, letter: bytes, payload: bytes) -> None:
        if letter == b"i" and self._input is not None:
            self._to_command += payload
        elif letter == b"e":
            self._input_ends = True
        elif letter == b"w" and self._terminal is not None:
            set_size(self._terminal, payload)
        self._write_input()

    def _write_input(self) -> None:
        """Write as much input as the command takes now; close its input after the last byte if the client has."""
        if self._input is None:
            return
        try:
            while self._to_command:
                del self._to_command[: os.write(self._input, self._to_command[:CHUNK])]
        except BlockingIOError:
            return
        except OSError:  # nobody reads it any more
            self._to_command.clear()
        if self._input_ends and self._terminal is None:
            os.close(self._input)
            self._input = None

    def _read_output(self, end: int) -> None:
        try:
            data = os.read(end, CHUNK)
        except BlockingIOError:
            return
        except OSError:  # a terminal that nobody has open any more
            data = b""
        if data:
            self._to_reader += _frame(self._outputs[end], data)
        else:
            del self._outputs[end]
            if end != self._input:
                os.close(end)
        self._send()

    def _send(self) -> None:
        try:
            while self._to_reader:
                del self._to_reader[: self._connection.send(self._to_reader[: 2 * CHUNK])]
        except BlockingIOError:
            return
        except OSError:
            _end()

    def _reap(self) -> None:
        """Collect children; once the command has ended, kill what it left behind."""
        while self._code is None:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._pid:
                code = os.waitstatus_to_exitcode(status)
                self._code = code if code >= 0 else 128 - code
                _kill_children()

    def _is_done(self) -> bool:
        """Whether the command has ended and all its output was sent; sends the exit status then."""
        if self._code is None or self._outputs or self._to_reader:
            return False
        self._connection.setblocking(True)
        self._connection.sendall(_frame(b"x", json.dumps({"code": self._code}).encode()))
        return True

    def _wait_for_close(self) -> None:
        """Wait until the other end is closed.

        The daemon may not have checked the peer yet, or may be about to write. If this end closed first, output that
        was not read yet would be lost.
        """
        try:
            while self._connection.recv(CHUNK):
                pass
        except OSError:  # closed already
            return


def _kill_children() -> None:
    """SIGKILL for all children and, as they are reparented to this process, all their descendants."""
    while True:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            for pid in file.read().split():
                os.kill(int(pid), signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _end() -> NoReturn:
    """The client is gone: kill everything that was started and exit."""
    _kill_children()
    os._exit(0)


def serve(request: dict[str, Any], env: dict[str, str], complaints: int) -> NoReturn:
    """Run a requested session in an environment. Of the shim's open files only `complaints` stays open.

    Nothing may be imported here: the job's user may not be able to read the modules.
    """
    os.closerange(3, complaints)
    os.closerange(complaints + 1, os.sysconf("SC_OPEN_MAX"))
    _prctl(PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1))
    _prctl(PR_SET_NAME, ctypes.c_char_p(b"gantree-exec"))
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(f"\0{request['name']}")
    ExecSession(connection, request, env).run()
    os._exit(0)
