"""Muri's two ways to assign GPUs of an empty cluster to a list of jobs, in the given order.

"yarn": a job of up to a node's GPUs sits on the first node that has them free; a larger one takes the first whole
nodes, and for what is left over the first other node with room. Their nodes also have 92 CPUs and 520 GB, of which a
GPU takes at most 6 and 14: neither ever binds before the GPUs do, so neither is counted here. `counted` looks at the
number of free GPUs only; their run of Tiresias-L does, whatever placement it is asked for.
"""

from collections.abc import Iterable

NODES, GPUS_OF_NODE = 8, 8
GPUS = NODES * GPUS_OF_NODE


def yarn(gpus_of_job: Iterable[int]) -> list[bool]:
    """Which jobs find a place, for jobs of so many GPUs, one after the other."""
    free_gpus_of_node = [GPUS_OF_NODE] * NODES
    return [_take(free_gpus_of_node, gpus) for gpus in gpus_of_job]


def _take(free_gpus_of_node: list[int], gpus: int) -> bool:
    """Take a job's GPUs, if it finds a place."""
    whole, rest = divmod(gpus, GPUS_OF_NODE)
    taken = [node for node, free in enumerate(free_gpus_of_node) if free == GPUS_OF_NODE][:whole]
    if len(taken) < whole:
        return False
    if rest:
        others = (node for node in range(NODES) if node not in taken)
        last = next((node for node in others if free_gpus_of_node[node] >= rest), None)
        if last is None:
            return False
        free_gpus_of_node[last] -= rest
    for node in taken:
        free_gpus_of_node[node] = 0
    return True


def counted(gpus_of_job: Iterable[int]) -> list[bool]:
    """Which jobs find GPUs, wherever these are."""
    free_gpus, found = GPUS, []
    for gpus in gpus_of_job:
        found.append(gpus <= free_gpus)
        free_gpus -= gpus if found[-1] else 0
    return found
