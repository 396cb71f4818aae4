"""Processes that are born with everything imported: forked from one that has done nothing else yet. For tests.

    born = Nursery("support.daemon:live").bear(["--these", "go", "to", "live"], output)
    born.send_signal(signal.SIGTERM)
    born.wait(timeout=300)

To import a daemon takes several times as long as to start one, and a test run starts hundreds. So there is a nursery:
it imports the module of a function, and waits; whoever it bears is its fork and calls that function, with the
environment, directory and umask of who asked, no descriptor but its output, and a life of its own. The nursery tells
who asked how it ended.

All processes of a test run that name the same place share one: the first starts it, and it ends with the last of them.
"""

import atexit
import fcntl
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

PLACE = "TESTS_NURSERY"
"""The variable that names the place of the nursery that a test run shares."""
_NURSE = "import sys; from support.nursery import nurse; nurse(int(sys.argv[1]), *sys.argv[2:])"
_REQUEST_BYTES = 1 << 20
_GREETING = b"here"


class Born:
    """One that was born, with as much of subprocess.Popen as a test asks for."""

    def __init__(self, word: socket.socket) -> None:
        """word is where the nursery says the process id, and in the end the exit status."""
        self.pid = _heard(word)
        self.returncode: int | None = None
        self._word = word

    def poll(self) -> int | None:
        """Its exit status, or None while it lives."""
        try:
            return self.wait(timeout=0.0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status; negative is the signal that killed it. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            self._word.settimeout(timeout)
            try:
                self.returncode = _heard(self._word)
            except (BlockingIOError, TimeoutError):
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0) from None
            self._word.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Nothing happens to one that has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


def _heard(word: socket.socket) -> int:
    if not (said := word.recv(64)):
        raise RuntimeError("the nursery has ended")
    return int(said)


class Nursery:
    """The process that others are forked from."""

    def __init__(self, entry: str, *imports: str, place: Path | None = None) -> None:
        """entry is "module:function"; imports are modules that the function imports late.

        place is the socket of one that is shared, which has the same entry and imports for all; it need not be there.
        """
        self._command = [entry, *imports]
        with tempfile.TemporaryDirectory() as own:
            self._door = self._door_at(place or Path(own) / "nursery")

    def _door_at(self, place: Path) -> socket.socket:
        """A connection to the nursery there. Whoever finds none starts one, and all others wait for that."""
        with place.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return _connected(place) or self._started(place)

    def _started(self, place: Path) -> socket.socket:
        place.unlink(missing_ok=True)
        door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(str(place))
            listener.listen(64)
            door.connect(str(place))
            self._process = subprocess.Popen(
                [sys.executable, "-c", _NURSE, str(listener.fileno()), *self._command],
                pass_fds=[listener.fileno()],
                stdin=subprocess.DEVNULL,
            )
        if door.recv(len(_GREETING)) != _GREETING:
            raise RuntimeError("the nursery has ended")
        return door

    def bear(
        self, arguments: list[str], output: int, variables: Mapping[str, str] | None = None
    ) -> Born:
        """One more; it prints to that descriptor. Its environment is ours, and these variables."""
        os.umask(umask := os.umask(0o077))
        environment = {**os.environ, **(variables or {})}
        asked = json.dumps([arguments, environment, str(Path.cwd()), umask]).encode()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            socket.send_fds(self._door, [asked], [theirs.fileno(), output])
        return Born(ours)


def _connected(place: Path) -> socket.socket | None:
    """A connection that is answered; None if nobody is there, or goes away just now."""
    door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with suppress(FileNotFoundError, ConnectionRefusedError, ConnectionResetError):
        door.connect(str(place))
        if door.recv(len(_GREETING)) == _GREETING:
            return door
    door.close()
    return None


def nurse(listener: int, entry: str, *imports: str) -> None:
    """The life of a nursery, and in each fork the life of one that was born. Ends when nobody is connected any more."""
    gc.disable()  # until all is there that stays
    module, function = entry.split(":")
    begin: Callable[[list[str]], None] = getattr(importlib.import_module(module), function)
    for late in imports:
        importlib.import_module(late)
    gc.collect()
    gc.enable()
    gc.freeze()  # in a fork a collection neither looks at what was imported nor writes to those pages
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests, which end then
    if (arguments := _child_that_begins(socket.socket(fileno=listener))) is not None:
        begin(arguments)
        _end()


def _end() -> NoReturn:
    """As the interpreter ends, but for taking apart what the fork shares with all others: that takes 0.1 s of CPU."""
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads as at any other end
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _child_that_begins(listener: socket.socket) -> list[str] | None:
    """Serve; returns in each child, with its arguments, and with None at the end."""
    with listener, selectors.DefaultSelector() as awaited:
        awaited.register(listener, selectors.EVENT_READ, _accept)
        is_first = True
        while is_first or any(key.data is _bear for key in awaited.get_map().values()):
            for key, _ in awaited.select():
                is_first = False
                arguments: list[str] | None = key.data(awaited, key.fileobj)
                if arguments is not None:
                    return arguments
    return None


def _accept(awaited: selectors.BaseSelector, listener: socket.socket) -> None:
    door, _ = listener.accept()
    door.send(_GREETING)
    awaited.register(door, selectors.EVENT_READ, _bear)


def _bear(awaited: selectors.BaseSelector, door: socket.socket) -> list[str] | None:
    """Fork one that was asked for. Returns in the child, with its arguments."""
    request, descriptors, _, _ = socket.recv_fds(door, _REQUEST_BYTES, 2)
    if not request:
        awaited.unregister(door)
        door.close()
        return None
    word, output = socket.socket(fileno=descriptors[0]), descriptors[1]
    if (pid := os.fork()) == 0:
        word.close()
        _forget_siblings(awaited)
        return _leave_home(request, output)
    os.close(output)
    word.send(str(pid).encode())
    awaited.register(os.pidfd_open(pid), selectors.EVENT_READ, partial(_tell_end, pid, word))
    return None


def _tell_end(pid: int, word: socket.socket, awaited: selectors.BaseSelector, pidfd: int) -> None:
    awaited.unregister(pidfd)
    os.close(pidfd)
    _, status = os.waitpid(pid, 0)
    with word:
        try:
            word.send(str(os.waitstatus_to_exitcode(status)).encode())
        except BrokenPipeError:
            return  # nobody wants to know


def _forget_siblings(awaited: selectors.BaseSelector) -> None:
    """In the child: close what only the nursery listens to."""
    for key in awaited.get_map().values():
        if isinstance(key.fileobj, socket.socket):
            key.fileobj.close()
        else:
            os.close(key.fd)
            key.data.args[1].close()


def _leave_home(request: bytes, output: int) -> list[str]:
    """In the child: be as if started by who asked."""
    arguments, environment, directory, umask = json.loads(request)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    os.umask(umask)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    given: list[str] = arguments
    return given
