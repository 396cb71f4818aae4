"""The launch record of a member: what its shim reads as launch.json and starts."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gantree.executors.local.launch.environment import member_environment, process_environment
from gantree.executors.local.launch.lent_package import with_lent_package
from gantree.executors.local.launch.visible_gpus import GpuIds, MigIds, no_instances
from gantree.executors.local.run_directory import RunDirectory
from gantree.executors.local.unix_users import UnixUser
from gantree.model.cluster import Node
from gantree.model.orders import MemberLaunch, StartGang

NO_VARIABLES: Mapping[str, str] = MappingProxyType({})


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
    lent: Path | None = None,
    log_limits: Mapping[str, int] | None = None,
    open_files: int | None = None,
    mps: Mapping[str, str] = NO_VARIABLES,
    life: int = 0,
    ports: Mapping[str, str] = NO_VARIABLES,
) -> dict[str, Any]:
    """The record of a member. nodes has every node that is named, and every MIG instance must exist.

    unix is the user of the processes; None: that of the daemon. previous_world_size is that of the last attempt before
    this one that began. lent is the directory that `lent_package` made. log_limits are those of the
    shim's `log_cap`. open_files is the soft limit on them; None: the daemon's. mps is how the processes find the MPS
    control daemon that gantree started for them. life counts the replacements of the member. ports are the variables
    of `service_ports`.
    """
    base = base if unix is None else {**base, **unix.environment}
    env = member_environment(
        order,
        member,
        nodes,
        run,
        master_port,
        base,
        gpu_ids,
        mig_ids,
        previous_world_size,
        mps,
        life,
        ports,
    )
    if lent is not None:
        env["PYTHONPATH"] = with_lent_package(env.get("PYTHONPATH"), lent)
    return {
        "argv": [*nodes[member.node].launch, *member.run],
        "env": env,
        "workdir": member.workdir or base.get("HOME", "/"),
        "processes": [
            _process_record(order, member, rank, local_rank, run)
            for local_rank, rank in enumerate(member.rank_of_process)
        ],
        "checkpoint_signal": order.checkpoint_signal,
        "failure_grace_s": failure_grace_s,
        "as": _identity(order, unix),
        "logs": None if log_limits is None else dict(log_limits),
        "open_files": open_files,
    }


def _identity(order: StartGang, unix: UnixUser | None) -> dict[str, Any] | None:
    """The user and secrets for `shim.drop_privileges`; None if there are none."""
    if unix is None and not order.secrets:
        return None
    return {"unix": unix and asdict(unix), "secrets": [list(each) for each in order.secrets]}


def _process_record(
    order: StartGang, member: MemberLaunch, rank: int, local_rank: int, run: RunDirectory
) -> dict[str, Any]:
    env = process_environment(order, member, rank, local_rank)
    return {"rank": rank, "env": env, "log": str(run.log(rank))}
