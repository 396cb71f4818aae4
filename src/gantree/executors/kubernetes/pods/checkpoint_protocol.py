"""The checkpoint protocol of pods, by annotations: a request before a stop, and its answer.

A pod declares `gantree.io/checkpoint: all` if every pod of its gang answers, or `first` if that of member 0 answers for
all, and with `gantree.io/checkpoint-grace` how long that may take. `gantree.io/checkpoint-requested` is the request,
with its deadline; the answer is the same value in `gantree.io/checkpoint-done`, and optionally the step in
`gantree.io/checkpoint-step`. Pods without the declaration get no request; their preStop hooks have the grace of the
stop.
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
    """Requests without an answer, by job and attempt."""

    annotate: Annotate
    pods_of: PodsOf
    _open: dict[tuple[str, int], SaveCheckpoint] = field(default_factory=dict)

    def request(self, order: SaveCheckpoint) -> None:
        """Write a request to the pods of an attempt that do not have it yet."""
        self._open[order.job, order.attempt] = order
        moment = moment_of(order)
        for pod in self.pods_of(order.job, order.attempt):
            if pod.metadata.annotations.get(REQUESTED) != moment:
                self.annotate(pod.metadata, {REQUESTED: moment})

    def forget(self, job: str, attempt: int) -> None:
        """An attempt stops or is over: forget its request."""
        self._open.pop((job, attempt), None)

    def completed(self, now: float) -> Iterator[CheckpointSaved]:
        """Requests that were answered since the last call."""
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
    """The deadline of an order as its annotation has it, the same each time."""
    return datetime.fromtimestamp(order.deadline_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _is_done(pods: Sequence[Pod], moment: str) -> bool:
    first = pods[0].metadata.annotations
    asked = pods[:1] if first.get(CHECKPOINT) == FIRST else pods
    return all(pod.metadata.annotations.get(DONE) == moment for pod in asked)


def _step(pod: Pod) -> int:
    text = pod.metadata.annotations.get(STEP, "")
    return int(text) if text.isascii() and text.isdecimal() else 0
