"""Their Tiresias with tuned jobs: two queues by attained service, decided anew every minute.

Jobs go from the first queue to the second for good once they have held 16 GPU-hours. Queues are served one after the
other, in the order in which jobs came to them, by counting free GPUs. Whoever starts takes the nodes with most free
GPUs, and does nothing for 30 s; whoever runs on stays where it is. Ends of epochs are rounded to whole seconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gantree.sim.pollux.profiles import Placement
from gantree.sim.pollux.workload import GPUS_OF_NODE, NODES, PolluxJob

START_S = 30.0
"""What a job does nothing for after each start."""

INTERVAL_S = 60
DEMOTED_AT_GPU_S = 16 * 3600.0


@dataclass(slots=True, eq=False)
class ActiveJob:
    """A job between arrival and end. nodes is (node, replicas) for each node that it runs on, empty while it waits."""

    job: PolluxJob
    left: float
    epoch: int = 0
    nodes: tuple[tuple[int, int], ...] = ()
    starting_s: float = 0.0
    held_s: float = 0.0
    starts: int = 0
    end_s: float | None = None

    @property
    def placement(self) -> Placement:
        """Replicas on each node."""
        return tuple(replicas for _, replicas in self.nodes)


@dataclass(frozen=True, slots=True)
class Replay:
    """Completion times in seconds in the order of the workload, the last end, and starts beyond the first."""

    jct_s: tuple[float, ...]
    makespan_s: float
    preemptions: int


def replay(jobs: Sequence[PolluxJob]) -> Replay:
    """Run a workload to its last end."""
    active = [ActiveJob(job, job.iterations[0]) for job in jobs]
    queues: tuple[list[ActiveJob], list[ActiveJob]] = [], []
    now, arrived = 0, set[str]()
    while any(each.end_s is None for each in active):
        for each in active:
            if each.nodes:
                advance(each, now)
        now += INTERVAL_S
        for each in active:
            if each.job.name not in arrived and each.job.arrival_s <= now:
                arrived.add(each.job.name)
                queues[0].append(each)
        _decide(queues)
    ends = [each.end_s or 0.0 for each in active]
    return Replay(
        tuple(end_s - job.arrival_s for end_s, job in zip(ends, jobs, strict=True)),
        max(ends),
        sum(each.starts - 1 for each in active),
    )


def advance(each: ActiveJob, now: float) -> None:
    """Let a job that runs work for one interval, or to its end."""
    starting_s = min(each.starting_s, INTERVAL_S)
    each.starting_s -= starting_s
    each.held_s += INTERVAL_S
    passed_s, iteration_s = starting_s, each.job.iteration_s(each.placement)
    while passed_s < INTERVAL_S:
        if each.left > (INTERVAL_S - passed_s) / iteration_s:
            each.left -= (INTERVAL_S - passed_s) / iteration_s
            return
        passed_s += round(each.left * iteration_s)
        each.epoch += 1
        if each.epoch == len(each.job.iterations):
            each.end_s = now + passed_s
            return
        each.left = each.job.iterations[each.epoch]


def _decide(queues: tuple[list[ActiveJob], list[ActiveJob]]) -> None:
    """Demote, serve the queues by number of GPUs, and place those who start."""
    for queue in queues:
        for each in [each for each in queue if each.end_s is not None]:
            queue.remove(each)
            each.nodes = ()
    for each in list(queues[0]):
        if each.held_s * each.job.replicas >= DEMOTED_AT_GPU_S:
            queues[0].remove(each)
            queues[1].append(each)
    free_gpus, served = NODES * GPUS_OF_NODE, []
    for each in (*queues[0], *queues[1]):
        if each.job.replicas <= free_gpus:
            free_gpus -= each.job.replicas
            served.append(each)
        else:
            each.nodes = ()
    _place(served)


def _place(served: Sequence[ActiveJob]) -> None:
    """Give those without a place the nodes with most free GPUs, the first among equals."""
    free_gpus_of_node = dict.fromkeys(range(NODES), GPUS_OF_NODE)
    for each in served:
        for node, replicas in each.nodes:
            free_gpus_of_node[node] -= replicas
    for each in served:
        if not each.nodes:
            each.nodes = _nodes_for(each.job.replicas, free_gpus_of_node)
            each.starting_s = START_S
            each.starts += 1
    assert min(free_gpus_of_node.values()) >= 0


def _nodes_for(replicas: int, free_gpus_of_node: dict[int, int]) -> tuple[tuple[int, int], ...]:
    taken = []
    while replicas:
        node = max(free_gpus_of_node, key=free_gpus_of_node.__getitem__)
        count = min(free_gpus_of_node[node], replicas)
        free_gpus_of_node[node] -= count
        replicas -= count
        taken.append((node, count))
    return tuple(taken)
