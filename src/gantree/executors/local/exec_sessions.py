"""Exec sessions and ports of a running member: a command that its shim starts, and a port that it listens at.

A session is requested by a file in the member's folder. The shim deletes it and forks a process (`shim.exec_session`),
which connects to an abstract socket with a random name; a connection is accepted only if its peer is a child of the
shim. A port is forwarded only if a process of the member listens there.

Everything here reads and writes files, so it is safe from any thread.
"""

import os
import secrets
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gantree.executors.exec_session import Terminal
from gantree.executors.local import processes
from gantree.executors.local.processes import ShimId
from gantree.executors.local.run_directory import (
    RunDirectory,
    lives_in,
    order_from_json,
    write_plain,
)
from gantree.executors.local.shim.shim import boot_id, process_stat, read_json
from gantree.model.cluster import Node
from gantree.model.errors import Conflict, NotFound
from gantree.model.orders import MemberLaunch

SHELL = "/bin/sh"
"""Where the job's environment names no other."""
LISTENING = "0A"
"""State of a socket in /proc/net/tcp."""
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True, slots=True)
class RequestedSession:
    """A session whose process has not connected yet."""

    listener: socket.socket
    request: Path
    shim: ShimId

    def accepts(self, connection: socket.socket) -> bool:
        """Whether the peer of a connection is a child of the shim."""
        packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        stat = process_stat(_CREDENTIALS.unpack(packed)[0])
        return stat is not None and stat[1] == self.shim.pid

    def close(self) -> None:
        """Stop waiting; a process that was not started yet never is."""
        self.listener.close()
        with suppress(FileNotFoundError):
            self.request.unlink()


@dataclass(frozen=True, slots=True)
class RunningMember:
    """A member whose processes run."""

    launch: MemberLaunch
    folder: Path
    shim: ShimId


def running_member(run: RunDirectory, rank: int) -> RunningMember:
    """The running member that has a rank. Raises NotFound, and Conflict where it does not run (any more)."""
    record = read_json(str(run.gang))
    if record is None:
        raise Conflict(f"{run.job} has not begun to start")
    order = order_from_json(record["order"])
    launch = next((each for each in order.members if rank in each.rank_of_process), None)
    if launch is None:
        raise NotFound(f"{run.job} has ranks 0 to {order.world_size - 1}, and not {rank}")
    folder = run.member(launch.node_rank, lives_in(record).get(launch.node_rank, 0))
    shim = read_json(str(folder / "shim.json"))
    who = None if shim is None else ShimId(**shim)
    is_there = who is not None and processes.is_alive(who, boot_id())
    if who is None or not is_there or (folder / f"exit.{rank}.json").exists():
        raise Conflict(f"rank {rank} of {run.job} does not run")
    return RunningMember(launch, folder, who)


def request_session(
    host: RunningMember, node: Node, rank: int, command: Sequence[str], terminal: Terminal | None
) -> RequestedSession:
    """Ask for a command (none: a shell) beside a rank, in its environment. Raises OSError."""
    record = read_json(str(host.folder / "launch.json"))
    process = next(each for each in record["processes"] if each["rank"] == rank)
    environment = {**record["env"], **process["env"]}
    argv = [*node.launch, *(command or [environment.get("SHELL") or SHELL])]
    size = terminal and {"rows": terminal.rows, "columns": terminal.columns}
    name = f"gantree-exec-{secrets.token_hex(16)}"
    request_record = {
        "rank": rank,
        "env": {**process["env"], **({"TERM": terminal.term} if terminal else {})},
        "log": os.devnull,
        "guest": {"name": name, "argv": argv, "terminal": size},
    }
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    listener.bind(f"\0{name}")
    listener.listen(4)
    folder = host.folder / "attach"
    folder.mkdir(mode=0o700, exist_ok=True)
    request = folder / f"{name}.json"
    write_plain(request, request_record)
    processes.wake(host.shim, boot_id())
    return RequestedSession(listener, request, host.shim)


def address_of(host: RunningMember, port: int) -> tuple[str, int]:
    """Where a process of the member listens for TCP at a port, in the network of the daemon. Raises Conflict."""
    inode_of = dict(_listening(port))
    if inode_of:
        ours = frozenset(_sockets_of(host.shim.pid))
        for address, inode in inode_of.items():
            if inode in ours:
                return address, port
    raise Conflict(f"no process of this member listens at port {port}")


def _listening(port: int) -> Iterator[tuple[str, str]]:
    """(address to connect to, inode) of each socket that listens at a port."""
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        try:
            lines = Path(f"/proc/self/net/{table}").read_text(encoding="ascii").splitlines()[1:]
        except FileNotFoundError:  # no IPv6 here
            continue
        for fields in map(str.split, lines):
            address, _, number = fields[1].partition(":")
            if fields[3] == LISTENING and int(number, 16) == port:
                yield _reachable(address, family), fields[9]


def _reachable(packed: str, family: socket.AddressFamily) -> str:
    """An address as the kernel prints it, words turned round; one that means any address is this machine's own."""
    words = [packed[at : at + 8] for at in range(0, len(packed), 8)]
    address = socket.inet_ntop(family, b"".join(bytes.fromhex(each)[::-1] for each in words))
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)  # noqa: S104 - it is taken out


def _sockets_of(shim: int) -> Iterator[str]:
    """Inodes of the sockets that the processes of a member have open."""
    for pid in _below(shim):
        with suppress(OSError):  # it has ended, or is somebody else's
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    target = str(entry.readlink())
                    if target.startswith("socket:["):
                        yield target[8:-1]


def _below(root: int) -> list[int]:
    """All descendants of a process."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        stat = process_stat(int(entry.name)) if entry.name.isdigit() else None
        if stat is not None:
            children.setdefault(stat[1], []).append(int(entry.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found[1:]


def open_exec_session(
    run: RunDirectory,
    nodes: Mapping[str, Node],
    rank: int,
    command: Sequence[str],
    terminal: Terminal | None,
) -> RequestedSession:
    """Ask for a command beside a rank of an attempt. Raises NotFound, Conflict and OSError."""
    host = running_member(run, rank)
    return request_session(host, nodes[host.launch.node], rank, command, terminal)
