"""A part of a trace: jobs of a time, of queues, of sizes; the first of them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from math import inf

from gantree.formats.traces import TraceJob
from gantree.sim.workload import gpus_of


@dataclass(frozen=True, slots=True)
class Selection:
    """Which jobs: submitted from from_s on and before to_s (seconds after the first job), GPUs from least to most.

    queues are names with all queues below them; () for any. first: so many of those, at most.
    """

    from_s: float = 0.0
    to_s: float = inf
    queues: tuple[str, ...] = ()
    least_gpus: float = 0.0
    most_gpus: float = inf
    first: int | None = None

    def __contains__(self, job: TraceJob) -> bool:
        """Whether a job, whose submit_s counts from the first one, is chosen by all but `first`."""
        return (
            self.from_s <= job.submit_s < self.to_s
            and (not self.queues or any(_is_in(job.queue, queue) for queue in self.queues))
            and self.least_gpus <= gpus_of(job) <= self.most_gpus
        )


def _is_in(queue: str, wanted: str) -> bool:
    return queue == wanted or queue.startswith(f"{wanted}/")


def selected(
    jobs: Iterable[TraceJob], selection: Selection, first_s: float = 0.0
) -> Iterator[TraceJob]:
    """Give the chosen jobs of a trace whose first is submitted at first_s, unchanged."""
    chosen = (job for job in jobs if replace(job, submit_s=job.submit_s - first_s) in selection)
    return islice(chosen, selection.first)
