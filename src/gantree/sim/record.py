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
)
from gantree.model.placements import Placement
from gantree.policy.amounts import TICKS, held, ticks


@dataclass(frozen=True, slots=True)
class Sample:
    """From at_s on, until the next sample: GPUs that gangs hold (parts as parts), and jobs that wait."""

    at_s: float
    held_gpus: float
    waiting_jobs: int


@dataclass(frozen=True, slots=True)
class Stop:
    """An attempt was stopped at a moment for the job `by` ("" if for none).

    cause: why it was preempted ("priority", "order" or "reclaim"), or that it "moved" or was "resized".
    """

    at_s: float
    cause: str
    by: str


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

    def __init__(self) -> None:
        self.newest_placement: dict[str, Placement] = {}
        self.spans: list[Span] = []
        self.stops: dict[str, list[Stop]] = {}
        self.samples: list[Sample] = []
        self.held_gpu_s = 0.0
        self.ended = 0
        self._held_ticks = 0  # whole numbers: what comes and goes leaves nothing behind
        self._newest_span: dict[str, Span] = {}

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
                    self.held_gpu_s += (fact.at - span.from_s) * span.gpus
                case GangPreempted() | GangMoving():
                    stop = Stop(fact.at, str(fact.cause), fact.by)
                    self.stops.setdefault(fact.job, []).append(stop)
                    self._newest_span[fact.job].cause = stop.cause
                case JobRequeued():
                    span = self._newest_span[fact.job]
                    span.cause = span.cause or str(fact.cause)
                case JobEnded():
                    self.ended += 1
                    if fact.job in self._newest_span:  # what was to stop it came too late
                        self._newest_span[fact.job].cause = ""
        waiting_jobs = len(ledger.jobs) - len(ledger.holding) - self.ended
        self._sample(Sample(now, self._held_ticks / TICKS, waiting_jobs))

    def _placed(self, fact: GangPlaced, ledger: Ledger) -> None:
        gpus = _gpus(ledger, fact.placement)
        span = Span(fact.job, fact.attempt, fact.at, None, gpus, fact.placement)
        self.newest_placement[fact.job] = fact.placement
        self.spans.append(span)
        self._newest_span[fact.job] = span
        self._held_ticks += ticks(gpus)

    def _sample(self, sample: Sample) -> None:
        """Keep one sample a moment: the last."""
        if self.samples and self.samples[-1].at_s == sample.at_s:
            self.samples[-1] = sample
        else:
            self.samples.append(sample)


def _gpus(ledger: Ledger, placement: Placement) -> float:
    """GPUs that placed members hold, parts as parts."""
    fabric = ledger.fabric
    assert fabric is not None, "a gang is placed on a cluster"
    amounts = held(
        placement.members,
        lambda node: fabric.machine_of_node(fabric.index_of_node[node]).gpu,
    )
    return amounts.get("gpus", 0.0)
