"""What one member is started with: its environment, its command, and the port its gang meets at.

Which variables reach a process, weakest first:

1. A short list of the daemon's own: where programs and libraries are found, locale, time zone, home. Nothing
   else: the daemon's environment may hold secrets that are no business of a job.
2. What gantree says of the place: devices, NICs, job, paths of the checkpoint protocol.
3. The job's own `env`. It may overrule 1 and 2.
4. The rank variables and the mark by which leftovers are found. Nothing overrules these.
"""

import errno
import socket
import zlib
from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any

from gantree.executors.parts import (
    MPS,
    GpuIds,
    MigIds,
    no_instances,
    share_variables,
    visible_devices,
)
from gantree.executors.rundir import RunDirectory
from gantree.executors.slurm_variables import gang_variables, process_variables
from gantree.executors.unix_users import UnixUser
from gantree.model.cluster import Node
from gantree.model.orders import MemberLaunch, StartGang

_INHERITED = frozenset(
    {
        "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TERMINFO",
        "LD_LIBRARY_PATH", "LIBRARY_PATH", "VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "CONDA_PREFIX",
        "CUDA_HOME", "CUDA_PATH", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "SSL_CERT_FILE", "SSL_CERT_DIR",
        "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY",
    }
)  # fmt: skip
SLURM = "slurm"
_PORTS = range(20_000, 30_000)
"""Below the range from which Linux gives out ports for outgoing connections (32768-60999), so that no
connection of another rank takes the port between our look and the first member's bind."""


def inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of the daemon's environment that jobs get."""
    return {
        name: value
        for name, value in environment.items()
        if name in _INHERITED or name.startswith("LC_")
    }


def free_port(job: str, attempt: int, taken: Collection[int]) -> int:
    """A port nobody listens on, looked for from a place that differs between attempts. Raises OSError."""
    first = zlib.crc32(f"{job}/{attempt}".encode())
    for offset in range(len(_PORTS)):
        port = _PORTS[(first + offset) % len(_PORTS)]
        if port not in taken and _can_bind(port):
            return port
    raise OSError(errno.EADDRINUSE, f"no free port between {_PORTS.start} and {_PORTS.stop - 1}")


def _can_bind(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        try:
            listener.bind(("", port))
        except OSError:
            return False
    return True


def launch_record(
    order: StartGang,
    member: MemberLaunch,
    nodes: Mapping[str, Node],
    run: RunDirectory,
    master_port: int,
    base: Mapping[str, str],
    gpu_ids: GpuIds,
    failure_grace_s: float,
    mig_ids: MigIds = no_instances,
    previous_world_size: int | None = None,
    unix: UnixUser | None = None,
) -> dict[str, Any]:
    """What `shim` reads as launch.json. Every node that is named must be in nodes, and every MIG instance be there.

    unix is whom the processes run as; None: whoever the daemon runs as. previous_world_size is that of the attempt that
    began before this one, if any did.
    """
    base = base if unix is None else {**base, **unix.environment}
    fixed = {
        **_rendezvous(order, member, nodes, master_port),
        **_previous(previous_world_size),
        "GANTREE_RUN": str(run.member(member.node_rank)),
    }
    place = {
        **(gang_variables(order, member) if order.variables == SLURM else {}),
        **_place_variables(order, member, run),
        **share_variables(member.share, member.processes),
        "CUDA_VISIBLE_DEVICES": visible_devices(member, gpu_ids, mig_ids),
    }
    return {
        "argv": [*nodes[member.node].launch, *member.run],
        "env": {**_of_use(base, member), **place, **dict(member.env), **fixed},
        "workdir": member.workdir or base.get("HOME", "/"),
        "processes": [
            _process_record(order, member, rank, local_rank, run)
            for local_rank, rank in enumerate(member.rank_of_process)
        ],
        "checkpoint_signal": order.checkpoint_signal,
        "failure_grace_s": failure_grace_s,
        "as": _identity(order, unix),
    }


def _rendezvous(
    order: StartGang, member: MemberLaunch, nodes: Mapping[str, Node], master_port: int
) -> dict[str, str]:
    """Who a member is among all, and where they meet."""
    first = min(order.members, key=lambda each: each.node_rank)  # that of rank 0
    return {
        "WORLD_SIZE": str(order.world_size),
        "LOCAL_WORLD_SIZE": str(member.processes),
        "NODE_RANK": str(member.node_rank),
        "GANTREE_RANKS": ",".join(map(str, member.rank_of_process)),
        "GANTREE_WORLD_SIZE": str(order.world_size),
        "GANTREE_RENDEZVOUS_ID": f"{order.job}-{order.attempt}",
        "GANTREE_RESTARTS": str(max(0, order.attempt - 1)),
        "MASTER_ADDR": nodes[first.node].address,
        "MASTER_PORT": str(master_port),
    }


def _identity(order: StartGang, unix: UnixUser | None) -> dict[str, Any] | None:
    """Whom `become` makes of the processes, and which secrets it reads; None where there is nothing to do."""
    if unix is None and not order.secrets:
        return None
    return {"unix": unix and asdict(unix), "secrets": [list(each) for each in order.secrets]}


def _of_use(base: Mapping[str, str], member: MemberLaunch) -> dict[str, str]:
    """Where an MPS daemon listens is told only to those that are to share a GPU through it."""
    shares = member.share is not None and member.share.isolation == MPS
    return {name: base[name] for name in base if shares or not name.startswith("CUDA_MPS_")}


def _place_variables(order: StartGang, member: MemberLaunch, run: RunDirectory) -> dict[str, str]:
    optional = {
        "NCCL_IB_HCA": "=" + ",".join(member.nics) if member.nics else None,
        "GANTREE_ARRAY_INDEX": _text(order.array_index),
        "GANTREE_CHECKPOINT_PATH": order.checkpoint_path,
        "GANTREE_CHECKPOINT_EVERY_S": _text(order.checkpoint_every_s),
    }
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "GANTREE_JOB": order.job,
        "GANTREE_ATTEMPT": str(order.attempt),
        "GANTREE_ROLE": member.role,
        "GANTREE_MEMBER": str(member.rank),
        "GANTREE_NODE": member.node,
        "GANTREE_RUN_DIR": str(run.path),
        "GANTREE_CHECKPOINT_ANSWER": str(run.checkpoint / "answer"),
        **{name: value for name, value in optional.items() if value is not None},
    }


def _text(number: float | None) -> str | None:
    return None if number is None else str(number)


def _previous(world_size: int | None) -> dict[str, str]:
    return {} if world_size is None else {"GANTREE_PREVIOUS_WORLD_SIZE": str(world_size)}


def _process_record(
    order: StartGang, member: MemberLaunch, rank: int, local_rank: int, run: RunDirectory
) -> dict[str, Any]:
    env = {"RANK": str(rank), "LOCAL_RANK": str(local_rank)}
    if order.variables == SLURM:
        env |= process_variables(order, member, rank, local_rank)
    return {"rank": rank, "env": env, "log": str(run.log(rank))}
