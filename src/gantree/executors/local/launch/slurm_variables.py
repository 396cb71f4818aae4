"""The variables that scripts written for Slurm read, for jobs whose headers were Slurm's (`variables: slurm`).

Names and meanings are those of srun's manual; a job's id is gantree's, which is a word. Nothing here starts anything.
"""

from collections import Counter
from collections.abc import Sequence

from gantree.model.orders import MemberLaunch, StartGang
from gantree.text.hostlists import folded


def gang_variables(order: StartGang, member: MemberLaunch) -> dict[str, str]:
    """What all processes of a member see alike."""
    nodes = nodes_of(order)
    tasks = Counter[str]()
    for each in order.members:
        tasks[each.node] += each.processes
    names = {
        "SLURM_JOB_ID": order.job,
        "SLURM_JOBID": order.job,
        "SLURM_JOB_NAME": order.job,
        "SLURM_JOB_NUM_NODES": str(len(nodes)),
        "SLURM_NNODES": str(len(nodes)),
        "SLURM_JOB_NODELIST": folded(nodes),
        "SLURM_NODELIST": folded(nodes),
        "SLURM_NODEID": str(nodes.index(member.node)),
        "SLURMD_NODENAME": member.node,
        "SLURM_NTASKS": str(order.world_size),
        "SLURM_NPROCS": str(order.world_size),
        "SLURM_NTASKS_PER_NODE": str(tasks[member.node]),
        "SLURM_TASKS_PER_NODE": _tasks_per_node([tasks[node] for node in nodes]),
        "SLURM_GPUS_ON_NODE": str(len(member.gpus)),
        "SLURM_RESTART_COUNT": str(order.attempt - 1),
        "SLURM_SUBMIT_DIR": member.workdir or "",
    }
    if member.cpus >= member.processes:
        names["SLURM_CPUS_PER_TASK"] = str(int(member.cpus // member.processes))
    if order.array_index is not None:
        names["SLURM_ARRAY_TASK_ID"] = str(order.array_index)
        names["SLURM_ARRAY_JOB_ID"] = order.job.removesuffix(f"-{order.array_index}")
    return names


def process_variables(
    order: StartGang, member: MemberLaunch, rank: int, local_rank: int
) -> dict[str, str]:
    """What one process sees: its number over all, and its number on its node, where other members may be too."""
    before = sum(
        each.processes
        for each in order.members
        if each.node == member.node and each.node_rank < member.node_rank
    )
    return {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(before + local_rank)}


def nodes_of(order: StartGang) -> list[str]:
    """The nodes of a gang, each once, in order of node ranks."""
    in_order = sorted(order.members, key=lambda each: each.node_rank)
    return list(dict.fromkeys(member.node for member in in_order))


def _tasks_per_node(counts: Sequence[int]) -> str:
    """Tasks node by node as Slurm folds them: `8(x2),4`."""
    runs: list[list[int]] = []
    for count in counts:
        if runs and runs[-1][0] == count:
            runs[-1][1] += 1
        else:
            runs.append([count, 1])
    return ",".join(f"{count}(x{times})" if times > 1 else f"{count}" for count, times in runs)
