"""`gantree attach`: a shell or a command beside a running process of a job, or a port of it on this machine."""

import json
import os
import re
import select
import signal
import socket
import struct
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any

import typer

from gantree.api.client.client import Client
from gantree.api.client.exec_session import ExecSession
from gantree.api.client.exec_session import open_exec_session as attached_to
from gantree.cli.daemon_client import JobArgument, client, job_named
from gantree.cli.options import StateOption, new_app
from gantree.cli.output.errors import error_text
from gantree.model.errors import BadInput, Conflict, GantreeError

app = new_app()
CHUNK = 32 * 1024
STDIN, STDOUT, STDERR = 0, 1, 2
_PORTS = re.compile(r"(\d{1,5})(?::(\d{1,5}))?", re.ASCII)


@app.command(context_settings={"ignore_unknown_options": True})
def open_exec_session(
    job: JobArgument,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND...]", help="[default: a shell]")
    ] = None,
    rank: Annotated[int, typer.Option(min=0, help="Rank to attach to.")] = 0,
    port: Annotated[
        str | None,
        typer.Option(metavar="PORT[:LOCAL]", help="Forward a port of the job to this machine."),
    ] = None,
    state: StateOption = None,
) -> None:
    """Run a shell next to a process of a job, or forward a port.

    The shell, or the given command, has the GPUs, environment and directory of the process.

    It ends with the attempt of the job, and does not affect the job. The exit status is that of the command.
    """
    daemon = client(state)
    if port is None:
        raise typer.Exit(_run_beside(daemon, job_named(daemon, job), rank, command or []))
    if command:
        raise BadInput("--port cannot be used with a command")
    ports = _ports(port)
    _forward(daemon, job_named(daemon, job), rank, *ports)


def _run_beside(daemon: Client, job: str, rank: int, command: list[str]) -> int:
    on_terminal = os.isatty(STDIN)
    request = {"rank": rank, "command": command, "terminal": _terminal() if on_terminal else None}
    session = _open_session(daemon, job, request)
    with _raw_terminal() if on_terminal else _as_it_is(), _size_changes() as resized:
        threading.Thread(
            target=_carry_input, args=(session, resized if on_terminal else None), daemon=True
        ).start()
        try:
            return _carry_output(session)
        except KeyboardInterrupt:
            return 128 + signal.SIGINT
        finally:
            session.close()


def _open_session(daemon: Client, job: str, request: dict[str, Any]) -> ExecSession:
    """Attach by the daemon that leads now, which a client finds only by asking for something."""
    daemon.health()
    return attached_to(daemon.target, job, request)


def _carry_output(session: ExecSession) -> int:
    """Print what comes until the end; the exit status. Raises what the daemon says instead of an end."""
    for letter, payload in session.receive():
        if letter == b"x":
            return int(json.loads(payload)["code"])
        _write(STDERR if letter == b"r" else STDOUT, payload)
    raise Conflict(
        "the connection to the daemon was lost, which ended the command; the job continues. Attach again"
    )


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _carry_input(session: ExecSession, resized: int | None) -> None:
    """Send what is typed, or read from a file or pipe, and the size of the terminal whenever it changes."""
    watched = [STDIN] if resized is None else [STDIN, resized]
    with suppress(GantreeError):
        while True:
            ready, _, _ = select.select(watched, [], [])
            if resized in ready:
                os.read(ready[0] if ready[0] != STDIN else ready[-1], CHUNK)
                size = _terminal()
                session.send(b"w", struct.pack("!HH", size["rows"], size["columns"]))
            if STDIN in ready:
                data = os.read(STDIN, CHUNK)
                session.send(b"i" if data else b"e", data)
                if not data:
                    return


def _terminal() -> dict[str, Any]:
    try:
        columns, rows = os.get_terminal_size(STDIN)
    except OSError:
        columns, rows = 80, 24
    term = os.environ.get("TERM", "xterm")
    return {"term": term, "rows": rows or 24, "columns": columns or 80}


@contextmanager
def _raw_terminal() -> Iterator[None]:
    """Every key goes to the other end, Ctrl-C too; afterwards the terminal is as it was."""
    before = termios.tcgetattr(STDIN)
    tty.setraw(STDIN)
    try:
        yield
    finally:
        termios.tcsetattr(STDIN, termios.TCSADRAIN, before)


@contextmanager
def _as_it_is() -> Iterator[None]:
    yield


@contextmanager
def _size_changes() -> Iterator[int]:
    """The reading end of a pipe on which a byte comes whenever the terminal has another size."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def changed(number: int, frame: object) -> None:
        with suppress(BlockingIOError):
            os.write(writer, b"w")

    before = signal.signal(signal.SIGWINCH, changed)
    try:
        yield reader
    finally:
        signal.signal(signal.SIGWINCH, before)


def _ports(text: str) -> tuple[int, int]:
    match = _PORTS.fullmatch(text)
    ports = [int(each) for each in match.groups() if each] if match else []
    if not ports or not all(1 <= each <= 65535 for each in ports[:1]) or max(ports) > 65535:
        raise BadInput(f"--port: found {text!r}; allowed: a port such as 8888, or 8888:9000")
    return ports[0], ports[-1]


def _forward(daemon: Client, job: str, rank: int, port: int, local: int) -> None:
    """Listen on this machine alone, and carry each connection, until interrupted."""
    phase = daemon.job(job)["phase"]
    if phase not in ("running", "saving"):
        raise Conflict(f"{job} is {phase}: only a running job can be attached to")
    try:
        listener = socket.create_server(("127.0.0.1", local))
    except OSError as error:
        raise BadInput(
            f"--port: cannot listen on port {local}: {error.strerror}; choose another: --port {port}:LOCAL"
        ) from error
    here = listener.getsockname()[1]
    typer.echo(
        f"forwarding 127.0.0.1:{here} to port {port} of rank {rank} of {job}; Ctrl-C stops",
        err=True,
    )
    request = {"rank": rank, "port": port}
    with listener, suppress(KeyboardInterrupt):
        while True:
            connection, _ = listener.accept()
            threading.Thread(
                target=_carry_connection, args=(daemon, job, request, connection), daemon=True
            ).start()


def _carry_connection(
    daemon: Client, job: str, request: dict[str, Any], connection: socket.socket
) -> None:
    with connection:
        try:
            session = _open_session(daemon, job, request)
            threading.Thread(target=_send_all, args=(session, connection), daemon=True).start()
            for letter, payload in session.receive():
                if letter == b"o":
                    connection.sendall(payload)
        except GantreeError as error:
            typer.echo(error_text(error), err=True)
        except OSError:
            pass  # whoever connected here has gone
        else:
            session.close()


def _send_all(session: ExecSession, connection: socket.socket) -> None:
    with suppress(GantreeError, OSError):
        while data := connection.recv(CHUNK):
            session.send(b"i", data)
        session.send(b"e")
