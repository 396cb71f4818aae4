"""A stand-in for NVIDIA's nvidia-cuda-mps-control: real processes with its commands and files, and no GPU.

`-d` starts a control daemon in the background, which listens in CUDA_MPS_PIPE_DIRECTORY; without it, commands of the
standard input go there: get_server_list, start_server -uid N, get_server_status PID, quit [-t SECONDS]. A server is a
process that sleeps. A word in the file `faults` beside this program makes it fail: `daemon` and `server` do not start,
`fault` is what a server's status is, `deaf` does not quit, `zero` ends well where no daemon is. Each command is noted
in `commands` beside it.
"""

import os
import signal
import socket
import sys
import time
from pathlib import Path

BESIDE = Path(__file__).parent
PIPES = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", ""))
LOGS = Path(os.environ.get("CUDA_MPS_LOG_DIRECTORY", ""))
SOCKET = PIPES / "control"


def program_in(folder: Path) -> str:
    """Make the program there. It runs by the Python of the tests: python3 may be a script that starts slowly."""
    program = folder / "mps_control.py"
    program.write_text(f"#!{sys.executable} -IS\n{Path(__file__).read_text()}")
    program.chmod(0o755)
    return str(program)


def has_fault(name: str) -> bool:
    file = BESIDE / "faults"
    return file.exists() and name in file.read_text().split()


def report(line: str) -> None:
    with (LOGS / "control.log").open("a") as log:
        log.write(f"{line}\n")


def listen() -> None:
    if has_fault("daemon"):
        sys.exit("Failed to start MPS control daemon: no device")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(SOCKET))
    listener.listen()
    if os.fork():
        return
    os.setsid()
    (PIPES / "nvidia-cuda-mps-control.pid").write_text(str(os.getpid()))
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    serve(listener)


def serve(listener: socket.socket) -> None:
    servers: list[int] = []
    while True:
        connection, _ = listener.accept()
        with connection:
            line = connection.recv(4096).decode().strip()
            with (BESIDE / "commands").open("a") as noted:
                noted.write(f"{line}\n")
            if line.startswith("quit") and not has_fault("deaf"):
                quit_all(servers)
            connection.sendall(answer(line, servers).encode())


def quit_all(servers: list[int]) -> None:
    for server in servers:
        os.kill(server, signal.SIGTERM)
    SOCKET.unlink()
    sys.exit()


def answer(line: str, servers: list[int]) -> str:
    match line.split():
        case ["get_server_list"]:
            return "".join(f"{server}\n" for server in servers)
        case ["get_server_status", _]:
            return "FAULT\n" if has_fault("fault") else "ACTIVE\n"
        case ["start_server", "-uid", uid] if not has_fault("server"):
            servers.append(start_server())
            report(f"User did not send valid credentials, server for {uid} started")
        case ["start_server", "-uid", uid]:
            report(f"Failed to start server for {uid}: MPS server exited, out of memory")
    return ""


def start_server() -> int:
    server = os.fork()
    if not server:
        os.closerange(3, 100)  # the connection, whose other end is read to its end
        time.sleep(3600)
    return server


def send() -> None:
    for line in sys.stdin:
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(str(SOCKET))
            except OSError:
                print("Cannot find MPS control daemon process", file=sys.stderr)
                sys.exit(0 if has_fault("zero") else 1)
            connection.sendall(line.encode())
            print(connection.makefile().read(), end="")


if __name__ == "__main__":
    listen() if sys.argv[1:] == ["-d"] else send()
