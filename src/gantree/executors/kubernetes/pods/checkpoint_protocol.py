"""Asking pods to save before they are stopped, and hearing that they have: annotations on both ways.

A pod says `gantree.io/checkpoint: all` where every pod of its gang answers for itself, or `first` where the one of
member 0 answers for all, and with `gantree.io/checkpoint-grace` how long that may take. It is asked by
`gantree.io/checkpoint-requested`, the moment by which it has to be done, and answers by writing the same into
`gantree.io/checkpoint-done`; the step goes into `gantree.io/checkpoint-step`, where it counts steps. A pod that says
nothing of this is never asked; what its preStop hook does has the grace of the stop.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from gantree.executors.kubernetes.apiserver.objects import Metadata, Pod
from gantree.executors.kubernetes.pods.gang_spec import parsed_seconds
from gantree.model.events import CheckpointSaved
from gantree.model.jobs import Checkpoint
from gantree.model.orders import SaveCheckpoint

CHECKPOINT, GRACE, EVERY = (
    "gantree.io/checkpoint",
    "gantree.io/checkpoint-grace",
    "gantree.io/checkpoint-every",
)
REQUESTED, DONE, STEP = (
    "gantree.io/checkpoint-requested",
    "gantree.io/checkpoint-done",
    "gantree.io/checkpoint-step",
)
ALL, FIRST = "all", "first"

Annotate = Callable[[Metadata, Mapping[str, str]], None]
PodsOf = Callable[[str, int], Sequence[Pod]]
"""The pods of an attempt that are there, in member order."""


def checkpoint_of(pods: Sequence[Pod]) -> Checkpoint | None:
    """How the gang of some pods saves, as the first says it; None where that says nothing that is understood."""
    told = pods[0].metadata.annotations
    if told.get(CHECKPOINT) not in (ALL, FIRST):
        return None
    grace_s = parsed_seconds(told.get(GRACE))
    return Checkpoint(
        every_s=parsed_seconds(told.get(EVERY)),
        grace_s=Checkpoint().grace_s if grace_s is None else grace_s,
    )


def invalid_annotations(pod: Pod) -> Iterator[str]:
    """Words on checkpoints that mean nothing, each as a short text for an event."""
    told = pod.metadata.annotations
    if told.get(CHECKPOINT, ALL) not in (ALL, FIRST):
        yield f"{CHECKPOINT}: {told[CHECKPOINT]!r} is neither {ALL!r} nor {FIRST!r}"
    for key in (GRACE, EVERY):
        if key in told and parsed_seconds(told[key]) is None:
            yield f"{key}: {told[key]!r} is no duration, such as 90s"


@dataclass(slots=True)
class CheckpointProtocol:
    """Requests that nobody has answered yet, by job and attempt."""

    annotate: Annotate
    pods_of: PodsOf
    _open: dict[tuple[str, int], SaveCheckpoint] = field(default_factory=dict)

    def request(self, order: SaveCheckpoint) -> None:
        """Ask the pods of an attempt to save that were not asked yet, as far as they say."""
        self._open[order.job, order.attempt] = order
        moment = moment_of(order)
        for pod in self.pods_of(order.job, order.attempt):
            if pod.metadata.annotations.get(REQUESTED) != moment:
                self.annotate(pod.metadata, {REQUESTED: moment})

    def forget(self, job: str, attempt: int) -> None:
        """An attempt stops, or is over: nobody waits for its answer."""
        self._open.pop((job, attempt), None)

    def completed(self, now: float) -> Iterator[CheckpointSaved]:
        """Requests that have been answered by now."""
        for (job, attempt), order in list(self._open.items()):
            pods = self.pods_of(job, attempt)
            if pods and _is_done(pods, moment_of(order)):
                self.forget(job, attempt)
                yield CheckpointSaved(
                    id=f"{order.request}/saved",
                    observed_at=now,
                    job=job,
                    attempt=attempt,
                    step=_step(pods[0]),
                    request=order.request,
                )


def moment_of(order: SaveCheckpoint) -> str:
    """By when an order is to be done, as pods are told it; whoever asks again asks the same."""
    return datetime.fromtimestamp(order.deadline_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _is_done(pods: Sequence[Pod], moment: str) -> bool:
    first = pods[0].metadata.annotations
    asked = pods[:1] if first.get(CHECKPOINT) == FIRST else pods
    return all(pod.metadata.annotations.get(DONE) == moment for pod in asked)


def _step(pod: Pod) -> int:
    text = pod.metadata.annotations.get(STEP, "")
    return int(text) if text.isascii() and text.isdecimal() else 0
