"""What a run did over time: the time from the first submission to the last change, cut into equal parts.

Every number is a mean over a part, exact and not sampled; of allocation and queue length there are the least and the
most, too. Useful GPUs are held GPUs times the share of its held time that a job's kept work took, spread evenly over
its attempts. Jobs that can never start ask for nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gantree.sim.measures.attempts import attempts_of, rows_of, spans_of
from gantree.sim.measures.fairness import fair_shares, guarantees_of, jain_index, weights_of
from gantree.sim.measures.fragmentation import free_in_whole_domains
from gantree.sim.measures.steps import Changes, FloatArray, Part, edges, means, parts_of
from gantree.sim.record import Sample
from gantree.sim.results import REJECTED, JobRow, Result, mean

PARTS = 240
"""Equal parts of the time: as many as a chart shows."""
SMALLEST = 1e-3
"""GPUs; a queue whose fair share in a part of the time is less had no demand to speak of."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """Means over parts of the time. edges_s are the ends of the parts, in seconds of the trace; all else is by part.

    held_of_queue and share_of_queue are GPUs that each queue held and its weighted max-min fair share; jain is None
    where no queue had demand. free_in_whole is by tier: free GPUs in domains of which nothing is taken.
    """

    gpus: int
    edges_s: tuple[float, ...]
    held: tuple[Part, ...]
    waiting: tuple[Part, ...]
    useful: tuple[float, ...]
    held_of_queue: Mapping[str, tuple[float, ...]]
    share_of_queue: Mapping[str, tuple[float, ...]]
    jain: tuple[float | None, ...]
    free_in_whole: Mapping[str, tuple[float, ...]]

    @property
    def parts(self) -> int:
        """How many parts there are; 0 if no time passed."""
        return len(self.held)

    def hours(self, part: int) -> float:
        """The middle of a part, in hours from the start."""
        middle_s = (self.edges_s[part] + self.edges_s[part + 1]) / 2
        return (middle_s - self.edges_s[0]) / 3600


def timeline_of(result: Result, parts: int = PARTS) -> Timeline:
    """The timeline of a run."""
    start_s, end_s = span_of(result)
    at = edges(start_s, end_s, parts)
    curves = _Curves(result)
    held = _means_by_queue(curves.held, at)
    shares, jain = _fairness(result, held, _means_by_queue(curves.demand, at))
    whole = free_in_whole_domains(result.fabric, spans_of(result), start_s)
    return Timeline(
        gpus=result.gpus,
        edges_s=tuple(at.tolist()),
        held=_parts(result.samples, lambda sample: sample.held_gpus, at),
        waiting=_parts(result.samples, lambda sample: sample.waiting_jobs, at),
        useful=_rounded(means(curves.useful, at)),
        held_of_queue={queue: _rounded(values) for queue, values in held.items()},
        share_of_queue=shares,
        jain=jain,
        free_in_whole={tier: _rounded(means(told, at)) for tier, told in whole.items()},
    )


def span_of(result: Result) -> tuple[float, float]:
    """From the first submission to the last change, in seconds of the trace."""
    if not result.samples:
        return 0.0, 0.0
    first_s = min((row.submit_s for row in result.jobs), default=result.samples[0].at_s)
    return first_s, result.samples[-1].at_s


def average(values: Sequence[float | None]) -> float | None:
    """The mean over the whole time of what is known; parts are equal."""
    return mean([value for value in values if value is not None])


def _parts(
    samples: tuple[Sample, ...], value: Callable[[Sample], float], at: FloatArray
) -> tuple[Part, ...]:
    return tuple(parts_of([(sample.at_s, value(sample)) for sample in samples], at))


def _rounded(values: FloatArray) -> tuple[float, ...]:
    return tuple(round(max(0.0, value), 6) for value in values.tolist())


class _Curves:
    """What changes with attempts and jobs: GPUs held and asked for by each queue, and useful GPUs of all."""

    def __init__(self, result: Result) -> None:
        queues = sorted({row.queue for row in rows_of(result)})
        self.held, self.demand = ({queue: Changes() for queue in queues} for _ in range(2))
        self.useful = Changes()
        for row, span in attempts_of(result):
            self.held[row.queue].held(span.from_s, span.to_s, span.gpus)
            self.useful.held(span.from_s, span.to_s, span.gpus * useful_share(row))
        for row in rows_of(result):
            if row.outcome != REJECTED and (row.attempts or row.end_s is not None):
                self.demand[row.queue].held(row.submit_s, row.end_s, row.gpus)


def useful_share(row: JobRow) -> float:
    """The part of the GPU time that a job held which its kept work takes, between 0 and 1."""
    return min(1.0, row.useful_gpu_s / row.gpu_s_held) if row.gpu_s_held else 0.0


def _means_by_queue(changes: Mapping[str, Changes], at: FloatArray) -> dict[str, FloatArray]:
    return {queue: means(told, at) for queue, told in changes.items()}


def _fairness(
    result: Result, held: Mapping[str, FloatArray], demand: Mapping[str, FloatArray]
) -> tuple[dict[str, tuple[float, ...]], tuple[float | None, ...]]:
    """Fair shares of each queue, and Jain's index of held GPUs over them, in each part."""
    weights = weights_of(held, result.policy.queues)
    guarantees = guarantees_of(held, result.policy.queues)
    shares: dict[str, list[float]] = {queue: [] for queue in held}
    jain: list[float | None] = []
    for part in range(len(next(iter(held.values()), ()))):
        wanted = {queue: max(0.0, float(demand[queue][part])) for queue in held}
        fair = fair_shares(result.gpus, wanted, weights, guarantees)
        for queue, share in fair.items():
            shares[queue].append(round(share, 6))
        got = [float(held[queue][part]) / fair[queue] for queue in held if fair[queue] > SMALLEST]
        index = jain_index(got)
        jain.append(None if index is None else round(index, 6))
    return {queue: tuple(values) for queue, values in shares.items()}, tuple(jain)
