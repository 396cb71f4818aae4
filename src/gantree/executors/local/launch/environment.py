"""The environment of a rank. Which variables reach a process, weakest first:

1. A short list of the daemon's own: where programs and libraries are found, locale, time zone, home. Nothing else: the
   daemon's environment may hold secrets.
2. Variables of gantree: devices, NICs, job, paths of the checkpoint protocol.
3. The job's own `env`, which overrides 1 and 2.
4. The rank variables, the ports of a service, the mark by which leftover processes are found. Nothing overrides
   these.
"""

from collections.abc import Mapping

from gantree.executors.check_plan import NETWORK_VARIABLES
from gantree.executors.local.launch.slurm_variables import gang_variables, process_variables
from gantree.executors.local.launch.visible_gpus import (
    MPS,
    GpuIds,
    MigIds,
    device_variables,
    no_instances,
    share_variables,
    visible_devices,
)
from gantree.executors.local.run_directory import RunDirectory
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


def inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of the daemon's environment that jobs get."""
    return {
        name: value
        for name, value in environment.items()
        if name in _INHERITED or name.startswith("LC_")
    }


def member_environment(
    order: StartGang,
    member: MemberLaunch,
    nodes: Mapping[str, Node],
    run: RunDirectory,
    master_port: int,
    base: Mapping[str, str],
    gpu_ids: GpuIds,
    mig_ids: MigIds,
    previous_world_size: int | None,
    mps: Mapping[str, str],
    life: int = 0,
    ports: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """What all processes of a member have in common. base is the inherited part, or that of the job's user.

    mps is how they find the MPS control daemon that was started for them. life counts the member's replacements. ports
    are the variables of `service_ports`.
    """
    fixed = {
        **_rendezvous(order, member, nodes, master_port),
        **_previous(previous_world_size),
        "GANTREE_LIFE": str(life),
        "GANTREE_RUN": str(run.member(member.node_rank, life)),
        **(ports or {}),
    }
    place = {
        **(gang_variables(order, member) if order.variables == SLURM else {}),
        **_place_variables(order, member, run),
        **mps,
        **share_variables(member.share, member.processes),
        **device_variables(visible_devices(member, gpu_ids, mig_ids)),
    }
    return {**_of_use(base, member), **place, **dict(member.env), **fixed}


def check_environment(
    order: StartGang,
    member: MemberLaunch,
    run: RunDirectory,
    base: Mapping[str, str],
    gpu_ids: GpuIds,
) -> dict[str, str]:
    """The variables of the check before the start, which runs as the daemon's user: nothing else of the job's."""
    own = {name: value for name, value in member.env if name in NETWORK_VARIABLES}
    return {
        **_of_use(base, member),
        **own,
        **_place_variables(order, member, run),
        **device_variables(visible_devices(member, gpu_ids, no_instances)),
        "GANTREE_RUN": str(run.member(member.node_rank)),
    }


def process_environment(
    order: StartGang, member: MemberLaunch, rank: int, local_rank: int
) -> dict[str, str]:
    """What one process has beside that."""
    env = {"RANK": str(rank), "LOCAL_RANK": str(local_rank)}
    if order.variables == SLURM:
        env |= process_variables(order, member, rank, local_rank)
    return env


def _rendezvous(
    order: StartGang, member: MemberLaunch, nodes: Mapping[str, Node], master_port: int
) -> dict[str, str]:
    """The ranks of a member, and the address at which the gang meets."""
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


def _of_use(base: Mapping[str, str], member: MemberLaunch) -> dict[str, str]:
    """The inherited variables; where an MPS daemon listens only for members that share a GPU through it."""
    shares = member.share is not None and member.share.isolation == MPS
    return {name: base[name] for name in base if shares or not name.startswith("CUDA_MPS_")}


def _place_variables(order: StartGang, member: MemberLaunch, run: RunDirectory) -> dict[str, str]:
    optional = {
        "NCCL_IB_HCA": "=" + ",".join(member.nics) if member.nics else None,
        "GANTREE_ARRAY_INDEX": _text(order.array_index),
        "GANTREE_REPLACEABLE": "1" if order.replaceable else None,
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
