# As in `shim`: pathlib and contextlib cost 10 ms of a start that somebody waits for at a terminal.
# ruff: noqa: PTH123
"""A guest of a member: a command, on a terminal of its own or on pipes, whose ends somebody far away holds.

Run in a fork of the member's shim, which has become the job's user and is in its directory: that user may not get to
the Python and the files that the shim was started from. Standard library only, nothing of gantree. `guests` listens at
an abstract socket; the request has its name, argv, and rows and columns of the terminal (null: pipes). On the socket go
frames: a letter, the length in four bytes, and so many bytes.

    to here    i input    e end of input    w size of the terminal: rows and columns in two bytes each
    from here  o output   r error output    x how it ended, JSON: {"code": exit status as shells count}

The command ends with whoever holds the other end of the socket, with this process (the kernel sees to that), and with
its member: it is the shim's child, so the shim kills it with all the rest. Whatever it leaves behind is killed: this
process is a subreaper, and ends only when it has no child left.

Nothing is read from one side that the other has not the room for, so a slow reader slows the command down and nobody's
memory grows.
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
    """Give a terminal its rows and columns; the command is told by SIGWINCH."""
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", *SIZE.unpack(size), 0, 0))


class Guest:
    """One command and the two directions of what it says."""

    def __init__(
        self, connection: socket.socket, request: dict[str, Any], env: dict[str, str]
    ) -> None:
        self._connection = connection
        self._request = request
        self._env = env
        self._came = bytearray()
        self._to_command = bytearray()
        self._to_reader = bytearray()
        self._input_ends = False
        self._outputs: dict[int, bytes] = {}
        self._input: int | None = None
        self._terminal: int | None = None
        self._pid = self._woken = 0
        self._code: int | None = None

    def run(self) -> None:
        """Start the command, carry what is said both ways until it has ended, and say how."""
        self._woken, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        self._start()
        self._connection.setblocking(False)
        while not self._is_done():
            for end, events in self._watched().poll():
                self._serve(end, events)
            self._reap()
        self._wait_for_goodbye()

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
            self._become(ends, parent)
        for end in {*ends}:
            os.close(end)
        for end in {self._input, *self._outputs}:
            os.set_blocking(end, False)

    def _become(self, ends: list[int], parent: int) -> NoReturn:
        """In the child: take the ends as standard input and outputs and execute the command. Never returns."""
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

    def _watched(self) -> select.poll:
        """What can go on now: an end that nothing can be done with is not looked at, but for the loss of the reader."""
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        wanted = select.POLLIN if len(self._to_command) < MOST_WAITING else 0
        poll.register(self._connection, wanted | (select.POLLOUT if self._to_reader else 0))
        is_full = len(self._to_reader) >= MOST_WAITING
        of_end = {} if is_full else dict.fromkeys(self._outputs, select.POLLIN)
        if self._input is not None and self._to_command:
            of_end[self._input] = of_end.get(self._input, 0) | select.POLLOUT
        for end, events in of_end.items():
            poll.register(end, events)
        return poll

    def _serve(self, end: int, events: int) -> None:
        if end == self._woken:
            os.read(end, CHUNK)
        elif end == self._connection.fileno():
            if events & (select.POLLHUP | select.POLLERR):
                _end()
            if events & select.POLLIN:
                self._hear()
            if events & select.POLLOUT:
                self._send()
        else:
            if end == self._input and events & (select.POLLOUT | select.POLLERR):
                self._feed()
            if end in self._outputs and events & (select.POLLIN | select.POLLHUP):
                self._take_output(end)

    def _hear(self) -> None:
        """Read frames. Whoever held the other end is gone at its end: then everything goes."""
        try:
            data = self._connection.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            _end()
        self._came += data
        while len(self._came) >= HEAD.size:
            letter, length = HEAD.unpack_from(self._came)
            if len(self._came) < HEAD.size + length:
                return
            payload = bytes(self._came[HEAD.size : HEAD.size + length])
            del self._came[: HEAD.size + length]
            self._obey(letter, payload)

    def _obey(self, letter: bytes, payload: bytes) -> None:
        if letter == b"i" and self._input is not None:
            self._to_command += payload
        elif letter == b"e":
            self._input_ends = True
        elif letter == b"w" and self._terminal is not None:
            set_size(self._terminal, payload)
        self._feed()

    def _feed(self) -> None:
        """Give the command what it takes of its input now; the end of it where all was taken."""
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

    def _take_output(self, end: int) -> None:
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
        """See whether the command has ended; nothing that it left behind lives on then."""
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
        """Whether it has ended, and all that it said has been sent."""
        if self._code is None or self._outputs or self._to_reader:
            return False
        self._connection.setblocking(True)
        self._connection.sendall(_frame(b"x", json.dumps({"code": self._code}).encode()))
        return True

    def _wait_for_goodbye(self) -> None:
        """Stay until the other end is closed: whoever called may still look who this is, or be about to write.

        A command may have ended before he did either. Were this end closed first, what he has not read would be lost.
        """
        try:
            while self._connection.recv(CHUNK):
                pass
        except OSError:  # he has gone
            return


def _kill_children() -> None:
    """SIGKILL for all children, and for those whose parents they were, until there is none."""
    while True:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            for pid in file.read().split():
                os.kill(int(pid), signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _end() -> NoReturn:
    """Nobody listens any more: end with all that was started."""
    _kill_children()
    os._exit(0)


def serve(request: dict[str, Any], env: dict[str, str], complaints: int) -> NoReturn:
    """Be the guest that was asked for, in an environment. Of what the shim has open only its complaints are kept.

    Nothing is imported here: the user that this process is by now may not be allowed to.
    """
    os.closerange(3, complaints)
    os.closerange(complaints + 1, os.sysconf("SC_OPEN_MAX"))
    _prctl(PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1))
    _prctl(PR_SET_NAME, ctypes.c_char_p(b"gantree-guest"))
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(f"\0{request['name']}")
    Guest(connection, request, env).run()
    os._exit(0)
