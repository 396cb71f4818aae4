"""The status of pending pods: why they are pending, as a condition of each pod and of its group.

Users and autoscalers read `PodScheduled=False, Unschedulable`, so it is kept up to date, but for a few gangs a step, so
that decisions are not delayed, and only changes are written. Reasons are those of Kueue, for tools that read them.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from gantree.core.view import LedgerView
from gantree.executors.kubernetes.pods.ports import in_words
from gantree.executors.kubernetes.workloads.keys import Key
from gantree.model.verdicts import Gate

AT_ONCE = 4
"""Gangs that are updated in one step at most."""
EVERY_S = 10.0
"""The reason of a gang is updated so often at most."""
REASON_OF_GATE = {
    Gate.LIMIT: "ExceedsMaxQuota",
    Gate.QUOTA: "WaitingForQuota",
    Gate.SHAPE: "NoMatchingFlavor",
    Gate.ROOM: "NoMatchingFlavor",
    Gate.CONTIGUITY: "TopologyPlacementFailed",
    Gate.HARM: "WaitingForPreemptedWorkloads",
    Gate.RESERVATION: "PendingEvaluation",
}
"""Kueue's words for the gates, as its condition QuotaReserved has them."""
MISCONFIGURED, PENDING = "Misconfigured", "PendingEvaluation"


@dataclass(frozen=True, slots=True)
class WaitReason:
    """Why a gang waits: Kueue's word, and a sentence."""

    reason: str
    sentence: str


@dataclass(slots=True)
class PodStatusUpdates:
    """Pending gangs, what was written last, and which is updated next."""

    write: Callable[[Key, WaitReason], None]
    _queue: deque[tuple[float, Key]] = field(default_factory=deque)
    _queued: set[Key] = field(default_factory=set)
    """The keys in the queue: a gang that is added again keeps its place there."""
    _reported: dict[Key, WaitReason | None] = field(default_factory=dict)

    def add(self, key: Key, now: float) -> None:
        """A gang is pending."""
        self._reported.setdefault(key, None)
        if key not in self._queued:
            self._queued.add(key)
            self._queue.append((now, key))

    def remove(self, key: Key) -> None:
        """A gang is no longer pending."""
        self._reported.pop(key, None)

    def report(self, key: Key, reason_to_wait: WaitReason) -> None:
        """Write a reason that is not decided by the core, unless it was written already."""
        if self._reported.get(key) != reason_to_wait:
            self._reported[key] = reason_to_wait
            self.write(key, reason_to_wait)

    def step(
        self, decided: LedgerView, job_of: Callable[[Key], str | None], now: float
    ) -> Iterator[Key]:
        """Update the next few that are due; give those whose job has ended although its pods are pending."""
        for _ in range(AT_ONCE):
            if not self._queue or self._queue[0][0] > now:
                return
            _, key = self._queue.popleft()
            if key not in self._reported:
                self._queued.discard(key)
                continue
            self._queue.append((now + EVERY_S, key))
            job = job_of(key)
            if job is None:
                continue
            if decided.is_over(job):
                yield key
            reason_to_wait = wait_reason(decided, job, now)
            if reason_to_wait is not None:
                self.report(key, reason_to_wait)


def wait_reason(decided: LedgerView, job: str, now: float) -> WaitReason | None:
    """Why a job waits; None if it is not decided about yet, or does not wait."""
    rejected_for = decided.rejection(job)
    if rejected_for is not None:
        return WaitReason(MISCONFIGURED, f"Rejected: {rejected_for}.")
    why = decided.why_waiting(job, now)
    if why is None:
        return None
    sentence, gate = why
    return WaitReason(PENDING if gate is None else REASON_OF_GATE[gate], in_words(sentence))
