"""Which jobs run from an event on: SRTF, SRSF and Tiresias-L as in Muri's simulator.

SRTF and SRSF ("shortest", "shortest-gpu") sort all jobs by the work that is left, in seconds or in GPU-seconds, and
fill the emptied cluster in that order ("yarn").

Tiresias-L ("dlas-gpu") keeps three queues. A job goes down one when the GPU-seconds that it has held GPUs for reach
3,250, and another at 7,200; it never comes back up (their run sets no promotion). Queues are served from the top, each
in its own order, by counting free GPUs. After every event those of a queue that wait go behind those of it that run.
A job may also go down between two events, at the moment when its time has come in whole seconds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, inf
from typing import Protocol

from gantree.sim.muri.nodes import counted, yarn
from gantree.sim.muri.trace import MuriJob

LEVELS_GPU_S = (3250.0, 7200.0)
"""GPU-seconds at which a job of Tiresias-L goes down a queue."""


@dataclass(slots=True, eq=False)
class ActiveJob:
    """A job that has arrived and not ended.

    looked_at_s is when its work was last brought up to date, held_s how long it has held GPUs by then. starting_s is
    what is left of a start that it pays for once; where it pays at every event, 0.
    """

    job: MuriJob
    iterations_left: float
    looked_at_s: float
    held_s: float = 0.0
    runs: bool = False
    level: int = 0
    starting_s: float = 0.0

    @property
    def left_s(self) -> float:
        """Seconds of work left."""
        return self.iterations_left * self.job.iteration_s

    @property
    def left_gpu_s(self) -> float:
        """GPU-seconds of work left."""
        return self.left_s * self.job.gpus


class Order(Protocol):
    """Who runs; told of every job that comes and goes."""

    def came(self, job_run: ActiveJob) -> None:
        """A job has arrived."""

    def left(self, job_run: ActiveJob) -> None:
        """A job has ended."""

    def choose(self) -> list[ActiveJob]:
        """Those who run from now on; what they have done is up to date."""

    def next_change_s(self, now: float) -> float:
        """When the choice may change though nobody comes or goes; infinity for never."""


class Shortest:
    """Least work left first; work_left says in what it is counted."""

    def __init__(self, work_left: Callable[[ActiveJob], float]) -> None:
        self._work_left = work_left
        self._active: list[ActiveJob] = []

    def came(self, job_run: ActiveJob) -> None:
        """It stands last among equals."""
        self._active.append(job_run)

    def left(self, job_run: ActiveJob) -> None:
        """It stands no more."""
        self._active.remove(job_run)

    def choose(self) -> list[ActiveJob]:
        """Fill the cluster from the shortest on."""
        self._active.sort(key=self._work_left)
        found = yarn(each.job.gpus for each in self._active)
        return [each for each, has in zip(self._active, found, strict=True) if has]

    def next_change_s(self, now: float) -> float:
        """Never: who is shortest stays shortest while it runs."""
        return inf


class LeastAttained:
    """Three queues by attained service.

    by_arrival: inside a queue who came first goes first, and stops others; as published, those who run go first.
    """

    def __init__(self, *, by_arrival: bool = False) -> None:
        self._by_arrival = by_arrival
        self._active: list[ActiveJob] = []
        self._queues: list[list[ActiveJob]] = [[] for _ in range(len(LEVELS_GPU_S) + 1)]

    def came(self, job_run: ActiveJob) -> None:
        """A new job is last in the top queue."""
        self._active.append(job_run)
        self._queues[0].append(job_run)

    def left(self, job_run: ActiveJob) -> None:
        """It stands no more."""
        self._active.remove(job_run)
        self._queues[job_run.level].remove(job_run)

    def choose(self) -> list[ActiveJob]:
        """Serve the queues from the top; then let those who run stand first in each."""
        self._demote()
        if self._by_arrival:
            for queue in self._queues:
                queue.sort(key=lambda each: each.job.arrival_s)
        queued = [each for queue in self._queues for each in queue]
        found = counted(each.job.gpus for each in queued)
        chosen = [each for each, has in zip(queued, found, strict=True) if has]
        runs = {id(each) for each in chosen}
        for queue in self._queues:
            queue.sort(key=lambda each: id(each) not in runs)
        return chosen

    def _demote(self) -> None:
        """Bring those who run and have had their share one queue down; one at an event, as they do."""
        for each in self._active:
            if not each.runs or each.level >= len(LEVELS_GPU_S):
                continue
            if each.held_s * each.job.gpus >= LEVELS_GPU_S[each.level]:
                self._queues[each.level].remove(each)
                each.level += 1
                self._queues[each.level].append(each)

    def next_change_s(self, now: float) -> float:
        """When the first of those who run has had its share, in whole seconds of holding."""
        return min(
            (
                now + ceil(LEVELS_GPU_S[each.level] / each.job.gpus) - each.held_s
                for each in self._active
                if each.runs and each.level < len(LEVELS_GPU_S)
            ),
            default=inf,
        )


ORDERS: dict[str, Callable[[], Order]] = {
    "SRTF": lambda: Shortest(lambda each: each.left_s),
    "SRSF": lambda: Shortest(lambda each: each.left_gpu_s),
    "Tiresias-L": LeastAttained,
}
