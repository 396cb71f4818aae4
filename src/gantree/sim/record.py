"""Records of a simulation: placements over time, and utilisation of the cluster.

Everything comes from recorded facts; the ledger is asked only for counts that it keeps anyway.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from gantree.core.ledger.ledger import Ledger
from gantree.model.facts import (
    AttemptEnded,
    Fact,
    GangMoving,
    GangPlaced,
    GangPreempted,
    JobEnded,
    JobRequeued,
    JobsForgotten,
)
from gantree.model.placements import Placement
from gantree.policy.amounts import TICKS, held, ticks

MOST_SAMPLES = 100_000
"""Of a bounded run; every second one goes where there are more."""


@dataclass(frozen=True, slots=True)
class Sample:
    """From at_s on, until the next sample: GPUs that gangs hold (parts as parts), and jobs that wait."""

    at_s: float
    held_gpus: float
    waiting_jobs: int


@dataclass(frozen=True, slots=True)
class Stop:
    """An attempt was stopped at a moment for the job `by` ("" if for none).

    cause: why it was preempted ("priority", "order" or "reclaim"), or that it "moved" or was "resized". flees is what
    was wrong with the place that it left.
    """

    at_s: float
    cause: str
    by: str
    flees: str = ""


@dataclass(slots=True)
class Span:
    """An attempt held its place from from_s to to_s (None: it still does). gpus counts a part of a GPU as that part.

    cause: why it was stopped, as of Stop, or why the job was queued again ("rank-failed"); "" where it ended by itself.
    lost_gpu_s: GPU-seconds that it held in vain, of attempts that another one followed; known once the run is over.
    """

    job: str
    attempt: int
    from_s: float
    to_s: float | None
    gpus: float
    placement: Placement
    cause: str = ""
    lost_gpu_s: float = 0.0


class Record:
    """Folds facts into placements, spans, stops, held GPU-seconds, and samples over time."""

    def __init__(self, *, bounded: bool = False) -> None:
        """bounded: spans of attempts that are over are not kept, and long series of samples are thinned out."""
        self._bounded = bounded
        self._forgotten = 0
        self.newest_placement: dict[str, Placement] = {}
        self.spans: list[Span] = []
        self.stops: dict[str, list[Stop]] = {}
        self.samples: list[Sample] = []
        self.held_gpu_s = 0.0
        self.ended = 0
        self._held_ticks = 0  # whole numbers: what comes and goes leaves nothing behind
        self._newest_span: dict[str, Span] = {}
        self._held_gpu_s_of_job: dict[str, float] = {}

    def note(self, facts: Iterable[Fact], ledger: Ledger, now: float) -> None:
        """Take in what was decided at a moment in seconds."""
        for fact in facts:
            match fact:
                case GangPlaced():
                    self._placed(fact, ledger)
                case AttemptEnded():
                    span = self._newest_span[fact.job]
                    span.to_s = fact.at
                    self._held_ticks -= ticks(span.gpus)
                    held_gpu_s = (fact.at - span.from_s) * span.gpus
                    self.held_gpu_s += held_gpu_s
                    before = self._held_gpu_s_of_job.get(fact.job, 0.0)
                    self._held_gpu_s_of_job[fact.job] = before + held_gpu_s
                case GangPreempted() | GangMoving():
                    flees = fact.flees if isinstance(fact, GangMoving) else ""
                    stop = Stop(fact.at, str(fact.cause), fact.by, flees)
                    self.stops.setdefault(fact.job, []).append(stop)
                    self._newest_span[fact.job].cause = stop.cause
                case JobRequeued():
                    span = self._newest_span[fact.job]
                    span.cause = span.cause or str(fact.cause)
                case JobEnded():
                    self.ended += 1
                    if fact.job in self._newest_span:  # what was to stop it came too late
                        self._newest_span[fact.job].cause = ""
                case JobsForgotten():
                    self._forgotten += len(fact.jobs)
        over = self.ended - self._forgotten
        waiting_jobs = len(ledger.jobs) - len(ledger.holding) - over
        self._sample(Sample(now, self._held_ticks / TICKS, waiting_jobs))

    def _placed(self, fact: GangPlaced, ledger: Ledger) -> None:
        gpus = _gpus(ledger, fact.placement)
        span = Span(fact.job, fact.attempt, fact.at, None, gpus, fact.placement)
        self.newest_placement[fact.job] = fact.placement
        if not self._bounded:
            self.spans.append(span)
        self._newest_span[fact.job] = span
        self._held_ticks += ticks(gpus)

    def _sample(self, sample: Sample) -> None:
        """Keep one sample a moment: the last."""
        if self.samples and self.samples[-1].at_s == sample.at_s:
            self.samples[-1] = sample
        else:
            self.samples.append(sample)
            if self._bounded and len(self.samples) > MOST_SAMPLES:
                del self.samples[1::2]

    def held_gpu_s_of(self, job: str, now: float) -> float:
        """GPU-seconds that a job has held until now."""
        held_gpu_s = self._held_gpu_s_of_job.get(job, 0.0)
        span = self._newest_span.get(job)
        if span is not None and span.to_s is None:
            held_gpu_s += (now - span.from_s) * span.gpus
        return held_gpu_s

    def forget(self, job: str) -> None:
        """Forget a job that is over."""
        self.newest_placement.pop(job, None)
        self._newest_span.pop(job, None)
        self.stops.pop(job, None)
        self._held_gpu_s_of_job.pop(job, None)


def _gpus(ledger: Ledger, placement: Placement) -> float:
    """GPUs that placed members hold, parts as parts."""
    fabric = ledger.fabric
    assert fabric is not None, "a gang is placed on a cluster"
    amounts = held(
        placement.members,
        lambda node: fabric.machine_of_node(fabric.index_of_node[node]).gpu,
    )
    return amounts.get("gpus", 0.0)
